"""Runs the streams groups (KIP-1071): carries out what `streams.machine` decides.

The changes of a decision are appended to the log in one batch before they take effect. Internal topics that do not
exist are named in the response to a heartbeat: its handler creates them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...protocol.errors import ErrorCode
from . import records
from .classic.state import Group as ClassicGroup
from .registry import Entry, Registry, offset_tombstones
from .settings import WRITE_ERRORS
from .streams.events import (
    TIMERS,
    CancelTimer,
    Decision,
    Delete,
    DeleteReply,
    Effect,
    Event,
    Forget,
    Heartbeat,
    HeartbeatReply,
    Loaded,
    MemberLeave,
    Reply,
    Response,
    RevocationOverdue,
    SessionExpired,
    Settings,
    StartTimer,
    Timer,
)
from .streams.machine import decide, refusal
from .streams.moves import tombstones
from .streams.records import encode_all
from .streams.state import JOIN, Change, Group

RETRY_MS = 500
"""The delay after which a timer fires again whose changes could not be written."""
# The configs of a group, and the settings that they change.
_GROUP_CONFIGS = {
    "streams.session.timeout.ms": "session_timeout_ms",
    "streams.heartbeat.interval.ms": "heartbeat_interval_ms",
    "streams.assignment.interval.ms": "assignment_interval_ms",
    "streams.initial.rebalance.delay.ms": "initial_delay_ms",
    "streams.num.standby.replicas": "standby_replicas",
    "streams.task.offset.interval.ms": "task_offset_interval_ms",
    "streams.acceptable.recovery.lag": "acceptable_recovery_lag",
}
_TAGS = "streams.rack.aware.assignment.tags"


class StreamsGroups:
    """The streams groups in a registry."""

    def __init__(self, registry: Registry, configs: Callable[[str], Mapping[str, str]]) -> None:
        """`configs` returns the configs of a group by its id."""
        self._registry = registry
        self._configs = configs

    def settings_of(self, group_id: str) -> Settings:
        """Returns the settings of a group: the broker's, changed by the configs of the group."""
        settings, configs = self._registry.settings.streams, self._configs(group_id)
        changed: dict[str, Any] = {
            field: int(configs[name]) for name, field in _GROUP_CONFIGS.items() if name in configs
        }
        if _TAGS in configs:
            changed["rack_tags"] = tuple(tag.strip() for tag in configs[_TAGS].split(",") if tag.strip())
        return replace(settings, **changed) if changed else settings

    # --- requests ------------------------------------------------------------------------------------------------

    def heartbeat(self, group_id: str, event: Heartbeat | MemberLeave) -> HeartbeatReply:
        """StreamsGroupHeartbeat, checked by its handler. Converts an empty classic group if the member joins."""
        registry = self._registry
        entry = registry.entries.get(group_id)
        is_leaving = isinstance(event, MemberLeave)
        if entry is None:
            if is_leaving or event.epoch != JOIN:
                what = "Group" if is_leaving else "Streams group"
                return HeartbeatReply(ErrorCode.GROUP_ID_NOT_FOUND, f"{what} {group_id} not found.")
            group = Group(group_id, registry.settings.streams.first_epoch)
            reply = self._requested(registry.add(group), event)
            if not group.is_stored:  # it was refused
                registry.forget(group_id)
            return reply
        if isinstance(entry.group, Group):
            return self._requested(entry, event)
        if isinstance(entry.group, ClassicGroup) and entry.is_empty and not is_leaving and event.epoch == JOIN:
            return self._converted(entry, event)
        return HeartbeatReply(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")

    def _requested(self, entry: Entry, event: Heartbeat | MemberLeave) -> HeartbeatReply:
        reply = self.feed(entry, event)
        assert isinstance(reply, HeartbeatReply)
        return reply

    def _converted(self, entry: Entry, event: Heartbeat) -> HeartbeatReply:
        """Replaces a classic group without members in the same write as the changes of the heartbeat; its offsets
        stay.
        """
        classic, group_id = entry.group, entry.group.group_id
        entry.group = group = Group(group_id, self._registry.settings.streams.first_epoch)
        timers, entry.timers = entry.timers, {}
        reply = self.feed(entry, event, first=[records.group_tombstone(group_id)])
        assert isinstance(reply, HeartbeatReply)
        if not group.is_stored:  # it was refused
            entry.group, entry.timers = classic, timers
            return reply
        for timer in timers.values():
            timer.cancel()
        return reply

    def make_classic(self, entry: Entry) -> ErrorCode:
        """Removes a group without members, for a classic one in its place; its offsets stay."""
        assert isinstance(entry.group, Group)
        error = self._registry.write(entry, self._encoded(entry.group.group_id, tombstones(entry.group)))
        if error is not ErrorCode.NONE:
            return WRITE_ERRORS.get(error, error)
        entry.cancel_timers()
        entry.group = ClassicGroup(entry.group.group_id)
        return ErrorCode.NONE

    def delete(self, entry: Entry) -> ErrorCode:
        """DeleteGroups: removes a group without members, with its offsets."""
        reply = self.feed(entry, Delete())
        assert isinstance(reply, DeleteReply)
        return reply.error

    def delete_if_unused(self, entry: Entry) -> None:
        """Removes a group without members and offsets."""
        if entry.is_empty and entry.offsets.unused:
            self.feed(entry, Delete())

    # --- running the machine -------------------------------------------------------------------------------------

    def loaded(self, entry: Entry) -> None:
        """Starts the sessions of a group that was restored from the log."""
        self.feed(entry, Loaded())

    def fire(self, entry: Entry, timer: Timer) -> None:
        """Feeds a timer."""
        self.feed(entry, timer)

    def feed(self, entry: Entry, event: Event, first: Sequence[records.Record] = ()) -> Response | None:
        """Writes the changes that the event leads to, after the records `first`, and carries out its effects. After a
        failed write nothing but an error response follows.
        """
        group = entry.group
        assert isinstance(group, Group)
        decision = self._decide(group, event)
        written = self._encoded(group.group_id, decision.changes)
        if written and isinstance(event, Delete):
            written = [*offset_tombstones(entry), *written]
        error = self._registry.write(entry, [*first, *written] if written else [])
        if error is not ErrorCode.NONE:
            decision = refusal(event, WRITE_ERRORS.get(error, error))
            if isinstance(event, TIMERS):  # the member is still there, and has no other timer
                self._registry.start_timer(entry, event, RETRY_MS, self.fire)
        for change in decision.changes:
            group.apply(change)
        response: Response | None = None
        for effect in decision.effects:
            if isinstance(effect, Reply):
                response = effect.response
            else:
                self._perform(entry, effect)
        return response

    def _perform(self, entry: Entry, effect: Effect) -> None:
        if isinstance(effect, StartTimer):
            self._registry.start_timer(entry, effect.timer, effect.delay_ms, self.fire, keeps=True)
        elif isinstance(effect, CancelTimer):
            entry.cancel_timer(effect.timer)
        else:
            assert isinstance(effect, Forget)
            self._registry.forget(entry.group.group_id)

    def _decide(self, group: Group, event: Event) -> Decision:
        registry = self._registry
        settings = self.settings_of(group.group_id)
        return decide(group, event, now_ms=registry.clock.now_ms(), settings=settings, topics=registry.topics)

    def _encoded(self, group_id: str, changes: Sequence[Change]) -> list[records.Record]:
        return encode_all(group_id, changes, has_times=self._registry.settings.consumer_format.assignment_time)

    def time_left(self, entry: Entry) -> dict[Timer, int]:
        """Returns the timers of the members of a group, each with its full timeout in ms."""
        group = entry.group
        assert isinstance(group, Group)
        found: dict[Timer, int] = {}
        settings = self.settings_of(group.group_id)
        for timer in entry.timers:
            if isinstance(timer, SessionExpired):
                found[timer] = settings.session_timeout_ms
            elif isinstance(timer, RevocationOverdue) and timer.member_id in group.members:
                found[timer] = group.members[timer.member_id].info.rebalance_timeout_ms
        return found
