"""The settings with which a client of each library connects to a broker of known security.

A value is what the library's constructor takes: a dict, or for kcat a list of arguments. Files are those that
`Security` has written.

Tokens of OAUTHBEARER: a library of Python calls back for each login, and receives a token that is issued by the clock
of the broker, so that it logs in again wherever that clock is moved. Other libraries make their tokens by the clock of
their machine, or have one in the settings; those tokens last for years.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ...protocol.named import NamedTuple
from ...protocol.security.oauthbearer import LOGIN_MODULE, MECHANISM
from ..clock import wall_ms
from ..config.security.sasl import PLAIN, PLAIN_MODULE
from .security import ADMIN, CA_FILE, TOKEN_LIFETIME_S, TRUST_STORE_FILE, Security

LASTING_S = 10 * 365 * 86_400
LIBRDKAFKA_KEEPS_MS = 2000
"""Until then librdkafka logs in with a token that it has, also where the broker refuses it."""
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Login(NamedTuple):
    """The user of a client, and the mechanism of its login; no mechanism without SASL."""

    bootstrap: str
    security: Security
    user: str
    mechanism: str | None
    token_lifetime_s: int | None = None

    @property
    def password(self) -> str:
        """The user's password."""
        return self.security.users[self.user]

    @property
    def has_token(self) -> bool:
        """Whether the client logs in with tokens."""
        return self.mechanism == MECHANISM

    def token(self) -> str:
        """Returns a token for one login."""
        return self.security.token(self.user, self.token_lifetime_s or TOKEN_LIFETIME_S)

    @property
    def lasting_s(self) -> int:
        """The lifetime of tokens that are not issued by the clock of the broker, or not for one login."""
        return self.token_lifetime_s or LASTING_S

    def lasting_token(self) -> str:
        """Returns a token for a client that has no other."""
        return self.security.token(self.user, self.lasting_s)

    @property
    def authority(self) -> str | None:
        """The file of the authority's certificate; None without TLS."""
        return self.security.path(CA_FILE) if self.security.has_tls else None

    @property
    def identity(self) -> str | None:
        """The file with the user's certificate and key; None unless clients have certificates."""
        return self.security.path(f"security-{self.user}.pem") if self.security.is_mutual else None


def client_settings(
    library: str,
    bootstrap: str,
    security: Security,
    user: str | None = None,
    mechanism: str | None = None,
    token_lifetime_s: int | None = None,
) -> Any:
    """Returns the settings for a library, one of LIBRARIES. Raises ValueError for an unknown name."""
    if library not in LIBRARIES:
        raise ValueError(f"client settings are for one of {', '.join(LIBRARIES)}, not {library!r}")
    if user is not None and user not in security.known:
        has = f"its users are {', '.join(security.known)}" if security.known else "it has no users"
        raise ValueError(f"there is no user {user!r}: the security of this broker is {security.word}, and {has}")
    known = security.mechanisms
    if mechanism is not None and mechanism not in known:
        has = f"its mechanisms are {', '.join(known)}" if known else "it has no logins"
        raise ValueError(f"no mechanism {mechanism!r}: the security of this broker is {security.word}, and {has}")
    if token_lifetime_s is not None and not security.has_tokens:
        raise ValueError(f"token_lifetime_s: the security of this broker is {security.word}, which has no tokens")
    if token_lifetime_s is not None and token_lifetime_s < 1:
        raise ValueError(f"token_lifetime_s must be a number of seconds from 1 on, not {token_lifetime_s}")
    chosen = mechanism or (known[0] if known else None)
    return LIBRARIES[library](Login(bootstrap, security, user or ADMIN, chosen, token_lifetime_s))


def _librdkafka(login: Login) -> dict[str, Any]:
    found: dict[str, Any] = {"bootstrap.servers": login.bootstrap, "security.protocol": login.security.protocol.lower()}
    if login.authority is not None:
        found["ssl.ca.location"] = login.authority
    if login.identity is not None:
        found |= {"ssl.certificate.location": login.identity, "ssl.key.location": login.identity}
    if login.mechanism is not None:
        found["sasl.mechanism"] = login.mechanism
        if not login.has_token:
            found |= {"sasl.username": login.user, "sasl.password": login.password}
    return found


def _confluent_kafka(login: Login) -> dict[str, Any]:
    def callback(config: str) -> tuple[str, float]:
        return login.token(), (wall_ms() + LIBRDKAFKA_KEEPS_MS) / 1000

    return _librdkafka(login) | ({"oauth_cb": callback} if login.has_token else {})


def _python(login: Login) -> dict[str, Any]:
    found: dict[str, Any] = {"bootstrap_servers": login.bootstrap, "security_protocol": login.security.protocol}
    if login.mechanism is not None:
        found["sasl_mechanism"] = login.mechanism
        if not login.has_token:
            found |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
    return found


def _token_provider(token: Callable[[], Any], *modules: str) -> Any:
    """Returns a token provider of the class of a library, which is in the first of these modules that there is."""
    *others, last = modules
    found = next((name for name in others if _is_there(name)), last)
    base: Any = import_module(found).AbstractTokenProvider

    def of_library(self: Any) -> Any:
        return token()

    return type("TokenProvider", (base,), {"token": of_library})()


def _is_there(module: str) -> bool:
    try:
        import_module(module)
    except ImportError:
        return False
    return True


def _kafka_python(login: Login) -> dict[str, Any]:
    found = _python(login)
    if login.has_token:
        modules = "kafka.net.sasl.oauth", "kafka.sasl.oauth", "kafka.oauth.abstract"  # of 3, 2.1 and 2.0
        found["sasl_oauth_token_provider"] = _token_provider(login.token, *modules)
    if login.authority is not None:
        found["ssl_cafile"] = login.authority
    if login.identity is not None:
        found |= {"ssl_certfile": login.identity, "ssl_keyfile": login.identity}
    return found


def _aiokafka(login: Login) -> dict[str, Any]:
    import ssl

    async def token() -> str:
        return login.token()

    found = _python(login)
    if login.has_token:
        found["sasl_oauth_token_provider"] = _token_provider(token, "aiokafka.abc")
    if login.authority is not None:
        found["ssl_context"] = context = ssl.create_default_context(cafile=login.authority)
        if login.identity is not None:
            context.load_cert_chain(login.identity)
    return found


def _dotted(login: Login) -> dict[str, Any]:
    """Returns the names that Java's client and `ottla.client` have in common.

    Certificates are texts: a file with them can be copied out of a container, and some releases of Java's client refuse
    a file of PEM whose key is not encrypted.
    """
    security = login.security
    found: dict[str, Any] = {"bootstrap.servers": login.bootstrap, "security.protocol": security.protocol}
    if security.authority is not None:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": security.authority.chain}
    if security.is_mutual:
        identity = security.identities[login.user]
        found["ssl.keystore.type"] = "PEM"
        found |= {"ssl.keystore.certificate.chain": identity.chain, "ssl.keystore.key": identity.key}
    if login.mechanism is not None:
        found["sasl.mechanism"] = login.mechanism
    return found


def _ottla(login: Login) -> dict[str, Any]:
    found = _dotted(login)
    if login.has_token:  # with an end that is past, so that each login has another one
        found["sasl.oauth.token.provider"] = lambda: (login.token(), 0)
    elif login.mechanism is not None:
        found |= {"sasl.username": login.user, "sasl.password": login.password}
    return found


def _java(login: Login) -> dict[str, Any]:
    found = _dotted(login)
    if login.has_token:
        options = f'unsecuredLoginStringClaim_sub="{login.user}" unsecuredLoginLifetimeSeconds="{login.lasting_s}"'
        found["sasl.jaas.config"] = f"{LOGIN_MODULE} required {options};"
    elif login.mechanism is not None:
        module = PLAIN_MODULE if login.mechanism == PLAIN else SCRAM_MODULE
        found["sasl.jaas.config"] = f'{module} required username="{login.user}" password="{login.password}";'
    return found


def _java_pkcs12(login: Login) -> dict[str, Any]:
    """Returns settings for Java's clients before 2.7, which do not read PEM."""
    security, found = login.security, _java(login)
    for name in ("ssl.truststore.certificates", "ssl.keystore.certificate.chain", "ssl.keystore.key"):
        found.pop(name, None)
    stores = {"truststore": TRUST_STORE_FILE if security.has_tls else None}
    stores["keystore"] = f"security-{login.user}.p12" if security.is_mutual else None
    for store, name in stores.items():
        if name is not None:
            found |= {
                f"ssl.{store}.type": "PKCS12",
                f"ssl.{store}.location": security.path(name),
                f"ssl.{store}.password": security.store_password,
            }
    if security.is_mutual:
        found["ssl.key.password"] = security.store_password
    return found


def _kcat(login: Login) -> list[str]:
    settings = _librdkafka(login)
    if login.has_token:
        settings["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
        settings["sasl.oauthbearer.config"] = f"principal={login.user} lifeSeconds={login.lasting_s}"
    flags = ["-b", str(settings.pop("bootstrap.servers"))]
    for name, value in settings.items():
        flags += ["-X", f"{name}={value}"]
    return flags


def _kafkajs(login: Login) -> dict[str, Any]:
    """Returns the JSON form of the argument of `new Kafka()`; certificates are texts. A token is `sasl.value`, and
    `sasl.oauthBearerProvider`, a function, is missing: `async () => settings.sasl`."""
    found: dict[str, Any] = {"brokers": login.bootstrap.split(",")}
    security = login.security
    if security.authority is not None:
        found["ssl"] = {"ca": [security.authority.chain]}
        if security.is_mutual:
            identity = security.identities[login.user]
            found["ssl"] |= {"cert": identity.chain, "key": identity.key}
    if login.mechanism is not None:
        found["sasl"] = {"mechanism": login.mechanism.lower()}
        found["sasl"] |= (
            {"value": login.lasting_token()}
            if login.has_token
            else {"username": login.user, "password": login.password}
        )
    return found


def _values(login: Login) -> dict[str, Any]:
    """Returns the plain values, for any other library."""
    found: dict[str, Any] = {
        "bootstrap": login.bootstrap,
        "protocol": login.security.protocol,
        "ca_file": login.authority,
        "certificate_and_key_file": login.identity,
        "mechanism": login.mechanism,
    }
    if login.mechanism is not None:
        found["user"] = login.user
        found |= {"token": login.lasting_token()} if login.has_token else {"password": login.password}
    return {name: value for name, value in found.items() if value is not None}


LIBRARIES: Mapping[str, Callable[[Login], Any]] = {
    "confluent-kafka": _confluent_kafka,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
    "ottla": _ottla,
    "java": _java,
    "java-pkcs12": _java_pkcs12,
    "kcat": _kcat,
    "kafkajs": _kafkajs,
    "values": _values,
}


def properties(settings: Mapping[str, Any]) -> str:
    """Returns the text of a properties file of Java."""
    escapes = str.maketrans({"\\": "\\\\", "\n": "\\n"})
    return "".join(f"{name}={str(value).translate(escapes)}\n" for name, value in settings.items())
