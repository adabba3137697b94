"""ListTransactions: request and response of API key 66. KIP-664, KIP-994, KIP-1152."""

from __future__ import annotations

from ...primitives import Int16, Int32, Int64, Text
from ...schema import field, group, message


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    """An empty field does not filter. v1 filters by duration (KIP-994), v2 by a pattern of transactional ids
    (KIP-1152)."""

    state_filters: list[Text]
    producer_id_filters: list[Int64]
    duration_filter: Int64 = field("1+", default=-1)
    transactional_id_pattern: Text | None = field("2+", default=None)


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    """The matching transactional ids, and the state filters that are unknown."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    unknown_state_filters: list[Text]
    transaction_states: list[TransactionState]

    @group
    class TransactionState:
        transactional_id: Text
        producer_id: Int64
        transaction_state: Text
