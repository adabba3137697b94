"""Values of a streams group, and the changes that its log consists of.

A `Group` changes only by `apply`, in operation and when it is loaded: every change is a record of `__consumer_offsets`,
except those at the end of the list, which a restart loses as it does in Kafka. `machine` decides which changes an event
leads to. Sources: KIP-1071, KIP-1263, KIP-1331.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import field
from enum import Enum, IntEnum
from typing import TypeAlias

from ....protocol.frozen import frozen
from ....protocol.named import NamedTuple
from .topology import Configured
from .values import NO_TASKS, NOTHING, TaskOffsets, Tasks, TasksTuple, Topology

JOIN, LEAVE, STATIC_LEAVE = 0, -1, -2
"""Member epochs in a heartbeat: the member joins; it leaves; the static member leaves and will return."""
NO_ASSIGNMENT = -1
"""The assignment epoch after its tombstone."""
NOT_VALIDATED = -1
NO_DESCRIPTION = (-1, -1)

Task: TypeAlias = tuple[str, int]
"""Subtopology id and partition."""
ActiveTasks: TypeAlias = Mapping[str, Mapping[int, int]]
"""The epochs at which active tasks were assigned, by subtopology id and partition."""
NO_ACTIVE: ActiveTasks = {}


class GroupState(Enum):
    """The states; values are Kafka's names in ListGroups and StreamsGroupDescribe."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """The reconciliation of a member, with the numbers of its record."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127


class Endpoint(NamedTuple):
    """The address of an application for interactive queries."""

    host: str
    port: int


@frozen
class Info:
    """What a member has sent about itself. Members of the same application instance have the same `process_id`."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: Endpoint | None = None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])


class HeldTasks(NamedTuple):
    """Tasks of a member, with the epochs at which the active ones were assigned."""

    active: ActiveTasks = NO_ACTIVE
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    @property
    def tasks(self) -> TasksTuple:
        """The tasks without epochs."""
        active = {id: frozenset(epochs) for id, epochs in self.active.items()}
        return TasksTuple(active, self.standby, self.warmup)


HOLDS_NOTHING = HeldTasks()


@frozen
class Current:
    """The epoch of a member and its tasks: those that it keeps, and those that it has to revoke."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: HeldTasks = HOLDS_NOTHING
    revoking: HeldTasks = HOLDS_NOTHING


@frozen
class Member:
    member_id: str
    info: Info = Info()
    current: Current = Current()

    def is_reconciled(self, epoch: int) -> bool:
        """Returns whether the member has the target assignment of this epoch."""
        return self.current.epoch == epoch and self.current.state is MemberState.STABLE


@frozen
class MemberOffsets:
    """The sums of changelog offsets and of end offsets that a member has reported for its tasks."""

    offsets: TaskOffsets = field(default_factory=dict[str, Mapping[int, int]])
    end_offsets: TaskOffsets = field(default_factory=dict[str, Mapping[int, int]])


NO_OFFSETS = MemberOffsets()


# --- changes with records --------------------------------------------------------------------------------------------


class EpochSet(NamedTuple):
    """Key 17. None removes the group. `description` has the topology epochs that a plugin for descriptions has stored
    and refused (KIP-1331); a broker without such a plugin keeps them.
    """

    epoch: int | None
    metadata_hash: int = 0
    validated_epoch: int = NOT_VALIDATED
    configs: Mapping[str, str] = {}
    description: tuple[int, int] = NO_DESCRIPTION


class InfoSet(NamedTuple):
    """Key 19. None removes the member."""

    member_id: str
    info: Info | None


class AssignmentEpochSet(NamedTuple):
    """Key 20. The time is 0 if it is unknown."""

    epoch: int | None
    at_ms: int = 0


class TargetSet(NamedTuple):
    """Key 21."""

    member_id: str
    tasks: TasksTuple | None


class CurrentSet(NamedTuple):
    """Key 22. None: the member leaves."""

    member_id: str
    current: Current | None


class TopologySet(NamedTuple):
    """Key 23."""

    topology: Topology | None


# --- changes without records -----------------------------------------------------------------------------------------


class Checked(NamedTuple):
    """The topics of the topology were compared at this version of the metadata."""

    version: int


class ConfiguredSet(NamedTuple):
    """The topology was configured for the topics that exist."""

    configured: Configured


class ShutdownRequested(NamedTuple):
    """The member has requested that all members end; the first one counts until the group is empty."""

    member_id: str


class EndpointEpochSet(NamedTuple):
    """The epoch of the endpoints of members."""

    endpoint_epoch: int


class OffsetsReported(NamedTuple):
    """The member has reported changelog offsets."""

    member_id: str
    offsets: MemberOffsets


class DelaySet(NamedTuple):
    """Whether the first assignment of the group waits for more members."""

    is_delayed: bool


Recorded: TypeAlias = EpochSet | InfoSet | AssignmentEpochSet | TargetSet | CurrentSet | TopologySet
Unrecorded: TypeAlias = Checked | ConfiguredSet | ShutdownRequested | EndpointEpochSet | OffsetsReported | DelaySet
Change: TypeAlias = Recorded | Unrecorded
RECORDED = (EpochSet, InfoSet, AssignmentEpochSet, TargetSet, CurrentSet, TopologySet)


# --- the group -------------------------------------------------------------------------------------------------------


class Group:
    """A streams group, with the look-ups that decisions need. Read it freely, change it only by `apply`."""

    kind = "streams"
    protocol_type = "streams"

    def __init__(self, group_id: str, first_epoch: int = 1) -> None:
        """`first_epoch` is the epoch of a group without members: 1 since 4.3, where it was 0."""
        self.group_id = group_id
        self.epoch = first_epoch
        self.metadata_hash = 0
        self.validated_epoch = NOT_VALIDATED
        """The epoch of the topology if all of its topics exist."""
        self.configs: Mapping[str, str] = {}
        """The configs of the last assignment."""
        self.description = NO_DESCRIPTION
        self.assignment_epoch = first_epoch
        self.assigned_ms = 0
        self.topology: Topology | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        """Member ids by instance id."""
        self.target: dict[str, TasksTuple] = {}
        self.active: dict[Task, str] = {}
        """The process of the member that has an active task, also while it has to revoke it."""
        self.standby: dict[Task, set[str]] = {}
        self.warmup: dict[Task, set[str]] = {}
        self.is_stored = False
        """Whether the group has a record."""
        self.checked: int | None = None
        """The version of the metadata that was compared last."""
        self.configured: Configured | None = None
        self.shutdown_by: str | None = None
        self.endpoint_epoch = 0
        self.offsets: dict[str, MemberOffsets] = {}
        self.is_delayed = False
        self._reconciled = 0

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_epoch:
            return GroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        return GroupState.STABLE if self._reconciled == len(self.members) else GroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def source_topics(self) -> Mapping[str, str]:
        """The ids of the subtopologies by the topics that they read."""
        found: dict[str, str] = {}
        for part in self.topology.subtopologies.values() if self.topology is not None else ():
            for topic in (*part.source_topics, *(one.name for one in part.repartition_sources)):
                found[topic] = part.id
        return found

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The topics that the members read."""
        return frozenset(self.source_topics) if self.members else frozenset()

    def static_member(self, instance_id: str | None) -> Member | None:
        """Returns the member with this instance id, or None."""
        member_id = self.static.get(instance_id) if instance_id is not None else None
        return self.members.get(member_id) if member_id is not None else None

    def processes(self, kind: str, task: Task) -> Set[str]:
        """Returns the processes with this `standby` or `warmup` task."""
        return (self.standby if kind == "standby" else self.warmup).get(task, frozenset[str]())

    def apply(self, change: Change) -> None:
        """Makes a change."""
        if isinstance(change, CurrentSet):
            self._set_current(change)
        elif isinstance(change, InfoSet):
            self._set_info(change)
        elif isinstance(change, EpochSet):
            self.is_stored = change.epoch is not None
            self.epoch, self.metadata_hash = change.epoch or 0, change.metadata_hash
            self.validated_epoch, self.configs = change.validated_epoch, change.configs
            self.description = change.description
        elif isinstance(change, AssignmentEpochSet):
            self.assignment_epoch = NO_ASSIGNMENT if change.epoch is None else change.epoch
            self.assigned_ms = change.at_ms
            self._reconciled = sum(one.is_reconciled(self.assignment_epoch) for one in self.members.values())
        elif isinstance(change, TargetSet):
            if change.tasks is None:
                self.target.pop(change.member_id, None)
            else:
                self.target[change.member_id] = change.tasks
        elif isinstance(change, TopologySet):
            self.topology = change.topology
        else:
            self._apply_unrecorded(change)

    def _apply_unrecorded(self, change: Unrecorded) -> None:
        if isinstance(change, Checked):
            self.checked = change.version
        elif isinstance(change, ConfiguredSet):
            self.configured = change.configured
        elif isinstance(change, ShutdownRequested):
            self.shutdown_by = self.shutdown_by or change.member_id
        elif isinstance(change, EndpointEpochSet):
            self.endpoint_epoch = change.endpoint_epoch
        elif isinstance(change, OffsetsReported):
            self.offsets[change.member_id] = change.offsets
        else:
            self.is_delayed = change.is_delayed

    def _set_current(self, change: CurrentSet) -> None:
        member = self.members.get(change.member_id)
        if change.current is not None:
            self._put(Member(change.member_id, member.info if member is not None else Info(), change.current))
        elif member is not None:
            self._put(Member(change.member_id, member.info, Current(LEAVE, LEAVE)))

    def _set_info(self, change: InfoSet) -> None:
        member = self.members.get(change.member_id)
        if change.info is not None:
            self._put(Member(change.member_id, change.info, member.current if member is not None else Current()))
        elif member is not None:
            self._remove(member)

    def _put(self, member: Member) -> None:
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if old is not None:
            self._unlink(old)
        if member.info.instance_id is not None:
            self.static[member.info.instance_id] = member.member_id
        for held in (member.current.assigned, member.current.revoking):
            for task in each(held.active):
                self.active[task] = member.info.process_id
            for task in each(held.standby):
                self.standby.setdefault(task, set()).add(member.info.process_id)
            for task in each(held.warmup):
                self.warmup.setdefault(task, set()).add(member.info.process_id)
        self._reconciled += member.is_reconciled(self.assignment_epoch)

    def _remove(self, member: Member) -> None:
        del self.members[member.member_id]
        self._unlink(member)
        self.offsets.pop(member.member_id, None)
        if not self.members:
            self.shutdown_by = None

    def _unlink(self, member: Member) -> None:
        """Removes a member from the look-ups. A task may have a new owner already while the group is loaded from a
        compacted log.
        """
        process_id, instance_id = member.info.process_id, member.info.instance_id
        if instance_id is not None and self.static.get(instance_id) == member.member_id:
            del self.static[instance_id]
        for held in (member.current.assigned, member.current.revoking):
            for task in each(held.active):
                if self.active.get(task) == process_id:
                    del self.active[task]
            for tasks, holders in ((held.standby, self.standby), (held.warmup, self.warmup)):
                for task in each(tasks):
                    processes = holders.get(task, set())
                    processes.discard(process_id)
                    if not processes:
                        holders.pop(task, None)
        self._reconciled -= member.is_reconciled(self.assignment_epoch)


def each(tasks: Mapping[str, Iterable[int]]) -> Iterator[Task]:
    """Yields each task."""
    for id, partitions in tasks.items():
        for partition in partitions:
            yield id, partition


def grouped(tasks: Iterable[Task]) -> dict[str, frozenset[int]]:
    """Returns tasks by subtopology id."""
    found: dict[str, set[int]] = {}
    for id, partition in tasks:
        found.setdefault(id, set()).add(partition)
    return {id: frozenset(partitions) for id, partitions in found.items()}


def target_of(group: Group, member_id: str) -> TasksTuple:
    """Returns the target assignment of a member."""
    return group.target.get(member_id, NOTHING)
