"""A client of another language with the interface of `ports`, in a process of its own, which is led by lines.

The command of a library's process is in the environment, as `OTTLA_HISTORY_` and the name of the library; the addresses
of the broker follow. A line has words with tabs between them. Commands, each but `send` with one response (`done`,
`abortable REASON` or `final REASON`):

    open ID TIMEOUT_MS [GROUP TOPICS]   init   begin   flush   commit   abort   end   (ID "-": no transactions)
    send NUMBER PARTITION DATA                     offsets PARTITION=OFFSET,...
    join GROUP TOPICS ISOLATION PROTOCOL           poll MS   store PARTITION=OFFSET,...   rewind   leave

Lines of their own: `sent NUMBER OFFSET`, `unsent NUMBER REASON`, `assigned PARTITIONS`, `revoked PARTITIONS`, `record
PARTITION OFFSET DATA`, and of a rewind `place PARTITION OFFSET` ("-": nothing is committed).
"""

from __future__ import annotations

import os
import select
import shlex
import subprocess
from collections.abc import Callable, Mapping
from typing import ClassVar

from ottla_testing.history.ports import Abortable, Final, Joining, Moved, NotSent, OnSent, Receiving, Took


class Process:
    """The process of a life; its producer and its consumer share it."""

    _of_life: ClassVar[Process | None] = None

    def __init__(self, library: str, address: str) -> None:
        command = [*shlex.split(os.environ[f"OTTLA_HISTORY_{library.upper()}"]), address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._into, self._from = self._process.stdin, self._process.stdout.fileno()
        self._rest = b""
        self._lines: list[list[str]] = []
        self._early: list[list[str]] = []
        self._on: dict[str, Callable[..., None]] = {}

    @classmethod
    def of(cls, library: str, address: str) -> Process:
        """Returns the process of this life, started at its first use."""
        cls._of_life = cls._of_life or Process(library, address)
        return cls._of_life

    def write(self, *words: object) -> None:
        try:
            self._into.write("\t".join(map(str, words)).encode() + b"\n")
            self._into.flush()
        except OSError as error:
            raise Final(f"the client's process has ended: {error}") from None

    def call(self, *words: object) -> None:
        """Raises Abortable or Final."""
        self.write(*words)
        while True:
            for number, line in enumerate(self._lines):
                if line[0] in ("done", "abortable", "final"):
                    before, self._lines = self._lines[:number], self._lines[number + 1 :]
                    self._happened(before)
                    if line[0] != "done":
                        raise (Final if line[0] == "final" else Abortable)(line[1])
                    return
            before, self._lines = self._lines, []
            self._happened(before)
            self._read()

    def work(self, seconds: float) -> None:
        """Waits for lines for so long, and lets them happen."""
        if select.select([self._from], [], [], seconds)[0]:
            self._read()
        before, self._lines = self._lines, []
        self._happened(before)

    def _read(self) -> None:
        data = os.read(self._from, 1 << 16)
        if not data:
            raise Final(f"the client's process has ended: {self._process.wait()}")
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines += [line.decode().split("\t") for line in lines]

    def _happened(self, lines: list[list[str]]) -> None:
        for line in lines:
            if line[0] in self._on:
                self._on[line[0]](*line[1:])
            else:
                self._early.append(line)

    def on(self, **happens: Callable[..., None]) -> None:
        """Adds what happens at lines of these names, also at those that came already."""
        self._on |= happens
        early, self._early = self._early, []
        self._happened(early)


def _names(text: str) -> list[str]:
    return text.split(",") if text else []


def _pairs(offsets: Mapping[str, int]) -> str:
    return ",".join(f"{partition}={offset}" for partition, offset in offsets.items())


class LineSending:
    library: ClassVar[str]

    def __init__(self, address: str, transactional_id: str | None, timeout_ms: int) -> None:
        self._process = Process.of(self.library, address)
        self._waiting: dict[str, OnSent] = {}
        self._numbers = 0
        self._process.on(sent=self._sent, unsent=self._unsent)
        self._process.call("open", transactional_id or "-", timeout_ms, *self.also_consuming())

    def also_consuming(self) -> tuple[str, ...]:
        """Returns the group and the topics of a client that consumes in its transactions, if the library has one client
        for both."""
        return ()

    def _sent(self, number: str, offset: str) -> None:
        self._waiting.pop(number)(int(offset), None)

    def _unsent(self, number: str, reason: str) -> None:
        self._waiting.pop(number)(None, reason)

    def init(self) -> None:
        self._process.call("init")

    def begin(self) -> None:
        self._process.call("begin")

    def send(self, partition: str, data: bytes, on_sent: OnSent) -> None:
        self._numbers += 1
        self._waiting[str(self._numbers)] = on_sent
        try:
            self._process.write("send", self._numbers, partition, data.decode())
        except Final as error:
            del self._waiting[str(self._numbers)]
            raise NotSent(error) from None

    def work(self, seconds: float) -> None:
        self._process.work(seconds)

    def flush(self) -> None:
        self._process.call("flush")
        while self._waiting:
            self._process.work(1.0)

    def send_offsets(self, offsets: Mapping[str, int], receiving: Receiving) -> None:
        self._process.call("offsets", _pairs(offsets))

    def commit(self) -> None:
        self._process.call("commit")

    def abort(self) -> None:
        self._process.call("abort")

    def close(self) -> None:
        self._process.call("end")


class LineReceiving:
    library: ClassVar[str]

    def __init__(self, address: str, joining: Joining, took: Took, assigned: Moved, revoked: Moved) -> None:
        self._process = Process.of(self.library, address)
        self._places: dict[str, int | None] = {}

        def record(partition: str, offset: str, data: str) -> None:
            took(partition, [(int(offset), data.encode())])

        self._process.on(
            record=record,
            assigned=lambda names: assigned(_names(names)),
            revoked=lambda names: revoked(_names(names)),
            place=self._place,
        )
        self._process.call("join", joining.group, ",".join(joining.topics), joining.isolation, joining.protocol)

    def _place(self, partition: str, offset: str) -> None:
        self._places[partition] = None if offset == "-" else int(offset)

    def poll(self, seconds: float) -> None:
        self._process.call("poll", round(1000 * seconds))

    def commit(self, offsets: Mapping[str, int]) -> None:
        self._process.call("store", _pairs(offsets))

    def rewind(self) -> dict[str, int | None]:
        self._places = {}
        self._process.call("rewind")
        return self._places

    def close(self) -> None:
        self._process.call("leave")
