"""The requests of transactions over their versions, and what their answers tell: one function each way.

Owns which version is used: those that need transactions of the second version are left out in the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ....protocol.errors import ErrorCode
from ....protocol.messages.records.produce import ProduceRequest
from ....protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from ....protocol.messages.transactions.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ....protocol.messages.transactions.end_txn import EndTxnRequest
from ....protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ....protocol.messages.transactions.txn_offset_commit import TxnOffsetCommitRequest
from ...consumer.group_offsets import GroupMetadata, OffsetAndMetadata
from ...consumer.list_offsets import TopicPartition
from ...net.connection import Connection
from ...net.errors import UnsupportedVersion, is_retriable
from ..idempotence import last_version
from .state_machine import Ended, Identified, Standing

__all__ = ["PRODUCE_OF_V1", "add_offsets", "add_partitions", "commit_offsets", "end", "init", "worst"]

FEATURE = "transaction.version"
# The newest versions that mean transactions of the first version; those of AddPartitionsToTxn above are for brokers.
PRODUCE_OF_V1, END_OF_V1, OFFSETS_OF_V1, ADD_OF_CLIENTS = 11, 4, 4, 3
BUMP_SINCE = 3  # of InitProducerId (KIP-360)
MEMBERS_SINCE = 3  # of TxnOffsetCommit (KIP-447)
_NEEDED_BY_V2 = {ProduceRequest: 12, EndTxnRequest: 5, TxnOffsetCommitRequest: 5}


def has_v2(connection: Connection) -> bool:
    """Whether that broker's cluster has transactions of the second version."""
    is_served = all(last_version(connection, request) >= least for request, least in _NEEDED_BY_V2.items())
    return is_served and connection.finalized.get(FEATURE, 0) >= 2


async def init(
    connection: Connection, transactional_id: str, timeout_ms: int, producer_id: int, epoch: int
) -> tuple[int, Identified]:
    """(error code, what the coordinator gave): the next epoch of these if they are given, and the broker knows it."""
    version = connection.version_of(InitProducerIdRequest)
    can_bump = version >= BUMP_SINCE
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id if can_bump else -1,
        producer_epoch=epoch if can_bump else -1,
    )
    told = await connection.request(request, version)
    return told.error_code, Identified(told.producer_id, told.producer_epoch, has_v2(connection), can_bump)


async def add_partitions(
    connection: Connection, transactional_id: str, standing: Standing, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The error code of each partition that was answered."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=standing.producer_id,
        v3_and_below_producer_epoch=standing.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=some) for name, some in by_topic.items()],
    )
    told = await connection.request(request, connection.version_of(AddPartitionsToTxnRequest, ADD_OF_CLIENTS))
    return {
        (topic.name, one.partition_index): one.partition_error_code
        for topic in told.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    }


def worst(codes: Iterable[int]) -> int:
    """The code that decides for all: one that ends it, else one to be tried again, else NONE."""

    def weight(code: int) -> tuple[bool, bool, int]:
        # What was not even tried tells nothing beside what was the reason.
        return code == ErrorCode.OPERATION_NOT_ATTEMPTED, is_retriable(code), code

    return min((code for code in codes if code), key=weight, default=ErrorCode.NONE)


async def add_offsets(connection: Connection, transactional_id: str, standing: Standing, group: str) -> int:
    """The error code."""
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=standing.producer_id,
        producer_epoch=standing.epoch,
        group_id=group,
    )
    return (await connection.request(request)).error_code


async def commit_offsets(
    connection: Connection,
    transactional_id: str,
    standing: Standing,
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> dict[TopicPartition, int]:
    """The error code of each partition, of the group's coordinator. Raises UnsupportedVersion: it knows no members."""
    version = connection.version_of(TxnOffsetCommitRequest, None if standing.is_v2 else OFFSETS_OF_V1)
    if version < MEMBERS_SINCE and group != GroupMetadata(group.group):
        raise UnsupportedVersion(
            "the broker (before 2.5) cannot tell whether the consumer is still a member of its group (KIP-447): give"
            " the group id alone, with a transactional id for each partition that is read"
        )
    asked = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    by_topic: dict[str, list[Any]] = {}
    for (topic, index), told in offsets.items():
        one = asked.TxnOffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=told.offset,
            committed_leader_epoch=told.leader_epoch,
            committed_metadata=told.metadata,
        )
        by_topic.setdefault(topic, []).append(one)
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group,
        producer_id=standing.producer_id,
        producer_epoch=standing.epoch,
        topics=[asked(name=name, partitions=some) for name, some in by_topic.items()],
    )
    if version >= MEMBERS_SINCE:
        request.generation_id = group.generation
        request.member_id = group.member_id
        request.group_instance_id = group.instance_id
    response = await connection.request(request, version)
    return {(topic.name, one.partition_index): one.error_code for topic in response.topics for one in topic.partitions}


async def end(
    connection: Connection, transactional_id: str, standing: Standing, *, is_commit: bool
) -> tuple[int, Ended]:
    """(error code, what the next transaction is written with)."""
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=standing.producer_id,
        producer_epoch=standing.epoch,
        committed=is_commit,
    )
    version = connection.version_of(EndTxnRequest, None if standing.is_v2 else END_OF_V1)
    told = await connection.request(request, version)
    return told.error_code, Ended(told.producer_id, told.producer_epoch)
