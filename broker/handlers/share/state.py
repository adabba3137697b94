"""The APIs of the share coordinator, between brokers: InitializeShareGroupState v0, ReadShareGroupState v0,
WriteShareGroupState v0-v1, DeleteShareGroupState v0 and ReadShareGroupStateSummary v0-v1 (KIP-932).

A broker stores the state of its share partitions without requests; these serve tools and other brokers. Each partition
has a result of its own. A request without a group id, without topics or with an empty topic gets an empty response.
They require CLUSTER_ACTION.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.share.delete_share_group_state import DeleteShareGroupStateRequest
from ....protocol.messages.share.initialize_share_group_state import InitializeShareGroupStateRequest
from ....protocol.messages.share.parts import StateResult
from ....protocol.messages.share.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from ....protocol.messages.share.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from ....protocol.messages.share.write_share_group_state import WriteShareGroupStateRequest
from ....protocol.schema import response_class
from ...context import Handler, RequestContext, handles
from ...errors import Refused, code_of
from ...groups.share.state import SharePartitionKey
from ...metadata.topics import SHARE_STATE_TOPIC
from ...security.authorizer import REFUSAL_TEXTS
from ...share.records import decoded, encoded
from ...share.state_coordinator import StateCoordinator, StateWrite, Submitted

WRITE_ENTRIES = 20  # entries of a cooperative step for each record
_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

# A function that handles one partition: returns the fields of its result, and the write that it waits for.
Handle = Callable[[StateCoordinator, SharePartitionKey, Any], tuple[dict[str, Any], Submitted | None]]


def _handler(request_class: type, handle: Handle, result_class: Any = StateResult, **empty: Any) -> Handler:
    """Returns the handler of an API: it calls `handle` for each partition, and waits for the writes after the last one.
    `result_class` is that of a topic; `empty` are the fields in the result of a partition with an error.
    """
    response: Any = response_class(request_class)

    @handles(request_class)
    async def handler(request: Any, context: RequestContext) -> Any:
        is_allowed = context.allowed(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
        needs_partitions = request_class is not InitializeShareGroupStateRequest
        if is_allowed and (
            not request.group_id
            or not request.topics
            or (needs_partitions and any(not topic.partitions for topic in request.topics))
        ):
            return response(results=[])
        pending: list[tuple[Any, asyncio.Future[Any]]] = []
        results: list[Any] = []
        for topic in request.topics:
            partitions: list[Any] = []
            for data in topic.partitions:
                await context.step(WRITE_ENTRIES)
                key = SharePartitionKey(request.group_id, topic.topic_id, data.partition)
                result = result_class.PartitionResult(partition=data.partition, **empty)
                try:
                    if not is_allowed:
                        raise Refused(_DENIED, REFUSAL_TEXTS[_DENIED])
                    fields, submitted = _at_coordinator(key, data, handle, context)
                    for name, value in fields.items():
                        setattr(result, name, value)
                    if isinstance(submitted, asyncio.Future):
                        pending.append((result, submitted))
                except Exception as error:
                    _fail(result, error)
                partitions.append(result)
            results.append(result_class(topic_id=topic.topic_id, partitions=partitions))
        for result, submitted in pending:
            try:
                await submitted
            except Exception as error:
                _fail(result, error)
        return response(results=results)

    return handler


def _at_coordinator(
    key: SharePartitionKey, data: Any, handle: Handle, context: RequestContext
) -> tuple[dict[str, Any], Submitted | None]:
    """Raises Refused (NOT_COORDINATOR) for a share partition that another node coordinates."""
    broker = context.broker
    if broker.awaits_topic(SHARE_STATE_TOPIC):
        raise Refused(ErrorCode.NOT_COORDINATOR)
    if broker.nodes.is_cluster:
        leads = broker.topics.led_by(context.node_id, SHARE_STATE_TOPIC)
        if not leads(broker.share_state.partition_of(key)):
            raise Refused(ErrorCode.NOT_COORDINATOR)
    return handle(broker.share_state, key, data)


def _fail(result: Any, error: Exception) -> None:
    result.error_code = code_of(error)
    result.error_message = str(error) if isinstance(error, Refused) else None


def _read(state: StateCoordinator, key: SharePartitionKey, data: Any) -> tuple[dict[str, Any], Submitted | None]:
    found, submitted = state.read(key, data.leader_epoch)
    batches = encoded(found.batches)
    return {"state_epoch": found.state_epoch, "start_offset": found.start_offset, "state_batches": batches}, submitted


def _write(state: StateCoordinator, key: SharePartitionKey, data: Any) -> tuple[dict[str, Any], Submitted | None]:
    batches = decoded(data.state_batches)
    change = StateWrite(data.state_epoch, data.leader_epoch, data.start_offset, data.delivery_complete_count, batches)
    return {}, state.write(key, change)


def _summary(state: StateCoordinator, key: SharePartitionKey, data: Any) -> tuple[dict[str, Any], Submitted | None]:
    found = state.summary(key)
    if found is None:
        return {"state_epoch": 0, "leader_epoch": 0, "start_offset": -1, "delivery_complete_count": -1}, None
    return {
        "state_epoch": found.state_epoch,
        "leader_epoch": found.leader_epoch,
        "start_offset": found.start_offset,
        "delivery_complete_count": found.complete_count,
    }, None


initialize_share_group_state = _handler(
    InitializeShareGroupStateRequest,
    lambda state, key, data: ({}, state.initialize(key, data.state_epoch, data.start_offset)),
)
read_share_group_state = _handler(
    ReadShareGroupStateRequest,
    _read,
    ReadShareGroupStateResponse.ReadStateResult,
    state_epoch=0,
    start_offset=0,
    state_batches=[],
)
write_share_group_state = _handler(WriteShareGroupStateRequest, _write)
delete_share_group_state = _handler(DeleteShareGroupStateRequest, lambda state, key, _: ({}, state.delete(key)))
read_share_group_state_summary = _handler(
    ReadShareGroupStateSummaryRequest,
    _summary,
    ReadShareGroupStateSummaryResponse.ReadStateSummaryResult,
    state_epoch=0,
    leader_epoch=0,
    start_offset=0,
)
