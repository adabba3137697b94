"""The classic group protocol as a table: (state, event) -> (state, effects).

Owns every decision about members, generations and rebalances. Uses no clock, socket, log or random id: they arrive with
the events and leave as effects. Behaves like Apache Kafka's coordinator (KIP-62, 134, 345, 394, 559, 814, KAFKA-12890),
except that Kafka drops a delayed request when the same member sends a second Join or Sync; here the first one gets
REBALANCE_IN_PROGRESS, so every delayed request has exactly one response.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from ....protocol.errors import ErrorCode
from ..common_events import CancelTimer, Forget, SessionExpired, StartTimer
from .moves import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    Step,
    fits,
    generation_error,
    identity_error,
    select_protocol,
)
from .state import (
    Commit,
    Delete,
    Effect,
    ErrorReply,
    Event,
    Group,
    GroupSettings,
    GroupState,
    Heartbeat,
    Join,
    JoinReply,
    Leave,
    LeaveReply,
    LeftMember,
    Loaded,
    Member,
    PendingExpired,
    Persist,
    Persisted,
    PersistFailed,
    Purpose,
    RebalanceDue,
    Response,
    Sync,
    SyncDue,
    SyncReply,
)

Transition: TypeAlias = Callable[[Step, Any], None]


def advance(group: Group, event: Event, *, now_ms: int, settings: GroupSettings) -> tuple[Group, tuple[Effect, ...]]:
    """Returns the group after `event`, and the effects to carry out, in order."""
    step = Step(group, now_ms, settings)
    TABLE[group.state, type(event)](step, event)
    return step.group, tuple(step.effects)


def _always(response: Response) -> Transition:
    """Returns a transition that only sends a response."""

    def respond(step: Step, event: Any) -> None:
        step.reply(event.token, response)

    return respond


# --- Join ------------------------------------------------------------------------------------------------------------


def _accepts(step: Step, event: Join) -> bool:
    """Checks for room (group.max.size) and a common protocol; sends the error response if a check fails."""
    group, limit = step.group, step.settings.max_size
    known = group.members.get(event.request.member_id)
    if group.state is PREPARING:
        room = (known is not None and known.join_token is not None) or group.joined < limit
    elif group.state is EMPTY:
        room = True
    else:
        room = known is not None or len(group.members) < limit
    if not room:
        step.reply(event.token, JoinReply(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
        if known is not None:
            step.remove(event.request.member_id)
        elif event.request.member_id in group.pending:
            step.effects.append(CancelTimer(PendingExpired(event.request.member_id)))
            step.change(pending=group.pending - {event.request.member_id})
        if group.state is PREPARING:
            step.complete_if_all_joined()
        return False
    if not fits(group, event):
        step.reply(event.token, JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, event.request.member_id))
        return False
    return True


def _newcomer(step: Step, event: Join) -> bool:
    """Handles a join without a member id, or with one handed out under KIP-394; False for an existing member."""
    if event.request.member_id in step.group.pending and event.request.instance_id is None:
        step.add(event, event.request.member_id)
        return True
    if event.request.member_id:
        return False
    if event.request.instance_id is not None:
        old_id = step.group.member_of_instance(event.request.instance_id)
        if old_id is not None:
            _static_return(step, event, old_id)
        else:
            step.add(event, event.new_member_id)
    elif event.request.requires_member_id:
        step.change(pending=step.group.pending | {event.new_member_id})
        step.effects.append(StartTimer(PendingExpired(event.new_member_id), event.request.session_timeout_ms))
        step.reply(event.token, JoinReply(ErrorCode.MEMBER_ID_REQUIRED, event.new_member_id))
    else:
        step.add(event, event.new_member_id)
    return True


def _static_return(step: Step, event: Join, old_id: str) -> None:
    """Handles a static member that returns without its member id (KIP-345).

    In a Stable group whose selected protocol stays the same there is no rebalance: the new member id is written, then
    the response carries the current generation.
    """
    before = step.group
    effects_before = len(step.effects)
    member = step.replace_static(old_id, event.new_member_id)
    if before.state is not STABLE:
        step.update(event, member)
        step.start_session(step.group.members[event.new_member_id])
        step.rebalance()
        return
    step.update(event, member)
    if select_protocol(step.group.members) != before.protocol_name:
        step.start_session(step.group.members[event.new_member_id])
        step.rebalance()
        return
    step.put(replace(step.group.members[event.new_member_id], join_token=None))
    leads = step.group.leader == event.new_member_id
    if event.request.may_skip_assignment:
        accepted = step.joined_reply(event.new_member_id, skip_assignment=leads)
    else:
        # Before KIP-814 a returning leader that learns it leads would compute an assignment that SyncGroup ignores: the
        # response names its old id as the leader.
        accepted = step.joined_reply(event.new_member_id)._replace(leader=before.leader or "", members=())
    write = Persist(Purpose.STATIC_RETURN, step.group, event.token, accepted)
    step.group = before
    del step.effects[effects_before:]
    step.effects.append(write)


def _known_member(step: Step, event: Join) -> Member | None:
    error = identity_error(step.group, event.request.member_id, event.request.instance_id)
    if error is not ErrorCode.NONE:
        step.reply(event.token, JoinReply(error, event.request.member_id))
        return None
    return step.group.members[event.request.member_id]


def _join_empty(step: Step, event: Join) -> None:
    if _accepts(step, event) and not _newcomer(step, event):
        step.reply(event.token, JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, event.request.member_id))


def _join_preparing(step: Step, event: Join) -> None:
    if _accepts(step, event) and not _newcomer(step, event) and (member := _known_member(step, event)):
        step.rejoin(event, member)


def _join_completing(step: Step, event: Join) -> None:
    if _accepts(step, event) and not _newcomer(step, event) and (member := _known_member(step, event)):
        if member.protocols == event.request.protocols:
            # The member may not have received the first response: send the same one again.
            step.reply(event.token, step.joined_reply(member.member_id))
        else:
            step.rejoin(event, member)


def _join_stable(step: Step, event: Join) -> None:
    if _accepts(step, event) and not _newcomer(step, event) and (member := _known_member(step, event)):
        # A leader rejoins because something outside the group changed, for example the partition count of a topic.
        if step.group.leader == member.member_id or member.protocols != event.request.protocols:
            step.rejoin(event, member)
        else:
            step.reply(event.token, step.joined_reply(member.member_id))


def _join_dead(step: Step, event: Join) -> None:
    step.reply(event.token, JoinReply(ErrorCode.COORDINATOR_NOT_AVAILABLE, event.request.member_id))


# --- Sync ------------------------------------------------------------------------------------------------------------


def _sync_accepted(step: Step, event: Sync) -> Member | None:
    group = step.group
    error = generation_error(step, event)
    if error is ErrorCode.NONE and (
        event.protocol_type not in (None, group.protocol_type) or event.protocol_name not in (None, group.protocol_name)
    ):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if error is not ErrorCode.NONE:
        step.reply(event.token, SyncReply(error))
        return None
    return group.members[event.member_id]


def _sync_preparing(step: Step, event: Sync) -> None:
    if _sync_accepted(step, event):
        step.reply(event.token, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))


def _sync_completing(step: Step, event: Sync) -> None:
    member = _sync_accepted(step, event)
    if member is None:
        return
    step.reply(member.sync_token, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
    step.put(replace(member, sync_token=event.token))
    step.synced(member.member_id)
    if step.group.leader == member.member_id:
        given = dict(event.assignments)
        members = {name: replace(other, assignment=given.get(name, b"")) for name, other in step.group.members.items()}
        written = replace(step.group, members=members, state=STABLE, state_changed_ms=step.now_ms)
        step.effects.append(Persist(Purpose.ASSIGNMENT, written))


def _sync_stable(step: Step, event: Sync) -> None:
    member = _sync_accepted(step, event)
    if member is not None:
        step.synced(member.member_id)
        group = step.group
        step.reply(event.token, SyncReply(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment))
        step.start_session(member)


# --- Heartbeat, Leave, Commit ----------------------------------------------------------------------------------------


def _heartbeat_as(healthy: ErrorCode) -> Transition:
    """Returns a transition that restarts the session of a valid member and responds with `healthy`."""

    def heartbeat(step: Step, event: Heartbeat) -> None:
        error = generation_error(step, event)
        if error is ErrorCode.NONE:
            step.start_session(step.group.members[event.member_id])
            error = healthy
        step.reply(event.token, ErrorReply(error))

    return heartbeat


def _heartbeat_completing(step: Step, event: Heartbeat) -> None:
    if step.settings.heartbeats_before_sync:
        _heartbeat_healthy(step, event)
        return
    error = generation_error(step, event)
    step.reply(event.token, ErrorReply(error or ErrorCode.REBALANCE_IN_PROGRESS))


def _leave(step: Step, event: Leave) -> None:
    left: list[LeftMember] = []
    for member_id, instance_id in event.members:
        error = ErrorCode.NONE
        if not member_id:
            # An administrator removes by instance id alone (KIP-345).
            current = step.group.member_of_instance(instance_id) if instance_id is not None else None
            if current is None:
                error = ErrorCode.UNKNOWN_MEMBER_ID
            else:
                step.remove_and_rebalance(current)
        elif member_id in step.group.pending:
            step.effects.append(CancelTimer(PendingExpired(member_id)))
            step.drop_pending(member_id)
        else:
            ignores = step.settings.ignores_absent_instances
            error = identity_error(step.group, member_id, instance_id, ignores_absent_instances=ignores)
            if error is ErrorCode.NONE:
                step.remove_and_rebalance(member_id)
        left.append(LeftMember(member_id, instance_id, error))
    step.reply(event.token, LeaveReply(ErrorCode.NONE, tuple(left)))


def _commit_error(step: Step, event: Commit) -> ErrorCode:
    group, checks = step.group, step.settings.member_checks
    is_plain = event.generation_id < 0 and group.state is EMPTY
    if step.settings.ignores_absent_instances:
        current = None if event.instance_id is None else group.member_of_instance(event.instance_id)
        if current not in (None, event.member_id):
            return ErrorCode.FENCED_INSTANCE_ID
        if event.transactional:
            return _named_error(group, event)
        if is_plain:
            return ErrorCode.NONE
        if checks == "rebalance_first" and group.state is COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return generation_error(step, event)
    if is_plain and (checks == "unless_empty" or not (event.member_id or event.instance_id is not None)):
        return ErrorCode.NONE
    if event.generation_id >= 0 or event.member_id or event.instance_id is not None:
        return generation_error(step, event)
    # Old transactional producers name no member; all others must be members while there are members.
    return ErrorCode.NONE if event.transactional else ErrorCode.UNKNOWN_MEMBER_ID


def _named_error(group: Group, event: Commit) -> ErrorCode:
    """Checks the member id and the generation of a transactional commit, each if present (KIP-447 in 2.5)."""
    if event.member_id and event.member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if event.generation_id >= 0 and event.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.NONE


def _commit(step: Step, event: Commit) -> None:
    error = _commit_error(step, event)
    if error is ErrorCode.NONE and event.member_id in step.group.members and not event.transactional:
        step.start_session(step.group.members[event.member_id])
    step.reply(event.token, ErrorReply(error))


def _commit_completing(step: Step, event: Commit) -> None:
    error = _commit_error(step, event)
    if error is ErrorCode.NONE and not event.transactional:
        error = ErrorCode.REBALANCE_IN_PROGRESS
    step.reply(event.token, ErrorReply(error))


# --- Delete, Loaded --------------------------------------------------------------------------------------------------


def _delete_empty(step: Step, event: Delete) -> None:
    if event.only_if_unused and step.group.pending:
        return
    step.effects.append(Persist(Purpose.DELETION, step.group, event.token))


def _loaded_stable(step: Step, event: Loaded) -> None:
    for member in step.group.members.values():
        step.start_session(member)
    if event.rebalances or len(step.group.members) > step.settings.max_size:
        step.rebalance()


# --- timers ----------------------------------------------------------------------------------------------------------


def _session_expired(step: Step, event: SessionExpired) -> None:
    member = step.group.members.get(event.member_id)
    if member is None:
        return
    waits = member.join_token is not None or member.sync_token is not None
    if waits and not member.is_new:
        return  # a delayed request proves that the member is alive; its session restarts with the response
    step.remove_and_rebalance(event.member_id)


def _pending_expired(step: Step, event: PendingExpired) -> None:
    if event.member_id in step.group.pending:
        step.drop_pending(event.member_id)


def _rebalance_due(step: Step, event: RebalanceDue) -> None:
    group = step.group
    if group.initial_remaining_ms and group.new_member_added:
        delay_ms = min(step.settings.initial_rebalance_delay_ms, group.initial_remaining_ms)
        step.change(
            new_member_added=False,
            initial_delay_ms=delay_ms,
            initial_remaining_ms=max(group.initial_remaining_ms - group.initial_delay_ms, 0),
        )
        step.effects.append(StartTimer(RebalanceDue(), delay_ms))
    else:
        step.complete()


def _sync_due(step: Step, event: SyncDue) -> None:
    late = [name for name in step.group.members if name in step.group.pending_sync]
    for member_id in late:
        step.remove(member_id)
    if late:
        step.rebalance()


# --- outcomes of writes ----------------------------------------------------------------------------------------------


def _persisted_completing(step: Step, event: Persisted) -> None:
    write = event.write
    if write.purpose is not Purpose.ASSIGNMENT or write.group.generation_id != step.group.generation_id:
        _superseded_write(step, event)
        return
    step.enter(STABLE)
    members = {}
    for name, member in step.group.members.items():
        assignment = write.group.members[name].assignment if name in write.group.members else b""
        if member.sync_token is not None:
            group = step.group
            step.reply(
                member.sync_token, SyncReply(ErrorCode.NONE, group.protocol_type, group.protocol_name, assignment)
            )
            step.start_session(member)
        members[name] = replace(member, assignment=assignment, sync_token=None)
    step.change(members=members)


def _persist_failed_completing(step: Step, event: PersistFailed) -> None:
    write = event.write
    if write.purpose is not Purpose.ASSIGNMENT or write.group.generation_id != step.group.generation_id:
        _superseded_write(step, event)
        return
    step.refuse_syncs(event.error)
    step.rebalance()


def _persisted_stable(step: Step, event: Persisted) -> None:
    write = event.write
    if write.purpose is not Purpose.STATIC_RETURN or write.group.generation_id != step.group.generation_id:
        _superseded_write(step, event)
        return
    for name in step.group.members:
        if name not in write.group.members:
            step.effects.append(CancelTimer(SessionExpired(name)))
    for name, member in write.group.members.items():
        if name not in step.group.members:
            step.start_session(member)
    step.group = write.group
    step.reply(write.token, write.accepted)


def _persist_failed_stable(step: Step, event: PersistFailed) -> None:
    write, group = event.write, step.group
    if write.purpose is not Purpose.STATIC_RETURN:
        _superseded_write(step, event)
        return
    # Nothing was adopted before the write, so there is nothing to undo: the old id stays the member.
    step.reply(
        write.token,
        JoinReply(
            event.error, "", group.generation_id, group.protocol_type, group.protocol_name, leader=group.leader or ""
        ),
    )


def _persisted_empty(step: Step, event: Persisted) -> None:
    if event.write.purpose is not Purpose.DELETION:
        _superseded_write(step, event)
        return
    for member_id in step.group.pending:
        step.effects.append(CancelTimer(PendingExpired(member_id)))
    step.change(pending=frozenset())
    step.enter(DEAD)
    step.reply(event.write.token, ErrorReply(ErrorCode.NONE))
    step.effects.append(Forget())


def _persist_failed_empty(step: Step, event: PersistFailed) -> None:
    if event.write.purpose is not Purpose.DELETION:
        _superseded_write(step, event)
        return
    step.reply(event.write.token, ErrorReply(event.error))


def _superseded_write(step: Step, event: Persisted | PersistFailed) -> None:
    """Ends a write whose group changed in the meantime: the waiting request gets a retriable error."""
    write = event.write
    if write.purpose is Purpose.STATIC_RETURN:
        step.reply(write.token, JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, ""))
    elif write.purpose is Purpose.DELETION:
        step.reply(write.token, ErrorReply(ErrorCode.NON_EMPTY_GROUP))


def _nothing(step: Step, event: Event) -> None:
    """Ignores an event that has no meaning in this state."""


_heartbeat_healthy = _heartbeat_as(ErrorCode.NONE)
_sync_unknown = _always(SyncReply(ErrorCode.UNKNOWN_MEMBER_ID))
_unknown = _always(ErrorReply(ErrorCode.UNKNOWN_MEMBER_ID))
_rebalancing = _heartbeat_as(ErrorCode.REBALANCE_IN_PROGRESS)
_delete_busy = _always(ErrorReply(ErrorCode.NON_EMPTY_GROUP))
_sync_dead = _always(SyncReply(ErrorCode.COORDINATOR_NOT_AVAILABLE))
_dead = _always(ErrorReply(ErrorCode.COORDINATOR_NOT_AVAILABLE))
_leave_dead = _always(LeaveReply(ErrorCode.COORDINATOR_NOT_AVAILABLE))
_delete_dead = _always(ErrorReply(ErrorCode.GROUP_ID_NOT_FOUND))

_STATES = (EMPTY, PREPARING, COMPLETING, STABLE, DEAD)
# The transitions of each event, in the order of the states above.
_ROWS: dict[type, tuple[Transition, Transition, Transition, Transition, Transition]] = {
    # requests
    Join: (_join_empty, _join_preparing, _join_completing, _join_stable, _join_dead),
    Sync: (_sync_unknown, _sync_preparing, _sync_completing, _sync_stable, _sync_dead),
    Heartbeat: (_unknown, _rebalancing, _heartbeat_completing, _heartbeat_healthy, _dead),
    Leave: (_leave, _leave, _leave, _leave, _leave_dead),
    Commit: (_commit, _commit, _commit_completing, _commit, _dead),
    Delete: (_delete_empty, _delete_busy, _delete_busy, _delete_busy, _delete_dead),
    Loaded: (_nothing, _nothing, _nothing, _loaded_stable, _nothing),
    # timers
    SessionExpired: (_nothing, _session_expired, _session_expired, _session_expired, _nothing),
    PendingExpired: (_pending_expired, _pending_expired, _pending_expired, _pending_expired, _nothing),
    RebalanceDue: (_nothing, _rebalance_due, _nothing, _nothing, _nothing),
    SyncDue: (_nothing, _nothing, _sync_due, _sync_due, _nothing),
    # outcomes of writes
    Persisted: (_persisted_empty, _superseded_write, _persisted_completing, _persisted_stable, _superseded_write),
    PersistFailed: (
        _persist_failed_empty,
        _superseded_write,
        _persist_failed_completing,
        _persist_failed_stable,
        _superseded_write,
    ),
}
TABLE: dict[tuple[GroupState, type], Transition] = {
    (state, event): transition for event, row in _ROWS.items() for state, transition in zip(_STATES, row, strict=True)
}
