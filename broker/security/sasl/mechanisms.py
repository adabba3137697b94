"""The mechanisms: the exchange of one authentication on the side of the broker.

An exchange takes the client's tokens one after the other and returns the broker's; it `is_complete` with the name of
the `user`. A library for SCRAM (scramp) was tried: it refuses the extensions of Kafka's delegation tokens, an authzid
and salts below 12 bytes, and prepares names by SASLprep, all unlike Kafka.

Sources: RFC 4616 (PLAIN), RFC 5802 and 7677 (SCRAM), Kafka's PlainSaslServer, ScramSaslServer and ScramMessages.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ....protocol.security import scram
from ...config.control_access import is_same
from ..scram import HASHES, Credential, Mechanism, ScramCredentials, decoy

if TYPE_CHECKING:
    from ..tokens import DelegationTokens


class SaslError(Exception):
    """The exchange has failed. The text is for the client; without one it gets Kafka's text for all mechanisms.

    `reason` is for the log, where it is not the text.
    """

    def __init__(self, text: str = "", reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


class Dropped(Exception):
    """The exchange has failed in a way after which Kafka closes the connection at once, without a response. The text is
    for the log."""


class Unnamed(Exception):
    """The client is authenticated, and what it proved has no name of a user. The text is for the log."""


class Exchange(ABC):
    user = ""
    """The name that was proved, once the exchange is complete; by a delegation token that of its owner."""
    expires_ms: int | None = None
    """The time at which the client's credential ends; None without one. The session ends by then (KIP-368)."""
    token_authenticated = False
    """Whether the credential is a delegation token (KIP-48)."""
    is_complete = False

    @abstractmethod
    def respond(self, token: bytes, now_ms: int, /) -> bytes | None:
        """Takes a token and returns the broker's; None for none, which differs from an empty one where tokens have no
        header. `now_ms` is the wall time. Raises SaslError, Dropped, Unnamed."""


class PlainExchange(Exchange):
    """PLAIN: one token with the user's name and password (RFC 4616). Passwords are those of the login module."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def respond(self, token: bytes, _now_ms: int = 0, /) -> bytes:
        parts = token.decode(errors="replace").split("\0")
        if len(parts) != 3:
            raise SaslError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(parts), 4)}")
        authzid, user, password = parts
        if not user:
            raise SaslError("Authentication failed: username not specified")
        if not password:
            raise SaslError("Authentication failed: password not specified")
        expected = self._passwords.get(user)
        # An unknown name takes the time of a wrong password, so that names cannot be found by time.
        is_equal = is_same(password, "" if expected is None else expected)
        if expected is None or not is_equal:
            raise SaslError("Authentication failed: Invalid username or password")
        if authzid and authzid != user:
            raise SaslError(_OTHER_USER)
        self.user, self.is_complete = user, True
        return b""


_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"[A-Za-z0-9/+]*={0,2}"
_EXTENSIONS = rf"(?P<extensions>(?:,[A-Za-z]+={_VALUE})*)"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,(?P<bare>(?:m={_VALUE},)?n=(?P<user>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<signed>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE})){_EXTENSIONS},p=(?P<proof>{_BASE64})"
)
_TOKEN_DECOY_SECRET = secrets.token_bytes(32)
_TOKEN_AUTH = re.compile(r",tokenauth=([^,]*)")
_OTHER_USER = "Authentication failed: Client requested an authorization id that is different from username"


class ScramExchange(Exchange):
    """SCRAM-SHA-256 or -512: two tokens of the client, without channel binding (RFC 5802).

    With the extension `tokenauth=true` the name is the id of a delegation token and the password its secret in Base64;
    the client is authenticated as the owner (KIP-48). Other extensions are ignored.

    Unlike in Kafka, an unknown name fails with the second token, as a wrong password does: until then the exchange has
    a salt and iterations as those of a known name, and both take the same time.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        credentials: ScramCredentials,
        tokens: DelegationTokens,
        nonce: str | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._tokens = tokens
        self._nonce = secrets.token_urlsafe(24) if nonce is None else nonce
        self._hash = HASHES[mechanism]
        self._credential: Credential | None = None
        self._is_known = False
        self._server_first = ""
        self._bare = ""

    def respond(self, token: bytes, _now_ms: int = 0, /) -> bytes:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise SaslError from None
        return (self._first(text) if self._credential is None else self._final(text)).encode()

    def _first(self, text: str) -> str:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise SaslError
        user = _unescaped(match["user"])
        authzid = match["authzid"]
        if authzid is not None and _unescaped(authzid) != user:
            raise SaslError(_OTHER_USER)
        self.token_authenticated = _is_token(match["extensions"])
        self._credential = self._of_token(user) if self.token_authenticated else self._of_user(user)
        self._nonce = match["nonce"] + self._nonce
        self._bare = match["bare"]
        salt = base64.b64encode(self._credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        return self._server_first

    def _of_user(self, user: str) -> Credential:
        # Made for each name: a response that comes sooner would show that it is known.
        made = self._credentials.decoy(user, self._mechanism)
        found = self._credentials.find(user, self._mechanism)
        self._is_known = found is not None
        self.user = user
        return made if found is None else found

    def _of_token(self, token_id: str) -> Credential:
        made = decoy(_TOKEN_DECOY_SECRET, token_id, self._hash)
        token = self._tokens.find(token_id)
        self._is_known = token is not None
        if token is None:
            return made
        self.user, self.expires_ms = token.owner.partition(":")[2], token.expiry_ms
        return self._tokens.credential(token, self._mechanism)

    def _final(self, text: str) -> str:
        match = _CLIENT_FINAL.fullmatch(text)
        credential = self._credential
        assert credential is not None
        if match is None or match["nonce"] != self._nonce:
            raise SaslError
        try:
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error:
            raise SaslError from None
        signed = f"{self._bare},{self._server_first},{match['signed']}".encode()
        signature = scram.signature(self._hash, credential.stored_key, signed)
        if len(proof) != len(signature):
            raise SaslError
        stored_key = scram.stored_key(self._hash, scram.combined(proof, signature))
        is_proved = hmac.compare_digest(stored_key, credential.stored_key)
        if not is_proved or not self._is_known:
            raise SaslError
        self.is_complete = True
        verifier = scram.signature(self._hash, credential.server_key, signed)
        return f"v={base64.b64encode(verifier).decode()}"


def _is_token(extensions: str) -> bool:
    """Returns whether the name is the id of a delegation token. Kafka uses the last of several extensions of a name."""
    found = _TOKEN_AUTH.findall(extensions)
    return bool(found) and found[-1].lower() == "true"


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
