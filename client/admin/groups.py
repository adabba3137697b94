"""Calls of `Admin` on groups: list, describe, delete, and their committed offsets: list, alter, delete.

A call on one group raises the error of the group; the error of a partition is in its result. Offsets are those stored
in Kafka (0.8.2 and later), never those in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from ..consumer.group_offsets import OffsetAndMetadata
from ..net.connection import Connection
from ..net.errors import ClientError, KafkaError, UnsupportedVersion
from .calls import COORDINATOR_RETRIES, Calls, checked, failure, of_one
from .described_groups import describe_at
from .logs import by_topic
from .types import GroupDescription, GroupListing, ShareOffset, TopicPartition

LIST_BY_STATE, LIST_BY_TYPE = 4, 5
FETCH_FROM_KAFKA, FETCH_ALL, FETCH_STABLE, FETCH_OF_GROUPS = 1, 2, 7, 8  # v0 reads from ZooKeeper
COMMIT_TO_KAFKA = 1
WITHOUT_IDS = 9  # v10 of both only replaces topic names by ids
ShareOffsets = dict[TopicPartition, ShareOffset | ClientError | None]
PartitionOffsets = dict[TopicPartition, OffsetAndMetadata | ClientError | None]
Outcomes = dict[TopicPartition, ClientError | None]


class GroupCalls:
    """The group calls of `Admin`."""

    _calls: Calls

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
            return dict.fromkeys(left, failure(response.error_code) or found)

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
            return await describe_at(connection, left, self._node_of(connection))

        return await self._calls.at_coordinators(groups, send, timeout_s)

    async def delete_groups(
        self, groups: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, ClientError | None]:
        """Deletes groups without members, with their offsets (1.1 and later)."""

        async def send(connection: Connection, left: list[str]) -> dict[str, ClientError | None]:
            response = await connection.request(DeleteGroupsRequest(groups_names=left))
            return {result.group_id: failure(result.error_code) for result in response.results}

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

        async def send(connection: Connection, keys: list[str]) -> dict[str, PartitionOffsets | ClientError]:
            version = connection.version_of(OffsetFetchRequest, WITHOUT_IDS)
            if version < (FETCH_FROM_KAFKA if wanted is not None else FETCH_ALL):
                raise UnsupportedVersion("the broker cannot list all offsets of a group: this needs OffsetFetch v2")
            request = _fetch_request(group, wanted, version, require_stable and version >= FETCH_STABLE)
            response = await connection.request(request, version)
            return {group: _offsets(response, wanted, version)}

        return of_one(await self._calls.at_coordinators([group], send, timeout_s))

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

        async def send(connection: Connection, keys: list[str]) -> dict[str, Outcomes | ClientError]:
            version = connection.version_of(OffsetCommitRequest, WITHOUT_IDS)
            if version < COMMIT_TO_KAFKA:
                raise UnsupportedVersion("the broker (before Kafka 0.8.2) stores no offsets")
            response = await connection.request(_commit_request(group, offsets), version)
            return {group: _outcomes(response, offsets)}

        if not offsets:
            return {}
        return of_one(await self._calls.at_coordinators([group], send, timeout_s))

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> Outcomes:
        """Deletes committed offsets (2.4 and later); GROUP_SUBSCRIBED_TO_TOPIC means that a member has the topic.

        Raises ClientError for the group.
        """
        wanted = list(partitions)
        cls = OffsetDeleteRequest.OffsetDeleteRequestTopic
        topics = [
            cls(name=name, partitions=[cls.OffsetDeleteRequestPartition(partition_index=number) for number in numbers])
            for name, numbers in by_topic(wanted).items()
        ]

        async def send(connection: Connection, keys: list[str]) -> dict[str, Outcomes | ClientError]:
            response = await connection.request(OffsetDeleteRequest(group_id=group, topics=topics))
            return {group: failure(response.error_code) or _outcomes(response, wanted)}

        if not topics:
            return {}
        return of_one(await self._calls.at_coordinators([group], send, timeout_s))

    async def list_share_group_offsets(self, group: str, *, timeout_s: float | None = None) -> ShareOffsets:
        """Returns the start offsets of a share group, None without one (Kafka 4.1 and later).

        Raises ClientError for the group.
        """

        async def send(connection: Connection, keys: list[str]) -> dict[str, ShareOffsets | ClientError]:
            cls = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
            request = DescribeShareGroupOffsetsRequest(groups=[cls(group_id=group, topics=None)])
            response = await connection.request(request)
            (found,) = response.groups[:1] or (None,)
            if found is None:
                return {}
            return {group: failure(found.error_code, found.error_message) or _share_offsets(found)}

        return of_one(await self._calls.at_coordinators([group], send, timeout_s))

    async def alter_share_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], *, timeout_s: float | None = None
    ) -> Outcomes:
        """Sets the start offsets of a share group without members; it is created if it does not exist (KIP-932).

        Raises ClientError for the group: NON_EMPTY_GROUP means that it has members.
        """
        topic = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
        place = topic.AlterShareGroupOffsetsRequestPartition
        topics = [
            topic(
                topic_name=name, partitions=[place(partition_index=n, start_offset=offsets[name, n]) for n in numbers]
            )
            for name, numbers in by_topic(offsets).items()
        ]

        async def send(connection: Connection, keys: list[str]) -> dict[str, Outcomes | ClientError]:
            response = await connection.request(AlterShareGroupOffsetsRequest(group_id=group, topics=topics))
            found = {
                (one.topic_name, result.partition_index): failure(result.error_code, result.error_message)
                for one in response.responses
                for result in one.partitions
            }
            missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            outcomes: Outcomes = {where: found.get(where, missing) for where in offsets}
            return {group: failure(response.error_code, response.error_message) or outcomes}

        if not offsets:
            return {}
        return of_one(await self._calls.at_coordinators([group], send, timeout_s))

    async def delete_share_group_offsets(
        self, group: str, topics: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, ClientError | None]:
        """Deletes the start offsets of whole topics in a share group without members (KIP-932).

        Raises ClientError for the group: NON_EMPTY_GROUP means that it has members.
        """
        wanted = list(dict.fromkeys(topics))
        cls = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
        request = DeleteShareGroupOffsetsRequest(group_id=group, topics=[cls(topic_name=name) for name in wanted])

        async def send(
            connection: Connection, keys: list[str]
        ) -> dict[str, dict[str, ClientError | None] | ClientError]:
            response = await connection.request(request)
            found = {one.topic_name: failure(one.error_code, one.error_message) for one in response.responses}
            missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            outcomes: dict[str, ClientError | None] = {name: found.get(name, missing) for name in wanted}
            return {group: failure(response.error_code, response.error_message) or outcomes}

        if not wanted:
            return {}
        return of_one(await self._calls.at_coordinators([group], send, timeout_s))

    def _node_of(self, connection: Connection) -> int:
        """Returns the node id of a connection's broker, or -1."""
        address = connection.host, connection.port
        return next((n.node_id for n in self._calls.cluster.nodes.values() if (n.host, n.port) == address), -1)


def _share_offsets(group: Any) -> ShareOffsets:
    found: ShareOffsets = {}
    for topic in group.topics:
        for one in topic.partitions:
            offset = None
            if one.start_offset >= 0:
                epoch, lag = one.leader_epoch, one.lag
                offset = ShareOffset(one.start_offset, epoch if epoch >= 0 else None, lag if lag >= 0 else None)
            found[topic.topic_name, one.partition_index] = failure(one.error_code, one.error_message) or offset
    return found


def _fetch_request(
    group: str, wanted: list[TopicPartition] | None, version: int, require_stable: bool
) -> OffsetFetchRequest:
    topics = None if wanted is None else list(by_topic(wanted).items())
    if version >= FETCH_OF_GROUPS:
        cls = OffsetFetchRequest.OffsetFetchRequestGroup
        some = [cls.OffsetFetchRequestTopics(name=name, partition_indexes=numbers) for name, numbers in topics or ()]
        one = cls(group_id=group, topics=None if topics is None else some)
        return OffsetFetchRequest(groups=[one], require_stable=require_stable)
    topic_class = OffsetFetchRequest.OffsetFetchRequestTopic
    return OffsetFetchRequest(
        group_id=group,
        topics=None
        if topics is None
        else [topic_class(name=name, partition_indexes=numbers) for name, numbers in topics],
        require_stable=require_stable,
    )


def _offsets(
    response: OffsetFetchResponse, wanted: list[TopicPartition] | None, version: int
) -> PartitionOffsets | ClientError:
    group: Any = response.groups[0] if version >= FETCH_OF_GROUPS and response.groups else response
    if group.error_code:
        return KafkaError(group.error_code)
    found: PartitionOffsets = dict.fromkeys(wanted or ())
    for topic in group.topics:
        for partition in topic.partitions:
            where = topic.name, partition.partition_index
            if partition.error_code in COORDINATOR_RETRIES:  # before v2 the partitions have the error of the group
                return KafkaError(partition.error_code)
            if partition.error_code:
                found[where] = KafkaError(partition.error_code)
            elif partition.committed_offset >= 0:
                found[where] = OffsetAndMetadata(
                    partition.committed_offset, partition.metadata or "", partition.committed_leader_epoch
                )
    return found


def _commit_request(group: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> OffsetCommitRequest:
    cls = OffsetCommitRequest.OffsetCommitRequestTopic
    topics: list[OffsetCommitRequest.OffsetCommitRequestTopic] = []
    for name, numbers in by_topic(offsets).items():
        partitions: list[OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition] = []
        for number in numbers:
            result = offsets[name, number]
            result = result if isinstance(result, OffsetAndMetadata) else OffsetAndMetadata(result)
            partitions.append(
                cls.OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=result.offset,
                    committed_leader_epoch=result.leader_epoch,
                    committed_metadata=result.metadata,
                )
            )
        topics.append(cls(name=name, partitions=partitions))
    return OffsetCommitRequest(group_id=group, topics=topics)


def _outcomes(response: Any, wanted: Iterable[TopicPartition]) -> Outcomes | ClientError:
    """Returns the outcome of each wanted partition; a coordinator's error is that of the whole group."""
    codes = {
        (topic.name, result.partition_index): result.error_code
        for topic in response.topics
        for result in topic.partitions
    }
    moved = next((code for code in codes.values() if code in COORDINATOR_RETRIES), None)
    if moved is not None:
        return KafkaError(moved)
    return {where: failure(codes.get(where, ErrorCode.UNKNOWN_SERVER_ERROR)) for where in wanted}
