"""A history: what clients did and were told, and what befell them, one JSON object a line.

All processes of a run append to one file. A line is one write of a file opened for appending, so lines are whole, their
order is the order in which they were written, and a client that is killed leaves what it did. A client writes `invoke`
before it begins something and the outcome after it was told: if the outcome of one thing stands above the invocation of
another, the one had happened before the other began. Nothing else may be read from the order.

Each line has `at` (seconds of a clock that all processes of the machine share), `process`, `type` and `op`.
A process is one life of one client: what comes back after a crash is another process. Types are `invoke`, and the
outcomes `ok`, `fail` (it did not happen and will not) and `info` (unknown: it may have happened, or happen yet; an
error is `info` unless it is certain); what has no beginning is `ok`. An invocation without an outcome is as good as
`info`.

A partition is "topic-index"; an offset a number; a value a number that no other record of the run has (if one is sent
again after an unknown outcome, there is an `invoke` of its own for that). Fields besides, by `op`:

    start       ok                  client, role, isolation (of its polls), group, transactional_id (each if known)
    crash       ok                  the process was killed; written by the one who did it
    exit        ok                  the process has ended; error: why, where it could not go on
    fault       ok                  fault: what was done to the broker (kill, pause, cut, ...)
    send        invoke              partition, value; txn (if in a transaction); of (the value this was made from)
                ok                  value, offset (-1: not told)
                fail, info          value, error
    assign      ok                  partitions: those that come to it; group; without a group it starts at offset 0
    revoke      ok                  partitions that leave it
    seek        ok                  partition, offset (null: to what its group has committed)
    poll        ok                  records: {partition: [[offset, value], ...]}, as they were given to the application
    commit_offsets  invoke          group, offsets: {partition: offset}; a process has one under way at a time
                ok, fail, info
    init        invoke, ok, ...     transactional_id: whoever held it before is fenced once this is `ok`
    begin       ok                  txn: a name that no other transaction of the run has; transactional_id
    send_offsets  invoke, ok, ...   txn, group, offsets
    commit      invoke, ok, ...     txn
    abort       invoke, ok, ...     txn
    read        ok                  isolation, records: part of a last reading of all logs, with all faults over
    read_end    ok                  isolation, ends: {partition: offset where the reading ended, at the end of the log}
    committed   ok                  group, offsets: what a group has committed, with all faults over
    drained     ok                  source, target: topics; all of the one has been made into records of the other
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
    """A line of a history is not what this module says."""


class Recorder:
    """Appends the events of one process. It may be used by several threads."""

    def __init__(self, path: Path | str, process: str) -> None:
        self.path, self.process = Path(path), process
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._name = json.dumps(process)

    def write(self, type: str, op: str, **fields: Any) -> None:
        self._write(self._name, type, op, fields)

    def crashed(self, process: str) -> None:
        """Another process is no more."""
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
    """(line number, event) of a file, one after the other. A torn last line is left out. Raises BadHistory."""
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
                raise BadHistory(f"line {number} is no event")
            yield number, event


def dump(events: Iterator[Event] | list[Event], path: Path | str) -> None:
    """A history from events that are there already; times are counted up where they are missing."""
    with open(path, "w") as file:
        for number, event in enumerate(events):
            whole: Mapping[str, Any] = {"at": number / 1000, **event}
            file.write(json.dumps(whole, separators=(",", ":")) + "\n")
