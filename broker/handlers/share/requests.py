"""What the APIs of share groups have in common: the checks of group and member, acknowledgements, and leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.records.leaders import NodeEndpoint
from ....protocol.messages.share.parts import LeaderIdAndEpoch
from ...broker_state import BrokerState
from ...context import RequestContext
from ...errors import Refused, message_of
from ...futures import settled
from ...groups.share.state import SharePartitionKey
from ...replica.partition import NotLed, Partition
from ...share.sessions import SessionKey, TopicPartition
from ...share.share_partitions import Outcome
from ...share.values import Acknowledgement, AcknowledgeType
from ..leaders import endpoint

MEMBER_LENGTH_MAX = 36  # UTF-16 units
RENEWS_SINCE = 2  # the version with renewed locks (KIP-1222)
ACKNOWLEDGED_PER_STEP = 20  # entries of a cooperative step for a partition whose acknowledgements are stored
_ERRORS_WITH_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Pending = dict[TopicPartition, Outcome | asyncio.Future[Outcome]]


def session_of(request: Any, context: RequestContext) -> SessionKey:
    """Returns the session of a ShareFetch or ShareAcknowledge, after the checks of group and member. Raises Refused."""
    if not context.broker.features.share_groups:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, wordless=True)
    if request.group_id is None:
        raise Refused(ErrorCode.INVALID_REQUEST, "Invalid group id in the request.", wordless=True)
    context.check_allowed(AclOperation.READ, ResourceType.GROUP, request.group_id)
    member_length = len((request.member_id or "").encode("utf-16-le", "surrogatepass")) // 2
    if not 0 < member_length <= MEMBER_LENGTH_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, "Invalid member id in the request.", wordless=True)
    return SessionKey(context.node_id, request.group_id, request.member_id)


def found_partition(name: str | None, key: TopicPartition, context: RequestContext) -> Partition:
    """Returns a partition whose topic is readable and exists. Raises Refused. `name` is None for an unknown topic."""
    if name is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
    context.check_topic(AclOperation.READ, name)
    topic = context.broker.topics.by_id(key.topic_id)
    if topic is None or not 0 <= key.partition < len(topic.partitions):
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic.partitions[key.partition]


async def acknowledging(topics: Iterable[Any], key: SessionKey, is_renewal: bool, context: RequestContext) -> Pending:
    """Begins the acknowledgements of a request, each partition on its own. Returns their results, or futures of them,
    for the partitions that have any in a ShareFetch, and for all in a ShareAcknowledge.
    """
    pending: Pending = {}
    for topic in topics:
        for partition in topic.partitions:
            of = TopicPartition(topic.topic_id, partition.partition_index)
            await context.step(ACKNOWLEDGED_PER_STEP + len(partition.acknowledgement_batches))
            try:
                pending[of] = _acknowledging(of, partition.acknowledgement_batches, key, is_renewal, context)
            except Refused as refused:
                pending[of] = Refused(refused.code, wordless=True)
    return pending


def _acknowledging(
    of: TopicPartition, batches: list[Any], key: SessionKey, is_renewal: bool, context: RequestContext
) -> Outcome | asyncio.Future[Outcome]:
    broker = context.broker
    name = broker.topics.topic_name(of.topic_id)
    if name is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
    newest = AcknowledgeType.RENEW if context.api_version >= RENEWS_SINCE else AcknowledgeType.REJECT
    given = _checked(batches, newest, is_renewal)
    found_partition(name, of, context)
    if not given:
        return None
    share_partition = broker.share_partitions.get(SharePartitionKey(key.group_id, *of))
    if share_partition is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return broker.share_partitions.acknowledge(share_partition, key.member, given)


def _checked(batches: list[Any], newest: AcknowledgeType, is_renewal: bool) -> list[Acknowledgement]:
    """Returns the acknowledgements of one partition. Raises Refused unless they are in order and have valid types."""
    given: list[Acknowledgement] = []
    last = -1
    for batch in batches:
        first, types = batch.first_offset, batch.acknowledge_types
        is_valid = last <= first <= batch.last_offset and types
        last = batch.last_offset
        is_valid = is_valid and (len(types) == 1 or len(types) == last - first + 1)
        is_valid = is_valid and all(0 <= kind <= newest for kind in types)
        if not is_valid or (AcknowledgeType.RENEW in types and not is_renewal):
            raise Refused(ErrorCode.INVALID_REQUEST)
        given.append(Acknowledgement(first, last, types))
    return given


async def acknowledged(pending: Pending, broker: BrokerState) -> dict[TopicPartition, Outcome]:
    """Waits for the results of `acknowledging`, and counts them."""
    outcomes = {of: await settled(outcome) for of, outcome in pending.items()}
    if broker.topic_metrics is not None and outcomes:
        failed = {of.topic_id for of, outcome in outcomes.items() if outcome is not None}
        broker.topic_metrics.share_acknowledged(
            names_of({of.topic_id for of in outcomes}, broker), names_of(failed, broker)
        )
    return outcomes


def names_of(topic_ids: Iterable[bytes], broker: BrokerState) -> list[str]:
    """Returns the names of the topics that exist."""
    return [name for topic_id in topic_ids if (name := broker.topics.topic_name(topic_id)) is not None]


def text_of(refused: Outcome) -> str | None:
    """Returns the error message for the client; None without one."""
    return None if refused is None else (message_of(refused) if refused.message else None)


def release(key: SessionKey, context: RequestContext) -> None:
    """Closes a session and releases the records of its member."""
    broker = context.broker
    for partition in broker.share_sessions.close(key):
        led = broker.share_partitions.get(SharePartitionKey(key.group_id, *partition))
        if led is not None:
            broker.share_partitions.release(led, key.member)


def set_leader(data: Any, error: Exception | None, of: TopicPartition, context: RequestContext) -> None:
    """Sets the current leader in the response of a partition that this node does not lead."""
    if data.error_code not in _ERRORS_WITH_LEADER:
        return
    partition = error.partition if isinstance(error, NotLed) else None
    topic = context.broker.topics.by_id(of.topic_id)
    if partition is None and topic is not None:
        partition = topic.partitions[of.partition]
    if partition is not None:
        data.current_leader = LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)


def endpoints_of(results: Iterable[Any], context: RequestContext) -> list[NodeEndpoint]:
    """Returns the endpoints of the leaders in the responses of partitions, each once."""
    leaders = {data.current_leader.leader_id for data in results if data.error_code in _ERRORS_WITH_LEADER}
    return [endpoint(NodeEndpoint, leader, context) for leader in sorted(leaders) if leader >= 0]


def by_topic(results: Iterable[tuple[TopicPartition, Any]]) -> dict[bytes, list[Any]]:
    """Returns the responses of partitions by topic id."""
    topics: dict[bytes, list[Any]] = {}
    for of, data in results:
        topics.setdefault(of.topic_id, []).append(data)
    return topics
