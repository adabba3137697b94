"""First batches of idempotent producers that were refused: what is behind them waits until they come again.

Since 2.5 a producer of which a log knows nothing may begin with any sequence. Where the first of several batches in
flight is refused for a moment, as by a disk that is full, by a leader on its way or on command, the second would begin
the log, the first could never follow, and librdkafka takes it as written. With Kafka whatever refuses one refuses the
others too; here it may not, so they are told that they are out of order, as they are once a producer is known.
"""

from __future__ import annotations

from ...protocol.records import batch, formats
from ...protocol.records.batch import BatchHeader
from ...protocol.records.errors import CorruptRecords
from ...storage.errors import OutOfOrderSequence
from ...storage.partition_log import PartitionLog

PRODUCERS_MAX = 1000  # of one partition; the oldest is forgotten


class RefusedBatches:
    """The refused batches of one partition: of each producer the epoch and the lowest sequence."""

    def __init__(self) -> None:
        self._lowest: dict[int, tuple[int, int]] = {}

    def note(self, header: BatchHeader) -> None:
        """A batch was refused that its producer will send again."""
        if header.producer_id < 0:
            return
        epoch, sequence = self._lowest.pop(header.producer_id, (-1, 0))
        lowest = header.base_sequence if epoch != header.producer_epoch else min(sequence, header.base_sequence)
        self._lowest[header.producer_id] = header.producer_epoch, lowest
        if len(self._lowest) > PRODUCERS_MAX:
            del self._lowest[next(iter(self._lowest))]

    def note_records(self, records: bytes | bytearray | memoryview | None) -> None:
        """The same, as it came; what cannot be read, or is of an old format, is no batch of such a producer."""
        try:
            header = formats.read_header(records or b"")
        except CorruptRecords:
            return
        if header.magic == batch.MAGIC:
            self.note(header)

    def check(self, header: BatchHeader, log: PartitionLog) -> None:
        """Raises OutOfOrderSequence for a batch of a producer that is not known, behind one that was refused."""
        epoch, sequence = self._lowest.get(header.producer_id, (-1, 0))
        if epoch < 0:
            return
        is_behind = epoch == header.producer_epoch and header.base_sequence > sequence
        if is_behind and header.producer_id not in log.producers():
            raise OutOfOrderSequence(f"producer {header.producer_id}: {sequence} is next, and was refused before")
        del self._lowest[header.producer_id]
