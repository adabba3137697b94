"""A history: the operations of clients with their outcomes, and the faults, one JSON object per line.
All processes of a run append to one file. Each line is one write to a file opened for appending, so lines are whole,
their order is the order of the writes, and the events of a killed client are kept. A client writes `invoke` before it
begins an operation, and the outcome after it is known: if the outcome of one operation is above the invocation of
another, it happened before the other began. Nothing else can be concluded from the order.
Each line has `at` (seconds of a clock shared by all processes of the machine), `process`, `type` and `op`.
A process is one life of a client: after a crash a client is another process. Types are `invoke`, and the outcomes `ok`,
`fail` (it did not happen and will not) and `info` (unknown: it may have happened, or happen later; an error is `info`
unless it is certain). Events without duration are `ok`. An invocation without an outcome is the same as `info`.
A partition is "topic-index"; an offset is a number; a value is a number that no other record of the run has (a resend
after an unknown outcome has its own `invoke`). Other fields, by `op`:
    start       ok                  client, role, isolation (of its polls), group, transactional_id (each if known);
                                    share: configs of a share group (`shares.configs_of`)
    crash       ok                  the process was killed; written by the process that killed it
    exit        ok                  the process has ended; error: the reason, if it could not continue
    fault       ok                  fault: what was done to the broker (kill, pause, cut, ...)
    send        invoke              partition, value; txn (if in a transaction); of (the value this was made from)
                ok                  value, offset (-1: unknown)
                fail, info          value, error
    assign      ok                  partitions: those that it gets; group; without a group it starts at offset 0
    revoke      ok                  partitions: those that it loses
    seek        ok                  partition, offset (null: to its group's committed offset)
    poll        ok                  records: {partition: [[offset, value], ...]}, as given to the application
    commit_offsets  invoke          group, offsets: {partition: offset}; a process has at most one at a time
                ok, fail, info
    init        invoke, ok, ...     transactional_id: its previous process is fenced when this is `ok`
    begin       ok                  txn: a name that no other transaction of the run has; transactional_id
    send_offsets  invoke, ok, ...   txn, group, offsets
    commit      invoke, ok, ...     txn
    abort       invoke, ok, ...     txn
    read        ok                  isolation, records: part of a last read of all logs, after all faults
    read_end    ok                  isolation, ends: {partition: offset where the read ended, at the end of the log}
    committed   ok                  group, offsets: what a group has committed, after all faults
    share_fetch invoke              group, session (of the connection; none: the client does not show it)
                ok                  records: {partition: [[offset, value, delivery count], ...]}
                fail, info
    share_ack   invoke              group, session, acks: {partition: [[offset, type of acknowledgement], ...]}
                ok                  partitions: {partition: null or the name of an error}
                fail, info
    share_close invoke, ok, ...     group, session
    share_drained   ok              group, topic; all records of the topic were processed
    drained     ok                  source, target: topics; all records of the source were processed
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

LINE_BYTES_MAX = 64 << 20

Event = dict[str, Any]


class BadHistory(Exception):
    """A line of a history is not in the format of this module."""


class Recorder:
    """Appends the events of one process. Thread-safe."""

    def __init__(self, path: Path | str, process: str) -> None:
        self.path, self.process = Path(path), process
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._name = json.dumps(process)

    def write(self, type: str, op: str, **fields: Any) -> None:
        self._write(self._name, type, op, fields)

    def crashed(self, process: str) -> None:
        """Notes that another process was killed."""
        self._write(json.dumps(process), "ok", "crash", {})

    def _write(self, name: str, type: str, op: str, fields: dict[str, Any]) -> None:
        head = f'{{"at":{time.monotonic():.6f},"process":{name},"type":"{type}","op":"{op}"'
        rest = json.dumps(fields, separators=(",", ":"))[1:]
        line = f"{head},{rest}\n" if fields else f"{head}}}\n"
        data = line.encode()
        if os.write(self._file, data) != len(data):
            raise OSError(f"{self.path} took part of a line only: is the disk full?")

    def invoke(self, op: str, **fields: Any) -> None:
        self.write("invoke", op, **fields)

    def ok(self, op: str, **fields: Any) -> None:
        self.write("ok", op, **fields)

    def fail(self, op: str, error: object, **fields: Any) -> None:
        self.write("fail", op, error=_words(error), **fields)

    def info(self, op: str, error: object, **fields: Any) -> None:
        self.write("info", op, error=_words(error), **fields)

    def close(self) -> None:
        os.close(self._file)


def _words(error: object) -> str:
    return (f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error))[:300]


def read(path: Path | str) -> Iterator[tuple[int, Event]]:
    """Yields (line number, event) of a file. A torn last line is left out. Raises BadHistory."""
    with open(path, "rb") as file:
        number = 0
        while line := file.readline(LINE_BYTES_MAX):
            number += 1
            if line[-1:] != b"\n":
                if len(line) == LINE_BYTES_MAX:
                    raise BadHistory(f"line {number} is too long")
                return
            try:
                event = json.loads(line)
            except ValueError as error:
                raise BadHistory(f"line {number}: {error}") from None
            if not isinstance(event, dict):
                raise BadHistory(f"line {number} is not an event")
            yield number, event


def dump(events: Iterator[Event] | list[Event], path: Path | str) -> None:
    """Writes events to a file; missing times are counted up."""
    with open(path, "w") as file:
        for number, event in enumerate(events):
            whole: Mapping[str, Any] = {"at": number / 1000, **event}
            file.write(json.dumps(whole, separators=(",", ":")) + "\n")
