"""The admin's calls about topics: made, deleted, listed, described, given more partitions. And the cluster itself."""

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
from .calls import Calls, failure, of_one
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

CREATE_VALIDATES, CREATE_TAKES_DEFAULTS, CREATE_TELLS_CONFIGS = 1, 4, 5
DELETE_BY_STATE = 6


class TopicCalls:
    """A part of `Admin`."""

    _calls: Calls

    async def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> dict[str, CreatedTopic | ClientError]:
        """Makes topics (Kafka 0.10.1 and later); a name alone takes the broker's defaults.

        A try whose answer was lost may have made the topic, and the next then says that it exists.
        """
        wanted = {topic.name: topic for topic in (NewTopic(t) if isinstance(t, str) else t for t in topics)}

        async def ask(connection: Connection, names: list[str]) -> dict[str, CreatedTopic | ClientError]:
            version = connection.version_of(CreateTopicsRequest)
            if validate_only and version < CREATE_VALIDATES:
                raise UnsupportedVersion("the broker cannot only validate new topics: it is older than 0.10.2")
            answers: dict[str, CreatedTopic | ClientError] = {}
            asked: list[CreateTopicsRequest.CreatableTopic] = []
            for name in names:
                if _takes_defaults(wanted[name]) and version < CREATE_TAKES_DEFAULTS:
                    answers[name] = UnsupportedVersion(
                        "the broker has no defaults for new topics: before 2.4 both counts have to be given"
                    )
                else:
                    asked.append(_creatable(wanted[name]))
            if not asked:
                return answers
            request = CreateTopicsRequest(topics=asked, timeout_ms=self._timeout_ms(), validate_only=validate_only)
            for told in (await connection.request(request, version)).topics:
                answers[told.name] = failure(told.error_code, told.error_message) or _created(told, version)
            return answers

        return await self._calls.at_controller(wanted, ask, timeout_s)

    async def delete_topics(
        self, names: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, ClientError | None]:
        """Deletes topics (Kafka 0.10.1 and later)."""

        async def ask(connection: Connection, left: list[str]) -> dict[str, ClientError | None]:
            version = connection.version_of(DeleteTopicsRequest)
            if version >= DELETE_BY_STATE:
                states = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=bytes(16)) for name in left]
                request = DeleteTopicsRequest(topics=states, timeout_ms=self._timeout_ms())
            else:
                request = DeleteTopicsRequest(topic_names=left, timeout_ms=self._timeout_ms())
            response = await connection.request(request, version)
            return {told.name or "": failure(told.error_code, told.error_message) for told in response.responses}

        return await self._calls.at_controller(names, ask, timeout_s)

    async def create_partitions(
        self,
        totals: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        timeout_s: float | None = None,
    ) -> dict[str, ClientError | None]:
        """Gives topics more partitions (Kafka 1.0 and later); the numbers are those of all they will have."""

        async def ask(connection: Connection, names: list[str]) -> dict[str, ClientError | None]:
            request = CreatePartitionsRequest(
                topics=[_more_partitions(name, totals[name]) for name in names],
                timeout_ms=self._timeout_ms(),
                validate_only=validate_only,
            )
            response = await connection.request(request)
            return {told.name: failure(told.error_code, told.error_message) for told in response.results}

        return await self._calls.at_controller(totals, ask, timeout_s)

    async def list_topics(
        self, *, include_internal: bool = False, timeout_s: float | None = None
    ) -> dict[str, TopicListing]:
        """All topics by name; Kafka's own only if asked for. Raises ClientError."""

        async def ask(connection: Connection, keys: list[str]) -> dict[str, MetadataResponse]:
            return dict.fromkeys(keys, await self._calls.cluster.metadata())

        response = of_one(await self._calls.at_any(["topics"], ask, timeout_s))
        found = {t.name: TopicListing(t.name, t.topic_id, t.is_internal) for t in response.topics if t.name is not None}
        return {name: found[name] for name in sorted(found) if include_internal or not found[name].is_internal}

    async def describe_topics(
        self, names: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, TopicDescription | ClientError]:
        """Topics with their partitions. One that does not exist is an error at once, and is not made."""

        async def ask(connection: Connection, left: list[str]) -> dict[str, TopicDescription | ClientError]:
            response = await self._calls.cluster.metadata(left)
            found: dict[str, TopicDescription | ClientError] = {}
            found |= dict.fromkeys(left, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            found |= {told.name or "": failure(told.error_code) or _described(told) for told in response.topics}
            return found

        return await self._calls.at_any(names, ask, timeout_s)

    async def describe_cluster(self, *, timeout_s: float | None = None) -> ClusterDescription:
        """The brokers, and which of them is the controller. Raises ClientError."""
        cluster = self._calls.cluster

        async def ask(connection: Connection, keys: list[str]) -> dict[str, ClusterDescription | ClientError]:
            try:
                version = connection.version_of(DescribeClusterRequest)
            except UnsupportedVersion:  # before Kafka 2.8
                told = await cluster.metadata([])
                nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in told.brokers}
            else:
                request = DescribeClusterRequest(include_cluster_authorized_operations=False)
                told = await connection.request(request, version)
                if told.error_code:
                    return dict.fromkeys(keys, KafkaError(told.error_code, told.error_message))
                nodes = {b.broker_id: Node(b.broker_id, b.host, b.port, b.rack) for b in told.brokers}
            ordered = tuple(nodes[node_id] for node_id in sorted(nodes))
            return dict.fromkeys(keys, ClusterDescription(told.cluster_id, nodes.get(told.controller_id), ordered))

        return of_one(await self._calls.at_any(["cluster"], ask, timeout_s))

    def _timeout_ms(self) -> int:
        """How long a broker may take for one request."""
        return self._calls.cluster.options.request_timeout_ms


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


def _created(told: Any, version: int) -> CreatedTopic:
    configs = None
    if version >= CREATE_TELLS_CONFIGS and not told.topic_config_error_code and told.configs is not None:
        configs = {config.name: config.value for config in told.configs}
    return CreatedTopic(told.name, told.topic_id, told.num_partitions, told.replication_factor, configs)


def _more_partitions(name: str, total: int | NewPartitions) -> CreatePartitionsRequest.CreatePartitionsTopic:
    cls = CreatePartitionsRequest.CreatePartitionsTopic
    wanted = total if isinstance(total, NewPartitions) else NewPartitions(total)
    assignments = None
    if wanted.assignments is not None:
        assignments = [cls.CreatePartitionsAssignment(broker_ids=list(node_ids)) for node_ids in wanted.assignments]
    return cls(name=name, count=wanted.total_count, assignments=assignments)


def _described(told: MetadataResponse.MetadataResponseTopic) -> TopicDescription:
    partitions = tuple(
        PartitionDescription(
            p.partition_index,
            p.leader_id,
            p.leader_epoch,
            tuple(p.replica_nodes),
            tuple(p.isr_nodes),
            tuple(p.offline_replicas),
        )
        for p in sorted(told.partitions, key=lambda p: p.partition_index)
    )
    return TopicDescription(told.name or "", told.topic_id, told.is_internal, partitions)
