"""A streams group with simulated members, without a broker: its machine, its records and its laws."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.broker.groups.common_events import (
    CancelTimer,
    Decision,
    Delete,
    Forget,
    Loaded,
    MemberLeave,
    Reply,
    StartTimer,
    Timer,
)
from ottla.broker.groups.common_state import JOIN, LEAVE, STATIC_LEAVE, MemberState
from ottla.broker.groups.streams.events import Heartbeat, HeartbeatReply, Settings
from ottla.broker.groups.streams.machine import decide
from ottla.broker.groups.streams.records import decode, encode_all
from ottla.broker.groups.streams.state import RECORDED, Endpoint, Group, Task, each
from ottla.broker.groups.streams.values import NOTHING, InternalTopic, Subtopology, TasksTuple, Topology
from ottla.broker.groups.topics import TopicLookup, TopicShape
from ottla.protocol.errors import ErrorCode

STORED = (
    "epoch",
    "metadata_hash",
    "validated_epoch",
    "configs",
    "description",
    "assignment_epoch",
    "assigned_ms",
    "topology",
    "members",
    "static",
    "target",
    "active",
    "standby",
    "warmup",
    "is_stored",
    "state",
)
"""The attributes of a group that its records have."""


def topology(epoch: int = 0, source: str = "in") -> Topology:
    """A stateless part that writes a repartition topic, and a stateful part that reads it."""
    copied = Subtopology("0", (source,), repartition_sinks=("rep",))
    counted = Subtopology("1", changelogs=(InternalTopic("log"),), repartition_sources=(InternalTopic("rep"),))
    return Topology(epoch, {"0": copied, "1": counted})


@dataclass
class Client:
    """A thread of a streams application: what it has, and what it will report."""

    member_id: str
    process_id: str = "p"
    instance_id: str | None = None
    topology: Topology = field(default_factory=topology)
    endpoint: Endpoint | None = None
    tags: dict[str, str] = field(default_factory=dict)
    epoch: int = 0
    endpoint_epoch: int = 0
    tasks: TasksTuple = NOTHING
    is_joined: bool = False
    sends_all: bool = False

    def active(self) -> set[Task]:
        return set(each(self.tasks.active))


class World:
    """Feeds a group, applies its changes as they are read from its records, and checks the laws after each."""

    def __init__(self, settings: Settings | None = None, **counts: int) -> None:
        self.settings = settings or Settings(assignment_interval_ms=0, initial_delay_ms=0)
        self.counts = counts or {"in": 3, "rep": 3, "log": 3}
        self.version = 1
        self.group: Group = Group("g", self.settings.first_epoch)
        self.now_ms = 1_000_000
        self.timers: dict[Any, int] = {}
        self.log: list[tuple[bytes, bytes | None]] = []
        self.fail = False

    def set(self, name: str, count: int | None) -> None:
        """Changes the number of partitions of a topic; with None it is deleted."""
        self.version += 1
        if count is None:
            self.counts.pop(name, None)
        else:
            self.counts[name] = count

    def _shape_of(self, name: str) -> TopicShape | None:
        return TopicShape(name.encode().ljust(16, b"\0"), name, self.counts[name]) if name in self.counts else None

    def decide(self, event: Any) -> Decision[Any, Any]:
        topics = TopicLookup(
            lambda name, index: index < self.counts.get(name, 0),
            lambda topic_id: None,
            lambda name: None,
            self._shape_of,
            version=lambda: self.version,
        )
        return decide(self.group, event, now_ms=self.now_ms, settings=self.settings, topics=topics)

    def feed(self, event: Any) -> Any:
        """Feeds an event; returns its response, if any."""
        before = self.group.epoch, self.group.assignment_epoch
        held = self.holders()
        decision = self.decide(event)
        if self.fail and any(isinstance(change, RECORDED) for change in decision.changes):
            if isinstance(event, Timer):
                self.timers[event] = self.now_ms + 500
            return None
        response = self.adopt(decision)
        if not isinstance(event, Delete):
            assert self.group.epoch >= before[0], "group epochs do not go back"
            assert self.group.assignment_epoch >= before[1], "assignment epochs do not go back"
            self.check(held)
        return response

    def adopt(self, decision: Decision[Any, Any]) -> Any:
        for change in decision.changes:
            records = encode_all("g", [change])
            if not records:
                assert not isinstance(change, RECORDED)
                self.group.apply(change)
                continue
            (record,) = records
            self.log.append(record)
            read = decode(int.from_bytes(record[0][:2], "big"), *record)
            assert read is not None and read.group_id == "g"
            assert read.change == change, "a record has all of its change"
            self.group.apply(read.change)
        response = None
        for effect in decision.effects:
            if isinstance(effect, Reply):
                response = effect.response
            elif isinstance(effect, StartTimer):
                self.timers[effect.timer] = self.now_ms + effect.delay_ms
            elif isinstance(effect, CancelTimer):
                self.timers.pop(effect.timer, None)
            else:
                assert isinstance(effect, Forget)
                self.timers.clear()
                self.group = Group("g", self.settings.first_epoch)
                self.log.clear()
        return response

    def holders(self) -> dict[Task, str]:
        """Returns the member that has each active task, also while it has to revoke it."""
        found: dict[Task, str] = {}
        for member in self.group.members.values():
            for part in (member.current.assigned, member.current.revoking):
                for task in each(part.active):
                    assert found.setdefault(task, member.member_id) == member.member_id, "an active task has one owner"
        return found

    def check(self, held: dict[Task, str]) -> None:
        """The laws of the group; `held` is `holders` before the event."""
        group = self.group
        instances = {name: one.info.instance_id for name, one in group.members.items()}
        for task, name in self.holders().items():
            before = held.get(task, name)
            taken_over = before not in group.members and instances[name] is not None
            assert before == name or taken_over or before not in group.members, "a task is released before it is given"
        of_process: dict[tuple[str, Task], str] = {}
        for member in group.members.values():
            current = member.current
            assert current.epoch <= group.epoch
            if current.state is not MemberState.UNREVOKED:
                assert not any(map(len, current.revoking))
            for tasks in current.assigned.tasks:
                for task in each(tasks):
                    holder = of_process.setdefault((member.info.process_id, task), member.member_id)
                    assert holder == member.member_id, "members of a process do not share a task"
            assert all(at <= group.epoch for epochs in current.assigned.active.values() for at in epochs.values())
        assert set(group.target) <= set(group.members)
        targets = [task for tasks in group.target.values() for task in each(tasks.active)]
        assert len(set(targets)) == len(targets), "an active task is in one target"
        restored = self.restored()
        assert {name: getattr(restored, name) for name in STORED} == {name: getattr(group, name) for name in STORED}

    def restored(self) -> Group:
        """Returns the group as it is read from its records."""
        group = Group("g", self.settings.first_epoch)
        for key, value in self.log:
            read = decode(int.from_bytes(key[:2], "big"), key, value)
            assert read is not None
            group.apply(read.change)
        return group

    def restart(self) -> None:
        """Loads the group again."""
        self.group = self.restored()
        self.timers.clear()
        self.feed(Loaded())

    # --- members -------------------------------------------------------------------------------------------------

    def heartbeat(self, client: Client, *, loses_response: bool = False, **more: Any) -> HeartbeatReply:
        """Sends a heartbeat as a client does, and adopts the response."""
        joins = not client.is_joined
        event = Heartbeat(
            **{
                "member_id": client.member_id,
                "epoch": JOIN if joins else client.epoch,
                "endpoint_epoch": client.endpoint_epoch,
                "instance_id": client.instance_id,
                "rebalance_timeout_ms": 30_000 if joins else -1,
                "topology": client.topology if joins else None,
                "owned": NOTHING if joins else client.tasks,
                "process_id": client.process_id if joins else None,
                "endpoint": client.endpoint if joins else None,
                "tags": client.tags if joins else None,
                "client_id": "c",
                "client_host": "/h",
            }
            | more
        )
        reply = self.feed(event)
        if reply is None:
            return HeartbeatReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert isinstance(reply, HeartbeatReply)
        if loses_response:
            return reply
        if reply.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND):
            client.is_joined, client.epoch, client.tasks, client.endpoint_epoch = False, 0, NOTHING, 0
        elif reply.error is ErrorCode.NONE:
            assert joins or reply.epoch >= client.epoch, "the epoch of a member does not go back"
            client.is_joined, client.epoch, client.endpoint_epoch = True, reply.epoch, reply.endpoint_epoch
            if reply.tasks is not None:
                client.tasks = reply.tasks
        return reply

    def leave(self, client: Client, epoch: int = LEAVE, **more: Any) -> HeartbeatReply:
        """Leaves for good, or for a while with the epoch of a static member."""
        reply = self.feed(MemberLeave(client.member_id, epoch, client.instance_id, **more))
        client.is_joined, client.epoch, client.tasks, client.endpoint_epoch = False, 0, NOTHING, 0
        return reply

    def leave_for_a_while(self, client: Client) -> HeartbeatReply:
        return self.leave(client, STATIC_LEAVE)

    def settle(self, clients: list[Client], rounds: int = 40) -> None:
        """Lets all clients send heartbeats until nothing changes any more."""
        for _ in range(rounds):
            before = [(one.epoch, one.tasks) for one in clients], self.group.epoch
            for client in clients:
                self.heartbeat(client)
            if before == ([(one.epoch, one.tasks) for one in clients], self.group.epoch):
                return
        raise AssertionError("the members do not come to rest")

    def fire(self) -> None:
        """Lets the next timer fire."""
        timer, due_ms = min(self.timers.items(), key=lambda item: item[1])
        self.now_ms = max(self.now_ms, due_ms)
        del self.timers[timer]
        self.feed(timer)
