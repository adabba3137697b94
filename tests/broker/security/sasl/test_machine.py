"""The order of requests on a connection with SASL: every state and event, as in SaslServerAuthenticator of 4.3.1."""

from __future__ import annotations

from ottla.broker.security.sasl.machine import ACTIONS, FOLLOWING, Action, Outcome, Request, State
from ottla_testing.each import each

S, C, I = "serve", "close", "illegal"  # noqa: E741
NAMES = {S: Action.SERVE, C: Action.CLOSE, I: Action.ILLEGAL}
REQUESTS = (Request.API_VERSIONS, Request.HANDSHAKE, Request.AUTHENTICATE, Request.OTHER, Request.EXPIRED)
# ApiVersions, SaslHandshake, SaslAuthenticate, another request, one after the session
EXPECTED = {
    State.OPENED: (S, S, C, C, C),
    State.VERSIONED: (C, S, C, C, C),
    State.TOKENS: (C, C, C, C, C),
    State.EXCHANGE: (I, I, S, I, I),
    State.AUTHENTICATED: (S, S, S, S, C),
    State.AGAIN: (I, I, S, I, I),
    State.FAILED: (C, C, C, C, C),
}
OUTCOMES = {
    Outcome.VERSIONS_SERVED: {State.OPENED: State.VERSIONED},
    Outcome.CHOSEN_V0: {
        State.OPENED: State.TOKENS,
        State.VERSIONED: State.TOKENS,
        State.AUTHENTICATED: State.AGAIN,
    },
    Outcome.CHOSEN: {
        State.OPENED: State.EXCHANGE,
        State.VERSIONED: State.EXCHANGE,
        State.AUTHENTICATED: State.AGAIN,
    },
    Outcome.COMPLETE: {
        State.TOKENS: State.AUTHENTICATED,
        State.EXCHANGE: State.AUTHENTICATED,
        State.AGAIN: State.AUTHENTICATED,
    },
}


@each("state", list(State))
def test_every_event_in_every_state(state: State) -> None:
    for request, action in zip(REQUESTS, EXPECTED[state], strict=True):
        assert ACTIONS[state, request] is NAMES[action], request
    for outcome, follows in OUTCOMES.items():
        assert FOLLOWING.get((state, outcome)) is follows.get(state), outcome


def test_tables_are_total() -> None:
    assert set(ACTIONS) == {(state, request) for state in State for request in Request}
    assert set(REQUESTS) == set(Request) and set(OUTCOMES) == set(Outcome)


def test_nothing_but_a_complete_exchange_authenticates() -> None:
    ways = {outcome for (_, outcome), state in FOLLOWING.items() if state is State.AUTHENTICATED}
    assert ways == {Outcome.COMPLETE}
    assert all(state is not State.FAILED for state, _ in FOLLOWING)
