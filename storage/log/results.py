"""What a partition log takes and answers, as values. `storage/partition_log.py` hands them on; nothing happens here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ...protocol.records import batch
from ..producers.txn_index import AbortedTransaction


class Appended(NamedTuple):
    """What an append did. log_append_time_ms is -1 for CreateTime, and a copy's largest timestamp for a duplicate."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    duplicate: bool


class Slice(NamedTuple):
    """Whole batches as they lie on the disk, the first of which may begin below the offset asked for.

    Only a read with a hard limit may cut the last one. `aborted`: for a `committed` read the transactions that were
    aborted and may have records in it, by the order of their markers.
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
    """What `append_records` takes; `batch.Record` is one (its offset is passed over)."""

    @property
    def timestamp(self) -> int: ...

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...

    @property
    def headers(self) -> Sequence[batch.Header]: ...
