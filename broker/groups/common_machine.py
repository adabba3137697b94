"""What the machines of consumer, share and streams groups have in common: a decision in progress with its elementary
changes, the checks of a member, and the events to which all of them react in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from ...protocol.errors import ErrorCode
from ..errors import Refused
from .common_events import (
    AssignedSettings,
    CancelTimer,
    Decision,
    Delete,
    DeleteReply,
    Forget,
    HeartbeatReply,
    Loaded,
    MemberLeave,
    Reply,
    RevocationOverdue,
    SessionExpired,
    StartTimer,
    Timer,
)
from .common_state import (
    JOIN,
    STATIC_LEAVE,
    AssignedGroup,
    AssignmentEpochSet,
    C,
    CurrentSet,
    GroupState,
    I,
    InfoSet,
    Member,
    MemberState,
    TargetSet,
)
from .topics import TopicLookup

G = TypeVar("G", bound=AssignedGroup[Any, Any, Any])
S = TypeVar("S", bound=AssignedSettings)
Table: TypeAlias = Mapping[tuple[GroupState, type], Callable[[Any, Any], None]]
"""The function for each event in each state."""
Replies: TypeAlias = Mapping[type, Callable[[ErrorCode, str | None], Any]]
"""The error response to each event that is a request, from the code and the message."""


class Step(Generic[G, S]):
    """A decision in progress: changes and effects so far. Its methods are the elementary changes."""

    holdings: ClassVar[str] = "partitions"
    """What members own, as error texts name it."""
    reply_class: ClassVar[Callable[..., Any]] = HeartbeatReply
    timers: ClassVar[Sequence[Callable[[str], Timer]]] = (SessionExpired, RevocationOverdue)
    """The timers of a member."""

    def __init__(self, group: G, now_ms: int, settings: S, topics: TopicLookup) -> None:
        self.group = group
        self.now_ms = now_ms
        self.settings = settings
        self.topics = topics
        self.replaced: Any = None
        """The static member whose place another one takes."""
        self.changes: list[Any] = []
        self.effects: list[Any] = []

    def decision(self) -> Decision[Any, Any]:
        """Returns the collected changes and effects."""
        return Decision(tuple(self.changes), tuple(self.effects))

    def reply(self, response: Any) -> None:
        self.effects.append(Reply(response))

    # --- members -------------------------------------------------------------------------------------------------

    def member_of(self, event: Any) -> Any:
        """Returns the member that sends a heartbeat, or a new one. A static member that returns with a new id takes
        the place of the old one. Raises Refused.
        """
        group, member_id, instance_id = self.group, event.member_id, event.instance_id
        if event.epoch == JOIN and (instance_id is not None or member_id not in group.members):
            holder = group.static_member(instance_id)
            if holder is None:
                return group.member(member_id)
            self.check_released(holder, event)
            return self.replace_member(holder, member_id)
        member = member_of(group, member_id, instance_id)
        self.check_epoch(member, event)
        return member

    def check_released(self, holder: Any, event: Any) -> None:
        """Raises Refused unless a static member has left, so that another one may take its place."""
        if holder.current.epoch != STATIC_LEAVE:
            raise Refused(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {event.member_id} with instance id {event.instance_id} cannot join the group because "
                f"the instance id is owned by {holder.member_id} member.",
            )

    def check_epoch(self, member: Any, event: Any) -> None:
        """Raises Refused unless a heartbeat has the epoch of the member, or the previous one and owns nothing but its
        assignment: then the response with the new epoch may be lost.
        """
        epoch, current = event.epoch, member.current
        if epoch == current.epoch or (epoch == JOIN and self.rejoins_at_zero):
            return
        if epoch != current.previous_epoch or epoch > current.epoch or not self.owns_part(member, event.owned):
            raise fenced(self.group.kind, epoch, current.epoch)

    @property
    def rejoins_at_zero(self) -> bool:
        """Whether a member may join again in any epoch."""
        return True

    def owns_part(self, member: Any, owned: Any) -> bool:
        """Returns whether a member reports to own nothing but its assignment; it may report nothing at all."""
        return False

    def put_info(self, member: Any, info: Any) -> None:
        """Changes what a member has sent, if that is other than before."""
        if info != member.info:
            self.changes.append(InfoSet(member.member_id, info))

    def replace_member(self, old: Member[I, C], new_id: str) -> Member[I, C]:
        """Gives the place of a static member to a new member id, which starts in epoch 0."""
        self.replaced = old
        member = Member(new_id, old.info, replace(old.current, epoch=0, previous_epoch=0))
        self.drop(old.member_id)
        self.changes += [
            InfoSet(new_id, member.info),
            TargetSet(new_id, self.group.target_of(old.member_id)),
            CurrentSet(new_id, member.current),
        ]
        return member

    def drop(self, member_id: str) -> None:
        self.changes += [CurrentSet(member_id, None), TargetSet(member_id, None), InfoSet(member_id, None)]
        self.effects += [CancelTimer(timer(member_id)) for timer in self.timers]

    def remove(self, members: Collection[Any]) -> None:
        """Removes members. Each kind of groups begins a new epoch with that."""
        for member in members:
            self.drop(member.member_id)

    def absent(self, current: Any) -> Any:
        """Returns the state of a static member that leaves and will return."""
        return replace(current, epoch=STATIC_LEAVE)

    # --- assignments ---------------------------------------------------------------------------------------------

    @property
    def is_early(self) -> bool:
        """Whether the interval between two assignments is not over."""
        assigned_ms, interval_ms = self.group.assigned_ms, self.settings.assignment_interval_ms
        return assigned_ms > 0 and interval_ms > 0 and self.now_ms - assigned_ms < interval_ms

    def assign(self, epoch: int, computed: Mapping[str, Any]) -> None:
        """Changes the target assignments to those that were computed in an epoch."""
        changed = {one.member_id: one.target for one in self.changes if isinstance(one, TargetSet)}
        for name, target in computed.items():
            before = changed.get(name, self.group.target.get(name))
            if before is not target and before != target:
                self.changes.append(TargetSet(name, target))
        self.changes.append(AssignmentEpochSet(epoch, self.now_ms))

    def move(self, member: Member[I, C], after: C | None) -> Member[I, C]:
        """Gives a member its next state of the reconciliation. Raises Refused without one, since the stored state is
        unknown.
        """
        if after is None:
            text = f"The {self.group.kind} group member is in a unknown state. The member must abandon all its "
            raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, f"{text}{self.holdings} and rejoin.")
        if after == member.current:
            return member
        self.changes.append(CurrentSet(member.member_id, after))
        if member.info.classic is None:  # a classic one has to join again to revoke, and another timer for that
            overdue = RevocationOverdue(member.member_id)
            if after.state is MemberState.UNREVOKED:
                self.effects.append(StartTimer(overdue, member.info.rebalance_timeout_ms))
            else:
                self.effects.append(CancelTimer(overdue))
        return Member(member.member_id, member.info, after)


def refused(replies: Replies, event: Any, code: ErrorCode, message: str | None = None) -> Decision[Any, Any]:
    """Returns the error response to the request of an event, and nothing else."""
    reply = replies.get(event.__class__)
    return Decision() if reply is None else Decision(effects=(Reply(reply(code, message)),))


def decided(
    table: Table,
    step_class: Callable[..., Step[Any, Any]],
    replies: Replies,
    group: Any,
    event: Any,
    *,
    now_ms: int,
    settings: Any,
    topics: TopicLookup,
) -> Decision[Any, Any]:
    """Returns the changes of the group that `event` leads to, and the effects after them, in order."""
    step = step_class(group, now_ms, settings, topics)
    try:
        table[group.state, type(event)](step, event)
    except Refused as error:
        return refused(replies, event, error.code, error.message or None)
    return step.decision()


# --- events ----------------------------------------------------------------------------------------------------------


def leave(step: Step[Any, Any], event: MemberLeave) -> None:
    """Removes a member that leaves; a static member keeps its place with the epoch STATIC_LEAVE."""
    member = member_of(step.group, event.member_id, event.instance_id)
    if event.instance_id is not None and event.epoch == STATIC_LEAVE:
        step.changes.append(CurrentSet(member.member_id, step.absent(member.current)))
    else:
        step.remove([member])
    step.reply(step.reply_class(ErrorCode.NONE, None, event.member_id, event.epoch))


def expired(step: Step[Any, Any], event: Any) -> None:
    """Removes the member of a timer."""
    member = step.group.members.get(event.member_id)
    if member is not None:
        step.remove([member])


def revocation_overdue(step: Step[Any, Any], event: RevocationOverdue) -> None:
    """Removes a member that has not revoked in time."""
    member = step.group.members.get(event.member_id)
    # A static member that left keeps its place until its session expires.
    if member is not None and member.current.state is MemberState.UNREVOKED and member.current.epoch >= 0:
        step.remove([member])


def loaded(step: Step[Any, Any], event: Loaded) -> None:
    """Starts the timers of the members."""
    for member in step.group.members.values():
        # As in Kafka, also a classic member has the timeout of the group until its next request.
        step.effects.append(StartTimer(SessionExpired(member.member_id), step.settings.session_timeout_ms))
        if member.current.state is MemberState.UNREVOKED:
            step.effects.append(StartTimer(RevocationOverdue(member.member_id), member.info.rebalance_timeout_ms))


def delete(step: Step[Any, Any], event: Delete) -> None:
    """Removes a group without members. Raises Refused."""
    check_empty(step.group)
    step.changes += step.group.tombstones()
    step.effects += [Forget(), Reply(DeleteReply(ErrorCode.NONE))]


def nothing(step: Step[Any, Any], event: Any) -> None:
    """Ignores an event that has no meaning in this state."""


# --- checks of a request ---------------------------------------------------------------------------------------------


def check_empty(group: AssignedGroup[Any, Any, Any]) -> None:
    """Raises Refused if the group has members."""
    if not group.is_empty:
        raise Refused(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")


def member_of(group: AssignedGroup[I, C, Any], member_id: str, instance_id: str | None) -> Member[I, C]:
    """Returns the member that sends a request. Raises Refused."""
    return known_member(group, member_id) if instance_id is None else known_static(group, member_id, instance_id)


def known_member(group: AssignedGroup[I, C, Any], member_id: str) -> Member[I, C]:
    """Returns a member by its id. Raises Refused."""
    member = group.members.get(member_id)
    if member is None:
        text = f"Member {member_id} is not a member of group {group.group_id}."
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, text)
    return member


def known_static(group: AssignedGroup[I, C, Any], member_id: str, instance_id: str) -> Member[I, C]:
    """Returns a static member, which must have this id. Raises Refused."""
    member = group.static_member(instance_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        text = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        raise Refused(ErrorCode.FENCED_INSTANCE_ID, text)
    return member


def full(kind: str, max_size: int) -> Refused:
    """Returns the error of a group that takes no more members."""
    text = f"The {kind} group has reached its maximum capacity of {max_size} members."
    return Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, text)


def fenced(kind: str, epoch: int, current_epoch: int, more: str = "") -> Refused:
    """Returns the error of a member whose heartbeat has another epoch than the group has for it."""
    compared = "greater" if epoch > current_epoch else "smaller"
    text = (
        f"The {kind} group member has a {compared} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({current_epoch}){more}. The member must abandon all its partitions and rejoin."
    )
    return Refused(ErrorCode.FENCED_MEMBER_EPOCH, text)
