"""Calls of `Admin` on groups: list, describe, delete, and their committed offsets: list, alter, delete.

A call on one group raises the error of the group; the error of a partition is in its result. Offsets are those stored
in Kafka (0.8.2 and later), never those in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.messages.groups.delete_groups import DeleteGroupsRequest
from ...protocol.messages.groups.list_groups import ListGroupsRequest
from ...protocol.messages.groups.offset_commit import OffsetCommitRequest
from ...protocol.messages.groups.offset_delete import OffsetDeleteRequest
from ...protocol.messages.groups.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ...protocol.messages.share.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ...protocol.messages.share.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ...protocol.messages.share.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from ..consumer.group_offsets import FETCH_OF_GROUPS, OffsetAndMetadata, commit_topics, fetch_request
from ..net.connection import Connection
from ..net.errors import ClientError, KafkaError, UnsupportedVersion
from ..net.metadata import by_topic, partitions_in
from .calls import COORDINATOR_RETRIES, Caller, K, R, checked, failure, requested, sound
from .described_groups import describe_at
from .types import GroupDescription, GroupListing, ShareOffset, TopicPartition

LIST_BY_STATE, LIST_BY_TYPE = 4, 5
FETCH_FROM_KAFKA, FETCH_ALL = 1, 2  # v0 reads from ZooKeeper
COMMIT_TO_KAFKA = 1
WITHOUT_IDS = 9  # v10 of both only replaces topic names by ids
ShareOffsets = dict[TopicPartition, ShareOffset | ClientError | None]
PartitionOffsets = dict[TopicPartition, OffsetAndMetadata | ClientError | None]
Outcomes = dict[TopicPartition, ClientError | None]


class GroupCalls(Caller):
    """The group calls of `Admin`."""

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_s: float | None = None
    ) -> list[GroupListing]:
        """Returns the groups of all brokers, sorted; filtered by state (Kafka 2.6) or type (3.8) if given.

        Raises ClientError, also if only one broker fails.
        """
        wanted_states, wanted_types = list(states), list(types)

        async def send(connection: Connection, left: list[int]) -> dict[int, list[GroupListing] | ClientError]:
            version = connection.version_of(ListGroupsRequest)
            if (wanted_states and version < LIST_BY_STATE) or (wanted_types and version < LIST_BY_TYPE):
                raise UnsupportedVersion("the broker cannot filter groups by state (Kafka 2.6) or type (3.8)")
            request = ListGroupsRequest(states_filter=wanted_states, types_filter=wanted_types)
            response = await connection.request(request, version)
            found = [
                GroupListing(result.group_id, result.protocol_type, result.group_state, result.group_type)
                for result in response.groups
            ]
            return dict.fromkeys(left, failure(response) or found)

        nodes = await self._calls.nodes(timeout_s)
        by_node = checked(await self._calls.at_any(nodes, send, timeout_s, int))
        return sorted({group for found in by_node.values() for group in found})

    async def describe_groups(
        self, groups: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, GroupDescription | ClientError]:
        """Describes groups of every type with their members (0.9 and later).

        The error of a group that does not exist is GROUP_ID_NOT_FOUND in all releases.
        """

        async def send(connection: Connection, left: list[str]) -> dict[str, GroupDescription | ClientError]:
            return await describe_at(connection, left, self._calls.node_of(connection))

        return await self._calls.at_coordinators(groups, send, timeout_s)

    async def delete_groups(
        self, groups: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, ClientError | None]:
        """Deletes groups without members, with their offsets (1.1 and later)."""

        async def send(connection: Connection, left: list[str]) -> dict[str, ClientError | None]:
            response = await connection.request(DeleteGroupsRequest(groups_names=left))
            return {result.group_id: failure(result) for result in response.results}

        return await self._calls.at_coordinators(groups, send, timeout_s)

    async def list_group_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout_s: float | None = None,
    ) -> PartitionOffsets:
        """Returns the committed offsets of `partitions`, None without one; by default of all (OffsetFetch v2).

        `require_stable` waits for offsets in open transactions (2.5 and later). Raises ClientError for the group.
        """
        wanted = None if partitions is None else list(partitions)

        async def send(connection: Connection) -> PartitionOffsets:
            version = connection.version_of(OffsetFetchRequest, WITHOUT_IDS)
            if version < (FETCH_FROM_KAFKA if wanted is not None else FETCH_ALL):
                raise UnsupportedVersion("the broker cannot list all offsets of a group: this needs OffsetFetch v2")
            request = fetch_request(group, wanted, version, require_stable=require_stable)
            response = await connection.request(request, version)
            return _offsets(response, wanted, version)

        return await self._of(group, send, timeout_s)

    async def alter_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        timeout_s: float | None = None,
    ) -> Outcomes:
        """Commits offsets of a group without members; UNKNOWN_MEMBER_ID means that the group has members.

        Raises ClientError for the group.
        """
        stored = {
            where: one if isinstance(one, OffsetAndMetadata) else OffsetAndMetadata(one)
            for where, one in offsets.items()
        }

        async def send(connection: Connection) -> Outcomes:
            cls = OffsetCommitRequest.OffsetCommitRequestTopic
            version = connection.version_of(OffsetCommitRequest, WITHOUT_IDS)
            if version < COMMIT_TO_KAFKA:
                raise UnsupportedVersion("the broker (before Kafka 0.8.2) stores no offsets")
            request = OffsetCommitRequest(
                group_id=group, topics=commit_topics(cls, cls.OffsetCommitRequestPartition, stored)
            )
            return _outcomes(await connection.request(request, version), offsets)

        return await self._of(group, send, timeout_s) if offsets else {}

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> Outcomes:
        """Deletes committed offsets (2.4 and later); GROUP_SUBSCRIBED_TO_TOPIC means that a member has the topic.

        Raises ClientError for the group.
        """
        wanted = list(partitions)
        cls = OffsetDeleteRequest.OffsetDeleteRequestTopic
        parts = by_topic((name, cls.OffsetDeleteRequestPartition(partition_index=number)) for name, number in wanted)
        topics = [cls(name=name, partitions=some) for name, some in parts.items()]

        async def send(connection: Connection) -> Outcomes:
            return _outcomes(await requested(connection, OffsetDeleteRequest(group_id=group, topics=topics)), wanted)

        return await self._of(group, send, timeout_s) if topics else {}

    async def list_share_group_offsets(self, group: str, *, timeout_s: float | None = None) -> ShareOffsets:
        """Returns the start offsets of a share group, None without one (Kafka 4.1 and later).

        Raises ClientError for the group.
        """

        async def send(connection: Connection) -> ShareOffsets:
            cls = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
            request = DescribeShareGroupOffsetsRequest(groups=[cls(group_id=group, topics=None)])
            response = await connection.request(request)
            return _share_offsets(sound(next(iter(response.groups), None)))

        return await self._of(group, send, timeout_s)

    async def alter_share_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> Outcomes:
        """Sets the start offsets of a share group without members; it is created if it does not exist (KIP-932).

        Raises ClientError for the group: NON_EMPTY_GROUP means that it has members.
        """
        cls = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
        make = cls.AlterShareGroupOffsetsRequestPartition
        parts = by_topic((t, make(partition_index=n, start_offset=offset)) for (t, n), offset in offsets.items())
        topics = [cls(topic_name=name, partitions=some) for name, some in parts.items()]

        async def send(connection: Connection) -> Outcomes:
            request = AlterShareGroupOffsetsRequest(group_id=group, topics=topics)
            response = await requested(connection, request)
            found = {where: failure(result) for where, result in partitions_in(response.responses, "topic_name")}
            return _of_each(offsets, found)

        return await self._of(group, send, timeout_s) if offsets else {}

    async def delete_share_group_offsets(
        self, group: str, topics: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, ClientError | None]:
        """Deletes the start offsets of whole topics in a share group without members (KIP-932).

        Raises ClientError for the group: NON_EMPTY_GROUP means that it has members.
        """
        wanted = list(dict.fromkeys(topics))
        cls = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
        request = DeleteShareGroupOffsetsRequest(group_id=group, topics=[cls(topic_name=name) for name in wanted])

        async def send(connection: Connection) -> dict[str, ClientError | None]:
            response = await requested(connection, request)
            found = {one.topic_name: failure(one) for one in response.responses}
            return _of_each(wanted, found)

        return await self._of(group, send, timeout_s) if wanted else {}

    async def _of(self, group: str, send: Callable[[Connection], Awaitable[R]], timeout_s: float | None) -> R:
        """Returns the result of a request to the coordinator of the group. Raises ClientError."""
        return await self._calls.one(send, timeout_s, self._calls.at_coordinators, group)


def _of_each(wanted: Iterable[K], found: Mapping[K, ClientError | None]) -> dict[K, ClientError | None]:
    """Returns the outcome of each key, an error for one that the response does not have."""
    return {key: found.get(key, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)) for key in wanted}


def _share_offsets(group: Any) -> ShareOffsets:
    found: ShareOffsets = {}
    for where, one in partitions_in(group.topics, "topic_name"):
        offset = None
        if one.start_offset >= 0:
            epoch, lag = one.leader_epoch, one.lag
            offset = ShareOffset(one.start_offset, epoch if epoch >= 0 else None, lag if lag >= 0 else None)
        found[where] = failure(one) or offset
    return found


def _offsets(response: OffsetFetchResponse, wanted: list[TopicPartition] | None, version: int) -> PartitionOffsets:
    """Returns the offset or the error of each partition. Raises the error of the group."""
    group = sound(response.groups[0] if version >= FETCH_OF_GROUPS and response.groups else response)
    found: PartitionOffsets = dict.fromkeys(wanted or ())
    for where, one in partitions_in(group.topics):
        wrong = failure(one)
        if wrong is not None and wrong.code in COORDINATOR_RETRIES:  # before v2 the partitions have the group's error
            raise wrong
        if wrong is not None:
            found[where] = wrong
        elif one.committed_offset >= 0:
            found[where] = OffsetAndMetadata(one.committed_offset, one.metadata or "", one.committed_leader_epoch)
    return found


def _outcomes(response: Any, wanted: Iterable[TopicPartition]) -> Outcomes:
    """Returns the outcome of each wanted partition. Raises a coordinator's error, which is that of the whole group."""
    found = {where: failure(result) for where, result in partitions_in(response.topics)}
    moved = next((error for error in found.values() if error is not None and error.code in COORDINATOR_RETRIES), None)
    if moved is not None:
        raise moved
    return _of_each(wanted, found)
