"""Moves a member from its current assignment towards its target, in steps that the member confirms (KIP-848).

The member first revokes partitions that its target lacks: it keeps its epoch until a heartbeat lists its partitions
without them. Then it moves to the epoch of the target and receives the partitions that no other member owns. The rest
follows as they become free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import TypeAlias

from ....protocol.named import NamedTuple
from ..common_state import MemberState, Partitions
from .state import UNASSIGNED, Assigned, Current

Owned: TypeAlias = Mapping[bytes, Set[int]]
"""The partitions that a member reports to own."""


class Goal(NamedTuple):
    """What to reconcile a member with. `subscribed` are its topics: it gets no others, whatever its target. `owned` is
    None if the heartbeat does not list partitions. `is_owned` returns whether a partition has an owner.
    """

    epoch: int
    target: Partitions
    subscribed: Set[bytes]
    owned: Owned | None
    is_owned: Callable[[bytes, int], bool]


def reconciled(current: Current, goal: Goal, *, subscription_changed: bool) -> Current | None:
    """Returns the next state of the member, or `current` if it has to wait. None: the member has to join again, because
    its stored state is unknown.
    """
    if current.state is MemberState.STABLE:
        if current.epoch != goal.epoch:
            return _advanced(current, goal, current.epoch)
        return _without_unsubscribed(current, goal) if subscription_changed else current
    if current.state is MemberState.UNREVOKED:
        if _owns_any(goal.owned, current.revoking):
            return _without_unsubscribed(current, goal) if subscription_changed else current
        return _advanced(current, goal, current.epoch)
    if current.state is MemberState.UNRELEASED:
        return _advanced(current, goal, current.epoch)
    if goal.owned is None or any(goal.owned.values()):
        return None
    return _advanced(current, goal, goal.epoch)


def _owns_any(owned: Owned | None, revoked: Assigned) -> bool:
    """Returns whether the member may still own one of these partitions."""
    if owned is None:
        return True
    return any(not indexes.isdisjoint(revoked.get(topic_id, ())) for topic_id, indexes in owned.items())


def _without_unsubscribed(current: Current, goal: Goal) -> Current:
    """Takes away partitions of topics that the member does not subscribe to any more, before there is a new target."""
    gone = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id not in goal.subscribed}
    if not gone:
        return current
    kept = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id not in gone}
    revoking = dict(current.revoking)
    for topic_id, epochs in gone.items():
        revoking[topic_id] = {**revoking.get(topic_id, {}), **epochs}
    if _owns_any(goal.owned, revoking):
        return Current(current.epoch, current.epoch, MemberState.UNREVOKED, kept, revoking)
    return replace(current, previous_epoch=current.epoch, assigned=kept)


def _advanced(current: Current, goal: Goal, epoch: int) -> Current:
    """`epoch` is the member's while it has to revoke partitions."""
    assigned: dict[bytes, Mapping[int, int]] = {}
    revoking: dict[bytes, Mapping[int, int]] = {}
    waits = False
    fresh: dict[bytes, list[int]] = {}
    for topic_id in {**goal.target, **current.assigned}:
        target = goal.target.get(topic_id, frozenset[int]()) if topic_id in goal.subscribed else frozenset[int]()
        before = current.assigned.get(topic_id, {})
        kept = {index: at for index, at in before.items() if index in target}
        if kept:
            assigned[topic_id] = kept
        if len(kept) < len(before):
            revoking[topic_id] = {index: at for index, at in before.items() if index not in target}
        own = current.revoking.get(topic_id, ())
        for index in target:
            if index in kept:
                continue
            # The member's own partitions are free for it, although it has just revoked them.
            if goal.is_owned(topic_id, index) and index not in own:
                waits = True
            else:
                fresh.setdefault(topic_id, []).append(index)
    if revoking and _owns_any(goal.owned, revoking):
        return Current(epoch, current.epoch, MemberState.UNREVOKED, assigned, revoking)
    for topic_id, indexes in fresh.items():
        assigned[topic_id] = {**assigned.get(topic_id, {}), **dict.fromkeys(indexes, goal.epoch)}
    state = MemberState.UNRELEASED if waits else MemberState.STABLE
    return Current(goal.epoch, current.epoch, state, assigned, UNASSIGNED)
