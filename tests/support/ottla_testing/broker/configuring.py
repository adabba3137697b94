"""Config requests over the wire, each for one resource, and their results."""

from __future__ import annotations

from typing import Any

from ottla.protocol.messages.configs.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.configs.describe_configs import DescribeConfigsRequest
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.configs.list_config_resources import ListConfigResourcesRequest

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)

Change = tuple[str, int, str | None]


def changing(*resources: tuple[int, str, list[Change]], dry: bool = False) -> IncrementalAlterConfigsRequest:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    return IncrementalAlterConfigsRequest(
        validate_only=dry,
        resources=[
            resource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    resource.AlterableConfig(name=key, config_operation=operation, value=value)
                    for key, operation, value in changes
                ],
            )
            for kind, name, changes in resources
        ],
    )


def replacing(kind: int, name: str, configs: dict[str, str | None], *, dry: bool = False) -> AlterConfigsRequest:
    resource = AlterConfigsRequest.AlterConfigsResource
    made = [resource.AlterableConfig(name=key, value=value) for key, value in configs.items()]
    return AlterConfigsRequest(
        validate_only=dry, resources=[resource(resource_type=kind, resource_name=name, configs=made)]
    )


async def change(client: Any, kind: int, name: str, *changes: Change, dry: bool = False) -> tuple[int, str | None]:
    """Returns (code, message) of an IncrementalAlterConfigs."""
    (response,) = (await client.call(changing((kind, name, list(changes)), dry=dry), 1)).responses
    return response.error_code, response.error_message


async def replace(client: Any, kind: int, name: str, **configs: str | None) -> tuple[int, str | None]:
    """Returns (code, message) of an AlterConfigs; dots in names are underscores."""
    made = {key.replace("_", "."): value for key, value in configs.items()}
    (response,) = (await client.call(replacing(kind, name, made), 2)).responses
    return response.error_code, response.error_message


async def describe(client: Any, kind: int, name: str, *keys: str, version: int = 4) -> Any:
    """Returns the result of a DescribeConfigs."""
    requested = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[requested], include_synonyms=True)
    if version >= 3:
        request.include_documentation = True
    (result,) = (await client.call(request, version)).results
    return result


async def shown(client: Any, kind: int, name: str, *keys: str) -> dict[str, tuple[str | None, int]]:
    """Returns config -> (value, source)."""
    result = await describe(client, kind, name, *keys)
    assert result.error_code == 0, result
    return {entry.name: (entry.value, int(entry.config_source)) for entry in result.configs}


async def listed(client: Any, *kinds: int, version: int = 1) -> Any:
    """Returns (code, names) of a ListConfigResources."""
    request = ListConfigResourcesRequest(resource_types=list(kinds)) if version else ListConfigResourcesRequest()
    response = await client.call(request, version)
    return response.error_code, [(one.resource_type, one.resource_name) for one in response.config_resources]
