"""InitProducerId: request and response of API key 22. KIP-98, KIP-360, KIP-588, KIP-890, KIP-939."""

from __future__ import annotations

from ...primitives import Bool, Int16, Int32, Int64, Text
from ...schema import field, message


@message(api_key=22, versions="0-6", flexible="2+")
class InitProducerIdRequest:
    """Requests a producer id and epoch; v3 carries the current ones (KIP-360), v6 is for two-phase commit."""

    transactional_id: Text | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = field("3+", default=-1)
    producer_epoch: Int16 = field("3+", default=-1)
    enable2_pc: Bool = field("6+", default=False)
    keep_prepared_txn: Bool = field("6+", default=False)


@message(api_key=22, versions="0-6", flexible="2+")
class InitProducerIdResponse:
    """The producer id and epoch to use."""

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    error_code: Int16
    producer_id: Int64 = -1
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = field("6+", default=-1)
    ongoing_txn_producer_epoch: Int16 = field("6+", default=-1)
