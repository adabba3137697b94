"""The groups that one node coordinates.

Returns NOT_COORDINATOR, in the form of each request, for a group that another node coordinates; all other calls go to
the `GroupCoordinator`. Needed with several nodes, and before `__consumer_offsets` exists.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ...protocol.errors import ErrorCode
from .classic.state import JoinReply, JoinRequest, LeaveReply, SyncReply
from .consumer.events import HeartbeatReply, HeartbeatRequest
from .coordinator import GroupCoordinator
from .listing import ListedGroup
from .offsets import CommittedOffset, FetchedOffset, Partition
from .registry import AnyGroup
from .settings import CoordinatorSettings
from .share.events import Heartbeat as ShareHeartbeat
from .share.events import HeartbeatReply as ShareHeartbeatReply
from .share.events import Leave as ShareLeave
from .share.events import OffsetsReply
from .streams.events import Heartbeat as StreamsHeartbeat
from .streams.events import HeartbeatReply as StreamsHeartbeatReply
from .streams.events import MemberLeave as StreamsLeave
from .topics import TopicLookup


class GroupsAtNode:
    """The interface of a `GroupCoordinator` for handlers, limited to groups whose partition of `__consumer_offsets` the
    node `leads`.
    """

    def __init__(self, groups: GroupCoordinator, leads: Callable[[int], bool]) -> None:
        self._groups = groups
        self._leads = leads

    @property
    def settings(self) -> CoordinatorSettings:
        return self._groups.settings

    @property
    def topics(self) -> TopicLookup:
        return self._groups.topics

    def unavailable(self, group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
        """Returns why the group cannot be served on this node, or NONE."""
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        if not self._leads(self._groups.partition_of(group_id)):
            return ErrorCode.NOT_COORDINATOR
        return self._groups.unavailable(group_id, may_be_empty=may_be_empty)

    def _elsewhere(self, group_id: str, *, may_be_empty: bool = False) -> bool:
        return self.unavailable(group_id, may_be_empty=may_be_empty) is ErrorCode.NOT_COORDINATOR

    async def join(self, group_id: str, request: JoinRequest) -> JoinReply:
        """JoinGroup. See `GroupCoordinator.join`."""
        if self._elsewhere(group_id):
            return JoinReply(ErrorCode.NOT_COORDINATOR, request.member_id)
        return await self._groups.join(group_id, request)

    async def sync(self, group_id: str, **more: Any) -> SyncReply:
        """SyncGroup. See `GroupCoordinator.sync`."""
        if self._elsewhere(group_id):
            return SyncReply(ErrorCode.NOT_COORDINATOR)
        return await self._groups.sync(group_id, **more)

    def heartbeat(self, group_id: str, **more: Any) -> ErrorCode:
        """Heartbeat. See `GroupCoordinator.heartbeat`."""
        return ErrorCode.NOT_COORDINATOR if self._elsewhere(group_id) else self._groups.heartbeat(group_id, **more)

    def consumer_heartbeat(self, group_id: str, request: HeartbeatRequest) -> HeartbeatReply:
        """ConsumerGroupHeartbeat. See `GroupCoordinator.consumer_heartbeat`."""
        if self._elsewhere(group_id):
            return HeartbeatReply(ErrorCode.NOT_COORDINATOR)
        return self._groups.consumer_heartbeat(group_id, request)

    def share_heartbeat(self, group_id: str, event: ShareHeartbeat | ShareLeave) -> ShareHeartbeatReply:
        """ShareGroupHeartbeat. See `GroupCoordinator.share_heartbeat`."""
        if self._elsewhere(group_id):
            return ShareHeartbeatReply(ErrorCode.NOT_COORDINATOR)
        return self._groups.share_heartbeat(group_id, event)

    def streams_heartbeat(self, group_id: str, event: StreamsHeartbeat | StreamsLeave) -> StreamsHeartbeatReply:
        """StreamsGroupHeartbeat. See `GroupCoordinator.streams_heartbeat`."""
        if self._elsewhere(group_id):
            return StreamsHeartbeatReply(ErrorCode.NOT_COORDINATOR)
        return self._groups.streams_heartbeat(group_id, event)

    async def alter_share_offsets(self, group_id: str, offsets: Mapping[str, Mapping[int, int]]) -> OffsetsReply:
        """AlterShareGroupOffsets. See `GroupCoordinator.alter_share_offsets`."""
        if self._elsewhere(group_id):
            return OffsetsReply(ErrorCode.NOT_COORDINATOR)
        return await self._groups.alter_share_offsets(group_id, offsets)

    async def delete_share_offsets(self, group_id: str, topics: tuple[str, ...]) -> OffsetsReply:
        """DeleteShareGroupOffsets. See `GroupCoordinator.delete_share_offsets`."""
        if self._elsewhere(group_id):
            return OffsetsReply(ErrorCode.NOT_COORDINATOR)
        return await self._groups.delete_share_offsets(group_id, topics)

    async def delete_share_group(self, group_id: str) -> ErrorCode:
        """DeleteGroups of a share group. See `GroupCoordinator.delete_share_group`."""
        if self._elsewhere(group_id):
            return ErrorCode.NOT_COORDINATOR
        return await self._groups.delete_share_group(group_id)

    def leave(self, group_id: str, members: Sequence[tuple[str, str | None]]) -> LeaveReply:
        """LeaveGroup. See `GroupCoordinator.leave`."""
        if self._elsewhere(group_id):
            return LeaveReply(ErrorCode.NOT_COORDINATOR)
        return self._groups.leave(group_id, members)

    def commit(self, group_id: str, *, commits: Sequence[tuple[Partition, CommittedOffset]], **more: Any) -> ErrorCode:
        """OffsetCommit and TxnOffsetCommit. See `GroupCoordinator.commit`."""
        if self._elsewhere(group_id, may_be_empty=True):
            return ErrorCode.NOT_COORDINATOR
        return self._groups.commit(group_id, commits=commits, **more)

    def fetch(
        self, group_id: str, partitions: Iterable[Partition] | None, **more: Any
    ) -> tuple[ErrorCode, list[FetchedOffset]]:
        """OffsetFetch. See `GroupCoordinator.fetch`."""
        if self._elsewhere(group_id, may_be_empty=True):
            return ErrorCode.NOT_COORDINATOR, []
        return self._groups.fetch(group_id, partitions, **more)

    def delete_offsets(
        self, group_id: str, partitions: Collection[Partition]
    ) -> tuple[ErrorCode, dict[Partition, ErrorCode]]:
        """OffsetDelete. See `GroupCoordinator.delete_offsets`."""
        if self._elsewhere(group_id):
            return ErrorCode.NOT_COORDINATOR, {}
        return self._groups.delete_offsets(group_id, partitions)

    def describe(self, group_id: str) -> tuple[ErrorCode, AnyGroup | None]:
        """DescribeGroups. See `GroupCoordinator.describe`."""
        if self._elsewhere(group_id, may_be_empty=True):
            return ErrorCode.NOT_COORDINATOR, None
        return self._groups.describe(group_id)

    def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups. See `GroupCoordinator.delete`."""
        if self._elsewhere(group_id, may_be_empty=True):
            return ErrorCode.NOT_COORDINATOR
        return self._groups.delete(group_id)

    def list_groups(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> tuple[ErrorCode, list[ListedGroup]]:
        """ListGroups: the groups that this node coordinates."""
        error, found = self._groups.list_groups(states, types)
        return error, [one for one in found if self._leads(self._groups.partition_of(one.group_id))]
