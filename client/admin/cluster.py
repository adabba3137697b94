"""Calls of `Admin` on the cluster: leader elections, reassignments, features, the quorum of controllers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.messages.cluster.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ...protocol.messages.cluster.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from ...protocol.messages.cluster.api_versions import ApiVersionsRequest
from ...protocol.messages.cluster.describe_quorum import DescribeQuorumRequest
from ...protocol.messages.cluster.elect_leaders import ElectLeadersRequest
from ...protocol.messages.cluster.list_partition_reassignments import ListPartitionReassignmentsRequest
from ...protocol.messages.cluster.unregister_broker import UnregisterBrokerRequest
from ...protocol.messages.cluster.update_features import UpdateFeaturesRequest
from ..net.connection import SOFTWARE, Connection
from ..net.errors import ClientError, UnsupportedVersion
from ..net.metadata import by_topic, partitions_in
from .calls import Caller, failure, requested, sound
from .types import (
    ElectionType,
    Features,
    FeatureUpdate,
    Quorum,
    QuorumReplica,
    Reassignment,
    Replica,
    TopicPartition,
    UpgradeType,
    VersionRange,
)

ELECT_UNCLEAN, FACTOR_MAY_CHANGE, UPDATE_VALIDATES, UPDATE_IS_ATOMIC = 1, 1, 1, 2
METADATA_PARTITION = ("__cluster_metadata", 0)
Outcomes = dict[TopicPartition, ClientError | None]


class ClusterCalls(Caller):
    """The cluster calls of `Admin`."""

    async def serves(self, api_key: int) -> bool:
        """Returns whether the broker that the client is connected to serves an API. Raises ConnectionLost."""
        return api_key in (await self._calls.cluster.any_connection()).versions

    async def elect_leaders(
        self,
        election: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Outcomes:
        """Elects the leaders of partitions, by default of all (Kafka 2.2; elections other than PREFERRED 2.4).

        The result of a partition is ELECTION_NOT_NEEDED if it has that leader already; with all partitions such are
        omitted. Raises ClientError if the whole request fails.
        """
        wanted = None if partitions is None else list(partitions)

        async def send(connection: Connection) -> Outcomes:
            version = connection.version_of(ElectLeadersRequest)
            if election != ElectionType.PREFERRED and version < ELECT_UNCLEAN:
                raise UnsupportedVersion("the broker (before Kafka 2.4) elects preferred leaders only")
            cls = ElectLeadersRequest.TopicPartitions
            some = [cls(topic=name, partitions=numbers) for name, numbers in by_topic(wanted or ()).items()]
            request = ElectLeadersRequest(
                election_type=election if version >= ELECT_UNCLEAN else ElectionType.PREFERRED,
                topic_partitions=None if wanted is None else some,
                timeout_ms=self._calls.timeout_ms,
            )
            response = await requested(connection, request, version)
            return {
                (topic.topic, one.partition_id): failure(one)
                for topic in response.replica_election_results
                for one in topic.partition_result
                if wanted is not None or one.error_code != ErrorCode.ELECTION_NOT_NEEDED
            }

        if wanted == []:
            return {}
        return await self._calls.one(send, timeout_s, self._calls.at_controller)

    async def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_s: float | None = None,
    ) -> Outcomes:
        """Reassigns replicas to nodes; None cancels a reassignment (Kafka 2.4).

        `allow_replication_factor_change` False needs Kafka 4.0.
        """

        async def send(connection: Connection, left: list[TopicPartition]) -> dict[TopicPartition, ClientError | None]:
            version = connection.version_of(AlterPartitionReassignmentsRequest)
            if not allow_replication_factor_change and version < FACTOR_MAY_CHANGE:
                raise UnsupportedVersion(
                    "the broker (before Kafka 4.0) cannot forbid a change of the replication factor"
                )
            cls = AlterPartitionReassignmentsRequest.ReassignableTopic
            make = cls.ReassignablePartition
            parts = by_topic((name, make(partition_index=n, replicas=_listed(targets[name, n]))) for name, n in left)
            topics = [cls(name=name, partitions=some) for name, some in parts.items()]
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=self._calls.timeout_ms,
                allow_replication_factor_change=allow_replication_factor_change,
                topics=topics,
            )
            response = await requested(connection, request, version)
            return {where: failure(one) for where, one in partitions_in(response.responses)}

        return await self._calls.at_controller(targets, send, timeout_s)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Returns the reassignments in progress, by default of all partitions (Kafka 2.4). Raises ClientError."""
        cls = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
        wanted = None if partitions is None else list(by_topic(partitions).items())
        topics = None if wanted is None else [cls(name=name, partition_indexes=numbers) for name, numbers in wanted]
        calls = self._calls
        request = ListPartitionReassignmentsRequest(timeout_ms=calls.timeout_ms, topics=topics)
        response = await calls.one(lambda connection: requested(connection, request), timeout_s, calls.at_controller)
        return {
            where: Reassignment(tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas))
            for where, one in partitions_in(response.topics)
        }

    async def alter_replica_log_dirs(
        self, targets: Mapping[Replica, str], *, timeout_s: float | None = None
    ) -> dict[Replica, ClientError | None]:
        """Moves replicas to other log directories of their broker (Kafka 1.0); returns when the moves have begun."""

        async def send(connection: Connection, left: list[Replica]) -> dict[Replica, ClientError | None]:
            cls = AlterReplicaLogDirsRequest.AlterReplicaLogDir
            make = cls.AlterReplicaLogDirTopic
            by_path: dict[str, list[TopicPartition]] = {}
            for replica in left:
                by_path.setdefault(targets[replica], []).append((replica.topic, replica.partition))
            dirs = [
                cls(path=path, topics=[make(name=name, partitions=numbers) for name, numbers in by_topic(some).items()])
                for path, some in by_path.items()
            ]
            response = await connection.request(AlterReplicaLogDirsRequest(dirs=dirs))
            results = partitions_in(response.results, "topic_name")
            return {Replica(*where, left[0].node_id): failure(one) for where, one in results}

        return await self._calls.at_any(targets, send, timeout_s, lambda replica: replica.node_id)

    async def describe_features(self, *, timeout_s: float | None = None) -> Features:
        """Returns the features of the cluster; none before Kafka 2.7. Raises ClientError."""

        async def send(connection: Connection) -> Features:
            try:
                version = connection.version_of(ApiVersionsRequest)
            except UnsupportedVersion:  # before Kafka 0.10
                return Features({}, {}, -1)
            name, release = SOFTWARE
            request = ApiVersionsRequest(client_software_name=name, client_software_version=release)
            response = await requested(connection, request, version)
            supported = {f.name: VersionRange(f.min_version, f.max_version) for f in response.supported_features}
            finalized = {
                f.name: VersionRange(f.min_version_level, f.max_version_level) for f in response.finalized_features
            }
            return Features(supported, finalized, response.finalized_features_epoch)

        return await self._calls.one(send, timeout_s)

    async def update_features(
        self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> dict[str, ClientError | None]:
        """Sets the levels of features (Kafka 2.7; `validate_only` 3.3). From Kafka 4.0 on all or none are set."""

        async def send(connection: Connection, left: list[str]) -> dict[str, ClientError | None]:
            version = connection.version_of(UpdateFeaturesRequest)
            if validate_only and version < UPDATE_VALIDATES:
                raise UnsupportedVersion("the broker (before Kafka 3.3) cannot validate features without updating them")
            request = UpdateFeaturesRequest(
                timeout_ms=self._calls.timeout_ms,
                feature_updates=[_feature_update(name, updates[name], version) for name in left],
                validate_only=validate_only,
            )
            response = await requested(connection, request, version)
            if version >= UPDATE_IS_ATOMIC:
                return dict.fromkeys(left)
            return {result.feature: failure(result) for result in response.results}

        return await self._calls.at_controller(updates, send, timeout_s)

    async def describe_metadata_quorum(self, *, timeout_s: float | None = None) -> Quorum:
        """Returns the controllers with their log end offsets (KRaft, Kafka 3.3 and later). Raises ClientError."""
        name, number = METADATA_PARTITION
        cls = DescribeQuorumRequest.TopicData
        topics = [cls(topic_name=name, partitions=[cls.PartitionData(partition_index=number)])]

        async def send(connection: Connection) -> Quorum:
            response = await requested(connection, DescribeQuorumRequest(topics=topics))
            return _quorum(sound(next((one for topic in response.topics for one in topic.partitions), None)))

        return await self._calls.one(send, timeout_s)

    async def unregister_broker(self, node_id: int, *, timeout_s: float | None = None) -> None:
        """Removes a stopped broker from the cluster (Kafka 2.8 and later). Raises ClientError."""
        request = UnregisterBrokerRequest(broker_id=node_id)
        await self._calls.one(lambda connection: requested(connection, request), timeout_s)


def _listed(nodes: Sequence[int] | None) -> list[int] | None:
    return None if nodes is None else list(nodes)


def _feature_update(name: str, update: FeatureUpdate, version: int) -> UpdateFeaturesRequest.FeatureUpdateKey:
    found = UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=update.level)
    if version < UPDATE_VALIDATES:
        found.allow_downgrade = update.upgrade_type != UpgradeType.UPGRADE
    else:
        found.upgrade_type = update.upgrade_type
    return found


def _quorum(result: Any) -> Quorum:
    def replicas(states: Any) -> tuple[QuorumReplica, ...]:
        return tuple(
            QuorumReplica(
                state.replica_id,
                state.replica_directory_id,
                state.log_end_offset,
                state.last_fetch_timestamp,
                state.last_caught_up_timestamp,
            )
            for state in states
        )

    return Quorum(
        result.leader_id,
        result.leader_epoch,
        result.high_watermark,
        replicas(result.current_voters),
        replicas(result.observers),
    )
