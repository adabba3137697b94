"""Values of a share group, and the changes that its log consists of.

A `Group` changes only by `apply`, in operation and when it is loaded: every change but `Checked` and `Complete` is a
record of `__consumer_offsets`. `machine` decides which changes an event leads to. Source: KIP-932.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
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

ASSIGNOR = "simple"
"""The only assignor."""


@frozen
class Info(MemberInfo):
    topics: frozenset[str] = frozenset()


@frozen
class Current(MemberProgress):
    """The partitions of a member. A partition may belong to several members."""

    assigned: Partitions = field(default_factory=dict[bytes, frozenset[int]])


Member: TypeAlias = AnyMember[Info, Current]


class SharePartitionKey(NamedTuple):
    """The identity of a share partition: a group and a partition of a topic."""

    group_id: str
    topic_id: bytes
    partition: int


class Initialized(NamedTuple):
    """Partitions of a topic whose state is being initialized, since `at_ms`, or has been."""

    name: str
    partitions: frozenset[int]
    at_ms: int = 0


@frozen
class Initialization:
    """The state of the share partitions of the group, by topic id; of topics whose state is being deleted the name."""

    initializing: Mapping[bytes, Initialized] = field(default_factory=dict[bytes, Initialized])
    initialized: Mapping[bytes, Initialized] = field(default_factory=dict[bytes, Initialized])
    deleting: Mapping[bytes, str] = field(default_factory=dict[bytes, str])

    @property
    def assignable(self) -> Partitions:
        """The partitions that can be assigned."""
        return {id: topic.partitions for id, topic in self.initialized.items()}


# --- changes ---------------------------------------------------------------------------------------------------------


class InitializationSet(NamedTuple):
    """Key 15. None: the group has no state."""

    initialization: Initialization | None


class Complete(NamedTuple):
    """All partitions of the subscribed topics have a state at this version of the metadata. Has no record."""

    version: int


Recorded: TypeAlias = InfoSet | EpochSet | AssignmentEpochSet | TargetSet | CurrentSet | InitializationSet
Change: TypeAlias = Recorded | Checked | Complete


def recounted(subscribers: Mapping[str, int], before: Set[str], after: Set[str]) -> Mapping[str, int]:
    """Returns the numbers of subscribers by topic after a member has changed its subscription."""
    if before == after:
        return subscribers
    found = dict(subscribers)
    for topic in after - before:
        found[topic] = found.get(topic, 0) + 1
    for topic in before - after:
        found[topic] -= 1
        if not found[topic]:
            del found[topic]
    return found


class Group(AssignedGroup[Info, Current, Partitions]):
    """A share group."""

    kind = "share"
    states = (GroupState.EMPTY, GroupState.STABLE, GroupState.DEAD)
    info_class, current_class = Info, Current

    def __init__(self, group_id: str, first_epoch: int = 1) -> None:
        super().__init__(group_id, first_epoch)
        self.initialization = Initialization()
        self.complete: int | None = None
        """The version of the metadata at which no partition of the subscribed topics lacked a state."""
        self.subscribers: Mapping[str, int] = {}
        """The number of members that subscribe to a topic."""
        self._has_unassigned: bool | None = None

    @property
    def has_unassigned(self) -> bool:
        """Whether partitions of subscribed topics can be assigned, but are not all in the target assignment."""
        if self._has_unassigned is None:
            assigned: dict[bytes, set[int]] = {}
            for target in self.target.values():
                for topic_id, indexes in target.items():
                    assigned.setdefault(topic_id, set()).update(indexes)
            self._has_unassigned = any(
                topic.name in self.subscribers and frozenset(assigned.get(topic_id, ())) != topic.partitions
                for topic_id, topic in self.initialization.initialized.items()
            )
        return self._has_unassigned

    @property
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The topics to which any member subscribes."""
        return frozenset(self.subscribers)

    def tombstones(self, renamed: Mapping[str, str] = {}) -> list[Change]:
        return [*super().tombstones(renamed), InitializationSet(None), EpochSet(None)]

    def apply(self, change: Change) -> None:
        """Makes a change."""
        if isinstance(change, (InfoSet, TargetSet, InitializationSet)):
            self._has_unassigned = None
            if not isinstance(change, TargetSet):
                self.complete = None
        if isinstance(change, InitializationSet):
            self.initialization = change.initialization or Initialization()
        elif isinstance(change, Complete):
            self.complete = change.version
        else:
            super().apply(change)

    def _relink(self, old: Member | None, new: Member | None) -> None:
        super()._relink(old, new)
        before, after = (one.info.topics if one is not None else frozenset[str]() for one in (old, new))
        self.subscribers = recounted(self.subscribers, before, after)
