"""How long the members of a group have from a sign of life on: what a clock that is moved past it goes by.

It must not know the clock; the machine starts the same timers with each request.
"""

from __future__ import annotations

from collections.abc import Iterable

from .state import Group, GroupSettings, PendingExpired, SessionExpired, SyncDue, Timer


def time_left(group: Group, timers: Iterable[Timer], settings: GroupSettings) -> dict[Timer, int]:
    """Of these timers of a group those that would end a member, or an id that is to join, each with its whole time in
    ms. The time to join is not among them where it ends nobody, as when a first rebalance is only put off."""
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
