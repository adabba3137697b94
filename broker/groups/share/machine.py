"""The share group protocol as a table: event -> decision (KIP-932).

Owns every decision about members, epochs, assignments and the initialization of share partitions. Uses no clock, socket
or log. A decision does not change the group: its changes are written first, and then applied. There is no revocation: a
member has its new assignment at once, and a partition may belong to several members. Rules: Kafka 4.3's
`GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ....protocol.errors import ErrorCode
from ..common_events import HeartbeatReply, Loaded, MemberLeave, SessionExpired, StartTimer
from ..common_machine import Replies, Step, check_empty, decided, expired, fenced, full, known_member, leave, loaded
from ..common_state import JOIN, Checked, CurrentSet, EpochSet, GroupState, InfoSet, Partitions
from ..metadata_hash import group_hash
from ..topics import TopicLookup
from .assignor import assign
from .events import (
    AlterOffsets,
    DeleteGroup,
    DeleteOffsets,
    DeleteState,
    Heartbeat,
    Initialize,
    OffsetsDeleted,
    OffsetsReply,
    Settings,
    StateInitialized,
    TopicDeleted,
)
from .state import (
    Complete,
    Current,
    Group,
    Info,
    Initialization,
    InitializationSet,
    Initialized,
    Member,
    recounted,
)

UNKNOWN_TOPIC = "This server does not host this topic-partition."
NOTHING_TO_DELETE = "There is no offset information to delete."


class _Step(Step[Group, Settings]):
    """A decision in progress, with the changes so far applied to a copy of what they change."""

    timers = (SessionExpired,)

    def __init__(self, group: Group, now_ms: int, settings: Settings, topics: TopicLookup) -> None:
        super().__init__(group, now_ms, settings, topics)
        self.epoch = group.epoch
        self.members = dict(group.members)
        self.subscribers = group.subscribers
        self.initialization = group.initialization

    @property
    def subscribed_topics(self) -> frozenset[str]:
        return frozenset(self.subscribers)

    def set_info(self, member: Member, info: Info) -> Member:
        self.subscribers = recounted(self.subscribers, member.info.topics, info.topics)
        changed = replace(member, info=info)
        self.members[member.member_id] = changed
        self.changes.append(InfoSet(member.member_id, info))
        return changed

    def bump(self, metadata_hash: int) -> None:
        self.epoch += 1
        self.changes.append(EpochSet(self.epoch, metadata_hash))

    def initialize(self, initialization: Initialization) -> None:
        self.initialization = initialization
        self.changes.append(InitializationSet(initialization))

    def remove(self, members: Collection[Member]) -> None:
        super().remove(members)
        for member in members:
            del self.members[member.member_id]
            self.subscribers = recounted(self.subscribers, member.info.topics, frozenset())
        self.bump(group_hash(self.topics.shapes_of(self.subscribed_topics)))


# --- members ---------------------------------------------------------------------------------------------------------


def _heartbeat(step: _Step, event: Heartbeat) -> None:
    group, settings = step.group, step.settings
    before = _known_member(step, event)
    info = Info(
        rack_id=before.info.rack_id if event.rack_id is None else event.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        topics=before.info.topics if event.topics is None else event.topics,
    )
    member = before
    if info != before.info or before.member_id not in group.members:
        member = step.set_info(before, info)
    changed = info.topics != before.info.topics
    if group.assignment_epoch >= group.epoch and group.has_unassigned:
        changed = True
    version = step.topics.version()
    if changed or group.checked != version:
        found = group_hash(step.topics.shapes_of(step.subscribed_topics))
        changed = changed or found != group.metadata_hash
        if changed:
            step.bump(found)
        step.changes.append(Checked(version))
    target_epoch, target = _target(step, member)
    current = _reconciled(step, member, target_epoch, target, changed=changed)
    if current is not None:
        step.changes.append(CurrentSet(member.member_id, current))
    else:
        current = member.current
    is_shown = event.epoch == JOIN or event.topics is not None or current.assigned != before.current.assigned
    step.effects.append(StartTimer(SessionExpired(event.member_id), settings.session_timeout_ms))
    reply = HeartbeatReply(
        ErrorCode.NONE,
        None,
        event.member_id,
        current.epoch,
        settings.heartbeat_interval_ms,
        current.assigned if is_shown else None,
    )
    step.reply(reply)
    _initialize_missing(step)


def _known_member(step: _Step, event: Heartbeat) -> Member:
    """Returns the member, or a new one that joins. Raises Refused."""
    group, limit = step.group, step.settings.max_size
    if event.member_id not in group.members and len(group.members) >= limit:
        raise full(group.kind, limit)
    if event.member_id not in group.members and event.epoch == JOIN:
        return group.member(event.member_id)
    member = known_member(group, event.member_id)
    epoch, previous = member.current.epoch, member.current.previous_epoch
    if event.epoch > epoch:
        raise fenced(group.kind, event.epoch, epoch)
    if event.epoch != JOIN and event.epoch < epoch and event.epoch != previous:
        more = f", and it does not match the previous member epoch ({previous})"
        raise fenced(group.kind, event.epoch, epoch, more)
    return member


def _target(step: _Step, member: Member) -> tuple[int, Partitions]:
    """Returns the epoch of the target assignment and that of the member, after computing a new one if it is time."""
    group = step.group
    if group.assignment_epoch >= step.epoch or step.is_early:
        return group.assignment_epoch, group.target_of(member.member_id)
    known = {
        topics: frozenset(shape.topic_id for shape in step.topics.shapes_of(topics))
        for topics in {one.info.topics for one in step.members.values()}
    }
    subscriptions = {one.member_id: known[one.info.topics] for one in step.members.values()}
    target = assign(subscriptions, group.target, step.initialization.assignable)
    step.assign(step.epoch, target)
    return step.epoch, target.get(member.member_id, {})


def _reconciled(step: _Step, member: Member, target_epoch: int, target: Partitions, *, changed: bool) -> Current | None:
    """The new epoch and partitions of a member; None if they stay."""
    current = member.current
    if not changed and current.epoch == target_epoch and member.member_id in step.group.members:
        return None
    known = {shape.topic_id for shape in step.topics.shapes_of(member.info.topics)}
    assigned = {id: partitions for id, partitions in target.items() if id in known}
    made = replace(current, assigned=assigned)
    if target_epoch != current.epoch:
        made = replace(made, epoch=target_epoch, previous_epoch=current.epoch)
    return None if made == current else made


def _initialize_missing(step: _Step) -> None:
    """Begins the state of partitions of subscribed topics that have none; what was begun long ago is begun again."""
    present, retry_ms = step.initialization, step.settings.initialize_retry_ms
    is_same = present is step.group.initialization and step.subscribers is step.group.subscribers
    version = step.topics.version()
    if is_same and step.group.complete == version:
        return
    recent = {id: topic for id, topic in present.initializing.items() if step.now_ms - topic.at_ms < retry_ms}
    begun = _combined(present.initialized, recent)
    missing: dict[bytes, Initialized] = {}
    for name in sorted(step.subscribed_topics):
        shape = step.topics.shape_of(name)
        if shape is not None:
            have = begun[shape.topic_id].partitions if shape.topic_id in begun else frozenset[int]()
            if len(have) < shape.partitions:
                missing[shape.topic_id] = Initialized(name, frozenset(range(shape.partitions)) - have, step.now_ms)
    if missing:
        _begin(step, missing)
        starts = {id: dict.fromkeys(sorted(topic.partitions), -1) for id, topic in missing.items()}
        step.effects.append(Initialize(step.epoch, starts))
    elif not present.initializing:
        step.changes.append(Complete(version))


def _begin(step: _Step, topics: Mapping[bytes, Initialized]) -> None:
    present = step.initialization
    deleting = {id: name for id, name in present.deleting.items() if id not in topics}
    step.initialize(replace(present, initializing=_combined(present.initializing, topics), deleting=deleting))


def _combined(first: Mapping[bytes, Initialized], second: Mapping[bytes, Initialized]) -> dict[bytes, Initialized]:
    """The partitions of both; name and time of the second where both have a topic."""
    made = dict(first)
    for id, topic in second.items():
        have = first[id].partitions if id in first else frozenset[int]()
        made[id] = topic._replace(partitions=topic.partitions | have)
    return made


def _without(topics: Mapping[bytes, Initialized], removed: Partitions) -> dict[bytes, Initialized]:
    made: dict[bytes, Initialized] = {}
    for id, topic in topics.items():
        left = topic.partitions - removed.get(id, frozenset())
        if left:
            made[id] = topic._replace(partitions=left)
    return made


# --- state of share partitions ---------------------------------------------------------------------------------------


def _initialized(step: _Step, event: StateInitialized) -> None:
    present = step.initialization
    initializing = _without(present.initializing, event.partitions)
    if event.failed:
        if present.initializing and event.partitions:
            step.initialize(replace(present, initializing=initializing))
        return
    names = {id: topic.name for id, topic in (*present.initialized.items(), *present.initializing.items())}
    done = {id: Initialized(names.get(id, ""), found) for id, found in event.partitions.items() if id in names}
    if done:
        initialized = _combined(present.initialized, done)
        step.initialize(replace(present, initializing=initializing, initialized=initialized))


def _alter_offsets(step: _Step, event: AlterOffsets) -> None:
    check_empty(step.group)
    results: dict[tuple[str, int], tuple[ErrorCode, str | None]] = {}
    starts: dict[bytes, dict[int, int]] = {}
    topics: dict[bytes, Initialized] = {}
    for name, offsets in event.offsets.items():
        shape = step.topics.shape_of(name)
        for index, offset in offsets.items():
            if shape is None or not 0 <= index < shape.partitions:
                results[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC
                continue
            results[name, index] = ErrorCode.NONE, None
            starts.setdefault(shape.topic_id, {})[index] = offset
        if shape is not None and shape.topic_id in starts:
            topics[shape.topic_id] = Initialized(name, frozenset(starts[shape.topic_id]), step.now_ms)
    if topics:
        _begin(step, topics)
        step.effects.append(Initialize(step.epoch, starts))
    step.reply(OffsetsReply(ErrorCode.NONE, None, results))


def _delete_offsets(step: _Step, event: DeleteOffsets) -> None:
    check_empty(step.group)
    present = step.initialization
    results: dict[tuple[str, int], tuple[ErrorCode, str | None]] = {}
    deleted: dict[bytes, frozenset[int]] = {}
    deleting = dict(present.deleting)
    for name in event.topics:
        shape = step.topics.shape_of(name)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if shape is None:
            results[name, -1] = unknown, UNKNOWN_TOPIC
        elif shape.topic_id in present.initialized:
            deleted[shape.topic_id] = present.initialized[shape.topic_id].partitions
            deleting[shape.topic_id] = name
            results[name, -1] = ErrorCode.NONE, None
        elif shape.topic_id in present.deleting:
            deleted[shape.topic_id] = frozenset(range(shape.partitions))
            results[name, -1] = ErrorCode.NONE, None
        else:
            results[name, -1] = unknown, NOTHING_TO_DELETE
    if deleted:
        initialized = {id: topic for id, topic in present.initialized.items() if id not in deleted}
        step.initialize(replace(present, initialized=initialized, deleting=deleting))
        step.effects.append(DeleteState(deleted))
    step.reply(OffsetsReply(ErrorCode.NONE, None, results))


def _offsets_deleted(step: _Step, event: OffsetsDeleted) -> None:
    present = step.initialization
    deleting = {id: name for id, name in present.deleting.items() if id not in event.topic_ids}
    if deleting != present.deleting:
        step.initialize(replace(present, deleting=deleting))


def _topic_deleted(step: _Step, event: TopicDeleted) -> None:
    present, id = step.initialization, event.topic_id
    if id in present.initialized or id in present.initializing or id in present.deleting:
        step.initialize(
            Initialization(
                {one: topic for one, topic in present.initializing.items() if one != id},
                {one: topic for one, topic in present.initialized.items() if one != id},
                {one: name for one, name in present.deleting.items() if one != id},
            )
        )


def _delete_group(step: _Step, _: DeleteGroup) -> None:
    check_empty(step.group)
    present = step.initialization
    topics = _combined(present.initialized, present.initializing)
    deleted = {id: topic.partitions for id, topic in topics.items()}
    for id, name in present.deleting.items():
        shape = step.topics.shape_of(name)
        if shape is not None and shape.topic_id == id:
            deleted[id] = frozenset(range(shape.partitions))
    if deleted:
        names = {id: topic.name for id, topic in topics.items()} | dict(present.deleting)
        step.initialize(Initialization({}, {}, {id: names[id] for id in deleted}))
        step.effects.append(DeleteState(deleted))
    step.reply(OffsetsReply(ErrorCode.NONE))


_EVENTS: dict[type, Callable[[_Step, Any], None]] = {
    Heartbeat: _heartbeat,
    MemberLeave: leave,
    SessionExpired: expired,
    StateInitialized: _initialized,
    AlterOffsets: _alter_offsets,
    DeleteOffsets: _delete_offsets,
    OffsetsDeleted: _offsets_deleted,
    TopicDeleted: _topic_deleted,
    DeleteGroup: _delete_group,
    Loaded: loaded,
}
# What events lead to does not depend on the state.
TABLE = {(state, event): act for state in (GroupState.EMPTY, GroupState.STABLE) for event, act in _EVENTS.items()}
REPLIES: Replies = {
    **dict.fromkeys((Heartbeat, MemberLeave), HeartbeatReply),
    **dict.fromkeys((AlterOffsets, DeleteOffsets, DeleteGroup), OffsetsReply),
}
decide = partial(decided, TABLE, _Step, REPLIES)
