"""Generates kraft_records.json: facts about the records that only `ottla dump` defines, from Apache's definitions.

python tests/tools/disk/make_kraft_records.py DEFINITIONS RECORD_SCHEMAS

Both arguments are folders of Apache's JSON message files of 4.3.1. Only facts are kept, as in tests/protocol.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ottla_testing.protocol import apache_definitions

FACTS = Path(__file__).with_name("kraft_records.json")
NAMES = (
    "AbortTransactionRecord BeginTransactionRecord BrokerRegistrationChangeRecord "
    "ClearElrRecord DelegationTokenRecord EndTransactionRecord FenceBrokerRecord "
    "KRaftVersionRecord LeaderChangeMessage NoOpRecord RegisterBrokerRecord "
    "RegisterControllerRecord RemoveDelegationTokenRecord "
    "SnapshotFooterRecord SnapshotHeaderRecord "
    "UnfenceBrokerRecord UnregisterBrokerRecord VotersRecord "
    "ZkMigrationStateRecord"
).split()
FILES = {"ZkMigrationStateRecord": "ZkMigrationRecord"}  # if the file has another name


def main(definitions: Path, records: Path) -> None:
    table: dict[str, Any] = {}
    for name in NAMES:
        file = FILES.get(name, name)
        source = apache_definitions.read(definitions, file) or apache_definitions.read(records, file)
        assert source, name
        table[name] = apache_definitions.definition(source)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in table.items())
    FACTS.write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:3]))
