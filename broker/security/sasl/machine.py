"""The order of requests on a connection with SASL, as a table (SaslServerAuthenticator).

Pure: an event is a request that has arrived, or an outcome; the result is what becomes of the request, and the state
that follows. The table has an entry for each pair.
"""

from __future__ import annotations

from enum import Enum

from ....protocol.named import NamedTuple


class State(Enum):
    """How far a connection is."""

    OPENED = "opened"
    VERSIONED = "versioned"
    """ApiVersions was served, once."""
    TOKENS = "tokens"
    """SaslHandshake v0 was served: what follows are tokens without a header."""
    EXCHANGE = "exchange"
    """SaslHandshake v1 was served: SaslAuthenticate requests follow."""
    AUTHENTICATED = "authenticated"
    AGAIN = "again"
    """SaslHandshake began a re-authentication (KIP-368)."""
    FAILED = "failed"
    """The connection is to be closed."""


class Event(Enum):
    """A request, or the outcome of one."""

    API_VERSIONS = "ApiVersions"
    HANDSHAKE = "SaslHandshake"
    AUTHENTICATE = "SaslAuthenticate"
    TOKEN = "token"
    OTHER = "other request"
    EXPIRED = "request after the session"
    """A request other than SaslHandshake after the lifetime of the session."""
    VERSIONS_SERVED = "ApiVersions served"
    CHOSEN_V0 = "mechanism by v0"
    CHOSEN = "mechanism"
    COMPLETE = "exchange complete"
    REFUSED = "refused"


class Action(Enum):
    """What becomes of a request."""

    SERVE = "served"
    CLOSE = "closed"
    """The connection is closed at once, without a response."""
    ILLEGAL = "ILLEGAL_SASL_STATE"
    """The request's own response has ILLEGAL_SASL_STATE; it is sent after the delay of failures, then the connection is
    closed."""
    NONE = "none"
    """The event is an outcome; no request is to be decided."""


class Step(NamedTuple):
    """What becomes of a request, and the state that follows."""

    action: Action
    state: State


_SHORT = {"serve": Action.SERVE, "close": Action.CLOSE, "illegal": Action.ILLEGAL}
_REQUESTS = (Event.API_VERSIONS, Event.HANDSHAKE, Event.AUTHENTICATE, Event.TOKEN, Event.OTHER, Event.EXPIRED)
# Of each state, what becomes of the requests in that order. A token is a frame that is not parsed as a request, so only
# TOKENS has them.
_DECISIONS = {
    State.OPENED: "serve serve close close close close",
    State.VERSIONED: "close serve close close close close",
    State.TOKENS: "close close close serve close close",
    State.EXCHANGE: "illegal illegal serve close illegal illegal",
    State.AUTHENTICATED: "serve serve serve close serve close",
    State.AGAIN: "illegal illegal serve close illegal illegal",
    State.FAILED: "close close close close close close",
}
_OUTCOMES = {
    (State.OPENED, Event.VERSIONS_SERVED): State.VERSIONED,
    (State.OPENED, Event.CHOSEN_V0): State.TOKENS,
    (State.VERSIONED, Event.CHOSEN_V0): State.TOKENS,
    (State.OPENED, Event.CHOSEN): State.EXCHANGE,
    (State.VERSIONED, Event.CHOSEN): State.EXCHANGE,
    (State.AUTHENTICATED, Event.CHOSEN): State.AGAIN,
    (State.AUTHENTICATED, Event.CHOSEN_V0): State.AGAIN,
    (State.TOKENS, Event.COMPLETE): State.AUTHENTICATED,
    (State.EXCHANGE, Event.COMPLETE): State.AUTHENTICATED,
    (State.AGAIN, Event.COMPLETE): State.AUTHENTICATED,
}


def _decided(state: State, event: Event) -> Step:
    if event in _REQUESTS:
        action = _SHORT[_DECISIONS[state].split()[_REQUESTS.index(event)]]
        return Step(action, state if action is Action.SERVE else State.FAILED)
    if event is Event.REFUSED:
        return Step(Action.NONE, State.FAILED)
    return Step(Action.NONE, _OUTCOMES.get((state, event), state))


TABLE: dict[tuple[State, Event], Step] = {(state, event): _decided(state, event) for state in State for event in Event}


def advance(state: State, event: Event) -> Step:
    """Returns what becomes of a request, and the state that follows."""
    return TABLE[state, event]
