"""Elementary changes of a group of the consumer protocol, from which `machine` composes its decisions.

Owns how a member is put, replaced and removed, how the epochs of the group follow, and when a target assignment is
computed. Nothing here changes the group: changes and effects are collected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from ..common_events import SessionExpired, StartTimer
from ..common_machine import Step as AnyStep
from ..common_machine import full
from ..common_state import Checked, EpochSet, Partitions
from ..metadata_hash import group_hash
from ..topics import TopicShape
from .assignors import ASSIGNORS, UNIFORM, Spec, Subscription
from .conversion import downgraded, downgrades
from .events import TIMERS, BecomeClassic, Settings
from .reconciliation import Goal, Owned, reconciled
from .state import (
    NOTHING,
    UNASSIGNED,
    Current,
    Group,
    Info,
    Member,
    RegexSet,
    StoredTopics,
    TopicsSet,
    count,
    count_topic,
)


class Subscriptions:
    """The subscriptions of a group as they will be when a member has changed or members have left."""

    def __init__(self, group: Group) -> None:
        self.members = len(group.members)
        self.regexes = dict(group.regexes)
        self.topics = dict(group.subscribers)
        self._group = group

    def count(self, info: Info, by: int) -> None:
        """Counts the subscriptions of a member, or with -1 no longer."""
        for topic in info.topics:
            count_topic(self.topics, topic, by, 0)
        if info.regex:
            count(self.regexes, info.regex, by)

    def drop_unused_regexes(self) -> list[str]:
        """Stops counting the topics of regular expressions without subscribers, and returns these."""
        unused = [regex for regex in self._group.regexes if regex not in self.regexes]
        for regex in unused:
            resolved = self._group.resolved.get(regex)
            for topic in resolved.topics if resolved is not None else ():
                count_topic(self.topics, topic, 0, -1)
        return unused

    def resolve(self, regex: str, topics: Set[str]) -> bool:
        """Counts the topics that match a regular expression now; returns whether they are others than before."""
        old = self._group.resolved.get(regex)
        before: Set[str] = old.topics if old is not None else frozenset()
        for topic in before:
            count_topic(self.topics, topic, 0, -1)
        for topic in topics:
            count_topic(self.topics, topic, 0, 1)
        return before != topics

    @property
    def are_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics by name, or all to the same regular expression alone."""
        if not self.regexes:
            return all(one.by_name == self.members for one in self.topics.values())
        if next(iter(self.regexes.values())) != self.members:
            return False
        return all(one == (0, 1) for one in self.topics.values())


def session_ms(settings: Settings, info: Info) -> int:
    """Returns the session timeout of a member: classic members have their own."""
    return settings.session_timeout_ms if info.classic is None else info.classic.session_timeout_ms


class Step(AnyStep[Group, Settings]):
    """A decision in progress. Its methods are the elementary changes of a group of the consumer protocol."""

    timers = TIMERS

    def start_session(self, member_id: str, info: Info) -> None:
        self.effects.append(StartTimer(SessionExpired(member_id), session_ms(self.settings, info)))

    # --- members -------------------------------------------------------------------------------------------------

    @property
    def rejoins_at_zero(self) -> bool:
        return self.settings.rejoins_at_zero

    def check_released(self, holder: Member, event: Any) -> None:
        if holder.info.classic is None:
            super().check_released(holder, event)

    def owns_part(self, member: Member, owned: Owned | None) -> bool:
        assigned = member.current.assigned
        return owned is not None and all(
            topic_id in assigned and indexes <= assigned[topic_id].keys() for topic_id, indexes in owned.items()
        )

    def absent(self, current: Current) -> Current:
        assigned = current.assigned
        if self.settings.resets_epochs:
            assigned = {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in assigned.items()}
        return replace(super().absent(current), assigned=assigned, revoking=UNASSIGNED)

    def remove(self, members: Collection[Member]) -> None:
        """Removes members. If only members of the classic protocol remain, the group becomes a classic one, else a new
        epoch begins.
        """
        group = self.group
        if not members:
            return
        if downgrades(group, self.settings, members):
            leaving = {member.member_id for member in members}
            classic = downgraded(group, self.topics, self.now_ms, leaving=leaving)
            self.changes += group.tombstones()
            self.effects.append(BecomeClassic(classic, rebalances=True))
            return
        super().remove(members)
        subscriptions = Subscriptions(group)
        for member in members:
            subscriptions.count(member.info, -1)
            subscriptions.members -= 1
        self.changes += [RegexSet(regex, None) for regex in subscriptions.drop_unused_regexes()]
        self.advance_epoch(subscriptions, needed=True)

    # --- epochs --------------------------------------------------------------------------------------------------

    @property
    def has_stale_metadata(self) -> bool:
        """Whether the topics may have changed since they were compared."""
        return self.group.checked != self.topics.version()

    def advance_epoch(self, subscriptions: Subscriptions, *, needed: bool) -> int:
        """Begins a new epoch of the group if `needed`, or if the metadata of subscribed topics have changed. Returns
        the epoch.
        """
        group = self.group
        shapes = self.topics.shapes_of(subscriptions.topics)
        metadata_hash = group_hash(shapes) if self.settings.by_hash else 0
        stored = None
        if self.settings.by_hash:
            needed = needed or metadata_hash != group.metadata_hash
        else:
            stored = _stored(shapes)
            if stored != (group.topics or ()):
                self.changes.append(TopicsSet(stored))
                needed = True
        epoch = group.epoch + needed
        if needed:
            self.changes.append(EpochSet(epoch, metadata_hash))
        self.changes.append(Checked(self.topics.version()))
        if self.settings.by_hash and group.topics is not None:
            self.changes.append(TopicsSet(None))  # written by a release before 4.1
        return epoch

    def target(self, member: Member, epoch: int, *, is_homogeneous: bool) -> tuple[int, Partitions]:
        """Returns the epoch and the target assignment to reconcile a member with; computes a new one if it is due.
        `member` is as it will be.
        """
        group = self.group
        replaced = group.static_member(member.info.instance_id)
        holder_id = member.member_id
        if member.info.instance_id is not None:
            holder_id = replaced.member_id if replaced is not None else ""
        last = group.target_of(holder_id)
        if group.assignment_epoch >= epoch or self.is_early:
            return group.assignment_epoch, last
        members = {name: one.info for name, one in group.members.items()}
        if replaced is not None and replaced.member_id != member.member_id:
            del members[replaced.member_id]
        members[member.member_id] = member.info
        previous = {**group.target, member.member_id: last}
        computed = self._assigned(members, previous, is_homogeneous=is_homogeneous)
        self.assign(epoch, computed)
        return epoch, computed[member.member_id]

    def _assigned(
        self, members: Mapping[str, Info], previous: Mapping[str, Partitions], *, is_homogeneous: bool
    ) -> dict[str, Partitions]:
        """Runs the assignor that most members prefer."""
        votes = Counter([info.assignor for info in members.values()])
        chosen = max(self.settings.assignors, key=lambda name: votes[name])  # the first one without any votes
        known: dict[tuple[frozenset[str], str], frozenset[bytes]] = {}
        counts: dict[bytes, int] = {}
        subscribed: dict[str, Subscription] = {}
        ids: frozenset[bytes] | None = None
        for name, info in members.items():
            if ids is None or not is_homogeneous:  # else as many long sets of names as members would be compared
                key = info.topics, info.regex
                if key not in known:
                    shapes = self.topics.shapes_of(self.topics_of(info))
                    counts |= {shape.topic_id: shape.partitions for shape in shapes}
                    known[key] = frozenset(shape.topic_id for shape in shapes)
                ids = known[key]
            subscribed[name] = Subscription(ids, info.instance_id, previous.get(name, NOTHING))
        of_members_alone = self.group.target.keys() <= members.keys()
        owners = self.group.target_owners if chosen == UNIFORM and is_homogeneous and of_members_alone else None
        return ASSIGNORS[chosen](Spec(subscribed, counts, is_homogeneous, owners))

    def topics_of(self, info: Info) -> Set[str]:
        """Returns the topic names that a member subscribes to; a regular expression matches none before it is
        resolved.
        """
        resolved = self.group.resolved.get(info.regex) if info.regex else None
        return info.topics if resolved is None else info.topics | resolved.topics

    # --- reconciliation ------------------------------------------------------------------------------------------

    def reconcile(
        self, member: Member, epoch: int, target: Partitions, owned: Owned | None, *, subscription_changed: bool
    ) -> Member:
        """Moves a member towards the target assignment of an epoch, as far as possible now."""
        if not subscription_changed and member.is_reconciled(epoch):
            return member
        known = (self.topics.id_of(topic) for topic in self.topics_of(member.info))
        subscribed = frozenset(topic_id for topic_id in known if topic_id is not None)
        goal = Goal(epoch, target, subscribed, owned, self.group.is_owned)
        return self.move(member, reconciled(member.current, goal, subscription_changed=subscription_changed))


def _stored(shapes: Sequence[TopicShape]) -> StoredTopics:
    ordered = sorted(shapes, key=lambda shape: shape.name)
    return tuple((one.topic_id, one.name, one.partitions, one.racks) for one in ordered)


# --- checks of a request ---------------------------------------------------------------------------------------------


def check_room(group: Group, member_id: str, max_size: int) -> None:
    """Raises Refused if the group is full and the member is a new one."""
    if len(group.members) >= max_size and member_id not in group.members:
        raise full(group.kind, max_size)
