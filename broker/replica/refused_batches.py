"""Refused first batches of idempotent producers: later batches are refused until the first ones are retried.

Since 2.5 a producer without state in a log may begin with any sequence. Suppose several batches are in flight and the
first one is refused for a moment, because a disk is full, a leader moves, or a fault rule fires. The second would then
begin the log, the first could never follow, and librdkafka would count it as written. In Kafka the cause that refuses
one batch refuses the others too. Here it may not, so later batches get OUT_OF_ORDER_SEQUENCE_NUMBER, as they would once
the producer has state.
"""

from __future__ import annotations

from ...protocol.records import batch, formats
from ...protocol.records.batch import BatchHeader
from ...protocol.records.errors import CorruptRecords
from ...storage.errors import OutOfOrderSequence
from ...storage.partition_log import PartitionLog

PRODUCERS_MAX = 1000  # of one partition; the oldest is dropped


class RefusedBatches:
    """The refused batches of one partition: the epoch and the lowest refused sequence of each producer."""

    def __init__(self) -> None:
        self._lowest: dict[int, tuple[int, int]] = {}

    def __bool__(self) -> bool:
        """Whether a producer has to send a batch again."""
        return bool(self._lowest)

    def note(self, header: BatchHeader) -> None:
        """Notes a refused batch that its producer will retry."""
        if header.producer_id < 0:
            return
        epoch, sequence = self._lowest.pop(header.producer_id, (-1, 0))
        lowest = header.base_sequence if epoch != header.producer_epoch else min(sequence, header.base_sequence)
        self._lowest[header.producer_id] = header.producer_epoch, lowest
        if len(self._lowest) > PRODUCERS_MAX:
            del self._lowest[next(iter(self._lowest))]

    def note_records(self, records: bytes | bytearray | memoryview | None) -> None:
        """Notes a refused batch in its bytes. Malformed batches and batches of an old format are ignored."""
        try:
            header = formats.read_header(records or b"")
        except CorruptRecords:
            return
        if header.magic == batch.MAGIC:
            self.note(header)

    def check(self, header: BatchHeader, log: PartitionLog) -> None:
        """Raises OutOfOrderSequence for a batch after a refused one, if its producer has no state."""
        epoch, sequence = self._lowest.get(header.producer_id, (-1, 0))
        if epoch < 0:
            return
        is_later = epoch == header.producer_epoch and header.base_sequence > sequence
        if is_later and header.producer_id not in log.producers():
            raise OutOfOrderSequence(
                f"producer {header.producer_id}: sequence {sequence} was refused and must be sent again first"
            )
        del self._lowest[header.producer_id]
