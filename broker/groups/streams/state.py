"""Values of a streams group, and the changes that its log consists of.

A `Group` changes only by `apply`, in operation and when it is loaded: every change is a record of `__consumer_offsets`,
except those at the end of the list, which a restart loses as it does in Kafka. `machine` decides which changes an event
leads to. Sources: KIP-1071, KIP-1263, KIP-1331.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import field
from typing import TypeAlias

from ....protocol.frozen import frozen
from ....protocol.named import NamedTuple
from ..common_state import (
    AssignedGroup,
    AssignmentEpochSet,
    Checked,
    CurrentSet,
    GroupState,
    InfoSet,
    MemberInfo,
    MemberProgress,
    TargetSet,
)
from ..common_state import Member as AnyMember
from .topology import Configured
from .values import NO_TASKS, NOTHING, TaskOffsets, Tasks, TasksTuple, Topology

NOT_VALIDATED = -1
NO_DESCRIPTION = (-1, -1)

Task: TypeAlias = tuple[str, int]
"""Subtopology id and partition."""
ActiveTasks: TypeAlias = Mapping[str, Mapping[int, int]]
"""The epochs at which active tasks were assigned, by subtopology id and partition."""
NO_ACTIVE: ActiveTasks = {}


class Endpoint(NamedTuple):
    """The address of an application for interactive queries."""

    host: str
    port: int


@frozen
class Info(MemberInfo):
    """Members of the same application instance have the same `process_id`."""

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
class Current(MemberProgress):
    """The tasks of a member: those that it keeps, and those that it has to revoke."""

    assigned: HeldTasks = HOLDS_NOTHING
    revoking: HeldTasks = HOLDS_NOTHING


Member: TypeAlias = AnyMember[Info, Current]


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


class TopologySet(NamedTuple):
    """Key 23."""

    topology: Topology | None


# --- changes without records -----------------------------------------------------------------------------------------


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


class Group(AssignedGroup[Info, Current, TasksTuple]):
    """A streams group, with the look-ups that decisions need."""

    kind = "streams"
    info_class, current_class = Info, Current
    no_target = NOTHING

    def __init__(self, group_id: str, first_epoch: int = 1) -> None:
        super().__init__(group_id, first_epoch)
        self.validated_epoch = NOT_VALIDATED
        """The epoch of the topology if all of its topics exist."""
        self.configs: Mapping[str, str] = {}
        """The configs of the last assignment."""
        self.description = NO_DESCRIPTION
        self.topology: Topology | None = None
        self.active: dict[Task, str] = {}
        """The process of the member that has an active task, also while it has to revoke it."""
        self.standby: dict[Task, set[str]] = {}
        self.warmup: dict[Task, set[str]] = {}
        self.is_stored = False
        """Whether the group has a record."""
        self.configured: Configured | None = None
        self.shutdown_by: str | None = None
        self.endpoint_epoch = 0
        self.offsets: dict[str, MemberOffsets] = {}
        self.is_delayed = False

    @property
    def state(self) -> GroupState:
        is_ready = self.topology is not None and self.topology.epoch == self.validated_epoch
        return super().state if is_ready or self.is_empty else GroupState.NOT_READY

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

    def tombstones(self, renamed: Mapping[str, str] = {}) -> list[Change]:
        return [*super().tombstones(renamed), EpochSet(None), TopologySet(None)]

    def processes(self, kind: str, task: Task) -> Set[str]:
        """Returns the processes with this `standby` or `warmup` task."""
        return (self.standby if kind == "standby" else self.warmup).get(task, frozenset[str]())

    def apply(self, change: Change) -> None:
        """Makes a change."""
        if isinstance(change, EpochSet):
            self.is_stored = change.epoch is not None
            self.epoch, self.metadata_hash = change.epoch or 0, change.metadata_hash
            self.validated_epoch, self.configs = change.validated_epoch, change.configs
            self.description = change.description
        elif isinstance(change, TopologySet):
            self.topology = change.topology
        elif isinstance(change, ConfiguredSet):
            self.configured = change.configured
        elif isinstance(change, ShutdownRequested):
            self.shutdown_by = self.shutdown_by or change.member_id
        elif isinstance(change, EndpointEpochSet):
            self.endpoint_epoch = change.endpoint_epoch
        elif isinstance(change, OffsetsReported):
            self.offsets[change.member_id] = change.offsets
        elif isinstance(change, DelaySet):
            self.is_delayed = change.is_delayed
        else:
            super().apply(change)

    def _relink(self, old: Member | None, new: Member | None) -> None:
        super()._relink(old, new)
        if old is not None:
            self._release(old)
        if new is not None:
            process_id = new.info.process_id
            for held in (new.current.assigned, new.current.revoking):
                self.active |= dict.fromkeys(each(held.active), process_id)
                for tasks, holders in ((held.standby, self.standby), (held.warmup, self.warmup)):
                    for task in each(tasks):
                        holders.setdefault(task, set()).add(process_id)
        elif old is not None:
            self.offsets.pop(old.member_id, None)
            if not self.members:
                self.shutdown_by = None

    def _release(self, member: Member) -> None:
        """Releases the tasks of a member. A task may have a new owner already while the group is loaded from a
        compacted log.
        """
        process_id = member.info.process_id
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
