"""Configuration of the authorizer.

Interprets `authorizer.class.name`, `super.users` and `allow.everyone.if.no.acl.found`. The last two are configs of the
authorizer, which Kafka passes on uninterpreted. Ottla implements the authorizers of all Kafka releases, under their
class names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.named import NamedTuple
from ..errors import ConfigError

if TYPE_CHECKING:
    from .configured import Configured

CLASS_NAME = "authorizer.class.name"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"


class AuthorizerSettings(NamedTuple):
    """Settings of an authorizer. Principals are "Type:name", compared literally."""

    super_users: frozenset[str] = frozenset()
    allow_everyone_if_no_acl_found: bool = False


def authorizer_settings(config: Configured) -> AuthorizerSettings | None:
    """Returns the authorizer's settings, or None if none is configured. Raises ConfigError."""
    class_name = (config[CLASS_NAME] or "").strip() if config.fact(CLASS_NAME) else ""
    if not class_name:
        return None
    known = config.profile.authorizers
    if class_name not in known:
        raise ConfigError(
            f"Invalid value {class_name} for configuration {CLASS_NAME}: Class {class_name} could not be found; "
            f"expected one of {', '.join(known)}"
        )
    users = [user.strip() for user in (config[SUPER_USERS] or "").split(";")]
    for user in filter(None, users):
        if ":" not in user:
            raise ConfigError(f"{SUPER_USERS}: expected a string in format principalType:principalName but got {user}")
    return AuthorizerSettings(frozenset(filter(None, users)), config[ALLOW_EVERYONE])
