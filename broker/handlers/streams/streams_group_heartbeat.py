"""StreamsGroupHeartbeat v0-v1: joins, keeps and leaves a streams group. KIP-1071, KIP-1331.

v1 may report missing client tags, and has the acceptable recovery lag. Where the protocol is not enabled the response
is UNSUPPORTED_VERSION. Requires READ on the group, DESCRIBE on each topic of a topology, and CREATE on the internal
topics that do not exist: without it they are named in a status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ....protocol.errors import ErrorCode
from ....protocol.messages.streams.parts import Endpoint, KeyValue, TaskIds, TaskOffset
from ....protocol.messages.streams.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TopicPartition,
)
from ...context import RequestContext, handles
from ...errors import Refused
from ...groups.common_events import MemberLeave
from ...groups.common_state import JOIN, STATIC_LEAVE
from ...groups.streams.endpoints import TopicPartitions
from ...groups.streams.events import Heartbeat, HeartbeatReply, StatusText
from ...groups.streams.records import subtopology_of, task_ids
from ...groups.streams.state import Endpoint as MemberEndpoint
from ...groups.streams.topology import check as check_topology
from ...groups.streams.values import Status, Tasks, TasksTuple, Topology
from ...metadata.topics import check_name, is_internal
from ..groups.membership import check_described, check_texts, member_heartbeat
from .streams_group_describe import topics_of

SentTopology = StreamsGroupHeartbeatRequest.Topology
NAMED_MAX = 3
"""Topics whose failed creation a status names; of others it has the number."""
ALL_TASKS = "If one task-type is non-null, all must be non-null."


@handles(StreamsGroupHeartbeatRequest)
async def streams_group_heartbeat(
    request: StreamsGroupHeartbeatRequest, context: RequestContext
) -> StreamsGroupHeartbeatResponse:
    """Returns the epoch of the member, its tasks if they have changed, and statuses of the group."""
    enabled = context.broker.serves_streams_groups
    reply = await member_heartbeat(
        "streams", request, context, read=_read, is_enabled=enabled, reply_class=HeartbeatReply
    )
    if reply.to_create:
        reply = _created(reply, context)
    return _response(reply)


# --- checks ----------------------------------------------------------------------------------------------------------


async def _check_topics(names: list[str], context: RequestContext) -> None:
    """Checks the topics of a topology. Raises Refused."""
    prohibited = [name for name in names if is_internal(name, context.config)]
    if prohibited:
        text = f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited."
        raise Refused(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)
    invalid = [name for name in names if not _is_valid(name)]
    if invalid:
        text = f"Topic names {','.join(invalid)} are not valid topic names."
        raise Refused(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)
    await check_described(names, context)


def _is_valid(name: str) -> bool:
    try:
        check_name(name)
    except Refused:
        return False
    return True


def _check_supported(request: StreamsGroupHeartbeatRequest, context: RequestContext) -> None:
    """Checks that a request uses no more than the release supports. Raises Refused."""
    problem = None
    if not context.groups.settings.streams.has_static_members:
        if request.instance_id is not None:
            problem = "Static membership is not yet supported."
        elif request.task_offsets is not None:
            problem = "TaskOffsets are not supported yet."
        elif request.task_end_offsets is not None:
            problem = "TaskEndOffsets are not supported yet."
        elif request.warmup_tasks:
            problem = "WarmupTasks are not supported yet."
    parts = request.topology.subtopologies if request.topology is not None else ()
    if problem is None and any(part.source_topic_regex for part in parts):
        problem = "Regular expressions for source topics are not supported yet."
    if problem is not None:
        raise Refused(ErrorCode.INVALID_REQUEST, problem)


def _check(request: StreamsGroupHeartbeatRequest) -> None:
    """Checks the request by itself, in Kafka's order. Raises Refused."""
    check_texts(
        ("MemberId", request.member_id),
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    )
    problem = None
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    epoch = request.member_epoch
    if epoch == JOIN:
        problem = _problem_of_join(request)
    elif epoch == STATIC_LEAVE and request.instance_id is None:
        problem = "InstanceId can't be null."
    elif epoch < STATIC_LEAVE:
        problem = f"MemberEpoch is {epoch}, but must be greater than or equal to -2."
    if problem is None and any(one is not None for one in tasks) and any(one is None for one in tasks):
        problem = ALL_TASKS
    if problem is None and epoch != JOIN and request.topology is not None:
        problem = "Topology can only be provided when (re-)joining."
    if problem is not None:
        raise Refused(ErrorCode.INVALID_REQUEST, problem)


def _problem_of_join(request: StreamsGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    for name, tasks in (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    ):
        if tasks is None or tasks:
            return f"{name} must be empty when (re-)joining."
    if request.topology is None:
        return "Topology must be non-null when (re-)joining."
    check_topology(_topology(request.topology))
    return None


# --- reading ---------------------------------------------------------------------------------------------------------


async def _read(request: StreamsGroupHeartbeatRequest, context: RequestContext) -> Heartbeat | MemberLeave:
    if request.topology is not None:
        await _check_topics(topics_of(request.topology.subtopologies), context)
    _check_supported(request, context)
    _check(request)
    if request.member_epoch < JOIN:
        return MemberLeave(request.member_id, request.member_epoch, request.instance_id, request.shutdown_application)
    owned = None
    if request.active_tasks is not None and request.standby_tasks is not None and request.warmup_tasks is not None:
        owned = TasksTuple(_tasks(request.active_tasks), _tasks(request.standby_tasks), _tasks(request.warmup_tasks))
    endpoint = request.user_endpoint
    return Heartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        endpoint_epoch=request.endpoint_information_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topology=None if request.topology is None else _topology(request.topology),
        owned=owned,
        process_id=request.process_id,
        endpoint=None if endpoint is None else MemberEndpoint(endpoint.host, endpoint.port),
        tags=None if request.client_tags is None else _unique(request.client_tags),
        offsets=None if request.task_offsets is None else _offsets(request.task_offsets),
        end_offsets=None if request.task_end_offsets is None else _offsets(request.task_end_offsets),
        shuts_down=request.shutdown_application,
        client_id=context.client_id,
        client_host=f"/{context.client_host}",  # in the format of Java, which every Kafka tool shows
        api_version=context.api_version,
    )


def _topology(sent: SentTopology) -> Topology:
    """Returns the topology. Raises Refused with UNKNOWN_SERVER_ERROR, as Kafka does, for a negative epoch and for ids
    that are not unique.
    """
    parts = {part.subtopology_id: subtopology_of(part) for part in sent.subtopologies}
    if sent.epoch < 0 or len(parts) < len(sent.subtopologies):
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    return Topology(sent.epoch, parts)


def _tasks(listed: Iterable[TaskIds]) -> Tasks:
    found: dict[str, frozenset[int]] = {}
    for one in listed:
        found[one.subtopology_id] = found.get(one.subtopology_id, frozenset()) | frozenset(one.partitions)
    return found


def _unique(pairs: list[KeyValue]) -> Mapping[str, str]:
    found = {pair.key: pair.value for pair in pairs}
    if len(found) < len(pairs):
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    return found


def _offsets(listed: Iterable[TaskOffset]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for one in listed:
        of_part = found.setdefault(one.subtopology_id, {})
        if one.partition in of_part:
            text = f"Task offsets contain a duplicate entry for subtopology {one.subtopology_id} and partition"
            raise Refused(ErrorCode.INVALID_REQUEST, f"{text} {one.partition}.")
        of_part[one.partition] = one.offset
    return found


# --- internal topics -------------------------------------------------------------------------------------------------


def _created(reply: HeartbeatReply, context: RequestContext) -> HeartbeatReply:
    """Begins to create the internal topics, and returns the response with what went wrong before."""
    names = [topic.name for topic in reply.to_create]
    denied = [name for name in names if not context.may_create(name)]
    if denied:
        return _with_detail(reply, f"Unauthorized to CREATE on topics {', '.join(denied)}.")
    topics = context.broker.internal_topics
    errors = topics.errors(names)
    topics.begin(reply.to_create, lasting_ms=2 * reply.heartbeat_interval_ms)
    if not errors:
        return reply
    shown = ", ".join(f"{name} ({text})" for name, text in list(errors.items())[:NAMED_MAX])
    more = f" and {len(errors) - NAMED_MAX} more" if len(errors) > NAMED_MAX else ""
    return _with_detail(reply, f"Creation failed: {shown}{more}.")


def _with_detail(reply: HeartbeatReply, text: str) -> HeartbeatReply:
    """Adds a text to the status of missing internal topics."""
    statuses = [
        status._replace(detail=f"{status.detail}; {text}") if status.code == Status.MISSING_INTERNAL_TOPICS else status
        for status in reply.statuses
    ]
    return replace(reply, statuses=tuple(statuses))


# --- the response ----------------------------------------------------------------------------------------------------


def _response(reply: HeartbeatReply) -> StreamsGroupHeartbeatResponse:
    active, standby, warmup = (None, None, None) if reply.tasks is None else map(task_ids, reply.tasks)
    return StreamsGroupHeartbeatResponse(
        error_code=reply.error,
        error_message=reply.message,
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        task_offset_interval_ms=reply.task_offset_interval_ms,
        acceptable_recovery_lag=reply.acceptable_recovery_lag,
        status=[_status(status) for status in reply.statuses],
        active_tasks=active,
        standby_tasks=standby,
        warmup_tasks=warmup,
        endpoint_information_epoch=reply.endpoint_epoch,
        partitions_by_user_endpoint=None
        if reply.endpoints is None
        else [
            StreamsGroupHeartbeatResponse.EndpointToPartitions(
                user_endpoint=Endpoint(host=endpoint.host, port=endpoint.port),
                active_partitions=_partitions(found.active),
                standby_partitions=_partitions(found.standby),
            )
            for endpoint, found in reply.endpoints
        ],
    )


def _status(status: StatusText) -> StreamsGroupHeartbeatResponse.Status:
    return StreamsGroupHeartbeatResponse.Status(status_code=status.code, status_detail=status.detail)


def _partitions(found: TopicPartitions) -> list[TopicPartition]:
    return [TopicPartition(topic=topic, partitions=list(partitions)) for topic, partitions in found]
