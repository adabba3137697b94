"""The markers that end transactions (KIP-98): control batches, and whether one may be written.

Owns the bytes of a marker and its rules; pure. What one does to its producer is `producer_state.py`'s, and what an
abort leaves in the transaction index `txn_index.py`'s, which also reads markers.
"""

from __future__ import annotations

from ...protocol.limits import INT16_MAX
from ...protocol.records import batch
from ...protocol.records.errors import UnsupportedForFormat
from ...protocol.records.validate import Prepared
from ..config import LogConfig
from ..errors import FencedCoordinator, FencedProducer
from ..producers.producer_state import Producer
from ..producers.txn_index import Marker, marker_record

_LAST_EPOCH = INT16_MAX
_EPOCH_EACH = 2  # from this transaction.version on each transaction ends with an epoch above that of its batches


def check_marker(
    known: Producer | None, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
) -> None:
    """Raises FencedProducer or FencedCoordinator where a marker must not be written.

    With `transaction_version` 2 or more the epoch is to be above the known one (KIP-1228). The same one is a retry,
    which may be written again, if no transaction is open, or the largest, which has none above it.
    """
    if known is None:
        return
    epoch = known.epoch
    is_open = known.transaction_first_offset >= 0
    if producer_epoch < epoch or (
        producer_epoch == epoch and transaction_version >= _EPOCH_EACH and is_open and epoch != _LAST_EPOCH
    ):
        raise FencedProducer(f"a marker of producer {producer_id} epoch {producer_epoch} where {epoch} is known")
    if coordinator_epoch < known.coordinator_epoch:
        raise FencedCoordinator(
            f"a marker of coordinator epoch {coordinator_epoch} where {known.coordinator_epoch} is known"
        )


def prepared(
    producer_id: int, producer_epoch: int, marker: Marker, now_ms: int, config: LogConfig, is_open: bool
) -> Prepared:
    """The batch of a marker. Raises UnsupportedForFormat where a topic of an old format has no transaction to end."""
    rules = config.rules
    if rules.target_magic < batch.MAGIC and not is_open:
        raise UnsupportedForFormat(f"a transaction marker for records of format v{rules.target_magic}")
    buffer = batch.build(
        [batch.Record(0, now_ms, *marker_record(marker))],
        batch.BatchFields(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=True,
            control=True,
            log_append_time=rules.log_append_time,
        ),
    )
    header = batch.read_header(buffer)
    return Prepared(buffer, header, now_ms if rules.log_append_time else -1, 0, (header,))
