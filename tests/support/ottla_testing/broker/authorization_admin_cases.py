"""Cases of `authorization_cases.py` for administration: configs, access control, quotas, replicas, the quorum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.protocol.acls import AclOperation as Op
from ottla.protocol.messages.cluster.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.messages.cluster.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.messages.cluster.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from ottla.protocol.messages.cluster.describe_quorum import DescribeQuorumRequest
from ottla.protocol.messages.cluster.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.cluster.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.messages.cluster.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.cluster.push_telemetry import PushTelemetryRequest
from ottla.protocol.messages.cluster.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.messages.cluster.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.messages.cluster.unregister_controller import UnregisterControllerRequest
from ottla.protocol.messages.cluster.update_features import UpdateFeaturesRequest
from ottla.protocol.messages.configs.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.messages.configs.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.configs.describe_client_quotas import DescribeClientQuotasRequest
from ottla.protocol.messages.configs.describe_configs import DescribeConfigsRequest
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.configs.list_config_resources import ListConfigResourcesRequest
from ottla.protocol.messages.security.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.messages.security.create_acls import CreateAclsRequest
from ottla.protocol.messages.security.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.security.delete_acls import DeleteAclsRequest
from ottla.protocol.messages.security.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.security.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.messages.security.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.protocol.messages.security.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.security.renew_delegation_token import RenewDelegationTokenRequest
from ottla_testing.broker.authorization_cases import CLUSTER, GROUP, TOPIC, Case, World, cluster, group, topic

TOPIC_CONFIGS, BROKER, LOGGER, CLIENT_METRICS, GROUP_CONFIGS = 2, 4, 8, 16, 32
NOT_ALLOWED_HERE = 64  # DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, on a listener without authentication


def top(response: Any) -> int:
    """Returns the error code of the whole response."""
    return response.error_code


def refuses(code: int) -> Callable[[Any], bool]:
    """Returns whether a response has this error as a whole; other tests check its other fields."""
    return lambda response: response.error_code == code


def of_cluster(version: int, operation: Op, request: Callable[[World], Any]) -> Case:
    """A case that is refused as a whole without a permission on the cluster."""
    return Case(version, request, False, {cluster(operation): True}, refuses(CLUSTER))


def kinds(response: Any) -> list[tuple[int, str, int]]:
    listed = response.results if hasattr(response, "results") else response.responses
    return [(one.resource_type, one.resource_name, one.error_code) for one in listed]


def describing(*requested: tuple[int, str]) -> DescribeConfigsRequest:
    one = DescribeConfigsRequest.DescribeConfigsResource
    resources = [one(resource_type=kind, resource_name=name, configuration_keys=None) for kind, name in requested]
    return DescribeConfigsRequest(resources=resources)


def altering(request: type, *requested: tuple[int, str, str, str]) -> Any:
    one = request.AlterConfigsResource  # type: ignore[attr-defined]
    more = {"config_operation": 0} if request is IncrementalAlterConfigsRequest else {}
    resources = [
        one(resource_type=kind, resource_name=name, configs=[one.AlterableConfig(name=key, value=value, **more)])
        for kind, name, key, value in requested
    ]
    return request(resources=resources, validate_only=False)


SET = ((TOPIC_CONFIGS, "t", "retention.ms", "1000"), (BROKER, "1", "log.cleaner.threads", "1"))
SET_GROUP = (GROUP_CONFIGS, "g", "consumer.session.timeout.ms", "50000")
OF_T, OF_BROKER, OF_G = (TOPIC_CONFIGS, "t", 0), (BROKER, "1", 0), (GROUP_CONFIGS, "g", 0)
OF_METRICS, OF_LOGGER = (CLIENT_METRICS, "m", 0), (LOGGER, "1", 0)


def denied(*entry: Any) -> tuple[int, str, int]:
    kind, name, _ = entry
    return kind, name, {TOPIC_CONFIGS: TOPIC, GROUP_CONFIGS: GROUP}.get(kind, CLUSTER)


def altering_quotas(world: World) -> AlterClientQuotasRequest:
    one = AlterClientQuotasRequest.EntryData
    entity = one.EntityData(entity_type="client-id", entity_name="a")
    op = one.OpData(key="producer_byte_rate", value=1e6, remove=False)
    return AlterClientQuotasRequest(entries=[one(entity=[entity], ops=[op])], validate_only=False)


def electing(world: World) -> ElectLeadersRequest:
    one = ElectLeadersRequest.TopicPartitions
    return ElectLeadersRequest(election_type=0, topic_partitions=[one(topic="t", partitions=[0])])


def reassigning(world: World) -> AlterPartitionReassignmentsRequest:
    one = AlterPartitionReassignmentsRequest.ReassignableTopic
    partitions = [one.ReassignablePartition(partition_index=0, replicas=[1])]
    return AlterPartitionReassignmentsRequest(topics=[one(name="t", partitions=partitions)])


def moving(world: World) -> AlterReplicaLogDirsRequest:
    one = AlterReplicaLogDirsRequest.AlterReplicaLogDir
    topics = [one.AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in "tu"]
    path = str(world.broker.state.logs.all[0].path)
    return AlterReplicaLogDirsRequest(dirs=[one(path=path, topics=topics)])


def describing_quorum(world: World) -> DescribeQuorumRequest:
    one = DescribeQuorumRequest.TopicData
    partitions = [one.PartitionData(partition_index=0)]
    return DescribeQuorumRequest(topics=[one(topic_name="__cluster_metadata", partitions=partitions)])


def adding_voter(world: World) -> AddRaftVoterRequest:
    listener = AddRaftVoterRequest.Listener(name="CONTROLLER", host="h", port=1)
    return AddRaftVoterRequest(
        cluster_id=None, timeout_ms=1, voter_id=2, voter_directory_id=b"1" * 16, listeners=[listener]
    )


def creating_acls(world: World) -> CreateAclsRequest:
    one = CreateAclsRequest.AclCreation
    entry = one(resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3)
    return CreateAclsRequest(creations=[entry, entry])


def deleting_acls(world: World) -> DeleteAclsRequest:
    one = DeleteAclsRequest.DeleteAclsFilter
    entry = one(
        resource_type_filter=2,
        resource_name_filter="t",
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    return DeleteAclsRequest(filters=[entry, entry])


def describing_acls(world: World) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


def pushing(world: World) -> PushTelemetryRequest:
    return PushTelemetryRequest(
        client_instance_id=b"1" * 16, subscription_id=1, terminating=False, compression_type=0, metrics=b""
    )


def codes(key: str) -> Callable[[Any], list[int]]:
    return lambda response: [one.error_code for one in getattr(response, key)]


EVERY_ADMIN: dict[type, list[Case]] = {
    DescribeConfigsRequest: [
        Case(
            4,
            lambda world: describing((2, "t"), (4, "1"), (8, "1"), (16, "m"), (32, "g")),
            [OF_T, OF_BROKER, OF_LOGGER, OF_METRICS, OF_G],
            {
                topic(Op.DESCRIBE_CONFIGS): [OF_BROKER, OF_LOGGER, OF_METRICS, OF_G, denied(*OF_T)],
                group(Op.DESCRIBE_CONFIGS): [OF_T, OF_BROKER, OF_LOGGER, OF_METRICS, denied(*OF_G)],
                cluster(Op.DESCRIBE_CONFIGS): [
                    OF_T,
                    OF_G,
                    denied(*OF_BROKER),
                    denied(*OF_LOGGER),
                    denied(*OF_METRICS),
                ],
            },
            kinds,
        ),
        Case(
            4,
            lambda world: describing((2, "n")),
            [(2, "n", 3)],
            {topic(Op.DESCRIBE_CONFIGS, "n"): [(2, "n", TOPIC)]},
            kinds,
        ),
    ],
    AlterConfigsRequest: [
        Case(
            2,
            lambda world: altering(AlterConfigsRequest, *SET, SET_GROUP),
            {OF_T, OF_BROKER, OF_G},
            {
                topic(Op.ALTER_CONFIGS): {OF_BROKER, OF_G, denied(*OF_T)},
                group(Op.ALTER_CONFIGS): {OF_T, OF_BROKER, denied(*OF_G)},
                cluster(Op.ALTER_CONFIGS): {OF_T, OF_G, denied(*OF_BROKER)},
            },
            lambda response: set(kinds(response)),
        ),
    ],
    IncrementalAlterConfigsRequest: [
        Case(
            1,
            lambda world: altering(IncrementalAlterConfigsRequest, *SET, SET_GROUP),
            {OF_T, OF_BROKER, OF_G},
            {
                topic(Op.ALTER_CONFIGS): {OF_BROKER, OF_G, denied(*OF_T)},
                group(Op.ALTER_CONFIGS): {OF_T, OF_BROKER, denied(*OF_G)},
                cluster(Op.ALTER_CONFIGS): {OF_T, OF_G, denied(*OF_BROKER)},
            },
            lambda response: set(kinds(response)),
        ),
    ],
    ListConfigResourcesRequest: [
        of_cluster(1, Op.DESCRIBE_CONFIGS, lambda world: ListConfigResourcesRequest(resource_types=[])),
    ],
    DescribeClientQuotasRequest: [
        of_cluster(1, Op.DESCRIBE_CONFIGS, lambda world: DescribeClientQuotasRequest(components=[], strict=False)),
    ],
    AlterClientQuotasRequest: [
        Case(1, altering_quotas, [0], {cluster(Op.ALTER_CONFIGS): [CLUSTER]}, codes("entries")),
    ],
    DescribeUserScramCredentialsRequest: [
        of_cluster(0, Op.DESCRIBE, lambda world: DescribeUserScramCredentialsRequest(users=[])),
    ],
    AlterUserScramCredentialsRequest: [
        Case(
            0,
            lambda world: AlterUserScramCredentialsRequest(
                deletions=[AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="a", mechanism=1)],
                upsertions=[],
            ),
            [91],
            {cluster(Op.ALTER): [CLUSTER]},
            codes("results"),
        ),
    ],
    ElectLeadersRequest: [of_cluster(2, Op.ALTER, electing)],
    AlterPartitionReassignmentsRequest: [of_cluster(0, Op.ALTER, reassigning)],
    ListPartitionReassignmentsRequest: [
        of_cluster(0, Op.DESCRIBE, lambda world: ListPartitionReassignmentsRequest(topics=None)),
    ],
    AlterReplicaLogDirsRequest: [
        Case(
            2,
            moving,
            [("t", [0]), ("u", [0])],
            {cluster(Op.ALTER): [("t", [CLUSTER]), ("u", [CLUSTER])]},
            lambda response: [(one.topic_name, codes("partitions")(one)) for one in response.results],
        ),
    ],
    DescribeQuorumRequest: [of_cluster(2, Op.DESCRIBE, describing_quorum)],
    UpdateFeaturesRequest: [of_cluster(1, Op.ALTER, lambda world: UpdateFeaturesRequest(feature_updates=[]))],
    UnregisterBrokerRequest: [of_cluster(0, Op.ALTER, lambda world: UnregisterBrokerRequest(broker_id=9))],
    UnregisterControllerRequest: [
        of_cluster(0, Op.ALTER, lambda world: UnregisterControllerRequest(controller_id=9)),
    ],
    AddRaftVoterRequest: [of_cluster(1, Op.ALTER, adding_voter)],
    RemoveRaftVoterRequest: [
        of_cluster(
            0,
            Op.ALTER,
            lambda world: RemoveRaftVoterRequest(cluster_id=None, voter_id=2, voter_directory_id=b"1" * 16),
        ),
    ],
    DescribeAclsRequest: [of_cluster(3, Op.DESCRIBE, describing_acls)],
    CreateAclsRequest: [
        Case(3, creating_acls, [0, 0], {cluster(Op.ALTER): [CLUSTER, CLUSTER]}, codes("results")),
    ],
    DeleteAclsRequest: [
        Case(3, deleting_acls, [0, 0], {cluster(Op.ALTER): [CLUSTER, CLUSTER]}, codes("filter_results")),
    ],
    CreateDelegationTokenRequest: [
        Case(3, lambda world: CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), NOT_ALLOWED_HERE, {}, top),
    ],
    RenewDelegationTokenRequest: [
        Case(2, lambda world: RenewDelegationTokenRequest(hmac=b"h", renew_period_ms=1), NOT_ALLOWED_HERE, {}, top),
    ],
    ExpireDelegationTokenRequest: [
        Case(
            2,
            lambda world: ExpireDelegationTokenRequest(hmac=b"h", expiry_time_period_ms=1),
            NOT_ALLOWED_HERE,
            {},
            top,
        ),
    ],
    DescribeDelegationTokenRequest: [
        Case(3, lambda world: DescribeDelegationTokenRequest(owners=None), NOT_ALLOWED_HERE, {}, top),
    ],
    GetTelemetrySubscriptionsRequest: [
        Case(0, lambda world: GetTelemetrySubscriptionsRequest(client_instance_id=bytes(16)), 0, {}, top),
    ],
    PushTelemetryRequest: [Case(0, pushing, 117, {}, top)],  # no such subscription
}
