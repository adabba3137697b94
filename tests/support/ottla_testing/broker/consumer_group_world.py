"""A group of the consumer protocol with simulated members, without a broker: its machine, its records and its laws."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from ottla.broker.groups.classic.state import Group as ClassicGroup
from ottla.broker.groups.common_events import (
    CancelTimer,
    Decision,
    Delete,
    HeartbeatReply,
    MemberLeave,
    Reply,
    StartTimer,
)
from ottla.broker.groups.common_state import LEAVE, STATIC_LEAVE, MemberState
from ottla.broker.groups.consumer.events import (
    TIMERS,
    BecomeClassic,
    Caller,
    MemberHeartbeat,
    RegexesResolved,
    Resolve,
    Settings,
)
from ottla.broker.groups.consumer.machine import decide
from ottla.broker.groups.consumer.records import decode, encode_all
from ottla.broker.groups.consumer.state import Group, Resolved
from ottla.broker.groups.topics import TopicLookup, TopicShape
from ottla.broker.patterns import Pattern
from ottla.protocol.errors import ErrorCode


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")


class Topics:
    """Topics that tests create, extend and delete."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.version = 1
        self.created = 1

    def set(self, name: str, count: int | None) -> None:
        self.version += 1
        if name not in self.counts and count is not None:
            self.created = self.version
        if count is None:
            self.counts.pop(name, None)
        else:
            self.counts[name] = count

    @property
    def lookup(self) -> TopicLookup:
        return TopicLookup(
            has_partition=lambda name, index: 0 <= index < self.counts.get(name, 0),
            name_of=lambda wanted: next((name for name in self.counts if topic_id(name) == wanted), None),
            id_of=lambda name: topic_id(name) if name in self.counts else None,
            shape_of=lambda name: TopicShape(topic_id(name), name, self.counts[name]) if name in self.counts else None,
            names=lambda: list(self.counts),
            version=lambda: self.version,
            created_version=lambda: self.created,
        )


@dataclass
class Client:
    """A consumer: what it owns, and what it will report. It revokes with one heartbeat and confirms with the next."""

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    regex: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: dict[bytes, set[int]] = field(default_factory=dict)
    is_joined: bool = False
    sends_all: bool = False
    """Whether the next heartbeat has all fields, because a response is missing."""

    def partitions(self) -> set[tuple[bytes, int]]:
        return {(topic, index) for topic, indexes in self.owned.items() for index in indexes}


class World:
    """Feeds a group, applies its changes as they are read from its records, and checks the laws after each."""

    def __init__(self, topics: Topics, settings: Settings | None = None) -> None:
        self.topics = topics
        self.clients_made = 0
        self.settings = settings or Settings(assignment_interval_ms=0)
        self.group = Group("g", self.settings.first_epoch)
        self.classic: ClassicGroup | None = None
        self.now_ms = 1_000_000
        self.tokens = itertools.count(1)
        self.timers: dict[Any, int] = {}
        self.log: list[tuple[bytes, bytes | None]] = []
        self.batches: list[int] = []
        """The length of the log after each write."""
        self.reply: Any = None
        self.searches: list[Resolve] = []
        self.epochs: dict[str, int] = {}
        self.fail = False

    def feed(self, event: Any) -> Any:
        """Feeds an event; returns its response, if any."""
        before = self.group.epoch, self.group.assignment_epoch
        decision = decide(self.group, event, now_ms=self.now_ms, settings=self.settings, topics=self.topics.lookup)
        if self.fail and decision.changes:
            if isinstance(event, TIMERS):
                self.timers[event] = self.now_ms + 500
            return None
        self.adopt(decision)
        if self.classic is None and not isinstance(event, Delete):
            assert self.group.epoch >= before[0], "group epochs do not go back"
            assert self.group.assignment_epoch >= before[1], "assignment epochs do not go back"
            self.check()
        reply, self.reply = self.reply, None
        return reply

    def adopt(self, decision: Decision[Any, Any]) -> None:
        becomes = [effect for effect in decision.effects if isinstance(effect, BecomeClassic)]
        for change in decision.changes:
            records = encode_all("g", [change])
            if not records:
                self.group.apply(change)
                continue
            self.log += records
            read = decode(int.from_bytes(records[0][0][:2], "big"), *records[0])
            assert read is not None
            assert read.change == change, "a record has all of its change"
            if not becomes:
                self.group.apply(read.change)
        if decision.changes:
            self.batches.append(len(self.log))
        for effect in decision.effects:
            if isinstance(effect, Reply):
                self.reply = effect.response
            elif isinstance(effect, StartTimer):
                if not (effect.if_absent and effect.timer in self.timers):
                    self.timers[effect.timer] = self.now_ms + effect.delay_ms
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.timer, None)
            elif isinstance(effect, Resolve):
                self.searches.append(effect)
            elif isinstance(effect, BecomeClassic):
                self.timers.clear()
                self.classic = effect.group

    def check(self) -> None:
        """The laws of the group."""
        group = self.group
        owners: dict[tuple[bytes, int], str] = {}
        for member in group.members.values():
            for part in (member.current.assigned, member.current.revoking):
                for topic, epochs in part.items():
                    for index in epochs:
                        holder = owners.setdefault((topic, index), member.member_id)
                        assert holder == member.member_id, "a partition has one owner"
            assert member.current.epoch <= group.epoch
            if member.current.epoch >= 0:
                assert all(
                    0 <= at <= max(member.current.epoch, 0)
                    for epochs in member.current.assigned.values()
                    for at in epochs.values()
                ), "partitions are assigned in past epochs"
            if member.current.state is not MemberState.UNREVOKED:
                assert not member.current.revoking
        indexed = {(topic, index): one for topic, indexes in group.owners.items() for index, one in indexes.items()}
        assert indexed == owners
        assert set(group.target) <= set(group.members)
        targets: set[tuple[bytes, int]] = set()
        for partitions in group.target.values():
            for topic, indexes in partitions.items():
                for index in indexes:
                    assert (topic, index) not in targets, "a partition is in one target"
                    targets.add((topic, index))
        assert {(topic, index) for topic, indexes in group.target_owners.items() for index in indexes} == targets
        fresh = Group("g")
        for member in group.members.values():
            fresh._count(member, 1)  # pyright: ignore[reportPrivateUsage]
        assert (fresh.regexes, fresh.assignors, fresh.classic_members) == (
            group.regexes,
            group.assignors,
            group.classic_members,
        )
        assert {name: one.by_name for name, one in group.subscribers.items() if one.by_name} == {
            name: one.by_name for name, one in fresh.subscribers.items()
        }
        assert set(group.static.values()) == {
            name for name, one in group.members.items() if one.info.instance_id is not None
        }
        assert group.state.value == self.recomputed_state()

    def recomputed_state(self) -> str:
        group = self.group
        if not group.members:
            return "Empty"
        if group.epoch > group.assignment_epoch:
            return "Assigning"
        settled = all(member.is_reconciled(group.assignment_epoch) for member in group.members.values())
        return "Stable" if settled else "Reconciling"

    def restored(self) -> Group:
        """Returns the group as it is read from its records."""
        group = Group("g", self.settings.first_epoch)
        for key, value in self.log:
            read = decode(int.from_bytes(key[:2], "big"), key, value)
            assert read is not None
            group.apply(read.change)
        return group

    # --- members -------------------------------------------------------------------------------------------------

    def heartbeat(self, client: Client, *, full: bool = False, loses_response: bool = False) -> HeartbeatReply:
        """Sends a heartbeat as a client does, and adopts the response."""
        joins = not client.is_joined
        full = full or client.sends_all
        request = MemberHeartbeat(
            member_id=client.member_id,
            epoch=0 if joins else client.epoch,
            instance_id=client.instance_id,
            rebalance_timeout_ms=30_000 if joins or full else -1,
            topics=client.topics if joins or full else None,
            regex=client.regex if joins or full else None,
            assignor=client.assignor if joins or full else None,
            owned={} if joins else {topic: frozenset(indexes) for topic, indexes in client.owned.items()},
            client_id="c",
            client_host="/h",
            caller=Caller("User:u", "h"),
        )
        reply = self.feed(request)
        client.sends_all = reply is None or loses_response
        if reply is None:
            return HeartbeatReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert isinstance(reply, HeartbeatReply)
        if loses_response:
            return reply
        if reply.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND):
            client.is_joined, client.epoch, client.owned = False, 0, {}
        elif reply.error is ErrorCode.NONE:
            assert reply.epoch >= client.epoch, "the epoch of a member does not go back"
            client.is_joined, client.epoch = True, reply.epoch
            if reply.assignment is not None:
                client.owned = {topic: set(indexes) for topic, indexes in reply.assignment.items()}
        return reply

    def leave(self, client: Client, epoch: int = LEAVE) -> HeartbeatReply:
        """Leaves for good, or for a while with the epoch of a static member."""
        leaves = MemberLeave(client.member_id, epoch, client.instance_id)
        reply = self.feed(leaves)
        client.is_joined, client.epoch = False, 0
        client.owned = {}
        return reply

    def leave_for_a_while(self, client: Client) -> HeartbeatReply:
        return self.leave(client, STATIC_LEAVE)

    def resolve(self) -> None:
        """Ends the searches for topics of regular expressions."""
        for search in self.searches:
            found = {
                regex: Resolved(
                    frozenset(name for name in self.topics.counts if Pattern(regex).fullmatch(name)),
                    self.topics.version,
                    self.now_ms,
                )
                for regex in search.regexes
            }
            self.feed(RegexesResolved(found))
        self.searches.clear()

    def settle(self, clients: list[Client], rounds: int = 40) -> None:
        """Lets all clients send heartbeats until nothing changes any more."""
        for _ in range(rounds):
            before = [(one.epoch, one.partitions()) for one in clients], self.group.epoch
            self.resolve()
            for client in clients:
                self.heartbeat(client)
            if before == ([(one.epoch, one.partitions()) for one in clients], self.group.epoch) and not self.searches:
                return
        raise AssertionError("the members do not come to rest")

    def fire(self) -> None:
        """Lets the next timer fire."""
        timer, due_ms = min(self.timers.items(), key=lambda item: item[1])
        self.now_ms = max(self.now_ms, due_ms)
        del self.timers[timer]
        self.feed(timer)
