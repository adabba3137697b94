"""The requests of transactions in all their versions: one function for each request with its response.

Owns the choice of versions: those that need transactions of the second version (KIP-890) are not used in the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ....protocol.errors import ErrorCode
from ....protocol.messages.records.produce import ProduceRequest
from ....protocol.messages.transactions.add_offsets_to_txn import AddOffsetsToTxnRequest
from ....protocol.messages.transactions.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ....protocol.messages.transactions.end_txn import EndTxnRequest
from ....protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ....protocol.messages.transactions.txn_offset_commit import TxnOffsetCommitRequest
from ...consumer.group_offsets import GroupMetadata, OffsetAndMetadata, commit_topics
from ...consumer.list_offsets import TopicPartition
from ...net.connection import Connection
from ...net.errors import UnsupportedVersion, is_retriable
from ...net.metadata import by_topic, partitions_in
from ..idempotence import last_version
from .state_machine import Ended, Identified, TransactionStatus

FEATURE = "transaction.version"
# The newest versions for transactions of the first version; higher ones of AddPartitionsToTxn are for brokers.
PRODUCE_OF_V1, END_OF_V1, OFFSETS_OF_V1, ADD_OF_CLIENTS = 11, 4, 4, 3
OFFSETS_WITHOUT_IDS = 5  # TxnOffsetCommit from v6 on has topic ids in place of names (KIP-1319)
BUMP_SINCE = 3  # of InitProducerId (KIP-360)
MEMBERS_SINCE = 3  # of TxnOffsetCommit (KIP-447)
_NEEDED_BY_V2 = {ProduceRequest: 12, EndTxnRequest: 5, TxnOffsetCommitRequest: 5}


def has_v2(connection: Connection) -> bool:
    """Returns whether the cluster has transactions of the second version (transaction.version 2)."""
    is_served = all(last_version(connection, request) >= least for request, least in _NEEDED_BY_V2.items())
    return is_served and connection.finalized.get(FEATURE, 0) >= 2


async def init(
    connection: Connection, transactional_id: str, timeout_ms: int, producer_id: int, epoch: int
) -> tuple[int, Identified]:
    """Sends InitProducerId; returns (error code, producer id and epoch).

    With `producer_id` and `epoch` the epoch is bumped, if the broker supports it (KIP-360).
    """
    version = connection.version_of(InitProducerIdRequest)
    can_bump = version >= BUMP_SINCE
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id if can_bump else -1,
        producer_epoch=epoch if can_bump else -1,
    )
    response = await connection.request(request, version)
    identified = Identified(response.producer_id, response.producer_epoch, has_v2(connection), can_bump)
    return response.error_code, identified


async def add_partitions(
    connection: Connection, transactional_id: str, status: TransactionStatus, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Sends AddPartitionsToTxn; returns the error code of each partition in the response."""
    topics = by_topic(sorted(partitions)).items()
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=status.producer_id,
        v3_and_below_producer_epoch=status.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=some) for name, some in topics],
    )
    response = await connection.request(request, connection.version_of(AddPartitionsToTxnRequest, ADD_OF_CLIENTS))
    return {
        (topic.name, one.partition_index): one.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    }


def worst(codes: Iterable[int]) -> int:
    """Returns the decisive code: a fatal one, otherwise a retriable one, otherwise NONE."""

    def weight(code: int) -> tuple[bool, bool, int]:
        # OPERATION_NOT_ATTEMPTED is only a consequence of the error of another partition.
        return code == ErrorCode.OPERATION_NOT_ATTEMPTED, is_retriable(code), code

    return min((code for code in codes if code), key=weight, default=ErrorCode.NONE)


async def add_offsets(connection: Connection, transactional_id: str, status: TransactionStatus, group: str) -> int:
    """Sends AddOffsetsToTxn; returns the error code."""
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=status.producer_id,
        producer_epoch=status.epoch,
        group_id=group,
    )
    return (await connection.request(request)).error_code


async def commit_offsets(
    connection: Connection,
    transactional_id: str,
    status: TransactionStatus,
    group: GroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> dict[TopicPartition, int]:
    """Sends TxnOffsetCommit to the group's coordinator; returns the error code of each partition.

    Raises UnsupportedVersion if a member is given and the broker does not support it (before Kafka 2.5).
    """
    version = connection.version_of(TxnOffsetCommitRequest, OFFSETS_WITHOUT_IDS if status.is_v2 else OFFSETS_OF_V1)
    if version < MEMBERS_SINCE and group != GroupMetadata(group.group):
        raise UnsupportedVersion(
            "the broker (before Kafka 2.5) cannot check the membership of the consumer (KIP-447): use the group id"
            " alone, with a transactional id for each input partition"
        )
    topic_class = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group,
        producer_id=status.producer_id,
        producer_epoch=status.epoch,
        topics=commit_topics(topic_class, topic_class.TxnOffsetCommitRequestPartition, offsets),
    )
    if version >= MEMBERS_SINCE:
        request.generation_id_or_member_epoch = group.generation
        request.member_id = group.member_id
        request.group_instance_id = group.instance_id
    response = await connection.request(request, version)
    return {where: one.error_code for where, one in partitions_in(response.topics)}


async def end(
    connection: Connection, transactional_id: str, status: TransactionStatus, *, is_commit: bool
) -> tuple[int, Ended]:
    """Sends EndTxn; returns (error code, producer id and epoch of the next transaction)."""
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=status.producer_id,
        producer_epoch=status.epoch,
        committed=is_commit,
    )
    version = connection.version_of(EndTxnRequest, None if status.is_v2 else END_OF_V1)
    response = await connection.request(request, version)
    return response.error_code, Ended(response.producer_id, response.producer_epoch)
