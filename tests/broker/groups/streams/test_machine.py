"""The decisions of streams groups. Expected values are Kafka's, read from `GroupMetadataManager` of 4.2 to 4.4."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.broker.groups.common_events import (
    Delete,
    DeleteReply,
    Loaded,
    MemberLeave,
    RevocationOverdue,
    SessionExpired,
)
from ottla.broker.groups.common_state import CurrentSet, GroupState, MemberState
from ottla.broker.groups.streams.events import DelayOver, Heartbeat, HeartbeatReply, Settings
from ottla.broker.groups.streams.machine import TABLE
from ottla.broker.groups.streams.state import NO_DESCRIPTION, Current, Endpoint, EpochSet, each
from ottla.broker.groups.streams.values import NOTHING, InternalTopic, Status, Subtopology, TasksTuple, Topology
from ottla.protocol.errors import ErrorCode
from ottla_testing.broker.streams_group_world import Client, World, topology
from ottla_testing.each import each as rows

NONE, FENCED, UNKNOWN = ErrorCode.NONE, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID
AT_ONCE = Settings(assignment_interval_ms=0, initial_delay_ms=0)
OLD = replace(AT_ONCE, has_static_members=False)
ALL = {(part, index) for part in "01" for index in range(3)}


def codes(reply: HeartbeatReply) -> list[int]:
    return [status.code for status in reply.statuses]


def world_with(*clients: Client, **settings: Any) -> World:
    world = World(replace(AT_ONCE, **settings))
    world.settle(list(clients))
    return world


def in_state(state: GroupState) -> World:
    """A group in a state, with the member a, and in most states b."""
    world = World(AT_ONCE)
    a, b = Client("a"), Client("b", "q")
    if state is GroupState.EMPTY:
        return world
    if state is GroupState.NOT_READY:
        world.set("rep", None)
    world.heartbeat(a)
    if state is GroupState.ASSIGNING:
        world.settings = replace(AT_ONCE, assignment_interval_ms=10_000)
        world.heartbeat(b)
    elif state is GroupState.RECONCILING:
        world.heartbeat(b)
    assert world.group.state is state
    return world


EVENTS = [
    Heartbeat("a", 0, topology=topology(), rebalance_timeout_ms=1000, process_id="p"),
    MemberLeave("a", -1),
    Delete(),
    Loaded(),
    SessionExpired("a"),
    RevocationOverdue("a"),
    DelayOver(),
]


@pytest.mark.parametrize("state", [state for state in GroupState if state is not GroupState.DEAD])
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_in_every_state_keeps_the_laws(state: GroupState, event: Any) -> None:
    assert (state, type(event)) in TABLE
    world = in_state(state)
    members = set(world.group.members)
    reply = world.feed(event)
    if isinstance(event, Heartbeat):
        assert reply.error is NONE and set(world.group.members) == members | {"a"}
    elif isinstance(event, MemberLeave):
        assert reply.error is (NONE if members else UNKNOWN) and set(world.group.members) == members - {"a"}
    elif isinstance(event, Delete):
        assert reply == DeleteReply(ErrorCode.NON_EMPTY_GROUP if members else NONE)
    elif isinstance(event, SessionExpired):
        assert set(world.group.members) == members - {"a"}
    elif isinstance(event, RevocationOverdue):
        assert set(world.group.members) == members  # a has nothing to revoke
    else:
        assert reply is None and set(world.group.members) == members
        if isinstance(event, Loaded):
            assert {timer.member_id for timer in world.timers if isinstance(timer, SessionExpired)} >= members


# --- joining and leaving ---------------------------------------------------------------------------------------------


def test_first_member_gets_all_tasks_in_epoch_2() -> None:
    world, a = World(AT_ONCE), Client("a")
    reply = world.heartbeat(a)
    assert (reply.error, reply.member_id, reply.epoch, reply.statuses) == (NONE, "a", 2, ())
    assert (reply.heartbeat_interval_ms, reply.task_offset_interval_ms, reply.acceptable_recovery_lag) == (
        5_000,
        60_000,
        10_000,
    )
    assert a.active() == ALL
    assert world.group.state is GroupState.STABLE and world.group.validated_epoch == 0
    assert world.heartbeat(a).tasks is None, "unchanged tasks are left out"


def test_second_member_waits_until_the_first_has_revoked() -> None:
    world, a, b = World(AT_ONCE), Client("a"), Client("b", "q")
    world.heartbeat(a)
    assert world.heartbeat(b).tasks == NOTHING and world.group.members["b"].current.state is MemberState.UNRELEASED
    reply = world.heartbeat(a)  # is to revoke; keeps its epoch
    assert reply.epoch == 2 and len(a.active()) == 3
    assert world.timers[RevocationOverdue("a")] == world.now_ms + 30_000
    assert world.heartbeat(b).tasks is None
    assert world.heartbeat(a).epoch == 3 and RevocationOverdue("a") not in world.timers
    world.heartbeat(b)
    assert a.active() | b.active() == ALL and not a.active() & b.active()


def test_member_that_does_not_revoke_in_time_is_removed() -> None:
    world, a, b = World(AT_ONCE), Client("a"), Client("b", "q")
    for client in (a, b, a):
        world.heartbeat(client)
    world.timers = {timer: at for timer, at in world.timers.items() if isinstance(timer, RevocationOverdue)}
    world.fire()
    assert set(world.group.members) == {"b"}
    assert world.heartbeat(a).error is UNKNOWN


def test_leaving_removes_the_member_and_begins_an_epoch() -> None:
    a, b = Client("a"), Client("b", "q")
    world = world_with(a, b)
    epoch = world.group.epoch
    reply = world.leave(a)
    assert (reply.error, reply.epoch, reply.statuses, world.group.epoch) == (NONE, -1, (), epoch + 1)
    world.settle([b])
    assert b.active() == ALL


@rows(("static", "assigned_ms"), [(True, 0), (False, 1_000_000)])
def test_last_member_that_leaves_ends_the_interval_between_assignments(static: bool, assigned_ms: int) -> None:
    a = Client("a")
    world = world_with(a, has_static_members=static)
    world.leave(a)
    assert (world.group.assigned_ms, world.group.state) == (assigned_ms, GroupState.EMPTY)


def test_session_ends_without_heartbeats() -> None:
    world, a = World(AT_ONCE), Client("a")
    world.heartbeat(a)
    world.now_ms += 1_000
    world.heartbeat(a)
    assert world.timers == {SessionExpired("a"): world.now_ms + 45_000}
    world.fire()
    assert not world.group.members


@rows(("has_room_for_known", "settings"), [(True, AT_ONCE), (False, OLD)])
def test_full_group_refuses_members(has_room_for_known: bool, settings: Settings) -> None:
    world, a = World(replace(settings, max_size=1)), Client("a")
    world.heartbeat(a)
    reply = world.heartbeat(Client("b"))
    assert reply.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert reply.message == "The streams group has reached its maximum capacity of 1 members."
    a.is_joined = False
    assert (world.heartbeat(a).error is NONE) is has_room_for_known


def test_group_that_is_refused_its_first_member_has_no_record() -> None:
    world = World(replace(AT_ONCE, max_size=0))
    assert world.heartbeat(Client("a")).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert not world.log and not world.group.is_stored


# --- epochs ----------------------------------------------------------------------------------------------------------


@rows(
    ("epoch", "owned", "error"),
    [
        (3, None, NONE),
        (2, TasksTuple({"0": frozenset({0})}), NONE),
        (2, TasksTuple({"0": frozenset({0, 1, 2})}), FENCED),
        (2, None, FENCED),
        (1, TasksTuple(), FENCED),
        (4, TasksTuple(), FENCED),
    ],
)
def test_heartbeat_needs_the_epoch_of_the_member(epoch: int, owned: TasksTuple | None, error: ErrorCode) -> None:
    """The previous epoch is accepted with no more tasks than the member has: the last response may be lost."""
    world = World(AT_ONCE)
    a, b = Client("a"), Client("b", "q")
    for client in (a, b, a, a):
        world.heartbeat(client)
    current = world.group.members["a"].current
    assert (current.epoch, current.previous_epoch) == (3, 2)
    kept = set(current.assigned.active["0"])
    if owned is not None and len(owned.active.get("0", ())) == 1:
        owned = TasksTuple({"0": frozenset(list(kept)[:1])})
    reply = world.feed(Heartbeat("a", epoch, owned=owned))
    assert reply.error is error
    if error is FENCED:
        compared = "greater" if epoch > 3 else "smaller"
        assert reply.message == (
            f"The streams group member has a {compared} member epoch ({epoch}) than the one known by the group "
            "coordinator (3). The member must abandon all its partitions and rejoin."
        )


def test_unknown_members_are_refused() -> None:
    world = world_with(Client("a"))
    reply = world.feed(Heartbeat("b", 2))
    assert (reply.error, reply.message) == (UNKNOWN, "Member b is not a member of group g.")
    assert world.feed(MemberLeave("b", -1)).error is UNKNOWN


def test_member_that_joins_again_keeps_its_epoch_and_gets_its_tasks() -> None:
    a = Client("a")
    world = world_with(a)
    epoch = world.group.epoch
    a.is_joined, a.tasks = False, NOTHING
    assert world.heartbeat(a).epoch == 2
    assert (a.active(), world.group.epoch) == (ALL, epoch)


def test_member_in_an_unknown_state_must_come_without_tasks() -> None:
    a = Client("a")
    world = world_with(a)
    world.group.apply(CurrentSet("a", Current(2, 2, MemberState.UNKNOWN)))
    world.log.clear()
    world.check = lambda held: None  # type: ignore[method-assign]  # the change has no record
    assert world.heartbeat(a).error is FENCED
    a.is_joined, a.tasks, a.epoch = True, NOTHING, 2
    assert world.heartbeat(a).error is NONE and a.active() == ALL


# --- topology --------------------------------------------------------------------------------------------------------


def test_other_topology_of_the_same_epoch_is_refused() -> None:
    world = world_with(Client("a"))
    for other in (topology(0, "rep"), topology(1)):
        reply = world.heartbeat(Client("b", topology=other))
        assert (reply.error, reply.message) == (ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")


def test_older_topology_is_stale() -> None:
    world, a, b = World(AT_ONCE), Client("a", topology=topology(2)), Client("b", "q", topology=topology(1))
    world.heartbeat(a)
    for _ in range(2):
        (status,) = world.heartbeat(b).statuses
        assert status == (
            Status.STALE_TOPOLOGY,
            "The member's topology epoch 1 is behind the group's topology epoch 2.",  # words: quoted
        )


def test_missing_topics_are_reported_until_they_exist() -> None:
    world, a = World(AT_ONCE, other=1), Client("a")
    reply = world.heartbeat(a)
    assert [tuple(status) for status in reply.statuses] == [
        (Status.MISSING_SOURCE_TOPICS, "Source topics in are missing.")
    ]
    assert (reply.tasks, reply.to_create, world.group.state) == (NOTHING, (), GroupState.NOT_READY)
    world.set("in", 2)
    reply = world.heartbeat(a)
    assert codes(reply) == [Status.MISSING_INTERNAL_TOPICS]
    assert sorted(reply.to_create) == [InternalTopic("log", 2), InternalTopic("rep", 2)]
    epoch = world.group.epoch
    world.heartbeat(a)
    assert world.group.epoch == epoch, "the same topics do not begin an epoch"
    world.set("log", 2)
    world.set("rep", 2)
    assert codes(world.heartbeat(a)) == [] and len(a.active()) == 4
    world.set("log", 3)
    assert codes(world.heartbeat(a)) == [Status.INCORRECTLY_PARTITIONED_TOPICS]
    world.heartbeat(a)
    assert a.active() == set() and world.group.state is GroupState.NOT_READY


def test_topics_of_others_do_not_begin_an_epoch() -> None:
    a = Client("a")
    world = world_with(a)
    epoch = world.group.epoch
    world.set("other", 1)
    world.heartbeat(a)
    assert (world.group.epoch, world.group.checked) == (epoch, world.version)


@rows(
    ("owned", "message"),
    [
        ({"2": {0}}, "Subtopology 2 does not exist in the topology."),
        ({"1": {3}}, "Task 3 for subtopology 1 is invalid. Number of tasks for this subtopology: 3"),
        ({"1": {-1}}, "Task -1 for subtopology 1 is invalid. Number of tasks for this subtopology: 3"),
    ],
)
@pytest.mark.parametrize("role", range(3))
def test_tasks_that_do_not_exist_are_refused(owned: dict[str, set[int]], message: str, role: int) -> None:
    a = Client("a")
    world = world_with(a)
    tasks = [NOTHING.active] * 3
    tasks[role] = {id: frozenset(found) for id, found in owned.items()}
    reply = world.feed(Heartbeat("a", a.epoch, owned=TasksTuple(*tasks)))
    assert (reply.error, reply.message) == (ErrorCode.INVALID_REQUEST, message)


def test_topology_that_no_topics_complete_is_refused() -> None:
    world = World(AT_ONCE)
    empty = Topology(0, {"0": Subtopology("0")})
    reply = world.heartbeat(Client("a", topology=empty))
    assert reply.error is ErrorCode.STREAMS_INVALID_TOPOLOGY and not world.log


# --- when assignments are computed -----------------------------------------------------------------------------------


def test_first_assignment_waits_for_more_members() -> None:
    world, a, b = World(replace(AT_ONCE, initial_delay_ms=3_000)), Client("a"), Client("b", "q")
    for client in (a, b):
        reply = world.heartbeat(client)
        assert (reply.epoch, reply.tasks) == (1, NOTHING)
        assert [tuple(status) for status in reply.statuses] == [
            (Status.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay.")
        ]
    assert world.timers[DelayOver()] == world.now_ms + 3_000
    world.now_ms += 3_000
    del world.timers[DelayOver()]
    world.feed(DelayOver())
    assert world.group.assignment_epoch == world.group.epoch
    assert world.heartbeat(a).statuses == () and len(a.active()) == 3
    world.heartbeat(b)
    assert a.active() | b.active() == ALL


def test_delay_of_a_group_whose_topology_was_not_configured_is_over_without_an_assignment() -> None:
    """As in Kafka: the heartbeat that makes the group does not keep what it has configured."""
    world, a = World(replace(AT_ONCE, initial_delay_ms=3_000)), Client("a")
    world.heartbeat(a)
    assert world.group.configured is None
    world.feed(DelayOver())
    assert world.group.assignment_epoch == 1
    world.heartbeat(a)
    assert a.active() == ALL


def test_assignments_are_spaced() -> None:
    world, a, b = World(replace(AT_ONCE, assignment_interval_ms=1_000)), Client("a"), Client("b", "q")
    world.heartbeat(a)
    reply = world.heartbeat(b)
    assert [tuple(status) for status in reply.statuses] == [
        (Status.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval.")
    ]
    assert reply.tasks == NOTHING and world.group.state is GroupState.ASSIGNING
    world.now_ms += 1_000
    assert world.heartbeat(b).statuses == () and world.group.assignment_epoch == world.group.epoch


def test_changed_configs_begin_an_epoch() -> None:
    a, b = Client("a"), Client("b", "q")
    world = world_with(a, b)
    epoch = world.group.epoch
    assert world.group.configs == {"num.standby.replicas": "0"}
    world.settings = replace(AT_ONCE, standby_replicas=1)
    world.settle([a, b])
    assert world.group.epoch == epoch + 1 and world.group.configs == {"num.standby.replicas": "1"}
    assert {task for one in (a, b) for task in each(one.tasks.standby)} == {("1", index) for index in range(3)}


def test_epochs_of_a_plugin_for_descriptions_are_kept() -> None:
    a = Client("a")
    world = world_with(a)
    assert world.group.description == NO_DESCRIPTION
    world.group.apply(EpochSet(world.group.epoch, world.group.metadata_hash, 0, world.group.configs, (4, 3)))
    world.check = lambda held: None  # type: ignore[method-assign]  # the change has no record
    world.leave(a)
    assert world.restored().description == (4, 3)


# --- static members --------------------------------------------------------------------------------------------------


def test_static_member_returns_with_a_new_id_and_keeps_its_tasks() -> None:
    a, b = Client("a", instance_id="i"), Client("b", "q")
    world = world_with(a, b)
    epoch, tasks = world.group.epoch, a.active()
    reply = world.leave_for_a_while(a)
    assert (reply.error, reply.epoch, world.group.epoch) == (NONE, -2, epoch)
    current = world.group.members["a"].current
    assert current.epoch == -2 and set(current.assigned.active["0"].values()) == {0}
    again = Client("a2", instance_id="i")
    world.heartbeat(again)
    assert (again.active(), world.group.epoch, again.epoch) == (tasks, epoch, epoch)
    assert world.group.static == {"i": "a2"} and set(world.group.members) == {"a2", "b"}
    assert {timer.member_id for timer in world.timers} == {"a2", "b"}
    reply = world.feed(Heartbeat("a", 2, instance_id="i"))
    assert (reply.error, reply.message) == (
        ErrorCode.FENCED_INSTANCE_ID,
        "Static member a with instance id i was fenced by member a2.",
    )


def test_changed_static_member_begins_an_epoch() -> None:
    a = Client("a", instance_id="i")
    world = world_with(a)
    epoch = world.group.epoch
    world.leave_for_a_while(a)
    world.heartbeat(Client("a2", "other process", instance_id="i"))
    assert world.group.epoch == epoch + 1


def test_instance_id_of_a_present_member_is_refused() -> None:
    world = world_with(Client("a", instance_id="i"))
    reply = world.heartbeat(Client("b", instance_id="i"))
    assert (reply.error, reply.message) == (
        ErrorCode.UNRELEASED_INSTANCE_ID,
        "Static member b with instance id i cannot join the group because the instance id is owned by a member.",
    )


def test_unknown_instance_id_is_refused() -> None:
    world = world_with(Client("a"))
    reply = world.feed(Heartbeat("a", 2, instance_id="i"))
    assert (reply.error, reply.message) == (UNKNOWN, "Instance id i is unknown.")


def test_static_member_that_left_goes_with_its_session() -> None:
    a = Client("a", instance_id="i")
    world = world_with(a)
    world.leave_for_a_while(a)
    world.feed(RevocationOverdue("a"))
    assert set(world.group.members) == {"a"}
    world.fire()
    assert not world.group.members and not world.group.static


# --- statuses and endpoints ------------------------------------------------------------------------------------------


def test_shutdown_is_requested_of_all_members_until_the_group_is_empty() -> None:
    a, b = Client("a"), Client("b", "q")
    world = world_with(a, b)
    text = "Streams group member a encountered a fatal error and requested a shutdown for the entire application."
    for reply in (world.heartbeat(a, shuts_down=True), world.heartbeat(b, shuts_down=True), world.heartbeat(a)):
        assert [tuple(status) for status in reply.statuses] == [(Status.SHUTDOWN_APPLICATION, text)]
    world.leave(a)
    world.leave(b, shuts_down=True)
    assert world.heartbeat(Client("c")).statuses == ()


def test_missing_client_tags_are_reported_since_v1() -> None:
    world = World(replace(AT_ONCE, rack_tags=("zone", "row")))
    reply = world.heartbeat(Client("a", tags={"row": "1"}))
    assert [tuple(status) for status in reply.statuses] == [
        (
            Status.MISSING_CLIENT_TAGS,
            "Missing required client tags for rack-aware standby assignment: [zone]. Configure them via "
            "'client.tag.<tagKey>' in your Streams config.",
        )
    ]
    assert world.heartbeat(Client("b"), api_version=0).statuses == ()
    assert world.heartbeat(Client("c", tags={"row": "1", "zone": "2"})).statuses == ()
    assert world.group.configs == {"num.standby.replicas": "0", "rack.aware.assignment.tags": "zone,row"}


def test_endpoints_are_sent_until_the_member_has_them() -> None:
    world = World(AT_ONCE)
    a, b = Client("a", endpoint=Endpoint("h", 1)), Client("b", "q")
    reply = world.heartbeat(a)
    assert reply.endpoints is not None and reply.endpoint_epoch == 0, "the new group does not keep the epoch"
    world.settle([a, b])
    epoch = world.group.endpoint_epoch
    assert epoch > 0 and a.endpoint_epoch == b.endpoint_epoch == epoch
    b.endpoint_epoch = 0
    reply = world.heartbeat(b)
    assert reply.endpoints is not None
    ((endpoint, found),) = reply.endpoints
    assert endpoint == Endpoint("h", 1)
    assert found.active == tuple(
        (topic, tuple(sorted(a.tasks.active[part]))) for part, topic in (("0", "in"), ("1", "rep"))
    )
    assert world.heartbeat(b).endpoints is None


def test_endpoint_is_forgotten_by_a_join_without_one_since_4_4() -> None:
    for settings, has_endpoint in ((AT_ONCE, False), (OLD, True)):
        world, a = World(settings), Client("a", endpoint=Endpoint("h", 1))
        world.settle([a])
        a.is_joined, a.endpoint, a.tasks = False, None, NOTHING
        world.heartbeat(a)
        assert (world.group.members["a"].info.endpoint is not None) is has_endpoint


def test_reported_offsets_are_kept_until_the_member_leaves() -> None:
    a = Client("a")
    world = world_with(a)
    world.heartbeat(a, offsets={"1": {0: 5}})
    world.heartbeat(a, end_offsets={"1": {0: 7}})
    kept = world.group.offsets["a"]
    assert (kept.offsets, kept.end_offsets) == ({"1": {0: 5}}, {"1": {0: 7}})
    world.leave(a)
    assert not world.group.offsets


# --- roles -----------------------------------------------------------------------------------------------------------


def test_task_changes_its_role_without_being_revoked_since_4_4() -> None:
    for settings, standby in ((AT_ONCE, {"1": {0}}), (OLD, {})):
        world, clients = World(settings, **{"in": 1, "rep": 1, "log": 1}), [Client("a", "p"), Client("b", "q")]
        world.settle(clients)
        world.check = lambda held: None  # type: ignore[method-assign]  # the target has no record
        owner = next(one.member_id for one in clients if ("1", 0) in one.active())
        group = world.group
        group.target[owner] = TasksTuple({}, {"1": frozenset({0})})
        group.epoch += 1
        group.assignment_epoch += 1
        world.heartbeat(next(one for one in clients if one.member_id == owner))
        current = group.members[owner].current
        assert current.state is MemberState.UNREVOKED and set(current.revoking.active) == {"1"}
        assert {id: set(found) for id, found in current.assigned.standby.items()} == standby
