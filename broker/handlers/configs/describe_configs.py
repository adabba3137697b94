"""DescribeConfigs v0-v4: configs of topics, brokers, loggers, client metrics and groups (KIP-133, KIP-226, KIP-412,
KIP-569, KIP-714). Documentation is Ottla's own, for configs that have an effect; the others have none.

ListConfigResources v0-v1: the names of resources with configs (KIP-714, KIP-1142). v0 lists client metrics only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.compiler import Shared
from ....protocol.config_codes import ConfigSource, ConfigType
from ....protocol.errors import ErrorCode
from ....protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ....protocol.messages.configs.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from ...config.docs import documentation
from ...config.named_rules import describe_named
from ...config.resource_types import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from ...config.values import ConfigEntry, Synonym
from ...context import RequestContext, handles
from ...errors import MALFORMED, Refused, code_of, message_of
from ...logs import levels
from ...metadata.topics import METADATA_TOPIC, check_name
from .resources import check_allowed, check_broker_name, kinds

Resource = DescribeConfigsRequest.DescribeConfigsResource
Result = DescribeConfigsResponse.DescribeConfigsResult
Entry = Result.DescribeConfigsResourceResult
Named = ListConfigResourcesResponse.ConfigResource
LISTED = (GROUP, CLIENT_METRICS, BROKER_LOGGER, BROKER, TOPIC)  # in Kafka's order

Described = dict[Hashable, Shared]
RESOURCE_ENTRIES = 100  # entries of a cooperative step for each description
EXPECTED = "broker id, expected"


@handles(DescribeConfigsRequest)
async def describe_configs(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    """Handles each resource on its own; a resource type that the release does not have fails all of them."""
    known = kinds(context.broker.profile.behaviour)
    if any(resource.resource_type not in known for resource in request.resources):
        results = await context.mapped(
            lambda resource: _refused(resource, ErrorCode.INVALID_REQUEST, MALFORMED), request.resources
        )
        return DescribeConfigsResponse(results=results)
    refused: list[Result] = []
    allowed: list[Result] = []
    described: Described = {}
    for resource in request.resources:
        await context.step()
        has_text = context.broker.profile.behaviour.refusal_texts in ("describe", "alter")
        try:
            check_allowed(
                context,
                AclOperation.DESCRIBE_CONFIGS,
                resource.resource_type,
                resource.resource_name,
                has_text=has_text,
            )
        except Refused as refusal:
            refused.append(_refused(resource, refusal.code, refusal.message))
        else:
            allowed.append(_describe(resource, request, described, context))
    return DescribeConfigsResponse(results=allowed + refused)


def _refused(resource: Resource, code: ErrorCode, message: str | None) -> Result:
    return Result(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


def _describe(
    resource: Resource, request: DescribeConfigsRequest, described: Described, context: RequestContext
) -> Result:
    """Describes a resource. Resources with equal configs share one list of them: as in Kafka each is returned as often
    as it is named, and the response may be a thousand times as large as the request.
    """
    keys = set(resource.configuration_keys or ())
    try:
        same = _same(resource, keys, context)
        configs = None if same is None else described.get(same)
        if configs is None:
            context.is_due(RESOURCE_ENTRIES)
            entries = _entries(resource, context, keys)
            configs = Shared(_entry(entry, request, context.api_version) for entry in entries)
            if same is not None:
                described[same] = configs
    except Exception as error:
        message = error.message if isinstance(error, Refused) else message_of(error)
        return _refused(resource, code_of(error), message or _no_text(context))
    return Result(
        error_code=0,
        error_message=_no_text(context),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _same(resource: Resource, keys: set[str], context: RequestContext) -> Hashable:
    """A key that resources with equal configs have in common; None if the topic does not exist."""
    kind, name = resource.resource_type, resource.resource_name
    if kind != TOPIC:
        return kind, name, frozenset(keys)
    topic = context.broker.topics.get(name)
    return None if topic is None else (kind, frozenset(topic.config.overrides.items()), frozenset(keys))


def _no_text(context: RequestContext) -> str | None:
    return "" if context.broker.profile.behaviour.described_text else None


def _entries(resource: Resource, context: RequestContext, keys: set[str]) -> list[ConfigEntry]:
    """The configs of a resource, or those named in `keys`. Raises Refused."""
    broker, kind, name = context.broker, resource.resource_type, resource.resource_name
    if kind == TOPIC:
        if name != METADATA_TOPIC:
            check_name(name, as_kraft=broker.profile.behaviour.topics_as_kraft)
        topic = broker.topics.get(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return [topic.config.describe(key) for key in topic.config.names() if not keys or key in keys]
    if kind == BROKER:
        if not name:
            return _named(broker.config.described_for_all(), keys)
        check_broker_name(
            name, context.node_id, label="Broker", expected=f"{EXPECTED} {context.node_id} or empty string,"
        )
        return [
            _of_node(context.config.describe(key), context.node_id)
            for key in context.config.names()
            if not keys or key in keys
        ]
    if kind == BROKER_LOGGER:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        check_broker_name(name, context.node_id, label="Broker", expected=f"{EXPECTED} {context.node_id}")
        source = ConfigSource.DYNAMIC_BROKER_LOGGER
        return [
            ConfigEntry(logger, level, source, False, False, ConfigType.UNKNOWN, ())
            for logger, level in levels().all().items()
            if not keys or logger in keys
        ]
    if not name:
        what = {CLIENT_METRICS: "Client metrics subscription", GROUP: "Group"}[kind]
        raise Refused(ErrorCode.INVALID_REQUEST, f"{what} name must not be empty")
    return _named(describe_named(kind, broker.named_configs.configs(kind, name), broker.config), keys)


def _named(entries: list[ConfigEntry], keys: set[str]) -> list[ConfigEntry]:
    return [entry for entry in entries if entry.name in keys] if keys else entries


def _of_node(entry: ConfigEntry, node_id: int) -> ConfigEntry:
    """Sets the node's own id, which Kafka always has."""
    if entry.name not in ("node.id", "broker.id"):
        return entry
    synonym = Synonym(entry.name, str(node_id), ConfigSource.STATIC_BROKER)
    # The default of node.id is ours, not Kafka's.
    defaults = [one for one in entry.synonyms if one.source == ConfigSource.DEFAULT and one.name != "node.id"]
    source = ConfigSource.STATIC_BROKER
    return dataclasses.replace(entry, value=str(node_id), source=source, synonyms=(synonym, *defaults))


def _entry(entry: ConfigEntry, request: DescribeConfigsRequest, version: int) -> Entry:
    is_documented = request.include_documentation and entry.type is not ConfigType.UNKNOWN
    described_entry = Entry(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        config_type=entry.type,
        documentation=documentation(entry.name) if is_documented else None,
    )
    if version == 0:
        described_entry.is_default = entry.source == ConfigSource.DEFAULT
    if request.include_synonyms:
        described_entry.synonyms = [
            Entry.DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
    return described_entry


@handles(ListConfigResourcesRequest)
async def list_config_resources(
    request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """Lists the requested resource types, or all if none is requested; a type without names fails the request."""
    context.check_allowed(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
    known = LISTED if context.api_version else (CLIENT_METRICS,)
    requested = set(request.resource_types) or set(known)
    if not requested.issubset(known):
        raise Refused(ErrorCode.UNSUPPORTED_VERSION)
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
