"""Cases of `test_apis.py` for the cluster: tokens, credentials, the quorum, features, voters, and telemetry."""

from __future__ import annotations

from ottla.protocol.messages.cluster.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.messages.cluster.describe_quorum import DescribeQuorumRequest
from ottla.protocol.messages.cluster.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.messages.cluster.push_telemetry import PushTelemetryRequest
from ottla.protocol.messages.cluster.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.messages.cluster.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.messages.cluster.unregister_controller import UnregisterControllerRequest
from ottla.protocol.messages.cluster.update_features import UpdateFeaturesRequest
from ottla.protocol.messages.security.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.messages.security.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.security.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.messages.security.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.protocol.messages.security.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.security.renew_delegation_token import RenewDelegationTokenRequest
from ottla.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from ottla_testing.broker.api_cases import World, case

KEYS = {38, 39, 40, 41, 50, 51, 55, 57, 64, 71, 72, 80, 81, 94}
DIRECTORY = bytes(range(16))


@case(CreateDelegationTokenRequest)
async def creates_tokens(world: World, version: int) -> None:
    for owner in ("", "joe") if version >= 3 else ("",):
        kind = "User" if owner else ""
        request = CreateDelegationTokenRequest(
            owner_principal_type=kind, owner_principal_name=owner, renewers=[], max_lifetime_ms=-1
        )
        response = await world.client.call(request, version)
        assert (response.error_code, response.principal_type, response.principal_name) == (
            64,
            "User",
            owner or "ANONYMOUS",
        )
        reported = response.token_requester_principal_type, response.token_requester_principal_name
        assert reported == (("User", "ANONYMOUS") if version >= 3 else ("", ""))
        assert (response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms) == (-1, -1, -1)
        assert (response.token_id, response.hmac) == ("", b"")


@case(RenewDelegationTokenRequest)
async def renews_tokens(world: World, version: int) -> None:
    response = await world.client.call(RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1), version)
    assert (response.error_code, response.expiry_timestamp_ms) == (64, -1)


@case(ExpireDelegationTokenRequest)
async def expires_tokens(world: World, version: int) -> None:
    response = await world.client.call(ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1), version)
    assert (response.error_code, response.expiry_timestamp_ms) == (64, -1)


@case(DescribeDelegationTokenRequest)
async def describes_tokens(world: World, version: int) -> None:
    for owners in (None, []):
        response = await world.client.call(DescribeDelegationTokenRequest(owners=owners), version)
        assert (response.error_code, response.tokens) == (64, [])


@case(AlterUserScramCredentialsRequest)
async def alters_credentials(world: World, version: int) -> None:
    wanted = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="joe", mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted])
    (result,) = (await world.client.call(request, version)).results
    assert (result.user, result.error_code, result.error_message) == ("joe", 0, None)
    assert world.broker.state.scram.of("joe")[1].iterations == 4096


@case(DescribeUserScramCredentialsRequest)
async def describes_credentials(world: World, version: int) -> None:
    await alters_credentials(world, 0)
    response = await world.client.call(DescribeUserScramCredentialsRequest(users=None), version)
    (result,) = response.results
    found = [(one.mechanism, one.iterations) for one in result.credential_infos]
    assert (response.error_code, result.user, result.error_code, found) == (0, "joe", 0, [(1, 4096)])


@case(SaslHandshakeRequest)
async def refuses_a_handshake_without_sasl(world: World, version: int) -> None:
    response = await world.client.call(SaslHandshakeRequest(mechanism="PLAIN"), version)
    assert (response.error_code, response.mechanisms) == (34, [])


@case(SaslAuthenticateRequest)
async def refuses_an_authentication_without_sasl(world: World, version: int) -> None:
    response = await world.client.call(SaslAuthenticateRequest(auth_bytes=b"\0a\0b"), version)
    assert (response.error_code, response.auth_bytes) == (34, b"")
    assert response.error_message == "SaslAuthenticate request received after successful authentication"


@case(DescribeQuorumRequest)
async def describes_the_quorum(world: World, version: int) -> None:
    topic = DescribeQuorumRequest.TopicData
    requested = topic(topic_name="__cluster_metadata", partitions=[topic.PartitionData(partition_index=0)])
    response = await world.client.call(DescribeQuorumRequest(topics=[requested]), version)
    ((partition,),) = [one.partitions for one in response.topics]
    end, now_ms = world.broker.state.metadata_log.end_offset, world.broker.clock.now_ms()
    assert (response.error_code, partition.error_code, partition.error_message) == (0, 0, "")
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 1, end)
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.replica_directory_id, voter.log_end_offset) == (1, bytes(16), end)
    times = voter.last_fetch_timestamp, voter.last_caught_up_timestamp
    assert times == ((now_ms, now_ms) if version >= 1 else (-1, -1))
    assert partition.observers == []
    nodes = [(n.node_id, [(one.name, one.host, one.port) for one in n.listeners]) for n in response.nodes]
    assert nodes == ([(1, [("PLAINTEXT", "127.0.0.1", world.broker.ports[0])])] if version >= 2 else [])


@case(UpdateFeaturesRequest)
async def updates_features(world: World, version: int) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="transaction.version", max_version_level=1)
    if version >= 1:
        update.upgrade_type = 2
    response = await world.client.call(UpdateFeaturesRequest(feature_updates=[update]), version)
    # The field that v0 has instead of the kind is ignored: v0 can only raise a level.
    assert response.error_code == (0 if version >= 1 else 95)
    found = [(one.feature, one.error_code, one.error_message) for one in response.results]
    assert found == ([("transaction.version", 0, "NONE")] if version == 1 else [])
    assert world.broker.state.features.transaction_version == (1 if version >= 1 else 2)


@case(UnregisterBrokerRequest)
async def unregisters(world: World, version: int) -> None:
    response = await world.client.call(UnregisterBrokerRequest(broker_id=7), version)
    assert (response.error_code, response.error_message) == (102, "Broker ID 7 is not currently registered")


@case(UnregisterControllerRequest)
async def unregisters_controllers(world: World, version: int) -> None:
    for node, code, text in (
        (1, 42, "Controller cannot unregister itself while it is active."),
        (7, 136, "Controller ID 7 is not currently registered."),
    ):
        response = await world.client.call(UnregisterControllerRequest(controller_id=node), version)
        assert (response.error_code, response.error_message) == (code, text)


@case(AddRaftVoterRequest)
async def adds_voters(world: World, version: int) -> None:
    listener = AddRaftVoterRequest.Listener(name="CONTROLLER", host="localhost", port=9093)
    request = AddRaftVoterRequest(
        cluster_id=None, timeout_ms=1, voter_id=2, voter_directory_id=DIRECTORY, listeners=[listener]
    )
    response = await world.client.call(request, version)
    problem = "Cluster doesn't support adding voter because the kraft.version feature is 0"
    assert (response.error_code, response.error_message) == (35, problem)


@case(RemoveRaftVoterRequest)
async def removes_voters(world: World, version: int) -> None:
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=2, voter_directory_id=DIRECTORY)
    response = await world.client.call(request, version)
    problem = "Cluster doesn't support removing voter because the kraft.version feature is 0"
    assert (response.error_code, response.error_message) == (35, problem)


@case(GetTelemetrySubscriptionsRequest)
async def subscribes(world: World, version: int) -> None:
    response = await world.client.call(GetTelemetrySubscriptionsRequest(client_instance_id=bytes(16)), version)
    assert response.error_code == 0 and response.client_instance_id != bytes(16)
    assert (response.requested_metrics, response.push_interval_ms) == ([], 300_000)
    assert (response.accepted_compression_types, response.telemetry_max_bytes) == ([4, 3, 1, 2], 1_048_576)
    assert response.delta_temporality


@case(PushTelemetryRequest)
async def pushes(world: World, version: int) -> None:
    reported = await world.client.call(GetTelemetrySubscriptionsRequest(client_instance_id=DIRECTORY), 0)
    request = PushTelemetryRequest(
        client_instance_id=DIRECTORY,
        subscription_id=reported.subscription_id,
        terminating=False,
        compression_type=0,
        metrics=b"metrics",
    )
    assert (await world.client.call(request, version)).error_code == 0
    assert world.broker.state.telemetry.instances[DIRECTORY].push_bytes == 7
