"""The order of requests on a connection with SASL, as in SaslServerAuthenticator: what becomes of a request that has
arrived, and the state after an outcome.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """How far a connection is."""

    OPENED = "opened"
    VERSIONED = "versioned"
    """ApiVersions was served, once."""
    TOKENS = "tokens"
    """SaslHandshake v0 was served: what follows are tokens without a header, which are not parsed as requests."""
    EXCHANGE = "exchange"
    """SaslHandshake v1 was served: SaslAuthenticate requests follow."""
    AUTHENTICATED = "authenticated"
    AGAIN = "again"
    """SaslHandshake began a re-authentication (KIP-368)."""
    FAILED = "failed"
    """The connection is to be closed."""


class Request(Enum):
    """A request that has arrived."""

    API_VERSIONS = "ApiVersions"
    HANDSHAKE = "SaslHandshake"
    AUTHENTICATE = "SaslAuthenticate"
    OTHER = "other request"
    EXPIRED = "request after the session"
    """A request other than SaslHandshake after the lifetime of the session."""


class Outcome(Enum):
    """The outcome of a request that was served."""

    VERSIONS_SERVED = "ApiVersions served"
    CHOSEN_V0 = "mechanism by v0"
    CHOSEN = "mechanism"
    COMPLETE = "exchange complete"


class Action(Enum):
    """What becomes of a request."""

    SERVE = "served"
    CLOSE = "closed"
    """The connection is closed at once, without a response."""
    ILLEGAL = "ILLEGAL_SASL_STATE"
    """The request's own response has ILLEGAL_SASL_STATE; it is sent after the delay of failures, then the connection is
    closed."""


_S, _C, _I = Action
# Of each state, what becomes of the requests in the order of `Request`.
_ACTIONS = {
    State.OPENED: (_S, _S, _C, _C, _C),
    State.VERSIONED: (_C, _S, _C, _C, _C),
    State.TOKENS: (_C, _C, _C, _C, _C),
    State.EXCHANGE: (_I, _I, _S, _I, _I),
    State.AUTHENTICATED: (_S, _S, _S, _S, _C),
    State.AGAIN: (_I, _I, _S, _I, _I),
    State.FAILED: (_C, _C, _C, _C, _C),
}
ACTIONS = {(state, one): action for state, row in _ACTIONS.items() for one, action in zip(Request, row, strict=True)}
FOLLOWING = {
    (State.OPENED, Outcome.VERSIONS_SERVED): State.VERSIONED,
    (State.OPENED, Outcome.CHOSEN_V0): State.TOKENS,
    (State.VERSIONED, Outcome.CHOSEN_V0): State.TOKENS,
    (State.OPENED, Outcome.CHOSEN): State.EXCHANGE,
    (State.VERSIONED, Outcome.CHOSEN): State.EXCHANGE,
    (State.AUTHENTICATED, Outcome.CHOSEN): State.AGAIN,
    (State.AUTHENTICATED, Outcome.CHOSEN_V0): State.AGAIN,
    (State.TOKENS, Outcome.COMPLETE): State.AUTHENTICATED,
    (State.EXCHANGE, Outcome.COMPLETE): State.AUTHENTICATED,
    (State.AGAIN, Outcome.COMPLETE): State.AUTHENTICATED,
}
"""The state after an outcome; without an entry it stays. A refusal leads to FAILED."""
