"""Makes `broker/configs.json`, the table of facts about Kafka's configs that `broker/config.py` reads.

Run it with the path of a reference file: a JSON list of objects with `name`, `scope`, `type`, `default`, `valid`,
`synonyms`, `sensitive`, `read_only`, `dynamic`, `internal` and `in` (the releases that have the config), as dumped from
Apache Kafka's own definitions:

    python tests/broker/make_configs.py REFERENCE.json

Kept: every config of the newest release, and those of 3.9 that 4.0 removed, because files written for 3.9 name them.
Names that only older releases had stay out. One of them, `port`, must: Kubernetes sets KAFKA_PORT=tcp://... in every
pod beside a service called "kafka".
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

NEWEST = "4.3.1"
LAST_OF_3 = "3.9.1"
COLUMNS = ["name", "scope", "type", "default", "valid", "synonyms", "flags", "dynamic", "last"]
TARGET = Path(__file__).resolve().parents[2] / "broker" / "configs.json"


def release_names(configs: list[dict[str, Any]]) -> str:
    """The one long list of version names that four configs share, as the reference spells it."""
    return next(config["valid"] for config in configs if config["name"] == "inter.broker.protocol.version")


def flags_of(config: dict[str, Any]) -> str:
    """One letter a fact: sensitive, read only, internal, list that must not be empty."""
    flags = (
        ("s" if config["sensitive"] else "")
        + ("r" if config["read_only"] else "")
        + ("i" if config["internal"] else "")
    )
    return flags + ("n" if config.get("empty_ok") is False else "")


def row(config: dict[str, Any], releases: str) -> list[Any]:
    valid = "releases" if config["valid"] == releases else config["valid"]
    last = None if NEWEST in config["in"] else config["in"][-1]
    return [
        config["name"],
        config["scope"],
        config["type"],
        config["default"],
        valid,
        config["synonyms"],
        flags_of(config),
        config["dynamic"],
        last,
    ]


def table(configs: list[dict[str, Any]]) -> str:
    """The whole file, one config a line so that a difference between two releases can be read."""
    releases = release_names(configs)
    kept = [config for config in configs if NEWEST in config["in"] or LAST_OF_3 in config["in"]]
    rows = [row(config, releases) for config in sorted(kept, key=lambda config: (config["scope"], config["name"]))]
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in rows)
    names = json.dumps(releases.strip("[]").split(", "), separators=(",", ":"))
    return f'{{"columns":{json.dumps(COLUMNS)},\n"releases":{names},\n"rows":[\n{lines}\n]}}\n'


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    TARGET.write_text(table(json.loads(Path(sys.argv[1]).read_text())))
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")
