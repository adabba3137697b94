"""What a life needs of a client library: one way to speak to all of them. `life.py` lives by it, `life_*.py` give it.

Everything blocks. Partitions are texts, "topic-index".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

PATIENCE_S = 60.0  # a bound for what takes as long as the broker is away

Told = Callable[[int | None, object | None], None]  # offset (None or -1: not told), or an error
Took = Callable[[str, list[tuple[int, bytes]]], None]  # a partition's records as the application gets them
Moved = Callable[[list[str]], None]


class Abortable(Exception):
    """The transaction can only be aborted."""


class Final(Exception):
    """Nothing more can be done with this client."""


class NotSent(Exception):
    """A record was refused before anything was sent."""


class Receiving(Protocol):
    """A member of a group. `took`, `assigned` and `revoked` are called in the order in which they happen."""

    def poll(self, seconds: float) -> None: ...

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Raises whatever; it is unknown then what became of it."""
        ...

    def rewind(self) -> dict[str, int | None]:
        """Seeks what it has to what is committed, and tells where (None: unknown, or nothing is)."""
        ...

    def close(self) -> None: ...


class Sending(Protocol):
    """A producer, of plain records or, with a transactional id, of transactions."""

    def init(self) -> None: ...

    def begin(self) -> None: ...

    def send(self, partition: str, data: bytes, told: Told) -> None:
        """Raises NotSent."""
        ...

    def work(self, seconds: float) -> None:
        """Lets the client do what it does."""
        ...

    def flush(self) -> None:
        """Until all sends are told."""
        ...

    def send_offsets(self, offsets: Mapping[str, int], receiving: Receiving) -> None: ...

    def commit(self) -> None:
        """Raises Abortable or Final; it may be done all the same, unless an `abort` succeeds."""
        ...

    def abort(self) -> None:
        """Raises Final."""
        ...

    def close(self) -> None: ...


def split(partition: str) -> tuple[str, int]:
    topic, _, index = partition.rpartition("-")
    return topic, int(index)
