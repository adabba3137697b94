"""Share groups: members, epochs, assignments, and the initialization of share partitions.

Expected values are Kafka 4.3's, read from `GroupMetadataManager` and `SimpleAssignor`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from ottla.broker.groups.common_events import (
    CancelTimer,
    HeartbeatReply,
    Loaded,
    MemberLeave,
    Reply,
    SessionExpired,
    StartTimer,
)
from ottla.broker.groups.common_state import GroupState
from ottla.broker.groups.share.assignor import assign
from ottla.broker.groups.share.events import (
    AlterOffsets,
    DeleteGroup,
    DeleteOffsets,
    DeleteState,
    Event,
    Heartbeat,
    Initialize,
    OffsetsDeleted,
    OffsetsReply,
    Settings,
    StateInitialized,
    TopicDeleted,
)
from ottla.broker.groups.share.machine import decide
from ottla.broker.groups.share.records import decode, encode_all
from ottla.broker.groups.share.state import Group
from ottla.broker.groups.topics import TopicLookup, TopicShape
from ottla.protocol.errors import ErrorCode
from ottla_testing.each import each

NONE, FENCED, UNKNOWN = ErrorCode.NONE, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID
T, U = b"t" * 16, b"u" * 16


class World:
    """A group with its topics; the state of share partitions is initialized at once unless `initializes` is off."""

    def __init__(self, **settings: Any) -> None:
        self.topics = {"t": TopicShape(T, "t", 2)}
        self.version = 0
        self.settings = Settings(**{"assignment_interval_ms": 0} | settings)
        self.group = Group("g", self.settings.first_epoch)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = 1000
        self.initializes = True
        self.starts: list[Initialize] = []
        self.timers: dict[str, int] = {}
        self.deleted: list[DeleteState] = []

    def feed(self, event: Event) -> Any:
        topics = TopicLookup(
            lambda name, index: name in self.topics,
            lambda topic_id: None,
            lambda name: None,
            self.topics.get,
            version=lambda: self.version,
        )
        decision = decide(self.group, event, now_ms=self.now_ms, settings=self.settings, topics=topics)
        self.log += encode_all("g", decision.changes)
        for change in decision.changes:
            self.group.apply(change)
        self.check()
        response = None
        for effect in decision.effects:
            if isinstance(effect, Reply):
                response = effect.response
            elif isinstance(effect, StartTimer):
                assert isinstance(effect.timer, SessionExpired)
                self.timers[effect.timer.member_id] = self.now_ms + effect.delay_ms
            elif isinstance(effect, CancelTimer):
                assert isinstance(effect.timer, SessionExpired)
                self.timers.pop(effect.timer.member_id, None)
            elif isinstance(effect, DeleteState):
                self.deleted.append(effect)
            else:
                self.starts.append(effect)
                if self.initializes:
                    self.feed(StateInitialized({id: frozenset(found) for id, found in effect.starts.items()}))
        return response

    def check(self) -> None:
        """The counts that the group keeps agree with its members and targets."""
        group = self.group
        subscribed = [topic for member in group.members.values() for topic in member.info.topics]
        assert group.subscribers == Counter(subscribed)
        ready = group.initialization.initialized
        targets = {(id, n) for target in group.target.values() for id, indexes in target.items() for n in indexes}
        free = [(id, n) for id, topic in ready.items() for n in topic.partitions if (id, n) not in targets]
        if any(ready[id].name in subscribed for id, _ in free):
            assert group.has_unassigned
        shapes = [shape for topic in set(subscribed) if (shape := self.topics.get(topic))]
        if group.complete == self.version:
            assert all(len(ready[shape.topic_id].partitions) == shape.partitions for shape in shapes)

    def beat(self, member: str = "m", epoch: int = 0, topics: str | None = None, **more: Any) -> HeartbeatReply:
        names = frozenset(topics) if topics is not None else frozenset("t") if epoch == 0 else None
        reply = self.feed(Heartbeat(member, epoch, topics=names, **more))
        assert isinstance(reply, HeartbeatReply)
        return reply

    def settled(self, *members: str, topics: str = "t") -> dict[str, HeartbeatReply]:
        """Joins members, and lets all heartbeat until their assignments stay."""
        replies = {member: self.beat(member, topics=topics) for member in members}
        for _ in range(3):
            for member in self.group.members:
                replies[member] = self.beat(member, self.group.members[member].current.epoch)
        return replies

    def assigned(self, member: str) -> dict[bytes, set[int]]:
        return {id: set(found) for id, found in self.group.members[member].current.assigned.items()}

    def restored(self) -> Group:
        """The group as it is loaded from its records."""
        group = Group("g", self.settings.first_epoch)
        for key, value in self.log:
            decoded = decode(int.from_bytes(key[:2], "big"), key, value)
            assert decoded is not None
            group.apply(decoded[1])
        return group


def test_first_response_has_no_partitions_and_the_second_has() -> None:
    world = World()
    reply = world.beat()
    assert (reply.error, reply.epoch, reply.assignment, reply.heartbeat_interval_ms) == (NONE, 2, {}, 5000)
    assert world.starts == [Initialize(2, {T: {0: -1, 1: -1}})]
    reply = world.beat(epoch=2)
    assert (reply.epoch, reply.assignment) == (3, {T: {0, 1}})
    reply = world.beat(epoch=3)
    assert (reply.epoch, reply.assignment) == (3, None), "unchanged"
    assert world.beat(epoch=3, topics="t").assignment == {T: {0, 1}}, "a full request"
    assert world.group.state is GroupState.STABLE


def test_first_epoch_before_4_3() -> None:
    world = World(first_epoch=0)
    assert world.beat().epoch == 1


def test_partition_belongs_to_several_members() -> None:
    world = World()
    world.settled("a", "b", "c")
    counts = [sum(index in world.assigned(one)[T] for one in "abc") for index in range(2)]
    assert sorted(counts) == [2, 2] and sorted(len(world.assigned(one)[T]) for one in "abc") == [1, 1, 2]


def test_epochs_of_heartbeats() -> None:
    world = World()
    world.settled("m")
    epoch = world.group.members["m"].current.epoch
    assert world.beat(epoch=epoch + 1).error is FENCED
    assert world.beat(epoch=epoch - 1).error is NONE, "the previous one: the response was lost"
    assert world.beat(epoch=epoch - 2 or 99).error is FENCED
    reply = world.beat(epoch=0)
    assert reply.error is NONE and reply.assignment == {T: {0, 1}}, "a member may join again"
    assert world.beat("x", 1).error is UNKNOWN


def test_group_is_full() -> None:
    world = World(max_size=1)
    world.settled("a")
    assert world.beat("b").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.beat("a").error is NONE


@each("way", ["leave", "expire"])
def test_removed_member(way: str) -> None:
    world = World()
    world.settled("a", "b")
    epoch = world.group.epoch
    if way == "leave":
        assert world.feed(MemberLeave("a")) == HeartbeatReply(NONE, None, "a", -1)
        assert "a" not in world.timers
        assert world.feed(MemberLeave("a")).error is UNKNOWN
    else:
        world.feed(SessionExpired("a"))
        world.feed(SessionExpired("a"))
    assert world.group.epoch == epoch + 1 and list(world.group.members) == ["b"] == list(world.group.target)
    world.settled()
    assert world.assigned("b") == {T: {0, 1}}
    world.feed(MemberLeave("b"))
    assert world.group.state is GroupState.EMPTY and world.group.is_empty


def test_sessions_start_when_loaded() -> None:
    world = World()
    world.settled("a", "b")
    world.timers.clear()
    world.feed(Loaded())
    assert world.timers == {"a": 46_000, "b": 46_000}


def test_changed_subscription() -> None:
    world = World()
    world.topics["u"] = TopicShape(U, "u", 1)
    world.settled("m")
    epoch = world.group.epoch
    reply = world.beat(epoch=epoch, topics="u")
    assert reply.epoch == epoch + 1 and reply.assignment == {}, "topics that are no longer subscribed go at once"
    reply = world.beat(epoch=reply.epoch)
    assert reply.assignment == {U: {0}}


def test_new_partitions_and_deleted_topics() -> None:
    world = World()
    world.settled("m")
    world.topics["t"], world.version = TopicShape(T, "t", 3), 1
    world.settled()
    assert world.assigned("m") == {T: {0, 1, 2}}
    assert [start.starts for start in world.starts] == [{T: {0: -1, 1: -1}}, {T: {2: -1}}]
    del world.topics["t"]
    world.version = 2
    world.feed(TopicDeleted(T))
    world.settled()
    assert world.assigned("m") == {} and world.group.initialization.initialized == {}


def test_failed_initialization_is_repeated() -> None:
    world = World()
    world.initializes = False
    world.beat()
    assert len(world.starts) == 1
    world.beat(epoch=2)
    assert len(world.starts) == 1, "it is under way"
    world.now_ms += 30_000
    world.beat(epoch=2)
    assert len(world.starts) == 2, "no result came"
    world.feed(StateInitialized({T: frozenset({0, 1})}, failed=True))
    world.beat(epoch=2)
    assert len(world.starts) == 3
    world.feed(StateInitialized({T: frozenset({0})}))
    assert world.beat(epoch=2).assignment == {T: {0}}


def test_assignments_have_an_interval() -> None:
    world = World(assignment_interval_ms=1000)
    world.beat()
    assert world.beat(epoch=2).epoch == 2
    world.now_ms += 1000
    assert world.beat(epoch=2).assignment == {T: {0, 1}}


def test_offsets_of_an_empty_group() -> None:
    world = World()
    world.settled("m")
    assert world.feed(AlterOffsets({"t": {0: 5}})).error is ErrorCode.NON_EMPTY_GROUP
    assert world.feed(DeleteOffsets(("t",))).error is ErrorCode.NON_EMPTY_GROUP
    assert world.feed(DeleteGroup()).error is ErrorCode.NON_EMPTY_GROUP
    world.feed(MemberLeave("m"))
    reply = world.feed(AlterOffsets({"t": {0: 5, 9: 1}, "x": {0: 1}}))
    assert isinstance(reply, OffsetsReply)
    assert {place: code for place, (code, _) in reply.results.items()} == {("t", 0): 0, ("t", 9): 3, ("x", 0): 3}
    assert world.starts[-1] == Initialize(world.group.epoch, {T: {0: 5}})
    world.topics["u"] = TopicShape(U, "u", 1)
    reply = world.feed(DeleteOffsets(("t", "u", "x")))
    assert {name: code for (name, _), (code, _) in reply.results.items()} == {"t": 0, "u": 3, "x": 3}
    assert world.deleted == [DeleteState({T: frozenset({0, 1})})]
    assert world.group.initialization.deleting == {T: "t"}
    assert world.feed(DeleteOffsets(("t",))).results == {("t", -1): (0, None)}, "repeated until it succeeds"
    world.feed(OffsetsDeleted(frozenset({T})))
    assert world.group.initialization.deleting == {}


def test_deleted_group_deletes_its_state() -> None:
    world = World()
    world.settled("m")
    world.feed(MemberLeave("m"))
    assert world.feed(DeleteGroup()) == OffsetsReply(NONE)
    assert world.deleted == [DeleteState({T: frozenset({0, 1})})]


def test_records_restore_the_group(scaled: Callable[[int], int]) -> None:
    """Random lives: after each event the group is that of its records, and the assignment is balanced."""
    for seed in range(scaled(30)):
        draw, world = random.Random(seed), World(max_size=6)
        world.topics["u"] = TopicShape(U, "u", 3)
        for _ in range(60):
            member = draw.choice("abcdef")
            known = world.group.members.get(member)
            act = draw.random()
            if known is None or act < 0.1:
                world.beat(member, 0, draw.choice(["t", "u", "tu"]))
            elif act < 0.2:
                world.feed(draw.choice([MemberLeave(member), SessionExpired(member)]))
            elif act < 0.25:
                world.topics["t"] = TopicShape(T, "t", world.topics["t"].partitions + 1)
                world.version += 1
            else:
                world.beat(member, known.current.epoch)
            world.now_ms += draw.choice([1, 40_000])
            again = world.restored()
            for name in ("epoch", "metadata_hash", "assignment_epoch", "assigned_ms", "members", "target"):
                assert getattr(again, name) == getattr(world.group, name), (seed, name)
            assert again.initialization.assignable == world.group.initialization.assignable
        world.settled()
        for id, name in ((T, "t"), (U, "u")):
            subscribers = [one for one in world.group.members if name in world.group.members[one].info.topics]
            for index in range(world.topics[name].partitions) if subscribers else ():
                assert any(index in world.assigned(one).get(id, ()) for one in subscribers), (seed, name, index)


@each("members", [1, 2, 3, 5, 8])
def test_assignment_is_balanced_and_sticky(members: int) -> None:
    for partitions in (1, 2, 3, 7):
        subscriptions = {f"m{number}": frozenset({T, U}) for number in range(members)}
        assignable = {T: frozenset(range(partitions)), U: frozenset(range(2))}
        first = assign(subscriptions, {}, assignable)
        counts = [sum(map(len, found.values())) for found in first.values()]
        assert max(counts) - min(counts) <= 1 and min(counts) >= 1
        owners = [
            sum(index in one.get(id, ()) for one in first.values()) for id in assignable for index in assignable[id]
        ]
        assert max(owners) - min(owners) <= 1 and min(owners) >= 1
        assert assign(subscriptions, first, assignable) == first
        subscriptions["late"] = frozenset({T, U})
        second = assign(subscriptions, first, assignable)
        counts = [sum(map(len, found.values())) for found in second.values()]
        assert max(counts) - min(counts) <= 1 and min(counts) >= 1


def test_assignment_of_different_subscriptions() -> None:
    subscriptions = {"a": frozenset({T}), "b": frozenset({T, U}), "c": frozenset({U})}
    assignable = {T: frozenset(range(4)), U: frozenset({0})}
    made = assign(subscriptions, {}, assignable)
    assert len(made["a"][T]) == len(made["b"][T]) == 2 and made["b"][U] == made["c"][U] == {0}
    assert assign({"a": frozenset({T}), "b": frozenset({U})}, made, assignable) == {
        "a": {T: frozenset(range(4))},
        "b": {U: frozenset({0})},
    }
    assert assign({"a": frozenset()}, {}, assignable) == {"a": {}} and assign({}, {}, assignable) == {}
