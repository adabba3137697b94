"""Values of a group of the consumer protocol, and the changes that its log consists of.

A `Group` changes only by `apply`, in operation and when it is loaded: every change but `Checked` is a record of
`__consumer_offsets`. `machine` decides which changes an event leads to. Sources: KIP-848, KIP-1101, KIP-1251, KIP-1263.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from ....protocol.frozen import frozen
from ....protocol.named import NamedTuple
from ..common_state import (
    AssignedGroup,
    AssignmentEpochSet,
    Checked,
    CurrentSet,
    EpochSet,
    GroupState,
    InfoSet,
    MemberInfo,
    MemberProgress,
    Partitions,
    TargetSet,
)
from ..common_state import Member as AnyMember

Assigned: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""The epochs at which partitions were assigned, by topic id and partition index."""
NOTHING: Partitions = {}
UNASSIGNED: Assigned = {}
StoredTopics: TypeAlias = tuple[tuple[bytes, str, int, tuple[tuple[str, ...], ...]], ...]
"""Topics as (id, name, number of partitions, racks of each partition)."""


@frozen
class Info(MemberInfo):
    """`regex` is "" without a regular expression."""

    topics: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None


@frozen
class Current(MemberProgress):
    """The partitions that a member owns: those that it keeps, and those that it has to revoke."""

    assigned: Assigned = field(default_factory=dict[bytes, Mapping[int, int]])
    revoking: Assigned = field(default_factory=dict[bytes, Mapping[int, int]])


Member: TypeAlias = AnyMember[Info, Current]


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


class TopicsSet(NamedTuple):
    """Key 4: the metadata of the subscribed topics, before 4.1; None since then."""

    topics: StoredTopics | None


class RegexSet(NamedTuple):
    """Key 16."""

    regex: str
    resolved: Resolved | None


Change: TypeAlias = EpochSet | TopicsSet | InfoSet | AssignmentEpochSet | TargetSet | CurrentSet | RegexSet | Checked


# --- the group -------------------------------------------------------------------------------------------------------


class Group(AssignedGroup[Info, Current, Partitions]):
    """A group of the consumer protocol, with the counts and reverse look-ups that decisions need."""

    kind = "consumer"
    states = tuple(state for state in GroupState if state is not GroupState.NOT_READY)
    info_class, current_class = Info, Current

    def __init__(self, group_id: str, first_epoch: int = 0) -> None:
        super().__init__(group_id, first_epoch)
        self.topics: StoredTopics | None = None
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

    def _own(self, member_id: str, partitions: Partitions | Assigned, owners: dict[bytes, dict[int, str]]) -> None:
        for topic_id, indexes in partitions.items():
            owners.setdefault(topic_id, {}).update(dict.fromkeys(indexes, member_id))

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The topics to which any member subscribes."""
        return frozenset(self.subscribers)

    def tombstones(self, renamed: Mapping[str, str] = {}) -> list[Change]:
        own = [*(RegexSet(regex, None) for regex in self.resolved), TopicsSet(None), EpochSet(None)]
        return [*super().tombstones(renamed), *own]

    def is_owned(self, topic_id: bytes, index: int) -> bool:
        return index in self.owners.get(topic_id, ())

    def apply(self, change: Change) -> None:
        """Makes a change."""
        if isinstance(change, RegexSet):
            self._resolve(change.regex, change.resolved)
        elif isinstance(change, TopicsSet):
            self.topics = change.topics
        else:
            super().apply(change)

    def _relink(self, old: Member | None, new: Member | None) -> None:
        super()._relink(old, new)
        if old is None or new is None or old.info != new.info:
            self._count(old, -1)
            self._count(new, 1)
        if old is None or new is None or old.current is not new.current:
            if old is not None:
                self._release(old)
            if new is not None:
                self._own(new.member_id, new.current.assigned, self.owners)
                self._own(new.member_id, new.current.revoking, self.owners)

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
            count_topic(self.subscribers, topic, by, 0)
        if member.info.regex:
            count(self.regexes, member.info.regex, by)
        if member.info.assignor is not None:
            count(self.assignors, member.info.assignor, by)
        if member.info.classic is not None:
            self.classic_members += by
            for name, _ in member.info.classic.protocols:
                count(self.classic_protocols, name, by)

    def _resolve(self, regex: str, resolved: Resolved | None) -> None:
        old = self.resolved.pop(regex, None)
        for topic in old.topics if old is not None else ():
            count_topic(self.subscribers, topic, 0, -1)
        if resolved is not None:
            self.resolved[regex] = resolved
            for topic in resolved.topics:
                count_topic(self.subscribers, topic, 0, 1)

    def _set_target(self, member_id: str, target: Partitions | None) -> None:
        before, known = self.target.pop(member_id, NOTHING), self._target_owners
        if target is not None:
            self.target[member_id] = target
        if known is None:
            return
        for topic_id, indexes in before.items():
            owners = known.get(topic_id, {})
            for index in indexes:
                if owners.get(index) == member_id:
                    del owners[index]
            if not owners:
                known.pop(topic_id, None)
        self._own(member_id, target or NOTHING, known)


def count_topic(subscribers: dict[str, Subscribers], topic: str, by_name: int, by_regex: int) -> None:
    """Adds to the subscribers of a topic, and removes the topic without any."""
    before = subscribers.get(topic, Subscribers())
    after = Subscribers(before.by_name + by_name, before.by_regex + by_regex)
    if after.by_name or after.by_regex:
        subscribers[topic] = after
    else:
        subscribers.pop(topic, None)


def count(counts: dict[str, int], name: str, by: int) -> None:
    """Adds to a count, and removes it at 0."""
    after = counts.get(name, 0) + by
    if after > 0:
        counts[name] = after
    else:
        counts.pop(name, None)
