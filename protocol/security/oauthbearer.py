"""Bytes of SASL/OAUTHBEARER: the client's messages, and JSON web tokens (JWT) as both sides read them.

No signature is verified here. Names, patterns and the form of unsecured tokens are those of Kafka
(OAuthBearerClientInitialResponse, OAuthBearerUnsecuredJws). Sources: RFC 7628 (OAUTHBEARER), RFC 7519 (JWT), KIP-255,
KIP-342 (extensions).
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ..named import NamedTuple

if TYPE_CHECKING:
    import ssl

MECHANISM = "OAUTHBEARER"
LOGIN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SEPARATOR = "\x01"
ERROR_SEEN = b"\x01"
"""The client's message after the broker's error."""
AUTH = "auth"
LONG_MAX = 2**63 - 1
JAVA_BLANK = "".join(map(chr, range(33)))
"""What Java's `String.trim` removes."""

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_KEY = r"[A-Za-z]+"
_VALUE = r"[\x21-\x7e \t\r\n]+"
_CLIENT_FIRST = re.compile(rf"n,(?:a=(?P<authzid>{_NAME}))?,\x01(?P<pairs>(?:{_KEY}={_VALUE}\x01)*)\x01")
_AUTHORIZATION = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9_-]*={0,2}")


class ClientFirst(NamedTuple):
    """The first message of a client. `authzid` is empty without an authorization id."""

    token: str
    authzid: str
    extensions: dict[str, str]


def parse_client_first(data: bytes) -> ClientFirst:
    """Parses the first message of a client. Raises ValueError; its text has no token."""
    match = _CLIENT_FIRST.fullmatch(data.decode(errors="replace"))
    if match is None:
        raise ValueError("the first message of OAUTHBEARER is malformed")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split(SEPARATOR) if pair)
    authorization = _AUTHORIZATION.fullmatch(pairs.pop(AUTH, ""))
    if authorization is None:
        raise ValueError("the first message of OAUTHBEARER has no bearer token")
    if authorization["scheme"].lower() != "bearer":
        raise ValueError("the first message of OAUTHBEARER has another scheme than bearer")
    return ClientFirst(authorization["token"], match["authzid"] or "", pairs)


def client_first(token: str, extensions: Mapping[str, str] | None = None) -> bytes:
    """Returns the first message of a client. Raises ValueError for a token or an extension that the message cannot
    carry."""
    if not _AUTHORIZATION.fullmatch(f"Bearer {token}"):
        raise ValueError("the token is empty, or has characters that no bearer token has")
    found = extensions or {}
    check_extensions(found)
    pairs = "".join(f"{name}={value}{SEPARATOR}" for name, value in found.items())
    return f"n,,{SEPARATOR}{AUTH}=Bearer {token}{SEPARATOR}{pairs}{SEPARATOR}".encode()


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Raises ValueError for a name or value of an extension that RFC 7628 does not have."""
    for name, value in extensions.items():
        if name == AUTH or not re.fullmatch(_KEY, name):
            raise ValueError(f"the name of the extension {name!r:.100} is invalid: expected letters, and not {AUTH}")
        if not re.fullmatch(_VALUE, value):
            raise ValueError(f"the value of the extension {name} is invalid: expected one or more ASCII characters")


def error_response(status: str, scope: str | None = None) -> str:
    """Returns the broker's error as Kafka sends it, character for character."""
    return f'{{"status":"{status}"' + (f', "scope":"{scope}"' if scope is not None else "") + "}"


def sections(token: str) -> tuple[str, str, str]:
    """Returns header, payload and signature of a token, as they are. Raises ValueError unless there are three."""
    parts = token.split(".")
    if len(parts) != 3 or not parts[0] or not parts[1]:
        raise ValueError("the token does not have three sections with a dot between them")
    return parts[0], parts[1], parts[2]


def decoded(section: str) -> bytes:
    """Decodes base64url, with or without padding. Raises ValueError."""
    bare = section.rstrip("=")
    if not _BASE64.fullmatch(section) or len(bare) % 4 == 1 or (section != bare and len(section) % 4):
        raise ValueError("a section of the token is not base64url")
    return base64.urlsafe_b64decode(bare + "=" * (-len(bare) % 4))


def encoded(data: bytes) -> str:
    """Encodes as base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def json_object(section: str, *, strict: bool = False) -> dict[str, Any]:
    """Returns the JSON object of a section; of another JSON value, an empty one, as Kafka does.

    As Kafka reads unsecured tokens, other text may follow the value. With `strict` it may not, and a name that occurs
    twice is an error, as in signed tokens. Raises ValueError.
    """
    decoder = json.JSONDecoder(parse_constant=_refused, object_pairs_hook=_unique if strict else None)
    try:
        text = decoded(section).decode().strip()
        value = decoder.decode(text) if strict else decoder.raw_decode(text)[0]
    except (ValueError, RecursionError):
        raise ValueError("a section of the token is malformed") from None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _refused(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def unsecured_token(claims: Mapping[str, Any]) -> str:
    """Returns a token without a signature (`"alg":"none"`)."""
    texts = (json.dumps(part, separators=(",", ":")) for part in ({"alg": "none"}, claims))
    return ".".join([*(encoded(text.encode()) for text in texts), ""])


def scopes(text: str) -> tuple[str, ...]:
    """Returns the scopes in a text with spaces between them. Raises ValueError for characters that no scope has."""
    found = tuple(part for part in text.split(" ") if part)
    if not all(re.fullmatch(r"[\x21\x23-\x5b\x5d-\x7e]+", part) for part in found):
        raise ValueError("a scope has characters other than ASCII without spaces, quotes and backslashes")
    return found


def double(number: Any) -> float | None:
    """Returns the number of a claim as Java's double, infinite for one that is too large; None for no number."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def millis(seconds: float) -> int:
    """Returns seconds in ms, rounded and bounded as Java's long."""
    if math.isinf(ms := seconds * 1000):
        return LONG_MAX if ms > 0 else -LONG_MAX - 1
    return max(-LONG_MAX - 1, min(math.floor(ms + 0.5), LONG_MAX))


def trust_options(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of the login module about the trust store of an HTTPS URL of tokens or keys."""
    return {name: text for name, text in options.items() if name.startswith("ssl.truststore.")}


def https_context(options: Mapping[str, str]) -> ssl.SSLContext:
    """Returns the context of connections to an HTTPS URL. Without a trust store in `options` the certificates of the
    system are trusted. Raises ValueError for a store that cannot be read."""
    import ssl  # few clients and brokers have such a URL

    from .key_stores import TrustStore

    trusted = TrustStore.of(options.get)
    if not trusted:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Java takes any certificate of the trust store as the end of a chain, not only a root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trusted.load_into(context)
    return context


def joined(names: Iterable[str]) -> str:
    """Returns names as Java shows a list."""
    return f"[{', '.join(names)}]"
