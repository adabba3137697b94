"""The security of a broker for tests in one word: certificates of a throw-away authority, users and passwords.

    plaintext        nothing
    ssl              TLS; the broker has a certificate
    mtls             TLS; the clients have certificates, too, and are the users that these name
    sasl_plaintext   users log in with PLAIN or SCRAM
    sasl_ssl         both
    oauth_plaintext  users log in with tokens, by OAUTHBEARER
    oauth_ssl        TLS and tokens

Everything is made for one broker and is worth nothing anywhere else. The server's key is never in a file. Tokens are
those without a signature that Kafka accepts by default: the login modules of Java and librdkafka make them by settings
alone. Needs the extra `security` for TLS. Sources: KIP-651 (PEM), KIP-371 (names of principals), KIP-255 (tokens).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ...protocol.security.oauthbearer import unsecured_token
from ..clock import wall_ms
from ..config.definitions import broker_fact
from ..config.security.sasl import JAAS_CONFIG, OAUTHBEARER, PLAIN, PLAIN_MODULE
from ..config.security.words import PLAINTEXT, PROTOCOLS
from ..config.serve_options import WILDCARDS, parse_address
from ..errors import ConfigError

if TYPE_CHECKING:
    import trustme

    from ..releases.profiles import Profile

ADMIN, USER = "admin", "user"
USERS = (ADMIN, USER)
BY_PASSWORD = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512")
TOKEN_LIFETIME_S = 3600
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
STATE = "security.json"
CA_FILE, TRUST_STORE_FILE, CLIENT_FILE = "security-ca.pem", "security-truststore.p12", "client.properties"
FILE_MODE = 0o600
ORGANIZATION = "ottla"
LONG_AGO = datetime(2001, 1, 2, tzinfo=UTC)
NAME_RULE = "RULE:^CN=([^,]+).*$/$1/,DEFAULT"
_STATE_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class Identity:
    """A private key (PKCS #8) and the chain of its certificate, both PEM."""

    key: str = field(repr=False)
    chain: str


@dataclass
class Security:
    """The security of one broker. `users` are passwords by name; `identities` the certificates of clients by user.

    `store_password` opens the PKCS12 files, which Java refuses to read without one.
    """

    word: str
    users: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    store_password: str = field(default="", repr=False)
    authority: Identity | None = None
    identities: Mapping[str, Identity] = field(default_factory=dict[str, Identity])
    names: tuple[str, ...] = ()
    """The names in the certificate of the broker."""
    folder: str | None = None
    """The folder of the files for clients, once they are written."""
    now_ms: Callable[[], int] = field(default=wall_ms, repr=False, compare=False)
    """The time of the broker, at which tokens are issued."""

    @property
    def protocol(self) -> str:
        """The security protocol by Kafka's name."""
        return PROTOCOLS[self.word]

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        """Whether clients log in."""
        return self.protocol.startswith("SASL")

    @property
    def is_mutual(self) -> bool:
        """Whether clients have certificates."""
        return self.word == "mtls"

    @property
    def has_tokens(self) -> bool:
        """Whether clients log in with tokens."""
        return self.word.startswith("oauth")

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The SASL mechanisms, the default of clients first."""
        return ((OAUTHBEARER,) if self.has_tokens else BY_PASSWORD) if self.has_sasl else ()

    @property
    def known(self) -> tuple[str, ...]:
        """The users that clients can be."""
        return USERS if self.has_tokens else tuple(self.users or self.identities)

    def token(self, user: str, lifetime_s: float = TOKEN_LIFETIME_S, **claims: Any) -> str:
        """Returns a token of OAUTHBEARER, issued now by the broker's clock; `claims` are more, or other ones."""
        now_ms = self.now_ms()
        times = {"iat": now_ms // 1000, "exp": (now_ms + round(lifetime_s * 1000)) / 1000}
        return unsecured_token({"sub": user, **times, **claims})

    # The broker

    def configs(self, listeners: Iterable[str], advertised: Iterable[str], profile: Profile) -> dict[str, str]:
        """Returns the configs of a broker with the listeners of `listeners` and `advertised.listeners`. Raises
        ConfigError if the release has no such listeners."""
        if self.word == PLAINTEXT:
            return {}
        named = [text.strip().partition("://") for text in listeners]
        names = [name.upper() for name, _, _ in named]
        hosts = [address for _, _, address in (*named, *(text.strip().partition("://") for text in advertised))]
        found = {"listener.security.protocol.map": ",".join(f"{name}:{self.protocol}" for name in names)}
        found["super.users"] = f"User:{ADMIN}"
        if self.has_sasl:
            if broker_fact("sasl.enabled.mechanisms", profile) is None:
                raise ConfigError(f"security {self.word} needs release 0.10.0 or newer, which has SASL mechanisms")
            found["sasl.enabled.mechanisms"] = ",".join(self.mechanisms)
            options = " ".join(f'user_{user}="{password}"' for user, password in self.users.items())
            for name in names if options else ():
                prefix = f"listener.name.{name.lower()}.{PLAIN.lower()}."
                found[f"{prefix}{JAAS_CONFIG}"] = f"{PLAIN_MODULE} required {options};"
        if self.has_tls:
            assert self.authority is not None
            self.names = tuple(sorted({*LOCAL_NAMES, *_names(hosts)}))
            server = self.issue(self.names)
            found["ssl.keystore.type"] = "PEM"
            found["ssl.keystore.certificate.chain"] = server.chain
            found["ssl.keystore.key"] = server.key
        if self.is_mutual:
            found["ssl.client.auth"] = "required"
            found["ssl.truststore.type"] = "PEM"
            found["ssl.truststore.certificates"] = self.authority.chain if self.authority else ""
            found["ssl.principal.mapping.rules"] = NAME_RULE
        return found

    def issue(self, names: Iterable[str], **more: Any) -> Identity:
        """Returns a new certificate for hosts, of this authority; `more` as for trustme's `issue_cert`."""
        assert self.authority is not None
        authority = _trustme().CA.from_pem(self.authority.chain.encode(), self.authority.key.encode())
        return _identity(authority.issue_cert(*names, organization_name=ORGANIZATION, **more))

    def bad_certificate(self, kind: str) -> tuple[str, str]:
        """Returns chain and key of a certificate for a fault: expired, wrong_host or untrusted."""
        if kind == "expired":
            bad = self.issue(self.names, not_before=LONG_AGO - timedelta(days=1), not_after=LONG_AGO)
        elif kind == "wrong_host":
            bad = self.issue(["elsewhere.test"])
        else:
            bad = Security(self.word, authority=_new_authority()).issue(self.names)
        return bad.chain, bad.key

    # Files

    def write(self, folder: str, *, with_state: bool = False) -> None:
        """Writes the files for clients into a folder, each readable by its owner alone, and with the state what `made`
        continues from. Raises OSError."""
        self.folder = folder
        for name, data in {**self.files(), **({STATE: self._state()} if with_state else {})}.items():
            self.add(name, data)

    def add(self, name: str, data: bytes) -> None:
        """Writes or replaces one more file; at no time may another user read it. Raises OSError."""
        path = self.path(name)
        made = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        with os.fdopen(made, "wb") as file:
            os.fchmod(made, FILE_MODE)
            file.write(data)
        os.replace(f"{path}.new", path)

    def files(self) -> dict[str, bytes]:
        """Returns the files for clients by name."""
        found: dict[str, bytes] = {}
        if self.authority is not None:
            found[CA_FILE] = self.authority.chain.encode()
            found[TRUST_STORE_FILE] = _trust_store(self.authority.chain, self.store_password)
        for user, identity in self.identities.items():
            found[f"security-{user}.pem"] = (identity.key + identity.chain).encode()
            found[f"security-{user}.p12"] = _key_store(identity, user, self.store_password)
        return found

    def path(self, name: str) -> str:
        """Returns the path of a file for clients."""
        assert self.folder is not None, "the files are not written"
        return os.path.join(self.folder, name)

    def _state(self) -> bytes:
        keys = {"authority": self.authority} if self.authority else {}
        identities = {name: [one.key, one.chain] for name, one in {**keys, **self.identities}.items()}
        value = {"users": dict(self.users), "store_password": self.store_password, "identities": identities}
        return json.dumps(value, indent=1).encode() + b"\n"


def made(word: str, state: bytes | None = None) -> Security:
    """Returns the security that a word names, with what an earlier broker has left of it. Raises ConfigError."""
    if word not in PROTOCOLS:
        raise ConfigError(f"security is one of {', '.join(PROTOCOLS)}, not {word!r}")
    found = Security(word)
    if word == PLAINTEXT:
        return found
    users, store_password, identities = _read(state)
    if PLAIN in found.mechanisms:
        found.users = {name: users.get(name) or secrets.token_urlsafe(18) for name in USERS}
    if found.has_tls:
        found.store_password = store_password or secrets.token_urlsafe(18)
        found.authority = identities.get("authority") or _new_authority()
    if found.is_mutual:
        found.identities = {
            user: identities.get(user) or found.issue([f"{user}.client.test"], common_name=user) for user in USERS
        }
    return found


def _read(state: bytes | None) -> tuple[dict[str, str], str, dict[str, Identity]]:
    if state is None:
        return {}, "", {}
    try:
        value = json.loads(state[:_STATE_BYTES_MAX])
        identities = {str(name): Identity(str(key), str(chain)) for name, (key, chain) in value["identities"].items()}
        users = {str(name): str(password) for name, password in value["users"].items()}
        return users, str(value["store_password"]), identities
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{STATE} is damaged: remove it, and clients need the new files") from error


def _names(addresses: Iterable[str]) -> Iterable[str]:
    """Returns the names for a certificate; for a host that means every interface, those of this machine."""
    for address in addresses:
        host = parse_address(address)[0]
        if host not in WILDCARDS:
            yield host.partition("%")[0]
            continue
        name = socket.gethostname()
        yield name
        with contextlib.suppress(OSError):  # the name of the machine does not resolve
            yield from {str(one[4][0]).partition("%")[0] for one in socket.getaddrinfo(name, None)}


def _trustme() -> Any:
    try:
        import trustme
    except ImportError as error:
        raise ConfigError("certificates for tests need trustme: pip install 'ottla[security]'") from error
    return trustme


def _new_authority() -> Identity:
    authority: trustme.CA = _trustme().CA(organization_name=ORGANIZATION, organization_unit_name="throw-away authority")
    return Identity(authority.private_key_pem.bytes().decode(), authority.cert_pem.bytes().decode())


def _identity(one: trustme.LeafCert) -> Identity:
    """Returns a certificate with its key as PKCS #8, the only form that Java reads."""
    from cryptography.hazmat.primitives import serialization as pem

    key: Any = pem.load_pem_private_key(one.private_key_pem.bytes(), None)
    text = key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption()).decode()
    return Identity(text, "".join(part.bytes().decode() for part in one.cert_chain_pems))


def _encryption(password: str) -> Any:
    """Returns the encryption of a PKCS12 file that Java reads from version 8 on (8u301)."""
    from cryptography.hazmat.primitives import serialization as pem

    return pem.BestAvailableEncryption(password.encode())


def _trust_store(chain: str, password: str) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import pkcs12

    certificate = pkcs12.PKCS12Certificate(x509.load_pem_x509_certificate(chain.encode()), b"ottla")
    return pkcs12.serialize_java_truststore([certificate], _encryption(password))


def _key_store(identity: Identity, name: str, password: str) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization as pem
    from cryptography.hazmat.primitives.serialization import pkcs12

    key: Any = pem.load_pem_private_key(identity.key.encode(), None)
    first, *rest = x509.load_pem_x509_certificates(identity.chain.encode())
    return pkcs12.serialize_key_and_certificates(name.encode(), key, first, rest, _encryption(password))
