"""Producer ids: each is handed out once in the life of a cluster, also across crashes.

Owns blocks of 1,000 ids (Kafka's size, KIP-730): a block is durable in the metadata log before its first id is used, so
a crash skips ids and never repeats one.
"""

from __future__ import annotations

from ...protocol.internal_records.metadata_records import ProducerIdsRecord
from .log import MetadataLog

BLOCK_IDS = 1000


COMPARING_MAX = 100_000  # producer ids, of 0.1 KB each


class ComparingProducers:
    """The newest producer ids of clients that compare the log start offset in a Produce response with their last
    acknowledged offset, since this start of the broker.

    After UNKNOWN_PRODUCER_ID these clients know whether retention removed their records, or whether records were lost
    (KIP-192). To other clients it is an error that ends what they do.
    """

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: dict[int, None] = {}

    def __bool__(self) -> bool:
        return bool(self._ids)

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._ids

    def note(self, producer_id: int, compares: bool) -> None:
        """A client received this id. `compares`: it is one of those."""
        self._ids.pop(producer_id, None)
        if compares:
            self._ids[producer_id] = None
            if len(self._ids) > COMPARING_MAX:
                del self._ids[next(iter(self._ids))]


class ProducerIds:
    """Hands out producer ids. Feed it the metadata log's ProducerIdsRecords first, through `replay`."""

    def __init__(self, log: MetadataLog, node_id: int) -> None:
        self._log = log
        self._node_id = node_id
        self._next = 0
        self._block_end = 0

    def replay(self, record: ProducerIdsRecord) -> None:
        """A block that was handed out before: its ids are gone, used or not."""
        self._next = self._block_end = record.next_producer_id

    def skip(self, earlier: ProducerIds) -> None:
        """Goes on behind another's ids, whose clients may still be there though its log is not."""
        self._next = self._block_end = max(self._block_end, earlier._block_end)

    def allocate(self, now_ms: int) -> int:
        """A fresh id. Raises StorageError when a new block cannot be made durable."""
        if self._next == self._block_end:
            end = self._block_end + BLOCK_IDS
            record = ProducerIdsRecord(broker_id=self._node_id, broker_epoch=-1, next_producer_id=end)
            self._log.append([record], now_ms)
            self._block_end = end
        self._next += 1
        return self._next - 1
