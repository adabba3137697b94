"""Independent writers and readers of message formats v0 and v1, with one small interface.

kafka-python 3 and aiokafka in this process, kafka-python 2.0.2 in one of its own (`.venv-old`). A set is written as a
producer writes it: offsets as given, the wrapper's own offset 0. aiokafka has no lz4 in v0; the C extension of aiokafka
and its plain Python are two codecs.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from aiokafka.record import legacy_records as aiokafka
from kafka.record import legacy_records as kafka_python

from ottla.protocol.records.batch import Record
from ottla_testing.old_environment import old_python


class LegacyCodec(Protocol):
    """One independent codec of the old formats."""

    name: str

    def knows(self, magic: int, codec: int) -> bool:
        """Returns whether it supports this codec in this format."""
        ...

    def write(self, records: Sequence[Record], magic: int, codec: int) -> bytes:
        """Returns the set that its producer would send."""
        ...

    def read(self, entry: bytes, magic: int) -> list[Record]:
        """Returns the records of one entry, after a check of its CRC (and of those inside, if the codec can)."""
        ...


class InProcess:
    """kafka-python 3 or aiokafka: a builder and a reader class."""

    def __init__(self, name: str, builder: Any, batch: Any, lz4_in_v0: bool, checks_inside: bool) -> None:
        self.name = name
        self.builder = builder
        self.batch = batch
        self.lz4_in_v0 = lz4_in_v0
        self.checks_inside = checks_inside

    def knows(self, magic: int, codec: int) -> bool:
        return self.lz4_in_v0 or (magic, codec) != (0, 3)

    def write(self, records: Sequence[Record], magic: int, codec: int) -> bytes:
        builder = self.builder(magic, codec, 1 << 30)
        for record in records:
            assert builder.append(record.offset, record.timestamp, record.key, record.value) is not None
        return bytes(builder.build())

    def read(self, entry: bytes, magic: int) -> list[Record]:
        batch = self.batch(entry, magic)
        assert batch.validate_crc()
        found = []
        for record in batch:
            if self.checks_inside:
                assert record.validate_crc()
            timestamp = -1 if record.timestamp is None else record.timestamp
            found.append(Record(record.offset, timestamp, record.key, record.value))
        return found


class KafkaPython2:
    """kafka-python 2.0.2; `close()` ends its process."""

    name = "kafka-python 2.0.2"

    def __init__(self) -> None:
        worker = Path(__file__).with_name("legacy_worker.py")
        command = [str(old_python()), "-W", "ignore", str(worker)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")

    def knows(self, magic: int, codec: int) -> bool:
        return True

    def call(self, question: dict[str, Any]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        response = json.loads(self.process.stdout.readline())
        assert "error" not in response, response
        return response["answer"]

    def write(self, records: Sequence[Record], magic: int, codec: int) -> bytes:
        rows = [[r.offset, r.timestamp, hexed(r.key), hexed(r.value)] for r in records]
        return bytes.fromhex(self.call({"magic": magic, "codec": codec, "records": rows}))

    def read(self, entry: bytes, magic: int) -> list[Record]:
        rows = self.call({"magic": magic, "entry": entry.hex()})
        return [Record(offset, timestamp, heard(key), heard(value)) for offset, timestamp, key, value in rows]

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


def hexed(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def heard(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


IN_PROCESS: list[LegacyCodec] = [
    InProcess("kafka-python 3", kafka_python.LegacyRecordBatchBuilder, kafka_python.LegacyRecordBatch, True, True),
    InProcess("aiokafka", aiokafka._LegacyRecordBatchBuilderPy, aiokafka._LegacyRecordBatchPy, False, False),
    InProcess("aiokafka in C", aiokafka.LegacyRecordBatchBuilder, aiokafka.LegacyRecordBatch, False, False),
]
