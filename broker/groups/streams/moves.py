"""Elementary changes of a streams group, from which `machine` composes its decisions.

Owns how a member is put, replaced and removed, how the topology is configured, how the epochs of the group follow, and
when a target assignment is computed. Nothing here changes the group: changes and effects are collected.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from ....protocol.errors import ErrorCode
from ...errors import Refused
from ..common_events import Decision, StartTimer
from ..common_machine import Step as AnyStep
from ..common_machine import full
from ..common_state import AssignmentEpochSet, Checked
from ..metadata_hash import group_hash
from ..topics import TopicLookup
from .assignor import Assignee, Configs, assign
from .endpoints import EndpointPartitions, endpoint_partitions
from .events import DelayOver, Heartbeat, HeartbeatReply, Settings
from .reconciliation import Goal, reconciled
from .state import (
    HOLDS_NOTHING,
    NO_OFFSETS,
    NOT_VALIDATED,
    RECORDED,
    ConfiguredSet,
    Current,
    DelaySet,
    Endpoint,
    EpochSet,
    Group,
    Member,
    MemberOffsets,
    OffsetsReported,
    TopologySet,
)
from .topology import Configured, configure
from .values import NOTHING, TaskOffsets, TasksTuple, Topology

FIRST_EPOCH = 2
"""The epoch of a group with its first member: epoch 1 is that of members without an assignment."""
INITIAL_DELAY = "Assignment delayed due to the configured initial rebalance delay."
INTERVAL = "Assignment delayed due to the configured assignment interval."


class Step(AnyStep[Group, Settings]):
    """A decision in progress. Its methods are the elementary changes of a streams group."""

    holdings = "tasks"
    reply_class = HeartbeatReply

    def __init__(self, group: Group, now_ms: int, settings: Settings, topics: TopicLookup) -> None:
        super().__init__(group, now_ms, settings, topics)
        self.epoch = group.epoch
        self.is_delayed = group.is_delayed

    def decision(self) -> Decision[Any, Any]:
        if not self.group.is_stored:
            # Kafka makes such a group from its records, which drops the rest; only timers remain.
            self.changes = [change for change in self.changes if isinstance(change, (*RECORDED, DelaySet))]
        return super().decision()

    # --- members -------------------------------------------------------------------------------------------------

    def owns_part(self, member: Member, owned: TasksTuple | None) -> bool:
        return owned is not None and all(
            id in assigned and partitions <= assigned[id]
            for mine, assigned in zip(owned, member.current.assigned.tasks, strict=True)
            for id, partitions in mine.items()
        )

    def absent(self, current: Current) -> Current:
        active = {id: dict.fromkeys(epochs, 0) for id, epochs in current.assigned.active.items()}
        assigned = current.assigned._replace(active=active)
        return replace(super().absent(current), assigned=assigned, revoking=HOLDS_NOTHING)

    def remove(self, members: Collection[Member]) -> None:
        group = self.group
        super().remove(members)
        self.advance_epoch(group.metadata_hash, group.validated_epoch, group.configs)
        if len(group.members) == 1 and self.settings.has_static_members:
            # The next first member need not wait for the interval between assignments.
            self.changes.append(AssignmentEpochSet(self.epoch, 0))

    def report_offsets(self, event: Heartbeat) -> None:
        """Stores the changelog offsets of a heartbeat."""
        offsets, end_offsets = event.offsets, event.end_offsets
        if not self.settings.has_static_members or (offsets is None and end_offsets is None):
            return
        before = self.group.offsets.get(event.member_id, NO_OFFSETS)
        after = MemberOffsets(
            before.offsets if offsets is None else offsets,
            before.end_offsets if end_offsets is None else end_offsets,
        )
        self.changes.append(OffsetsReported(event.member_id, after))

    # --- topology ------------------------------------------------------------------------------------------------

    def topology(self, sent: Topology | None) -> Topology:
        """Returns the topology of the group, which the first member initializes. Raises Refused."""
        known = self.group.topology
        if known is None:
            if sent is None:
                raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
            self.changes.append(TopologySet(sent))
            return sent
        if sent is not None and sent.epoch >= known.epoch and sent != known:
            raise Refused(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return known

    def configure(self, topology: Topology) -> tuple[Configured, int]:
        """Returns the configured topology and the hash of its topics, both for the topics that exist now. Raises
        Refused.
        """
        group, version = self.group, self.topics.version()
        if group.configured is not None and group.topology is not None and group.checked == version:
            return group.configured, group.metadata_hash
        found_hash = group_hash(self.topics.shapes_of(topology.required_topics))
        configured = group.configured
        if configured is None or group.topology is None or found_hash != group.metadata_hash:
            configured = configure(topology, self.topics.shape_of)
            self.changes.append(ConfiguredSet(configured))
        self.changes.append(Checked(version))
        return configured, found_hash

    @staticmethod
    def validated_epoch(configured: Configured, owned: TasksTuple | None) -> int:
        """Returns the epoch of the topology if tasks can be assigned, else NOT_VALIDATED. Raises Refused if the member
        reports tasks that do not exist.
        """
        if not configured.is_ready:
            return NOT_VALIDATED
        tasks = configured.tasks
        for reported in owned or ():
            for id, partitions in reported.items():
                if id not in tasks:
                    raise Refused(ErrorCode.INVALID_REQUEST, f"Subtopology {id} does not exist in the topology.")
                for partition in sorted(partitions):
                    if not 0 <= partition < tasks[id]:
                        text = f"Task {partition} for subtopology {id} is invalid. Number of tasks for this subtopology"
                        raise Refused(ErrorCode.INVALID_REQUEST, f"{text}: {tasks[id]}")
        return configured.epoch

    # --- epochs --------------------------------------------------------------------------------------------------

    def advance_epoch(self, metadata_hash: int, validated: int, configs: Mapping[str, str] | None = None) -> None:
        """Begins a new epoch of the group."""
        self.epoch = max(self.group.epoch + 1, FIRST_EPOCH)
        configs = self.settings.assignment_configs if configs is None else configs
        self.changes.append(EpochSet(self.epoch, metadata_hash, validated, configs, self.group.description))

    def begin_delay(self) -> None:
        """Delays the first assignment of a group without members, so that more members can join."""
        delay_ms = self.settings.initial_delay_ms
        if self.group.is_empty and delay_ms > 0 and not self.is_delayed:
            self.is_delayed = True
            self.changes.append(DelaySet(True))
            self.effects.append(StartTimer(DelayOver(), delay_ms))

    def end_delay(self) -> None:
        self.is_delayed = False
        self.changes.append(DelaySet(False))

    def target(self, member: Member | None, configured: Configured) -> tuple[int, Mapping[str, TasksTuple], str | None]:
        """Returns the epoch and the target assignment to reconcile a member with, and why none was computed; computes
        one if it is due. `member` is as it will be, None where no member sends a heartbeat.
        """
        group = self.group
        if self.is_delayed:
            return max(group.assignment_epoch, 1), {}, INITIAL_DELAY
        if group.assignment_epoch >= self.epoch and self.replaced is None:
            return group.assignment_epoch, group.target, None
        previous = dict(group.target)
        members = dict(group.members)
        if self.replaced is not None and member is not None:
            del members[self.replaced.member_id]
            previous[member.member_id] = previous.pop(self.replaced.member_id, NOTHING)
        if member is not None:
            members[member.member_id] = member
        if group.assignment_epoch >= self.epoch:
            return group.assignment_epoch, previous, None
        if self.is_early:
            return group.assignment_epoch, previous, INTERVAL
        computed = self._assigned(members, previous, configured)
        self.assign(self.epoch, computed)
        return self.epoch, computed, None

    def _assigned(
        self, members: Mapping[str, Member], previous: Mapping[str, TasksTuple], configured: Configured
    ) -> dict[str, TasksTuple]:
        if not configured.is_ready:
            return dict.fromkeys(members, NOTHING)
        ranks = self.settings.has_static_members
        none: TaskOffsets = {}
        assignees = {
            name: Assignee(
                member.info.process_id,
                previous.get(name, NOTHING),
                self._offsets_of(name) if ranks else none,
            )
            for name, member in members.items()
        }
        configs = Configs(self.settings.standby_replicas, ranks)
        return assign(assignees, configured.tasks, configured.stateful, configs)

    def _offsets_of(self, member_id: str) -> TaskOffsets:
        for change in self.changes:
            if isinstance(change, OffsetsReported) and change.member_id == member_id:
                return change.offsets.offsets
        return self.group.offsets.get(member_id, NO_OFFSETS).offsets

    # --- reconciliation ------------------------------------------------------------------------------------------

    def reconcile(self, member: Member, epoch: int, target: TasksTuple | None, owned: TasksTuple | None) -> Member:
        """Moves a member towards the target assignment of an epoch, as far as possible now. Raises Refused."""
        if member.is_reconciled(epoch):
            return member
        goal = Goal(epoch, target or NOTHING, owned, self.group, self.settings.has_static_members)
        return self.move(member, reconciled(member, goal))

    # --- endpoints -----------------------------------------------------------------------------------------------

    def endpoints(self, member: Member, configured: Configured) -> tuple[tuple[Endpoint, EndpointPartitions], ...]:
        """Returns the endpoints of the members with the partitions that their tasks read; the given member is last."""
        replaced = self.replaced or member
        gone = (member.member_id, replaced.member_id)
        members = [*(one for name, one in self.group.members.items() if name not in gone), member]
        return tuple(
            (
                one.info.endpoint,
                endpoint_partitions(
                    one.current.assigned.tasks,
                    configured.subtopologies or {},
                    self.topics.shape_of,
                    existing_only=self.settings.has_static_members,
                ),
            )
            for one in members
            if one.info.endpoint is not None
        )


# --- checks of a request ---------------------------------------------------------------------------------------------


def check_room(group: Group, event: Heartbeat, settings: Settings) -> None:
    """Raises Refused if the group is full. Before 4.4 a member that joins again counts as one more."""
    if len(group.members) < settings.max_size:
        return
    if settings.has_static_members and (event.member_id in group.members or event.instance_id in group.static):
        return
    raise full(group.kind, settings.max_size)
