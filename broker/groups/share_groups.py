"""Runs the share groups (KIP-932): carries out what `share.machine` decides.

The changes of a decision are appended to the log in one batch before they take effect. The state of share partitions is
initialized and deleted by the share coordinator; the outcome is one more event of the group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

from ...protocol.errors import ErrorCode
from ...protocol.frozen import frozen
from ...protocol.named import NamedTuple
from .registry import Entry, Registry
from .settings import WRITE_ERRORS
from .share.assignor import Partitions
from .share.events import (
    AlterOffsets,
    CancelTimer,
    Decision,
    DeleteGroup,
    DeleteOffsets,
    DeleteState,
    Event,
    Heartbeat,
    HeartbeatReply,
    Initialize,
    Leave,
    Loaded,
    OffsetsDeleted,
    OffsetsReply,
    Reply,
    Response,
    SessionExpired,
    Settings,
    StartTimer,
    StateInitialized,
    TopicDeleted,
)
from .share.machine import decide
from .share.records import encode_all
from .share.state import JOIN, AssignmentEpochSet, Change, EpochSet, Group, InitializationSet

RETRY_MS = 500
"""The delay after which a session that has expired is ended again, if that could not be written."""
# The configs of a group, and the settings that they change.
_GROUP_CONFIGS = {
    "share.session.timeout.ms": "session_timeout_ms",
    "share.heartbeat.interval.ms": "heartbeat_interval_ms",
    "share.assignment.interval.ms": "assignment_interval_ms",
}

StateWork: TypeAlias = Initialize | DeleteState
"""An effect that the share coordinator carries out."""


class StatePartition(NamedTuple):
    """A share partition."""

    group_id: str
    topic_id: bytes
    partition: int


class ShareState(Protocol):
    """The share coordinator, which stores the state of share partitions. Both return an error code."""

    async def initialize(self, of: StatePartition, state_epoch: int, start_offset: int, /) -> ErrorCode: ...

    async def delete(self, of: StatePartition, /) -> ErrorCode: ...


class NoShareState:
    """Stores nothing, as where no topics are."""

    async def initialize(self, of: StatePartition, state_epoch: int, start_offset: int, /) -> ErrorCode:
        return ErrorCode.NONE

    async def delete(self, of: StatePartition, /) -> ErrorCode:
        return ErrorCode.NONE


@frozen
class _Outcome:
    """The errors of the share partitions that an effect was for."""

    errors: Mapping[tuple[bytes, int], ErrorCode]

    def partitions(self, *, failed: bool) -> Partitions:
        found: dict[bytes, set[int]] = {}
        for (topic_id, index), error in self.errors.items():
            if (error is not ErrorCode.NONE) is failed:
                found.setdefault(topic_id, set()).add(index)
        return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}

    @property
    def first_error(self) -> ErrorCode:
        return next((error for error in self.errors.values() if error is not ErrorCode.NONE), ErrorCode.NONE)


class ShareGroups:
    """The share groups in a registry."""

    def __init__(self, registry: Registry, configs: Callable[[str], Mapping[str, str]]) -> None:
        """`configs` returns the configs of a group by its id."""
        self.state: ShareState = NoShareState()
        self._registry = registry
        self._configs = configs
        self._tasks: set[asyncio.Task[None]] = set()

    def settings_of(self, group_id: str) -> Settings:
        """Returns the settings of a group: the broker's, changed by the configs of the group."""
        settings, configs = self._registry.settings.share, self._configs(group_id)
        changed = {field: int(configs[name]) for name, field in _GROUP_CONFIGS.items() if name in configs}
        return replace(settings, **changed) if changed else settings

    # --- requests ------------------------------------------------------------------------------------------------

    def heartbeat(self, group_id: str, event: Heartbeat | Leave) -> HeartbeatReply:
        """ShareGroupHeartbeat, checked by its handler."""
        registry = self._registry
        entry = registry.entries.get(group_id)
        is_new = entry is None
        if entry is None:
            if isinstance(event, Leave) or event.epoch != JOIN:
                what = "Group" if isinstance(event, Leave) else "Share group"
                return HeartbeatReply(ErrorCode.GROUP_ID_NOT_FOUND, f"{what} {group_id} not found.")
            entry = registry.add(self._new(group_id))
        elif not isinstance(entry.group, Group):
            return HeartbeatReply(ErrorCode.GROUP_ID_NOT_FOUND, _no_share_group(group_id))
        reply, work = self._fed(entry, event)
        if is_new and entry.is_empty:  # it was refused
            registry.forget(group_id)
        self._begin(entry, work)
        assert isinstance(reply, HeartbeatReply)
        return reply

    async def alter_offsets(self, group_id: str, offsets: Mapping[str, Mapping[int, int]]) -> OffsetsReply:
        """AlterShareGroupOffsets: new start offsets by topic and partition; creates the group, unless refused."""
        registry = self._registry
        is_new = group_id not in registry.entries
        entry = registry.add(self._new(group_id)) if is_new else self._entry(group_id)
        if isinstance(entry, OffsetsReply):
            return entry
        reply, work = self._fed(entry, AlterOffsets(offsets))
        assert isinstance(reply, OffsetsReply)
        if is_new and not work:
            registry.forget(group_id)
        results = dict(reply.results)
        for (topic_id, index), error in (await self._done(entry, work)).errors.items():
            name = self._registry.topics.name_of(topic_id)
            if error is not ErrorCode.NONE and name is not None:
                results[name, index] = error, None
        return reply._replace(results=results)

    async def delete_offsets(self, group_id: str, topics: tuple[str, ...]) -> OffsetsReply:
        """DeleteShareGroupOffsets: removes the state of topics."""
        entry = self._entry(group_id)
        if isinstance(entry, OffsetsReply):
            return entry
        reply, work = self._fed(entry, DeleteOffsets(topics))
        assert isinstance(reply, OffsetsReply)
        results = dict(reply.results)
        for (topic_id, _), error in (await self._done(entry, work)).errors.items():
            name = self._registry.topics.name_of(topic_id)
            if error is not ErrorCode.NONE and name is not None:
                results[name, -1] = error, None
        return reply._replace(results=results)

    async def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups: removes a group without members, after its state."""
        entry = self._entry(group_id)
        if isinstance(entry, OffsetsReply):
            return entry.error
        reply, work = self._fed(entry, DeleteGroup())
        assert reply is not None
        if reply.error is not ErrorCode.NONE:
            return reply.error
        error = (await self._done(entry, work)).first_error
        if error is not ErrorCode.NONE or self._registry.entries.get(group_id) is not entry:
            return error
        if not entry.is_empty:  # a member has joined meanwhile
            return ErrorCode.NON_EMPTY_GROUP
        changes = [AssignmentEpochSet(None), InitializationSet(None), EpochSet(None)]
        error = self._registry.write(entry, self._encoded(group_id, changes))
        if error is ErrorCode.NONE:
            self._registry.forget(group_id)
        return WRITE_ERRORS.get(error, error)

    def _new(self, group_id: str) -> Group:
        return Group(group_id, self._registry.settings.share.first_epoch)

    def _entry(self, group_id: str) -> Entry | OffsetsReply:
        entry = self._registry.entries.get(group_id)
        if entry is None:
            return OffsetsReply(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(entry.group, Group):
            return OffsetsReply(ErrorCode.GROUP_ID_NOT_FOUND, _no_share_group(group_id))
        return entry

    # --- running the machine -------------------------------------------------------------------------------------

    def loaded(self, entry: Entry) -> None:
        """Starts the sessions of a group that was restored from the log."""
        self.feed(entry, Loaded())

    def topic_deleted(self, topic_id: bytes) -> None:
        """Forgets the state of a deleted topic, which the share coordinator removes."""
        for entry in list(self._registry.entries.values()):
            if isinstance(entry.group, Group):
                self.feed(entry, TopicDeleted(topic_id))

    def feed(self, entry: Entry, event: Event) -> None:
        """Feeds an event without a response."""
        self._begin(entry, self._fed(entry, event)[1])

    def _fed(self, entry: Entry, event: Event) -> tuple[Response | None, list[StateWork]]:
        """Writes the changes that the event leads to, and carries out its effects, except those that are returned.
        After a failed write nothing but an error response follows.
        """
        group = entry.group
        assert isinstance(group, Group)
        decision = self._decide(group, event)
        error = self._registry.write(entry, self._encoded(group.group_id, decision.changes))
        if error is not ErrorCode.NONE:
            code = WRITE_ERRORS.get(error, error)
            if isinstance(event, SessionExpired):  # the member is still there, and has no other timer
                self._registry.start_timer(entry, event, RETRY_MS, self.feed)
            if isinstance(event, Heartbeat | Leave):
                return HeartbeatReply(code), []
            return OffsetsReply(code), []
        for change in decision.changes:
            group.apply(change)
        response: Response | None = None
        work: list[StateWork] = []
        for effect in decision.effects:
            if isinstance(effect, Reply):
                response = effect.response
            elif isinstance(effect, StartTimer):
                self._registry.start_timer(entry, effect.timer, effect.delay_ms, self.feed, keeps=True)
            elif isinstance(effect, CancelTimer):
                entry.cancel_timer(effect.timer)
            else:
                work.append(effect)
        return response, work

    def _decide(self, group: Group, event: Event) -> Decision:
        registry = self._registry
        settings = self.settings_of(group.group_id)
        return decide(group, event, now_ms=registry.clock.now_ms(), settings=settings, topics=registry.topics)

    def _encoded(self, group_id: str, changes: Sequence[Change]) -> list[tuple[bytes, bytes | None]]:
        return encode_all(group_id, changes, has_times=self._registry.settings.consumer_format.assignment_time)

    def time_left(self, entry: Entry) -> dict[SessionExpired, int]:
        """Returns the timers of a group, each with its full timeout in ms."""
        timeout_ms = self.settings_of(entry.group.group_id).session_timeout_ms
        return dict.fromkeys(entry.timers, timeout_ms)

    # --- the state of share partitions ---------------------------------------------------------------------------

    def _begin(self, entry: Entry, work: list[StateWork]) -> None:
        """Begins work of the share coordinator that no response waits for."""
        if work:
            task = asyncio.get_running_loop().create_task(self._without_outcome(entry, work))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _without_outcome(self, entry: Entry, work: list[StateWork]) -> None:
        await self._done(entry, work)

    async def _done(self, entry: Entry, work: list[StateWork]) -> _Outcome:
        """Carries out the work, feeds its outcome, and returns it."""
        group_id = entry.group.group_id
        errors: dict[tuple[bytes, int], ErrorCode] = {}
        for effect in work:
            if isinstance(effect, Initialize):
                for topic_id, starts in effect.starts.items():
                    for index, start in starts.items():
                        of = StatePartition(group_id, topic_id, index)
                        errors[topic_id, index] = await self.state.initialize(of, effect.state_epoch, start)
                outcome = _Outcome(errors)
                self._feed_if_there(entry, StateInitialized(outcome.partitions(failed=False)))
                self._feed_if_there(entry, StateInitialized(outcome.partitions(failed=True), failed=True))
            else:
                for topic_id, indexes in effect.partitions.items():
                    for index in sorted(indexes):
                        errors[topic_id, index] = await self.state.delete(StatePartition(group_id, topic_id, index))
                outcome = _Outcome(errors)
                done = effect.partitions.keys() - outcome.partitions(failed=True).keys()
                self._feed_if_there(entry, OffsetsDeleted(frozenset(done)))
        return _Outcome(errors)

    def _feed_if_there(self, entry: Entry, event: Event) -> None:
        if self._registry.is_active and self._registry.entries.get(entry.group.group_id) is entry:
            self.feed(entry, event)


def _no_share_group(group_id: str) -> str:
    return f"Group {group_id} is not a share group."
