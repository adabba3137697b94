"""The SASL settings of a listener, from Kafka's configs: `sasl.enabled.mechanisms`, `sasl.jaas.config` and others.

A config with the prefix `listener.name.<listener>.` overrides the one without, and of some configs there is one for
each mechanism, `listener.name.<listener>.<mechanism>.`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from ....protocol.frozen import frozen
from ....protocol.security.jaas import parse_jaas
from ....protocol.security.oauthbearer import LOGIN_MODULE
from ....protocol.security.oauthbearer import MECHANISM as OAUTHBEARER
from ....protocol.security.scram import HASHES
from ...errors import ConfigError
from .oauthbearer import HANDLER_CLASS, SignedSettings, UnsecuredSettings, oauthbearer_settings, of_mechanism

if TYPE_CHECKING:
    from ..values import Config
    from .kerberos import KerberosSettings

PLAIN = "PLAIN"
GSSAPI = "GSSAPI"
SUPPORTED = (GSSAPI, PLAIN, *HASHES, OAUTHBEARER)
ENABLED = "sasl.enabled.mechanisms"
JAAS_CONFIG = "sasl.jaas.config"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
HANDLERS = {
    PLAIN: "org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler",
    GSSAPI: "org.apache.kafka.common.security.authenticator.SaslServerCallbackHandler",
}
"""Kafka's own callback handlers, which a config can name; SCRAM's has no constructor for it."""
USER_OPTION = "user_"
RECEIVE_BYTES_MAX = 524_288
"""`sasl.server.max.receive.size` of the releases that lack the config."""


@frozen
class SaslSettings:
    """The settings of one listener.

    `passwords` are those of PLAIN by user. `lifetimes_ms` are the longest sessions by mechanism, 0 without a limit
    (`connections.max.reauth.ms`, KIP-368). The response to a failure is delayed by `failure_delay_ms`; until a client
    is authenticated its requests may have `receive_bytes_max` bytes. `oauthbearer` and `kerberos` are None without
    their mechanisms. `credentials_end_sessions` and `first_token` are the behaviours of these names.
    """

    mechanisms: tuple[str, ...]
    passwords: Mapping[str, str] = field(repr=False)
    lifetimes_ms: Mapping[str, int]
    failure_delay_ms: int
    receive_bytes_max: int
    oauthbearer: UnsecuredSettings | SignedSettings | None = None
    kerberos: KerberosSettings | None = None
    credentials_end_sessions: bool = True
    first_token: bool = False


def sasl_settings(config: Config, listener: str) -> SaslSettings:
    """Returns the settings of a listener of a node. Raises ConfigError."""
    prefix = f"listener.name.{listener.lower()}."
    if config.fact(ENABLED) is None and not config.profile.behaviour.first_token:
        raise ConfigError(f"listener {listener}: a release before 0.9 has no SASL")
    mechanisms: tuple[str, ...] = tuple(dict.fromkeys(config.get(f"{prefix}{ENABLED}", [GSSAPI]) or ()))
    if not mechanisms:
        raise ConfigError(f"listener {listener} has SASL, and sasl.enabled.mechanisms is empty")
    for mechanism in mechanisms:
        if mechanism not in SUPPORTED:
            known = ", ".join(SUPPORTED)
            raise ConfigError(f"listener {listener}: the SASL mechanism {mechanism} is not served, but {known}")
        if mechanism != OAUTHBEARER:
            _check_handler(config, prefix, mechanism)
    return SaslSettings(
        mechanisms,
        _passwords(config, prefix) if PLAIN in mechanisms else {},
        {one: of_mechanism(config, prefix, one, "connections.max.reauth.ms") or 0 for one in mechanisms},
        max(0, config.get("connection.failed.authentication.delay.ms", 0)),
        config.get(f"{prefix}sasl.server.max.receive.size", RECEIVE_BYTES_MAX),
        _oauthbearer(config, prefix) if OAUTHBEARER in mechanisms else None,
        _kerberos(config, prefix) if GSSAPI in mechanisms else None,
        config.profile.behaviour.credentials_end_sessions,
        config.profile.behaviour.first_token and GSSAPI in mechanisms,
    )


def _check_handler(config: Config, prefix: str, mechanism: str) -> None:
    """Refuses a callback handler in Java, which would decide on logins otherwise than the broker does."""
    name = f"{prefix}{mechanism.lower()}.{HANDLER_CLASS}"
    handler = config[name] if config.is_set(name) else None
    known = HANDLERS.get(mechanism)
    if handler and handler != known:
        accepted = f"; known is {known}" if known else "; without it the broker checks logins itself"
        raise ConfigError(f"{name}: the class {handler!r:.200} is not known{accepted}")


def _passwords(config: Config, prefix: str) -> dict[str, str]:
    """Returns the users of PLAIN: the options `user_NAME` of the login module."""
    options = _module_options(config, prefix, PLAIN, PLAIN_MODULE)
    if options is None:
        name = f"{prefix}{PLAIN.lower()}.{JAAS_CONFIG}"
        raise ConfigError(f"{name} is not set: SASL/PLAIN needs the passwords of its users there")
    return {
        option.removeprefix(USER_OPTION): value for option, value in options.items() if option.startswith(USER_OPTION)
    }


def _oauthbearer(config: Config, prefix: str) -> UnsecuredSettings | SignedSettings:
    options = _module_options(config, prefix, OAUTHBEARER, LOGIN_MODULE)
    return oauthbearer_settings(config, prefix, options or {})


def _kerberos(config: Config, prefix: str) -> KerberosSettings:
    from ....protocol.security.kerberos import LOGIN_MODULE as MODULE  # few brokers have such a listener
    from .kerberos import RULES, SERVICE_NAME, kerberos_settings

    name = f"{prefix}{GSSAPI.lower()}.{JAAS_CONFIG}"
    options = _module_options(config, prefix, GSSAPI, MODULE)
    if options is None:
        raise ConfigError(
            f"{name} is not set: GSSAPI, which {ENABLED} has by default, needs the broker's keytab and principal there"
        )
    service, rules = (config.get(f"{prefix}{part}") for part in (SERVICE_NAME, RULES))
    try:
        return kerberos_settings(options, service, rules)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def _module_options(config: Config, prefix: str, mechanism: str, module_name: str) -> dict[str, str] | None:
    """Returns the options of the login module of a mechanism, or None where the config is not set."""
    name = f"{prefix}{mechanism.lower()}.{JAAS_CONFIG}"
    text = config[name] if config.is_set(name) else None
    if not text:
        return None
    try:
        module = parse_jaas(text)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
    if module.name != module_name:
        raise ConfigError(f"{name}: the login module of SASL/{mechanism} is {module_name}")
    return module.options
