"""The record codec of kafka-python 2.0.2 as a process: runs in `.venv-old`, imports nothing of Ottla.

One JSON line in, one out. `{"magic", "codec", "records": [[offset, timestamp, key, value], ...]}` returns the set as
hex; `{"magic", "entry": hex}` returns the records of one entry. Keys and values are hex or null.
"""

from __future__ import annotations

import json
import sys

import six  # of that environment; the bundled one fails from Python 3.12 on

sys.modules |= {"kafka.vendor.six": six, "kafka.vendor.six.moves": six.moves}

from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder  # noqa: E402


def heard(text):
    return None if text is None else bytes.fromhex(text)


def hexed(value):
    return None if value is None else bytes(value).hex()


def respond(request: dict):
    magic = request["magic"]
    if "entry" in request:
        batch = LegacyRecordBatch(bytearray.fromhex(request["entry"]), magic)
        assert batch.validate_crc()
        rows = []
        for record in batch:
            timestamp = -1 if record.timestamp is None else record.timestamp
            rows.append([record.offset, timestamp, hexed(record.key), hexed(record.value)])
        return rows
    builder = LegacyRecordBatchBuilder(magic, request["codec"], 1 << 30)
    for offset, timestamp, key, value in request["records"]:
        assert builder.append(offset, timestamp, heard(key), heard(value)) is not None
    return bytes(builder.build()).hex()


def main() -> None:
    for line in sys.stdin:
        try:
            reply = {"answer": respond(json.loads(line))}
        except Exception as error:
            reply = {"error": repr(error)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
