"""Producer ids: each is handed out once in the life of a cluster, also across crashes.

Owns blocks of 1,000 ids (Kafka's size, KIP-730): a block is durable in the metadata log before its first id is used, so
a crash skips ids and never repeats one.
"""

from __future__ import annotations

from ..protocol.messages.metadata_records import ProducerIdsRecord
from .metadata_log import MetadataLog

BLOCK_IDS = 1000


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
