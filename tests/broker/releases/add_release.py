"""Adds a release of Apache Kafka to the tables of this project, from the release's jars:

    .venv/bin/python tests/broker/releases/add_release.py 4.4.0 [--since 4.3.1] [--dry-run]

Maven fetches the jars. `Facts.java` reads their APIs, errors, features and configs; the definitions of messages and
records are files in the jars. The script writes the release's row in `broker/releases/releases.json`, its column in
`broker/config/configs.json`, and the facts of messages and records in `tests/protocol/versions.json` and
`tests/tools/disk/kraft_records.json`. A release that is there already is replaced. Then it prints all differences from
another release (`--since`, by default the newest other one in the table of configs), also those that no table holds.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla_testing import ROOT
from ottla_testing.interop.checks import jars, java
from ottla_testing.oracle.manifest import MANIFEST, present
from ottla_testing.protocol.apache_definitions import APIS, KRAFT_RECORDS, RECORDS, definition

RELEASES = ROOT / "broker" / "releases" / "releases.json"
CONFIGS = ROOT / "broker" / "config" / "configs.json"
VERSIONS = ROOT / "tests" / "protocol" / "versions.json"
KRAFT = ROOT / "tests" / "tools" / "disk" / "kraft_records.json"
LAST_OF_3 = "3.9.1"  # has the versions of messages that 4.0 removed (KIP-896)

MOVABLE = ("type", "default", "valid", "synonyms", "dynamic", "internal")  # parts of a config that releases change
LEFT_OUT = {"port"}  # Kubernetes sets KAFKA_PORT=tcp://... in every pod beside a service with the name "kafka"

Config = dict[str, Any]


# ---- the jars


@cache
def folder_of(version: str) -> Path:
    return jars(f"kafka-{version}", [f"org.apache.kafka:kafka_2.13:{version}"])


@cache
def facts_of(version: str) -> dict[str, Any]:
    """Returns what `Facts.java` prints; it is written for the classes of 4.3 and later."""
    command = java(folder_of(version), Path(__file__).with_name("Facts.java"))
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"Facts.java does not fit the classes of {version}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


@cache
def messages_of(version: str) -> dict[str, dict[str, Any]]:
    """Returns the definitions of all messages and records by name."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder_of(version).glob(f"kafka*-{version}.jar")):
        with zipfile.ZipFile(path) as jar:
            for name in jar.namelist():
                if re.fullmatch(r"common/\w+/(\w+)\.json", name):
                    text = re.sub(r"^\s*//.*$", "", jar.read(name).decode(), flags=re.M)
                    source = json.loads(text)
                    found[source["name"]] = definition(source)
    return found


def configs_of(version: str) -> dict[tuple[str, str], Config]:
    """Returns the configs by scope and name, in the notation of the table."""
    found: dict[tuple[str, str], Config] = {}
    for row in facts_of(version)["configs"]:
        if row["name"] not in LEFT_OUT:
            row["valid"] = row["valid"] or None
            row["flags"] = (
                ("s" if row["type"] == "PASSWORD" else "")
                + ("r" if row["scope"] == "broker" and row["dynamic"] is None else "")
                + ("i" if row["internal"] else "")
                + ("n" if row.get("emptyAllowed") is False else "")
            )
            found[row["scope"], row["name"]] = row
    return found


# ---- the table of API versions


def with_row(table: dict[str, Any], version: str) -> str:
    """Returns `releases.json` with the APIs of a release, one release per line."""
    apis = facts_of(version)["apis"]
    names = table["names"] | {key: name for key, (name, _, _) in apis.items()}
    rows = table["releases"] | {minor(version): {key: ends for key, (_, *ends) in apis.items()}}
    shown = json.dumps(dict(sorted(names.items(), key=lambda pair: int(pair[0]))), separators=(",", ":"))
    lines = [f"{json.dumps(name)}:{json.dumps(row, separators=(',', ':'))}" for name, row in rows.items()]
    return f'{{"names":{shown},\n"releases":{{\n' + ",\n".join(lines) + "\n}}\n"


def minor(version: str) -> str:
    return version.rpartition(".")[0]


# ---- the table of configs


def unfolded(table: dict[str, Any]) -> dict[str, dict[tuple[str, str], Config]]:
    """Returns the configs of each release in the table, by scope and name."""
    found: dict[str, dict[tuple[str, str], Config]] = {version: {} for version in table["tables"]}
    for row in table["rows"]:
        config = dict(zip(table["columns"], row, strict=True))
        config["internal"] = "i" in config["flags"]
        places, moved = config.pop("in"), config.pop("moved")
        for place in places:
            of_release = config | moved.get(place, {})
            found[table["tables"][int(place)]][config["scope"], config["name"]] = of_release
    return found


def folded(columns: list[str], releases: dict[str, dict[tuple[str, str], Config]]) -> str:
    """Returns `configs.json`: a row has the definition in the newest release with the config, `in` the releases with
    the config by their index in `tables`, and `moved` the differences in these, by the same index.
    """
    rows: list[list[Any]] = []
    for key in sorted({key for configs in releases.values() for key in configs}):
        having = {str(place): configs[key] for place, configs in enumerate(releases.values()) if key in configs}
        newest = list(having.values())[-1]
        moved = {
            place: {field: config[field] for field in MOVABLE if config[field] != newest[field]}
            for place, config in having.items()
        }
        folds = {"in": "".join(having), "moved": {place: fields for place, fields in moved.items() if fields}}
        rows.append([(newest | folds)[column] for column in columns])
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    tables = json.dumps(list(releases))
    return f'{{"columns":{json.dumps(columns)},\n"tables":{tables},\n"rows":[\n{lines}\n]}}\n'


def with_column(table: dict[str, Any], version: str) -> str:
    """Returns `configs.json` with the configs of a release, in place of an earlier patch of it."""
    releases = unfolded(table)
    kept = {name: configs for name, configs in releases.items() if name == version or minor(name) != minor(version)}
    return folded(table["columns"], kept | {version: configs_of(version)})


# ---- the definitions of messages


def definitions(version: str) -> str:
    """Returns `versions.json`: the definitions of every served message and record. A version of a message is described
    by the newest definition that has it.
    """
    table: dict[str, list[dict[str, Any]]] = {}
    for name in [api + kind for api in APIS for kind in ("Request", "Response")]:
        table[name] = [found[name] for found in (messages_of(version), messages_of(LAST_OF_3)) if name in found]
    for name in RECORDS:
        table[name] = [messages_of(version)[name]]
    return one_per_line(table)


def kraft_records(version: str) -> str:
    """Returns `kraft_records.json`: the definitions of the records that only `ottla dump` and an upgrade read."""
    return one_per_line({name: messages_of(version)[name] for name in KRAFT_RECORDS})


def one_per_line(table: dict[str, Any]) -> str:
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in table.items())
    return "{\n" + lines + "\n}\n"


# ---- the differences


def differences(version: str, since: str) -> Iterator[str]:
    """Yields a line for each difference between two releases."""
    old, new = facts_of(since), facts_of(version)
    yield from changed("API", old["apis"], new["apis"], lambda api: f"{api[0]} v{api[1]}-v{api[2]}")
    yield from changed("unstable", old["unstable"], new["unstable"], lambda last: f"v{last}")
    yield from changed("error", old["errors"], new["errors"])
    yield from changed("feature", old["features"], new["features"])
    yield from changed("config", configs_of(since), configs_of(version), shown_config)
    old, new = flat_messages(since), flat_messages(version)
    of_both = {name for name, path in old.keys() & new.keys() if not path}
    for found in (old, new):  # a message that one of them lacks has one line
        for name, path in [key for key in found if key[1] and key[0] not in of_both]:
            del found[name, path]
    yield from changed("message", old, new, json.dumps)
    codes = {int(code): name for code, name in facts_of(version)["errors"].items()}
    if codes != {code.value: code.name for code in ErrorCode}:
        yield f"protocol/errors.py lacks {sorted(codes.keys() - set(ErrorCode))}"


def changed(what: str, old: dict[Any, Any], new: dict[Any, Any], shown: Callable[[Any], str] = str) -> Iterator[str]:
    for key in sorted(old.keys() | new.keys()):
        label = f"{what} {' '.join(key) if isinstance(key, tuple) else key}"
        if key not in old:
            yield f"+ {label}: {shown(new[key])}"
        elif key not in new:
            yield f"- {label}: {shown(old[key])}"
        elif old[key] != new[key]:
            yield f"~ {label}: {shown(old[key])} -> {shown(new[key])}"


def shown_config(config: Config) -> str:
    parts = (config[column] for column in ("type", "default", "valid", "synonyms", "flags", "dynamic"))
    return ", ".join(str(part) for part in parts if part not in ("", [], None))


def flat_messages(version: str) -> dict[tuple[str, str], Any]:
    """Returns the facts of all messages and of each of their fields, by message and path."""
    found: dict[tuple[str, str], Any] = {}

    def add(name: str, path: str, fields: list[dict[str, Any]]) -> None:
        for field in fields:
            found[name, path + field["name"]] = {key: value for key, value in field.items() if key != "fields"}
            add(name, f"{path}{field['name']}.", field.get("fields", []))

    for name, message in messages_of(version).items():
        found[name, ""] = {key: value for key, value in message.items() if key != "fields"}
        add(name, "", message["fields"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Add a release of Apache Kafka to the tables.")
    parser.add_argument("version", help="with its patch: 4.4.0")
    parser.add_argument("--since", metavar="VERSION", help="compare with this release")
    parser.add_argument("--dry-run", action="store_true", help="only print which tables would change")
    args = parser.parse_args()
    configs = json.loads(CONFIGS.read_text())
    since = args.since or [name for name in configs["tables"] if name != args.version][-1]
    written = {
        RELEASES: with_row(json.loads(RELEASES.read_text()), args.version),
        CONFIGS: with_column(configs, args.version),
        VERSIONS: definitions(args.version),
        KRAFT: kraft_records(args.version),
    }
    for path, text in written.items():
        print(f"{path.relative_to(ROOT)}: {'the same' if text == path.read_text() else 'changed'}")
        if not args.dry_run:
            path.write_text(text)
    if not args.dry_run:
        MANIFEST.write_text("".join(f"{digest}  {path}\n" for path, digest in present().items()))
    print(f"\nFrom {since} to {args.version}:")
    print("\n".join(differences(args.version, since)))


if __name__ == "__main__":
    main()
