"""Runs the groups of the consumer protocol (KIP-848): carries out what `consumer.machine` decides. All methods run on
the event loop and return without waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ...protocol.errors import ErrorCode
from ..patterns import Pattern
from . import records
from .classic.state import Group as ClassicGroup
from .common_events import HeartbeatReply, MemberLeave
from .consumer.conversion import upgraded
from .consumer.events import (
    BecomeClassic,
    Caller,
    Effect,
    MemberHeartbeat,
    RegexesResolved,
    Resolve,
    Settings,
)
from .consumer.machine import REPLIES, decide
from .consumer.moves import session_ms
from .consumer.records import FORMS
from .consumer.state import Change, Group, Member, Resolved
from .registry import Entry, Registry
from .runner import GroupRunner

MatchTopics: TypeAlias = Callable[[str, Caller], bool]
"""Whether a caller may describe a topic."""
NAMES_AT_ONCE = 1000
"""Topic names that are matched before the event loop runs again."""


class ConsumerGroups(GroupRunner):
    """The groups of the consumer protocol in a registry."""

    group_class = Group
    forms = FORMS
    decide = staticmethod(decide)
    replies = REPLIES

    def __init__(
        self,
        registry: Registry,
        *,
        new_id: Callable[[], str],
        configs: Callable[[str], Mapping[str, str]],
        may_describe: MatchTopics,
        become_classic: Callable[[Entry, ClassicGroup, bool], None],
    ) -> None:
        """`new_id` returns an id for a member that has none; `configs` returns the configs of a group by its id;
        `become_classic` replaces the group of an entry.
        """
        super().__init__(registry, configs)
        self.new_id = new_id
        self._may_describe = may_describe
        self._become_classic = become_classic

    def heartbeat(self, group_id: str, event: MemberHeartbeat | MemberLeave) -> HeartbeatReply:
        if isinstance(event, MemberHeartbeat) and not event.member_id:
            event = replace(event, member_id=self.new_id())
        return super().heartbeat(group_id, event)

    def _converted(self, entry: Entry, classic: ClassicGroup) -> list[Change]:
        return [] if entry.is_empty else upgraded(classic, self.settings_of(classic.group_id), self._registry.topics)

    # --- running the machine -------------------------------------------------------------------------------------

    def _session_ms(self, settings: Settings, member: Member) -> int:
        return session_ms(settings, member.info)

    def _records_of(self, effect: Effect) -> list[records.Record]:
        return [records.group_record(effect.group)] if isinstance(effect, BecomeClassic) else []

    def _perform(self, entry: Entry, effect: Resolve | BecomeClassic) -> None:
        if isinstance(effect, Resolve):
            self._resolve(entry, effect)
        else:
            self._registry.dismiss(entry, ErrorCode.NONE)
            self._become_classic(entry, effect.group, effect.rebalances)

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
