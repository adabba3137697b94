"""The start offsets of share groups (KIP-932): DescribeShareGroupOffsets v0-v1, AlterShareGroupOffsets v0 and
DeleteShareGroupOffsets v0.

Offsets are changed and deleted only in groups without members. With share.version 0 the responses are
UNSUPPORTED_VERSION. Describing requires DESCRIBE on the group and its topics, altering READ on both, deleting DELETE on
the group and READ on its topics.
"""

from __future__ import annotations

from typing import Any

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.limits import wrapped_int64
from ....protocol.messages.share.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from ....protocol.messages.share.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from ....protocol.messages.share.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from ...context import RequestContext, handles
from ...errors import Refused, code_of
from ...groups.share.events import OffsetsReply
from ...groups.share.state import Group, SharePartitionKey
from ...security.authorizer import REFUSAL_TEXTS
from ..groups.membership import durable

NO_TOPIC = bytes(16)
UNSUPPORTED = "The version of API is not supported."
UNKNOWN = "This server does not host this topic-partition."
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED

DescribedGroup = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
DescribedTopic = DescribedGroup.DescribeShareGroupOffsetsResponseTopic
DescribedPartition = DescribedTopic.DescribeShareGroupOffsetsResponsePartition
Altered = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
AlteredPartition = Altered.AlterShareGroupOffsetsResponsePartition
Deleted = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic


@handles(DescribeShareGroupOffsetsRequest)
async def describe_share_group_offsets(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    """Returns the start offset and the lag of share partitions: those that are named, or all of a group."""
    groups: list[DescribedGroup] = []
    for requested in request.groups:
        await context.step()
        group = DescribedGroup(group_id=requested.group_id, topics=[])
        groups.append(group)
        try:
            _check(AclOperation.DESCRIBE, requested.group_id, context)
            error = context.groups.unavailable(requested.group_id)
            if error is not ErrorCode.NONE:
                raise Refused(error)
        except Refused as refused:
            group.error_code = refused.code
            continue
        if requested.topics is None:
            group.topics = await _all_offsets(requested.group_id, context)
            continue
        hidden: list[DescribedTopic] = []
        for topic in requested.topics:
            await context.step(len(topic.partitions))
            if context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic_name):
                group.topics.append(_topic(requested.group_id, topic.topic_name, topic.partitions, context))
            else:
                hidden.append(_hidden(topic))
        group.topics += hidden
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def _all_offsets(group_id: str, context: RequestContext) -> list[DescribedTopic]:
    """The share partitions of a group whose state is initialized, in topics that the client may describe."""
    _, group = context.groups.describe(group_id)
    topics: list[DescribedTopic] = []
    for topic_id, initialized in group.initialization.initialized.items() if isinstance(group, Group) else ():
        await context.step(len(initialized.partitions))
        name = context.groups.topics.name_of(topic_id)
        if name is not None and context.allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            topics.append(_topic(group_id, name, sorted(initialized.partitions), context))
    return topics


def _hidden(topic: Any) -> DescribedTopic:
    partitions = [
        DescribedPartition(
            partition_index=index,
            start_offset=0,
            leader_epoch=0,
            error_code=_DENIED,
            error_message=REFUSAL_TEXTS[_DENIED],
        )
        for index in topic.partitions
    ]
    return DescribedTopic(topic_name=topic.topic_name, topic_id=NO_TOPIC, partitions=partitions)


def _topic(group_id: str, name: str, indexes: list[int], context: RequestContext) -> DescribedTopic:
    topic_id = context.groups.topics.id_of(name)
    if topic_id is None:
        nothing = [DescribedPartition(partition_index=index, start_offset=-1, leader_epoch=0) for index in indexes]
        return DescribedTopic(topic_name=name, topic_id=NO_TOPIC, partitions=nothing)
    partitions = [_partition(SharePartitionKey(group_id, topic_id, index), name, context) for index in indexes]
    return DescribedTopic(topic_name=name, topic_id=topic_id, partitions=partitions)


def _partition(key: SharePartitionKey, topic: str, context: RequestContext) -> DescribedPartition:
    """The stored start offset; the lag is the number of records from it to the high watermark that are not done."""
    described = DescribedPartition(partition_index=key.partition, start_offset=-1, leader_epoch=0)
    try:
        found = context.broker.share_state.summary(key)
    except Refused:
        return described
    if found is None:
        return described
    described.start_offset, described.leader_epoch = found.start_offset, found.leader_epoch
    if found.start_offset != -1 and found.complete_count != -1:
        try:
            log = context.broker.topics.partition(topic, key.partition).log
            # Any start offset is stored.
            described.lag = wrapped_int64(log.high_watermark - found.start_offset - found.complete_count)
        except Exception as error:
            return DescribedPartition(
                partition_index=key.partition, start_offset=0, leader_epoch=0, error_code=code_of(error)
            )
    return described


@handles(AlterShareGroupOffsetsRequest)
async def alter_share_group_offsets(
    request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> AlterShareGroupOffsetsResponse:
    """Moves the start of share partitions to other offsets."""
    id_of = context.groups.topics.id_of
    results: dict[str, list[AlteredPartition]] = {}
    offsets: dict[str, dict[int, int]] = {}
    _check(AclOperation.READ, request.group_id, context)
    for topic in request.topics:
        await context.step(1 + len(topic.partitions))
        if not context.allowed(AclOperation.READ, ResourceType.TOPIC, topic.topic_name):
            error, text = _DENIED, REFUSAL_TEXTS[_DENIED]
        elif id_of(topic.topic_name) is None:
            error, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN
        else:
            offsets[topic.topic_name] = {one.partition_index: one.start_offset for one in topic.partitions}
            continue
        results[topic.topic_name] = [
            AlteredPartition(partition_index=one.partition_index, error_code=error, error_message=text)
            for one in topic.partitions
        ]
    reply = await context.groups.alter_share_offsets(request.group_id, offsets)
    await _check_reply(reply, request.group_id, context)
    for (name, index), (code, text) in reply.results.items():
        done = AlteredPartition(partition_index=index, error_code=code, error_message=text)
        results.setdefault(name, []).append(done)
    return AlterShareGroupOffsetsResponse(
        responses=[
            Altered(topic_name=name, topic_id=id_of(name) or NO_TOPIC, partitions=partitions)
            for name, partitions in results.items()
        ]
    )


@handles(DeleteShareGroupOffsetsRequest)
async def delete_share_group_offsets(
    request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> DeleteShareGroupOffsetsResponse:
    """Removes the state of topics from a group."""
    id_of = context.groups.topics.id_of
    hidden: list[Deleted] = []
    names: list[str] = []
    _check(AclOperation.DELETE, request.group_id, context)
    for topic in request.topics:
        await context.step()
        name = topic.topic_name
        if context.allowed(AclOperation.READ, ResourceType.TOPIC, name):
            names.append(name)
        else:
            denied = REFUSAL_TEXTS[_DENIED]
            hidden.append(Deleted(topic_name=name, topic_id=NO_TOPIC, error_code=_DENIED, error_message=denied))
    reply = await context.groups.delete_share_offsets(request.group_id, tuple(names))
    await _check_reply(reply, request.group_id, context)
    done = [
        Deleted(topic_name=name, topic_id=id_of(name) or NO_TOPIC, error_code=code, error_message=text)
        for (name, _), (code, text) in reply.results.items()
    ]
    return DeleteShareGroupOffsetsResponse(responses=done + hidden)


def _check(operation: AclOperation, group_id: str, context: RequestContext) -> None:
    """Raises Refused unless share groups are enabled and the operation is allowed."""
    if not context.broker.features.share_groups:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, UNSUPPORTED)
    context.check_allowed(operation, ResourceType.GROUP, group_id)


async def _check_reply(reply: OffsetsReply, group_id: str, context: RequestContext) -> None:
    """Returns once the records of a group are durable. Raises Refused for the error of a reply or of the records."""
    reply = await durable(reply, OffsetsReply, group_id, context)
    if reply.error is not ErrorCode.NONE:
        raise Refused(reply.error, reply.message or "")
