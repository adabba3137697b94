"""Reads the records and transaction ends of a partition of `__consumer_offsets`, to restore groups from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...protocol.records import formats
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ...storage.errors import StorageError
from ...storage.producers.txn_index import COMMIT, read_marker
from ..metadata.log import appended_batches
from .records import LogEntry, TransactionalRecord, TransactionEnd

if TYPE_CHECKING:
    from ...storage.partition_log import PartitionLog


def stored_entries(log: PartitionLog) -> Iterator[LogEntry]:
    """Yields every record and every end of a transaction in the log, oldest first, from any record format. Raises
    StorageError.
    """
    try:
        yield from _entries(log)
    except (CorruptRecords, InvalidRecords, UnsupportedCodec) as error:
        raise StorageError(f"{log.topic}-{log.partition}: {error}") from error


def _entries(log: PartitionLog) -> Iterator[LogEntry]:
    start = log.log_start_offset
    for data, position, header in appended_batches(log):
        if header.is_control:
            marker = read_marker(data, position, header)
            if marker is not None:
                yield TransactionEnd(header.producer_id, marker.kind == COMMIT)
            continue
        for record in formats.records(data, position):
            if record.offset < start:
                continue
            key = record.key or b""
            if header.is_transactional:
                yield TransactionalRecord(header.producer_id, key, record.value)
            else:
                yield key, record.value
