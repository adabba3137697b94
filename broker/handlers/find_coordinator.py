"""FindCoordinator v0-v6: which broker keeps a group or a transaction. It is this one. KIP-98, KIP-699.

Left out: share groups. Their key type (2) answers INVALID_REQUEST, as Kafka does without share groups. Transactions:
their coordinator is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one code that every client takes for final
here (librdkafka tries again on UNSUPPORTED_VERSION until its time is over), and a message that says why.
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode
from ...protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ..context import RequestContext, handles

GROUP_KEY, TRANSACTION_KEY = 0, 1
NO_TRANSACTIONS = "This broker does not serve transactions yet."
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
    if key_type == TRANSACTION_KEY:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS
    if key_type != GROUP_KEY:
        return ErrorCode.INVALID_REQUEST, ""
    if context.broker.groups.has_resigned(key):  # as in Kafka, where the partition has no leader
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available."
    return ErrorCode.NONE, ""


def _address(error: ErrorCode, context: RequestContext) -> tuple[int, str, int]:
    """Node, host and port."""
    if error is not ErrorCode.NONE:
        return -1, "", -1
    return context.broker.node_id, *context.broker.endpoint(context.arrival)
