"""DescribeTransactions: request and response of API key 65. KIP-664."""

from __future__ import annotations

from ...primitives import Int16, Int32, Int64, Text
from ...schema import group, message


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    """Requests the coordinator's state of transactional ids."""

    transactional_ids: list[Text]


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    """Producer, state and partitions of each transactional id."""

    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState]

    @group
    class TransactionState:
        error_code: Int16
        transactional_id: Text
        transaction_state: Text = ""
        transaction_timeout_ms: Int32 = 0
        transaction_start_time_ms: Int64 = 0
        producer_id: Int64 = 0
        producer_epoch: Int16 = 0
        topics: list[TopicData]

        @group
        class TopicData:
            topic: Text
            partitions: list[Int32]
