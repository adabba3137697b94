"""Rules of faults: their validation, their JSON form, their matches and how often they fire."""

from __future__ import annotations

import inspect
import json
import re
import threading
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.faults import actions
from ottla.broker.faults.actions import ACTIONS
from ottla.broker.faults.rule_set import Faults, UnknownFault
from ottla.broker.faults.rules import Rule, StandingRule
from ottla.broker.message_parts import Place
from ottla.broker.testing.faults import FaultsView
from ottla_testing import ROOT
from ottla_testing.each import each

GOOD: list[dict[str, Any]] = [
    {"action": "error", "code": "NOT_LEADER_OR_FOLLOWER", "api": "Produce", "topic": "t", "partition": 1, "nth": 2},
    {"action": "error", "code": 1234, "api": ["Produce", "Fetch"]},
    {"action": "delay", "ms": 500, "when": "after", "client_id": "app-*", "times": 3, "after": 1},
    {"action": "disconnect", "when": "before", "listener": "PLAINTEXT", "node": 2},
    {"action": "truncate", "bytes": 0},
    {"action": "garble", "seed": 7, "probability": 0.5},
    {"action": "wrong_crc", "topic": "t"},
    {"action": "throttle", "ms": 10},
    {"action": "stall", "api": "Fetch"},
    {"action": "refuse", "node": 1},
    {"action": "bad_certificate", "certificate": "expired", "listener": "SSL", "times": 1},
    {"action": "disk_error", "on": "read", "path": "*.log", "topic": "t"},
    {"action": "disk_full", "times": 2},
]


@pytest.mark.parametrize("data", GOOD, ids=lambda data: data["action"])
def test_rule_survives_its_json_form(data: dict[str, Any]) -> None:
    rule = Rule.from_json(json.loads(json.dumps(data)))
    assert rule.to_json() == data
    assert Rule.from_json(rule.to_json()) == rule


def test_every_action_has_a_json_form_in_this_file() -> None:
    assert {data["action"] for data in GOOD} == set(ACTIONS)


@each(
    ("data", "message"),
    [
        ([], "a fault must be an object with an action"),
        ({}, "action must be one of error, delay"),
        ({"action": "explode"}, "not 'explode'"),
        ({"action": "error"}, "error needs code"),
        ({"action": "error", "code": "NOT_LEADER"}, "no error code is named 'NOT_LEADER'"),
        ({"action": "error", "code": "NONE"}, "no error code is named 'NONE'"),
        ({"action": "error", "code": 0}, "code 0 is no error"),
        ({"action": "error", "code": 1 << 15}, "code must be -32768 to 32767"),
        ({"action": "error", "code": True}, "code must be a whole number"),
        ({"action": "error", "code": 6, "ms": 3}, "error has no 'ms'"),
        ({"action": "error", "code": 6, "api": "Produced"}, "no API is called 'Produced'"),
        ({"action": "error", "code": 6, "api": 999}, "no API is called 999"),
        ({"action": "error", "code": 6, "api": []}, "api must be a name"),
        ({"action": "error", "code": 6, "api": 1.5}, "api must be a name"),
        ({"action": "error", "code": 6, "topic": 3}, "topic must be a text"),
        ({"action": "error", "code": 6, "partition": -1}, "partition must be a whole number from 0 on"),
        ({"action": "error", "code": 6, "nth": 0}, "nth must be a whole number from 1 on"),
        ({"action": "error", "code": 6, "after": None}, "after must be a whole number from 0 on"),
        ({"action": "error", "code": 6, "probability": 0}, "probability must be above 0"),
        ({"action": "error", "code": 6, "probability": "much"}, "probability must be above 0"),
        ({"action": "delay", "ms": 0}, "ms must be 1 to"),
        ({"action": "delay", "ms": 1, "when": "never"}, "when must be before or after, not 'never'"),
        ({"action": "delay", "ms": 1, "when": []}, "when must be before or after"),
        ({"action": "truncate", "bytes": -1}, "bytes must be 0 to"),
        ({"action": "wrong_crc", "api": "Produce"}, "wrong_crc is for Fetch only"),
        ({"action": "refuse", "topic": "t"}, "refuse has no condition 'topic'"),
        ({"action": "refuse", "times": 1}, "refuse has no condition 'times'"),
        ({"action": "bad_certificate", "certificate": "old"}, "certificate must be expired or wrong_host or untrusted"),
        ({"action": "bad_certificate"}, "bad_certificate needs certificate"),
        (
            {"action": "bad_certificate", "certificate": "expired", "topic": "t"},
            "bad_certificate has no condition 'topic'",
        ),
        ({"action": "disk_full", "api": "Produce"}, "disk_full has no condition 'api'"),
        ({"action": "disk_error", "on": "sometimes"}, "on must be read or write or both"),
        ({"action": "disk_error", "path": 3}, "path must be a text"),
    ],
)
def test_invalid_rule_raises_a_one_line_error(data: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        Rule.from_json(data)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=3), st.data()
)
def test_random_json_raises_value_errors_only(value: Any, data: st.DataObject) -> None:
    good = data.draw(st.sampled_from(GOOD))
    key = data.draw(st.sampled_from([*good, "api", "seed", "colour"]))
    try:
        rule = Rule.from_json({**good, key: value})
    except ValueError as error:
        assert "\n" not in str(error)
    else:
        assert Rule.from_json(rule.to_json()) == rule


def fires(count: int, **conditions: Any) -> list[int]:
    """The matches, counted from 1, at which a rule fires."""
    standing = StandingRule(1, Rule(action=actions.stall(), **conditions))
    found = [number for number in range(1, count + 1) if standing.take()]
    assert (standing.matched, standing.fired) == (count, len(found))
    return found


def test_counters_decide_which_matches_fire() -> None:
    assert fires(3) == [1, 2, 3]
    assert fires(5, nth=2) == [2]
    assert fires(5, times=2) == [1, 2]
    assert fires(5, after=3) == [4, 5]
    assert fires(9, after=3, times=1) == [4]
    assert fires(9, after=3, nth=2) == [5]
    some = fires(1000, probability=0.3, seed=1)
    assert 200 < len(some) < 400
    assert some == fires(1000, probability=0.3, seed=1) != fires(1000, probability=0.3, seed=2)
    assert fires(1000, probability=0.3, seed=1, times=2) == some[:2]


def test_request_matches_its_conditions() -> None:
    def matches(**conditions: Any) -> bool:
        rule = Rule(action=actions.stall(), **conditions)
        return StandingRule(1, rule).matches_request(0, "app-1", "PLAINTEXT", 2)

    assert matches() and matches(api="Produce") and matches(api=0) and matches(api=["Fetch", 0])
    assert not matches(api="Fetch") and not matches(api=[1, 2])
    assert matches(client_id="app-1") and matches(client_id="app-*") and not matches(client_id="app")
    assert matches(listener="PLAINTEXT") and not matches(listener="OTHER")
    assert matches(node=2) and not matches(node=1)
    assert not StandingRule(1, Rule(action=actions.wrong_crc())).matches_request(0, "", "PLAINTEXT", 1)


def test_partition_matches_its_conditions() -> None:
    def requires(place: Place, **conditions: Any) -> bool:
        return Rule(action=actions.stall(), **conditions).matches_place(place)

    assert requires(Place("t", 0)) and requires(Place(None, None))
    assert (
        requires(Place("t", 0), topic="t")
        and requires(Place("t", 0), topic="?")
        and not requires(Place("t.x", 0), topic="t")
    )
    assert requires(Place("t", 1), partition=1) and not requires(Place("t", 0), partition=1)
    assert not requires(Place("t", None), topic="t", partition=1) and not requires(Place(None, 1), topic="t")


class Sockets:
    """The (node, listener) pairs that refuse."""

    def __init__(self) -> None:
        self.refusing: set[tuple[int, str]] = set()

    def check_named(self, node_id: int | None, listener: str | None) -> None:
        if not self.found(node_id, listener):
            raise ValueError("not here")

    def check_certificates(self) -> None:
        raise ValueError("not here")

    def found(self, node_id: int | None, listener: str | None) -> set[tuple[int, str]]:
        sockets = {(node, name) for node in (1, 2) for name in ("A", "B")}
        return {(node, name) for node, name in sockets if node_id in (None, node) and listener in (None, name)}

    def refuse(self, places: Collection[tuple[int | None, str | None]]) -> None:
        self.refusing = {found for place in places for found in self.found(*place)}


def test_listener_refuses_while_any_rule_is_in_force() -> None:
    faults, sockets = Faults(), Sockets()
    view = FaultsView(faults)
    with view.refuse(node=1):
        faults.attach(sockets)
        assert sockets.refusing == {(1, "A"), (1, "B")}
        with view.refuse("A"):
            assert sockets.refusing == {(1, "A"), (1, "B"), (2, "A")}
        assert sockets.refusing == {(1, "A"), (1, "B")}
    assert not sockets.refusing


def test_rule_for_an_unknown_listener_or_node_is_refused() -> None:
    faults = Faults()
    view = FaultsView(faults)
    view.refuse("NONE")  # unknown before there is a broker
    faults.attach(Sockets())
    for put in (
        lambda: view.refuse("NONE"),
        lambda: view.refuse(node=3),
        lambda: view.delay("Fetch", 1, listener="a"),
        lambda: view.error(None, "UNKNOWN_SERVER_ERROR", node=0),
        lambda: view.bad_certificate("expired", node=1),
    ):
        with pytest.raises(ValueError, match="not here"):
            put()
    assert len(faults.list()) == 1


def test_failed_refusal_of_a_listener_leaves_no_rule() -> None:
    class Broken(Sockets):
        def refuse(self, places: Collection[tuple[int | None, str | None]]) -> None:
            if places:
                raise OSError("no")

    faults = Faults()
    faults.attach(Broken())
    with pytest.raises(OSError):
        FaultsView(faults).refuse()
    assert not faults.list()


def test_rules_are_added_listed_and_removed() -> None:
    faults = Faults()
    view = FaultsView(faults)
    first = view.error("Produce", "NOT_LEADER_OR_FOLLOWER", topic="t", nth=2)
    second = view.disk_full()
    assert [one.id for one in view.list()] == [first.id, second.id]
    assert [one.id for one in faults.requests] == [first.id] and [one.id for one in faults.disk] == [second.id]
    assert first.rule == Rule(action=actions.error(6), api="Produce", topic="t", nth=2)
    gone = []
    faults.get(first.id).on_removed.append(lambda: gone.append(1))
    with first:
        pass
    assert gone == [1] and faults.requests == ()
    first.remove()
    with pytest.raises(UnknownFault, match="no fault with id 1 is in force"):
        faults.remove(first.id)
    view.clear()
    assert not view.list() and faults.disk == ()
    assert view.stall("Fetch").id == 3


def test_unknown_condition_raises_a_one_line_error() -> None:
    with pytest.raises(ValueError, match=r"^got an unexpected keyword argument 'colour'$"):
        FaultsView(Faults()).stall("Fetch", colour="red")


def test_thread_waits_for_a_rule_to_fire() -> None:
    faults = Faults()
    handle = FaultsView(faults).stall("Fetch", after=1)
    standing = faults.get(handle.id)
    thread = threading.Thread(target=lambda: [standing.take() for _ in range(3)])
    thread.start()
    handle.wait_fired(2)
    thread.join()
    assert (handle.matched, handle.fired) == (3, 2)
    with pytest.raises(TimeoutError, match="fired 2 times in 0 s, not 3"):
        handle.wait_fired(3, 0)


def test_the_guide_has_each_kind_with_its_parameters() -> None:
    guide = (ROOT / "docs" / "guides" / "faults.md").read_text()
    table = dict(re.findall(r"^\| `(\w+)\((.*?)\)` \|", guide, re.M))
    assert set(table) == set(ACTIONS)
    for name, reported in table.items():
        parameters = inspect.signature(getattr(FaultsView, name)).parameters.values()
        requested = [one for one in parameters if one.name not in ("self", "where")]
        if name == "wrong_crc":
            requested = []  # its only API
        shown = [one.name if one.default is one.empty else f"{one.name}={one.default!r}" for one in requested]
        assert reported.replace('"', "'") == ", ".join(shown), name
