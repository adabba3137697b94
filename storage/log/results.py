"""Arguments and results of a partition log, as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...protocol.named import NamedTuple
from ...protocol.records import batch
from ..producers.txn_index import AbortedTransaction


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


class NewRecord(Protocol):
    """A record for `append_records`, such as `batch.Record` (whose offset is ignored)."""

    @property
    def timestamp(self) -> int: ...

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...

    @property
    def headers(self) -> Sequence[batch.Header]: ...
