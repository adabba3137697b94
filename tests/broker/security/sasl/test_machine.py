"""The order of requests on a connection with SASL: every state and event, as in SaslServerAuthenticator of 4.3.1."""

from __future__ import annotations

from ottla.broker.security.sasl.machine import TABLE, Action, Event, State, advance
from ottla_testing.each import each

S, C, I = "serve", "close", "illegal"  # noqa: E741
ACTIONS = {S: Action.SERVE, C: Action.CLOSE, I: Action.ILLEGAL}
REQUESTS = (Event.API_VERSIONS, Event.HANDSHAKE, Event.AUTHENTICATE, Event.TOKEN, Event.OTHER, Event.EXPIRED)
# ApiVersions, SaslHandshake, SaslAuthenticate, a token without a header, another request, one after the session
EXPECTED = {
    State.OPENED: (S, S, C, C, C, C),
    State.VERSIONED: (C, S, C, C, C, C),
    State.TOKENS: (C, C, C, S, C, C),
    State.EXCHANGE: (I, I, S, C, I, I),
    State.AUTHENTICATED: (S, S, S, C, S, C),
    State.AGAIN: (I, I, S, C, I, I),
    State.FAILED: (C, C, C, C, C, C),
}
OUTCOMES = {
    Event.VERSIONS_SERVED: {State.OPENED: State.VERSIONED},
    Event.CHOSEN_V0: {
        State.OPENED: State.TOKENS,
        State.VERSIONED: State.TOKENS,
        State.AUTHENTICATED: State.AGAIN,
    },
    Event.CHOSEN: {
        State.OPENED: State.EXCHANGE,
        State.VERSIONED: State.EXCHANGE,
        State.AUTHENTICATED: State.AGAIN,
    },
    Event.COMPLETE: {
        State.TOKENS: State.AUTHENTICATED,
        State.EXCHANGE: State.AUTHENTICATED,
        State.AGAIN: State.AUTHENTICATED,
    },
    Event.REFUSED: dict.fromkeys(State, State.FAILED),
}


@each("state", list(State))
def test_every_event_in_every_state(state: State) -> None:
    for event, action in zip(REQUESTS, EXPECTED[state], strict=True):
        step = advance(state, event)
        assert step.action is ACTIONS[action], event
        assert step.state is (state if action is S else State.FAILED), event
    for event, follows in OUTCOMES.items():
        assert advance(state, event) == (Action.NONE, follows.get(state, state)), event


def test_table_is_total() -> None:
    assert set(TABLE) == {(state, event) for state in State for event in Event}
    assert {*REQUESTS, *OUTCOMES} == set(Event)


def test_nothing_but_a_complete_exchange_authenticates() -> None:
    ways = {(state, event) for (state, event), step in TABLE.items() if step.state is State.AUTHENTICATED}
    assert {event for state, event in ways if state is not State.AUTHENTICATED} == {Event.COMPLETE}
    assert all(TABLE[State.FAILED, event].state is State.FAILED for event in Event)
