"""Values and changes that consumer, share and streams groups have in common, and the part of their state that is."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from ...protocol.frozen import frozen
from ...protocol.named import NamedTuple

JOIN, LEAVE, STATIC_LEAVE = 0, -1, -2
"""Member epochs in a heartbeat: the member joins; it leaves; the static member leaves and will return."""
NO_ASSIGNMENT = -1
"""The assignment epoch after its tombstone."""

Partitions: TypeAlias = Mapping[bytes, frozenset[int]]
"""Partition indexes by topic id."""


class GroupState(Enum):
    """The states; values are Kafka's names in ListGroups and in the responses that describe groups."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


# --- members ---------------------------------------------------------------------------------------------------------


class MemberState(IntEnum):
    """The reconciliation of a member, with the numbers in records of consumer groups. A member of a share group is
    always STABLE.
    """

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127


class ClassicMember(NamedTuple):
    """A member of a consumer group that uses the classic protocol. `protocols` are pairs (name, metadata) in its order
    of preference.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@frozen
class MemberInfo:
    """What a member has sent about itself. Share groups have neither static members nor rebalance timeouts, and only
    consumer groups have members of the classic protocol.
    """

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    classic: ClassicMember | None = None


@frozen
class MemberProgress:
    """The epoch of a member. Each kind of groups adds what the member owns."""

    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE


I = TypeVar("I", bound=MemberInfo)  # noqa: E741
C = TypeVar("C", bound=MemberProgress)
T = TypeVar("T")


@frozen
class Member(Generic[I, C]):
    """A member of a group."""

    member_id: str
    info: I
    current: C

    def is_reconciled(self, epoch: int) -> bool:
        """Returns whether the member has the target assignment of this epoch."""
        return self.current.epoch == epoch and self.current.state is MemberState.STABLE


# --- changes ---------------------------------------------------------------------------------------------------------


class EpochSet(NamedTuple):
    """Key 3 of a consumer group, 11 of a share group. None removes the group."""

    epoch: int | None
    metadata_hash: int = 0


class InfoSet(NamedTuple):
    """Key 5 of a consumer group, 10 of a share group, 19 of a streams group: an `Info`. None removes the member."""

    member_id: str
    info: Any


class AssignmentEpochSet(NamedTuple):
    """Key 6 of a consumer group, 12 of a share group, 20 of a streams group. The time is 0 if it is unknown."""

    epoch: int | None
    at_ms: int = 0


class TargetSet(NamedTuple):
    """Key 7 of a consumer group, 13 of a share group, 21 of a streams group: partitions or tasks. None removes them."""

    member_id: str
    target: Any


class CurrentSet(NamedTuple):
    """Key 8 of a consumer group, 14 of a share group, 22 of a streams group: a `Current`. None: the member leaves."""

    member_id: str
    current: Any


class Checked(NamedTuple):
    """The metadata of the topics that the group reads were compared at this version. Has no record."""

    version: int


# --- the group -------------------------------------------------------------------------------------------------------


class AssignedGroup(Generic[I, C, T]):
    """A group whose assignments the broker computes, with members and their targets. Read it freely, change it only by
    `apply`.
    """

    kind: ClassVar[str]
    """Kafka's name of the kind, as in ListGroups; also the protocol type of its members."""
    states: ClassVar[tuple[GroupState, ...]] = tuple(GroupState)
    info_class: ClassVar[type[Any]]
    current_class: ClassVar[type[Any]]
    no_target: ClassVar[Any] = {}

    def __init__(self, group_id: str, first_epoch: int = 1) -> None:
        """`first_epoch` is the epoch of a group without members: 1 since 4.3, where a new member can wait in it for
        its first assignment (KAFKA-20268), and 0 before.
        """
        self.group_id = group_id
        self.epoch = first_epoch
        self.metadata_hash = 0
        self.assignment_epoch = first_epoch
        self.assigned_ms = 0
        """The time of the target assignment, 0 if unknown."""
        self.members: dict[str, Member[I, C]] = {}
        self.static: dict[str, str] = {}
        """Member ids by instance id."""
        self.target: dict[str, T] = {}
        self.checked: int | None = None
        """The version of the metadata that was compared last."""
        self._reconciled = 0

    @property
    def protocol_type(self) -> str:
        return self.kind

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

    def static_member(self, instance_id: str | None) -> Member[I, C] | None:
        """Returns the member with this instance id, or None."""
        member_id = self.static.get(instance_id) if instance_id is not None else None
        return self.members.get(member_id) if member_id is not None else None

    def member(self, member_id: str) -> Member[I, C]:
        """Returns the member with this id, or a new one."""
        return self.members.get(member_id) or Member(member_id, self.info_class(), self.current_class())

    def target_of(self, member_id: str) -> T:
        """Returns the target assignment of a member."""
        found = self.target.get(member_id)
        return self.no_target if found is None else found

    def tombstones(self, renamed: Mapping[str, str] = {}) -> list[Any]:
        """Returns the changes that remove the group, in the order in which Kafka writes them. Each kind of groups adds
        those of its own, with its epoch. `renamed` has the new ids of members that were replaced in the same write.
        """
        names = [renamed.get(name, name) for name in self.members]
        return [
            *(CurrentSet(name, None) for name in names),
            *(TargetSet(name, None) for name in names),
            AssignmentEpochSet(None),
            *(InfoSet(name, None) for name in names),
        ]

    def apply(self, change: Any) -> None:
        """Makes a change."""
        if isinstance(change, CurrentSet):
            if change.current is not None:
                self._put(Member(change.member_id, self.member(change.member_id).info, change.current))
            elif change.member_id in self.members:
                info = self.members[change.member_id].info
                self._put(Member(change.member_id, info, self.current_class(LEAVE, LEAVE)))
        elif isinstance(change, InfoSet):
            if change.info is not None:
                self._put(Member(change.member_id, change.info, self.member(change.member_id).current))
            elif change.member_id in self.members:
                self._relink(self.members.pop(change.member_id), None)
        elif isinstance(change, TargetSet):
            self._set_target(change.member_id, change.target)
        elif isinstance(change, EpochSet):
            self.epoch, self.metadata_hash = change.epoch or 0, change.metadata_hash
        elif isinstance(change, AssignmentEpochSet):
            self.assignment_epoch = NO_ASSIGNMENT if change.epoch is None else change.epoch
            self.assigned_ms = change.at_ms
            self._reconciled = sum(one.is_reconciled(self.assignment_epoch) for one in self.members.values())
        else:
            assert isinstance(change, Checked)
            self.checked = change.version

    def _put(self, member: Member[I, C]) -> None:
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self._relink(old, member)

    def _relink(self, old: Member[I, C] | None, new: Member[I, C] | None) -> None:
        """Updates the look-ups after a member has changed, was added (no `old`) or removed (no `new`)."""
        if old is not None:
            instance_id = old.info.instance_id
            if instance_id is not None and self.static.get(instance_id) == old.member_id:
                del self.static[instance_id]
            self._reconciled -= old.is_reconciled(self.assignment_epoch)
        if new is not None:
            if new.info.instance_id is not None:
                self.static[new.info.instance_id] = new.member_id
            self._reconciled += new.is_reconciled(self.assignment_epoch)

    def _set_target(self, member_id: str, target: T | None) -> None:
        if target is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = target
