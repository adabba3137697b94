"""The admin client and the cluster: elections, reassignments, features, the quorum, transactions, config resources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.client import Producer
from ottla.client.admin.admin import (
    ConfigResource,
    ElectionType,
    FeatureUpdate,
    Replica,
    ResourceType,
    UpgradeType,
    VersionRange,
)
from ottla.client.net.errors import KafkaError, UnsupportedVersion
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.protocol.messages.cluster.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.harness import running
from ottla_testing.client.admin_calls import TWO, in_turn, run
from ottla_testing.client.administering import RELEASES, administering, code, codes, since, unsupported
from ottla_testing.client.reading import NOW_MS
from ottla_testing.client.scripted import ScriptedNetwork, metadata
from ottla_testing.each import each


@each("release", RELEASES, strided=True)
async def test_elect_leaders_returns_the_outcome_of_each_partition(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        await broker.topic("t", 2)
        assert await admin.elect_leaders(ElectionType.PREFERRED, []) == {}
        try:
            done = await admin.elect_leaders(ElectionType.PREFERRED, [("t", 1), ("t", 7), ("t", 0)])
        except UnsupportedVersion:
            assert not since(release, "2.4")
            return
        assert since(release, "2.4")
        assert {where: code(outcome) for where, outcome in done.items()} == {
            ("t", 1): ErrorCode.ELECTION_NOT_NEEDED,
            ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("t", 0): ErrorCode.ELECTION_NOT_NEEDED,
        }
        assert await admin.elect_leaders(ElectionType.UNCLEAN) == {}  # all partitions: none needed an election


@each("release", RELEASES, strided=True)
async def test_reassignments_are_altered_listed_and_cancelled(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        await broker.topic("t", 2)
        targets = {("t", 0): [1], ("t", 1): [9], ("u", 0): [1], ("t", 5): None}
        done = await admin.alter_partition_reassignments(targets)
        if not since(release, "2.4"):
            assert unsupported(done)
            return
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # With ZooKeeper a missing partition has no reassignment either.
        uncancelled = unknown if since(release, "3.9") else ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert codes(done) == [0, ErrorCode.INVALID_REPLICA_ASSIGNMENT, unknown, uncancelled]
        assert await admin.list_partition_reassignments() == {}
        assert await admin.list_partition_reassignments([("t", 0)]) == {}
        fixed = await admin.alter_partition_reassignments({("t", 0): [1]}, allow_replication_factor_change=False)
        assert unsupported(fixed) if not since(release, "4.3") else fixed == {("t", 0): None}


@each("release", RELEASES, strided=True)
async def test_alter_replica_log_dirs_moves_partitions(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        await broker.topic("t", 2)
        targets = {Replica("t", 0, 1): "/no/such", Replica("t", 1, 1): "/no/such"}
        done = await admin.alter_replica_log_dirs(targets)
        if not since(release, "1.1"):
            assert unsupported(done)
            return
        assert codes(done) == [ErrorCode.LOG_DIR_NOT_FOUND] * 2 and list(done) == list(targets)
        (folder,) = (await admin.describe_log_dirs([1]))[1]  # type: ignore[misc]
        assert await admin.alter_replica_log_dirs({Replica("t", 0, 1): folder.path}) == {Replica("t", 0, 1): None}


@each("release", RELEASES, strided=True)
async def test_features_and_quorum_are_described_by_release(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        features = await admin.describe_features()
        if not since(release, "2.8"):
            assert features == ({}, {}, -1)
        refused = await admin.update_features({"no.such": FeatureUpdate(1)})
        if since(release, "2.8"):
            assert code(refused["no.such"]) != 0
        else:
            assert unsupported(refused)
        if not since(release, "4.3"):
            return
        name = "transaction.version"
        assert features.supported[name].least <= features.finalized[name].most <= features.supported[name].most
        assert isinstance(features.finalized[name], VersionRange) and features.finalized_epoch >= 0
        same = {name: FeatureUpdate(features.finalized[name].most)}
        assert await admin.update_features(same, validate_only=True) == {name: None}
        quorum = await admin.describe_metadata_quorum()
        assert (quorum.leader, [voter.node_id for voter in quorum.voters]) == (1, [1])
        assert quorum.high_watermark == quorum.voters[0].log_end_offset > 0
        with pytest.raises(KafkaError):
            await admin.unregister_broker(77)


@each("release", ("2.8", "3.8", "4.3", "ottla"), strided=True)
async def test_list_config_resources_depends_on_the_release(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        await broker.topic("t")
        if not since(release, "4.3"):
            with pytest.raises(UnsupportedVersion):
                await admin.list_config_resources()
            return
        group = ConfigResource(ResourceType.GROUP, "g")
        assert await admin.alter_configs({group: {"consumer.session.timeout.ms": "50000"}}) == {group: None}
        assert await admin.list_config_resources([ResourceType.GROUP]) == [group]
        assert await admin.list_config_resources([ResourceType.TOPIC]) == [ConfigResource.topic("t")]
        everything = await admin.list_config_resources()
        assert everything == sorted(everything)
        assert {group, ConfigResource.topic("t"), ConfigResource.broker(1)} <= set(everything)


@each("release", RELEASES, strided=True)
async def test_transactions_are_listed_and_described(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        await broker.topic("t", 2)
        if not since(release, "3.0"):
            with pytest.raises(UnsupportedVersion, match="ListTransactions"):
                await admin.list_transactions()
            if since(release, "0.11"):
                assert unsupported(await admin.describe_transactions(["x"]))
            return
        async with Producer(f"127.0.0.1:{broker.ports[0]}", transactional_id="one") as producer:
            await producer.begin()
            await producer.send_and_wait("t", b"v", partition=1, timestamp_ms=NOW_MS)
            (listed,) = await admin.list_transactions()
            assert (listed.transactional_id, listed.state) == ("one", "Ongoing")
            assert await admin.list_transactions(states=["Ongoing"], producer_ids=[listed.producer_id]) == [listed]
            assert await admin.list_transactions(states=["Empty"]) == []
            assert await admin.list_transactions(states=["Odd"]) == []
            described = await admin.describe_transactions(["one", "two"])
            result: Any = described["one"]
            assert result[:4] == ("one", 1, "Ongoing", listed.producer_id) and result.partitions == (("t", 1),)
            assert code(described["two"]) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            if since(release, "3.8"):
                assert await admin.list_transactions(duration_ms=10**9) == []
            if since(release, "4.3"):
                assert await admin.list_transactions(pattern="o.*") == [listed]
                assert await admin.list_transactions(pattern="x.*") == []
            else:
                with pytest.raises(UnsupportedVersion, match="pattern"):
                    await admin.list_transactions(pattern="o.*")
            await producer.abort()


@each("release", RELEASES, strided=True)
async def test_abort_transaction_ends_a_hanging_transaction(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker, administering(broker) as admin:
        await broker.topic("t", 2)
        if not since(release, "0.11"):
            with pytest.raises(UnsupportedVersion, match="WriteTxnMarkers"):
                await admin.abort_transaction(("t", 1), 7, 0)
            return
        async with Producer(f"127.0.0.1:{broker.ports[0]}", transactional_id="one") as producer:
            await producer.begin()
            await producer.send_and_wait("t", b"v", partition=1, timestamp_ms=NOW_MS)
            ((producer_id, known),) = broker.log("t", 1).producers().items()
            with pytest.raises(KafkaError) as refused:
                await admin.abort_transaction(("t", 1), producer_id, known.epoch - 1)
            assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
            assert broker.log("t", 1).last_stable_offset == 0
            await admin.abort_transaction(("t", 1), producer_id, known.epoch)
            assert broker.log("t", 1).last_stable_offset == broker.log("t", 1).log_end_offset == 2
            await producer.abort()


# Responses of brokers with other versions


def brokers(network: ScriptedNetwork, versions: dict[type, str], *responses: Any) -> list[Any]:
    found = [network.broker(name, versions={MetadataRequest: "0-9", **versions}) for name in ("one", "two")]
    for broker in found:
        broker.does[MetadataRequest] = in_turn(*responses)
    return found


def elected(code: int, *of_partitions: tuple[int, int]) -> ElectLeadersResponse:
    result = ElectLeadersResponse.ReplicaElectionResult
    listed = [result.PartitionResult(partition_id=n, error_code=each, error_message=None) for n, each in of_partitions]
    return ElectLeadersResponse(error_code=code, replica_election_results=[result(topic="t", partition_result=listed)])


def test_election_is_requested_at_the_current_controller() -> None:
    network = ScriptedNetwork()
    one, two = brokers(
        network, {ElectLeadersRequest: "0-2"}, metadata(TWO, controller_id=1), metadata(TWO, controller_id=2)
    )
    one.does[ElectLeadersRequest] = in_turn(elected(41))
    two.does[ElectLeadersRequest] = in_turn(elected(0, (0, 0), (1, 84), (2, 80)))
    found, _ = run(network, lambda admin: admin.elect_leaders(ElectionType.PREFERRED))
    assert {where: code(outcome) for where, outcome in found.items()} == {
        ("t", 0): 0,
        ("t", 2): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    }
    (heard,) = two.requests_of(ElectLeadersRequest)
    assert heard.request.topic_partitions is None


@pytest.mark.parametrize("election", ElectionType)
def test_elections_v0_support_only_preferred_leaders(election: ElectionType) -> None:
    network = ScriptedNetwork()
    one, _ = brokers(network, {ElectLeadersRequest: "0"}, metadata(TWO, controller_id=1))
    one.does[ElectLeadersRequest] = in_turn(elected(0, (0, 84)))
    found, _ = run(network, lambda admin: admin.elect_leaders(election, [("t", 0)]))
    if election == ElectionType.PREFERRED:
        assert codes(found) == [ErrorCode.ELECTION_NOT_NEEDED]
    else:
        assert isinstance(found, UnsupportedVersion)


def test_update_features_v0_and_v1_report_results_differently() -> None:
    result = UpdateFeaturesResponse.UpdatableFeatureResult
    each = [result(feature=name, error_code=n, error_message=None) for name, n in (("a", 0), ("b", 95))]
    updates = {"a": FeatureUpdate(2), "b": FeatureUpdate(0, UpgradeType.SAFE_DOWNGRADE)}
    for versions, response, expected in (
        ("0", UpdateFeaturesResponse(throttle_time_ms=0, error_code=0, error_message=None, results=each), [0, 95]),
        ("0-1", UpdateFeaturesResponse(throttle_time_ms=0, error_code=42, error_message="x", results=[]), [42, 42]),
        ("0-2", UpdateFeaturesResponse(throttle_time_ms=0, error_code=0, error_message=None, results=[]), [0, 0]),
    ):
        network = ScriptedNetwork()
        one, _ = brokers(network, {UpdateFeaturesRequest: versions}, metadata(TWO, controller_id=1))
        one.does[UpdateFeaturesRequest] = in_turn(response)

        async def calls(admin: Any) -> Any:
            return await admin.update_features(updates), await admin.update_features(updates, validate_only=True)

        (found, tried), _ = run(network, calls)
        assert codes(found) == expected and unsupported(tried) == (versions == "0")
        heard = one.requests_of(UpdateFeaturesRequest)[0]
        listed = [(f.allow_downgrade, f.upgrade_type) for f in heard.request.feature_updates]
        assert listed == ([(False, 1), (True, 1)] if versions == "0" else [(False, 1), (False, 2)])
