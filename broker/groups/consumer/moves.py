"""Elementary changes of a group of the consumer protocol, from which `machine` composes its decisions.

Owns how a member is put, replaced and removed, how the epochs of the group follow, and when a target assignment is
computed. Nothing here changes the group: changes and effects are collected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from ....protocol.errors import ErrorCode
from ...errors import Refused
from ..members import fenced, full
from ..metadata_hash import group_hash
from ..topics import TopicLookup, TopicShape
from .assignors import ASSIGNORS, UNIFORM, Spec, Subscription
from .events import (
    TIMERS,
    CancelTimer,
    Effect,
    Reply,
    Response,
    RevocationOverdue,
    SessionExpired,
    Settings,
    StartTimer,
)
from .reconciliation import Goal, Owned, reconciled
from .state import (
    NOTHING,
    AssignmentEpochSet,
    Change,
    Checked,
    CurrentSet,
    EpochSet,
    Group,
    Info,
    InfoSet,
    Member,
    MemberState,
    Partitions,
    RegexSet,
    Subscribers,
    TargetSet,
    TopicsSet,
)


class Subscriptions:
    """The subscriptions of a group as they will be when a member has changed or members have left."""

    def __init__(self, group: Group) -> None:
        self.members = len(group.members)
        self.regexes = Counter(group.regexes)
        self.topics = dict(group.subscribers)
        self._group = group

    def count(self, info: Info, by: int) -> None:
        """Counts the subscriptions of a member, or with -1 no longer."""
        for topic in info.topics:
            self._count(topic, by, 0)
        if info.regex:
            self.regexes[info.regex] += by
            if not self.regexes[info.regex]:
                del self.regexes[info.regex]

    def drop_unused_regexes(self) -> list[str]:
        """Stops counting the topics of regular expressions without subscribers, and returns these."""
        unused = [regex for regex in self._group.regexes if regex not in self.regexes]
        for regex in unused:
            resolved = self._group.resolved.get(regex)
            for topic in resolved.topics if resolved is not None else ():
                self._count(topic, 0, -1)
        return unused

    def resolve(self, regex: str, topics: Set[str]) -> bool:
        """Counts the topics that match a regular expression now; returns whether they are others than before."""
        old = self._group.resolved.get(regex)
        before: Set[str] = old.topics if old is not None else frozenset()
        for topic in before:
            self._count(topic, 0, -1)
        for topic in topics:
            self._count(topic, 0, 1)
        return before != topics

    def _count(self, topic: str, by_name: int, by_regex: int) -> None:
        there = self.topics.get(topic, Subscribers())
        after = Subscribers(there.by_name + by_name, there.by_regex + by_regex)
        if after.by_name or after.by_regex:
            self.topics[topic] = after
        else:
            self.topics.pop(topic, None)

    @property
    def are_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics by name, or all to the same regular expression alone."""
        if not self.regexes:
            return all(one.by_name == self.members for one in self.topics.values())
        if next(iter(self.regexes.values())) != self.members:
            return False
        return all(one == (0, 1) for one in self.topics.values())


class Step:
    """A decision in progress: changes and effects so far. Its methods are the elementary changes."""

    __slots__ = ("changes", "effects", "group", "now_ms", "settings", "topics")

    def __init__(self, group: Group, now_ms: int, settings: Settings, topics: TopicLookup) -> None:
        self.group = group
        self.now_ms = now_ms
        self.settings = settings
        self.topics = topics
        self.changes: list[Change] = []
        self.effects: list[Effect] = []

    def reply(self, token: int, response: Response) -> None:
        self.effects.append(Reply(token, response))

    def start_session(self, member_id: str, info: Info) -> None:
        timeout_ms = self.settings.session_timeout_ms if info.classic is None else info.classic.session_timeout_ms
        self.effects.append(StartTimer(SessionExpired(member_id), timeout_ms))

    # --- members -------------------------------------------------------------------------------------------------

    def put_info(self, member: Member, info: Info) -> bool:
        """Changes what a member has sent; returns whether its topic names are others than before."""
        if info == member.info:
            return False
        self.changes.append(InfoSet(member.member_id, info))
        return info.topics != member.info.topics

    def replace_member(self, old: Member, new_id: str) -> Member:
        """Gives the place of a static member to a new member id, which starts in epoch 0."""
        member = Member(new_id, old.info, replace(old.current, epoch=0, previous_epoch=0))
        self._drop(old.member_id)
        self.changes += [
            InfoSet(new_id, member.info),
            TargetSet(new_id, self.group.target.get(old.member_id, NOTHING)),
            CurrentSet(new_id, member.current),
        ]
        return member

    def _drop(self, member_id: str) -> None:
        self.changes += [CurrentSet(member_id, None), TargetSet(member_id, None), InfoSet(member_id, None)]
        self.effects += [CancelTimer(timer(member_id)) for timer in TIMERS]

    def remove(self, members: Iterable[Member]) -> None:
        """Removes members, and begins a new epoch of the group."""
        subscriptions = Subscriptions(self.group)
        for member in members:
            self._drop(member.member_id)
            subscriptions.count(member.info, -1)
            subscriptions.members -= 1
        self.changes += [RegexSet(regex, None) for regex in subscriptions.drop_unused_regexes()]
        self.advance_epoch(subscriptions, needed=True)

    # --- epochs --------------------------------------------------------------------------------------------------

    @property
    def has_stale_metadata(self) -> bool:
        """Whether the topics may have changed since they were compared."""
        checked = self.group.checked
        return checked is None or checked.version != self.topics.version()

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
        group, interval_ms = self.group, self.settings.assignment_interval_ms
        replaced = group.static_member(member.info.instance_id)
        holder_id = member.member_id
        if member.info.instance_id is not None:
            holder_id = replaced.member_id if replaced is not None else ""
        last = group.target.get(holder_id, NOTHING)
        is_due = group.assigned_ms == 0 or interval_ms == 0 or self.now_ms >= group.assigned_ms + interval_ms
        if group.assignment_epoch >= epoch or not is_due:
            return group.assignment_epoch, last
        members = {name: one.info for name, one in group.members.items()}
        if replaced is not None and replaced.member_id != member.member_id:
            del members[replaced.member_id]
        members[member.member_id] = member.info
        previous = {**group.target, member.member_id: last}
        computed = self._assigned(members, previous, is_homogeneous=is_homogeneous)
        there: dict[str, Partitions] = dict(group.target)
        there |= {
            one.member_id: one.partitions
            for one in self.changes
            if isinstance(one, TargetSet) and one.partitions is not None
        }
        for name, partitions in computed.items():
            if (had := there.get(name)) is not partitions and had != partitions:
                self.changes.append(TargetSet(name, partitions))
        self.changes.append(AssignmentEpochSet(epoch, self.now_ms))
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
        after = reconciled(member.current, goal, subscription_changed=subscription_changed)
        if after is None:
            raise Refused(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. The member must abandon all its partitions and "
                "rejoin.",
            )
        if after == member.current:
            return member
        self.changes.append(CurrentSet(member.member_id, after))
        if member.info.classic is None:
            overdue = RevocationOverdue(member.member_id)
            if after.state is MemberState.UNREVOKED_PARTITIONS:
                self.effects.append(StartTimer(overdue, member.info.rebalance_timeout_ms))
            else:
                self.effects.append(CancelTimer(overdue))
        return Member(member.member_id, member.info, after)


def _stored(shapes: Sequence[TopicShape]) -> tuple[tuple[bytes, str, int, tuple[tuple[str, ...], ...]], ...]:
    ordered = sorted(shapes, key=lambda shape: shape.name)
    return tuple((one.topic_id, one.name, one.partitions, one.racks) for one in ordered)


# --- checks of a request ---------------------------------------------------------------------------------------------


def check_room(group: Group, member_id: str, max_size: int) -> None:
    """Raises Refused if the group is full and the member is a new one."""
    if len(group.members) >= max_size and member_id not in group.members:
        raise full(group.kind, max_size)


def check_epoch(member: Member, epoch: int, owned: Owned | None, *, rejoins_at_zero: bool) -> None:
    """Raises Refused unless a heartbeat has the epoch of the member, or the previous one with no partitions but those
    of its assignment: then the response with the new epoch may be lost.
    """
    current = member.current
    if epoch == current.epoch or (epoch == 0 and rejoins_at_zero):
        return
    is_subset = owned is not None and all(
        topic_id in current.assigned and indexes <= current.assigned[topic_id].keys()
        for topic_id, indexes in owned.items()
    )
    if epoch != current.previous_epoch or epoch > current.epoch or not is_subset:
        raise fenced(Group.kind, epoch, current.epoch)
