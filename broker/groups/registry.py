"""The groups of a broker, of all kinds: a group id has one kind at a time.

Owns their entries with offsets and timers, the delayed responses, which partitions of `__consumer_offsets` are served,
and appending to them. Decides nothing: `coordinator` runs the classic and the streams groups, `consumer_groups` those
of the consumer protocol, `share_groups` the share groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from ...protocol.errors import ErrorCode
from ..clock import Clock, Timer
from ..futures import Responses
from . import records
from .classic.state import CONSUMER_PROTOCOL_TYPE, JoinReply, SyncReply
from .classic.state import Group as ClassicGroup
from .classic.state import GroupState as ClassicState
from .classic.subscription import subscribed_topics
from .consumer.state import Group as ConsumerGroup
from .offsets import Expiry, Offsets
from .settings import CoordinatorSettings
from .share.state import Group as ShareGroup
from .streams.state import Group as StreamsGroup
from .topics import TopicLookup

AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup


Append: TypeAlias = Callable[[int, list[records.Record], int], Any]
"""Writes records to a partition of `__consumer_offsets`: its index, the records, the time in ms. Any exception means
that nothing was written.
"""
AppendTransactional: TypeAlias = Callable[[int, list[records.Record], int, int, int], Any]
"""Writes records as part of the transaction of a producer id and epoch; otherwise like `Append`."""


class Readiness(Enum):
    """Why a partition of the log is not served. The value is the error code of its groups; a served partition has no
    entry.
    """

    LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    FAILED = ErrorCode.COORDINATOR_NOT_AVAILABLE
    RESIGNED = ErrorCode.NOT_COORDINATOR


@dataclass(slots=True)
class Entry:
    """A group with its offsets and timers. A timer is identified by the event that it produces."""

    group: AnyGroup
    partition_index: int
    offsets: Offsets = field(default_factory=Offsets)
    timers: dict[Any, Timer] = field(default_factory=dict[Any, Timer])
    is_resolving: bool = False
    """Whether a search for the topics of regular expressions is under way."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members and is not being rebalanced."""
        group = self.group
        return group.state is ClassicState.EMPTY if isinstance(group, ClassicGroup) else group.is_empty

    def cancel_timers(self) -> None:
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()

    def cancel_timer(self, name: Any) -> None:
        timer = self.timers.pop(name, None)
        if timer is not None:
            timer.cancel()


class Registry:
    """The groups of a broker by id, and what their protocols share."""

    def __init__(
        self,
        *,
        append: Append,
        partitions: int,
        clock: Clock,
        topics: TopicLookup,
        settings: CoordinatorSettings,
        error_code: Callable[[Exception], ErrorCode],
    ) -> None:
        self.append = append
        self.partitions = partitions
        self.clock = clock
        self.topics = topics
        self.settings = settings
        self.error_code = error_code
        self.entries: dict[str, Entry] = {}
        self.readiness: dict[int, Readiness] = {}
        self.is_active = True
        self.kept_until_ms: int | None = None
        """The end of a clock move during which members stay alive."""
        self.responses: Responses[Any] = Responses()

    # --- availability --------------------------------------------------------------------------------------------

    def partition_of(self, group_id: str) -> int:
        """Returns the partition of `__consumer_offsets` for the group."""
        return records.partition_for(group_id, self.partitions)

    def unavailable(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Returns why the group cannot be served now, or NONE."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        readiness = self.readiness.get(self.partition_of(group_id)) if self.readiness else None
        readiness = readiness if self.is_active else Readiness.FAILED
        return readiness.value if readiness is not None else ErrorCode.NONE

    # --- entries -------------------------------------------------------------------------------------------------

    def of_partition(self, partition_index: int) -> list[str]:
        """Returns the ids of the groups in a partition of the log."""
        return [name for name, entry in self.entries.items() if entry.partition_index == partition_index]

    def add(self, group: AnyGroup) -> Entry:
        """Adds a new group."""
        entry = self.entries[group.group_id] = Entry(group, self.partition_of(group.group_id))
        return entry

    def forget(self, group_id: str) -> None:
        """Removes a group; requests that wait for it get no response."""
        entry = self.entries.pop(group_id)
        entry.cancel_timers()
        for token in entry.group.parked_tokens if isinstance(entry.group, ClassicGroup) else ():
            self.responses.drop(token)

    def dismiss(self, entry: Entry, error: ErrorCode) -> None:
        """Stops the timers of a group and responds to delayed requests of a classic one with the error."""
        entry.cancel_timers()
        group = entry.group
        for member in group.members.values() if isinstance(group, ClassicGroup) else ():
            if member.join_token is not None:
                self.responses.respond(member.join_token, JoinReply(error, member.member_id))
            if member.sync_token is not None:
                self.responses.respond(member.sync_token, SyncReply(error))

    def write(self, entry: Entry, written: list[records.Record]) -> ErrorCode:
        """Appends records of a group, all or none; returns the error code."""
        try:
            if written:
                self.append(entry.partition_index, written, self.clock.now_ms())
        except Exception as error:
            return self.error_code(error)
        return ErrorCode.NONE

    # --- timers --------------------------------------------------------------------------------------------------

    def start_timer(
        self, entry: Entry, name: Any, delay_ms: int, fire: Callable[[Entry, Any], object], *, keeps: bool = False
    ) -> None:
        """Calls `fire(entry, name)` after the delay; with `keeps` the delay begins at the end of a clock move."""
        entry.cancel_timer(name)
        from_ms = self.clock.now_ms()
        if keeps and self.kept_until_ms is not None:
            from_ms = max(from_ms, self.kept_until_ms)

        def fired() -> None:
            entry.timers.pop(name, None)
            if self.entries.get(entry.group.group_id) is entry:
                fire(entry, name)

        entry.timers[name] = self.clock.call_at(from_ms + delay_ms, fired)


def expiry(group: AnyGroup) -> Expiry | None:
    """Returns which offsets of a group expire, and from when on; None: none at all.

    Without members the retention of a classic group starts when it became empty; in a Stable consumer group, in one of
    the consumer or the streams protocol, and in a group that only stores offsets, at the commit. Offsets of subscribed
    topics stay.
    """
    if isinstance(group, ShareGroup):
        return None
    if isinstance(group, ConsumerGroup | StreamsGroup):
        return Expiry(group.subscribed_topics)
    if group.protocol_type is None:
        return Expiry()
    if group.state is ClassicState.EMPTY:
        return Expiry(since_ms=group.state_changed_ms if group.state_changed_ms >= 0 else None)
    if group.protocol_type == CONSUMER_PROTOCOL_TYPE and group.state is ClassicState.STABLE:
        topics = subscribed_topics(group)
        return None if topics is None else Expiry(topics)
    return None


def offset_tombstones(entry: Entry) -> list[records.Record]:
    """Returns the tombstones of all offsets of a group."""
    return [records.offset_record(entry.group.group_id, partition, None) for partition in entry.offsets.held()]


def group_tombstones(entry: Entry, settings: CoordinatorSettings) -> list[records.Record]:
    """Returns the tombstone of a classic group, if it has a record: before 4.0 not without a generation."""
    generation_id = entry.group.generation_id if isinstance(entry.group, ClassicGroup) else 0
    has_record = generation_id > 0 or not settings.old_group_coordinator
    return [records.group_tombstone(entry.group.group_id)] if has_record else []
