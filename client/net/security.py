"""The security options of all clients: `security.protocol`, the login, and TLS, by the names of Kafka, librdkafka and
kafka-python.

The one list of these names: producer, consumer and admin, `--command-config` of the commands, and the `kafka.*` options
of the Spark sources and of the sink take theirs from here.
"""

from __future__ import annotations

import dataclasses
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...protocol.limits import INT32_MAX
from ...protocol.security.jaas import parse_jaas
from ...protocol.security.key_stores import PEM, KeyStore, StoreError, TrustStore, set_cipher_suites, set_protocols
from ...protocol.security.oauthbearer import trust_options
from .assertion import Assertion
from .bearer import Endpoint, bearer_login
from .errors import ConfigError
from .kerberos import kerberos_login
from .sasl import GSSAPI, MECHANISMS, OAUTHBEARER, Login, LoginMethod

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
HTTPS = "https"
RETRIEVERS = "org.apache.kafka.common.security.oauthbearer."
FILE, BY_URL, BY_SECRET, BY_ASSERTION = (
    f"{name}JwtRetriever" for name in ("File", "Default", "ClientCredentials", "JwtBearer")
)
_WORD = re.compile(r" '.*'")
TLS_PROTOCOLS = ("TLS", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3", "SSL", "SSLv2", "SSLv3")

# Names of options that have another field name.
ALIASES = {
    "sasl_plain_username": "sasl_username",  # kafka-python
    "sasl_plain_password": "sasl_password",
    "ssl_cafile": "ssl_ca_location",
    "ssl_certfile": "ssl_certificate_location",
    "ssl_keyfile": "ssl_key_location",
    "ssl_password": "ssl_key_password",
    "ssl_ciphers": "ssl_cipher_suites",
    "sasl_mechanisms": "sasl_mechanism",  # librdkafka
    "sasl_oauthbearer_client_id": "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_secret": "sasl_oauthbearer_client_credentials_client_secret",
    "ssl_ca_pem": "ssl_truststore_certificates",
    "ssl_certificate_pem": "ssl_keystore_certificate_chain",
    "ssl_key_pem": "ssl_keystore_key",
}

WITHOUT_EFFECT = frozenset(
    """sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class security.providers
    ssl.engine.factory.class ssl.keymanager.algorithm ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm""".split()
)
"""Names of Kafka's clients, about classes of Java, that files and Spark options may have without effect;"""
_WITHOUT_EFFECT_BEGIN = ("sasl.kerberos.", "sasl.login.", "sasl.oauthbearer.")
"""and the beginnings of such names."""


def _secret() -> Any:
    return dataclasses.field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityOptions:
    """How a client logs in, and its TLS. Raises ConfigError for values that contradict each other.

    A `repr` has neither passwords nor keys. The files of the stores are read by `tls`, not before.
    """

    security_protocol: str = PLAINTEXT
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = _secret()
    sasl_jaas_config: str | None = _secret()  # username and password, or options of tokens, in Java's form
    sasl_oauth_token_provider: Any = dataclasses.field(default=None, repr=False)  # see `bearer.py`
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    sasl_oauthbearer_client_credentials_client_secret: str | None = _secret()
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_header_urlencode: bool = False
    sasl_oauthbearer_jwt_retriever_class: str = f"{RETRIEVERS}{BY_URL}"
    sasl_oauthbearer_assertion_file: str | None = None
    sasl_oauthbearer_assertion_algorithm: str = "RS256"
    sasl_oauthbearer_assertion_private_key_file: str | None = None
    sasl_oauthbearer_assertion_private_key_passphrase: str | None = _secret()
    sasl_oauthbearer_assertion_template_file: str | None = None
    sasl_oauthbearer_assertion_claim_aud: str | None = None
    sasl_oauthbearer_assertion_claim_iss: str | None = None
    sasl_oauthbearer_assertion_claim_sub: str | None = None
    sasl_oauthbearer_assertion_claim_exp_seconds: int = 300
    sasl_oauthbearer_assertion_claim_nbf_seconds: int = 60
    sasl_oauthbearer_assertion_claim_jti_include: bool = False
    sasl_kerberos_service_name: str | None = None
    sasl_kerberos_principal: str | None = None  # these two as of librdkafka; Java has them in sasl.jaas.config
    sasl_kerberos_keytab: str | None = None
    sasl_login_retry_backoff_ms: int = 100
    sasl_login_retry_backoff_max_ms: int = 10_000
    ssl_truststore_location: str | None = None
    ssl_truststore_type: str | None = None  # PEM for certificates in a config, otherwise Kafka's default, JKS
    ssl_truststore_password: str | None = _secret()
    ssl_truststore_certificates: str | None = _secret()
    ssl_keystore_location: str | None = None
    ssl_keystore_type: str | None = None
    ssl_keystore_password: str | None = _secret()
    ssl_keystore_certificate_chain: str | None = _secret()
    ssl_keystore_key: str | None = _secret()
    ssl_key_password: str | None = _secret()
    ssl_ca_location: str | None = None  # PEM files, as of librdkafka and kafka-python
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_endpoint_identification_algorithm: str = HTTPS  # empty: the host is not checked
    ssl_check_hostname: bool = True
    enable_ssl_certificate_verification: bool = True
    ssl_enabled_protocols: str | Iterable[str] = "TLSv1.2,TLSv1.3"
    ssl_protocol: str = "TLSv1.3"  # of Java's SSLContext; ssl.enabled.protocols decides
    ssl_cipher_suites: str | Iterable[str] | None = None

    def __post_init__(self) -> None:
        self.login  # noqa: B018  # raises ConfigError
        if self.has_tls:
            self._check_tls()

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def protocol(self) -> str:
        """`security_protocol` in capital letters. Raises ConfigError for an unknown one."""
        found = str(self.security_protocol).upper()
        if found not in PROTOCOLS:
            known = ", ".join(PROTOCOLS)
            raise ConfigError(f"security.protocol must be one of {known}, not {self.security_protocol!r}")
        return found

    @property
    def login(self) -> LoginMethod | None:
        """The mechanism with name and password, or the tokens; None without SASL. Raises ConfigError."""
        if not self.protocol.startswith("SASL"):
            return None
        if self.sasl_mechanism not in MECHANISMS:
            raise ConfigError(f"sasl.mechanism must be one of {', '.join(MECHANISMS)}, not {self.sasl_mechanism!r}")
        options = {} if self.sasl_jaas_config is None else _module_options(self.sasl_jaas_config)
        if self.sasl_mechanism == OAUTHBEARER:
            return self._bearer_login(options)
        if self.sasl_mechanism == GSSAPI:
            service, principal = self.sasl_kerberos_service_name, self.sasl_kerberos_principal
            return kerberos_login(options, service, principal, self.sasl_kerberos_keytab)
        username, password = options.get("username", self.sasl_username), options.get("password", self.sasl_password)
        by_token = options.get("tokenauth", "").lower() == "true"
        if not username or not password:
            raise ConfigError("SASL needs sasl.username and sasl.password, or sasl.jaas.config with both")
        return Login(self.sasl_mechanism, username, password, by_token)

    def _bearer_login(self, options: Mapping[str, str]) -> LoginMethod:
        first_ms, max_ms = self.sasl_login_retry_backoff_ms, self.sasl_login_retry_backoff_max_ms
        for name, ms in (("backoff.ms", first_ms), ("backoff.max.ms", max_ms)):
            if isinstance(ms, bool) or not 0 <= ms <= INT32_MAX:
                raise ConfigError(f"sasl.login.retry.{name} must be an integer from 0 to {INT32_MAX}, not {ms!r}")
        url = self.sasl_oauthbearer_token_endpoint_url
        endpoint = None if url is None else self._endpoint(url, options)
        return bearer_login(self.sasl_oauth_token_provider, endpoint, options, first_ms, max_ms)

    def _endpoint(self, url: str, options: Mapping[str, str]) -> Endpoint:
        retriever = self.sasl_oauthbearer_jwt_retriever_class.removeprefix(RETRIEVERS)
        if retriever not in (FILE, BY_URL, BY_SECRET, BY_ASSERTION):
            known = ", ".join((FILE, BY_URL, BY_SECRET, BY_ASSERTION))
            raise ConfigError(f"sasl.oauthbearer.jwt.retriever.class must be one of {RETRIEVERS}: {known}")
        is_file = url.strip().lower().startswith("file:")
        if retriever != BY_URL and is_file != (retriever == FILE):
            raise ConfigError(f"sasl.oauthbearer.token.endpoint.url is not one of {retriever}: {url!r:.200}")
        return Endpoint(
            url,
            self.sasl_oauthbearer_client_credentials_client_id or options.get("clientId"),
            self.sasl_oauthbearer_client_credentials_client_secret or options.get("clientSecret"),
            self.sasl_oauthbearer_scope or options.get("scope"),
            trust_options(options),
            None if is_file else self._assertion(retriever == BY_ASSERTION),
            retriever == BY_ASSERTION,
            self.sasl_oauthbearer_header_urlencode,
        )

    def _assertion(self, is_grant: bool) -> Assertion | None:
        """Returns how assertions are made; None for client credentials with a secret."""
        names = [one.name for one in dataclasses.fields(Assertion)]
        given = {name: getattr(self, f"sasl_oauthbearer_assertion_{name}") for name in names}
        if not is_grant and given["file"] is None and given["claim_iss"] is None:
            return None
        try:
            return Assertion(**given)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def tls(self) -> ssl.SSLContext | None:
        """Returns the context of connections, from the stores as they are now; None without TLS. Raises ConfigError.

        Without a trust store the certificates of the system are trusted.
        """
        if not self.has_tls:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self._checks_host()
        if not self.enable_ssl_certificate_verification:
            context.verify_mode = ssl.CERT_NONE
        # Java takes any certificate of the trust store as the end of a chain, not only a root.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            self._set_suites(context)
            if trusted := self._trust_store():
                trusted.load_into(context)
            else:
                context.load_default_certs()
            if own := self._key_store():
                own.identity().load_into(context, own.where)
        except StoreError as error:
            raise ConfigError(str(error)) from None
        return context

    def _check_tls(self) -> None:
        if self.ssl_endpoint_identification_algorithm.lower() not in (HTTPS, "", "none"):
            given = self.ssl_endpoint_identification_algorithm
            raise ConfigError(f"ssl.endpoint.identification.algorithm must be {HTTPS} or empty, not {given!r}")
        if self.ssl_protocol not in TLS_PROTOCOLS:
            raise ConfigError(f"ssl.protocol must be one of {', '.join(TLS_PROTOCOLS)}, not {self.ssl_protocol!r}")
        try:
            self._trust_store()
            if self.ssl_key_location is None or self.ssl_certificate_location is None:
                self._key_store()
        except StoreError as error:
            raise ConfigError(str(error)) from None

    def _checks_host(self) -> bool:
        named = self.ssl_endpoint_identification_algorithm.lower() == HTTPS
        return named and self.ssl_check_hostname and self.enable_ssl_certificate_verification

    def _set_suites(self, context: ssl.SSLContext) -> None:
        set_protocols(context, _listed(self.ssl_enabled_protocols))
        suites = _listed(self.ssl_cipher_suites or ())
        if all(suite.startswith("TLS_") for suite in suites):
            set_cipher_suites(context, suites)
            return
        try:
            context.set_ciphers(":".join(suites))  # librdkafka and kafka-python have OpenSSL's names
        except ssl.SSLError:
            raise StoreError(f"ssl.cipher.suites: OpenSSL has none of {', '.join(suites)}") from None

    def _trust_store(self) -> TrustStore:
        if self.ssl_ca_location is not None:
            if self.ssl_truststore_location is not None or self.ssl_truststore_certificates is not None:
                raise StoreError("ssl.ca.location cannot be combined with ssl.truststore.location or .certificates")
            return TrustStore(PEM, self.ssl_ca_location)
        return TrustStore.of(self._value)

    def _key_store(self) -> KeyStore:
        certificate, key = self.ssl_certificate_location, self.ssl_key_location
        if certificate is not None or key is not None:
            if self.ssl_keystore_location is not None or self.ssl_keystore_key is not None:
                raise StoreError("ssl.certificate.location cannot be combined with ssl.keystore.location or .key")
            if certificate is None:
                raise StoreError("ssl.key.location is set, and ssl.certificate.location is not")
            if key is None:  # one file with both
                return KeyStore(PEM, certificate, key_password=self.ssl_key_password)
            return KeyStore(PEM, key_password=self.ssl_key_password, chain=_text(certificate), key=_text(key))
        return KeyStore.of(self._value)

    def _value(self, name: str) -> str | None:
        return getattr(self, name.replace(".", "_"))


def _module_options(text: str) -> dict[str, str]:
    try:
        return parse_jaas(text).options
    except ValueError as error:
        # A word of the text may be a part of a password without quotes.
        raise ConfigError(f"sasl.jaas.config: {_WORD.sub('', str(error))}") from None


def _listed(given: str | Iterable[str]) -> list[str]:
    parts = re.split("[,:]", given) if isinstance(given, str) else [str(one) for one in given]
    return [part.strip() for part in parts if part.strip()]


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: {error.strerror if isinstance(error, OSError) else error}") from None


def is_security(name: str) -> bool:
    """Returns whether a name, with dots or underscores, is an option of SecurityOptions."""
    key = name.replace(".", "_")
    return ALIASES.get(key, key) in SecurityOptions.__dataclass_fields__


def is_without_effect(name: str) -> bool:
    """Returns whether a dotted name is a security option of Kafka's Java clients that has no effect here."""
    return name in WITHOUT_EFFECT or name.startswith(_WITHOUT_EFFECT_BEGIN)


class Settings(dict[str, str]):
    """Client options by name, whose `repr` shows no value that may be a password or a key."""

    def __repr__(self) -> str:
        return repr({name: "[hidden]" if is_secret(name) else value for name, value in self.items()})

    def __reduce__(self) -> tuple[type[Settings], tuple[dict[str, str]]]:
        return Settings, (dict(self),)


def is_secret(name: str) -> bool:
    """Returns whether the value of a name, with dots or underscores, may be a password or a key: that of every security
    option but the known ones that are none."""
    key = name.replace(".", "_")
    field = SecurityOptions.__dataclass_fields__.get(ALIASES.get(key, key))
    return key.startswith(("sasl_", "ssl_")) if field is None else not field.repr
