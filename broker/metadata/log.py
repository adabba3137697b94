"""`__cluster_metadata-0`: topics, configs and producer id blocks, as Kafka's metadata records.

Owns the log and the order of replay; `protocol/internal_records/metadata_values.py` encodes the records, `topics.py`
and `producer_ids.py` interpret them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...protocol.errors import MalformedMessage
from ...protocol.internal_records.metadata_values import TOPIC, decode, encode
from ...protocol.records import batch, formats, steps
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ...protocol.records.steps import Steps
from ...storage.errors import StorageError

if TYPE_CHECKING:
    from ...protocol.internal_records.metadata_records import FeatureLevelRecord
    from ...protocol.records.batch import BatchHeader
    from ...storage.io.files import Files
    from ...storage.log.append_plan import Prepared
    from ...storage.partition_log import PartitionLog

SNAPSHOT = r"([0-9]{20})-([0-9]{10})\.checkpoint"
"""The names of Kafka's snapshots of its metadata log: offset and epoch."""
READ_BYTES = 1 << 20
STEP_ENTRIES = 500
CHANGES_MAX = 10_000
"""Most records that one request may write: Kafka's MAX_RECORDS_PER_USER_OP."""
TOO_MANY_CHANGES = "Unable to perform excessively large batch operation."
"""Kafka's error message for a request that would write more."""


class MetadataLog:
    """Appends metadata records; they are durable when `append` returns."""

    def __init__(self, log: PartitionLog, first: Sequence[FeatureLevelRecord]) -> None:
        """A new log begins with the records `first`."""
        self._log = log
        if log.log_end_offset == 0:
            self.append(first, now_ms=0)

    def append(self, records: Sequence[Any], now_ms: int) -> None:
        """Writes the records as one batch, all or none. Raises StorageError."""
        steps.run(self.append_steps(records, now_ms))

    def append_steps(self, records: Sequence[Any], now_ms: int) -> Steps[None]:
        """`append` in steps; the write happens in the last one."""
        self.write((yield from self.prepare_steps(records, now_ms)), now_ms)

    def prepare_steps(self, records: Sequence[Any], now_ms: int) -> Steps[Prepared]:
        """Builds the batch of records for `write`, so that a change can be validated again before it is written."""
        entries: list[batch.Record] = []
        for index, record in enumerate(records):
            if index and index % STEP_ENTRIES == 0:
                yield None
            entries.append(batch.Record(index, now_ms, None, encode(record), ()))
        if len(entries) > STEP_ENTRIES:
            yield None
        return self._log.prepare_records(entries)

    def write(self, prepared: Prepared, now_ms: int) -> None:
        """Appends a batch built by `prepare_steps`. Raises StorageError."""
        self._log.hold_back(self._log.log_end_offset)  # keeps its checkpoint before the flush
        self._log.append_prepared(prepared, now_ms=now_ms)
        self._log.flush()
        self._log.hold_back(None)

    def replay(self) -> Iterator[Any]:
        """Yields every record, oldest first. Raises StorageError for a malformed record."""
        for stored in read_all(self._log):
            try:
                record = None if stored.value is None else decode(stored.value)
            except MalformedMessage as error:
                raise StorageError(f"{TOPIC}-0: {error}") from error
            if record is not None:
                yield record

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self._log.log_end_offset


def read_all(log: PartitionLog) -> Iterator[batch.Record]:
    """Yields every record of an internal log, from any record format; skips control batches. Raises StorageError."""
    start = log.log_start_offset
    try:
        for data, position, header in appended_batches(log):
            if not header.is_control:
                yield from (record for record in formats.records(data, position) if record.offset >= start)
    except (CorruptRecords, InvalidRecords, UnsupportedCodec) as error:
        raise StorageError(f"{log.topic}-{log.partition}: {error}") from error


def appended_batches(log: PartitionLog) -> Iterator[tuple[bytes | memoryview, int, BatchHeader]]:
    """Yields every batch of an internal log: the bytes around it, its position in them, its header. Also those that are
    held back from consumers, as in Kafka: their responses may still be sent, and a coordinator that is loaded without
    them would forget what it has acknowledged. Raises StorageError, CorruptRecords.
    """
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read_appended(offset, READ_BYTES)
        if not len(data):
            return
        for position, header in formats.headers(data):
            if header.next_offset > offset:
                yield data, position, header
                offset = header.next_offset


def is_foreign(files: Files, folder: str) -> bool:
    """Returns whether a KRaft quorum used a metadata log: Ottla's has neither votes nor snapshots. Raises OSError."""
    return any(name == "quorum-state" or re.fullmatch(SNAPSHOT, name) for name in files.list(folder))
