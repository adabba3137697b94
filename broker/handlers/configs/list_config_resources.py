"""ListConfigResources v0-v1: the names of resources with configs (KIP-714, KIP-1142). v0 lists client metrics only."""

from __future__ import annotations

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.configs.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from ...config.resource_types import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from ...context import RequestContext, handles
from ...errors import Refused

Named = ListConfigResourcesResponse.ConfigResource
LISTED = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)  # in Kafka's order


@handles(ListConfigResourcesRequest)
async def list_config_resources(
    request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """Lists the requested resource types, or all if none is requested; a type without names fails the request."""
    try:
        context.check_allowed(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
    except Refused as refused:
        return ListConfigResourcesResponse(error_code=refused.code, config_resources=[])
    known = LISTED if context.api_version else (CLIENT_METRICS,)
    requested = set(request.resource_types) or set(known)
    if not requested.issubset(known):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    found = [
        Named(resource_name=name, resource_type=kind)
        for kind in known
        if kind in requested
        for name in _names(kind, context)
    ]
    return ListConfigResourcesResponse(error_code=0, config_resources=found)


def _names(kind: int, context: RequestContext) -> list[str]:
    broker = context.broker
    if kind == TOPIC:
        return [topic.name for topic in broker.topics]
    if kind in (BROKER, BROKER_LOGGER):
        return [str(node_id) for node_id in broker.nodes.ids if node_id not in broker.nodes.stopped]
    return list(broker.named_configs.of(kind))
