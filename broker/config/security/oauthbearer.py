"""The settings of OAUTHBEARER of a listener: which validator of tokens it has, and the rules of that one.

Kafka's configs select the validator by the names of its classes (KIP-255, KIP-768). Each config may have the prefix of
a listener and a mechanism, `listener.name.<listener>.oauthbearer.`, that of a listener, or none.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ....protocol.frozen import frozen
from ....protocol.security.oauthbearer import JAVA_BLANK, scopes, trust_options
from ...errors import ConfigError

if TYPE_CHECKING:
    from ..values import Config

_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
UNSECURED_HANDLER = f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SIGNED_HANDLERS = (
    f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler",
)
VALIDATORS = (f"{_PACKAGE}.DefaultJwtValidator", f"{_PACKAGE}.BrokerJwtValidator")
HANDLER_CLASS = "sasl.server.callback.handler.class"
VALIDATOR_CLASS = "sasl.oauthbearer.jwt.validator.class"
KEYS_URL = "sasl.oauthbearer.jwks.endpoint.url"
_OPTION = "unsecuredValidator"


@frozen
class UnsecuredSettings:
    """Tokens without a signature, as Kafka accepts them by default: for tests and development."""

    principal_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: tuple[str, ...] = ()
    clock_skew_ms: int = 0


@frozen
class SignedSettings:
    """Tokens that a key of `keys_url`, a JSON web key set, has signed.

    Without `audiences` a token must have none, unless `any_audience`. Without `issuer` it may have any.
    """

    keys_url: str
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    clock_skew_s: int
    audiences: tuple[str, ...]
    issuer: str | None
    scope_claim: str
    sub_claim: str
    any_audience: bool = False
    trust: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The options of the login module about the trust store of an HTTPS URL."""


def of_mechanism(config: Config, prefix: str, mechanism: str, name: str) -> Any:
    """Returns the value of a config for a mechanism, else for the listener, else for the broker; None for a config that
    the release does not have."""
    for prefixed in (f"{prefix}{mechanism.lower()}.{name}", f"{prefix}{name}"):
        if config.is_set(prefixed):
            return config[prefixed]
    return config.get(name)


def oauthbearer_settings(config: Config, prefix: str, options: Mapping[str, str]) -> UnsecuredSettings | SignedSettings:
    """Returns the settings of a listener. `prefix` is `listener.name.<listener>.`, `options` those of the login module.

    Raises ConfigError.
    """
    name = f"{prefix}oauthbearer.{HANDLER_CLASS}"
    handler = (config[name] if config.is_set(name) else None) or UNSECURED_HANDLER
    if handler == UNSECURED_HANDLER:
        return _unsecured(f"{prefix}oauthbearer.sasl.jaas.config", options)
    if handler not in SIGNED_HANDLERS:
        known = f"{UNSECURED_HANDLER} and {SIGNED_HANDLERS[0]}"
        raise ConfigError(f"{name}: the class {handler!r:.200} is not known; known are {known}")
    return _signed(config, prefix, options)


def _unsecured(name: str, options: Mapping[str, str]) -> UnsecuredSettings:
    def option(which: str, default: str = "") -> str:
        return options.get(_OPTION + which, "").strip(JAVA_BLANK) or default

    skew = option("AllowableClockSkewMs", "0")
    if not re.fullmatch(r"\+?[0-9]{1,10}", skew) or int(skew) >= 2**31:
        raise ConfigError(f"{name}: {_OPTION}AllowableClockSkewMs must be a number of ms from 0 on, not {skew!r:.50}")
    try:
        required = scopes(option("RequiredScope"))
    except ValueError as error:
        raise ConfigError(f"{name}: {_OPTION}RequiredScope: {error}") from None
    return UnsecuredSettings(
        option("PrincipalClaimName", "sub"), option("ScopeClaimName", "scope"), required, int(skew)
    )


def _signed(config: Config, prefix: str, options: Mapping[str, str]) -> SignedSettings:
    def value(name: str, default: Any = None) -> Any:
        found = of_mechanism(config, prefix, "oauthbearer", name)
        return default if found is None else found

    def text(name: str, default: str | None = None) -> str | None:
        return (value(name) or "").strip(JAVA_BLANK) or default

    if (validator := text(VALIDATOR_CLASS, VALIDATORS[0])) not in VALIDATORS:
        known = " and ".join(VALIDATORS)
        raise ConfigError(f"{prefix}{VALIDATOR_CLASS}: the class {validator!r:.200} is not known; known are {known}")
    url = text(KEYS_URL)
    if url is None:
        raise ConfigError(f"{prefix}{KEYS_URL} is not set: signed tokens of OAUTHBEARER need the URL of the keys")
    _check_url(f"{prefix}{KEYS_URL}", url)
    for module in ("jwt", "cryptography"):
        if importlib.util.find_spec(module) is None:
            raise ConfigError(f"{prefix}{KEYS_URL}: signed tokens need PyJWT: pip install 'ottla[security]'")
    made = SignedSettings(
        url,
        value("sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000),
        value("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 100),
        value("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 10_000),
        value("sasl.oauthbearer.clock.skew.seconds", 30),
        tuple(value("sasl.oauthbearer.expected.audience") or ()),
        text("sasl.oauthbearer.expected.issuer"),
        text("sasl.oauthbearer.scope.claim.name", "scope") or "scope",
        text("sasl.oauthbearer.sub.claim.name", "sub") or "sub",
        bool(value("sasl.oauthbearer.allow.unverified.audience", False)),
        tuple(sorted(trust_options(options).items())),
    )
    if config.fact("sasl.oauthbearer.allow.unverified.issuer") is not None:  # from 4.4 on
        if not made.audiences and not made.any_audience:
            raise _unverified(prefix, "audience")
        if made.issuer is None and not value("sasl.oauthbearer.allow.unverified.issuer"):
            raise _unverified(prefix, "issuer")
    if made.refresh_ms <= 0 and not url.lower().startswith("file:"):
        raise ConfigError(f"{prefix}sasl.oauthbearer.jwks.endpoint.refresh.ms must be positive, not {made.refresh_ms}")
    if not 0 <= made.retry_backoff_ms <= made.retry_backoff_max_ms:
        raise ConfigError(
            f"{prefix}sasl.oauthbearer.jwks.endpoint.retry.backoff.ms must be from 0 to retry.backoff.max.ms "
            f"({made.retry_backoff_max_ms}), not {made.retry_backoff_ms}"
        )
    return made


def _unverified(prefix: str, what: str) -> ConfigError:
    return ConfigError(
        f"{prefix}sasl.oauthbearer.expected.{what} is not set: set it to that of your tokens, or "
        f"sasl.oauthbearer.allow.unverified.{what}=true"
    )


def _check_url(name: str, url: str) -> None:
    try:
        parts = urlsplit(url)
        is_sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_sound, parts = False, None
    is_file = parts is not None and parts.scheme == "file" and not parts.netloc and parts.path.startswith("/")
    if not (is_sound or is_file) or not url.isprintable() or " " in url:
        raise ConfigError(f"{name}: expected a URL with http, https or file, such as file:/etc/kafka/jwks.json")
