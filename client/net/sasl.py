"""SASL on the side of the client: the tokens of PLAIN and SCRAM, and the login of a connection. `bearer.py` has those
of OAUTHBEARER, `kerberos.py` those of GSSAPI.

Sources: RFC 4616 (PLAIN), RFC 5802 and 7677 (SCRAM), KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...protocol.errors import ErrorCode
from ...protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from ...protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from ...protocol.security import scram
from ...protocol.security.kerberos import MECHANISM as GSSAPI
from ...protocol.security.oauthbearer import MECHANISM as OAUTHBEARER
from .errors import KafkaError

PLAIN = "PLAIN"
TOKEN_AUTH = ",tokenauth=true"
BY_PASSWORD = (PLAIN, *scram.HASHES)
MECHANISMS = (*BY_PASSWORD, OAUTHBEARER, GSSAPI)
NONCE_BYTES = 18
ITERATIONS_MAX = 1_000_000
"""More iterations, of a broker that is none, would keep the client busy for minutes."""

Tokens: TypeAlias = Generator[bytes, bytes, None]


class LoginMethod(ABC):
    """How the connections of a client log in."""

    __slots__ = ()

    mechanism: str

    @abstractmethod
    async def begin(self, host: str = "") -> Tokens:
        """Returns the exchange of one login with the broker at `host`. Raises KafkaError, ConnectionLost."""

    def close(self) -> None:  # noqa: B027  # most methods have nothing to end
        """Ends what still runs for the next login."""


@dataclass(frozen=True, slots=True)
class Login(LoginMethod):
    """A mechanism with a user's name and password. With `by_token` these are the id and the secret of a delegation
    token, for SCRAM (KIP-48)."""

    mechanism: str
    username: str
    password: str = field(repr=False)
    by_token: bool = False

    async def begin(self, host: str = "") -> Tokens:
        """Returns `tokens`."""
        return self.tokens()

    def tokens(self) -> Tokens:
        """Yields the client's tokens; each broker's token is sent into the generator. Raises ValueError for a token
        that a broker which knows the password would not have sent."""
        return self._plain() if self.mechanism == PLAIN else self._scram(secrets.token_urlsafe(NONCE_BYTES))

    def _plain(self) -> Tokens:
        yield f"\0{self.username}\0{self.password}".encode()

    def _scram(self, nonce: str) -> Tokens:
        hash_name = scram.HASHES[self.mechanism]
        user = self.username.replace("=", "=3D").replace(",", "=2C")
        bare = f"n={user},r={nonce}{TOKEN_AUTH if self.by_token else ''}"
        first = (yield f"n,,{bare}".encode()).decode(errors="replace")
        found = dict(part.split("=", 1) for part in first.split(",") if "=" in part)
        if not found.keys() >= {"r", "s", "i"} or not found["r"].startswith(nonce) or found["r"] == nonce:
            raise ValueError("the broker's first token of SCRAM is malformed")
        try:
            salt, iterations = base64.b64decode(found["s"], validate=True), int(found["i"])
        except (binascii.Error, ValueError):
            raise ValueError("the broker's first token of SCRAM is malformed") from None
        if not 0 < iterations <= ITERATIONS_MAX:
            raise ValueError(f"the broker's first token of SCRAM has {iterations} iterations")
        salted = scram.salted_password(hash_name, self.password, salt, iterations)
        key = scram.client_key(hash_name, salted)
        without_proof = f"c=biws,r={found['r']}"
        signed = f"{bare},{first},{without_proof}".encode()
        stored_key = scram.stored_key(hash_name, key)
        proof = scram.combined(key, scram.signature(hash_name, stored_key, signed))
        last = yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
        verifier = scram.signature(hash_name, scram.server_key(hash_name, salted), signed)
        if not hmac.compare_digest(last, b"v=" + base64.b64encode(verifier)):
            raise ValueError("the broker does not know the password")


Call = Callable[[object, int], Awaitable[Any]]
"""Sends a request in a version, and returns the response."""


async def log_in(login: LoginMethod, call: Call, authenticate_version: int, where: str, tokens: Tokens) -> int:
    """Logs in by SaslHandshake v1 and SaslAuthenticate. Returns the lifetime of the session in ms, 0 without a limit.

    `where` names the broker; `tokens` are those of `login.begin()`. Raises ConnectionLost, and KafkaError for a
    refusal: UNSUPPORTED_SASL_MECHANISM, SASL_AUTHENTICATION_FAILED.
    """
    handshake = await call(SaslHandshakeRequest(mechanism=login.mechanism), 1)
    if handshake.error_code:
        enabled = ", ".join(handshake.mechanisms)
        raise KafkaError(handshake.error_code, f"{where} has the mechanisms {enabled or 'none'}")
    token = next(tokens)
    while True:
        response = await call(SaslAuthenticateRequest(auth_bytes=token), authenticate_version)
        if response.error_code:
            raise KafkaError(response.error_code, response.error_message)
        try:
            token = tokens.send(bytes(response.auth_bytes))
        except StopIteration:
            return response.session_lifetime_ms
        except ValueError as error:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"{where}: {error}") from None
