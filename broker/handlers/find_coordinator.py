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
    error, message = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST.name
    if request.key_type == GROUP_KEY:
        error, message = ErrorCode.NONE, ErrorCode.NONE.name
    elif request.key_type == TRANSACTION_KEY:
        error, message = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS
    node_id, host, port = -1, "", -1
    if error is ErrorCode.NONE:
        node_id = context.broker.node_id
        host, port = context.broker.endpoint(context.arrival)
    if context.api_version < SEVERAL_KEYS_SINCE:
        # Kafka writes the text of the code here, also of NONE.
        return FindCoordinatorResponse(error_code=error, error_message=message, node_id=node_id, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key,
                node_id=node_id,
                host=host,
                port=port,
                error_code=error,
                error_message=None if error is ErrorCode.NONE else message,
            )
            for key in request.coordinator_keys
        ]
    )
