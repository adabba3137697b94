"""Configs of topics and of the broker: described, and changed by the rules of IncrementalAlterConfigs.

The rules and their error texts are in `broker/handlers/configs/resources.py`. Access control lists are not checked, as
everywhere in the control plane.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config.definitions import ConfigType, format_value, read_value
from ..config.docs import documentation
from ..config.resource_types import BROKER, TOPIC
from ..connection_info import ConnectionInfo
from ..context import RequestContext
from ..handlers.configs import resources
from ..handlers.configs.resources import Change
from ..metrics.client_ledger import ClientLibrary
from .views import ConfigChanges, ConfigInfo

if TYPE_CHECKING:
    from ..broker_state import BrokerState
    from ..config.definitions import Fact
    from ..config.values import ConfigEntry

VERSION = 1  # of IncrementalAlterConfigs
LISTENER = "CONTROL"


def of_topic(state: BrokerState, name: str) -> list[ConfigInfo]:
    """Returns all configs of a topic. Raises Refused."""
    config, facts = state.topics.named(name).config, state.config.facts("topic")
    return [_info(config.describe(key), facts.get(key)) for key in sorted(config.names())]


def of_broker(state: BrokerState) -> list[ConfigInfo]:
    """Returns all configs of the broker, of its first node."""
    config = state.config.of(state.nodes.ids[0])
    return [_info(config.describe(key), config.fact(key)) for key in sorted(config.names())]


def _info(entry: ConfigEntry, fact: Fact | None) -> ConfigInfo:
    default = None if fact is None or fact.default is None or fact.sensitive else fact.default
    if fact is not None and default is not None:
        default = format_value(fact, read_value(fact, default))
    return ConfigInfo(
        name=entry.name,
        value=entry.value,
        default=default,
        source=f"{entry.source.name}_CONFIG",
        is_read_only=entry.read_only,
        is_sensitive=entry.sensitive,
        type=entry.type.name,
        documentation=None if entry.type is ConfigType.UNKNOWN else documentation(entry.name),
        synonyms=tuple((one.name, one.value, f"{one.source.name}_CONFIG") for one in entry.synonyms),
    )


def change_topic(state: BrokerState, name: str, changes: ConfigChanges, *, validate_only: bool) -> None:
    """Changes configs of a topic, all or none. Raises Refused, ConfigError, StorageError."""
    state.topics.named(name)
    resources.alter(_context(state), TOPIC, name, _changes(changes), validate_only=validate_only)


def change_broker(state: BrokerState, changes: ConfigChanges, *, for_all: bool, validate_only: bool) -> None:
    """Changes configs of the broker, all or none. Raises Refused, ConfigError, StorageError."""
    context = _context(state)
    name = "" if for_all else str(context.node_id)
    resources.alter(context, BROKER, name, _changes(changes), validate_only=validate_only)


def _changes(changes: ConfigChanges) -> list[Change]:
    found = [Change(name, resources.SET, value) for name, value in changes.set.items()]
    found += [Change(name, resources.DELETE, None) for name in changes.delete]
    found += [Change(name, resources.APPEND, value) for name, value in changes.append.items()]
    return found + [Change(name, resources.SUBTRACT, value) for name, value in changes.subtract.items()]


def _context(state: BrokerState) -> RequestContext:
    """Returns the context of a request to the first node. All nodes have the same configs: they are one broker."""
    connection_info = ConnectionInfo(LISTENER, "", "", ClientLibrary(LISTENER, None, None, True), state.nodes.ids[0])
    return RequestContext(state, VERSION, 0, "", connection_info)
