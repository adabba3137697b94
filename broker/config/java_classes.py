"""Configs that name classes of Java: the authorizer, the replica selector and the assignors of consumer groups.

Ottla implements Kafka's own classes, under their names; classes of users need Java. `super.users` and
`allow.everyone.if.no.acl.found` are configs of the authorizer, which Kafka passes on uninterpreted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.named import NamedTuple
from ..errors import ConfigError

if TYPE_CHECKING:
    from .configured import Configured

AUTHORIZER = "authorizer.class.name"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"
SELECTOR = "replica.selector.class"
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
ASSIGNORS = "group.consumer.assignors"
_PACKAGE = "org.apache.kafka.coordinator.group.assignor."
_ASSIGNOR_CLASSES = {f"{_PACKAGE}UniformAssignor": "uniform", f"{_PACKAGE}RangeAssignor": "range"}


def _unknown(config_name: str, class_name: str, expected: str) -> ConfigError:
    return ConfigError(
        f"Invalid value {class_name} for configuration {config_name}: Class {class_name} could not be found; "
        f"expected {expected}"
    )


class AuthorizerSettings(NamedTuple):
    """Settings of an authorizer. Principals are "Type:name", compared literally."""

    super_users: frozenset[str] = frozenset()
    allow_everyone_if_no_acl_found: bool = False


def authorizer_settings(config: Configured) -> AuthorizerSettings | None:
    """Returns the authorizer's settings, or None if none is configured. Raises ConfigError."""
    class_name = (config[AUTHORIZER] or "").strip() if config.fact(AUTHORIZER) else ""
    if not class_name:
        return None
    known = config.profile.authorizers
    if class_name not in known:
        raise _unknown(AUTHORIZER, class_name, f"one of {', '.join(known)}")
    users = [user.strip() for user in (config[SUPER_USERS] or "").split(";")]
    for user in filter(None, users):
        if ":" not in user:
            raise ConfigError(f"{SUPER_USERS}: expected a string in format principalType:principalName but got {user}")
    return AuthorizerSettings(frozenset(filter(None, users)), config[ALLOW_EVERYONE])


def selects_by_rack(config: Configured) -> bool:
    """Returns whether the leader names a preferred read replica, one in the rack of the client (KIP-392). Raises
    ConfigError for another selector than Kafka's."""
    class_name: str | None = config.get(SELECTOR)
    if class_name in (None, RACK_AWARE):
        return class_name is not None
    raise _unknown(SELECTOR, class_name, f"{RACK_AWARE}, or no value")


def assignor_name(text: str) -> str:
    """Returns the name of an assignor, given by its name or its class. Raises ConfigError for any other."""
    name = _ASSIGNOR_CLASSES.get(text, text)
    if name not in _ASSIGNOR_CLASSES.values():
        raise ConfigError(
            f"Invalid value {text} for configuration {ASSIGNORS}: the assignors are uniform and range; classes of Java "
            "are not run"
        )
    return name
