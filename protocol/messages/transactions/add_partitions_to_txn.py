"""AddPartitionsToTxn: request and response of API key 24. KIP-98, KIP-360, KIP-890."""

from __future__ import annotations

from ...primitives import Bool, Int16, Int32, Int64, Text
from ...schema import field, group, message


@group
class AddPartitionsToTxnTopic:
    name: Text
    partitions: list[Int32]


@message(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    """v0-v3, from clients, have one transaction; v4 several, with a verify-only flag (KIP-890)."""

    transactions: list[AddPartitionsToTxnTransaction] = field("4+", default=list)
    v3_and_below_transactional_id: Text = field("0-3", default="")
    v3_and_below_producer_id: Int64 = field("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = field("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field("0-3", default=list)

    @group
    class AddPartitionsToTxnTransaction:
        transactional_id: Text
        producer_id: Int64
        producer_epoch: Int16
        verify_only: Bool = False
        topics: list[AddPartitionsToTxnTopic]


@group
class AddPartitionsToTxnTopicResult:
    name: Text
    results_by_partition: list[AddPartitionsToTxnPartitionResult]

    @group
    class AddPartitionsToTxnPartitionResult:
        partition_index: Int32
        partition_error_code: Int16


@message(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    """One error per partition; v4 groups them by transaction and adds an error for the request as a whole."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = field("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field("4+", default=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field("0-3", default=list)

    @group
    class AddPartitionsToTxnResult:
        transactional_id: Text
        topic_results: list[AddPartitionsToTxnTopicResult]
