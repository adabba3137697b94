"""Makes `broker/releases/releases.json`, the table of the API versions that each Kafka release advertises.

Run it with the paths of two reference files:

    python tests/broker/releases/make_releases.py VERSIONS.json NAMES.json

The first is a JSON object with `zookeeper_broker` and `kraft_broker`, each release name -> API key -> [lowest, highest
version], the second API key -> an object with `name`; both as collected from Apache Kafka's own definitions. Releases
up to 3.2 use the broker with ZooKeeper, from 3.3 on, where KRaft was declared production ready, the one with KRaft.
Releases before 0.8.2 are left out: current clients cannot distinguish them from 0.8.2. `test_table.py` in this folder
compares the file with the versions of brokers of each release.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ottla_testing import ROOT

OLDEST, FIRST_KRAFT = "0.8.2", "3.3"
SHORT = {"0.9.0": "0.9", "0.11.0": "0.11"}  # the names in common use
TARGET = ROOT / "broker" / "releases" / "releases.json"

Table = dict[str, dict[str, list[int]]]


def rows(zookeeper: Table, kraft: Table) -> Table:
    """Returns release -> API key -> [first, last], the oldest release first."""
    names = list(zookeeper)
    chosen = {name: zookeeper[name] for name in names[names.index(OLDEST) : names.index(FIRST_KRAFT)]}
    names = list(kraft)
    chosen |= {name: kraft[name] for name in names[names.index(FIRST_KRAFT) :]}
    return {SHORT.get(name, name): apis for name, apis in chosen.items()}


def text(table: Table, names: dict[str, str]) -> str:
    """Returns the content of the file, with one release per line."""
    used = {key for apis in table.values() for key in apis}
    shown = json.dumps({key: name for key, name in names.items() if key in used}, separators=(",", ":"))
    lines = [f"{json.dumps(name)}:{json.dumps(apis, separators=(',', ':'))}" for name, apis in table.items()]
    return f'{{"names":{shown},\n"releases":{{\n' + ",\n".join(lines) + "\n}}\n"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    versions, apis = (json.loads(Path(path).read_text()) for path in sys.argv[1:])
    names = {key: api["name"] for key, api in apis.items()}
    TARGET.write_text(text(rows(versions["zookeeper_broker"], versions["kraft_broker"]), names))
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")
