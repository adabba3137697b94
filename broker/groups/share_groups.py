"""Runs the share groups (KIP-932): carries out what `share.machine` decides.

The state of share partitions is initialized and deleted by the share coordinator; the outcome is one more event of the
group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from ...protocol.errors import ErrorCode
from ..errors import code_of
from .common_state import Partitions
from .registry import Entry, Registry
from .runner import GroupRunner
from .settings import WRITE_ERRORS
from .share.events import (
    AlterOffsets,
    DeleteGroup,
    DeleteOffsets,
    DeleteState,
    Event,
    Initialize,
    OffsetsDeleted,
    OffsetsReply,
    StateInitialized,
    TopicDeleted,
)
from .share.machine import REPLIES, decide
from .share.records import FORMS
from .share.state import Group, SharePartitionKey

StateWork: TypeAlias = Initialize | DeleteState
"""An effect that the share coordinator carries out."""
Errors: TypeAlias = dict[tuple[bytes, int], ErrorCode]
"""The outcome of such effects by topic id and partition."""


class ShareState(Protocol):
    """The share coordinator, which stores the state of share partitions. A future ends with a sync."""

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, /) -> Any: ...

    def delete(self, key: SharePartitionKey, /) -> Any: ...


class ShareGroups(GroupRunner):
    """The share groups in a registry."""

    group_class = Group
    forms = FORMS
    decide = staticmethod(decide)
    replies = REPLIES

    def __init__(self, registry: Registry, configs: Callable[[str], Mapping[str, str]]) -> None:
        super().__init__(registry, configs)
        self.state: ShareState | None = None
        """None where no state is stored."""
        self._tasks: set[asyncio.Task[Errors]] = set()

    # --- requests ------------------------------------------------------------------------------------------------

    async def alter_offsets(self, group_id: str, offsets: Mapping[str, Mapping[int, int]]) -> OffsetsReply:
        """AlterShareGroupOffsets: new start offsets by topic and partition; creates the group, unless refused."""
        registry = self._registry
        is_new = group_id not in registry.entries
        entry = registry.add(self._new_group(group_id)) if is_new else self._entry(group_id)
        if isinstance(entry, OffsetsReply):
            return entry
        reply, work = self._fed(entry, AlterOffsets(offsets))
        if is_new and not work:
            registry.forget(group_id)
        return self._with_errors(reply, await self._done(entry, work))

    async def delete_offsets(self, group_id: str, topics: tuple[str, ...]) -> OffsetsReply:
        """DeleteShareGroupOffsets: removes the state of topics."""
        entry = self._entry(group_id)
        if isinstance(entry, OffsetsReply):
            return entry
        reply, work = self._fed(entry, DeleteOffsets(topics))
        done = await self._done(entry, work)
        return self._with_errors(reply, {(topic_id, -1): error for (topic_id, _), error in done.items() if error})

    def _with_errors(self, reply: OffsetsReply, errors: Errors) -> OffsetsReply:
        """Returns a response with the errors of the share coordinator."""
        results = dict(reply.results)
        for (topic_id, index), error in errors.items():
            name = self._registry.topics.name_of(topic_id)
            if error is not ErrorCode.NONE and name is not None:
                results[name, index] = error, None
        return reply._replace(results=results)

    async def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups: removes a group without members, after its state."""
        entry = self._entry(group_id)
        if isinstance(entry, OffsetsReply):
            return entry.error
        reply, work = self._fed(entry, DeleteGroup())
        if reply.error is not ErrorCode.NONE:
            return reply.error
        errors = await self._done(entry, work)
        error = next(filter(None, errors.values()), ErrorCode.NONE)
        if error is not ErrorCode.NONE or self._registry.entries.get(group_id) is not entry:
            return error
        if not entry.is_empty:  # a member has joined meanwhile
            return ErrorCode.NON_EMPTY_GROUP
        group: Any = entry.group
        error = self._registry.write(entry, self._encoded(group_id, group.tombstones()))
        if error is ErrorCode.NONE:
            self._registry.forget(group_id)
        return WRITE_ERRORS.get(error, error)

    def _entry(self, group_id: str) -> Entry | OffsetsReply:
        entry = self._registry.entries.get(group_id)
        if entry is None:
            return OffsetsReply(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(entry.group, Group):
            return OffsetsReply(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        return entry

    # --- running the machine -------------------------------------------------------------------------------------

    def topic_deleted(self, topic_id: bytes) -> None:
        """Forgets the state of a deleted topic, which the share coordinator removes."""
        for entry in list(self._registry.entries.values()):
            if isinstance(entry.group, Group):
                self.feed(entry, TopicDeleted(topic_id))

    def feed(self, entry: Entry, event: Event) -> Any:
        response, work = self._fed(entry, event)
        self._begin(entry, work)
        return response

    def _fed(self, entry: Entry, event: Event) -> tuple[Any, list[StateWork]]:
        """Feeds an event as `feed` does, but returns the work of the share coordinator instead of beginning it."""
        decision = self._written(entry, event)
        response = self._carry_out(entry, decision)
        return response, [effect for effect in decision.effects if isinstance(effect, StateWork)]

    def _perform(self, entry: Entry, effect: StateWork) -> None:
        """Leaves the work of the share coordinator to the caller of `_fed`."""

    # --- the state of share partitions ---------------------------------------------------------------------------

    def _begin(self, entry: Entry, work: list[StateWork]) -> None:
        """Begins work of the share coordinator that no response waits for."""
        if work:
            task = asyncio.get_running_loop().create_task(self._done(entry, work))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _done(self, entry: Entry, work: list[StateWork]) -> Errors:
        """Carries out the work, feeds its outcome, and returns it."""
        group_id, state = entry.group.group_id, self.state
        errors: Errors = {}
        for effect in work:
            if isinstance(effect, Initialize):
                for topic_id, starts in effect.starts.items():
                    for index, start in starts.items():
                        change = SharePartitionKey(group_id, topic_id, index), effect.state_epoch, start
                        errors[topic_id, index] = await _stored(state.initialize if state else None, *change)
                self._feed_if_there(entry, StateInitialized(_partitions(errors, failed=False)))
                self._feed_if_there(entry, StateInitialized(_partitions(errors, failed=True), failed=True))
            else:
                for topic_id, indexes in effect.partitions.items():
                    for index in sorted(indexes):
                        key = SharePartitionKey(group_id, topic_id, index)
                        errors[topic_id, index] = await _stored(state.delete if state else None, key)
                done = effect.partitions.keys() - _partitions(errors, failed=True).keys()
                self._feed_if_there(entry, OffsetsDeleted(frozenset(done)))
        return errors

    def _feed_if_there(self, entry: Entry, event: Event) -> None:
        if self._registry.is_active and self._registry.entries.get(entry.group.group_id) is entry:
            self.feed(entry, event)


async def _stored(write: Callable[..., Any] | None, *arguments: Any) -> ErrorCode:
    """Calls a method of the share coordinator, and returns the error code once its change is durable."""
    try:
        submitted = write(*arguments) if write is not None else None
        if isinstance(submitted, asyncio.Future):
            await submitted
    except Exception as error:
        return code_of(error)
    return ErrorCode.NONE


def _partitions(errors: Errors, *, failed: bool) -> Partitions:
    """Returns the partitions with or without an error."""
    found: dict[bytes, set[int]] = {}
    for (topic_id, index), error in errors.items():
        if (error is not ErrorCode.NONE) is failed:
            found.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}
