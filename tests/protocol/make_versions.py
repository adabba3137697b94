"""Makes versions.json: the fields of every served message, from Apache's definitions.

    python tests/protocol/make_versions.py DEFINITIONS_NEW DEFINITIONS_OLD RECORD_SCHEMAS

Each argument is a folder of Apache's JSON message files (4.3.1, 3.9.1, and the coordinator records of 4.3.1). A version
is described by the newest definition that has it. Only facts are kept: names, types, ranges, defaults, tags.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ottla_testing.protocol.apache_definitions import APIS, RECORDS, definition, read


def main(new: Path, old: Path, records: Path) -> None:
    table: dict[str, list[dict]] = {}
    for name in [api + kind for api in APIS for kind in ("Request", "Response")]:
        found = [read(folder, name) for folder in (new, old)]
        table[name] = [definition(source) for source in found if source]
    for name in RECORDS:
        source = read(records, name)
        assert source, name
        table[name] = [definition(source)]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in table.items())
    Path(__file__).with_name("versions.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:4]))
