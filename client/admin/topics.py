"""Calls of `Admin` on topics: create, delete, list, describe, add partitions; and the description of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.messages.cluster.describe_cluster import DescribeClusterRequest
from ...protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ...protocol.messages.topics.create_topics import CreateTopicsRequest
from ...protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ...protocol.messages.topics.metadata import MetadataResponse
from ..net.connection import Connection
from ..net.errors import ClientError, KafkaError, UnsupportedVersion
from ..net.metadata import Node
from .calls import Caller, failure, requested
from .types import (
    DEFAULT_COUNT,
    ClusterDescription,
    CreatedTopic,
    NewPartitions,
    NewTopic,
    PartitionDescription,
    TopicDescription,
    TopicListing,
)

CREATE_VALIDATES, CREATE_TAKES_DEFAULTS, CREATE_RETURNS_CONFIGS = 1, 4, 5
DELETE_BY_STATE = 6


class TopicCalls(Caller):
    """The topic calls of `Admin`."""

    async def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> dict[str, CreatedTopic | ClientError]:
        """Creates topics (Kafka 0.10.1 and later); a name alone gets the broker's defaults.

        After a lost response the retry may return TOPIC_ALREADY_EXISTS for a topic that this call has created.
        """
        wanted = {topic.name: topic for topic in (NewTopic(t) if isinstance(t, str) else t for t in topics)}

        async def send(connection: Connection, names: list[str]) -> dict[str, CreatedTopic | ClientError]:
            version = connection.version_of(CreateTopicsRequest)
            if validate_only and version < CREATE_VALIDATES:
                raise UnsupportedVersion(
                    "the broker (before Kafka 0.10.2) cannot validate topics without creating them"
                )
            outcomes: dict[str, CreatedTopic | ClientError] = {}
            creatable: list[CreateTopicsRequest.CreatableTopic] = []
            for name in names:
                if _takes_defaults(wanted[name]) and version < CREATE_TAKES_DEFAULTS:
                    outcomes[name] = UnsupportedVersion(
                        "the broker (before Kafka 2.4) needs a partition count and a replication factor"
                    )
                else:
                    creatable.append(_creatable(wanted[name]))
            if not creatable:
                return outcomes
            request = CreateTopicsRequest(
                topics=creatable, timeout_ms=self._calls.timeout_ms, validate_only=validate_only
            )
            for result in (await connection.request(request, version)).topics:
                outcomes[result.name] = failure(result) or _created(result, version)
            return outcomes

        return await self._calls.at_controller(wanted, send, timeout_s)

    async def delete_topics(
        self, names: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, ClientError | None]:
        """Deletes topics (Kafka 0.10.1 and later)."""

        async def send(connection: Connection, left: list[str]) -> dict[str, ClientError | None]:
            version = connection.version_of(DeleteTopicsRequest)
            if version >= DELETE_BY_STATE:
                states = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=bytes(16)) for name in left]
                request = DeleteTopicsRequest(topics=states, timeout_ms=self._calls.timeout_ms)
            else:
                request = DeleteTopicsRequest(topic_names=left, timeout_ms=self._calls.timeout_ms)
            response = await connection.request(request, version)
            return {result.name or "": failure(result) for result in response.responses}

        return await self._calls.at_controller(names, send, timeout_s)

    async def create_partitions(
        self,
        totals: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> dict[str, ClientError | None]:
        """Raises the partition counts of topics to the given totals (Kafka 1.0 and later)."""

        async def send(connection: Connection, names: list[str]) -> dict[str, ClientError | None]:
            request = CreatePartitionsRequest(
                topics=[_more_partitions(name, totals[name]) for name in names],
                timeout_ms=self._calls.timeout_ms,
                validate_only=validate_only,
            )
            response = await connection.request(request)
            return {result.name: failure(result) for result in response.results}

        return await self._calls.at_controller(totals, send, timeout_s)

    async def list_topics(
        self, *, include_internal: bool = False, timeout_s: float | None = None
    ) -> dict[str, TopicListing]:
        """Returns all topics by name, without internal ones by default. Raises ClientError."""
        response = await self._calls.one(lambda _: self._calls.cluster.metadata(), timeout_s)
        found = {t.name: TopicListing(t.name, t.topic_id, t.is_internal) for t in response.topics if t.name is not None}
        return {name: found[name] for name in sorted(found) if include_internal or not found[name].is_internal}

    async def describe_topics(
        self, names: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, TopicDescription | ClientError]:
        """Describes topics with their partitions. One that does not exist is an error at once, and is not created."""

        async def send(connection: Connection, left: list[str]) -> dict[str, TopicDescription | ClientError]:
            response = await self._calls.cluster.metadata(left)
            found: dict[str, TopicDescription | ClientError] = {}
            found |= dict.fromkeys(left, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            found |= {result.name or "": failure(result) or _described(result) for result in response.topics}
            return found

        return await self._calls.at_any(names, send, timeout_s)

    async def describe_cluster(self, *, timeout_s: float | None = None) -> ClusterDescription:
        """Returns the brokers and the controller. Raises ClientError."""
        cluster = self._calls.cluster

        async def send(connection: Connection) -> ClusterDescription:
            try:
                version = connection.version_of(DescribeClusterRequest)
            except UnsupportedVersion:  # before Kafka 2.8
                response = await cluster.metadata([])
                nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
            else:
                request = DescribeClusterRequest(include_cluster_authorized_operations=False)
                response = await requested(connection, request, version)
                nodes = {b.broker_id: Node(b.broker_id, b.host, b.port, b.rack) for b in response.brokers}
            ordered = tuple(nodes[node_id] for node_id in sorted(nodes))
            return ClusterDescription(response.cluster_id, nodes.get(response.controller_id), ordered)

        return await self._calls.one(send, timeout_s)


def _takes_defaults(topic: NewTopic) -> bool:
    return not topic.assignments and DEFAULT_COUNT in (topic.partition_count, topic.replication_factor)


def _creatable(topic: NewTopic) -> CreateTopicsRequest.CreatableTopic:
    cls = CreateTopicsRequest.CreatableTopic
    return cls(
        name=topic.name,
        num_partitions=DEFAULT_COUNT if topic.assignments else topic.partition_count,
        replication_factor=DEFAULT_COUNT if topic.assignments else topic.replication_factor,
        assignments=[
            cls.CreatableReplicaAssignment(partition_index=index, broker_ids=list(node_ids))
            for index, node_ids in sorted(topic.assignments.items())
        ],
        configs=[cls.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _created(result: Any, version: int) -> CreatedTopic:
    configs = None
    if version >= CREATE_RETURNS_CONFIGS and not result.topic_config_error_code and result.configs is not None:
        configs = {config.name: config.value for config in result.configs}
    return CreatedTopic(result.name, result.topic_id, result.num_partitions, result.replication_factor, configs)


def _more_partitions(name: str, total: int | NewPartitions) -> CreatePartitionsRequest.CreatePartitionsTopic:
    cls = CreatePartitionsRequest.CreatePartitionsTopic
    wanted = total if isinstance(total, NewPartitions) else NewPartitions(total)
    assignments = None
    if wanted.assignments is not None:
        assignments = [cls.CreatePartitionsAssignment(broker_ids=list(node_ids)) for node_ids in wanted.assignments]
    return cls(name=name, count=wanted.total_count, assignments=assignments)


def _described(result: MetadataResponse.MetadataResponseTopic) -> TopicDescription:
    partitions = tuple(
        PartitionDescription(
            p.partition_index,
            p.leader_id,
            p.leader_epoch,
            tuple(p.replica_nodes),
            tuple(p.isr_nodes),
            tuple(p.offline_replicas),
        )
        for p in sorted(result.partitions, key=lambda p: p.partition_index)
    )
    return TopicDescription(result.name or "", result.topic_id, result.is_internal, partitions)
