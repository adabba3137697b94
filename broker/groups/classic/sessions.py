"""Session and join timeouts of group members, for a clock that is advanced past them.

Uses no clock; the machine starts the same timers with each request.
"""

from __future__ import annotations

from collections.abc import Iterable

from .state import Group, GroupSettings, PendingExpired, SessionExpired, SyncDue, Timer


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
