"""The admin's calls about groups: listed, described, deleted, and their committed offsets read, set and removed.

What is asked of one group raises what is wrong with the group; what is wrong with one partition is its answer.
Offsets are those that brokers keep (Kafka 0.8.2 and later), never those in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.messages.groups.delete_groups import DeleteGroupsRequest
from ...protocol.messages.groups.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ...protocol.messages.groups.list_groups import ListGroupsRequest
from ...protocol.messages.groups.offset_commit import OffsetCommitRequest
from ...protocol.messages.groups.offset_delete import OffsetDeleteRequest
from ...protocol.messages.groups.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ..consumer.group_offsets import OffsetAndMetadata
from ..consumer.group_protocol import read_assignment
from ..net.connection import Connection
from ..net.errors import ClientError, KafkaError, UnsupportedVersion
from .calls import COORDINATOR_RETRIES, Calls, checked, failure, of_one
from .logs import by_topic
from .types import GroupDescription, GroupListing, MemberDescription, TopicPartition

LIST_BY_STATE, LIST_BY_TYPE = 4, 5
FETCH_FROM_KAFKA, FETCH_ALL, FETCH_STABLE, FETCH_OF_GROUPS = 1, 2, 7, 8  # v0 is of ZooKeeper
COMMIT_TO_KAFKA = 1
WITHOUT_IDS = 9  # v10 of both takes topic ids in place of names, and does nothing more
DEAD = "Dead"  # the state of a group that does not exist, before DescribeGroups v6 had an error for it
PartitionOffsets = dict[TopicPartition, OffsetAndMetadata | ClientError | None]
Outcomes = dict[TopicPartition, ClientError | None]


class GroupCalls:
    """A part of `Admin`."""

    _calls: Calls

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_s: float | None = None
    ) -> list[GroupListing]:
        """The groups of all brokers, by name; those in some states (2.6 and later) or of some types (3.8) if asked for.

        Raises ClientError, also if one broker alone could not be asked.
        """
        wanted_states, wanted_types = list(states), list(types)

        async def ask(connection: Connection, left: list[int]) -> dict[int, list[GroupListing] | ClientError]:
            version = connection.version_of(ListGroupsRequest)
            if (wanted_states and version < LIST_BY_STATE) or (wanted_types and version < LIST_BY_TYPE):
                raise UnsupportedVersion("the broker cannot list groups by what was asked: state is from 2.6, type 3.8")
            request = ListGroupsRequest(states_filter=wanted_states, types_filter=wanted_types)
            response = await connection.request(request, version)
            found = [
                GroupListing(told.group_id, told.protocol_type, told.group_state, told.group_type)
                for told in response.groups
            ]
            return dict.fromkeys(left, failure(response.error_code) or found)

        nodes = await self._calls.nodes(timeout_s)
        by_node = checked(await self._calls.at_any(nodes, ask, timeout_s, int))
        return sorted({group for found in by_node.values() for group in found})

    async def describe_groups(
        self, groups: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, GroupDescription | ClientError]:
        """Groups with their members (0.9 and later). Of any release, GROUP_ID_NOT_FOUND is one that does not exist."""

        async def ask(connection: Connection, left: list[str]) -> dict[str, GroupDescription | ClientError]:
            response = await connection.request(DescribeGroupsRequest(groups=left))
            node_id = self._node_of(connection)
            return {told.group_id: _described(told, node_id) for told in response.groups}

        return await self._calls.at_coordinators(groups, ask, timeout_s)

    async def delete_groups(
        self, groups: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, ClientError | None]:
        """Deletes groups without members, with their offsets (1.1 and later)."""

        async def ask(connection: Connection, left: list[str]) -> dict[str, ClientError | None]:
            response = await connection.request(DeleteGroupsRequest(groups_names=left))
            return {told.group_id: failure(told.error_code) for told in response.results}

        return await self._calls.at_coordinators(groups, ask, timeout_s)

    async def list_group_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout_s: float | None = None,
    ) -> PartitionOffsets:
        """What a group has committed: for `partitions`, None where nothing is, or for all (OffsetFetch v2).

        `require_stable` waits for those of open transactions (2.5 and later). Raises ClientError for the group.
        """
        wanted = None if partitions is None else list(partitions)

        async def ask(connection: Connection, keys: list[str]) -> dict[str, PartitionOffsets | ClientError]:
            version = connection.version_of(OffsetFetchRequest, WITHOUT_IDS)
            if version < (FETCH_FROM_KAFKA if wanted is not None else FETCH_ALL):
                raise UnsupportedVersion("the broker cannot tell all offsets of a group: it has no OffsetFetch v2")
            request = _fetch_request(group, wanted, version, require_stable and version >= FETCH_STABLE)
            response = await connection.request(request, version)
            return {group: _offsets(response, wanted, version)}

        return of_one(await self._calls.at_coordinators([group], ask, timeout_s))

    async def alter_group_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        timeout_s: float | None = None,
    ) -> Outcomes:
        """Commits offsets for a group without members; UNKNOWN_MEMBER_ID for a partition means that it has some.

        Raises ClientError for the group.
        """

        async def ask(connection: Connection, keys: list[str]) -> dict[str, Outcomes | ClientError]:
            version = connection.version_of(OffsetCommitRequest, WITHOUT_IDS)
            if version < COMMIT_TO_KAFKA:
                raise UnsupportedVersion("the broker keeps no offsets: it is older than 0.8.2")
            response = await connection.request(_commit_request(group, offsets), version)
            return {group: _outcomes(response, offsets)}

        if not offsets:
            return {}
        return of_one(await self._calls.at_coordinators([group], ask, timeout_s))

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_s: float | None = None
    ) -> Outcomes:
        """Removes committed offsets (2.4 and later); GROUP_SUBSCRIBED_TO_TOPIC means that members read the topic.

        Raises ClientError for the group.
        """
        wanted = list(partitions)
        cls = OffsetDeleteRequest.OffsetDeleteRequestTopic
        topics = [
            cls(name=name, partitions=[cls.OffsetDeleteRequestPartition(partition_index=number) for number in numbers])
            for name, numbers in by_topic(wanted).items()
        ]

        async def ask(connection: Connection, keys: list[str]) -> dict[str, Outcomes | ClientError]:
            response = await connection.request(OffsetDeleteRequest(group_id=group, topics=topics))
            return {group: failure(response.error_code) or _outcomes(response, wanted)}

        if not topics:
            return {}
        return of_one(await self._calls.at_coordinators([group], ask, timeout_s))

    def _node_of(self, connection: Connection) -> int:
        """The node id of a connection's broker."""
        address = connection.host, connection.port
        return next((n.node_id for n in self._calls.cluster.nodes.values() if (n.host, n.port) == address), -1)


def _described(told: DescribeGroupsResponse.DescribedGroup, node_id: int) -> GroupDescription | ClientError:
    if told.error_code:
        return KafkaError(told.error_code, told.error_message or None)
    if told.group_state == DEAD:
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {told.group_id!r} does not exist")
    members = tuple(
        MemberDescription(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _assigned(bytes(member.member_assignment), told.protocol_type),
            bytes(member.member_assignment),
            bytes(member.member_metadata),
        )
        for member in told.members
    )
    return GroupDescription(told.group_id, told.group_state, told.protocol_type, told.protocol_data, node_id, members)


def _assigned(data: bytes, protocol_type: str) -> tuple[TopicPartition, ...]:
    """The partitions in an assignment; none of what is not a consumer's, or cannot be read."""
    if protocol_type != "consumer":
        return ()
    try:
        return tuple(read_assignment(data))
    except ClientError:
        return ()


def _fetch_request(
    group: str, wanted: list[TopicPartition] | None, version: int, require_stable: bool
) -> OffsetFetchRequest:
    topics = None if wanted is None else list(by_topic(wanted).items())
    if version >= FETCH_OF_GROUPS:
        cls = OffsetFetchRequest.OffsetFetchRequestGroup
        some = [cls.OffsetFetchRequestTopics(name=name, partition_indexes=numbers) for name, numbers in topics or ()]
        one = cls(group_id=group, topics=None if topics is None else some)
        return OffsetFetchRequest(groups=[one], require_stable=require_stable)
    asked = OffsetFetchRequest.OffsetFetchRequestTopic
    return OffsetFetchRequest(
        group_id=group,
        topics=None if topics is None else [asked(name=name, partition_indexes=numbers) for name, numbers in topics],
        require_stable=require_stable,
    )


def _offsets(
    response: OffsetFetchResponse, wanted: list[TopicPartition] | None, version: int
) -> PartitionOffsets | ClientError:
    told: Any = response.groups[0] if version >= FETCH_OF_GROUPS and response.groups else response
    if told.error_code:
        return KafkaError(told.error_code)
    found: PartitionOffsets = dict.fromkeys(wanted or ())
    for topic in told.topics:
        for answer in topic.partitions:
            where = topic.name, answer.partition_index
            if answer.error_code in COORDINATOR_RETRIES:  # before v2 those of the group stand here, too
                return KafkaError(answer.error_code)
            if answer.error_code:
                found[where] = KafkaError(answer.error_code)
            elif answer.committed_offset >= 0:
                found[where] = OffsetAndMetadata(
                    answer.committed_offset, answer.metadata or "", answer.committed_leader_epoch
                )
    return found


def _commit_request(group: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> OffsetCommitRequest:
    cls = OffsetCommitRequest.OffsetCommitRequestTopic
    topics: list[OffsetCommitRequest.OffsetCommitRequestTopic] = []
    for name, numbers in by_topic(offsets).items():
        partitions: list[OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition] = []
        for number in numbers:
            told = offsets[name, number]
            told = told if isinstance(told, OffsetAndMetadata) else OffsetAndMetadata(told)
            partitions.append(
                cls.OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=told.offset,
                    committed_leader_epoch=told.leader_epoch,
                    committed_metadata=told.metadata,
                )
            )
        topics.append(cls(name=name, partitions=partitions))
    return OffsetCommitRequest(group_id=group, topics=topics)


def _outcomes(response: Any, wanted: Iterable[TopicPartition]) -> Outcomes | ClientError:
    """One outcome per partition, in the order asked; a code that is about the coordinator is the group's."""
    codes = {
        (topic.name, told.partition_index): told.error_code for topic in response.topics for told in topic.partitions
    }
    moved = next((code for code in codes.values() if code in COORDINATOR_RETRIES), None)
    if moved is not None:
        return KafkaError(moved)
    return {where: failure(codes.get(where, ErrorCode.UNKNOWN_SERVER_ERROR)) for where in wanted}
