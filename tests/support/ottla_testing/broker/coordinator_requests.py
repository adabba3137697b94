"""Requests to coordinators, and the positions of their error codes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.groups.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.groups.heartbeat import HeartbeatRequest
from ottla.protocol.messages.groups.join_group import JoinGroupRequest
from ottla.protocol.messages.groups.leave_group import LeaveGroupRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.groups.offset_delete import OffsetDeleteRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.groups.sync_group import SyncGroupRequest
from ottla.protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.transactions.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.messages.transactions.end_txn import EndTxnRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla_testing.broker.transacting import topics_of

GROUP, TRANSACTION = 0, 1
JOINED = JoinGroupRequest(
    group_id="g",
    session_timeout_ms=30_000,
    rebalance_timeout_ms=30_000,
    member_id="",
    protocol_type="consumer",
    protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0")],
)
FETCHED = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
COMMITTED = OffsetCommitRequest.OffsetCommitRequestTopic(
    name="t",
    partitions=[
        OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=""
        )
    ],
)
DELETED = OffsetDeleteRequest.OffsetDeleteRequestTopic(
    name="t",
    partitions=[OffsetDeleteRequest.OffsetDeleteRequestTopic.OffsetDeleteRequestPartition(partition_index=0)],
)


def code(response: Any) -> int:
    return response.error_code


def of_partition(response: Any) -> int:
    return response.topics[0].partitions[0].error_code


# (request, version, position of its error), of groups and of transactions
REQUESTS: list[tuple[Any, int, Callable[[Any], int]]] = [
    (JOINED, 5, code),
    (SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[]), 2, code),
    (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 2, code),
    (LeaveGroupRequest(group_id="g", member_id="m"), 2, code),
    (OffsetFetchRequest(group_id="g", topics=[FETCHED]), 1, of_partition),
    (OffsetFetchRequest(group_id="g", topics=[FETCHED]), 5, code),
    (OffsetCommitRequest(group_id="g", topics=[COMMITTED]), 5, of_partition),
    (OffsetDeleteRequest(group_id="g", topics=[DELETED]), 0, code),
    (DescribeGroupsRequest(groups=["g"]), 2, lambda response: response.groups[0].error_code),
    (DeleteGroupsRequest(groups_names=["g"]), 1, lambda response: response.results[0].error_code),
    (InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000), 1, code),
    (AddOffsetsToTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, group_id="g"), 1, code),
    (EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, committed=True), 1, code),
    (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics_of((("t", 0),)),
        ),
        1,
        lambda response: response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
    ),
]
