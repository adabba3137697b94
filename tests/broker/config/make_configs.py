"""Makes `broker/config/configs.json`, the definitions of Kafka's configs that `broker/config/definitions.py` reads.

Run it with the path of a reference file: a JSON list of objects with `name`, `scope`, `type`, `default`, `valid`,
`synonyms`, `sensitive`, `read_only`, `dynamic`, `internal`, `in` (the releases that have the config), and
`default_by_release` and the like if one of these changed, as dumped from Apache Kafka's own definitions:

    python tests/broker/config/make_configs.py REFERENCE.json

A row has the definition in the newest release with the config; `in` lists the releases that have it, by their index in
`tables`; `moved` has the differences in each of these, by the same index. Only `port` is left out: Kubernetes sets
KAFKA_PORT=tcp://... in every pod beside a service with the name "kafka".
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ottla_testing import ROOT

TABLES = ["2.8.2", "3.0.2", "3.9.1", "4.0.0", "4.1.1", "4.3.1"]
COLUMNS = ["name", "scope", "type", "default", "valid", "synonyms", "flags", "dynamic", "in", "moved"]
MOVABLE = ["type", "default", "valid", "synonyms", "dynamic", "internal"]
LEFT_OUT = {"port"}
TARGET = ROOT / "broker" / "config" / "configs.json"


def is_release_list(valid: str | None) -> bool:
    """Returns whether this is the long list of version names that three configs share; it grows with each release."""
    return (valid or "").startswith("[0.8.0, ")


def flags_of(config: dict[str, Any]) -> str:
    """Returns a letter per flag: sensitive, read only, internal, list that must not be empty."""
    flags = (
        ("s" if config["sensitive"] else "")
        + ("r" if config["read_only"] else "")
        + ("i" if config["internal"] else "")
    )
    return flags + ("n" if config.get("empty_ok") is False else "")


def moved(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the differences from the newest release with the config, by index of the release in TABLES."""
    found: dict[str, dict[str, Any]] = {}
    for field in MOVABLE:
        for release, value in config.get(f"{field}_by_release", {}).items():
            if value != config[field] and not (field == "valid" and is_release_list(value)):
                found.setdefault(str(TABLES.index(release)), {})[field] = value
    return dict(sorted(found.items()))


def row(config: dict[str, Any]) -> list[Any]:
    return [
        config["name"],
        config["scope"],
        config["type"],
        config["default"],
        "releases" if is_release_list(config["valid"]) else config["valid"],
        config["synonyms"],
        flags_of(config),
        config["dynamic"],
        "".join(str(TABLES.index(release)) for release in config["in"]),
        moved(config),
    ]


def table(configs: list[dict[str, Any]]) -> str:
    """Returns the content of the file, with one config per line for readable diffs."""
    kept = [config for config in configs if config["name"] not in LEFT_OUT]
    rows = [row(config) for config in sorted(kept, key=lambda config: (config["scope"], config["name"]))]
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in rows)
    return f'{{"columns":{json.dumps(COLUMNS)},\n"tables":{json.dumps(TABLES)},\n"rows":[\n{lines}\n]}}\n'


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    TARGET.write_text(table(json.loads(Path(sys.argv[1]).read_text())))
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")
