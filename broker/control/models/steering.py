"""Faults, the topology, the clock and snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from ....protocol.limits import INT16_MAX, INT16_MIN, INT64_MAX
from ...admin_api.clock import LATEST_MS
from ...faults.actions import ACTIONS, BYTES_MAX, CERTIFICATES, MS_MAX, ON, WHEN
from .parts import (
    ID_MAX,
    Count,
    Epoch,
    LeaderId,
    Model,
    NodeId,
    Number,
    PartitionIndex,
    Port,
    TimeMs,
    TopicName,
    doc,
    items,
    text,
    whole,
)

MOVE_MS_MAX = 100 * 366 * 86_400_000  # of the clock in one request: a hundred years
SnapshotName = Annotated[str, text(100, "a snapshot's name", 1)]
_Api = Annotated[str, text(100)] | Annotated[int, whole(0, INT16_MAX)]

if TYPE_CHECKING:
    ActionName: TypeAlias = str
    When: TypeAlias = str
    On: TypeAlias = str
    Certificate: TypeAlias = str
else:
    ActionName = Literal[tuple(ACTIONS)]
    When = Literal[WHEN]
    On = Literal[ON]
    Certificate = Literal[CERTIFICATES]


class Rule(Model):
    """A fault: its action, the requests, disk operations or listeners that it applies to, and how often it fires."""

    action: Annotated[ActionName, doc("what happens")]
    code: (
        Annotated[
            Annotated[str, text(100)] | Annotated[int, whole(INT16_MIN, INT16_MAX)],
            doc("error: the error code, by Kafka's name or as a number"),
        ]
        | UnsetType
    ) = UNSET
    ms: Annotated[int, whole(1, MS_MAX, "delay, throttle: for how long")] | UnsetType = UNSET
    when: Annotated[When, doc("delay, disconnect: before or after the broker does the work")] | UnsetType = UNSET
    bytes: Annotated[int, whole(0, BYTES_MAX, "truncate: how many bytes of the response are sent")] | UnsetType = UNSET
    on: Annotated[On, doc("disk_error: the operations that fail")] | UnsetType = UNSET
    certificate: Annotated[Certificate, doc("bad_certificate: what is wrong with it")] | UnsetType = UNSET
    path: Annotated[str, text(ID_MAX, "disk_error, disk_full: a pattern of paths")] | UnsetType = UNSET
    api: (
        Annotated[
            _Api | Annotated[list[_Api], items(1000)],
            doc("an API by Kafka's name or its key, or a list of them; all requests without it"),
        ]
        | UnsetType
    ) = UNSET
    topic: Annotated[str, text(ID_MAX, "a topic's name, or a pattern with * and ?")] | UnsetType = UNSET
    partition: PartitionIndex | UnsetType = UNSET
    client_id: Annotated[str, text(ID_MAX, "a client's id, or a pattern with * and ?")] | UnsetType = UNSET
    listener: Annotated[str, text(ID_MAX, "a listener's name")] | UnsetType = UNSET
    node: NodeId | UnsetType = UNSET
    nth: (
        Annotated[int, whole(1, INT64_MAX, "fires for the match of this number only, counted after `after`")]
        | UnsetType
    ) = UNSET
    times: Annotated[int, whole(1, INT64_MAX, "how often the fault fires at most")] | UnsetType = UNSET
    after: (
        Annotated[int, whole(0, INT64_MAX, "matches that pass before the first that can fire", default=0)] | UnsetType
    ) = UNSET
    probability: (
        Annotated[float, Meta(ge=0, le=1, description="above 0", extra_json_schema={"default": 1})] | UnsetType
    ) = UNSET
    seed: (
        Annotated[int, whole(-INT64_MAX, INT64_MAX, "makes the probability and garbled bytes repeatable")] | UnsetType
    ) = UNSET


class Fault(Rule, kw_only=True):
    """A rule in force."""

    id: Number
    matched: Annotated[Count, doc("requests, or operations of the disk, that matched so far")]
    fired: Annotated[Count, doc("how often the fault fired so far")]


class Faults(Model):
    """The faults in force, oldest first."""

    faults: list[Fault]


class Node(Model):
    id: NodeId
    host: str
    port: Port
    running: bool


class Leader(Model):
    topic: TopicName
    partition: PartitionIndex
    leader: LeaderId
    leader_epoch: Epoch
    replicas: list[NodeId]
    isr: list[NodeId]


class Topology(Model):
    nodes: list[Node]
    partitions: list[Leader]


class Move(Model):
    """The new leader of a partition."""

    topic: TopicName
    partition: PartitionIndex
    node: NodeId


class Offline(Model):
    """Whether a partition has no leader."""

    topic: TopicName
    partition: PartitionIndex
    offline: bool = True


class NodeChange(Model):
    """A node that does not run refuses connections and leads nothing."""

    running: bool


class Clock(Model):
    now_ms: TimeMs
    is_frozen: bool
    offset_ms: Annotated[int, doc("how far the clock is ahead of the machine's")]


class Moment(Model):
    ms: Annotated[int, whole(0, LATEST_MS, "milliseconds since 1970")]


class Advance(Model):
    ms: Annotated[int, whole(0, MOVE_MS_MAX, "how far")]
    keep_members: Annotated[bool, doc("whether group members survive the move")] = False


class NewSnapshot(Model):
    name: SnapshotName | UnsetType = UNSET


class Snapshot(Model):
    name: SnapshotName


class Snapshots(Model):
    snapshots: list[Snapshot]
