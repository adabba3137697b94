"""Logs of idempotent producers, written batch by batch, and the commands that read them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.transactions.records import transaction_record
from ottla.broker.transactions.state import Transaction, TransactionState
from ottla.protocol.records import batch
from ottla.protocol.records.batch import Record
from ottla_testing.protocol.batches import batch_of

NOW = 1_700_000_000_000  # 2023-11-14 22:13:20
STARTED = NOW + 500
"""The start time of a transaction in the coordinator's log."""


class Log:
    """The files of one partition; each batch is one second later than the one before."""

    def __init__(self, directory: Path, topic: str = "t", partition: int = 0, offset: int = 0) -> None:
        self.directory = directory
        self.folder = directory / f"{topic}-{partition}"
        self.folder.mkdir(parents=True)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.time_ms = NOW
        self.roll()

    def roll(self) -> None:
        """Starts a segment."""
        self.path = self.folder / f"{self.offset:020d}.log"
        self.path.touch()

    def batch(self, pid: int, epoch: int, sequence: int, count: int = 1, **fields: Any) -> None:
        self.time_ms += 1000
        records = [Record(self.offset + n, self.time_ms + n, None, b"v") for n in range(count)]
        producer = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": sequence}
        self.raw(batch_of(records, base_offset=self.offset, **producer, **fields), count)

    def plain(self, count: int) -> None:
        """A batch without a producer."""
        self.batch(-1, -1, -1, count)

    def marker(self, pid: int, epoch: int, kind: int = 1, coordinator_epoch: int = 5) -> None:
        self.time_ms += 1000
        key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, coordinator_epoch)
        data = batch.build(
            [Record(self.offset, self.time_ms, key, value)],
            batch.BatchFields(producer_id=pid, producer_epoch=epoch, control=True, transactional=True),
            base_offset=self.offset,
        )
        self.raw(data, 1)

    def raw(self, data: bytes | bytearray, offsets: int) -> None:
        with self.path.open("ab") as file:
            file.write(data)
        self.offset += offsets

    def skip(self, offsets: int) -> None:
        """Leaves a gap of offsets."""
        self.offset += offsets

    def start_at(self, offset: int) -> None:
        """Moves the log start offset."""
        text = f"0\n1\n{self.topic} {self.partition} {offset}\n"
        (self.directory / "log-start-offset-checkpoint").write_text(text)


class CoordinatorLog(Log):
    """The files of one partition of `__transaction_state`."""

    def __init__(self, directory: Path, partition: int = 0) -> None:
        super().__init__(directory, "__transaction_state", partition)

    def write(self, name: str, producer_id: int, epoch: int = 0, state: str = "Ongoing", **fields: Any) -> None:
        values: dict[str, Any] = {
            "timeout_ms": 60_000,
            "start_ms": STARTED,
            "last_update_ms": STARTED + 250,
            "partitions": (("t", 0),),
        }
        self.put(
            *transaction_record(Transaction(name, producer_id, epoch, state=TransactionState(state), **values | fields))
        )

    def put(self, key: bytes, value: bytes | None) -> None:
        self.raw(batch.build([Record(self.offset, NOW, key, value)], base_offset=self.offset), 1)


Run = Callable[..., tuple[int, str, str]]


def runner(command: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command: (exit code, stdout, stderr)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = command([str(argument) for argument in arguments])
        except SystemExit as error:
            code = int(str(error.code))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def report(run: Run, *arguments: object) -> Any:
    """The JSON output of the command, which must succeed."""
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def seven(log: Log) -> Log:
    """Seven batches of producer 7 in epoch 1, two records each: two batches more than are cached."""
    for sequence in range(0, 14, 2):
        log.batch(7, 1, sequence, 2)
    return log


def requested(log: Log, *more: object) -> list[object]:
    """The arguments of `ottla explain` for a log."""
    return [log.directory, "--topic", log.topic, "--partition", log.partition, *more]
