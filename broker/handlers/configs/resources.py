"""Resources of AlterConfigs, IncrementalAlterConfigs and DescribeConfigs, and the changes of their configs.

Owns the rules that these APIs share (KIP-133, KIP-226, KIP-339, KIP-412, KIP-714), with the order of Kafka's checks and
its messages. A change is first checked as a whole, then made durable, then applied. The resource types depend on the
release; the valid configs of client metrics and groups are `named_rules.py`'s.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ....protocol.acls import CLUSTER_NAME, AclOperation, ResourceType
from ....protocol.config_codes import ConfigSource, ConfigType
from ....protocol.errors import ErrorCode
from ....protocol.internal_records.metadata_values import TOPIC as METADATA_TOPIC
from ....protocol.limits import INT32_MAX, INT32_MIN
from ....protocol.named import NamedTuple
from ...config.definitions import Fact
from ...config.dynamic import check_dynamic
from ...config.named_rules import check_named
from ...config.resource_types import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from ...config.values import IN_SYNC, TopicConfig
from ...errors import ConfigError, Refused
from ...logs import levels
from ...metadata.named_configs import is_broker
from ...metadata.topic_records import config_records
from ...metadata.topics import check_name

if TYPE_CHECKING:
    from ...broker_state import BrokerState
    from ...context import RequestContext
    from ...releases.profiles import Behaviour

SET, DELETE, APPEND, SUBTRACT = range(4)  # operations of IncrementalAlterConfigs
OPERATIONS = ("SET", "DELETE", "APPEND", "SUBTRACT")
CORDONED = "cordoned.log.dirs"
CORDONED_DISABLED = f"The {CORDONED} configuration value cannot be set because it requires metadata.version >= 4.3-IV0"
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")  # the syntax of Java's Integer.parseInt
_ALWAYS_AS_THEY_ARE = ("Unknown topic config name", "conflict topic config setting")


class Change(NamedTuple):
    """One config of one resource; `operation` is one of SET, DELETE, APPEND, SUBTRACT."""

    name: str
    operation: int
    value: str | None


def kinds(behaviour: Behaviour) -> set[int]:
    """Returns the resource types of a release."""
    known = {TOPIC, BROKER}
    if behaviour.logger_configs:
        known.add(BROKER_LOGGER)
    if behaviour.client_metrics_configs != "none":
        known.add(CLIENT_METRICS)
    if behaviour.group_configs:
        known.add(GROUP)
    return known


def check_allowed(context: RequestContext, operation: AclOperation, kind: int, name: str, *, has_text: bool) -> None:
    """Raises Refused unless the principal may do the operation on a resource's configs; `has_text` adds Kafka's
    message. Configs of brokers and client metrics belong to the cluster.
    """
    resource = {TOPIC: ResourceType.TOPIC, GROUP: ResourceType.GROUP}.get(kind, ResourceType.CLUSTER)
    try:
        context.check_allowed(operation, resource, CLUSTER_NAME if resource is ResourceType.CLUSTER else name)
    except Refused as refused:
        raise refused if has_text else Refused(refused.code) from None


def check_broker_name(name: str, node_id: int, *, label: str, expected: str) -> None:
    """Raises Refused unless `name` is the id of this node, in Java's syntax of numbers. `label` and `expected` are
    parts of the message.
    """
    if not _NUMBER.fullmatch(name) or not INT32_MIN <= int(name) <= INT32_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{label} id must be an integer, but it is: {name}")
    if int(name) != node_id:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Unexpected {expected} but received {name}")


def check_changes(context: RequestContext, kind: int, name: str, changes: Sequence[Change]) -> None:
    """Makes the checks that precede those of the configs; with KRaft the broker makes them, before the controller.
    Raises Refused.
    """
    behaviour = context.broker.profile.behaviour
    _check_changes(changes, behaviour, is_whole=False)
    check_kind(kind, behaviour, is_whole=False)
    if kind == BROKER and name:
        _check_node(context, name)
    refused = unknown_operation(changes)
    if refused is not None and kind == BROKER and behaviour.kraft_configs:
        raise refused


def alter(
    context: RequestContext,
    kind: int,
    name: str,
    changes: Sequence[Change],
    *,
    validate_only: bool,
    refused: Refused | None = None,
) -> None:
    """Changes a resource for IncrementalAlterConfigs: all changes are made, or none.

    The configs of a node apply to all nodes, which are one broker, except replication throttles. `refused` is the
    controller's refusal of the whole request: configs of nodes and loggers are changed before it. Raises Refused,
    ConfigError or StorageError.
    """
    check_changes(context, kind, name, changes)
    if kind == BROKER_LOGGER:
        _set_levels(context, name, changes, validate_only=validate_only)
        return
    if refused is None or kind == BROKER:
        _change(context, kind, name, changes, validate_only=validate_only or refused is not None)
    if refused is not None:
        raise refused


def unknown_operation(changes: Iterable[Change]) -> Refused | None:
    """Returns the refusal of the first change with an unknown operation, or None."""
    for change in changes:
        if not SET <= change.operation <= SUBTRACT:
            return Refused(ErrorCode.INVALID_REQUEST, f"Unknown operations type {change.operation}")
    return None


def replace(
    context: RequestContext, kind: int, name: str, configs: Sequence[tuple[str, str | None]], *, validate_only: bool
) -> None:
    """Replaces the configs of a resource for AlterConfigs. Raises Refused, ConfigError or StorageError."""
    behaviour = context.broker.profile.behaviour
    changes = [Change(key, SET, value) for key, value in configs]
    _check_changes(changes, behaviour, is_whole=True)
    check_kind(kind, behaviour, is_whole=True)
    if kind == BROKER and name:
        _check_node(context, name)
    listed = {key for key, _ in configs}
    changes += [Change(key, DELETE, None) for key in _present(context, kind, name) if key not in listed]
    _change(context, kind, name, changes, validate_only=validate_only)


def _check_changes(changes: Sequence[Change], behaviour: Behaviour, *, is_whole: bool) -> None:
    """Checks that a config is named once, and has a value where one is needed."""
    twice = sorted(name for name, times in Counter(change.name for change in changes).items() if times > 1)
    nulls = [change for change in changes if change.value is None and change.operation != DELETE]
    kraft = behaviour.kraft_configs
    if twice and (kraft or not is_whole):
        listed = "" if kraft else f" : {','.join(twice)}"
        raise Refused(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys{listed}")
    if nulls and not kraft and not is_whole:
        known = dict(enumerate(OPERATIONS))
        raise of_nulls(",".join(f"{known.get(change.operation, 'null')}:{change.name}" for change in nulls))
    if nulls:
        raise of_nulls(", ".join(change.name for change in nulls))


def of_nulls(listed: str) -> Refused:
    """Returns the refusal of null values, given the listed configs."""
    return Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {listed}")


def check_kind(kind: int, behaviour: Behaviour, *, is_whole: bool) -> None:
    """Raises Refused for a resource type whose configs the API cannot change in this release."""
    if kind not in kinds(behaviour) or (is_whole and kind == BROKER_LOGGER):
        problem = f"Unknown resource type {kind}"
        if not behaviour.kraft_configs:
            problem = "Unexpected resource type UNKNOWN"
            if kind == BROKER_LOGGER:
                problem = "AlterConfigs is deprecated and does not support the resource type BROKER_LOGGER"
        raise Refused(ErrorCode.INVALID_REQUEST, problem)


def _check_node(context: RequestContext, name: str, *, expected: str = "broker id, expected") -> None:
    kraft = context.broker.profile.behaviour.kraft_configs
    expected = f"{expected if kraft else 'broker id, expected'} {context.node_id},"
    check_broker_name(name, context.node_id, label="Node" if kraft else "Broker", expected=expected)


def _present(context: RequestContext, kind: int, name: str) -> Mapping[str, str]:
    """The configs that are set for a resource; empty if it does not exist."""
    broker = context.broker
    if kind == TOPIC:
        topic = broker.topics.get(name)
        return topic.config.overrides if topic is not None else {}
    if kind == BROKER and not _is_stored_alone(broker, name):
        return context.config.dynamic(_level(name))
    return broker.named_configs.configs(kind, name)


def _is_stored_alone(broker: BrokerState, name: str) -> bool:
    """Returns whether the configs of this broker name are stored without effect."""
    return broker.profile.behaviour.kraft_configs and not is_broker(name)


def _level(name: str) -> ConfigSource:
    return ConfigSource.DYNAMIC_BROKER if name else ConfigSource.DYNAMIC_DEFAULT_BROKER


def _change(context: RequestContext, kind: int, name: str, changes: Sequence[Change], *, validate_only: bool) -> None:
    broker = context.broker
    try:
        if kind == BROKER:
            _change_broker(context, name, changes, validate_only)
            return
        if kind == TOPIC:
            _change_topic(context, name, changes, validate_only)
            return
        configs = _changed(context, kind, name, changes, {})
        check_named(kind, name, configs, broker.config)
        if not validate_only:
            broker.named_configs.set(kind, name, configs, context.now_ms())
    except ConfigError as error:
        if broker.profile.behaviour.kraft_configs or str(error).startswith(_ALWAYS_AS_THEY_ARE):
            raise
        resource = f"ConfigResource(type={'TOPIC' if kind == TOPIC else 'BROKER'}, name='{name}')"
        raise Refused(ErrorCode.INVALID_REQUEST, f"Invalid config value for resource {resource}: {error}") from None


def _change_topic(context: RequestContext, name: str, changes: Sequence[Change], validate_only: bool) -> None:
    """A KRaft controller checks the values before the existence of the topic."""
    broker = context.broker
    configs = _changed(context, TOPIC, name, changes, broker.config.facts("topic"))
    if broker.profile.behaviour.kraft_configs:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if name != METADATA_TOPIC:
            check_name(name)
        TopicConfig(broker.config, configs).check_tiered()
    topic = broker.topics.get(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    TopicConfig(broker.config, configs).check_tiered()
    if not validate_only:
        changes_least = topic.config.overrides.get(IN_SYNC) != configs.get(IN_SYNC)
        broker.topics.set_configs(topic, configs, context.now_ms())
        if changes_least and broker.features.eligible_leaders:
            broker.topology.clear_eligible(name)
        broker.topology.catch_up()


def _changed(
    context: RequestContext, kind: int, name: str, changes: Sequence[Change], known: Mapping[str, Fact]
) -> dict[str, str]:
    """All configs that are set for a resource after the changes."""
    behaviour = context.broker.profile.behaviour
    configs = dict(_present(context, kind, name))
    for change in changes:
        if change.operation == DELETE:
            configs.pop(change.name, None)
        elif change.operation == SET:
            configs[change.name] = change.value or ""
        elif (refused := unknown_operation([change])) is not None:
            raise refused
        else:
            fact = known.get(change.name)
            _check_list(change, fact, kind, behaviour)
            default = fact.default if fact is not None else None
            text = configs.get(change.name, default or "")
            configs[change.name] = _edited(change, text, kraft=behaviour.kraft_configs)
    return configs


def _check_list(change: Change, fact: Fact | None, kind: int, behaviour: Behaviour) -> None:
    """Raises an error unless the config is a list: only lists can be appended to."""
    if fact is not None and fact.type_code == ConfigType.LIST:
        return
    verb = OPERATIONS[change.operation]
    if kind != BROKER and behaviour.kraft_configs:
        raise ConfigError(f"Can't {verb} to key {change.name} because its type is not LIST.")
    if fact is None:
        raise Refused(ErrorCode.INVALID_CONFIG, f"Unknown config name: {change.name}")
    code = ErrorCode.INVALID_CONFIG if behaviour.kraft_configs else ErrorCode.INVALID_REQUEST
    raise Refused(code, f"Config value {verb.lower()} is not allowed for config key: {change.name}")


def _edited(change: Change, text: str, *, kraft: bool) -> str:
    """A list with elements added or removed, starting from the default if it is not set. With ZooKeeper an added
    element may be a duplicate or empty.
    """
    given = (change.value or "").split(",")
    elements = [part for part in text.split(",") if part or not kraft]
    if change.operation == APPEND and not kraft:
        return ",".join([*elements, *given])
    if change.operation == APPEND:
        there = set(elements)
        return ",".join([*elements, *(element for element in dict.fromkeys(given) if element not in there)])
    gone = Counter(given)
    kept: list[str] = []
    for element in elements:  # each mention of an element removes one occurrence
        if gone[element]:
            gone[element] -= 1
        else:
            kept.append(element)
    return ",".join(kept)


def _change_broker(context: RequestContext, name: str, changes: Sequence[Change], validate_only: bool) -> None:
    broker, source = context.broker, _level(name)
    kraft = broker.profile.behaviour.kraft_configs
    configs = _changed(context, BROKER, name, changes, broker.config.facts("broker"))
    try:
        check_dynamic(broker.config, source, configs)
    except ConfigError as error:
        if not kraft:
            raise
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from None
    if not broker.features.cordoned_log_dirs and any(change.name == CORDONED for change in changes):
        raise Refused(ErrorCode.INVALID_CONFIG, CORDONED_DISABLED)
    if broker.features.eligible_leaders:
        _check_in_sync(name, changes)
    if _is_stored_alone(broker, name):
        if not validate_only:
            broker.named_configs.set(BROKER, name, configs, context.now_ms())
        return
    records = config_records(BROKER, str(context.node_id) if name else "", context.config.dynamic(source), configs)
    if validate_only or not records:
        return
    broker.metadata_log.append(records, context.now_ms())
    for record in records:
        broker.config.set_dynamic(record.name, record.value, source, context.node_id)
    broker.config.log_inert(configs)
    broker.topics.reconfigure()
    broker.reconfigure_groups()
    if broker.features.eligible_leaders and any(record.name == IN_SYNC for record in records):
        broker.topology.clear_eligible()
    broker.topology.catch_up()
    broker.on_reconfigured()


def _check_in_sync(name: str, changes: Sequence[Change]) -> None:
    """Raises ConfigError for changes of min.insync.replicas that eligible leader replicas do not allow (KIP-966): these
    depend on the value for all brokers.
    """
    for change in changes:
        if change.name == IN_SYNC and name:
            raise ConfigError(f"Broker-level {IN_SYNC} cannot be altered while ELR is enabled.")
        if change.name == IN_SYNC and change.operation == DELETE:
            raise ConfigError(f"Cluster-level {IN_SYNC} cannot be removed while ELR is enabled.")


def _refuse_operation(context: RequestContext, operation: int) -> None:
    if SET <= operation <= SUBTRACT:
        what = f"{OPERATIONS[operation]} operation"
    elif context.broker.profile.behaviour.logger_operations:
        what = f"Unknown operation type {operation}"
    else:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, wordless=True)  # Kafka fails at an operation without a name
    raise Refused(ErrorCode.INVALID_REQUEST, f"{what} is not allowed for the BROKER_LOGGER resource")


def _set_levels(context: RequestContext, name: str, changes: Sequence[Change], *, validate_only: bool) -> None:
    """Sets the levels of loggers, until the broker restarts."""
    if name or context.broker.profile.behaviour.kraft_configs:
        _check_node(context, name, expected="node id. Expected")
    loggers = levels()
    for change in changes:
        if change.operation not in (SET, DELETE):
            _refuse_operation(context, change.operation)
        if change.name not in loggers.all():
            raise ConfigError(f"Logger {change.name} does not exist!")
        if change.operation == DELETE and change.name == loggers.ROOT:
            raise Refused(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
        if change.operation == SET and change.value not in loggers.LEVELS:
            known = ", ".join(loggers.LEVELS)
            raise ConfigError(
                f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
                f"Valid log levels are {known}"
            )
    if not validate_only:
        for change in changes:
            loggers.set(change.name, change.value if change.operation == SET else None)
