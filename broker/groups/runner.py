"""The base of the classes that run groups whose assignments the broker computes: consumer, share and streams groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from ...protocol.errors import ErrorCode
from ..errors import Refused
from .classic.state import Group as ClassicGroup
from .common_events import (
    CancelTimer,
    Decision,
    Delete,
    Forget,
    HeartbeatReply,
    Reply,
    SessionExpired,
    StartTimer,
    Timer,
)
from .common_machine import Replies, refused
from .common_state import JOIN
from .record_form import Forms, Record
from .registry import Entry, Registry, group_tombstones, offset_tombstones
from .settings import WRITE_ERRORS

RETRY_MS = 500
"""The delay after which a timer fires again whose changes could not be written; Kafka's constant."""


class GroupRunner:
    """Carries out what the machine of one kind of groups decides, for the groups in a registry. The changes of a
    decision are appended to the log in one batch before they take effect.
    """

    group_class: ClassVar[type[Any]]
    forms: ClassVar[Forms]
    decide: ClassVar[Callable[..., Decision[Any, Any]]]
    """Returns the decision of the machine on an event."""
    replies: ClassVar[Replies]
    reply_class: ClassVar[Callable[..., Any]] = HeartbeatReply

    def __init__(self, registry: Registry, configs: Callable[[str], Mapping[str, str]]) -> None:
        """`configs` returns the configs of a group by its id."""
        self._registry = registry
        self._configs = configs

    def settings_of(self, group_id: str) -> Any:
        """Returns the settings of a group: the broker's, changed by the configs of the group."""
        return self._registry.settings.of_group(self.group_class.kind, self._configs(group_id))

    def heartbeat(self, group_id: str, event: Any) -> Any:
        """A heartbeat, checked by its handler. A member that joins makes the group, or converts a classic one."""
        registry, kind, joins = self._registry, self.group_class.kind, event.epoch == JOIN
        entry = registry.entries.get(group_id)
        if entry is not None and isinstance(entry.group, self.group_class):
            return self.feed(entry, event)
        if entry is None and joins:
            entry = registry.add(self._new_group(group_id))
            reply = self.feed(entry, event)
            if entry.is_empty:  # it was refused
                registry.forget(group_id)
            return reply
        if entry is None:
            text = f"{'Group' if event.epoch < JOIN else f'{kind.capitalize()} group'} {group_id} not found."
            return self.reply_class(ErrorCode.GROUP_ID_NOT_FOUND, text)
        try:
            changes = self._converted(entry, entry.group) if joins and isinstance(entry.group, ClassicGroup) else None
        except Refused as error:
            return self.reply_class(error.code, error.message)
        if changes is None:
            return self.reply_class(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {kind} group.")
        return self._convert(entry, changes, event)

    def _convert(self, entry: Entry, changes: Sequence[Any], event: Any) -> Any:
        """Replaces a classic group in the same write as the changes of a heartbeat. Its offsets stay."""
        group_id, settings = entry.group.group_id, self.settings_of(entry.group.group_id)
        group = self._new_group(group_id)
        for change in changes:
            group.apply(change)
        decision = self._decision(group, event)
        if not decision.changes:
            return next(effect.response for effect in decision.effects if isinstance(effect, Reply))
        written = [*group_tombstones(entry, self._registry.settings), *self._encoded(group_id, changes)]
        error = self._registry.write(entry, [*written, *self._encoded(group_id, decision.changes)])
        if error is not ErrorCode.NONE:
            return self.reply_class(WRITE_ERRORS.get(error, error))
        self._registry.dismiss(entry, ErrorCode.REBALANCE_IN_PROGRESS)
        entry.group = group
        sessions = (
            StartTimer(SessionExpired(member.member_id), self._session_ms(settings, member))
            for member in group.members.values()
        )
        return self._carry_out(entry, Decision(decision.changes, (*sessions, *decision.effects)))

    def feed(self, entry: Entry, event: Any) -> Any:
        """Writes the changes that the event leads to, carries out its effects, and returns the response. After a failed
        write nothing but an error response follows.
        """
        return self._carry_out(entry, self._written(entry, event))

    def time_left(self, entry: Entry) -> Mapping[Timer, int]:
        """Returns the timers of the members of a group, each with its full timeout in ms."""
        group: Any = entry.group
        settings = self.settings_of(group.group_id)
        found: dict[Timer, int] = {}
        for timer in entry.timers:
            member = group.members.get(getattr(timer, "member_id", None))
            if member is not None:
                is_session = isinstance(timer, SessionExpired)
                found[timer] = self._session_ms(settings, member) if is_session else member.info.rebalance_timeout_ms
        return found

    def make_classic(self, entry: Entry) -> ErrorCode:
        """Removes a group without members, for a classic one in its place; its offsets stay."""
        group: Any = entry.group
        group_id = entry.group.group_id
        error = self._registry.write(entry, self._encoded(group_id, group.tombstones()))
        if error is not ErrorCode.NONE:
            return WRITE_ERRORS.get(error, error)
        entry.cancel_timers()
        entry.group = ClassicGroup(group_id)
        return ErrorCode.NONE

    def _new_group(self, group_id: str) -> Any:
        return self.group_class(group_id, self.settings_of(group_id).first_epoch)

    def _encoded(self, group_id: str, changes: Iterable[Any]) -> list[Record]:
        return self.forms.encode_all(group_id, changes, self._registry.settings.consumer_format)

    def _decision(self, group: Any, event: Any) -> Decision[Any, Any]:
        registry, settings = self._registry, self.settings_of(group.group_id)
        return self.decide(group, event, now_ms=registry.clock.now_ms(), settings=settings, topics=registry.topics)

    def _written(self, entry: Entry, event: Any) -> Decision[Any, Any]:
        """Writes the changes of the decision on an event. Returns it; after a failed write the error response alone."""
        decision = self._decision(entry.group, event)
        written = self._encoded(entry.group.group_id, decision.changes)
        if written and isinstance(event, Delete):
            written = [*offset_tombstones(entry), *written]
        for effect in decision.effects:
            written += self._records_of(effect)
        error = self._registry.write(entry, written)
        if error is ErrorCode.NONE:
            return decision
        if isinstance(event, Timer):  # the member is still there, and has no other timer
            self._registry.start_timer(entry, event, RETRY_MS, self.feed)
        return refused(self.replies, event, WRITE_ERRORS.get(error, error))

    def _carry_out(self, entry: Entry, decision: Decision[Any, Any]) -> Any:
        group: Any = entry.group
        for change in decision.changes:
            group.apply(change)
        response: Any = None
        for effect in decision.effects:
            if isinstance(effect, Reply):
                response = effect.response
            elif isinstance(effect, StartTimer):
                if not (effect.if_absent and effect.timer in entry.timers):
                    self._registry.start_timer(entry, effect.timer, effect.delay_ms, self.feed, keeps=True)
            elif isinstance(effect, CancelTimer):
                entry.cancel_timer(effect.timer)
            elif isinstance(effect, Forget):
                self._registry.forget(group.group_id)
            else:
                self._perform(entry, effect)
        return response

    # --- where the kinds of groups differ ------------------------------------------------------------------------

    def _session_ms(self, settings: Any, member: Any) -> int:
        return settings.session_timeout_ms

    def _records_of(self, effect: Any) -> list[Record]:
        """Returns the records of an effect that belongs to the same write as the changes."""
        return []

    def _perform(self, entry: Entry, effect: Any) -> None:
        """Carries out an effect that only groups of this kind have."""
        raise AssertionError(effect)

    def _converted(self, entry: Entry, classic: ClassicGroup) -> list[Any] | None:
        """Returns the changes that make a group of this kind with the members of a classic group, None if it cannot
        become one. Raises Refused.
        """
        return None
