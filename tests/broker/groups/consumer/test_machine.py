"""Decisions of the consumer protocol's machine, event by event. KIP-848."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.groups.classic import state as classic
from ottla.broker.groups.common_events import (
    Delete,
    HeartbeatReply,
    Loaded,
    MemberLeave,
    RevocationOverdue,
    SessionExpired,
)
from ottla.broker.groups.common_state import (
    AssignmentEpochSet,
    CurrentSet,
    EpochSet,
    GroupState,
    InfoSet,
    MemberState,
    TargetSet,
)
from ottla.broker.groups.consumer import events
from ottla.broker.groups.consumer.events import Caller, MemberHeartbeat, RegexesResolved, Settings
from ottla.broker.groups.consumer.machine import TABLE, decide
from ottla.broker.groups.consumer.state import Group
from ottla.protocol.consumer_protocol import assignment_bytes
from ottla.protocol.errors import ErrorCode
from ottla_testing.broker.consumer_group_world import Client, Topics, World, topic_id

A, B = topic_id("a"), topic_id("b")
ALWAYS = Settings(assignment_interval_ms=0)


def world(*clients: Client, settings: Settings = ALWAYS, **counts: int) -> World:
    made = World(Topics(**(counts or {"a": 4, "b": 2})), settings)
    for client in clients:
        made.heartbeat(client)
    if clients:
        made.settle(list(clients))
    return made


def client(name: str, topics: str = "a", **more: Any) -> Client:
    return Client(name, frozenset(topics), **more)


def kinds(made: World, event: Any) -> list[type]:
    decision = decide(made.group, event, now_ms=made.now_ms, settings=made.settings, topics=made.topics.lookup)
    return [type(change) for change in decision.changes if type(change).__name__ != "Checked"]


def test_table_has_every_pair_of_state_and_event() -> None:
    happens = {kind for _, kind in TABLE}
    assert happens == {
        MemberHeartbeat, MemberLeave, Delete, Loaded, RegexesResolved, *events.TIMERS,
        classic.Join, classic.Sync, classic.Heartbeat, classic.Leave,
    }  # fmt: skip
    states = set(Group.states) - {GroupState.DEAD}  # a removed group receives no events
    assert set(TABLE) == {(state, event) for state in states for event in happens}


@pytest.mark.parametrize("state", ["empty", "stable", "reconciling", "assigning"])
@pytest.mark.parametrize("number", range(12))
def test_every_event_in_every_state_keeps_the_laws(state: str, number: int) -> None:
    m, n = client("m"), client("n")
    made = world(settings=Settings(assignment_interval_ms=1000 if state == "assigning" else 0))
    if state != "empty":
        made.heartbeat(m)
        made.settle([m])
    if state in ("reconciling", "assigning"):
        made.heartbeat(n)
    assert made.group.state.value.lower() == state
    join = classic.JoinRequest("", None, "c", "/h", 10_000, 30_000, "consumer", (("range", SUBSCRIPTION),))
    all_events = [
        MemberHeartbeat("m", 99, owned={}),
        MemberLeave("m"),
        Delete(),
        Loaded(),
        RegexesResolved({}),
        *(timer("m") for timer in events.TIMERS),
        classic.Join(4, "k", join),
        classic.Sync(5, "m", None, 1),
        classic.Heartbeat(6, "m", None, 1),
        classic.Leave(7, (("m", None), ("x", None))),
    ]
    event = all_events[number]
    if state == "empty" and isinstance(event, classic.Join):
        return  # the coordinator makes the group a classic one before
    reply = made.feed(event)
    assert (reply is None) == isinstance(event, (Loaded, RegexesResolved, *events.TIMERS))


SUBSCRIPTION = b"\0\1\0\0\0\1\0\1a\xff\xff\xff\xff\0\0\0\0"


def test_first_member_writes_its_records_in_kafkas_order() -> None:
    made = world()
    request = MemberHeartbeat("m", 0, rebalance_timeout_ms=1, topics=frozenset("a"), owned={})
    assert kinds(made, request) == [
        InfoSet, EpochSet, TargetSet, AssignmentEpochSet, CurrentSet,
    ]  # fmt: skip
    m = client("m")
    made.heartbeat(m)
    assert kinds(made, MemberLeave("m")) == [CurrentSet, TargetSet, InfoSet, EpochSet]
    assert kinds(made, MemberHeartbeat("m", 2, client_id="c", client_host="/h")) == []


def test_first_epoch_is_2_since_kafka_4_3_and_1_before() -> None:
    m = client("m")
    assert world(m).group.epoch == 2
    m = client("m")
    assert world(m, settings=Settings(assignment_interval_ms=0, first_epoch=0)).group.epoch == 1


def test_a_second_member_gets_partitions_after_the_first_has_revoked_them() -> None:
    m, n = client("m"), client("n")
    made = world(m)
    assert m.partitions() == {(A, index) for index in range(4)}
    first = made.heartbeat(n)
    assert (first.epoch, first.assignment) == (3, {})
    assert made.group.members["n"].current.state is MemberState.UNRELEASED
    reply = made.heartbeat(m)  # it has to revoke, in its old epoch
    assert (reply.epoch, {topic: len(some) for topic, some in (reply.assignment or {}).items()}) == (2, {A: 2})
    assert made.group.members["m"].current.state is MemberState.UNREVOKED
    assert RevocationOverdue("m") in made.timers
    assert made.heartbeat(n).assignment is None
    assert made.heartbeat(m).epoch == 3  # confirms
    assert RevocationOverdue("m") not in made.timers
    assert made.heartbeat(n).assignment is not None
    assert len(n.partitions()) == len(m.partitions()) == 2
    assert made.group.state is GroupState.STABLE


def test_a_member_that_does_not_revoke_in_time_is_fenced() -> None:
    m, n = client("m"), client("n")
    made = world(m)
    made.heartbeat(n)
    made.heartbeat(m)
    made.feed(RevocationOverdue("m"))
    assert set(made.group.members) == {"n"}
    assert made.heartbeat(m).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert not m.is_joined and not m.owned
    made.settle([m, n])
    assert len(m.partitions()) == len(n.partitions()) == 2


def test_a_member_without_heartbeats_is_fenced_and_its_partitions_move() -> None:
    m, n = client("m"), client("n")
    made = world(m, n)
    epoch = made.group.epoch
    made.feed(SessionExpired("m"))
    assert made.group.epoch == epoch + 1
    made.settle([n])
    assert len(n.partitions()) == 4


@pytest.mark.parametrize(
    ("epoch", "owned", "error"),
    [
        (2, None, ErrorCode.NONE),
        (3, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (1, {}, ErrorCode.FENCED_MEMBER_EPOCH),
        (0, {}, ErrorCode.NONE),
    ],
)
def test_epochs_of_heartbeats(epoch: int, owned: Any, error: ErrorCode) -> None:
    made = world(client("m"))
    request = MemberHeartbeat("m", epoch, owned=owned, client_id="c", client_host="/h")
    assert made.feed(request).error is error
    old = Settings(assignment_interval_ms=0, rejoins_at_zero=False)
    made = world(client("m"), settings=old)
    made.topics.set("a", 6)
    made.heartbeat(next(iter([client("m", is_joined=True, epoch=2)])))
    assert made.feed(MemberHeartbeat("m", 0, owned={})).error is (ErrorCode.FENCED_MEMBER_EPOCH)


def test_the_previous_epoch_is_accepted_with_a_subset_of_the_assignment() -> None:
    m = client("m")
    made = world(m)
    made.topics.set("a", 6)
    made.heartbeat(m, loses_response=True)
    assert made.group.members["m"].current.epoch == 3
    more = MemberHeartbeat("m", 2, owned={B: frozenset({0})})
    assert made.feed(more).error is ErrorCode.FENCED_MEMBER_EPOCH
    reply = made.heartbeat(m)
    assert (reply.error, reply.epoch, len(m.partitions())) == (ErrorCode.NONE, 3, 6)


def test_a_full_group_refuses_only_new_members() -> None:
    m = client("m")
    made = world(m, settings=Settings(assignment_interval_ms=0, max_size=1))
    assert made.heartbeat(client("n")).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert made.heartbeat(m).error is ErrorCode.NONE


def test_static_members_take_their_partitions_along() -> None:
    m, n = client("m", instance_id="i"), client("n")
    made = world(m, n)
    held, epoch = m.partitions(), made.group.epoch
    again = client("m2", instance_id="i")
    reply = made.heartbeat(again)
    assert reply.error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert made.leave_for_a_while(m).epoch == -2
    assert made.group.members["m"].current.epoch == -2
    made.settle([n])
    assert len(n.partitions()) == 2, "its partitions stay reserved"
    made.heartbeat(again)
    assert again.partitions() == held
    assert made.group.epoch == epoch, "the group is not rebalanced"
    stolen = MemberHeartbeat("m", 2, instance_id="i")
    assert made.feed(stolen).error is ErrorCode.FENCED_INSTANCE_ID
    unknown = MemberHeartbeat("m", 2, instance_id="j")
    assert made.feed(unknown).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_assignments_are_spaced() -> None:
    m, n = client("m"), client("n")
    made = world(m, settings=Settings(assignment_interval_ms=1000))
    made.heartbeat(n)
    assert made.group.state is GroupState.ASSIGNING
    assert (made.group.epoch, made.group.assignment_epoch) == (3, 2)
    made.now_ms += 1000
    made.settle([m, n])
    assert made.group.state is GroupState.STABLE and len(n.partitions()) == 2


@pytest.mark.parametrize("change", [6, None])
def test_changed_topics_begin_a_new_epoch(change: int | None) -> None:
    m = client("m", "ab")
    made = world(m)
    made.topics.set("a", change)
    made.settle([m])
    assert made.group.epoch == 3
    assert len(m.partitions()) == 2 + (change or 0)
    made.topics.set("other", 9)
    made.settle([m])
    assert made.group.epoch == 3


def test_most_members_select_the_assignor() -> None:
    m, n, o = client("m", assignor="range"), client("n", assignor="range"), client("o", assignor="uniform")
    made = world(m, n, o, a=3)
    assert [made.group.target[name][A] for name in "mno"] == [{0}, {1}, {2}]


def test_regular_expressions_are_resolved_in_the_background() -> None:
    m = client("m", "", regex="[ab]")
    made = world()
    assert made.heartbeat(m).assignment == {}
    assert [search.regexes for search in made.searches] == [("[ab]",)]
    made.settle([m])
    assert {topic for topic, _ in m.partitions()} == {A, B}
    assert made.group.resolved["[ab]"].topics == {"a", "b"}
    made.topics.set("ax", 1)
    made.now_ms += 20_000
    made.settle([m])  # a new topic starts a search, which finds nothing new
    assert made.group.resolved["[ab]"].version == made.topics.version
    m.regex = "a.*"
    made.heartbeat(m, full=True)
    assert "[ab]" not in made.group.resolved
    made.now_ms += 20_000
    made.settle([m])
    assert {topic for topic, _ in m.partitions()} == {A, topic_id("ax")}
    made.leave(m)
    assert not made.group.resolved and made.group.state is GroupState.EMPTY


@pytest.mark.parametrize(
    ("regex", "problem"),
    [("[", "missing closing ]"), ("(", "missing closing )"), ("*", "missing argument to repetition operator")],
)
def test_an_invalid_regular_expression_is_refused_in_the_words_of_re2j(regex: str, problem: str) -> None:
    reply = world().heartbeat(client("m", "", regex=regex))
    assert (reply.error, reply.message) == (
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {problem}.",
    )


def test_a_known_regular_expression_is_assigned_at_once() -> None:
    m, n = client("m", "", regex="[ab]"), client("n", "", regex="[ab]")
    made = world(m)
    made.heartbeat(n)
    assert not made.searches
    assert made.group.target["n"]


def test_results_for_expressions_without_subscribers_are_dropped() -> None:
    m = client("m", "a", regex="b")
    made = world()
    made.heartbeat(m)
    m.regex = ""
    made.heartbeat(m, full=True)
    made.resolve()
    assert not made.group.resolved


# --- classic members -------------------------------------------------------------------------------------------------


def join(made: World, name: str = "", instance: str | None = None, *, topics: str = "a", **changes: Any) -> Any:
    listed = b"".join(b"\0\1" + topic.encode() for topic in topics)
    metadata = b"\0\1" + len(topics).to_bytes(4, "big") + listed + b"\xff\xff\xff\xff\0\0\0\0"
    fields = {"member_id": name, "instance_id": instance, "client_id": "c", "client_host": "/h"}
    fields |= {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer"}
    request = classic.JoinRequest(**({**fields, "protocols": (("range", metadata),)} | changes))
    return made.feed(classic.Join(next(made.tokens), f"k{next(made.tokens)}", request))


def sync(made: World, reply: Any) -> Any:
    return made.feed(classic.Sync(next(made.tokens), reply.member_id, None, reply.generation_id, "consumer", "range"))


def beat(made: World, reply: Any) -> ErrorCode:
    heartbeat = classic.Heartbeat(next(made.tokens), reply.member_id, None, reply.generation_id)
    return made.feed(heartbeat).error


def test_a_classic_member_joins_a_group_of_the_consumer_protocol() -> None:
    m = client("m")
    made = world(m)
    required = join(made, requires_member_id=True)
    assert required.error is ErrorCode.MEMBER_ID_REQUIRED
    joined = join(made, required.member_id, requires_member_id=True)
    assert joined[:3] == (ErrorCode.NONE, required.member_id, 3)
    assert (joined.protocol_type, joined.protocol_name, joined.leader, joined.members) == ("consumer", "range", "", ())
    assert sync(made, joined).assignment == assignment_bytes([], 1)
    assert beat(made, joined) is ErrorCode.NONE  # its partitions have another owner
    made.settle([m])
    assert beat(made, joined) is ErrorCode.REBALANCE_IN_PROGRESS
    joined = join(made, joined.member_id)
    synced = sync(made, joined)
    (partitions,) = [one for _, one in read(synced.assignment)]
    assert len(partitions) == 2 and len(m.partitions()) == 2
    assert beat(made, joined) is ErrorCode.NONE
    assert beat(made, joined._replace(generation_id=9)) is ErrorCode.ILLEGAL_GENERATION
    assert beat(made, joined._replace(member_id="m", generation_id=3)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(made, joined._replace(member_id="who")) is ErrorCode.UNKNOWN_MEMBER_ID


def read(assignment: bytes) -> list[tuple[str, list[int]]]:
    from ottla.protocol.consumer_protocol import read_assignment

    return [(one.topic, one.partitions) for one in read_assignment(assignment).assigned_partitions]


@pytest.mark.parametrize(
    ("changes", "policy", "error"),
    [
        ({}, "disabled", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, "bidirectional", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, "bidirectional", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("range", b"\0"),)}, "bidirectional", ErrorCode.UNKNOWN_SERVER_ERROR),
        ({}, "downgrade", ErrorCode.NONE),
    ],
)
def test_joins_of_classic_members_that_are_refused(changes: Any, policy: Any, error: ErrorCode) -> None:
    made = world(client("m"), settings=Settings(assignment_interval_ms=0, migration=policy))
    assert join(made, **changes).error is error


@pytest.mark.parametrize("how", ["leave", "expire", "admin"])
def test_the_last_member_of_the_consumer_protocol_leaves_a_classic_group(how: str) -> None:
    m = client("m")
    made = world(m)
    joined = join(made)
    if how == "leave":
        made.leave(m)
    elif how == "expire":
        made.feed(SessionExpired("m"))
    else:
        made.feed(classic.Leave(9, (("m", None),)))
    group = made.classic
    assert group is not None
    assert (group.state, group.generation_id, group.protocol_name) == (classic.GroupState.STABLE, 3, "range")
    (member,) = group.members.values()
    assert (member.member_id, group.leader) == (joined.member_id, joined.member_id)
    assert read(member.assignment) == [("a", [2, 3])] or len(read(member.assignment)[0][1]) == 2


@pytest.mark.parametrize("policy", ["upgrade", "disabled"])
def test_a_group_does_not_become_classic_against_the_policy(policy: Any) -> None:
    m = client("m")
    made = world(m, settings=Settings(assignment_interval_ms=0))
    join(made)
    made.settings = Settings(assignment_interval_ms=0, migration=policy)
    made.leave(m)
    assert made.classic is None and len(made.group.members) == 1


def test_a_classic_static_member_replaces_the_last_one_of_the_consumer_protocol() -> None:
    m = client("m", instance_id="i")
    made = world(m)
    reply = join(made, instance="i")
    assert made.classic is not None and reply.error is ErrorCode.NONE
    assert list(made.classic.members) == [reply.member_id]
    assert read(made.classic.members[reply.member_id].assignment) == [("a", [0, 1, 2, 3])]


def test_a_classic_member_that_does_not_sync_or_join_in_time_is_removed() -> None:
    for overdue in (events.SyncOverdue, events.JoinOverdue):
        m = client("m")
        made = world(m, settings=Settings(assignment_interval_ms=0, migration="upgrade"))
        joined = join(made)
        if overdue is events.JoinOverdue:
            sync(made, joined)
            made.settle([m])
            assert beat(made, joined) is ErrorCode.REBALANCE_IN_PROGRESS
        assert overdue(joined.member_id) in made.timers
        made.feed(overdue(joined.member_id))
        assert set(made.group.members) == {"m"}


def test_caller_of_a_search_is_the_member_of_the_heartbeat() -> None:
    made = world()
    made.heartbeat(client("m", "", regex="a"))
    assert [search.caller for search in made.searches] == [Caller("User:u", "h")]


def test_replies_of_refused_requests_have_their_form() -> None:
    made = world()
    assert made.feed(MemberLeave("m")) == HeartbeatReply(
        ErrorCode.UNKNOWN_MEMBER_ID, "Member m is not a member of group g."
    )
    made = world(client("m"))
    assert made.feed(Delete()).error is ErrorCode.NON_EMPTY_GROUP
