"""FindCoordinator v0-v6: which broker keeps a group or a transaction. It is this one. KIP-98, KIP-699.

The topic that a coordinator of transactions keeps its state in is made when somebody first asks for one. Left out:
share groups. Their key type (2) answers INVALID_REQUEST, as Kafka does without share groups.
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode
from ...protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ..context import RequestContext, handles
from ..errors import code_of
from ..topics import TRANSACTION_STATE_TOPIC

GROUP_KEY, TRANSACTION_KEY = 0, 1
UNAVAILABLE = "The coordinator is not available."
SEVERAL_KEYS_SINCE = 4


@handles(FindCoordinatorRequest)
async def find_coordinator(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    """Host and port are those of the listener that was asked. In an error the node is -1."""
    if context.api_version < SEVERAL_KEYS_SINCE:
        error, message = _refusal(request.key_type, request.key, context)
        node_id, host, port = _address(error, context)
        # Kafka writes the text of the code here, also of NONE.
        return FindCoordinatorResponse(
            error_code=error, error_message=message or error.name, node_id=node_id, host=host, port=port
        )
    coordinators = []
    for key in request.coordinator_keys:
        error, message = _refusal(request.key_type, key, context)
        node_id, host, port = _address(error, context)
        coordinators.append(
            FindCoordinatorResponse.Coordinator(
                key=key,
                node_id=node_id,
                host=host,
                port=port,
                error_code=error,
                error_message=None if error is ErrorCode.NONE else message or error.name,
            )
        )
    return FindCoordinatorResponse(coordinators=coordinators)


def _refusal(key_type: int, key: str, context: RequestContext) -> tuple[ErrorCode, str]:
    """Why nobody coordinates it, and in words where the code does not say it all."""
    broker = context.broker
    if key_type == GROUP_KEY:
        is_available = not broker.groups.has_resigned(key)
    elif key_type == TRANSACTION_KEY:
        is_available = _has_transactions(context) and not broker.transactions.has_resigned(key)
    else:
        return ErrorCode.INVALID_REQUEST, ""
    # One that has resigned: as in Kafka, where the partition has no leader.
    return (ErrorCode.NONE, "") if is_available else (ErrorCode.COORDINATOR_NOT_AVAILABLE, UNAVAILABLE)


def _has_transactions(context: RequestContext) -> bool:
    """Makes the topic if it is not there."""
    try:
        context.broker.internal_topic(TRANSACTION_STATE_TOPIC, context.now_ms())
    except Exception as error:
        code_of(error)  # logs what is a defect
        return False
    return True


def _address(error: ErrorCode, context: RequestContext) -> tuple[int, str, int]:
    """Node, host and port."""
    if error is not ErrorCode.NONE:
        return -1, "", -1
    return context.broker.node_id, *context.broker.endpoint(context.arrival)
