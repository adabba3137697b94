"""FindCoordinator v0-v6: the broker that coordinates a group, a transactional id or a share partition. KIP-98, KIP-699,
KIP-932.

It is the leader of the partition of `__consumer_offsets`, `__transaction_state` or `__share_group_state` that holds the
key; the key of a share partition (v6) is `group:topic id:partition`. The first request
creates a missing topic. Apache Kafka returns COORDINATOR_NOT_AVAILABLE to that request, and clients retry; with
`coordinator_awaits_topic` off the response names the node at once. In releases without share groups their key type
(2) gets INVALID_REQUEST. Requires DESCRIBE on the group or the transactional id, for a share partition CLUSTER_ACTION.
"""

from __future__ import annotations

from typing import Any

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.api_key import ApiKey
from ....protocol.errors import ErrorCode
from ....protocol.messages.groups.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ...context import RequestContext, handles
from ...errors import MALFORMED, code_of
from ...metadata.topics import GROUP_OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ...replica.assignment import NO_LEADER
from ...security.authorizer import REFUSAL_TEXTS, REFUSALS
from ...share.state_coordinator import parsed_key

GROUP_KEY, TRANSACTION_KEY, SHARE_KEY = 0, 1, 2
SHARE_KEY_SINCE = 6
_RESOURCES = {GROUP_KEY: ResourceType.GROUP, TRANSACTION_KEY: ResourceType.TRANSACTIONAL_ID}
_TOPICS = {
    GROUP_KEY: GROUP_OFFSETS_TOPIC,
    TRANSACTION_KEY: TRANSACTION_STATE_TOPIC,
    SHARE_KEY: SHARE_STATE_TOPIC,
}
UNAVAILABLE = "The coordinator is not available."
SEVERAL_KEYS_SINCE = 4

_OF_ALL_KEYS = (ErrorCode.INVALID_REQUEST, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
"""The errors with which Kafka refuses the whole request."""


@handles(FindCoordinatorRequest)
async def find_coordinator(request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    """Returns the coordinator's endpoint on the listener of the request, or an error with node -1."""
    topic = _topic(request.key_type, context)
    awaits = bool(topic) and context.broker.awaits_topic(topic)  # for all keys, before the first one creates the topic
    if context.api_version < SEVERAL_KEYS_SINCE:
        error, message, found = _found(request.key_type, request.key, awaits, context)
        # Kafka writes the message of the code here, also that of NONE.
        return FindCoordinatorResponse(
            error_code=error, error_message=message or error.name, **_address(found, context)
        )
    coordinators: list[FindCoordinatorResponse.Coordinator] = []
    for key in request.coordinator_keys:
        await context.step()
        error, message, found = _found(request.key_type, key, awaits, context)
        coordinators.append(
            FindCoordinatorResponse.Coordinator(
                key=key,
                error_code=error,
                # Here Kafka has a message only for an error of the whole request.
                error_message=message if error in _OF_ALL_KEYS else "",
                **_address(found, context),
            )
        )
    return FindCoordinatorResponse(coordinators=coordinators)


def _found(key_type: int, key: str, awaits: bool, context: RequestContext) -> tuple[ErrorCode, str, int]:
    """The node that coordinates a key; -1 with an error, and with a message where the code is not specific."""
    resource_type = _RESOURCES.get(key_type)
    if resource_type is not None and not context.allowed(AclOperation.DESCRIBE, resource_type, key):
        refused = REFUSALS[resource_type]
        return refused, REFUSAL_TEXTS[refused], NO_LEADER
    broker = context.broker
    is_alone = not broker.nodes.is_cluster
    topic = _topic(key_type, context)
    is_share = bool(topic) and key_type == SHARE_KEY
    if is_share and not context.allowed(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return refused, REFUSAL_TEXTS[refused], NO_LEADER
    share_key = parsed_key(key) if is_share else None
    if not topic or (is_share and share_key is None):
        return ErrorCode.INVALID_REQUEST, MALFORMED, NO_LEADER
    if awaits:
        _has_topic(topic, context)
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, UNAVAILABLE, NO_LEADER
    needs_topic = key_type != GROUP_KEY or not is_alone
    is_there = not needs_topic or _has_topic(topic, context)
    if share_key is not None:
        has_resigned, index = broker.share_state.has_resigned(share_key), broker.share_state.partition_of(share_key)
    else:
        coordinator = broker.groups if key_type == GROUP_KEY else broker.transactions
        has_resigned, index = coordinator.has_resigned(key), coordinator.partition_of(key)
    is_available = is_there and not has_resigned
    node_id = NO_LEADER
    if is_available:
        node_id = broker.node_id if is_alone else broker.topics.leader(topic, index)
    # After a resignation, as in Kafka while the partition has no leader.
    error = ErrorCode.NONE if node_id != NO_LEADER else ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error is not ErrorCode.NONE:
        return error, UNAVAILABLE, node_id
    if key_type == GROUP_KEY:
        broker.lookups.looked_up(context.connection_info, context.client_id, key)
    return error, "", node_id


def _topic(key_type: int, context: RequestContext) -> str:
    """The topic with the keys of a type; "" for a type that the release or the version does not have."""
    if key_type == SHARE_KEY:
        has_type = context.api_version >= SHARE_KEY_SINCE and ApiKey.SHARE_FETCH in context.broker.apis.served
        return SHARE_STATE_TOPIC if has_type else ""
    return _TOPICS.get(key_type, "")


def _has_topic(name: str, context: RequestContext) -> bool:
    """Creates a missing topic. Returns whether it exists."""
    try:
        if context.broker.topics.get(name) is None:
            topic = context.broker.internal_topic(name, context.now_ms())
            context.mutates(len(topic.partitions), strict_from=None)
    except Exception as error:
        code_of(error)  # logs unexpected errors
        return False
    return True


def _address(node_id: int, context: RequestContext) -> dict[str, Any]:
    """The fields of a response with the address of a node; host "" and port -1 without a coordinator."""
    there = node_id != NO_LEADER
    host, port = context.broker.endpoint(context.connection_info, node_id) if there else ("", -1)
    return {"node_id": node_id, "host": host, "port": port}
