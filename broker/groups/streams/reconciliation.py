"""Moves a member from its current tasks towards its target, in steps that the member confirms (KIP-1071).

The member first revokes tasks that its target lacks: it keeps its epoch until a heartbeat lists its tasks without them.
Then it moves to the epoch of the target and receives the tasks that are free: an active task that no member has, and
any task that no other role on the same process holds, because roles share a state directory. The rest follows as tasks
become free. Rules: Kafka 4.3's and 4.4's `CurrentAssignmentBuilder`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ....protocol.named import NamedTuple
from ..common_state import MemberState
from .state import HOLDS_NOTHING, Current, Group, HeldTasks, Member, Task, each, grouped
from .values import TasksTuple

ROLES = ("standby", "warmup")


class Goal(NamedTuple):
    """What to reconcile a member with. `owned` is None if the heartbeat does not list tasks. With `changes_roles`, as
    since 4.4, a task changes its role on a member without being revoked between.
    """

    epoch: int
    target: TasksTuple
    owned: TasksTuple | None
    holders: Group
    changes_roles: bool


def reconciled(member: Member, goal: Goal) -> Current | None:
    """Returns the next state of the member, or its current one if it has to wait. None: the member has to join again,
    because its stored state is unknown.
    """
    current = member.current
    if current.state is MemberState.STABLE:
        return current if current.epoch == goal.epoch else _advanced(member, goal, current.epoch)
    if current.state is MemberState.UNREVOKED:
        if _has_any(goal.owned, current.revoking):
            return current
        return _advanced(member, goal, current.epoch + 1)
    if current.state is MemberState.UNRELEASED:
        return _advanced(member, goal, current.epoch)
    if goal.owned is None or not goal.owned.is_empty:
        return None
    return _advanced(member, goal, goal.epoch)


def _has_any(owned: TasksTuple | None, revoked: HeldTasks) -> bool:
    """Returns whether the member may still have one of these tasks, in the same role."""
    if owned is None:
        return True
    return any(
        not partitions.isdisjoint(lost.get(id, ()))
        for mine, lost in zip(owned, revoked.tasks, strict=True)
        for id, partitions in mine.items()
    )


@dataclass(slots=True)
class _Parts:
    """The tasks of one role: those that stay, those to revoke, and those to receive."""

    before: frozenset[Task]
    target: frozenset[Task]
    kept: set[Task]
    revoking: set[Task]
    pending: set[Task]


def _parts(before: Iterable[Task], target: Iterable[Task]) -> _Parts:
    old, new = frozenset(before), frozenset(target)
    return _Parts(old, new, set(old & new), set(old - new), set(new - old))


def _advanced(member: Member, goal: Goal, epoch: int) -> Current:
    """`epoch` is the member's while it has to revoke tasks."""
    current = member.current
    epochs = {(id, index): at for id, found in current.assigned.active.items() for index, at in found.items()}
    active = _parts(epochs, each(goal.target.active))
    standby = _parts(each(current.assigned.standby), each(goal.target.standby))
    warmup = _parts(each(current.assigned.warmup), each(goal.target.warmup))
    waits = _take_unreleased(member, goal, active, standby, warmup)
    if goal.changes_roles:
        _change_roles(goal, active, standby, warmup)
    revoking = _held({task: epochs[task] for task in active.revoking}, standby.revoking, warmup.revoking)
    if revoking != HOLDS_NOTHING and _has_any(goal.owned, revoking):
        kept = _held({task: epochs[task] for task in active.kept}, standby.kept, warmup.kept)
        return Current(epoch, current.epoch, MemberState.UNREVOKED, kept, revoking)
    held = {task: epochs[task] for task in active.kept} | dict.fromkeys(active.pending, goal.epoch)
    assigned = _held(held, standby.kept | standby.pending, warmup.kept | warmup.pending)
    state = MemberState.UNRELEASED if waits else MemberState.STABLE
    return Current(goal.epoch, current.epoch, state, assigned)


def _held(active: dict[Task, int], standby: Iterable[Task], warmup: Iterable[Task]) -> HeldTasks:
    """`active` has the epochs at which the tasks were assigned."""
    found: dict[str, dict[int, int]] = {}
    for (id, partition), epoch in active.items():
        found.setdefault(id, {})[partition] = epoch
    return HeldTasks(found, grouped(standby), grouped(warmup))


def _take_unreleased(member: Member, goal: Goal, active: _Parts, standby: _Parts, warmup: _Parts) -> bool:
    """Takes pending tasks away that are not free; returns whether there are any."""
    process, holders = member.info.process_id, goal.holders
    own = {"active": active.before, "standby": standby.before, "warmup": warmup.before}
    if not goal.changes_roles:
        own = dict.fromkeys(own, frozenset[Task]())

    def runs(task: Task) -> bool:
        return holders.active.get(task) == process

    def has(kind: str, task: Task) -> bool:
        """Whether the process has the task in this role, but not because of this member."""
        return process in holders.processes(kind, task) and task not in own[kind]

    def blocked_standby(task: Task) -> bool:
        is_running = runs(task) and task not in own["active"]
        return is_running or process in holders.processes("standby", task) or has("warmup", task)

    def blocked_warmup(task: Task) -> bool:
        return runs(task) or has("standby", task) or process in holders.processes("warmup", task)

    taken = {task for task in active.pending if task in holders.active or any(has(kind, task) for kind in ROLES)}
    taken_standby = {task for task in standby.pending if blocked_standby(task)}
    taken_warmup = {task for task in warmup.pending if blocked_warmup(task)}
    active.pending -= taken
    standby.pending -= taken_standby
    warmup.pending -= taken_warmup
    return bool(taken or taken_standby or taken_warmup)


def _change_roles(goal: Goal, active: _Parts, standby: _Parts, warmup: _Parts) -> None:
    """Lets tasks change their role on the member without being revoked between."""
    demoted = active.before & standby.pending
    standby.kept |= demoted
    standby.pending -= demoted
    for outgoing, incoming in ((standby, warmup), (warmup, standby)):
        converted = outgoing.before & incoming.pending
        incoming.kept |= converted
        incoming.pending -= converted
        outgoing.revoking -= converted
    for replica in (standby, warmup):
        replica.revoking -= replica.before & active.target
    lost = _held(dict.fromkeys(active.revoking, 0), standby.revoking, warmup.revoking)
    is_revoking = lost != HOLDS_NOTHING and _has_any(goal.owned, lost)
    # The replica stays until the active task is given, so that its state is not closed meanwhile.
    for replica in (standby, warmup):
        promoted = replica.before & active.target
        replica.kept |= promoted if is_revoking else promoted - active.pending
