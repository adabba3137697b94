"""Runs the groups of the consumer protocol (KIP-848): carries out what `consumer.machine` decides.

The changes of a decision are appended to the log in one batch before they take effect. All methods run on the event
loop and return without waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from ...protocol.errors import ErrorCode
from ..errors import Refused
from ..patterns import Pattern
from . import records
from .classic.state import Group as ClassicGroup
from .classic.state import JoinReply, SyncReply
from .consumer.conversion import upgraded
from .consumer.events import (
    TIMERS,
    BecomeClassic,
    Caller,
    CancelTimer,
    Decision,
    Delete,
    Effect,
    Event,
    Forget,
    HeartbeatReply,
    HeartbeatRequest,
    Loaded,
    MemberHeartbeat,
    MemberLeave,
    RegexesResolved,
    Reply,
    Resolve,
    SessionExpired,
    Settings,
    StartTimer,
    Timer,
)
from .consumer.machine import decide, refused
from .consumer.records import Format, encode_all
from .consumer.removal import tombstones
from .consumer.state import LEAVE, STATIC_LEAVE, Group, Resolved
from .registry import Entry, Registry, offset_tombstones
from .settings import WRITE_ERRORS

MatchTopics: TypeAlias = Callable[[str, Caller], bool]
"""Whether a caller may describe a topic."""
RETRY_MS = 500
"""The delay after which a timer fires again whose changes could not be written; Kafka's constant."""
NAMES_AT_ONCE = 1000
"""Topic names that are matched before the event loop runs again."""


class ConsumerGroups:
    """The groups of the consumer protocol in a registry."""

    def __init__(
        self,
        registry: Registry,
        *,
        new_id: Callable[[], str],
        configs: Callable[[str], Mapping[str, str]],
        may_describe: MatchTopics,
        become_classic: Callable[[Entry, ClassicGroup, bool], None],
    ) -> None:
        """`configs` returns the configs of a group by its id; `become_classic` replaces the group of an entry."""
        self._registry = registry
        self._new_id = new_id
        self._configs = configs
        self._may_describe = may_describe
        self._become_classic = become_classic

    def settings_of(self, group_id: str) -> Settings:
        """Returns the settings of a group: the broker's, changed by the configs of the group."""
        return self._registry.settings.of_consumer_group(self._configs(group_id))

    @property
    def _format(self) -> Format:
        return self._registry.settings.consumer_format

    # --- requests ------------------------------------------------------------------------------------------------

    def heartbeat(self, group_id: str, request: HeartbeatRequest) -> HeartbeatReply:
        """ConsumerGroupHeartbeat, checked by its handler. Converts an empty or a classic group if the member joins."""
        registry = self._registry
        entry = registry.entries.get(group_id)
        if request.epoch in (LEAVE, STATIC_LEAVE):
            if entry is None or not isinstance(entry.group, Group):
                return _not_found(group_id, entry)
            leave = MemberLeave(registry.token(), request.member_id, request.instance_id, request.epoch)
            return self.request(entry, leave)
        event = MemberHeartbeat(registry.token(), self._new_id(), request)
        if entry is not None and isinstance(entry.group, Group):
            return self.request(entry, event)
        if request.epoch != 0 or not (entry is None or isinstance(entry.group, ClassicGroup)):
            if entry is None:
                return HeartbeatReply(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
            return _not_found(group_id, entry)
        if entry is None:
            entry = registry.add(self._new_group(group_id))
            reply = self.request(entry, event)
            if entry.is_empty and registry.entries.get(group_id) is entry:  # it was refused
                registry.forget(group_id)
            return reply
        assert isinstance(entry.group, ClassicGroup)
        return self._upgrade(entry, entry.group, event)

    def _new_group(self, group_id: str) -> Group:
        return Group(group_id, self._registry.settings.consumer.first_epoch)

    def _upgrade(self, entry: Entry, classic: ClassicGroup, event: MemberHeartbeat) -> HeartbeatReply:
        """Replaces a classic group in the same write as the changes of the heartbeat. A classic group without members
        is dropped; its offsets stay.
        """
        settings = self.settings_of(classic.group_id)
        group = self._new_group(classic.group_id)
        first: list[records.Record] = []
        try:
            if not entry.is_empty:
                changes = upgraded(classic, settings, self._registry.topics)
                for change in changes:
                    group.apply(change)
                first = encode_all(classic.group_id, changes, self._format)
        except Refused as error:
            return HeartbeatReply(error.code, error.message)
        decision = self._decide(group, event)
        if not decision.changes:
            (reply,) = (effect.response for effect in decision.effects if isinstance(effect, Reply))
            assert isinstance(reply, HeartbeatReply)
            return reply
        if classic.generation_id > 0 or not self._registry.settings.old_group_coordinator:
            first.insert(0, records.group_tombstone(classic.group_id))
        error = self._registry.write(entry, first + encode_all(classic.group_id, decision.changes, self._format))
        if error is not ErrorCode.NONE:
            return HeartbeatReply(WRITE_ERRORS.get(error, error))
        self.dismiss_classic(entry, ErrorCode.REBALANCE_IN_PROGRESS)
        entry.group = group
        for member in group.members.values():
            if member.info.classic is not None:
                session = SessionExpired(member.member_id)
                self._perform(entry, StartTimer(session, member.info.classic.session_timeout_ms))
        self._carry_out(entry, decision)
        return self._registry.response(event.token)

    def dismiss_classic(self, entry: Entry, error: ErrorCode) -> None:
        """Stops the timers of a group and responds to delayed requests of a classic one with the error."""
        entry.cancel_timers()
        group = entry.group
        for member in group.members.values() if isinstance(group, ClassicGroup) else ():
            if member.join_token is not None:
                self._registry.respond(member.join_token, JoinReply(error, member.member_id))
            if member.sync_token is not None:
                self._registry.respond(member.sync_token, SyncReply(error))

    def make_classic(self, entry: Entry) -> ErrorCode:
        """Removes a group without members, for a classic one in its place; its offsets stay."""
        assert isinstance(entry.group, Group)
        written = encode_all(entry.group.group_id, tombstones(entry.group), self._format)
        error = self._registry.write(entry, written)
        if error is not ErrorCode.NONE:
            return WRITE_ERRORS.get(error, error)
        entry.cancel_timers()
        entry.group = ClassicGroup(entry.group.group_id)
        return ErrorCode.NONE

    def new_id(self) -> str:
        """Returns an id for a member that has none."""
        return self._new_id()

    def request(self, entry: Entry, event: Event) -> Any:
        """Feeds an event of a request, and returns its response."""
        self.feed(entry, event)
        return self._registry.response(getattr(event, "token"))  # noqa: B009 - only events of requests have one

    def delete_if_unused(self, entry: Entry) -> None:
        """Removes a group without members and offsets."""
        if entry.is_empty and entry.offsets.unused:
            self.feed(entry, Delete(None))

    # --- running the machine -------------------------------------------------------------------------------------

    def loaded(self, entry: Entry) -> None:
        """Starts the sessions of a group that was restored from the log."""
        self.feed(entry, Loaded())

    def _decide(self, group: Group, event: Event) -> Decision:
        registry = self._registry
        return decide(
            group,
            event,
            now_ms=registry.clock.now_ms(),
            settings=self.settings_of(group.group_id),
            topics=registry.topics,
        )

    def feed(self, entry: Entry, event: Event) -> None:
        """Writes the changes that the event leads to, and carries out its effects. After a failed write nothing but an
        error response follows.
        """
        group = entry.group
        assert isinstance(group, Group)
        decision = self._decide(group, event)
        written = encode_all(group.group_id, decision.changes, self._format)
        if isinstance(event, Delete):
            written = [*offset_tombstones(entry), *written] if written else written
        for effect in decision.effects:
            if isinstance(effect, BecomeClassic):
                written.append(records.group_record(effect.group))
        error = self._registry.write(entry, written)
        if error is not ErrorCode.NONE:
            decision = refused(event, WRITE_ERRORS.get(error, error))
            if isinstance(event, TIMERS):  # the member is still there, and has no other timer
                self._registry.start_timer(entry, event, RETRY_MS, self.feed)
        self._carry_out(entry, decision)

    def _carry_out(self, entry: Entry, decision: Decision) -> None:
        group = entry.group
        assert isinstance(group, Group)
        if not any(isinstance(effect, BecomeClassic) for effect in decision.effects):
            for change in decision.changes:
                group.apply(change)
        for effect in decision.effects:
            self._perform(entry, effect)

    def _perform(self, entry: Entry, effect: Effect) -> None:
        registry = self._registry
        if isinstance(effect, Reply):
            registry.respond(effect.token, effect.response)
        elif isinstance(effect, StartTimer):
            if not (effect.if_absent and effect.timer in entry.timers):
                registry.start_timer(entry, effect.timer, effect.delay_ms, self.feed, keeps=True)
        elif isinstance(effect, CancelTimer):
            entry.cancel_timer(effect.timer)
        elif isinstance(effect, Resolve):
            self._resolve(entry, effect)
        elif isinstance(effect, BecomeClassic):
            self.dismiss_classic(entry, ErrorCode.NONE)
            self._become_classic(entry, effect.group, effect.rebalances)
        else:
            assert isinstance(effect, Forget)
            registry.forget(effect.group_id)

    def time_left(self, entry: Entry) -> dict[Timer, int]:
        """Returns the timers of a group, each with its full timeout in ms."""
        group = entry.group
        assert isinstance(group, Group)
        found: dict[Timer, int] = {}
        settings = self.settings_of(group.group_id)
        for timer in entry.timers:
            member = group.members.get(timer.member_id)
            if member is None:
                continue
            delay_ms = member.info.rebalance_timeout_ms
            if isinstance(timer, SessionExpired):
                classic = member.info.classic
                delay_ms = settings.session_timeout_ms if classic is None else classic.session_timeout_ms
            found[timer] = delay_ms
        return found

    # --- regular expressions -------------------------------------------------------------------------------------

    def _resolve(self, entry: Entry, effect: Resolve) -> None:
        """Begins a search for the topics of regular expressions, unless one is under way."""
        if not entry.is_resolving:
            entry.is_resolving = True
            search = self._search(effect)
            asyncio.get_running_loop().call_soon(self._search_on, entry, search)

    def _search_on(self, entry: Entry, search: Iterator[dict[str, Resolved] | None]) -> None:
        """Continues a search for one cooperative step."""
        is_there = self._registry.entries.get(entry.group.group_id) is entry and isinstance(entry.group, Group)
        found = next(search) if is_there else {}
        if found is None:
            asyncio.get_running_loop().call_soon(self._search_on, entry, search)
            return
        entry.is_resolving = False
        if is_there and self._registry.is_active:
            self.feed(entry, RegexesResolved(found))

    def _search(self, effect: Resolve) -> Iterator[dict[str, Resolved] | None]:
        """Yields None between cooperative steps, and at last the topics of each expression."""
        topics, at_ms = self._registry.topics, self._registry.clock.now_ms()
        version = topics.version()
        compiled = [(regex, Pattern(regex)) for regex in effect.regexes]
        found: dict[str, set[str]] = {regex: set() for regex in effect.regexes}
        names: Sequence[str] = list(topics.names())
        for number, name in enumerate(names, 1):
            matching = [regex for regex, pattern in compiled if pattern.fullmatch(name)]
            if matching and self._may_describe(name, effect.caller):
                for regex in matching:
                    found[regex].add(name)
            if number % NAMES_AT_ONCE == 0:
                yield None
        yield {regex: Resolved(frozenset(matched), version, at_ms) for regex, matched in found.items()}


def _not_found(group_id: str, entry: Entry | None) -> HeartbeatReply:
    text = f"Group {group_id} not found." if entry is None else f"Group {group_id} is not a consumer group."
    return HeartbeatReply(ErrorCode.GROUP_ID_NOT_FOUND, text)
