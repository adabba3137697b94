"""The group state machine: each cell of its table, and rules that scenarios do not isolate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.broker.groups.classic.machine import TABLE, advance
from ottla.broker.groups.classic.moves import select_protocol
from ottla.broker.groups.classic.state import (
    EVENTS,
    CancelTimer,
    Commit,
    Delete,
    Event,
    Forget,
    Group,
    GroupSettings,
    GroupState,
    Heartbeat,
    Join,
    JoinReply,
    JoinRequest,
    Leave,
    Loaded,
    Member,
    PendingExpired,
    Persist,
    Persisted,
    PersistFailed,
    Purpose,
    RebalanceDue,
    Reply,
    SessionExpired,
    StartTimer,
    Sync,
    SyncDue,
)
from ottla.protocol.errors import ErrorCode
from ottla_testing.each import each

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState
NOW = 1_000_000
SETTINGS = GroupSettings()


def member(name: str, **changes: Any) -> Member:
    base = Member(name, None, "c", "/h", 60_000, 10_000, (("range", b"m"), ("sticky", b"s")), assignment=b"a")
    return replace(base, **changes)


def group_in(state: GroupState) -> Group:
    """A group in a state, with a leader `a` and a follower `b` if the state has members; `p` is a pending member id."""
    if state in (EMPTY, DEAD):
        return Group("g", state=state, generation_id=4, protocol_type="consumer", pending=frozenset({"p"}))
    parked = {"join_token": 1} if state is PREPARING else {"sync_token": 1} if state is COMPLETING else {}
    return Group(
        "g",
        state=state,
        generation_id=4,
        protocol_type="consumer",
        protocol_name="range",
        leader="a",
        members={"a": member("a"), "b": member("b", **parked)},
        pending=frozenset({"p"}),
        pending_sync=frozenset({"a"}) if state in (COMPLETING, STABLE) else frozenset(),
    )


def join(member_id: str = "", **changes: Any) -> Join:
    base = JoinRequest(member_id, None, "c", "/h", 10_000, 60_000, "consumer", (("range", b"m"), ("sticky", b"s")))
    return Join(9, "c-1", replace(base, **changes))


def write_of(state: GroupState) -> Persist:
    purpose = {EMPTY: Purpose.DELETION, COMPLETING: Purpose.ASSIGNMENT}.get(state, Purpose.STATIC_RETURN)
    return Persist(purpose, group_in(state), 9, JoinReply(ErrorCode.NONE, "a"))


def event_for(kind: type, state: GroupState) -> Event:
    """The simplest event of its kind, by the leader in its generation."""
    return {
        Join: join("a"),
        Sync: Sync(9, "a", None, 4, assignments=(("a", b"1"), ("b", b"2"))),
        Heartbeat: Heartbeat(9, "a", None, 4),
        Leave: Leave(9, (("a", None),)),
        Commit: Commit(9, "a", None, 4),
        Delete: Delete(9),
        Loaded: Loaded(),
        SessionExpired: SessionExpired("a"),
        PendingExpired: PendingExpired("p"),
        RebalanceDue: RebalanceDue(),
        SyncDue: SyncDue(),
        Persisted: Persisted(write_of(state)),
        PersistFailed: PersistFailed(write_of(state), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    }[kind]


def label(timer: Any) -> str:
    names: dict[type, str] = {RebalanceDue: "rebalance", SyncDue: "sync"}
    return names.get(type(timer)) or timer.member_id


def summary(effects: tuple[Any, ...]) -> list[Any]:
    """Effects in short form: (token, code) of replies, +timer, -timer, the purpose of a write, "forget"."""
    short = []
    for effect in effects:
        if isinstance(effect, Reply):
            short.append((effect.token, int(effect.response.error)))
        elif isinstance(effect, StartTimer):
            short.append(f"+{label(effect.timer)} {effect.delay_ms}")
        elif isinstance(effect, CancelTimer):
            short.append(f"-{label(effect.timer)}")
        elif isinstance(effect, Persist):
            short.append(effect.purpose.value)
        else:
            assert isinstance(effect, Forget)
            short.append("forget")
    return short


# (state, event) -> (next state, effects). Token 9 is the event's, 1 that of the delayed request.
EXPECTED: dict[tuple[GroupState, type], tuple[GroupState, list[Any]]] = {
    (EMPTY, Join): (EMPTY, [(9, 25)]),
    (PREPARING, Join): (PREPARING, []),
    (COMPLETING, Join): (COMPLETING, [(9, 0)]),
    (STABLE, Join): (PREPARING, ["-sync", "+rebalance 60000"]),
    (DEAD, Join): (DEAD, [(9, 15)]),
    (EMPTY, Sync): (EMPTY, [(9, 25)]),
    (PREPARING, Sync): (PREPARING, [(9, 27)]),
    (COMPLETING, Sync): (COMPLETING, ["-sync", "assignment"]),
    (STABLE, Sync): (STABLE, ["-sync", (9, 0), "+a 10000"]),
    (DEAD, Sync): (DEAD, [(9, 15)]),
    (EMPTY, Heartbeat): (EMPTY, [(9, 25)]),
    (PREPARING, Heartbeat): (PREPARING, ["+a 10000", (9, 27)]),
    (COMPLETING, Heartbeat): (COMPLETING, ["+a 10000", (9, 0)]),
    (STABLE, Heartbeat): (STABLE, ["+a 10000", (9, 0)]),
    (DEAD, Heartbeat): (DEAD, [(9, 15)]),
    (EMPTY, Leave): (EMPTY, [(9, 0)]),
    (PREPARING, Leave): (PREPARING, ["-a", (9, 0)]),
    (COMPLETING, Leave): (PREPARING, ["-sync", "-a", (1, 27), "+b 10000", "+rebalance 60000", (9, 0)]),
    (STABLE, Leave): (PREPARING, ["-sync", "-a", "+rebalance 60000", (9, 0)]),
    (DEAD, Leave): (DEAD, [(9, 15)]),
    (EMPTY, Commit): (EMPTY, [(9, 25)]),
    (PREPARING, Commit): (PREPARING, ["+a 10000", (9, 0)]),
    (COMPLETING, Commit): (COMPLETING, [(9, 27)]),
    (STABLE, Commit): (STABLE, ["+a 10000", (9, 0)]),
    (DEAD, Commit): (DEAD, [(9, 15)]),
    (EMPTY, Delete): (EMPTY, ["deletion"]),
    (PREPARING, Delete): (PREPARING, [(9, 68)]),
    (COMPLETING, Delete): (COMPLETING, [(9, 68)]),
    (STABLE, Delete): (STABLE, [(9, 68)]),
    (DEAD, Delete): (DEAD, [(9, 69)]),
    (EMPTY, Loaded): (EMPTY, []),
    (PREPARING, Loaded): (PREPARING, []),
    (COMPLETING, Loaded): (COMPLETING, []),
    (STABLE, Loaded): (STABLE, ["+a 10000", "+b 10000"]),
    (DEAD, Loaded): (DEAD, []),
    (EMPTY, SessionExpired): (EMPTY, []),
    (PREPARING, SessionExpired): (PREPARING, ["-a"]),
    (COMPLETING, SessionExpired): (PREPARING, ["-sync", "-a", (1, 27), "+b 10000", "+rebalance 60000"]),
    (STABLE, SessionExpired): (PREPARING, ["-sync", "-a", "+rebalance 60000"]),
    (DEAD, SessionExpired): (DEAD, []),
    (EMPTY, PendingExpired): (EMPTY, []),
    (PREPARING, PendingExpired): (PREPARING, []),
    (COMPLETING, PendingExpired): (COMPLETING, []),
    (STABLE, PendingExpired): (STABLE, []),
    (DEAD, PendingExpired): (DEAD, []),
    (EMPTY, RebalanceDue): (EMPTY, []),
    (PREPARING, RebalanceDue): (COMPLETING, ["-a", (1, 0), "+b 10000", "+sync 60000"]),
    (COMPLETING, RebalanceDue): (COMPLETING, []),
    (STABLE, RebalanceDue): (STABLE, []),
    (DEAD, RebalanceDue): (DEAD, []),
    (EMPTY, SyncDue): (EMPTY, []),
    (PREPARING, SyncDue): (PREPARING, []),
    (COMPLETING, SyncDue): (PREPARING, ["-sync", "-a", (1, 27), "+b 10000", "+rebalance 60000"]),
    (STABLE, SyncDue): (PREPARING, ["-sync", "-a", "+rebalance 60000"]),
    (DEAD, SyncDue): (DEAD, []),
    (EMPTY, Persisted): (DEAD, ["-p", (9, 0), "forget"]),
    (PREPARING, Persisted): (PREPARING, [(9, 27)]),
    (COMPLETING, Persisted): (STABLE, [(1, 0), "+b 10000"]),
    (STABLE, Persisted): (STABLE, [(9, 0)]),
    (DEAD, Persisted): (DEAD, [(9, 27)]),
    (EMPTY, PersistFailed): (EMPTY, [(9, 15)]),
    (PREPARING, PersistFailed): (PREPARING, [(9, 27)]),
    (COMPLETING, PersistFailed): (PREPARING, [(1, 15), "+b 10000", "-sync", "+rebalance 60000"]),
    (STABLE, PersistFailed): (STABLE, [(9, 15)]),
    (DEAD, PersistFailed): (DEAD, [(9, 27)]),
}

CELLS = [(state, kind) for state in GroupState for kind in EVENTS]


def test_table_covers_every_state_and_event() -> None:
    assert set(TABLE) == set(CELLS)
    assert set(EXPECTED) == set(CELLS)


@each(("state", "kind"), CELLS)
def test_each_transition(state: GroupState, kind: type) -> None:
    before = group_in(state)
    after, effects = advance(before, event_for(kind, state), now_ms=NOW, settings=SETTINGS)
    assert (after.state, summary(effects)) == EXPECTED[state, kind]
    assert before == group_in(state), "the input value was changed"
    if after.state is not state:
        assert after.state_changed_ms == NOW


def step(group: Group, event: Event, **settings: Any) -> tuple[Group, list[Any]]:
    after, effects = advance(group, event, now_ms=NOW, settings=GroupSettings(**settings))
    return after, summary(effects)


@pytest.mark.parametrize("state", [PREPARING, COMPLETING, STABLE])
def test_request_of_an_unknown_member_is_refused_in_every_state(state: GroupState) -> None:
    group = group_in(state)
    assert step(group, join("x"))[1] == [(9, 25)]
    assert step(group, join("a", instance_id="i"))[1] == [(9, 25)]
    assert step(group, Sync(9, "x", None, 4))[1] == [(9, 25)]
    assert step(group, Heartbeat(9, "x", None, 4))[1] == [(9, 25)]
    assert step(group, Commit(9, "x", None, 4))[1] == [(9, 25)]
    assert step(group, Commit(9, "", None, -1))[1] == [(9, 25)]
    assert step(group, Commit(9, "", None, -1, transactional=True))[1] == [(9, 0)]


@pytest.mark.parametrize("state", [PREPARING, COMPLETING, STABLE])
def test_request_of_another_generation_is_refused(state: GroupState) -> None:
    for event in (Sync(9, "b", None, 3), Heartbeat(9, "b", None, 5), Commit(9, "b", None, 3)):
        assert step(group_in(state), event) == (group_in(state), [(9, 22)])


@pytest.mark.parametrize("state", [PREPARING, COMPLETING, STABLE])
def test_old_member_id_of_a_static_member_is_fenced(state: GroupState) -> None:
    group = group_in(state)
    group = replace(group, members={**group.members, "b": replace(group.members["b"], instance_id="i")})
    for event in (
        join("old", instance_id="i"),
        Sync(9, "old", "i", 4),
        Heartbeat(9, "old", "i", 4),
        Commit(9, "old", "i", 4),
    ):
        assert step(group, event)[1] == [(9, 82)]
    _, effects = advance(group, Leave(9, (("old", "i"),)), now_ms=NOW, settings=SETTINGS)
    reply = effects[-1]
    assert isinstance(reply, Reply)
    assert reply.response.members[0].error is ErrorCode.FENCED_INSTANCE_ID  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("type_", "name", "code"), [("consumer", "range", 0), ("x", "range", 23), ("consumer", "x", 23)]
)
def test_sync_with_another_protocol_is_refused(type_: str, name: str, code: int) -> None:
    _, effects = step(group_in(STABLE), Sync(9, "b", None, 4, protocol_type=type_, protocol_name=name))
    assert effects[0] == (9, code)


def test_join_without_a_common_protocol_is_refused() -> None:
    assert step(group_in(STABLE), join(protocols=(("other", b""),)))[1] == [(9, 23)]
    assert step(group_in(STABLE), join(protocol_type="connect"))[1] == [(9, 23)]
    assert step(Group("g"), join(protocols=()))[1] == [(9, 23)]
    assert step(Group("g"), join(protocol_type=""))[1] == [(9, 23)]


def test_protocol_vote_only_counts_protocols_of_all_members() -> None:
    def prefers(*names: str) -> Member:
        return member(names[0], protocols=tuple((name, b"") for name in names))

    members = [prefers("only-mine", "b", "a"), prefers("b", "a"), prefers("a", "b")]
    assert select_protocol({str(n): one for n, one in enumerate(members)}) == "b"
    assert select_protocol({str(n): one for n, one in enumerate(members[1:])}) == "b", (
        "a tie goes to the protocol with the first vote"
    )


def test_unchanged_rejoin_of_a_follower_in_a_stable_group_responds_at_once() -> None:
    after, effects = step(group_in(STABLE), join("b"))
    assert (after, effects) == (group_in(STABLE), [(9, 0)])
    after, effects = step(group_in(STABLE), join("b", protocols=(("range", b"new"),)))
    assert after.state is PREPARING


def test_second_join_or_sync_of_a_member_responds_to_the_first() -> None:
    after, effects = step(group_in(PREPARING), join("b"))
    assert effects == [(1, 27)]
    assert after.members["b"].join_token == 9
    after, effects = step(group_in(COMPLETING), Sync(9, "b", None, 4))
    assert effects == [(1, 27)]
    assert after.members["b"].sync_token == 9


def test_delayed_request_keeps_the_session_except_of_a_new_member() -> None:
    group = group_in(PREPARING)
    assert step(group, SessionExpired("b")) == (group, [])
    new = replace(group, members={**group.members, "b": replace(group.members["b"], is_new=True)})
    after, effects = step(new, SessionExpired("b"))
    assert effects == [(1, 25), "-b"]
    assert "b" not in after.members


def test_member_without_sync_is_removed_from_a_stable_group() -> None:
    group = replace(group_in(STABLE), pending_sync=frozenset({"b"}))
    after, _effects = step(group, SyncDue())
    assert list(after.members) == ["a"]
    assert step(replace(group, pending_sync=frozenset()), SyncDue())[1] == []


def test_pending_member_id_delays_the_rebalance_until_it_joins_or_expires() -> None:
    group = group_in(PREPARING)
    waiting, effects = step(group, join("a"))
    assert (waiting.state, effects) == (PREPARING, [])
    after, effects = step(waiting, PendingExpired("p"))
    assert after.state is COMPLETING
    assert after.generation_id == 5
    after, effects = step(waiting, join("p"))
    assert effects[0] == "-p"
    assert after.state is COMPLETING
    assert set(after.members) == {"a", "b", "p"}
    assert step(waiting, join("p", instance_id="i"))[1] == [(9, 25)], "static members get no pending id"


def test_leave_responds_to_the_delayed_sync_of_the_member() -> None:
    after, effects = step(group_in(COMPLETING), Leave(9, (("b", None),)))
    assert effects == [(1, 25), "-b", "-sync", "+rebalance 60000", (9, 0)]
    assert list(after.members) == ["a"]


def test_leave_of_the_last_member_empties_the_group_in_a_new_generation() -> None:
    group = replace(group_in(STABLE), pending=frozenset())
    after, effects = step(group, Leave(9, (("a", None), ("b", None), ("x", None))))
    assert after.state is EMPTY
    assert (after.generation_id, after.protocol_name, after.leader) == (5, None, None)
    assert "emptied" in effects


def test_static_members_without_rejoin_stay_and_another_member_leads() -> None:
    group = group_in(PREPARING)
    group = replace(group, members={**group.members, "a": replace(group.members["a"], instance_id="i")})
    after, _effects = step(group, RebalanceDue())
    assert after.state is COMPLETING
    assert set(after.members) == {"a", "b"}
    assert after.leader == "b"


def test_rebalance_with_absent_static_members_retries_at_most_once_a_second() -> None:
    lonely = member("a", instance_id="i", rebalance_timeout_ms=0)
    group = replace(group_in(PREPARING), members={"a": lonely}, pending=frozenset())
    after, effects = step(group, RebalanceDue())
    assert (after.state, effects) == (PREPARING, ["+rebalance 1000"])


def test_join_beyond_the_group_max_size_is_refused() -> None:
    assert step(group_in(STABLE), join(), max_size=2)[1] == [(9, 81)]
    assert step(group_in(STABLE), join("b"), max_size=1)[1] == [(9, 0)], "a joined member stays"
    # During PreparingRebalance the limit counts members that have joined: the last ones to rejoin are refused.
    after, effects = step(group_in(PREPARING), join("a"), max_size=1)
    assert effects == [(9, 81), "-a"]
    assert list(after.members) == ["b"]
    after, effects = step(group_in(PREPARING), join("p"), max_size=1)
    assert effects[:2] == [(9, 81), "-p"]
    assert after.state is PREPARING, "a has not joined yet"


def test_loaded_group_above_the_max_size_rebalances() -> None:
    after, _effects = step(group_in(STABLE), Loaded(), max_size=1)
    assert after.state is PREPARING


def test_unused_group_with_a_pending_member_id_is_kept() -> None:
    assert step(group_in(EMPTY), Delete(None, only_if_unused=True))[1] == []
    idle = replace(group_in(EMPTY), pending=frozenset())
    assert step(idle, Delete(None, only_if_unused=True))[1] == ["deletion"]


def test_write_outcome_of_another_generation_is_ignored() -> None:
    old = replace(write_of(COMPLETING), group=replace(group_in(COMPLETING), generation_id=3))
    assert step(group_in(COMPLETING), Persisted(old)) == (group_in(COMPLETING), [])
    static = replace(write_of(STABLE), group=replace(group_in(STABLE), generation_id=3))
    assert step(group_in(STABLE), Persisted(static)) == (group_in(STABLE), [(9, 27)])


def test_assignment_of_an_unknown_member_is_ignored_and_a_missing_one_is_empty() -> None:
    group, effects = advance(
        group_in(COMPLETING), Sync(9, "a", None, 4, assignments=(("x", b"?"),)), now_ms=NOW, settings=SETTINGS
    )
    write = effects[-1]
    assert isinstance(write, Persist)
    assert {name: one.assignment for name, one in write.group.members.items()} == {"a": b"", "b": b""}
    after, _ = step(group, Persisted(write))
    assert after == replace(
        write.group, members={name: replace(one, sync_token=None) for name, one in write.group.members.items()}
    )
