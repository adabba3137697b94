"""A backend in memory, for tests of streams without files, brokers and Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ottla.pipeline.backend import OffsetRange, Offsets, Piece, ReadError, Selection, TopicPartition, Wanted
from ottla.pipeline.offsets import EARLIEST, AtOffset, Limit, positions
from ottla.pipeline.streams import Rules, Stream

WANTED = Wanted(columns=("offset",))
FROM_EARLIEST, EVERYTHING = AtOffset(EARLIEST), Selection()
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


@dataclass(frozen=True)
class FakePiece:
    part: OffsetRange

    def read(self) -> Iterator[pa.RecordBatch]:
        offsets = list(range(self.part.start, self.part.end))
        yield pa.record_batch({"offset": pa.array(offsets, pa.int64())})


@dataclass
class FakeBackend:
    """`logs` has the start and end offsets of each partition; `stable` the end for read_committed."""

    logs: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    stable: Offsets = field(default_factory=dict)
    away: bool = False
    closed: int = 0
    requested: list[Sequence[OffsetRange]] = field(default_factory=list)

    def __enter__(self) -> FakeBackend:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed += 1

    def _here(self) -> None:
        if self.away:
            raise ReadError("no broker responds")

    def partitions(self, selection: Selection) -> list[TopicPartition]:
        self._here()
        for topic in selection.topics or ():
            if all(key.topic != topic for key in self.logs):
                raise ReadError(f"there is no topic {topic}")
        return selection.of(self.logs, frozenset())

    def earliest(self, of: Sequence[TopicPartition]) -> Offsets:
        self._here()
        return {key: self.logs[key][0] for key in of if key in self.logs}

    def latest(self, of: Sequence[TopicPartition], *, committed: bool) -> Offsets:
        self._here()
        ends = {key: self.logs[key][1] for key in of if key in self.logs}
        return {key: min(end, self.stable.get(key, end)) if committed else end for key, end in ends.items()}

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return dict.fromkeys(times)

    def topic_id(self, topic: str) -> bytes:
        return bytes(16)

    def pieces(self, ranges: Sequence[OffsetRange], wanted: Wanted, *, at_least: int | None) -> Sequence[Piece]:
        self.requested.append(ranges)
        return [FakePiece(part) for part in ranges]


class Clock:
    """A clock that advances when it is waited for."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.at_pause: Callable[[], None] = lambda: None

    def __call__(self) -> int:
        return self.now_ms

    def pause(self, wait_ms: int) -> None:
        self.now_ms += wait_ms
        self.at_pause()


def rules(
    starting: Limit = FROM_EARLIEST, selection: Selection = EVERYTHING, wanted: Wanted = WANTED, **rest: Any
) -> Rules:
    def start(backend: Any) -> Offsets:
        keys = backend.partitions(selection)
        return positions(backend, keys, starting, committed=wanted.committed)

    return Rules(selection, wanted, start, **rest)


def stream(backend: FakeBackend, these: Rules | None = None, clock: Clock | None = None) -> tuple[Stream, list[str]]:
    """Returns a stream of a process that has just started, and the list of its warnings."""
    clock = clock or Clock()
    warned: list[str] = []
    return Stream(backend, these or rules(), now_ms=clock, pause=clock.pause, warn=warned.append), warned


def read(pieces: Sequence[Piece]) -> dict[TopicPartition, list[int]]:
    """Returns the offsets of pieces by partition, in the order in which they are read."""
    found: dict[TopicPartition, list[int]] = {}
    for piece in pieces:
        assert isinstance(piece, FakePiece)
        for batch in piece.read():
            found.setdefault(piece.part.key, []).extend(batch.column("offset").to_pylist())
    return found
