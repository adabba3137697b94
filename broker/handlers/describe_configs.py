"""DescribeConfigs v0-v4: configs of topics and of the broker (KIP-133, KIP-226, KIP-569).

Left out: other resources (loggers, groups, client metrics) answer INVALID_REQUEST; no documentation is kept.
"""

from __future__ import annotations

import dataclasses

from ...protocol.errors import ErrorCode
from ...protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ..config import Config, ConfigEntry, ConfigSource, TopicConfig
from ..context import RequestContext, handles
from ..errors import Refused, code_of, message_of
from ..resources import BROKER, TOPIC, check_broker_name
from ..topics import check_name

Asked = DescribeConfigsRequest.DescribeConfigsResource
Result = DescribeConfigsResponse.DescribeConfigsResult
Entry = Result.DescribeConfigsResourceResult
Synonym = Entry.DescribeConfigsSynonym


@handles(DescribeConfigsRequest)
async def describe_configs(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    """Each resource on its own."""
    return DescribeConfigsResponse(results=[_describe(asked, request, context) for asked in request.resources])


def _describe(asked: Asked, request: DescribeConfigsRequest, context: RequestContext) -> Result:
    try:
        config = _config(asked, context)
        wanted = None if asked.configuration_keys is None else set(asked.configuration_keys)
        if asked.resource_type == BROKER and not asked.resource_name:
            entries = _of_all_brokers(context.broker.config)
        else:
            entries = [config.describe(name) for name in config.names()]
        entries = [entry for entry in entries if wanted is None or entry.name in wanted]
    except Exception as error:
        message = message_of(error)
        return Result(
            error_code=code_of(error),
            error_message=message,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            configs=[],
        )
    return Result(
        error_code=0,
        error_message="",
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[_entry(entry, request, context.api_version) for entry in entries],
    )


def _of_all_brokers(config: Config) -> list[ConfigEntry]:
    """Only what was set for all brokers, also where this one has another value of its own."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    entries = []
    for name, text in sorted(config.dynamic(source).items()):
        entry = config.describe(name)
        synonyms = tuple(synonym for synonym in entry.synonyms if synonym.source == source)
        value = None if entry.sensitive else text
        entries.append(dataclasses.replace(entry, value=value, source=source, synonyms=synonyms))
    return entries


def _config(asked: Asked, context: RequestContext) -> Config | TopicConfig:
    broker = context.broker
    if asked.resource_type == TOPIC:
        check_name(asked.resource_name)
        return broker.topics.named(asked.resource_name).config
    if asked.resource_type == BROKER:
        check_broker_name(asked.resource_name, context.node_id)
        return broker.config
    raise Refused(ErrorCode.INVALID_REQUEST, f"Resource type {asked.resource_type} is not served.")


def _entry(entry: ConfigEntry, request: DescribeConfigsRequest, version: int) -> Entry:
    answer = Entry(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        config_type=entry.type,
        documentation=None,
    )
    if version == 0:
        answer.is_default = entry.source == ConfigSource.DEFAULT
    if request.include_synonyms:
        answer.synonyms = [Synonym(name=s.name, value=s.value, source=s.source) for s in entry.synonyms]
    return answer
