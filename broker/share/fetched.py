"""The batches that a share fetch has read from a log."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.primitives import Records
from ...protocol.records import formats
from ...storage.log.results import Slice
from ...storage.producers.txn_index import ABORT
from .share_partition import Fetched
from .values import Acquired, FetchedBatch


def fetched(found: Slice, *, committed: bool) -> Fetched:
    """Returns the batches of a read; with `committed` also its aborted transactions."""
    batches = [
        FetchedBatch(
            header.base_offset,
            header.last_offset,
            header.producer_id,
            header.is_transactional,
            header.is_control,
            committed and header.is_control and _is_abort(found.records, position),
        )
        for position, header in formats.headers(found.records)
    ]
    return Fetched(batches, [(one.producer_id, one.first_offset) for one in found.aborted] if committed else ())


def _is_abort(records: Records, position: int) -> bool:
    """Whether a control batch is the marker of an aborted transaction."""
    key = next(iter(formats.records(records, position))).key or b""
    return len(key) >= 4 and int.from_bytes(key[2:4], "big", signed=True) == ABORT


def overlapping(records: Records, acquired: Sequence[Acquired]) -> Records:
    """Returns the part of the records whose batches may have acquired offsets."""
    first, last = acquired[0].first, acquired[-1].last
    start, end = 0, len(records)
    for position, header in formats.headers(records):
        if header.base_offset <= first:
            start = position
        elif header.base_offset > last:
            end = position
            break
    return memoryview(records)[start:end] if start > 0 or end < len(records) else records
