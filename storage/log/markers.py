"""Transaction markers (KIP-98): control batches, and the checks before one is written.

Pure. `producer_state.py` applies a marker to its producer; `txn_index.py` makes the transaction index entry of an
abort, and also reads markers.
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
_EPOCH_EACH = 2  # from this transaction.version on the marker of each transaction has a higher epoch than its batches


def check_marker(
    known: Producer | None, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
) -> None:
    """Raises FencedProducer or FencedCoordinator if a marker must not be written.

    With `transaction_version` 2 or more the epoch must be above the known one (KIP-1228). The same epoch is accepted as
    a retry if no transaction is open, or if it is the largest, which has none above it.
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
    """Returns the batch of a marker. Raises UnsupportedForFormat if the topic has an old format and no transaction is
    open."""
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
