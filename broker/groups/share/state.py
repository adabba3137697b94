"""Values of a share group, and the changes that its log consists of.

A `Group` changes only by `apply`, in operation and when it is loaded: every change but `Checked` and `Complete` is a
record of `__consumer_offsets`. `machine` decides which changes an event leads to. Source: KIP-932.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import field
from enum import Enum
from typing import TypeAlias

from ....protocol.frozen import frozen
from ....protocol.named import NamedTuple
from .assignor import Partitions

JOIN, LEAVE = 0, -1
"""Member epochs in a heartbeat."""
ASSIGNOR = "simple"
"""The only assignor."""
NO_ASSIGNMENT = -1
"""The assignment epoch after its tombstone."""


class GroupState(Enum):
    """The states; values are Kafka's names."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@frozen
class Info:
    """What a member has sent about itself."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()


@frozen
class Current:
    """The epoch of a member and its partitions. A partition may belong to several members."""

    epoch: int = 0
    previous_epoch: int = -1
    assigned: Partitions = field(default_factory=dict[bytes, frozenset[int]])


@frozen
class Member:
    """A member of the group."""

    member_id: str
    info: Info = Info()
    current: Current = Current()


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


class InfoSet(NamedTuple):
    """Key 10. None removes the member."""

    member_id: str
    info: Info | None


class EpochSet(NamedTuple):
    """Key 11. None removes the group."""

    epoch: int | None
    metadata_hash: int = 0


class AssignmentEpochSet(NamedTuple):
    """Key 12. The time is 0 if it is unknown."""

    epoch: int | None
    at_ms: int = 0


class TargetSet(NamedTuple):
    """Key 13."""

    member_id: str
    partitions: Partitions | None


class CurrentSet(NamedTuple):
    """Key 14. None: the member leaves."""

    member_id: str
    current: Current | None


class InitializationSet(NamedTuple):
    """Key 15. None: the group has no state."""

    initialization: Initialization | None


class Checked(NamedTuple):
    """The metadata of the subscribed topics were compared at this version. Has no record."""

    version: int


class Complete(NamedTuple):
    """All partitions of the subscribed topics have a state at this version of the metadata. Has no record."""

    version: int


Recorded: TypeAlias = InfoSet | EpochSet | AssignmentEpochSet | TargetSet | CurrentSet | InitializationSet
Change: TypeAlias = Recorded | Checked | Complete
UNRECORDED = (Checked, Complete)


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


class Group:
    """A share group. Read it freely, change it only by `apply`."""

    kind = "share"
    protocol_type = "share"

    def __init__(self, group_id: str, first_epoch: int = 1) -> None:
        """`first_epoch` is the epoch of a group without members: 1 since 4.3."""
        self.group_id = group_id
        self.epoch = first_epoch
        self.metadata_hash = 0
        self.assignment_epoch = first_epoch
        self.assigned_ms = 0
        self.members: dict[str, Member] = {}
        self.target: dict[str, Partitions] = {}
        self.initialization = Initialization()
        self.checked: int | None = None
        """The version of the metadata that was compared last."""
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
    def is_empty(self) -> bool:
        return not self.members

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The topics to which any member subscribes."""
        return frozenset(self.subscribers)

    def apply(self, change: Change) -> None:
        """Makes a change."""
        if isinstance(change, (InfoSet, TargetSet, InitializationSet)):
            self._has_unassigned = None
            if not isinstance(change, TargetSet):
                self.complete = None
        if isinstance(change, CurrentSet):
            member = self.members.get(change.member_id)
            if change.current is not None:
                info = member.info if member is not None else Info()
                self.members[change.member_id] = Member(change.member_id, info, change.current)
            elif member is not None:
                self.members[change.member_id] = Member(change.member_id, member.info, Current(LEAVE, LEAVE))
        elif isinstance(change, InfoSet):
            member = self.members.get(change.member_id)
            before = member.info.topics if member is not None else frozenset[str]()
            after = change.info.topics if change.info is not None else frozenset[str]()
            self.subscribers = recounted(self.subscribers, before, after)
            if change.info is None:
                self.members.pop(change.member_id, None)
            else:
                current = member.current if member is not None else Current()
                self.members[change.member_id] = Member(change.member_id, change.info, current)
        elif isinstance(change, EpochSet):
            self.epoch, self.metadata_hash = change.epoch or 0, change.metadata_hash
        elif isinstance(change, AssignmentEpochSet):
            self.assignment_epoch = NO_ASSIGNMENT if change.epoch is None else change.epoch
            self.assigned_ms = change.at_ms
        elif isinstance(change, TargetSet):
            if change.partitions is None:
                self.target.pop(change.member_id, None)
            else:
                self.target[change.member_id] = change.partitions
        elif isinstance(change, InitializationSet):
            self.initialization = change.initialization or Initialization()
        elif isinstance(change, Complete):
            self.complete = change.version
        else:
            self.checked = change.version
