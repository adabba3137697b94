"""What AlterConfigs, IncrementalAlterConfigs and DescribeConfigs name: resources, and how their configs are changed.

Owns the rules that these calls share (KIP-133, KIP-226, KIP-339). A change is checked as a whole first, then durable,
then in force.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..protocol.errors import ErrorCode
from ..protocol.messages.metadata_records import ConfigRecord
from .config import ConfigSource, TopicConfig
from .config_facts import ConfigError, ConfigType, Fact
from .errors import Refused
from .topics import check_name

if TYPE_CHECKING:
    from .context import RequestContext
    from .state import BrokerState

InForce = Callable[[str], str | None]  # the value in force of a config, as text
TOPIC, BROKER = 2, 4  # ConfigResource types
SET, DELETE, APPEND, SUBTRACT = range(4)  # operations of IncrementalAlterConfigs


class Change(NamedTuple):
    """One config of one resource; `operation` is one of SET, DELETE, APPEND, SUBTRACT."""

    name: str
    operation: int
    value: str | None


def check_broker_name(name: str, node_id: int) -> None:
    """A broker is named by its id; "" means all brokers."""
    if name and name != str(node_id):
        problem = f"Unexpected broker id, expected {node_id} or empty string, but received {name}"
        raise Refused(ErrorCode.INVALID_REQUEST, problem)


def alter(
    context: RequestContext, resource_type: int, name: str, changes: Sequence[Change], *, validate_only: bool
) -> None:
    """Applies changes to a resource, all or none; a node's configs are those of all nodes, which are one broker. Raises
    Refused, ConfigError or StorageError."""
    broker, now_ms = context.broker, context.now_ms()
    nulls = [change.name for change in changes if change.value is None and change.operation != DELETE]
    if nulls:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")
    if len({change.name for change in changes}) < len(changes):
        raise Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if resource_type == TOPIC:
        check_name(name)
        topic = broker.topics.named(name)
        known = broker.config.facts("topic")
        configs = _changed(topic.config.overrides, changes, known, lambda key: topic.config.describe(key).value)
        TopicConfig(broker.config, configs)
        if not validate_only:
            broker.topics.set_configs(topic, configs, now_ms)
    elif resource_type == BROKER:
        check_broker_name(name, context.node_id)
        source = ConfigSource.DYNAMIC_BROKER if name else ConfigSource.DYNAMIC_DEFAULT_BROKER
        known = broker.config.facts("broker")
        configs = _changed(broker.config.dynamic(source), changes, known, lambda key: broker.config.describe(key).value)
        _set_broker_configs(broker, name, source, configs, now_ms, validate_only)
    else:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Resource type {resource_type} is not served.")


def replace(
    context: RequestContext,
    resource_type: int,
    name: str,
    configs: Sequence[tuple[str, str | None]],
    *,
    validate_only: bool,
) -> None:
    """AlterConfigs: `configs` are all that the resource has afterwards."""
    broker = context.broker
    if resource_type == TOPIC:
        check_name(name)
        present: Mapping[str, str] = broker.topics.named(name).config.overrides
    else:
        source = ConfigSource.DYNAMIC_BROKER if name else ConfigSource.DYNAMIC_DEFAULT_BROKER
        present = broker.config.dynamic(source)
    changes = [Change(key, SET, value) for key, value in configs]
    listed = {key for key, _ in configs}
    changes += [Change(key, DELETE, None) for key in present if key not in listed]
    alter(context, resource_type, name, changes, validate_only=validate_only)


def _changed(
    present: Mapping[str, str], changes: Sequence[Change], known: Mapping[str, Fact], in_force: InForce
) -> dict[str, str]:
    configs = dict(present)
    for change in changes:
        if change.operation == DELETE:
            configs.pop(change.name, None)
        elif change.operation == SET:
            configs[change.name] = change.value or ""
        elif change.operation in (APPEND, SUBTRACT):
            configs[change.name] = _edited(change, configs.get(change.name), known, in_force)
        else:
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown operation {change.operation}")
    return configs


def _edited(change: Change, own: str | None, known: Mapping[str, Fact], in_force: InForce) -> str:
    """A list config with an element added or taken away; what is not set yet starts from the value in force."""
    fact = known.get(change.name)
    if fact is None:
        raise ConfigError(f"Unknown config name: {change.name}")
    if fact.type_code != ConfigType.LIST:
        verb = "append" if change.operation == APPEND else "subtract"
        raise ConfigError(f"Can't {verb} to key {change.name} because its type is not LIST.")
    text = own if own is not None else in_force(change.name) or ""
    elements = [part for part in text.split(",") if part]
    for element in (change.value or "").split(","):
        if change.operation == APPEND and element not in elements:
            elements.append(element)
        elif change.operation == SUBTRACT and element in elements:
            elements.remove(element)
    return ",".join(elements)


def _set_broker_configs(
    broker: BrokerState, name: str, source: ConfigSource, configs: dict[str, str], now_ms: int, validate_only: bool
) -> None:
    present = broker.config.dynamic(source)
    changed: dict[str, str | None] = {key: None for key in present if key not in configs}
    changed |= {key: value for key, value in configs.items() if present.get(key) != value}
    for key, value in changed.items():
        broker.config.set_dynamic(key, value, source, dry_run=True)
    if validate_only or not changed:
        return
    records = [
        ConfigRecord(resource_type=BROKER, resource_name=name, name=key, value=value) for key, value in changed.items()
    ]
    broker.metadata_log.append(records, now_ms)
    for key, value in changed.items():
        broker.config.set_dynamic(key, value, source)
    broker.topics.reconfigure()
