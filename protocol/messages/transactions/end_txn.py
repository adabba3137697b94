"""EndTxn: request and response of API key 26. KIP-98, KIP-360, KIP-890."""

from __future__ import annotations

from ...primitives import Bool, Int16, Int32, Int64, Text
from ...schema import field, message


@message(api_key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    """Commits or aborts. From v4 on the client handles TRANSACTION_ABORTABLE; v5 bumps the epoch with every transaction
    (KIP-890)."""

    transactional_id: Text
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


@message(api_key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    """v5 adds producer id and epoch for the next transaction."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    producer_id: Int64 = field("5+", default=-1, ignorable=True)
    producer_epoch: Int16 = field("5+", default=-1, ignorable=True)
