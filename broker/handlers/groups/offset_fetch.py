"""OffsetFetch v0-v10: committed offsets of groups. KIP-320, 447, 709, 848.

v0 is served from `__consumer_offsets` too, and has error 3 for a partition without an offset, as the ZooKeeper store
had. The member id and epoch (v9) are checked for groups of the consumer protocol.

Requires DESCRIBE on each group (READ where the release does) and on each topic. Topics without permission are left out
of all topics, and come last if they were requested, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.groups.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ....protocol.named import NamedTuple
from ....protocol.primitives import ZERO_UUID
from ...context import RequestContext, handles
from ...groups.offsets import CommittedOffset, FetchedOffset, Partition

GROUPS_SINCE = 8
TOP_LEVEL_ERROR_SINCE = 2
TOPIC_IDS_SINCE = 10
NO_OFFSET = CommittedOffset(-1)
GROUP_ENTRIES = 2  # entries of a cooperative step for each group
FETCHED_AT_ONCE = 2000
SORTED_PER_ENTRY = 20  # offsets that are grouped by topic in the time of one entry of a cooperative step
A = TypeVar("A")

Topic = OffsetFetchResponse.OffsetFetchResponseTopic
Group = OffsetFetchResponse.OffsetFetchResponseGroup
RequestedGroup = OffsetFetchRequest.OffsetFetchRequestGroup


class Wanted(NamedTuple):
    """A group whose offsets are requested, and the member that requests them."""

    group_id: str
    require_stable: bool
    member_id: str | None = None
    epoch: int = -1


@handles(OffsetFetchRequest)
async def offset_fetch(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """Returns offsets: from v8 on of several groups, each with its own error."""
    if context.api_version >= GROUPS_SINCE:
        by_id = context.api_version >= TOPIC_IDS_SINCE
        found: list[Group] = []
        for requested in request.groups:
            await context.step(GROUP_ENTRIES)
            found.append(await _group(context, requested, request.require_stable, by_id))
        return OffsetFetchResponse(groups=found)
    partitions: list[Partition] | None = None
    if request.topics is not None:
        partitions = []
        for topic in request.topics:
            partitions += await context.mapped(partial(_pair, topic.name), topic.partition_indexes)
    fetch = Wanted(request.group_id, request.require_stable)
    error, fetched = await _fetched(fetch, partitions, context)
    if not context.api_version and not error and not context.broker.profile.behaviour.first_offsets:
        error = ErrorCode.UNSUPPORTED_VERSION
    await context.step(len(fetched) // SORTED_PER_ENTRY)
    if error is not ErrorCode.NONE and context.api_version < TOP_LEVEL_ERROR_SINCE:
        refused = error
        nothing: list[Partition] = []
        fetched = await context.mapped(lambda partition: FetchedOffset(partition, None, refused), partitions or nothing)
    elif context.api_version == 0:
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        def of_v0(one: FetchedOffset) -> FetchedOffset:
            return one if one.committed is not None or one.error else one._replace(error=missing)

        fetched = await context.mapped(of_v0, fetched)
    await context.step(len(fetched) // SORTED_PER_ENTRY)
    names = [topic.name for topic in request.topics or ()]
    if not error:
        names = _listed(names, context)
    elif context.api_version >= TOP_LEVEL_ERROR_SINCE or context.broker.profile.behaviour.old_group_coordinator:
        names = []
    topics: list[Topic] = []
    for name, ones in _by_topic(fetched, names):
        responses = await context.mapped(partial(_partition, Topic.OffsetFetchResponsePartition), ones)
        topics.append(Topic(name=name, partitions=responses))
    return OffsetFetchResponse(topics=topics, error_code=error)


async def _fetched(
    fetch: Wanted, requested: list[Partition] | None, context: RequestContext
) -> tuple[ErrorCode, list[FetchedOffset]]:
    """Returns what a group has committed for partitions, or for all of its partitions with None; nothing besides an
    error of the group.
    """
    reads = context.broker.profile.behaviour.offset_fetch_reads_group
    if not context.allowed(AclOperation.READ if reads else AclOperation.DESCRIBE, ResourceType.GROUP, fetch.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED, []
    visible, refused = requested, []
    if requested is not None and context.broker.authorizer is not None:
        codes = {name: context.topic_refusal(AclOperation.DESCRIBE, name) for name, _ in requested}
        visible = [partition for partition in requested if not codes[partition[0]]]
        refused = [FetchedOffset(one, None, codes[one[0]]) for one in requested if codes[one[0]]]
    error, fetched = await _committed(fetch, visible, context)
    error = error or await context.broker.group_records_durable(fetch.group_id)
    if error is not ErrorCode.NONE:
        return error, []
    if requested is None:
        described = (context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, one.partition[0]) for one in fetched)
        fetched = [one for one, is_described in zip(fetched, described, strict=True) if is_described]
    return ErrorCode.NONE, [*fetched, *refused]


async def _group(context: RequestContext, requested: RequestedGroup, require_stable: bool, by_id: bool) -> Group:
    """One group's response. By id, an unknown topic has an error, and comes last, as in Kafka; a request for all topics
    leaves out topics without an id.
    """
    groups = context.groups
    partitions: list[Partition] | None = None
    names: list[str] = []
    unknown: list[Group.OffsetFetchResponseTopics] = []
    if requested.topics is not None:
        partitions = []
        for topic in requested.topics:
            name = groups.topics.name_of(topic.topic_id) if by_id else topic.name
            if name is None:
                unknown.append(await _unknown_topic(topic.topic_id, topic.partition_indexes, context))
            else:
                names.append(name)
                partitions += await context.mapped(partial(_pair, name), topic.partition_indexes)
    fetch = Wanted(requested.group_id, require_stable, requested.member_id, requested.member_epoch)
    error, fetched = await _fetched(fetch, partitions, context)
    if error is not ErrorCode.NONE:
        return Group(group_id=requested.group_id, topics=[], error_code=error)
    await context.step(len(fetched) // SORTED_PER_ENTRY)
    topics: list[Group.OffsetFetchResponseTopics] = []
    for name, ones in _by_topic(fetched, _listed(names, context)):
        topic_id = groups.topics.id_of(name) if by_id else ZERO_UUID
        if topic_id is not None:
            response = Group.OffsetFetchResponseTopics.OffsetFetchResponsePartitions
            responses = await context.mapped(partial(_partition, response), ones)
            topics.append(Group.OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=responses))
    return Group(group_id=requested.group_id, topics=topics + unknown)


async def _committed(
    fetch: Wanted, partitions: list[Partition] | None, context: RequestContext
) -> tuple[ErrorCode, list[FetchedOffset]]:
    """Calls `GroupCoordinator.fetch` in cooperative steps."""
    if partitions is None or len(partitions) <= FETCHED_AT_ONCE:
        return context.groups.fetch(partitions=partitions, **fetch._asdict())
    fetched: list[FetchedOffset] = []
    for first in range(0, len(partitions), FETCHED_AT_ONCE):
        await context.next_step()
        some = partitions[first : first + FETCHED_AT_ONCE]
        error, found = context.groups.fetch(partitions=some, **fetch._asdict())
        if error is not ErrorCode.NONE:
            return error, []
        fetched += found
    return ErrorCode.NONE, fetched


async def _unknown_topic(
    topic_id: bytes, indexes: Sequence[int], context: RequestContext
) -> Group.OffsetFetchResponseTopics:
    response = Group.OffsetFetchResponseTopics.OffsetFetchResponsePartitions

    def partition(index: int) -> Any:
        return _partition(response, FetchedOffset(("", index), None, ErrorCode.UNKNOWN_TOPIC_ID))

    return Group.OffsetFetchResponseTopics(topic_id=topic_id, partitions=await context.mapped(partition, indexes))


def _pair(topic: str, index: int) -> Partition:
    return topic, index


def _listed(names: list[str], context: RequestContext) -> list[str]:
    """The requested topics that the response lists even without partitions, those without the right last."""
    if context.broker.profile.behaviour.old_group_coordinator:
        return []
    return sorted(names, key=lambda name: not context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, name))


def _by_topic(fetched: Sequence[FetchedOffset], named: Iterable[str] = ()) -> Iterable[tuple[str, list[FetchedOffset]]]:
    """Groups offsets by topic, in the order of first occurrence; `named` topics may have none."""
    topics: dict[str, list[FetchedOffset]] = {name: [] for name in named}
    for one in fetched:
        topics.setdefault(one.partition[0], []).append(one)
    return topics.items()


def _partition(response: Callable[..., A], one: FetchedOffset) -> A:
    committed = one.committed or NO_OFFSET
    return response(
        partition_index=one.partition[1],
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=one.error,
    )
