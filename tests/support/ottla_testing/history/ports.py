"""What a life needs of a client library: one interface for all of them. `life.py` uses it, `life_*.py` implement it.
Everything blocks. Partitions are strings, "topic-index".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

PATIENCE_S = 60.0  # time limit of calls that wait for the broker

OnSent = Callable[[int | None, object | None], None]  # offset (None or -1: unknown), or an error
Took = Callable[[str, list[tuple[int, bytes]]], None]  # records of a partition, as the application gets them
Moved = Callable[[list[str]], None]
Assigned = Callable[[list[str], list[str]], None]  # partitions, and those of them that keep their position
Acks = Mapping[str, Mapping[int, int]]  # types of acknowledgements by partition and offset
SharedRecords = dict[str, list[tuple[int, bytes, int]]]  # offset, data and delivery count, by partition
Results = dict[str, str | None]  # names of errors by partition


class Abortable(Exception):
    """The transaction can only be aborted."""


class Final(Exception):
    """Nothing more can be done with this client."""


class Stalled(Exception):
    """By a defect of its library the client holds partitions that it never reads."""


class NotSent(Exception):
    """A record was refused before anything was sent."""


class Lost(Exception):
    """The outcome of a call is unknown, and the share session has ended."""


class Joining(NamedTuple):
    """How a member joins its group. `protocol` is "classic" or "consumer" (KIP-848, in confluent only)."""

    group: str
    topics: list[str]
    isolation: str
    protocol: str = "classic"


class Receiving(Protocol):
    """A member of a group. `took`, `assigned` and `revoked` are called in the order in which they happen."""

    def poll(self, seconds: float) -> None:
        """Raises Stalled."""
        ...

    def commit(self, offsets: Mapping[str, int]) -> None:
        """Raises any exception; then the outcome is unknown."""
        ...

    def rewind(self) -> dict[str, int | None]:
        """Seeks to the committed offsets, and returns them (None: unknown, or nothing is committed)."""
        ...

    def close(self) -> None: ...


class Sharing(Protocol):
    """A member of a share group (KIP-932). The calls raise Lost."""

    @property
    def session(self) -> str | None:
        """The name of the share session; None if the client does not show it."""
        ...

    def ready(self) -> None:
        """Prepares the next call: joins, and sends heartbeats."""
        ...

    def fetch(self, seconds: float, acks: Acks | None = None) -> tuple[SharedRecords, Results]: ...

    def acknowledge(self, acks: Acks) -> Results: ...

    def reopen(self) -> None:
        """Begins another session without an end of the present one."""
        ...

    def end(self) -> None:
        """Ends the session: its records are released."""
        ...

    def break_off(self) -> None:
        """Closes the connection."""
        ...

    def close(self) -> None: ...


class Sending(Protocol):
    """A producer, of plain records or, with a transactional id, of transactions."""

    def init(self) -> None: ...

    def begin(self) -> None: ...

    def send(self, partition: str, data: bytes, on_sent: OnSent) -> None:
        """Raises NotSent."""
        ...

    def work(self, seconds: float) -> None:
        """Lets the client work."""
        ...

    def flush(self) -> None:
        """Waits until the outcomes of all sends are known."""
        ...

    def send_offsets(self, offsets: Mapping[str, int], receiving: Receiving) -> None: ...

    def commit(self) -> None:
        """Raises Abortable or Final. Then it may still be committed, unless `abort` succeeds."""
        ...

    def abort(self) -> None:
        """Raises Final."""
        ...

    def close(self) -> None: ...


def split(partition: str) -> tuple[str, int]:
    topic, _, index = partition.rpartition("-")
    return topic, int(index)
