"""Elementary changes of a group, from which `machine` composes its transitions.

Owns how members are added, updated and removed, and how a rebalance begins and completes. `machine` decides which event
leads to which change; nothing here uses a clock or does I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ....protocol.errors import ErrorCode
from ..common_events import CancelTimer, SessionExpired, StartTimer, Timer
from .state import (
    Commit,
    Effect,
    Group,
    GroupSettings,
    GroupState,
    Heartbeat,
    Join,
    JoinedMember,
    JoinReply,
    Member,
    PendingExpired,
    Persist,
    Purpose,
    RebalanceDue,
    Reply,
    Sync,
    SyncDue,
    SyncReply,
)

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD


class Step:
    """A transition in progress: the group so far and the effects collected. Its methods are the elementary changes."""

    __slots__ = ("effects", "group", "now_ms", "settings")

    def __init__(self, group: Group, now_ms: int, settings: GroupSettings) -> None:
        self.group = group
        self.now_ms = now_ms
        self.settings = settings
        self.effects: list[Effect] = []

    # --- basics --------------------------------------------------------------------------------------------------

    def change(self, **fields: Any) -> None:
        self.group = replace(self.group, **fields)

    def enter(self, state: GroupState) -> None:
        self.change(state=state, state_changed_ms=self.now_ms)

    def put(self, member: Member) -> None:
        self.change(members={**self.group.members, member.member_id: member})

    def reply(self, token: int | None, response: Any) -> None:
        if token is not None:
            self.effects.append(Reply(token, response))

    def start_session(self, member: Member) -> None:
        self.effects.append(StartTimer(SessionExpired(member.member_id), member.session_timeout_ms))

    def joined_reply(self, member_id: str, *, skip_assignment: bool = False) -> JoinReply:
        """Returns the successful response for the current generation; the leader's includes the members."""
        group = self.group
        members: tuple[JoinedMember, ...] = ()
        if group.leader == member_id:
            members = tuple(
                JoinedMember(member.member_id, member.instance_id, member.metadata(group.protocol_name))
                for member in group.members.values()
            )
        return JoinReply(
            ErrorCode.NONE,
            member_id,
            group.generation_id,
            group.protocol_type,
            group.protocol_name,
            group.leader or "",
            skip_assignment,
            members,
        )

    # --- members -------------------------------------------------------------------------------------------------

    def add(self, event: Join, member_id: str) -> None:
        """Adds a new member and starts a rebalance."""
        group = self.group
        member = Member(
            member_id=member_id,
            instance_id=event.request.instance_id,
            client_id=event.request.client_id,
            client_host=event.request.client_host,
            rebalance_timeout_ms=event.request.rebalance_timeout_ms,
            session_timeout_ms=event.request.session_timeout_ms,
            protocols=event.request.protocols,
            is_new=True,
            join_token=event.token,
        )
        if member_id in group.pending:
            self.effects.append(CancelTimer(PendingExpired(member_id)))
        self.change(
            protocol_type=group.protocol_type if group.members else event.request.protocol_type,
            leader=group.leader or member_id,
            pending=group.pending - {member_id},
            # Only a group without any generation yet extends the initial delay for further members.
            new_member_added=group.new_member_added or (group.state is PREPARING and group.generation_id == 0),
        )
        self.put(member)
        self.effects.append(StartTimer(SessionExpired(member_id), self.settings.new_member_join_timeout_ms))
        self.rebalance()

    def rejoin(self, event: Join, member: Member) -> None:
        """Delays the join of an existing member, updates its metadata, and starts a rebalance."""
        self.update(event, member)
        self.rebalance()

    def update(self, event: Join, member: Member) -> None:
        self.reply(member.join_token, JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self.put(
            replace(
                member,
                protocols=event.request.protocols,
                rebalance_timeout_ms=event.request.rebalance_timeout_ms,
                session_timeout_ms=event.request.session_timeout_ms,
                join_token=event.token,
            )
        )

    def remove(self, member_id: str) -> None:
        """Removes the member, refuses its delayed requests and cancels its session. Starts no rebalance."""
        group = self.group
        member = group.members[member_id]
        self.reply(member.join_token, JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, ""))
        self.reply(member.sync_token, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID))
        members = {name: other for name, other in group.members.items() if name != member_id}
        leader = next(iter(members), None) if group.leader == member_id else group.leader
        self.change(members=members, leader=leader)
        self.synced(member_id)
        self.effects.append(CancelTimer(SessionExpired(member_id)))

    def remove_and_rebalance(self, member_id: str) -> None:
        self.remove(member_id)
        if self.group.state is PREPARING:
            self.complete_if_all_joined()
        else:
            self.rebalance()

    def drop_pending(self, member_id: str) -> None:
        self.change(pending=self.group.pending - {member_id})
        if self.group.state is PREPARING:
            self.complete_if_all_joined()

    def synced(self, member_id: str) -> None:
        """Removes the member from those that still have to sync in this generation."""
        if member_id in self.group.pending_sync:
            self.change(pending_sync=self.group.pending_sync - {member_id})
            if not self.group.pending_sync:
                self.effects.append(CancelTimer(SyncDue()))

    def replace_static(self, old_id: str, new_id: str) -> Member:
        """Replaces the member id of a static member; delayed requests of the old id get FENCED_INSTANCE_ID."""
        group = self.group
        old = group.members[old_id]
        self.reply(old.join_token, JoinReply(ErrorCode.FENCED_INSTANCE_ID, old_id))
        self.reply(old.sync_token, SyncReply(ErrorCode.FENCED_INSTANCE_ID))
        member = replace(old, member_id=new_id, join_token=None, sync_token=None)
        pending_sync = group.pending_sync
        if old_id in pending_sync:
            pending_sync = pending_sync - {old_id} | {new_id}
        self.change(
            members={
                other.member_id: other
                for other in (member if name == old_id else other for name, other in group.members.items())
            },
            leader=new_id if group.leader == old_id else group.leader,
            pending_sync=pending_sync,
        )
        self.effects.append(CancelTimer(SessionExpired(old_id)))
        return member

    # --- rebalance -----------------------------------------------------------------------------------------------

    def rebalance(self) -> None:
        """Starts a rebalance unless one is being prepared; from Empty, with the initial delay."""
        group = self.group
        if group.state is PREPARING:
            self.complete_if_all_joined()
            return
        if group.state is COMPLETING:
            self.refuse_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        if group.pending_sync:
            self.change(pending_sync=frozenset())
            self.effects.append(CancelTimer(SyncDue()))
        if group.state is EMPTY:
            delay_ms = self.settings.initial_rebalance_delay_ms
            self.change(
                initial_delay_ms=delay_ms,
                initial_remaining_ms=max(group.rebalance_timeout_ms - delay_ms, 0),
                new_member_added=False,
            )
        else:
            delay_ms = group.rebalance_timeout_ms
            self.change(initial_delay_ms=0, initial_remaining_ms=None)
        self.enter(PREPARING)
        self.effects.append(StartTimer(RebalanceDue(), delay_ms))
        self.complete_if_all_joined()

    def refuse_syncs(self, error: ErrorCode) -> None:
        """Responds to all delayed syncs with the error and clears the assignments of this generation."""
        for member in self.group.members.values():
            if member.sync_token is not None:
                self.reply(member.sync_token, SyncReply(error))
                self.start_session(member)
        self.change(
            members={
                name: replace(member, assignment=b"", sync_token=None) for name, member in self.group.members.items()
            }
        )

    def complete_if_all_joined(self) -> None:
        group = self.group
        if group.initial_remaining_ms is None and not group.pending and group.joined == len(group.members):
            self.effects.append(CancelTimer(RebalanceDue()))
            self.complete()

    def complete(self) -> None:
        """Ends the join phase (rebalance timeout, or all members joined) and starts the next generation."""
        for member in tuple(self.group.members.values()):
            if member.join_token is None and member.instance_id is None:
                self.remove(member.member_id)
        group = self.group
        if not group.members:
            self.change(
                generation_id=group.generation_id + 1,
                protocol_name=None,
                initial_delay_ms=0,
                initial_remaining_ms=None,
                leader=None,
            )
            self.enter(EMPTY)
            self.effects.append(Persist(Purpose.EMPTIED, self.group))
            return
        waiting = next((member.member_id for member in group.members.values() if member.join_token is not None), None)
        if waiting is None:
            # Only static members, none of which rejoined: wait until their sessions expire or one returns.
            self.change(initial_delay_ms=0, initial_remaining_ms=None)
            # At most once a second, whatever rebalance timeout the members use.
            self.effects.append(StartTimer(RebalanceDue(), max(group.rebalance_timeout_ms, 1000)))
            return
        leader = group.leader
        if leader is None or group.members[leader].join_token is None:
            leader = waiting
        self.change(
            generation_id=group.generation_id + 1,
            protocol_name=select_protocol(group.members),
            leader=leader,
            initial_delay_ms=0,
            initial_remaining_ms=None,
            new_member_added=False,
            pending_sync=frozenset(group.members),
        )
        self.enter(COMPLETING)
        for member in self.group.members.values():
            self.reply(member.join_token, self.joined_reply(member.member_id))
            if member.is_new and not self.settings.first_session_at_join:
                self.effects.append(CancelTimer(SessionExpired(member.member_id)))
            else:
                self.start_session(member)
        self.change(
            members={
                name: replace(member, is_new=False, join_token=None) for name, member in self.group.members.items()
            }
        )
        if self.settings.removes_unsynced:
            self.effects.append(StartTimer(SyncDue(), self.group.rebalance_timeout_ms))


def select_protocol(members: Mapping[str, Member]) -> str:
    """Returns the protocol with the most votes: each member votes for its first one that all members support. A tie
    goes to the protocol that received a vote first.
    """
    candidates = common_protocols(members)
    votes: Counter[str] = Counter()
    for member in members.values():
        votes[next(name for name, _ in member.protocols if name in candidates)] += 1
    return votes.most_common(1)[0][0]


def common_protocols(members: Mapping[str, Member]) -> set[str]:
    sets = [{name for name, _ in member.protocols} for member in members.values()]
    return sets[0].intersection(*sets[1:]) if sets else set()


def fits(group: Group, event: Join) -> bool:
    """Returns whether the joining member shares a protocol with all members."""
    if group.state is EMPTY:
        return bool(event.request.protocol_type) and bool(event.request.protocols)
    if group.protocol_type != event.request.protocol_type:
        return False
    if not group.members:
        return bool(event.request.protocols)
    common = common_protocols(group.members)
    return any(name in common for name, _ in event.request.protocols)


def identity_error(
    group: Group, member_id: str, instance_id: str | None, *, ignores_absent_instances: bool = False
) -> ErrorCode:
    if instance_id is not None:
        current = group.member_of_instance(instance_id)
        if current is None and not ignores_absent_instances:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if current not in (None, member_id):
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def generation_error(step: Step, event: Sync | Heartbeat | Commit) -> ErrorCode:
    ignores = step.settings.ignores_absent_instances
    error = identity_error(step.group, event.member_id, event.instance_id, ignores_absent_instances=ignores)
    if error is ErrorCode.NONE and event.generation_id != step.group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def time_left(group: Group, timers: Iterable[Timer], settings: GroupSettings) -> dict[Timer, int]:
    """Returns those of the group's `timers` that would remove a member or a pending member id, each with its full
    timeout in ms. The join timer is left out when it removes no member, for example while only the initial rebalance is
    delayed.
    """
    found: dict[Timer, int] = {}
    for timer in timers:
        if isinstance(timer, SessionExpired):
            member = group.members.get(timer.member_id)
            if member is not None:
                found[timer] = settings.new_member_join_timeout_ms if member.is_new else member.session_timeout_ms
        elif isinstance(timer, PendingExpired):
            found[timer] = settings.new_member_join_timeout_ms
        elif isinstance(timer, SyncDue) or group.joined < len(group.members):
            found[timer] = group.rebalance_timeout_ms
    return found
