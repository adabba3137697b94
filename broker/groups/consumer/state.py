"""Values of a group of the consumer protocol, and the changes that its log consists of.

A `Group` changes only by `apply`, in operation and when it is loaded: every change but `Checked` is a record of
`__consumer_offsets`. `machine` decides which changes an event leads to. Sources: KIP-848, KIP-1101, KIP-1251, KIP-1263.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum, IntEnum
from typing import TypeAlias

from ....protocol.frozen import frozen
from ....protocol.named import NamedTuple

LEAVE, STATIC_LEAVE = -1, -2
"""Member epochs in a heartbeat: the member leaves; the static member leaves and will return."""
JOIN = 0
NO_ASSIGNMENT = -1
"""The assignment epoch after its tombstone."""

Partitions: TypeAlias = Mapping[bytes, frozenset[int]]
"""Partition indexes by topic id."""
Assigned: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""The epochs at which partitions were assigned, by topic id and partition index."""
NOTHING: Partitions = {}
UNASSIGNED: Assigned = {}


class GroupState(Enum):
    """The states; values are Kafka's names in ListGroups and ConsumerGroupDescribe."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """The reconciliation of a member, with the numbers of its record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ClassicMember(NamedTuple):
    """A member that uses the classic protocol. `protocols` are pairs (name, metadata) in its order of preference."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@frozen
class Info:
    """What a member has sent about itself. `regex` is "" without a regular expression."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMember | None = None


@frozen
class Current:
    """The epoch of a member and the partitions that it owns: those that it keeps, and those that it has to revoke."""

    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assigned = field(default_factory=dict[bytes, Mapping[int, int]])
    revoking: Assigned = field(default_factory=dict[bytes, Mapping[int, int]])


@frozen
class Member:
    member_id: str
    info: Info = Info()
    current: Current = Current()

    def is_reconciled(self, epoch: int) -> bool:
        """Returns whether the member has the target assignment of this epoch."""
        return self.current.epoch == epoch and self.current.state is MemberState.STABLE


class Resolved(NamedTuple):
    """The topics that match a regular expression, the version of the metadata, and the time of the search."""

    topics: frozenset[str]
    version: int
    at_ms: int


class Subscribers(NamedTuple):
    """The number of members that subscribe to a topic by name, and of regular expressions that match it."""

    by_name: int = 0
    by_regex: int = 0


# --- changes ---------------------------------------------------------------------------------------------------------


class EpochSet(NamedTuple):
    """Key 3. None removes the group."""

    epoch: int | None
    metadata_hash: int = 0


class TopicsSet(NamedTuple):
    """Key 4: the metadata of the subscribed topics, before 4.1; None since then."""

    topics: tuple[tuple[bytes, str, int, tuple[tuple[str, ...], ...]], ...] | None


class InfoSet(NamedTuple):
    """Key 5. None removes the member."""

    member_id: str
    info: Info | None


class AssignmentEpochSet(NamedTuple):
    """Key 6. The time is 0 if it is unknown."""

    epoch: int | None
    at_ms: int = 0


class TargetSet(NamedTuple):
    """Key 7."""

    member_id: str
    partitions: Partitions | None


class CurrentSet(NamedTuple):
    """Key 8. None: the member owns nothing."""

    member_id: str
    current: Current | None


class RegexSet(NamedTuple):
    """Key 16."""

    regex: str
    resolved: Resolved | None


class Checked(NamedTuple):
    """The metadata of the subscribed topics were compared at this version. Has no record."""

    version: int


Change: TypeAlias = EpochSet | TopicsSet | InfoSet | AssignmentEpochSet | TargetSet | CurrentSet | RegexSet | Checked


# --- the group -------------------------------------------------------------------------------------------------------


class Group:
    """A group of the consumer protocol, with the counts and reverse look-ups that decisions need.

    Read it freely, change it only by `apply`.
    """

    kind = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str, first_epoch: int = 0) -> None:
        """`first_epoch` is the epoch of a group without members: 1 since 4.3, where a new member can wait in it for
        its first assignment (KAFKA-20268).
        """
        self.group_id = group_id
        self.epoch = first_epoch
        self.metadata_hash = 0
        self.assignment_epoch = first_epoch
        self.assigned_ms = 0
        """The time of the target assignment, 0 if unknown."""
        self.topics: tuple[tuple[bytes, str, int, tuple[tuple[str, ...], ...]], ...] | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        """Member ids by instance id."""
        self.target: dict[str, Partitions] = {}
        self.owners: dict[bytes, dict[int, str]] = {}
        """The member that owns a partition, also while it has to revoke it."""
        self.subscribers: dict[str, Subscribers] = {}
        self.regexes: dict[str, int] = {}
        """The number of members by regular expression."""
        self.resolved: dict[str, Resolved] = {}
        self.assignors: dict[str, int] = {}
        """The number of members that prefer an assignor."""
        self.classic_members = 0
        self.classic_protocols: dict[str, int] = {}
        """The number of classic members that support a protocol."""
        self.checked: Checked | None = None
        self._reconciled = 0
        self._target_owners: dict[bytes, dict[int, str]] | None = None

    @property
    def target_owners(self) -> Mapping[bytes, Mapping[int, str]]:
        """The member that has a partition in its target assignment. Kept from the first use on: most assignors do not
        need it, and it costs more than a large target assignment itself.
        """
        if self._target_owners is None:
            self._target_owners = {}
            for member_id, partitions in self.target.items():
                self._own(member_id, partitions, self._target_owners)
        return self._target_owners

    def _own(self, member_id: str, partitions: Partitions, owners: dict[bytes, dict[int, str]]) -> None:
        for topic_id, indexes in partitions.items():
            owners.setdefault(topic_id, {}).update(dict.fromkeys(indexes, member_id))

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        return GroupState.STABLE if self._reconciled == len(self.members) else GroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The topics to which any member subscribes."""
        return frozenset(self.subscribers)

    def static_member(self, instance_id: str | None) -> Member | None:
        """Returns the member with this instance id, or None."""
        member_id = self.static.get(instance_id) if instance_id is not None else None
        return self.members.get(member_id) if member_id is not None else None

    def is_owned(self, topic_id: bytes, index: int) -> bool:
        return index in self.owners.get(topic_id, ())

    def apply(self, change: Change) -> None:
        """Makes a change."""
        if isinstance(change, CurrentSet):
            member = self.members.get(change.member_id)
            if change.current is not None:
                self._put(Member(change.member_id, member.info if member is not None else Info(), change.current))
            elif member is not None:
                self._put(Member(change.member_id, member.info, Current(LEAVE, LEAVE)))
        elif isinstance(change, InfoSet):
            member = self.members.get(change.member_id)
            if change.info is not None:
                self._put(Member(change.member_id, change.info, member.current if member is not None else Current()))
            elif member is not None:
                self._remove(member)
        elif isinstance(change, TargetSet):
            self._set_target(change.member_id, change.partitions)
        elif isinstance(change, EpochSet):
            self.epoch, self.metadata_hash = change.epoch or 0, change.metadata_hash
        elif isinstance(change, AssignmentEpochSet):
            self.assignment_epoch = NO_ASSIGNMENT if change.epoch is None else change.epoch
            self.assigned_ms = change.at_ms
            self._reconciled = sum(one.is_reconciled(self.assignment_epoch) for one in self.members.values())
        elif isinstance(change, RegexSet):
            self._resolve(change.regex, change.resolved)
        elif isinstance(change, TopicsSet):
            self.topics = change.topics
        else:
            self.checked = change

    def _put(self, member: Member) -> None:
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        if old is None or old.info != member.info:
            self._count(old, -1)
            self._count(member, 1)
            if member.info.instance_id is not None:
                self.static[member.info.instance_id] = member.member_id
        if old is None or old.current is not member.current:
            if old is not None:
                self._release(old)
            for part in (member.current.assigned, member.current.revoking):
                for topic_id, indexes in part.items():
                    self.owners.setdefault(topic_id, {}).update(dict.fromkeys(indexes, member.member_id))
        was = old is not None and old.is_reconciled(self.assignment_epoch)
        self._reconciled += member.is_reconciled(self.assignment_epoch) - was

    def _remove(self, member: Member) -> None:
        del self.members[member.member_id]
        self._release(member)
        self._count(member, -1)
        instance_id = member.info.instance_id
        if instance_id is not None and self.static.get(instance_id) == member.member_id:
            del self.static[instance_id]
        self._reconciled -= member.is_reconciled(self.assignment_epoch)

    def _release(self, member: Member) -> None:
        """Releases what the member owns. A partition may have a new owner already while the group is loaded from a
        compacted log.
        """
        for part in (member.current.assigned, member.current.revoking):
            for topic_id, indexes in part.items():
                owners = self.owners.get(topic_id)
                if owners is None:
                    continue
                for index in indexes:
                    if owners.get(index) == member.member_id:
                        del owners[index]
                if not owners:
                    del self.owners[topic_id]

    def _count(self, member: Member | None, by: int) -> None:
        if member is None:
            return
        for topic in member.info.topics:
            self._count_topic(topic, by, 0)
        if member.info.regex:
            count(self.regexes, member.info.regex, by)
        if member.info.assignor is not None:
            count(self.assignors, member.info.assignor, by)
        if member.info.classic is not None:
            self.classic_members += by
            for name, _ in member.info.classic.protocols:
                count(self.classic_protocols, name, by)

    def _count_topic(self, topic: str, by_name: int, by_regex: int) -> None:
        before = self.subscribers.get(topic, Subscribers())
        after = Subscribers(before.by_name + by_name, before.by_regex + by_regex)
        if after.by_name or after.by_regex:
            self.subscribers[topic] = after
        else:
            self.subscribers.pop(topic, None)

    def _resolve(self, regex: str, resolved: Resolved | None) -> None:
        old = self.resolved.pop(regex, None)
        for topic in old.topics if old is not None else ():
            self._count_topic(topic, 0, -1)
        if resolved is not None:
            self.resolved[regex] = resolved
            for topic in resolved.topics:
                self._count_topic(topic, 0, 1)

    def _set_target(self, member_id: str, partitions: Partitions | None) -> None:
        before, known = self.target.pop(member_id, NOTHING), self._target_owners
        if partitions is not None:
            self.target[member_id] = partitions
        if known is None:
            return
        for topic_id, indexes in before.items():
            owners = known.get(topic_id, {})
            for index in indexes:
                if owners.get(index) == member_id:
                    del owners[index]
            if not owners:
                known.pop(topic_id, None)
        self._own(member_id, partitions or NOTHING, known)


def count(counts: dict[str, int], name: str, by: int) -> None:
    """Adds to a count, and removes it at 0."""
    after = counts.get(name, 0) + by
    if after > 0:
        counts[name] = after
    else:
        counts.pop(name, None)
