"""The authentication of one connection: its state, the exchange under way, the principal and the end of its session.

The order of requests is decided by `machine.py`; the mechanisms prove names. Sources: Kafka's SaslServerAuthenticator,
KIP-43, KIP-152 (SaslAuthenticate), KIP-368 (re-authentication).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ....protocol.api_key import ApiKey
from ....protocol.errors import ErrorCode
from ....protocol.named import NamedTuple
from ...config.security.sasl import GSSAPI, OAUTHBEARER, PLAIN, SaslSettings
from ...futures import wake
from ..scram import Mechanism, ScramCredentials
from .machine import ACTIONS, FOLLOWING, Action, Outcome, Request, State
from .mechanisms import Dropped, Exchange, PlainExchange, SaslError, ScramExchange, Unnamed
from .oauthbearer import OAuthBearerExchange, TokenValidator

if TYPE_CHECKING:
    from ...clock import Clock
    from ..tokens import DelegationTokens
    from .kerberos import KeytabAcceptor

LEAST_BETWEEN_MS = 1000
"""Kafka refuses a re-authentication that begins earlier after the last one."""
_REQUESTS: dict[int, Request] = {
    ApiKey.API_VERSIONS: Request.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE: Request.HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE: Request.AUTHENTICATE,
}


class Credentials(Protocol):
    """What SCRAM authenticates clients by: stored credentials and delegation tokens. A reset of the broker replaces
    them."""

    scram: ScramCredentials
    tokens: DelegationTokens


class Reply(NamedTuple):
    """The broker's token, None for none, and the lifetime of the session in ms: 0 without a limit, and until the
    exchange is complete."""

    token: bytes | None
    lifetime_ms: int


class SaslSession:
    __slots__ = (
        "_acceptor",
        "_begun_ms",
        "_credentials",
        "_exchange",
        "_expires_ms",
        "_mechanism",
        "_validator",
        "completed",
        "failure",
        "is_over",
        "principal",
        "sends_token",
        "settings",
        "state",
        "token_authenticated",
    )

    def __init__(
        self,
        settings: SaslSettings,
        credentials: Callable[[], Credentials],
        validator: TokenValidator | None = None,
        acceptor: KeytabAcceptor | None = None,
    ) -> None:
        """`credentials` returns those of users and tokens, which a reset of the broker replaces. `validator` is that of
        OAUTHBEARER, `acceptor` that of GSSAPI, each None without its mechanism."""
        self.settings = settings
        self._credentials = credentials
        self._validator = validator
        self._acceptor = acceptor
        self.state = State.OPENED
        self.principal: str | None = None
        """The principal as "User:name"; None until the client is authenticated."""
        self.token_authenticated = False
        """Whether the client has logged in with a delegation token; the principal is its owner."""
        self.completed = 0
        """How often the client has logged in."""
        self.is_over = False
        """Whether a request came after the end of the session."""
        self.sends_token = True
        """Whether the last response had a token of the broker, be it an empty one."""
        self.failure = ""
        """Why the authentication failed, without names and passwords: a user may type one in place of the other."""
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._begun_ms = 0
        self._expires_ms: int | None = None

    @property
    def is_failed(self) -> bool:
        """Whether the connection is to be closed."""
        return self.state is State.FAILED

    @property
    def is_under_way(self) -> bool:
        """Whether an exchange takes tokens."""
        return self.state in (State.TOKENS, State.EXCHANGE, State.AGAIN)

    @property
    def takes_tokens(self) -> bool:
        """Whether the next frame is a token without a header (SaslHandshake v0)."""
        return self.state is State.TOKENS

    def serves(self, now_ms: int) -> bool:
        """Whether a request other than those of SASL may come now."""
        return self.state is State.AUTHENTICATED and not self._has_expired(now_ms)

    def _has_expired(self, now_ms: int) -> bool:
        return self._expires_ms is not None and now_ms > self._expires_ms

    def begin_without_handshake(self, now_ms: int) -> bool:
        """Begins an exchange by GSSAPI for a client whose first frame is no request. Returns whether that may be."""
        may_be = self.state is State.OPENED and self.settings.first_token
        return may_be and self.handshake(GSSAPI, 0, now_ms) is ErrorCode.NONE

    def admit(self, api_key: int, now_ms: int) -> Action:
        """Decides about a request that has arrived."""
        request = _REQUESTS.get(api_key, Request.OTHER)
        if self._has_expired(now_ms) and self.state is State.AUTHENTICATED and request is not Request.HANDSHAKE:
            request = Request.EXPIRED
            self.is_over = True
        action = ACTIONS[self.state, request]
        if action is Action.CLOSE:  # after ILLEGAL the state changes when its response is sent
            self.state = State.FAILED
        return action

    def _note(self, outcome: Outcome) -> None:
        self.state = FOLLOWING.get((self.state, outcome), self.state)

    def versions_served(self) -> None:
        self._note(Outcome.VERSIONS_SERVED)

    def handshake(self, mechanism: str, api_version: int, now_ms: int) -> ErrorCode:
        """Begins an exchange by this mechanism. Returns the error: after UNSUPPORTED_SASL_MECHANISM `fail` follows."""
        if self.state is State.AUTHENTICATED and (
            self._expires_ms is None or now_ms - self._begun_ms < LEAST_BETWEEN_MS
        ):
            return ErrorCode.ILLEGAL_SASL_STATE
        if mechanism not in self.settings.mechanisms:
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._exchange = None if self.principal and mechanism != self._mechanism else self._begin(mechanism)
        self._mechanism = self._mechanism if self.principal else mechanism
        self._begun_ms = now_ms
        self._note(Outcome.CHOSEN if api_version else Outcome.CHOSEN_V0)
        return ErrorCode.NONE

    def _begin(self, mechanism: str) -> Exchange:
        if mechanism == PLAIN:
            return PlainExchange(self.settings.passwords)
        if mechanism == OAUTHBEARER:
            assert self._validator is not None
            return OAuthBearerExchange(self._validator)
        if mechanism == GSSAPI:
            assert self._acceptor is not None
            return self._acceptor.exchange()
        found = self._credentials()
        return ScramExchange(Mechanism[mechanism.replace("-", "_")], found.scram, found.tokens)

    def respond(self, token: bytes, now_ms: int) -> Reply:
        """Takes a token of the exchange. Raises SaslError, after which `fail` follows, and Dropped.

        The connection is closed after the response to a client whose principal has no name: Kafka's broker closes it
        when the next request arrives.
        """
        exchange = self._exchange
        if exchange is None:  # another mechanism than before: Kafka has no text for it
            raise SaslError
        try:
            found = exchange.respond(token, now_ms)
        except Unnamed as unnamed:
            if self.principal is not None:
                raise Dropped(str(unnamed)) from None
            self.failure, self.sends_token = str(unnamed), False
            self.state = State.FAILED
            return Reply(None, self._lifetime_ms(exchange, now_ms) or 0)
        self.sends_token = found is not None
        if not exchange.is_complete:
            return Reply(found, 0)
        principal = f"User:{exchange.user}"
        if self.principal is not None and self.principal != principal:
            before = self.principal.removeprefix("User:")
            text = f"Cannot change principals during re-authentication from User.{before}: User.{exchange.user}"
            raise SaslError(text)
        self.principal = principal
        self.token_authenticated = exchange.token_authenticated
        self.completed += 1
        self._exchange = None
        self._note(Outcome.COMPLETE)
        lifetime_ms = self._lifetime_ms(exchange, now_ms)
        self._expires_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        return Reply(found, lifetime_ms or 0)

    def _lifetime_ms(self, exchange: Exchange, now_ms: int) -> int | None:
        """Returns the length of the session; None without a limit. It is 0 for a delegation token that has expired and
        is not removed yet, as in Kafka: no other request is served."""
        longest_ms = self.settings.lifetimes_ms[self._mechanism]
        if exchange.expires_ms is None:
            return longest_ms if longest_ms > 0 else None
        left_ms = exchange.expires_ms - now_ms
        if self.settings.credentials_end_sessions:
            return max(0, min(left_ms, longest_ms) if longest_ms > 0 else left_ms)
        shorter_ms = min(left_ms, longest_ms)
        return shorter_ms if shorter_ms > 0 else None

    def text_of(self, error: SaslError) -> str:
        """Returns the text of a failure for the client."""
        which = "re-authentication" if self.principal else "authentication"
        return str(error) or (
            f"Authentication failed during {which} due to invalid credentials with SASL mechanism {self._mechanism}"
        )

    async def fail(self, clock: Clock, failure: str) -> None:
        """Ends the authentication, after the delay of failures that slows down guesses: the response is sent then, and
        the connection closed."""
        self.failure = failure
        if self.settings.failure_delay_ms:
            over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            timer = clock.call_at(clock.now_ms() + self.settings.failure_delay_ms, wake, over)
            try:
                await over
            finally:
                timer.cancel()
        self.state = State.FAILED
