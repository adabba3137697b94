"""The admin's calls about configs: described and changed, each resource at the broker that has it.

Owns the change where a broker can only replace all configs of a resource (before Kafka 2.3): what is set there is read
first, and written again with the change. What another admin changes in between is lost then, as with Kafka's tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...protocol.messages.configs.alter_configs import AlterConfigsRequest
from ...protocol.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ...protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ...protocol.messages.configs.list_config_resources import ListConfigResourcesRequest
from ..net.connection import Connection
from ..net.errors import ClientError, InvalidRequest, UnsupportedVersion
from ..net.metadata import NO_NODE
from .calls import Calls, failure, of_one
from .types import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ResourceType,
)

Entries = dict[str, ConfigEntry]
Changes = Mapping[str, str | ConfigChange | None]
DESCRIBE_TELLS_SOURCES, DESCRIBE_TELLS_MORE, LIST_BY_TYPE = 1, 3, 1
# What a broker of 0.11 or 1.0 calls not default is set where such a resource is set.
_SOURCE_OF_OLD = {ResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC, ResourceType.BROKER: ConfigSource.STATIC_BROKER}


class ConfigCalls:
    """A part of `Admin`."""

    _calls: Calls

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_s: float | None = None,
    ) -> dict[ConfigResource, Entries | ClientError]:
        """The configs of resources by name, or those of `names` (Kafka 0.11 and later)."""
        keys = None if names is None else list(names)

        async def ask(
            connection: Connection, left: list[ConfigResource]
        ) -> dict[ConfigResource, Entries | ClientError]:
            return await _describe(connection, left, keys, include_synonyms, include_documentation)

        return await self._calls.at_any(resources, ask, timeout_s, _node_of)

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Changes],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> dict[ConfigResource, ClientError | None]:
        """Changes configs and leaves the others as they are (Kafka 0.11 and later).

        A text sets a config, None brings it back to its default; `ConfigChange` can also append to a list and take
        from it.
        """
        wanted = {resource: _changes(change) for resource, change in changes.items()}

        async def ask(connection: Connection, left: list[ConfigResource]) -> dict[ConfigResource, ClientError | None]:
            try:
                version = connection.version_of(IncrementalAlterConfigsRequest)
            except UnsupportedVersion:
                return await _replace(connection, {resource: wanted[resource] for resource in left}, validate_only)
            cls = IncrementalAlterConfigsRequest.AlterConfigsResource
            asked = [
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
            request = IncrementalAlterConfigsRequest(resources=asked, validate_only=validate_only)
            return _altered(await connection.request(request, version))

        return await self._calls.at_any(wanted, ask, timeout_s, _node_of)

    async def list_config_resources(
        self, types: Iterable[ResourceType] | None = None, *, timeout_s: float | None = None
    ) -> list[ConfigResource]:
        """The resources that have, or may have, configs, in order (Kafka 4.1; of CLIENT_METRICS alone 3.7).

        All types by default. Raises ClientError.
        """
        wanted = [] if types is None else list(types)

        async def ask(connection: Connection, keys: list[str]) -> dict[str, list[ConfigResource] | ClientError]:
            version = connection.version_of(ListConfigResourcesRequest)
            request = ListConfigResourcesRequest()
            if version >= LIST_BY_TYPE:
                request.resource_types = [int(kind) for kind in wanted]
            elif wanted != [ResourceType.CLIENT_METRICS]:
                raise UnsupportedVersion("the broker lists resources of client metrics alone: it is older than 4.1")
            response = await connection.request(request, version)
            found = [
                ConfigResource(ResourceType(told.resource_type), told.resource_name)
                for told in response.config_resources
            ]
            return dict.fromkeys(keys, failure(response.error_code) or sorted(found))

        return of_one(await self._calls.at_any(["resources"], ask, timeout_s))


def _node_of(resource: ConfigResource) -> int:
    """The broker that a resource belongs to."""
    if resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name.isdecimal():
        return int(resource.name)
    return NO_NODE


def _changes(changes: Changes) -> dict[str, ConfigChange]:
    found: dict[str, ConfigChange] = {}
    for name, change in changes.items():
        if not isinstance(change, ConfigChange):
            operation = ConfigOperation.DELETE if change is None else ConfigOperation.SET
            change = ConfigChange(operation, change)
        found[name] = change
    return found


def _altered(response: Any) -> dict[ConfigResource, ClientError | None]:
    return {
        ConfigResource(ResourceType(told.resource_type), told.resource_name): failure(
            told.error_code, told.error_message
        )
        for told in response.responses
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
        include_synonyms=synonyms and version >= DESCRIBE_TELLS_SOURCES,
        include_documentation=more and version >= DESCRIBE_TELLS_MORE,
    )
    answers: dict[ConfigResource, Entries | ClientError] = {}
    for told in (await connection.request(request, version)).results:
        resource = ConfigResource(ResourceType(told.resource_type), told.resource_name)
        answers[resource] = failure(told.error_code, told.error_message) or {
            config.name: _entry(config, resource.type, version) for config in told.configs
        }
    return answers


def _entry(
    told: DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult, kind: ResourceType, version: int
) -> ConfigEntry:
    source = ConfigSource(max(0, told.config_source))
    if version < DESCRIBE_TELLS_SOURCES:
        source = ConfigSource.DEFAULT if told.is_default else _SOURCE_OF_OLD.get(kind, ConfigSource.UNKNOWN)
    return ConfigEntry(
        told.name,
        told.value,
        source,
        told.read_only,
        told.is_sensitive,
        ConfigType(told.config_type),
        tuple(ConfigSynonym(s.name, s.value, ConfigSource(s.source)) for s in told.synonyms),
        told.documentation or None,
    )


# All or nothing, before Kafka 2.3


async def _replace(
    connection: Connection, wanted: Mapping[ConfigResource, Mapping[str, ConfigChange]], validate_only: bool
) -> dict[ConfigResource, ClientError | None]:
    answers: dict[ConfigResource, ClientError | None] = {}
    cls = AlterConfigsRequest.AlterConfigsResource
    asked: list[AlterConfigsRequest.AlterConfigsResource] = []
    for resource, entries in (await _describe(connection, wanted, None, False, False)).items():
        try:
            if isinstance(entries, ClientError):
                raise entries
            values = _changed(resource, entries, wanted.get(resource, {}))
        except ClientError as error:
            answers[resource] = error
            continue
        configs = [cls.AlterableConfig(name=name, value=value) for name, value in values.items()]
        asked.append(cls(resource_type=resource.type, resource_name=resource.name, configs=configs))
    if asked:
        request = AlterConfigsRequest(resources=asked, validate_only=validate_only)
        answers |= _altered(await connection.request(request))
    return answers


def _level_of(resource: ConfigResource) -> ConfigSource:
    """Where values stand that were set for a resource."""
    if resource.type == ResourceType.TOPIC:
        return ConfigSource.DYNAMIC_TOPIC
    return ConfigSource.DYNAMIC_BROKER if resource.name else ConfigSource.DYNAMIC_DEFAULT_BROKER


def _changed(resource: ConfigResource, entries: Entries, changes: Mapping[str, ConfigChange]) -> dict[str, str | None]:
    """All that is to be set afterwards. Raises InvalidRequest where a secret that is set would be lost."""
    level = _level_of(resource)
    values: dict[str, str | None] = {}
    for name, entry in entries.items():
        if entry.source == level and name not in changes:
            if entry.is_sensitive:
                raise InvalidRequest(f"{name} is set and secret: a broker before 2.3 cannot keep it in a change")
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
