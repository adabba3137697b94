"""Allocates producer ids; each is used once in the life of a cluster, also after crashes.

Owns blocks of 1,000 ids (Kafka's size, KIP-730). A block is durable in the metadata log before its first id is used, so
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
        """Records that a client received this id; `compares`: it is such a client."""
        self._ids.pop(producer_id, None)
        if compares:
            self._ids[producer_id] = None
            if len(self._ids) > COMPARING_MAX:
                del self._ids[next(iter(self._ids))]


class ProducerIds:
    """Allocates producer ids. At startup pass the ProducerIdsRecords of the metadata log to `replay`."""

    def __init__(self, log: MetadataLog, node_id: int) -> None:
        self._log = log
        self._node_id = node_id
        self._next = 0
        self._block_end = 0

    def replay(self, record: ProducerIdsRecord) -> None:
        """Applies a block that was allocated before: its ids count as used."""
        self._next = self._block_end = record.next_producer_id

    def skip(self, earlier: ProducerIds) -> None:
        """Continues after the ids of another state, whose clients may still be connected."""
        self._next = self._block_end = max(self._block_end, earlier._block_end)

    def allocate(self, now_ms: int) -> int:
        """Returns an unused id. Raises StorageError if a new block cannot be made durable."""
        if self._next == self._block_end:
            end = self._block_end + BLOCK_IDS
            record = ProducerIdsRecord(broker_id=self._node_id, broker_epoch=-1, next_producer_id=end)
            self._log.append([record], now_ms)
            self._block_end = end
        self._next += 1
        return self._next - 1
