"""Runs streams groups (KIP-1071): carries out what `streams.machine` decides."""

from __future__ import annotations

from typing import Any

from .classic.state import Group as ClassicGroup
from .registry import Entry
from .runner import GroupRunner
from .streams.events import HeartbeatReply
from .streams.machine import decide, refused
from .streams.records import FORMS
from .streams.state import Group


class StreamsGroups(GroupRunner):
    """The streams groups in a registry."""

    group_class = Group
    forms = FORMS
    decide = staticmethod(decide)
    refused = staticmethod(refused)
    reply_class = HeartbeatReply

    def _converted(self, entry: Entry, classic: ClassicGroup) -> list[Any] | None:
        return [] if entry.is_empty else None
