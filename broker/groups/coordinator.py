"""The group coordinator: runs the state machine of the classic protocol with timers, delayed requests and the log.

Owns the offsets of all groups, and what requests about groups of any kind have in common; `consumer_groups` and
`share_groups` run the groups of these kinds, `StreamsGroups` those of streams applications. Uses no sockets, topics or
files: these are arguments. All methods run on the event loop and return without waiting, except `join` and `sync`,
which may await a future. State is appended to the log before it takes effect in memory.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from ...protocol.errors import ErrorCode
from ...protocol.named import NamedTuple
from ...storage.format.partition_metadata import encode_id
from ..clock import Clock, Timer
from ..errors import code_of
from ..futures import settled
from . import common_events, records
from .classic.machine import advance
from .classic.moves import time_left
from .classic.state import (
    CONSUMER_PROTOCOL_TYPE,
    Commit,
    Delete,
    Effect,
    Event,
    Group,
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
    Sync,
    SyncReply,
)
from .classic.subscription import subscribed_topics
from .common_events import CancelTimer, StartTimer
from .common_state import GroupState
from .consumer.events import Caller
from .consumer.state import Group as ConsumerGroup
from .consumer_groups import ConsumerGroups
from .loading import load_groups
from .member_commits import MEMBERS_IN_TRANSACTIONS_SINCE, commit_error, fetch_error
from .offsets import CommittedOffset, FetchedOffset, Offsets, OpenTransactions, Partition
from .registry import (
    AnyGroup,
    Append,
    AppendTransactional,
    Entry,
    Readiness,
    Registry,
    expiry,
    group_tombstones,
    offset_tombstones,
)
from .runner import GroupRunner
from .settings import COMMIT_WRITE_ERRORS, WRITE_ERRORS, CoordinatorSettings
from .share.events import OffsetsReply
from .share.state import Group as ShareGroup
from .share_groups import ShareGroups
from .streams import machine as streams_machine
from .streams.events import HeartbeatReply as StreamsHeartbeatReply
from .streams.records import FORMS as STREAMS_FORMS
from .streams.state import Group as StreamsGroup
from .topics import TopicLookup

UNKNOWN_GROUP_SINCE = 9
"""The version of OffsetCommit from which on a member of an unknown group gets GROUP_ID_NOT_FOUND."""


class StreamsGroups(GroupRunner):
    """The streams groups in a registry (KIP-1071)."""

    group_class = StreamsGroup
    forms = STREAMS_FORMS
    decide = staticmethod(streams_machine.decide)
    replies = streams_machine.REPLIES
    reply_class = StreamsHeartbeatReply

    def _converted(self, entry: Entry, classic: Group) -> list[Any] | None:
        return [] if entry.is_empty else None


class ListedGroup(NamedTuple):
    """A group in the response to ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


class GroupCoordinator:
    """All groups of this broker."""

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
        self._registry = Registry(
            append=append,
            partitions=partitions,
            clock=clock,
            topics=topics,
            settings=settings or CoordinatorSettings(),
            error_code=error_code,
        )
        self.topics = topics
        self.configs: Callable[[str], Mapping[str, str]] = lambda group_id: {}
        """Returns the configs of a group by its id."""
        self.may_describe: Callable[[str, Caller], bool] = lambda name, caller: True
        """Whether a member may describe a topic that matches a regular expression."""
        self._consumer_groups = ConsumerGroups(
            self._registry,
            new_id=lambda: _base64(self._new_uuid()),
            configs=lambda group_id: self.configs(group_id),
            may_describe=lambda name, caller: self.may_describe(name, caller),
            become_classic=self._become_classic,
        )
        self.share_groups = ShareGroups(self._registry, lambda group_id: self.configs(group_id))
        self.streams_groups = StreamsGroups(self._registry, lambda group_id: self.configs(group_id))
        self._runners: Mapping[str, GroupRunner] = {
            runner.group_class.kind: runner
            for runner in (self._consumer_groups, self.share_groups, self.streams_groups)
        }
        self._append_transactional = append_transactional
        self._clock = clock
        self._new_uuid = new_uuid
        self._entries = self._registry.entries
        self._responses = self._registry.responses
        self._leads: Callable[[int], bool] | None = None
        self._open = OpenTransactions()
        self._order = itertools.count(1)
        self._sweep: Timer | None = None

    @property
    def settings(self) -> CoordinatorSettings:
        return self._registry.settings

    @settings.setter
    def settings(self, settings: CoordinatorSettings) -> None:
        self._registry.settings = settings

    @property
    def partitions(self) -> int:
        """The partition count of `__consumer_offsets`."""
        return self._registry.partitions

    def at_node(self, leads: Callable[[int], bool]) -> GroupCoordinator:
        """Returns this coordinator as a request to one node sees it: groups outside the partitions of the log that the
        node `leads` get NOT_COORDINATOR. Needed with several nodes, and before `__consumer_offsets` exists. Not to be
        kept after the request: it does not see what is assigned to the coordinator later.
        """
        seen = copy.copy(self)
        seen._leads = leads
        return seen

    # --- start, load and close -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the periodic check for expired offsets, every offsets.retention.check.interval.ms."""
        interval_ms = self.settings.offsets_retention_check_interval_ms
        self._sweep = self._clock.call_every(interval_ms, self.expire, self._expires_ms)

    def close(self) -> None:
        """Stops all timers and responds to delayed requests with COORDINATOR_NOT_AVAILABLE."""
        self._registry.is_active = False
        if self._sweep is not None:
            self._sweep.cancel()
        for entry in self._entries.values():
            self._registry.dismiss(entry, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def resign(self, partition_index: int) -> None:
        """Removes the groups of a partition whose log went offline; their clients get NOT_COORDINATOR."""
        self._registry.readiness[partition_index] = Readiness.RESIGNED
        for group_id in self._registry.of_partition(partition_index):
            self._registry.dismiss(self._entries.pop(group_id), ErrorCode.NOT_COORDINATOR)

    def has_resigned(self, group_id: str) -> bool:
        """Returns whether this coordinator resigned from the group's partition."""
        return self._registry.readiness.get(self.partition_of(group_id)) is Readiness.RESIGNED

    def begin_loading(self, partition_index: int) -> None:
        """Makes the groups of this partition respond with COORDINATOR_LOAD_IN_PROGRESS until `load`."""
        self._registry.readiness[partition_index] = Readiness.LOADING

    def load(self, partition_index: int, log: Iterable[records.LogEntry]) -> ErrorCode:
        """Restores offsets and groups from the partition's log, oldest record first; sessions of members start now.

        Returns the error code if the log cannot be read; the groups of the partition are then unavailable.
        """
        for group_id in self._registry.of_partition(partition_index):
            self._registry.forget(group_id)
        try:
            loaded = load_groups(log, self._order, self.settings.consumer.first_epoch)
        except Exception as error:
            self._registry.readiness[partition_index] = Readiness.FAILED
            return self._registry.error_code(error)
        for group_id, (group, offsets) in loaded.items():
            self._entries[group_id] = Entry(group, partition_index, offsets)
            for producer_id in offsets.pending_producers():
                self._open.note(partition_index, producer_id, group_id)
        self._registry.readiness.pop(partition_index, None)
        for group_id in loaded:
            entry = self._entries[group_id]
            if isinstance(entry.group, Group):
                self._feed(group_id, Loaded())
            else:
                self._runners[entry.group.kind].feed(entry, common_events.Loaded())
        return ErrorCode.NONE

    def partition_of(self, group_id: str) -> int:
        """Returns the partition of `__consumer_offsets` for the group."""
        return self._registry.partition_of(group_id)

    def group(self, group_id: str) -> AnyGroup | None:
        """Returns the current state of the group, or None."""
        entry = self._entries.get(group_id)
        return entry.group if entry is not None else None

    def offsets(self, group_id: str) -> dict[Partition, CommittedOffset]:
        """Returns all committed offsets of the group."""
        entry = self._entries.get(group_id)
        return dict(entry.offsets.as_mapping()) if entry is not None else {}

    def unavailable(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Returns why the group cannot be served now, or NONE."""
        if (group_id or may_be_empty) and not self._is_led(group_id):
            return ErrorCode.NOT_COORDINATOR
        return self._registry.unavailable(group_id, may_be_empty=may_be_empty)

    def _is_led(self, group_id: str) -> bool:
        return self._leads is None or self._leads(self.partition_of(group_id))

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
        entry = self._find_or_create(group_id)
        if isinstance(entry.group, ShareGroup) or (isinstance(entry.group, StreamsGroup) and not entry.is_empty):
            return JoinReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        if isinstance(entry.group, ConsumerGroup | StreamsGroup):
            if not entry.is_empty:
                new_id = "" if member_id else self._consumer_groups.new_id()
                return self._consumer_groups.feed(entry, Join(self._responses.token(), new_id, request))
            if member_id:
                return JoinReply(ErrorCode.UNKNOWN_MEMBER_ID, member_id)
            error = self._runners[entry.group.kind].make_classic(entry)
            if error is not ErrorCode.NONE:
                return JoinReply(error, member_id)
            is_new = True
        name = request.client_id if request.instance_id is None else request.instance_id
        event = Join(self._responses.token(), "" if member_id else f"{name}-{self._new_uuid()}", request)
        self._feed(group_id, event)
        self._drop_if_untouched(group_id)
        if is_new and group_id in self._entries and not self.settings.old_group_coordinator:
            error = self._store_created(group_id)
            if error is not ErrorCode.NONE:
                self._responses.drop(event.token)
                return JoinReply(error, member_id)
        reply = await settled(self._responses.take(event.token))
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
        elif error is ErrorCode.NONE and not self._has_members_of_classic(group_id):
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE:
            return SyncReply(error)
        event = Sync(
            token=self._responses.token(),
            member_id=member_id,
            instance_id=instance_id,
            generation_id=generation_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=tuple(assignments),
        )
        entry = self._entries[group_id]
        if isinstance(entry.group, ConsumerGroup):
            return self._consumer_groups.feed(entry, event)
        self._feed(group_id, event)
        reply = await settled(self._responses.take(event.token))
        assert isinstance(reply, SyncReply)
        return reply

    def heartbeat(self, group_id: str, *, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        """Heartbeat. Returns NONE while the group is being loaded: its sessions have not started."""
        error = self.unavailable(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return ErrorCode.NONE
        if error is not ErrorCode.NONE:
            return error
        if not self._has_members_of_classic(group_id):
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self._request(group_id, Heartbeat(self._responses.token(), member_id, instance_id, generation_id)).error

    def member_heartbeat(self, kind: str, group_id: str, event: Any) -> Any:
        """ConsumerGroupHeartbeat, ShareGroupHeartbeat or StreamsGroupHeartbeat; the request was checked."""
        error, runner = self.unavailable(group_id), self._runners[kind]
        return runner.reply_class(error) if error else runner.heartbeat(group_id, event)

    async def alter_share_offsets(self, group_id: str, offsets: Mapping[str, Mapping[int, int]]) -> OffsetsReply:
        """AlterShareGroupOffsets: new start offsets, by topic and partition."""
        error = self.unavailable(group_id)
        return OffsetsReply(error) if error else await self.share_groups.alter_offsets(group_id, offsets)

    async def delete_share_offsets(self, group_id: str, topics: tuple[str, ...]) -> OffsetsReply:
        """DeleteShareGroupOffsets: removes the state of topics."""
        error = self.unavailable(group_id)
        return OffsetsReply(error) if error else await self.share_groups.delete_offsets(group_id, topics)

    async def delete_share_group(self, group_id: str) -> ErrorCode:
        """DeleteGroups of a share group, after its state."""
        return self.unavailable(group_id) or await self.share_groups.delete(group_id)

    def _has_members_of_classic(self, group_id: str) -> bool:
        """Returns whether the group exists and may have members with the classic protocol."""
        entry = self._entries.get(group_id)
        return entry is not None and not isinstance(entry.group, ShareGroup | StreamsGroup)

    def leave(self, group_id: str, members: Sequence[tuple[str, str | None]]) -> LeaveReply:
        """LeaveGroup; `members` are pairs (member id, instance id)."""
        error = self.unavailable(group_id)
        if error is not ErrorCode.NONE:
            return LeaveReply(error)
        if not self._has_members_of_classic(group_id):
            group = Group(group_id)
            reply = next(
                effect.response
                for effect in self._advance(group, Leave(0, tuple(members)))[1]
                if isinstance(effect, Reply)
            )
        else:
            reply = self._request(group_id, Leave(self._responses.token(), tuple(members)))
        assert isinstance(reply, LeaveReply)
        return reply

    def refresh_members(self, until_ms: int) -> None:
        """Keeps members alive while the clock moves to `until_ms`, as if each sent a heartbeat at that time.

        Members that still have to join or sync get their full timeout after `until_ms`. This also applies to sessions
        and joins that start during the move, until `refreshed` is called.
        """
        self._registry.kept_until_ms = until_ms
        for entry in self._entries.values():
            left: Mapping[Any, int]
            if isinstance(entry.group, Group):
                left, fire = time_left(entry.group, entry.timers, self.settings), self._fire
            else:
                runner = self._runners[entry.group.kind]
                left, fire = runner.time_left(entry), runner.feed
            for name, delay_ms in left.items():
                self._registry.start_timer(entry, name, delay_ms, fire, keeps=True)

    def refreshed(self) -> None:
        """Ends the clock move started by `refresh_members`."""
        self._registry.kept_until_ms = None

    # --- offsets -------------------------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        *,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        commits: Sequence[tuple[Partition, CommittedOffset]],
        api_version: int = 0,
        producer: tuple[int, int] | None = None,
    ) -> ErrorCode:
        """OffsetCommit, and TxnOffsetCommit with `producer` (id, epoch). The returned code applies to all `commits`.

        Empty `commits` create the group as well. `api_version` is that of OffsetCommit, or of TxnOffsetCommit.
        """
        error = self.unavailable(group_id, may_be_empty=producer is None)
        if error is not ErrorCode.NONE:
            return error
        if (is_new := group_id not in self._entries) and generation_id >= 0:
            return self._unknown_group(api_version, producer)
        entry = self._find_or_create(group_id)
        transactional = producer is not None
        check = Commit(self._responses.token(), member_id, instance_id, generation_id, transactional=transactional)
        if isinstance(entry.group, ShareGroup):
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif isinstance(entry.group, ConsumerGroup | StreamsGroup):
            error = commit_error(
                entry.group,
                check,
                self.settings.consumer,
                api_version=api_version,
                partitions=(partition for partition, _ in commits),
                id_of=self.topics.id_of,
            )
        else:
            error = self._request(group_id, check).error
        if error is ErrorCode.NONE and commits:
            error = self._write_commits(entry, commits, producer)
        if is_new and error is not ErrorCode.NONE:
            self._drop_if_untouched(group_id)
        return error

    def _unknown_group(self, api_version: int, producer: tuple[int, int] | None) -> ErrorCode:
        """Returns the error of a member that commits to a group that does not exist."""
        if producer is not None and api_version < MEMBERS_IN_TRANSACTIONS_SINCE:
            return ErrorCode(self.settings.absent_group_code)
        if producer is not None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if api_version >= UNKNOWN_GROUP_SINCE and not self.settings.old_group_coordinator:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION

    def _write_commits(
        self, entry: Entry, commits: Sequence[tuple[Partition, CommittedOffset]], producer: tuple[int, int] | None
    ) -> ErrorCode:
        group_id, now_ms = entry.group.group_id, self._clock.now_ms()
        try:
            written = [records.offset_record(group_id, partition, committed) for partition, committed in commits]
            if producer is None:
                self._registry.append(entry.partition_index, written, now_ms)
            elif self._append_transactional is None:
                return ErrorCode.UNSUPPORTED_VERSION
            else:
                self._append_transactional(entry.partition_index, written, now_ms, *producer)
                self._open.note(entry.partition_index, producer[0], group_id)
        except Exception as error:
            code = self._registry.error_code(error)
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
        self,
        group_id: str,
        partitions: Iterable[Partition] | None,
        *,
        require_stable: bool,
        member_id: str | None = None,
        epoch: int = -1,
    ) -> tuple[ErrorCode, list[FetchedOffset]]:
        """OffsetFetch for one group; `partitions` None means all. A partition without a commit has neither offset nor
        error. The member id and epoch (v9) are those of a member of the consumer protocol.
        """
        error = self.unavailable(group_id, may_be_empty=True)
        if error is not ErrorCode.NONE:
            return error, []
        entry = self._entries.get(group_id)
        if entry is not None and isinstance(entry.group, ConsumerGroup | StreamsGroup):
            error = fetch_error(entry.group, member_id, epoch)
            if error is not ErrorCode.NONE:
                return error, []
        if entry is not None and isinstance(entry.group, ShareGroup):
            return ErrorCode.GROUP_ID_NOT_FOUND, []
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
        if (entry := self._entries.get(group_id)) is None or isinstance(entry.group, ShareGroup):
            return ErrorCode.GROUP_ID_NOT_FOUND, {}
        results = dict.fromkeys(partitions, ErrorCode.NONE)
        if not entry.is_empty:
            if entry.group.protocol_type not in (CONSUMER_PROTOCOL_TYPE, StreamsGroup.kind):
                return ErrorCode.NON_EMPTY_GROUP, {}
            group = entry.group
            topics = subscribed_topics(group) if isinstance(group, Group) else group.subscribed_topics
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
        tombstones = [records.offset_record(entry.group.group_id, partition, None) for partition in gone]
        code = self._registry.write(entry, tombstones)
        if code is not ErrorCode.NONE:
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
                expired = entry.offsets.expired(expiry(entry.group), self._clock.now_ms(), retention_ms)
                self._remove_offsets(entry, expired)
                self._drop_if_unused(entry)

    def _drop_if_unused(self, entry: Entry) -> None:
        if entry.group.group_id not in self._entries or isinstance(entry.group, ShareGroup):
            return  # a share group stays until it is deleted
        if not entry.is_empty or not entry.offsets.unused:
            return
        if isinstance(entry.group, Group):
            self._feed(entry.group.group_id, Delete(None, only_if_unused=True))
        else:
            self._runners[entry.group.kind].feed(entry, common_events.Delete())

    def _expires_ms(self) -> int | None:
        """Returns the time at which `expire` next has an effect if nothing changes, or None."""
        retention_ms = self.settings.offsets_retention_minutes * 60_000
        found = [entry.offsets.due_ms(expiry(entry.group), retention_ms) for entry in self._entries.values()]
        disposable = (entry for entry in self._entries.values() if not isinstance(entry.group, ShareGroup))
        if any(entry.is_empty and entry.offsets.unused for entry in disposable):
            return 0  # such a group goes with the next check
        return min((due_ms for due_ms in found if due_ms is not None), default=None)

    # --- listing and describing ----------------------------------------------------------------------------------

    def list_groups(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> tuple[ErrorCode, list[ListedGroup]]:
        """ListGroups. Filters ignore case; an empty filter accepts all groups."""
        if not self._registry.is_active:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
        wanted_states = {state.strip().lower() for state in states}
        wanted_types = {wanted.lower() for wanted in types}
        groups = [
            ListedGroup(group.group_id, group.protocol_type or "", group.state.value, group.kind)
            for group in (entry.group for entry in self._entries.values())
            if self._is_led(group.group_id)
            and (not wanted_states or _filtered_by(group) in wanted_states)
            and (not wanted_types or group.kind in wanted_types)
        ]
        loading = Readiness.LOADING in self._registry.readiness.values()
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE, groups

    def describe(self, group_id: str) -> tuple[ErrorCode, AnyGroup | None]:
        """DescribeGroups and ConsumerGroupDescribe for one group; None without an error if it does not exist."""
        error = self.unavailable(group_id, may_be_empty=True)
        return error, self.group(group_id) if error is ErrorCode.NONE else None

    def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups for one group but a share group, including its offsets, with tombstones."""
        error = self.unavailable(group_id, may_be_empty=True)
        if error is not ErrorCode.NONE:
            return error
        if group_id not in self._entries:
            return ErrorCode.GROUP_ID_NOT_FOUND
        entry = self._entries[group_id]
        if isinstance(entry.group, ConsumerGroup | StreamsGroup):
            return self._runners[entry.group.kind].feed(entry, common_events.Delete()).error
        return self._request(group_id, Delete(self._responses.token())).error

    # --- running the machine -------------------------------------------------------------------------------------

    def _find_or_create(self, group_id: str) -> Entry:
        entry = self._entries.get(group_id)
        return self._registry.add(Group(group_id)) if entry is None else entry

    def _store_created(self, group_id: str) -> ErrorCode:
        """Appends the record of a new group without members, as Kafka does since 4.0. Without a record there is no
        group."""
        entry = self._entries[group_id]
        created = replace(Group(group_id), state_changed_ms=self._clock.now_ms())
        code = self._registry.write(entry, [records.group_record(created)])
        if code is not ErrorCode.NONE:
            self._registry.dismiss(self._entries.pop(group_id), code)
        return WRITE_ERRORS.get(code, code)

    def _drop_if_untouched(self, group_id: str) -> None:
        """Removes a group that only a refused request created, so clients cannot fill the memory with group ids."""
        entry = self._entries.get(group_id)
        if entry is not None and entry.group == Group(group_id) and entry.offsets.unused and not entry.timers:
            del self._entries[group_id]

    def _become_classic(self, entry: Entry, group: Group, rebalances: bool) -> None:
        """Replaces a group of the consumer protocol, after its record was written."""
        entry.group = group
        self._feed(group.group_id, Loaded(rebalances))

    def _request(self, group_id: str, event: Heartbeat | Leave | Commit | Delete) -> Any:
        """Feeds an event whose response is immediate, and returns the response."""
        entry = self._entries[group_id]
        if isinstance(entry.group, ConsumerGroup):
            assert isinstance(event, Heartbeat | Leave)
            return self._consumer_groups.feed(entry, event)
        self._feed(group_id, event)
        assert event.token is not None
        return self._responses.take(event.token)

    def _advance(self, group: Group, event: Event) -> tuple[Group, tuple[Effect, ...]]:
        return advance(group, event, now_ms=self._clock.now_ms(), settings=self.settings)

    def _feed(self, group_id: str, event: Event) -> None:
        """Applies the event and carries out its effects; outcomes of writes are fed before any other event."""
        events = [event]
        while events:
            entry = self._entries[group_id]
            assert isinstance(entry.group, Group)
            entry.group, effects = self._advance(entry.group, events.pop(0))
            for effect in effects:
                outcome = self._perform(entry, effect)
                if outcome is not None:
                    events.append(outcome)

    def _perform(self, entry: Entry, effect: Effect) -> Persisted | PersistFailed | None:
        if isinstance(effect, Reply):
            self._responses.respond(effect.token, effect.response)
        elif isinstance(effect, StartTimer):
            assert isinstance(entry.group, Group)
            is_moved = self._registry.kept_until_ms is not None
            keeps = is_moved and bool(time_left(entry.group, [effect.timer], self.settings))
            self._registry.start_timer(entry, effect.timer, effect.delay_ms, self._fire, keeps=keeps)
        elif isinstance(effect, CancelTimer):
            entry.cancel_timer(effect.timer)
        elif isinstance(effect, Persist):
            return self._persist(entry, effect)
        else:
            self._registry.forget(entry.group.group_id)
        return None

    def _fire(self, entry: Entry, name: Any) -> None:
        self._feed(entry.group.group_id, name)

    def _persist(self, entry: Entry, write: Persist) -> Persisted | PersistFailed:
        if write.purpose is Purpose.DELETION:
            written = offset_tombstones(entry) + group_tombstones(entry, self.settings)
        else:
            try:
                written = [records.group_record(write.group)]
            except Exception as error:
                code = self._registry.error_code(error)
                return PersistFailed(write, WRITE_ERRORS.get(code, code))
        code = self._registry.write(entry, written)
        if code is not ErrorCode.NONE:
            return PersistFailed(write, WRITE_ERRORS.get(code, code))
        return Persisted(write)


def _filtered_by(group: AnyGroup) -> str:
    """Returns the name of a group's state in filters, which for NotReady is not that of the response."""
    return "not_ready" if group.state is GroupState.NOT_READY else group.state.value.lower()


def _base64(text: str) -> str:
    """Returns an id as Kafka writes uuids: in base64 for URLs, without padding."""
    try:
        raw = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        return text
    return encode_id(raw)
