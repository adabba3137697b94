"""AddOffsetsToTxn: request and response of API key 25. KIP-98, KIP-360, KIP-890."""

from __future__ import annotations

from ...primitives import Int16, Int32, Int64, Text
from ...schema import message


@message(api_key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    """Adds the offsets partition of a group to a transaction. From v4 on the client handles TRANSACTION_ABORTABLE."""

    transactional_id: Text
    producer_id: Int64
    producer_epoch: Int16
    group_id: Text


@message(api_key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    """The error code."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
