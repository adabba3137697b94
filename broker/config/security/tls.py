"""The TLS settings of a listener, from Kafka's configs: `ssl.keystore.location`, `ssl.client.auth` and others.

A config with the prefix `listener.name.<listener>.` overrides the one without. Sources: KIP-103, KIP-226, KIP-651,
KIP-684 (`ssl.client.auth` on a listener with SASL).
"""

from __future__ import annotations

import importlib.util
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....protocol.security.certificates import names
from ....protocol.security.key_stores import JKS, KeyStore, StoreError, TrustStore, set_cipher_suites, set_protocols
from ...errors import ConfigError

NONE, REQUIRED = "none", "required"
DEFAULT_RULES = "DEFAULT"
RECONFIGURABLE = frozenset(
    "ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password "
    "ssl.keystore.type ssl.truststore.certificates ssl.truststore.location ssl.truststore.password "
    "ssl.truststore.type".split()
)
"""The configs that can be changed while the broker runs, by listener (KIP-226)."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The settings of one listener. `client_auth` is whether clients have to show a certificate: none, requested or
    required; `rules` map a certificate's distinguished name to the name of a principal.
    """

    key_store: KeyStore
    trust_store: TrustStore
    client_auth: str
    protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    rules: str
    may_change_name: bool
    may_change_alternatives: bool


def tls_settings(
    get: Callable[[str], Any], listener: str, *, has_sasl: bool, is_set: Callable[[str], bool]
) -> TlsSettings:
    """Returns the settings of a listener of a node. `get` returns a config's value, None without one, and `is_set`
    whether it is no default. Raises ConfigError.
    """
    prefix = f"listener.name.{listener.lower()}."

    def of(name: str, default: Any = None) -> Any:
        value = get(f"{prefix}{name}")
        return default if value is None or value == "" else value

    def of_store(name: str) -> str | None:
        return of(name, JKS if name.endswith(".type") else None)

    client_auth = of("ssl.client.auth", NONE)
    if has_sasl and not is_set(f"{prefix}ssl.client.auth"):
        client_auth = NONE  # the user is that of SASL; Kafka then ignores the config without the prefix
    try:
        key_store, trust_store = KeyStore.of(of_store), TrustStore.of(of_store)
    except StoreError as error:
        raise ConfigError(f"listener {listener}: {error}") from None
    if not key_store:
        raise ConfigError(f"listener {listener} has TLS, and neither ssl.keystore.location nor ssl.keystore.key is set")
    return TlsSettings(
        key_store,
        trust_store,
        client_auth,
        tuple(of("ssl.enabled.protocols", ())),
        tuple(of("ssl.cipher.suites", ())),
        of("ssl.principal.mapping.rules", DEFAULT_RULES),
        bool(of("ssl.allow.dn.changes", False)),
        bool(of("ssl.allow.san.changes", False)),
    )


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """Returns a context with which connections of clients are accepted. Raises StoreError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Java takes any certificate of the trust store as the end of a chain, not only a root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    set_protocols(context, list(settings.protocols))
    set_cipher_suites(context, list(settings.cipher_suites))
    settings.key_store.identity().load_into(context, settings.key_store.where)
    if settings.client_auth != NONE:
        _check_library()
        context.verify_mode = ssl.CERT_REQUIRED if settings.client_auth == REQUIRED else ssl.CERT_OPTIONAL
        if settings.trust_store:
            settings.trust_store.load_into(context)
        else:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    elif settings.trust_store:
        settings.trust_store.load_into(context)  # a store that cannot be read is refused at the start, as by Kafka
    return context


def check_replacement(old: TlsSettings, new: TlsSettings) -> None:
    """Checks that a key store may replace another one while the broker runs: the names in the certificates stay, unless
    `ssl.allow.dn.changes` and `ssl.allow.san.changes` let them change (KIP-1119). Raises StoreError.
    """
    if old.trust_store != new.trust_store and not old.trust_store:
        raise StoreError("Cannot add SSL truststore to an existing listener for which no truststore was configured.")
    if new.may_change_name and new.may_change_alternatives:
        return
    _check_library()
    (before, alternatives), (after, others) = names(old.key_store.identity().pem), names(new.key_store.identity().pem)
    if not new.may_change_name and before.lower() != after.lower():
        raise StoreError(
            "Keystore DistinguishedName does not match: "
            f" existing={{alias=kafka, DN={before}}}, new={{alias=kafka, DN={after}}}"
        )
    if not new.may_change_alternatives and not alternatives <= others:
        raise StoreError(
            "Keystore SubjectAltNames do not match: "
            f" existing={{alias=kafka, SAN={sorted(alternatives)}}}, new={{alias=kafka, SAN={sorted(others)}}}"
        )


def _check_library() -> None:
    if importlib.util.find_spec("cryptography") is None:
        raise StoreError("names in certificates need cryptography: pip install 'ottla[security]'")
