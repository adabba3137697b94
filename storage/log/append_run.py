"""A run of plain batches for one log: each is judged on its own, then all are written at once.

A client with several requests in flight sends many small batches for one partition. A write for each costs more than
all the rest, so the broker collects those that arrived together. A run only takes what leaves nothing to decide: no new
segment, no transaction, a producer whose next batch it is. `PartitionLog.begin_run` makes one, `append_run` writes it;
a run that is no longer current then, because its log has changed, must be dropped. The result on disk and in memory is
that of single appends in the same order.
"""

from __future__ import annotations

from ...protocol.records import batch
from ...protocol.records.batch import BatchHeader
from ...protocol.records.new_tuple import new_tuple
from ..config import LogConfig
from ..format.index import MAX_RELATIVE_OFFSET
from ..producers.producer_state import Producer, follow
from ..segments.segment import Segment


class AppendRun:
    """The batches of one run, for the active segment of a log.

    `known` has the entries of producers before the run, None if they are not loaded; `due_at` is the offset from which
    on an append waits for a sync.
    """

    __slots__ = (
        "_config",
        "_due_at",
        "_first_ms",
        "_known",
        "_leader_epoch",
        "_position",
        "first_offset",
        "headers",
        "log_start_offset",
        "next_offset",
        "pieces",
        "producers",
        "rules",
        "segment",
        "size_bytes",
    )

    def __init__(
        self,
        segment: Segment,
        first_ms: int,
        config: LogConfig,
        next_offset: int,
        leader_epoch: int,
        known: dict[int, Producer] | None,
        log_start_offset: int,
        due_at: int,
    ) -> None:
        self.segment = segment
        self._config = config
        self.rules = config.rules
        self._leader_epoch = leader_epoch
        self._known = known
        self._due_at = due_at
        self._first_ms = first_ms  # the timestamp of the segment's first batch
        self._position = segment.size_bytes
        self.first_offset = next_offset
        """The offset of the first record."""
        self.next_offset = next_offset
        """The offset of the next record."""
        self.log_start_offset = log_start_offset
        self.headers: list[BatchHeader] = []
        self.pieces: list[memoryview] = []
        self.producers: dict[int, Producer] = {}
        """The entries of producers after the run."""
        self.size_bytes = 0

    def is_current(
        self,
        config: LogConfig,
        leader_epoch: int,
        known: dict[int, Producer] | None,
        log_start_offset: int,
        due_at: int,
    ) -> bool:
        """Whether the run was begun with these values, and its segment has not grown since."""
        return (
            self._position == self.segment.size_bytes + self.size_bytes
            and self._config is config
            and self._leader_epoch == leader_epoch
            and self._known is known
            and self.log_start_offset == log_start_offset
            and self._due_at == due_at
        )

    def add(self, records: memoryview, header: BatchHeader) -> int:
        """Takes a batch with this header, whose `records` must stay as they are until the run is written. Returns its
        base offset, or -1 if it is not taken. Sets the offset in the batch.
        """
        _, length, _, magic, crc, attributes, delta, base_ms, max_ms, producer_id, epoch, sequence, count = header
        base_offset, size = self.next_offset, len(records)
        last_offset = base_offset + delta
        config, segment = self._config, self.segment
        if (
            self._position > config.segment_bytes - size
            or max_ms - self._first_ms > config.segment_ms - segment.jitter_ms
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            or last_offset >= self._due_at
            or segment.is_index_full(config.segment_index_bytes, len(self.headers) + 1)
        ):
            return -1
        placed = new_tuple(
            BatchHeader,
            (
                base_offset,
                length,
                self._leader_epoch,
                magic,
                crc,
                attributes,
                delta,
                base_ms,
                max_ms,
                producer_id,
                epoch,
                sequence,
                count,
            ),
        )
        if producer_id >= 0:
            known = self.producers.get(producer_id)
            if known is None and self._known is not None:
                known = self._known.get(producer_id)
            # A producer that is below the log start may count as unknown (KIP-192).
            if known is None or known.last_offset < self.log_start_offset:
                return -1
            producer = follow(known, placed, config.producer_rules)
            if producer is None:
                return -1
            self.producers[producer_id] = producer
        batch.assign(records, 0, base_offset=base_offset, leader_epoch=self._leader_epoch)
        self.headers.append(placed)
        self.pieces.append(records)
        self._position += size
        self.size_bytes += size
        self.next_offset = last_offset + 1
        return base_offset
