"""Arguments and results of a partition log, and the state of it that its parts read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...protocol.named import NamedTuple
from ..config import LogConfig
from ..producers.txn_index import AbortedTransaction
from ..segments.segment import Segment


class Appended(NamedTuple):
    """The result of an append. log_append_time_ms is -1 for CreateTime, and for a duplicate the largest timestamp of
    the earlier batch."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class Slice(NamedTuple):
    """Whole batches as stored; the first may begin below the requested offset.

    Only a read with a hard limit may cut the last one. `aborted`: for a `committed` read the aborted transactions that
    may have records in it, in the order of their markers.
    """

    records: bytes | memoryview
    high_watermark: int
    log_start_offset: int
    last_stable_offset: int
    aborted: Sequence[AbortedTransaction] = ()


class TimestampOffset(NamedTuple):
    """A record found by its timestamp."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class LogState(Protocol):
    """A partition log as seen by retention and the last stable offset."""

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, oldest first; never empty while the log is open."""
        ...

    @property
    def config(self) -> LogConfig: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
