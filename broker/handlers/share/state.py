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
from ....protocol.messages.share.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)
from ....protocol.messages.share.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from ....protocol.messages.share.parts import StateResult
from ....protocol.messages.share.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from ....protocol.messages.share.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from ....protocol.messages.share.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)
from ...context import RequestContext, handles
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


@handles(InitializeShareGroupStateRequest)
async def initialize_share_group_state(
    request: InitializeShareGroupStateRequest, context: RequestContext
) -> InitializeShareGroupStateResponse:
    """Begins the state of share partitions."""
    return await _handled(request, InitializeShareGroupStateResponse, _initialize, context)


@handles(ReadShareGroupStateRequest)
async def read_share_group_state(
    request: ReadShareGroupStateRequest, context: RequestContext
) -> ReadShareGroupStateResponse:
    """Returns the state of share partitions, and raises their leader epochs."""
    return await _handled(request, ReadShareGroupStateResponse, _read, context)


@handles(WriteShareGroupStateRequest)
async def write_share_group_state(
    request: WriteShareGroupStateRequest, context: RequestContext
) -> WriteShareGroupStateResponse:
    """Stores changes of share partitions."""
    return await _handled(request, WriteShareGroupStateResponse, _write, context)


@handles(DeleteShareGroupStateRequest)
async def delete_share_group_state(
    request: DeleteShareGroupStateRequest, context: RequestContext
) -> DeleteShareGroupStateResponse:
    """Removes the state of share partitions."""
    return await _handled(request, DeleteShareGroupStateResponse, _delete, context)


@handles(ReadShareGroupStateSummaryRequest)
async def read_share_group_state_summary(
    request: ReadShareGroupStateSummaryRequest, context: RequestContext
) -> ReadShareGroupStateSummaryResponse:
    """Returns the epochs and start offsets of share partitions."""
    return await _handled(request, ReadShareGroupStateSummaryResponse, _summary, context)


def _initialize(state: StateCoordinator, key: SharePartitionKey, data: Any) -> tuple[dict[str, Any], Submitted | None]:
    return {}, state.initialize(key, data.state_epoch, data.start_offset)


def _read(state: StateCoordinator, key: SharePartitionKey, data: Any) -> tuple[dict[str, Any], Submitted | None]:
    found, submitted = state.read(key, data.leader_epoch)
    batches = encoded(found.batches)
    return {"state_epoch": found.state_epoch, "start_offset": found.start_offset, "state_batches": batches}, submitted


def _write(state: StateCoordinator, key: SharePartitionKey, data: Any) -> tuple[dict[str, Any], Submitted | None]:
    batches = decoded(data.state_batches)
    change = StateWrite(data.state_epoch, data.leader_epoch, data.start_offset, data.delivery_complete_count, batches)
    return {}, state.write(key, change)


def _delete(state: StateCoordinator, key: SharePartitionKey, data: Any) -> tuple[dict[str, Any], Submitted | None]:
    return {}, state.delete(key)


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


_RESULTS: dict[type, type] = {
    ReadShareGroupStateResponse: ReadShareGroupStateResponse.ReadStateResult,
    ReadShareGroupStateSummaryResponse: ReadShareGroupStateSummaryResponse.ReadStateSummaryResult,
}
_EMPTY: dict[type, dict[str, Any]] = {
    ReadShareGroupStateResponse: {"state_epoch": 0, "start_offset": 0, "state_batches": []},
    ReadShareGroupStateSummaryResponse: {"state_epoch": 0, "leader_epoch": 0, "start_offset": 0},
}


async def _handled(request: Any, response: Any, handle: Handle, context: RequestContext) -> Any:
    """Handles each partition of a request, and waits for the writes after the last one."""
    made: Any = _RESULTS.get(response, StateResult)
    is_allowed = context.allowed(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    needs_partitions = response is not InitializeShareGroupStateResponse
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
            result = made.PartitionResult(partition=data.partition, **_EMPTY.get(response, {}))
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
        results.append(made(topic_id=topic.topic_id, partitions=partitions))
    for result, submitted in pending:
        try:
            await submitted
        except Exception as error:
            _fail(result, error)
    return response(results=results)


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
