"""Calls of `Admin` on configs: describe and alter, each resource at the responsible broker; and on quotas of users,
client ids and IPs (KIP-546, KIP-612).

Owns the emulation of a change for brokers that can only replace all configs of a resource (before Kafka 2.3): the set
configs are described first, and written again with the change. A concurrent change of another client is lost, as with
Kafka's tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...protocol.messages.configs.alter_client_quotas import AlterClientQuotasRequest
from ...protocol.messages.configs.alter_configs import AlterConfigsRequest
from ...protocol.messages.configs.describe_client_quotas import DescribeClientQuotasRequest
from ...protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ...protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ...protocol.messages.configs.list_config_resources import ListConfigResourcesRequest
from ..net.connection import Connection
from ..net.errors import ClientError, InvalidRequest, UnsupportedVersion
from ..net.metadata import NO_NODE
from .calls import Caller, Results, failure, requested
from .types import (
    QUOTA_ENTITY_TYPES,
    AnyName,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    QuotaEntity,
    ResourceType,
)

Entries = dict[str, ConfigEntry]
Changes = Mapping[str, str | ConfigChange | None]
DESCRIBE_HAS_SOURCES, DESCRIBE_HAS_DOCUMENTATION, LIST_BY_TYPE = 1, 3, 1
EXACT, DEFAULT, ANY = 0, 1, 2  # how a component of a quota's entity is matched
# Kafka 0.11 and 1.0 only return whether a value is a default: the source of others depends on the resource.
_SOURCE_OF_OLD = {ResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC, ResourceType.BROKER: ConfigSource.STATIC_BROKER}


class ConfigCalls(Caller):
    """The calls of `Admin` on configs and quotas."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_s: float | None = None,
    ) -> dict[ConfigResource, Entries | ClientError]:
        """Returns the configs of resources by name, or only those of `names` (Kafka 0.11 and later)."""
        keys = None if names is None else list(names)

        async def send(connection: Connection, left: list[ConfigResource]) -> Results[ConfigResource, Entries]:
            return await _describe(connection, left, keys, include_synonyms, include_documentation)

        return await self._calls.at_any(resources, send, timeout_s, _node_of)

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Changes],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> dict[ConfigResource, ClientError | None]:
        """Changes some configs of resources (Kafka 0.11 and later).

        A text sets a config, None resets it to its default; a `ConfigChange` can also append to a list and remove from
        it.
        """
        wanted = {resource: _changes(change) for resource, change in changes.items()}

        async def send(connection: Connection, left: list[ConfigResource]) -> dict[ConfigResource, ClientError | None]:
            try:
                version = connection.version_of(IncrementalAlterConfigsRequest)
            except UnsupportedVersion:
                return await _replace(connection, {resource: wanted[resource] for resource in left}, validate_only)
            cls = IncrementalAlterConfigsRequest.AlterConfigsResource
            entries = [
                cls(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=[
                        cls.AlterableConfig(name=name, config_operation=change.operation, value=change.value)
                        for name, change in wanted[resource].items()
                    ],
                )
                for resource in left
            ]
            request = IncrementalAlterConfigsRequest(resources=entries, validate_only=validate_only)
            return _altered(await connection.request(request, version))

        return await self._calls.at_any(wanted, send, timeout_s, _node_of)

    async def list_config_resources(
        self, types: Iterable[ResourceType] | None = None, *, timeout_s: float | None = None
    ) -> list[ConfigResource]:
        """Returns the resources that may have configs, sorted (Kafka 4.1; CLIENT_METRICS alone 3.7).

        All types by default. Raises ClientError.
        """
        wanted = [] if types is None else list(types)

        async def send(connection: Connection) -> list[ConfigResource]:
            version = connection.version_of(ListConfigResourcesRequest)
            request = ListConfigResourcesRequest()
            if version >= LIST_BY_TYPE:
                request.resource_types = [int(kind) for kind in wanted]
            elif wanted != [ResourceType.CLIENT_METRICS]:
                raise UnsupportedVersion("the broker (before Kafka 4.1) lists resources of client metrics only")
            response = await requested(connection, request, version)
            return sorted(
                ConfigResource(ResourceType(result.resource_type), result.resource_name)
                for result in response.config_resources
            )

        return await self._calls.one(send, timeout_s)

    async def describe_client_quotas(
        self,
        wanted: Mapping[str, str | AnyName | None] | None = None,
        *,
        strict: bool = False,
        timeout_s: float | None = None,
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Returns the quotas of matching entities, by default of all (Kafka 2.6 and later).

        `wanted` has a name for each type that an entity must have: None for the default, ANY_NAME for all. With
        `strict` an entity must have no other types. Raises ClientError.
        """
        components = [
            DescribeClientQuotasRequest.ComponentData(
                entity_type=kind,
                match_type=ANY if isinstance(name, AnyName) else DEFAULT if name is None else EXACT,
                match=name if isinstance(name, str) else None,
            )
            for kind, name in (wanted or {}).items()
        ]

        request = DescribeClientQuotasRequest(components=components, strict=strict)
        response = await self._calls.one(lambda connection: requested(connection, request), timeout_s)
        return {
            quota_entity({of.entity_type: of.entity_name for of in result.entity}): {
                one.key: one.value for one in result.values
            }
            for result in response.entries or ()
        }

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> dict[QuotaEntity, ClientError | None]:
        """Sets quotas of entities, or removes those with the value None (Kafka 2.6 and later)."""
        wanted = {quota_entity(dict(entity)): change for entity, change in changes.items()}
        cls = AlterClientQuotasRequest.EntryData

        async def send(connection: Connection, left: list[QuotaEntity]) -> dict[QuotaEntity, ClientError | None]:
            entries = [
                cls(
                    entity=[cls.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    ops=[
                        cls.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                        for key, value in wanted[entity].items()
                    ],
                )
                for entity in left
            ]
            response = await connection.request(AlterClientQuotasRequest(entries=entries, validate_only=validate_only))
            return {
                quota_entity({of.entity_type: of.entity_name for of in result.entity}): failure(result)
                for result in response.entries
            }

        return await self._calls.at_any(wanted, send, timeout_s)


def quota_entity(names: Mapping[str, str | None]) -> QuotaEntity:
    """Returns the entity of names by type, with the types in Kafka's order; unknown types are last."""
    known = [kind for kind in QUOTA_ENTITY_TYPES if kind in names]
    return tuple((kind, names[kind]) for kind in [*known, *sorted(names.keys() - set(known))])


def _node_of(resource: ConfigResource) -> int:
    """Returns the node id of the broker that is responsible for a resource, or NO_NODE for any."""
    if resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name.isdecimal():
        return int(resource.name)
    return NO_NODE


def _changes(changes: Changes) -> dict[str, ConfigChange]:
    return {
        name: change
        if isinstance(change, ConfigChange)
        else ConfigChange(ConfigOperation.DELETE if change is None else ConfigOperation.SET, change)
        for name, change in changes.items()
    }


def _altered(response: Any) -> dict[ConfigResource, ClientError | None]:
    return {
        ConfigResource(ResourceType(result.resource_type), result.resource_name): failure(result)
        for result in response.responses
    }


async def _describe(
    connection: Connection, resources: Iterable[ConfigResource], names: list[str] | None, synonyms: bool, more: bool
) -> dict[ConfigResource, Entries | ClientError]:
    version = connection.version_of(DescribeConfigsRequest)
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=resource.type, resource_name=resource.name, configuration_keys=names
            )
            for resource in resources
        ],
        include_synonyms=synonyms and version >= DESCRIBE_HAS_SOURCES,
        include_documentation=more and version >= DESCRIBE_HAS_DOCUMENTATION,
    )
    outcomes: dict[ConfigResource, Entries | ClientError] = {}
    for result in (await connection.request(request, version)).results:
        resource = ConfigResource(ResourceType(result.resource_type), result.resource_name)
        outcomes[resource] = failure(result) or {
            config.name: _entry(config, resource.type, version) for config in result.configs
        }
    return outcomes


def _entry(
    result: DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult,
    kind: ResourceType,
    version: int,
) -> ConfigEntry:
    source = ConfigSource(max(0, result.config_source))
    if version < DESCRIBE_HAS_SOURCES:
        source = ConfigSource.DEFAULT if result.is_default else _SOURCE_OF_OLD.get(kind, ConfigSource.UNKNOWN)
    return ConfigEntry(
        result.name,
        result.value,
        source,
        result.read_only,
        result.is_sensitive,
        ConfigType(result.config_type),
        tuple(ConfigSynonym(s.name, s.value, ConfigSource(s.source)) for s in result.synonyms),
        result.documentation or None,
    )


# All or nothing, before Kafka 2.3


async def _replace(
    connection: Connection, wanted: Mapping[ConfigResource, Mapping[str, ConfigChange]], validate_only: bool
) -> dict[ConfigResource, ClientError | None]:
    outcomes: dict[ConfigResource, ClientError | None] = {}
    cls = AlterConfigsRequest.AlterConfigsResource
    alterable: list[AlterConfigsRequest.AlterConfigsResource] = []
    for resource, entries in (await _describe(connection, wanted, None, False, False)).items():
        try:
            if isinstance(entries, ClientError):
                raise entries
            values = _changed(resource, entries, wanted.get(resource, {}))
        except ClientError as error:
            outcomes[resource] = error
            continue
        configs = [cls.AlterableConfig(name=name, value=value) for name, value in values.items()]
        alterable.append(cls(resource_type=resource.type, resource_name=resource.name, configs=configs))
    if alterable:
        request = AlterConfigsRequest(resources=alterable, validate_only=validate_only)
        outcomes |= _altered(await connection.request(request))
    return outcomes


def _level_of(resource: ConfigResource) -> ConfigSource:
    """Returns the source of values that are set for a resource."""
    if resource.type == ResourceType.TOPIC:
        return ConfigSource.DYNAMIC_TOPIC
    return ConfigSource.DYNAMIC_BROKER if resource.name else ConfigSource.DYNAMIC_DEFAULT_BROKER


def _changed(resource: ConfigResource, entries: Entries, changes: Mapping[str, ConfigChange]) -> dict[str, str | None]:
    """Returns all configs to set. Raises InvalidRequest if the value of a sensitive config would be lost."""
    level = _level_of(resource)
    values: dict[str, str | None] = {}
    for name, entry in entries.items():
        if entry.source == level and name not in changes:
            if entry.is_sensitive:
                raise InvalidRequest(
                    f"{name} is sensitive and set: a change at a broker before Kafka 2.3 would delete it"
                )
            values[name] = entry.value
    for name, change in changes.items():
        if change.operation == ConfigOperation.SET:
            values[name] = change.value
        elif change.operation != ConfigOperation.DELETE:
            entry = entries.get(name)
            items = [item.strip() for item in (entry.value or "" if entry else "").split(",") if item.strip()]
            given = [item.strip() for item in (change.value or "").split(",") if item.strip()]
            if change.operation == ConfigOperation.APPEND:
                items += [item for item in given if item not in items]
            else:
                items = [item for item in items if item not in given]
            values[name] = ",".join(items)
    return values
