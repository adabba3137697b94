"""The group coordinator: runs the state machine of `machine` with timers, delayed requests and the log.

Owns the groups of this broker, their timers and delayed requests, and their log in `__consumer_offsets` as records
passed to `append`. Uses no sockets, topics or files: these are arguments. All methods run on the event loop and return
without waiting, except `join` and `sync`, which may await a future. State is appended to the log before it takes effect
in memory.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol
from uuid import uuid4

from ...protocol.errors import ErrorCode
from ..clock import Clock, Timer
from ..errors import code_of
from . import records
from .classic.machine import advance
from .classic.sessions import time_left
from .classic.state import (
    CONSUMER_PROTOCOL_TYPE,
    CancelTimer,
    Commit,
    Delete,
    Effect,
    Event,
    Group,
    GroupState,
    Heartbeat,
    Join,
    JoinReply,
    JoinRequest,
    Leave,
    LeaveReply,
    Loaded,
    Persist,
    Persisted,
    PersistFailed,
    Purpose,
    Reply,
    Response,
    StartTimer,
    Sync,
    SyncReply,
)
from .classic.state import Timer as TimerName
from .classic.subscription import subscribed_topics
from .listing import ListedGroup, listed
from .loading import load_groups
from .offsets import CommittedOffset, FetchedOffset, Offsets, OpenTransactions, Partition
from .settings import COMMIT_WRITE_ERRORS, WRITE_ERRORS, CoordinatorSettings


class Append(Protocol):
    """Writes records to a partition of `__consumer_offsets`; any exception means that nothing was written."""

    def __call__(self, partition_index: int, records: list[records.Record], now_ms: int, /) -> Any: ...


class AppendTransactional(Protocol):
    """Writes records as part of a producer's transaction; otherwise like `Append`."""

    def __call__(
        self, partition_index: int, records: list[records.Record], now_ms: int, producer_id: int, producer_epoch: int, /
    ) -> Any: ...


@dataclass(frozen=True, slots=True)
class TopicLookup:
    """Topic lookups for group handlers; topic ids are 16 bytes.

    `name_of` and `id_of` return None for an unknown topic.
    """

    has_partition: Callable[[str, int], bool]
    name_of: Callable[[bytes], str | None]
    id_of: Callable[[str], bytes | None]


class Readiness(Enum):
    """Why a partition of the log is not served. The value is the error code of its groups; a served partition has no
    entry.
    """

    LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    FAILED = ErrorCode.COORDINATOR_NOT_AVAILABLE
    RESIGNED = ErrorCode.NOT_COORDINATOR


@dataclass(slots=True)
class Entry:
    """A group with its offsets and timers."""

    group: Group
    partition_index: int
    offsets: Offsets = field(default_factory=Offsets)
    timers: dict[TimerName, Timer] = field(default_factory=dict[TimerName, Timer])


class GroupCoordinator:
    """All classic groups of this broker."""

    def __init__(
        self,
        *,
        append: Append,
        partitions: int,
        clock: Clock,
        topics: TopicLookup,
        settings: CoordinatorSettings | None = None,
        new_uuid: Callable[[], str] = lambda: str(uuid4()),
        append_transactional: AppendTransactional | None = None,
        error_code: Callable[[Exception], ErrorCode] = code_of,
    ) -> None:
        """`partitions` is the partition count of `__consumer_offsets`; `error_code` maps an exception of `append` to
        its error code.
        """
        self.settings = settings or CoordinatorSettings()
        self.partitions = partitions
        self.topics = topics
        self._append = append
        self._append_transactional = append_transactional
        self._clock = clock
        self._new_uuid = new_uuid
        self._error_code = error_code
        self._group_settings = self.settings.group
        self._entries: dict[str, Entry] = {}
        self._open = OpenTransactions()
        self._readiness: dict[int, Readiness] = {}
        self._active = True
        self._tokens = itertools.count(1)
        self._order = itertools.count(1)
        self._responses: dict[int, Response] = {}
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._sweep: Timer | None = None
        self._kept_until_ms: int | None = None  # end of a clock move during which members stay alive

    # --- start, load and close -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the periodic check for expired offsets, every offsets.retention.check.interval.ms."""
        interval_ms = self.settings.offsets_retention_check_interval_ms
        self._sweep = self._clock.call_every(interval_ms, self.expire, self._expires_ms)

    def close(self) -> None:
        """Stops all timers and responds to delayed requests with COORDINATOR_NOT_AVAILABLE."""
        self._active = False
        if self._sweep is not None:
            self._sweep.cancel()
        for entry in self._entries.values():
            self._dismiss(entry, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _dismiss(self, entry: Entry, error: ErrorCode) -> None:
        for timer in entry.timers.values():
            timer.cancel()
        entry.timers.clear()
        for member in entry.group.members.values():
            if member.join_token is not None:
                self._respond(member.join_token, JoinReply(error, member.member_id))
            if member.sync_token is not None:
                self._respond(member.sync_token, SyncReply(error))

    def resign(self, partition_index: int) -> None:
        """Removes the groups of a partition whose log went offline; their clients get NOT_COORDINATOR."""
        self._readiness[partition_index] = Readiness.RESIGNED
        for group_id in [name for name, entry in self._entries.items() if entry.partition_index == partition_index]:
            self._dismiss(self._entries.pop(group_id), ErrorCode.NOT_COORDINATOR)

    def has_resigned(self, group_id: str) -> bool:
        """Returns whether this coordinator resigned from the group's partition."""
        return self._readiness.get(self.partition_of(group_id)) is Readiness.RESIGNED

    def begin_loading(self, partition_index: int) -> None:
        """Makes the groups of this partition respond with COORDINATOR_LOAD_IN_PROGRESS until `load`."""
        self._readiness[partition_index] = Readiness.LOADING

    def load(self, partition_index: int, log: Iterable[records.LogEntry]) -> ErrorCode:
        """Restores offsets and groups from the partition's log, oldest record first; sessions of members start now.

        Returns the error code if the log cannot be read; the groups of the partition are then unavailable.
        """
        for group_id in [name for name, entry in self._entries.items() if entry.partition_index == partition_index]:
            self._forget(group_id)
        try:
            loaded = load_groups(log, self._order)
        except Exception as error:
            self._readiness[partition_index] = Readiness.FAILED
            return self._error_code(error)
        for group_id, (group, offsets) in loaded.items():
            self._entries[group_id] = Entry(group, partition_index, offsets)
            for producer_id in offsets.pending_producers():
                self._open.note(partition_index, producer_id, group_id)
        self._readiness.pop(partition_index, None)
        for group_id in loaded:
            self._feed(group_id, Loaded())
        return ErrorCode.NONE

    def partition_of(self, group_id: str) -> int:
        """Returns the partition of `__consumer_offsets` for the group."""
        return records.partition_for(group_id, self.partitions)

    def group(self, group_id: str) -> Group | None:
        """Returns the current state of the group, or None."""
        entry = self._entries.get(group_id)
        return entry.group if entry is not None else None

    def offsets(self, group_id: str) -> dict[Partition, CommittedOffset]:
        """Returns all committed offsets of the group."""
        entry = self._entries.get(group_id)
        return dict(entry.offsets.as_mapping()) if entry is not None else {}

    def unavailable(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Returns why the group cannot be served now, or NONE."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        readiness = self._readiness.get(self.partition_of(group_id)) if self._readiness else None
        readiness = readiness if self._active else Readiness.FAILED
        return readiness.value if readiness is not None else ErrorCode.NONE

    # --- membership ----------------------------------------------------------------------------------------------

    async def join(self, group_id: str, request: JoinRequest) -> JoinReply:
        """JoinGroup; returns when the rebalance is complete."""
        member_id = request.member_id
        error = self.unavailable(group_id)
        low, high = self.settings.min_session_timeout_ms, self.settings.max_session_timeout_ms
        if error is ErrorCode.NONE and not low <= request.session_timeout_ms <= high:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error is ErrorCode.NONE and member_id and group_id not in self._entries:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE:
            return JoinReply(error, member_id)
        is_new = group_id not in self._entries
        self._find_or_create(group_id)
        name = request.client_id if request.instance_id is None else request.instance_id
        event = Join(next(self._tokens), "" if member_id else f"{name}-{self._new_uuid()}", request)
        self._feed(group_id, event)
        self._drop_if_untouched(group_id)
        if is_new and group_id in self._entries and not self.settings.old_group_coordinator:
            error = self._store_created(group_id)
            if error is not ErrorCode.NONE:
                self._responses.pop(event.token, None)
                return JoinReply(error, member_id)
        reply = await self._reply_to(event.token)
        assert isinstance(reply, JoinReply)
        return reply

    async def sync(
        self,
        group_id: str,
        *,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        protocol_type: str | None,
        protocol_name: str | None,
        assignments: Sequence[tuple[str, bytes]],
    ) -> SyncReply:
        """SyncGroup; returns when the leader has sent the assignments."""
        error = self.unavailable(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error = ErrorCode.REBALANCE_IN_PROGRESS  # clients rejoin on this code, and fail on the other
        elif error is ErrorCode.NONE and group_id not in self._entries:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE:
            return SyncReply(error)
        event = Sync(
            token=next(self._tokens),
            member_id=member_id,
            instance_id=instance_id,
            generation_id=generation_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=tuple(assignments),
        )
        self._feed(group_id, event)
        reply = await self._reply_to(event.token)
        assert isinstance(reply, SyncReply)
        return reply

    def heartbeat(self, group_id: str, *, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        """Heartbeat. Returns NONE while the group is being loaded: its sessions have not started."""
        error = self.unavailable(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE
        if error is not ErrorCode.NONE:
            return error
        if group_id not in self._entries:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self._request(group_id, Heartbeat(next(self._tokens), member_id, instance_id, generation_id)).error

    def leave(self, group_id: str, members: Sequence[tuple[str, str | None]]) -> LeaveReply:
        """LeaveGroup; `members` are pairs (member id, instance id)."""
        error = self.unavailable(group_id)
        if error is not ErrorCode.NONE:
            return LeaveReply(error)
        if group_id not in self._entries:
            group = Group(group_id)
            reply = next(
                effect.response
                for effect in self._advance(group, Leave(0, tuple(members)))[1]
                if isinstance(effect, Reply)
            )
        else:
            reply = self._request(group_id, Leave(next(self._tokens), tuple(members)))
        assert isinstance(reply, LeaveReply)
        return reply

    def refresh_members(self, until_ms: int) -> None:
        """Keeps members alive while the clock moves to `until_ms`, as if each sent a heartbeat at that time.

        Members that still have to join or sync get their full timeout after `until_ms`. This also applies to sessions
        and joins that start during the move, until `refreshed` is called.
        """
        self._kept_until_ms = until_ms
        for entry in self._entries.values():
            for name, delay_ms in time_left(entry.group, entry.timers, self._group_settings).items():
                entry.timers[name].cancel()
                entry.timers[name] = self._clock.call_at(until_ms + delay_ms, self._fire, entry, name)

    def refreshed(self) -> None:
        """Ends the clock move started by `refresh_members`."""
        self._kept_until_ms = None

    # --- offsets -------------------------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        *,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        commits: Sequence[tuple[Partition, CommittedOffset]],
        unknown_group: ErrorCode = ErrorCode.ILLEGAL_GENERATION,
        producer: tuple[int, int] | None = None,
    ) -> ErrorCode:
        """OffsetCommit, and TxnOffsetCommit with `producer` (id, epoch). The returned code applies to all `commits`.

        `unknown_group` is the code for a member of a group that does not exist. Empty `commits` create the group as
        well.
        """
        error = self.unavailable(group_id, may_be_empty=producer is None)
        if error is not ErrorCode.NONE:
            return error
        if (is_new := group_id not in self._entries) and generation_id >= 0:
            return unknown_group
        entry = self._find_or_create(group_id)
        check = Commit(next(self._tokens), member_id, instance_id, generation_id, transactional=producer is not None)
        error = self._request(group_id, check).error
        if error is ErrorCode.NONE and commits:
            error = self._write_commits(entry, commits, producer)
        if is_new and error is not ErrorCode.NONE:
            self._drop_if_untouched(group_id)
        return error

    def _write_commits(
        self, entry: Entry, commits: Sequence[tuple[Partition, CommittedOffset]], producer: tuple[int, int] | None
    ) -> ErrorCode:
        group_id, now_ms = entry.group.group_id, self._clock.now_ms()
        try:
            written = [records.offset_record(group_id, partition, committed) for partition, committed in commits]
            if producer is None:
                self._append(entry.partition_index, written, now_ms)
            elif self._append_transactional is None:
                return ErrorCode.UNSUPPORTED_VERSION
            else:
                self._append_transactional(entry.partition_index, written, now_ms, *producer)
                self._open.note(entry.partition_index, producer[0], group_id)
        except Exception as error:
            code = self._error_code(error)
            return COMMIT_WRITE_ERRORS.get(code, code)
        for partition, committed in commits:
            if producer is None:
                entry.offsets.put(partition, committed, next(self._order))
            else:
                entry.offsets.put_pending(producer[0], partition, committed, next(self._order))
        return ErrorCode.NONE

    def end_transaction(self, partition_index: int, producer_id: int, *, committed: bool) -> None:
        """Ends a producer's transaction after its marker was written to this partition of the log."""
        for group_id in self._open.end(partition_index, producer_id):
            if (entry := self._entries.get(group_id)) is not None:
                entry.offsets.end_transaction(producer_id, committed=committed)
                self._drop_if_untouched(group_id)

    def fetch(
        self, group_id: str, partitions: Iterable[Partition] | None, *, require_stable: bool
    ) -> tuple[ErrorCode, list[FetchedOffset]]:
        """OffsetFetch for one group; `partitions` None means all. A partition without a commit has neither offset nor
        error.
        """
        error = self.unavailable(group_id, may_be_empty=True)
        if error is not ErrorCode.NONE:
            return error, []
        entry = self._entries.get(group_id)
        offsets = entry.offsets if entry is not None else Offsets()
        fetched: list[FetchedOffset] = []
        for partition in list(offsets) if partitions is None else partitions:
            if require_stable and offsets.is_unstable(partition):
                fetched.append(FetchedOffset(partition, None, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                fetched.append(FetchedOffset(partition, offsets.get(partition), ErrorCode.NONE))
        return ErrorCode.NONE, fetched

    def delete_offsets(
        self, group_id: str, partitions: Collection[Partition]
    ) -> tuple[ErrorCode, dict[Partition, ErrorCode]]:
        """OffsetDelete (KIP-496): returns a code for the group and, if that is NONE, one for each partition."""
        error = self.unavailable(group_id)
        if error is not ErrorCode.NONE:
            return error, {}
        if (entry := self._entries.get(group_id)) is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, {}
        results = dict.fromkeys(partitions, ErrorCode.NONE)
        if entry.group.state is not GroupState.EMPTY:
            if entry.group.protocol_type != CONSUMER_PROTOCOL_TYPE:
                return ErrorCode.NON_EMPTY_GROUP, {}
            topics = subscribed_topics(entry.group)
            for partition in results:
                if topics is None or partition[0] in topics:
                    results[partition] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        error = self._remove_offsets(entry, [one for one, code in results.items() if code is ErrorCode.NONE])
        return error, results if error is ErrorCode.NONE else {}

    def forget_topic(self, topic: str) -> None:
        """Removes the offsets of a deleted topic, with tombstones. Before KIP-848 this also removes all groups without
        offsets.
        """
        for entry in list(self._entries.values()):
            self._remove_offsets(entry, [partition for partition in entry.offsets.held() if partition[0] == topic])
            if self.settings.old_group_coordinator:
                self._drop_if_unused(entry)

    def _remove_offsets(self, entry: Entry, partitions: Sequence[Partition]) -> ErrorCode:
        """Removes commits in open transactions as well: when they commit, the offsets must not reappear."""
        gone = list(filter(entry.offsets.held().__contains__, partitions))
        try:
            tombstones = [records.offset_record(entry.group.group_id, partition, None) for partition in gone]
            if tombstones:
                self._append(entry.partition_index, tombstones, self._clock.now_ms())
        except Exception as error:
            code = self._error_code(error)
            return COMMIT_WRITE_ERRORS.get(code, code)
        for partition in gone:
            entry.offsets.remove(partition)
        if partitions and self.settings.old_group_coordinator:
            self._drop_if_unused(entry)
        return ErrorCode.NONE

    def expire(self) -> None:
        """Removes expired offsets, and groups with neither members nor offsets (KIP-211)."""
        retention_ms = self.settings.offsets_retention_minutes * 60_000
        for group_id, entry in list(self._entries.items()):
            if not self.unavailable(group_id, may_be_empty=True):
                self._remove_offsets(entry, entry.offsets.expired(entry.group, self._clock.now_ms(), retention_ms))
                self._drop_if_unused(entry)

    def _drop_if_unused(self, entry: Entry) -> None:
        if entry.group.state is GroupState.EMPTY and entry.offsets.unused and entry.group.group_id in self._entries:
            self._feed(entry.group.group_id, Delete(None, only_if_unused=True))

    def _expires_ms(self) -> int | None:
        """Returns the time at which `expire` next has an effect if nothing changes, or None."""
        retention_ms = self.settings.offsets_retention_minutes * 60_000
        found = (entry.offsets.due_ms(entry.group, retention_ms) for entry in self._entries.values())
        return min((due_ms for due_ms in found if due_ms is not None), default=None)

    # --- listing and describing ----------------------------------------------------------------------------------

    def list_groups(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> tuple[ErrorCode, list[ListedGroup]]:
        """ListGroups. Filters ignore case; an empty filter accepts all groups."""
        if not self._active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        groups = listed((entry.group for entry in self._entries.values()), states, types)
        loading = Readiness.LOADING in self._readiness.values()
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE, groups

    def describe(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        """DescribeGroups for one group; None without an error if it does not exist."""
        error = self.unavailable(group_id, may_be_empty=True)
        return error, self.group(group_id) if error is ErrorCode.NONE else None

    def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups for one group, including its offsets, with tombstones."""
        error = self.unavailable(group_id, may_be_empty=True)
        if error is not ErrorCode.NONE:
            return error
        if group_id not in self._entries:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return self._request(group_id, Delete(next(self._tokens))).error

    # --- running the machine -------------------------------------------------------------------------------------

    def _find_or_create(self, group_id: str) -> Entry:
        entry = self._entries.get(group_id)
        if entry is None:
            entry = self._entries[group_id] = Entry(Group(group_id), self.partition_of(group_id))
        return entry

    def _store_created(self, group_id: str) -> ErrorCode:
        """Appends the record of a new group without members, as Kafka does since 4.0. Without a record there is no
        group."""
        entry, now_ms = self._entries[group_id], self._clock.now_ms()
        try:
            created = replace(Group(group_id), state_changed_ms=now_ms)
            self._append(entry.partition_index, [records.group_record(created)], now_ms)
        except Exception as error:
            code = self._error_code(error)
            self._dismiss(self._entries.pop(group_id), code)
            return WRITE_ERRORS.get(code, code)
        return ErrorCode.NONE

    def _drop_if_untouched(self, group_id: str) -> None:
        """Removes a group that only a refused request created, so clients cannot fill the memory with group ids."""
        entry = self._entries.get(group_id)
        if entry is not None and entry.group == Group(group_id) and entry.offsets.unused and not entry.timers:
            del self._entries[group_id]

    def _forget(self, group_id: str) -> None:
        entry = self._entries.pop(group_id)
        for timer in entry.timers.values():
            timer.cancel()
        for token in entry.group.parked_tokens:
            waiting = self._waiting.pop(token, None)
            if waiting is not None:
                waiting.cancel()

    def _request(self, group_id: str, event: Heartbeat | Leave | Commit | Delete) -> Any:
        """Feeds an event whose response is immediate, and returns the response."""
        self._feed(group_id, event)
        assert event.token is not None
        return self._responses.pop(event.token)

    async def _reply_to(self, token: int) -> Response:
        if token in self._responses:
            return self._responses.pop(token)
        future = self._waiting[token] = asyncio.get_running_loop().create_future()
        return await future

    def _respond(self, token: int, response: Response) -> None:
        future = self._waiting.pop(token, None)
        if future is None:
            self._responses[token] = response
        elif not future.done():  # the client of a cancelled future has disconnected
            future.set_result(response)

    def _advance(self, group: Group, event: Event) -> tuple[Group, tuple[Effect, ...]]:
        return advance(group, event, now_ms=self._clock.now_ms(), settings=self._group_settings)

    def _feed(self, group_id: str, event: Event) -> None:
        """Applies the event and carries out its effects; outcomes of writes are fed before any other event."""
        events = [event]
        while events:
            entry = self._entries[group_id]
            entry.group, effects = self._advance(entry.group, events.pop(0))
            for effect in effects:
                outcome = self._perform(entry, effect)
                if outcome is not None:
                    events.append(outcome)

    def _perform(self, entry: Entry, effect: Effect) -> Persisted | PersistFailed | None:
        if isinstance(effect, Reply):
            self._respond(effect.token, effect.response)
        elif isinstance(effect, StartTimer):
            self._cancel_timer(entry, effect.timer)
            from_ms = self._clock.now_ms()
            if self._kept_until_ms is not None and time_left(entry.group, [effect.timer], self._group_settings):
                from_ms = max(from_ms, self._kept_until_ms)
            when_ms = from_ms + effect.delay_ms
            entry.timers[effect.timer] = self._clock.call_at(when_ms, self._fire, entry, effect.timer)
        elif isinstance(effect, CancelTimer):
            self._cancel_timer(entry, effect.timer)
        elif isinstance(effect, Persist):
            return self._persist(entry, effect)
        else:
            self._forget(effect.group_id)
        return None

    def _cancel_timer(self, entry: Entry, name: TimerName) -> None:
        timer = entry.timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _fire(self, entry: Entry, name: TimerName) -> None:
        entry.timers.pop(name, None)
        if self._entries.get(entry.group.group_id) is entry:
            self._feed(entry.group.group_id, name)

    def _persist(self, entry: Entry, write: Persist) -> Persisted | PersistFailed:
        try:
            if write.purpose is Purpose.DELETION:
                held = entry.offsets.held()
                written = [records.offset_record(write.group.group_id, partition, None) for partition in held]
                # Before 4.0 a group without a generation has no record.
                if write.group.generation_id > 0 or not self.settings.old_group_coordinator:
                    written.append(records.group_tombstone(write.group.group_id))
            else:
                written = [records.group_record(write.group)]
            if written:
                self._append(entry.partition_index, written, self._clock.now_ms())
        except Exception as error:
            code = self._error_code(error)
            return PersistFailed(write, WRITE_ERRORS.get(code, code))
        return Persisted(write)
