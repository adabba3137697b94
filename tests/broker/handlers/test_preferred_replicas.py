"""The preferred read replica in responses of Fetch (KIP-392), and the replicas that serve consumers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.config.java_classes import RACK_AWARE
from ottla.broker.replica.assignment import NO_LEADER
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.records.fetch import FetchRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.harness import Broker, Client, fetch, only, produce, records, running, values

RACKS = {1: "a", 2: "b", 3: "c", 4: "b"}
OVERRIDES = {"replica.selector.class": RACK_AWARE} | {f"node.{id}.broker.rack": rack for id, rack in RACKS.items()}
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Broker]:
    """Four nodes; topic t has one partition with all replicas and two records, led by node 1."""
    async with running(tmp_path, brokers=4, overrides=OVERRIDES) as broker:
        broker.state.topics.create("t", 1, {}, broker.clock.now_ms(), [[1, 2, 3, 4]])
        assert only(await (await broker.client()).call(produce(records(b"a", b"b")), 9)).error_code == 0
        yield broker


async def read(client: Client, rack: str, offset: int = 0, version: int = 12, **more: Any) -> Any:
    return only(await client.call(fetch(("t", 0, offset), rack_id=rack, **more), version))


async def test_the_leader_names_the_replica_in_the_rack_and_reads_nothing(cluster: Broker) -> None:
    leader = await cluster.client()
    found = await read(leader, "b")
    assert (found.error_code, found.preferred_read_replica, found.records) == (0, 4, b"")  # the highest id of two
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (2, 2, 0)
    assert found.aborted_transactions is None
    assert (await read(leader, "c", version=11)).preferred_read_replica == 3
    for rack in ("a", "elsewhere", ""):
        found = await read(leader, rack)
        assert (found.preferred_read_replica, values(found.records)) == (-1, [b"a", b"b"])


async def test_the_replica_serves_and_names_no_other(cluster: Broker) -> None:
    for node in (2, 3, 4):
        found = await read(await cluster.client(node - 1), "b")
        assert (found.error_code, found.preferred_read_replica, values(found.records)) == (0, -1, [b"a", b"b"])


async def test_versions_before_11_and_followers_are_not_sent_elsewhere(cluster: Broker) -> None:
    leader, follower = await cluster.client(0), await cluster.client(1)
    assert values(only(await leader.call(fetch(("t", 0, 0)), 10)).records) == [b"a", b"b"]
    assert only(await follower.call(fetch(("t", 0, 0)), 10)).error_code == NOT_LEADER
    found = await read(leader, "b", replica_id=2)
    assert (found.preferred_read_replica, values(found.records)) == (-1, [b"a", b"b"])
    state = FetchRequest.ReplicaState(replica_id=2)
    topic_id = cluster.state.topics.named("t").id
    found = only(await leader.call(fetch((topic_id, 0, 0), rack_id="b", replica_state=state), 15))
    assert (found.preferred_read_replica, values(found.records)) == (-1, [b"a", b"b"])
    assert (await read(follower, "b", replica_id=3)).error_code == NOT_LEADER
    assert (await read(leader, "b", replica_id=-2)).preferred_read_replica == 4  # a debugging consumer
    assert values((await read(follower, "b", replica_id=-2)).records) == [b"a", b"b"]


async def test_an_offset_that_no_replica_has_is_refused_by_the_leader(cluster: Broker) -> None:
    leader = await cluster.client()
    assert (await read(leader, "b", offset=2)).preferred_read_replica == 4  # the end of the log
    assert (await read(leader, "b", offset=3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    cluster.log("t").delete_records_before(1)
    found = await read(leader, "b", offset=0)
    assert (found.error_code, found.preferred_read_replica) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert (await read(leader, "b", offset=1)).preferred_read_replica == 4


async def test_the_leader_epoch_is_checked_first(cluster: Broker) -> None:
    leader, epoch = await cluster.client(), {"current_leader_epoch": 5}
    found = await read(leader, "b", partition_fields=epoch)
    assert (found.error_code, found.preferred_read_replica) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)
    assert (await read(leader, "b", partition_fields={"current_leader_epoch": 0})).preferred_read_replica == 4


async def test_stopped_nodes_are_not_named(cluster: Broker) -> None:
    leader, topology = await cluster.client(), cluster.state.topology
    topology.stop_node(4)
    assert (await read(leader, "b")).preferred_read_replica == 2
    topology.stop_node(2)
    found = await read(leader, "b")
    assert (found.preferred_read_replica, values(found.records)) == (-1, [b"a", b"b"])
    topology.start_node(4)
    assert (await read(leader, "b")).preferred_read_replica == 4
    topology.move_leader("t", 0, 4)
    assert values((await read(await cluster.client(3), "b")).records) == [b"a", b"b"]
    assert (await read(await cluster.client(3), "a")).preferred_read_replica == 1


async def test_a_node_without_the_partition_refuses(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=4, overrides=OVERRIDES) as broker:
        broker.state.topics.create("t", 1, {}, broker.clock.now_ms(), [[1, 2]])
        found = await read(await broker.client(3), "b")
        assert found.error_code == NOT_LEADER
        assert (await read(await broker.client(0), "c")).preferred_read_replica == -1  # node 3 is no replica
        broker.state.topology.take_offline("t", 0)
        assert broker.state.topics.leader("t", 0) == NO_LEADER
        assert [(await read(await broker.client(node), "b")).error_code for node in (0, 1)] == [NOT_LEADER] * 2


async def test_a_preferred_replica_ends_the_wait_of_all_partitions(cluster: Broker) -> None:
    await cluster.topic("u")
    cluster.state.topology.move_leader("u", 0, 1)
    requested = fetch(("u", 0, 0), ("t", 0, 2), rack_id="c", max_wait_ms=10_000, min_bytes=100)
    response = await (await cluster.client()).call(requested, 12)
    named = {topic.topic: topic.partitions[0].preferred_read_replica for topic in response.responses}
    assert named == {"u": 3, "t": 3}
    requested = fetch(("t", 0, 2), rack_id="c", max_wait_ms=10_000)  # the clock stands still: a wait would not end
    assert only(await (await cluster.client()).call(requested, 12)).preferred_read_replica == 3


async def test_incremental_responses_repeat_the_replica(cluster: Broker) -> None:
    client = await cluster.client()
    response = await client.call(fetch(("t", 0, 0), rack_id="b", session_epoch=0), 12)
    assert only(response).preferred_read_replica == 4 and response.session_id
    for epoch in (1, 2):
        again = fetch(rack_id="b", session_id=response.session_id, session_epoch=epoch)
        assert only(await client.call(again, 12)).preferred_read_replica == 4
    # The rack is that of each request: the session does not keep it.
    other = fetch(session_id=response.session_id, session_epoch=3)
    assert values(only(await client.call(other, 12)).records) == [b"a", b"b"]


@pytest.mark.parametrize("on_leader", [True, False])
async def test_the_selector_of_the_leader_decides(tmp_path: Path, on_leader: bool) -> None:
    racks = {f"node.{id}.broker.rack": rack for id, rack in RACKS.items()}
    overrides = racks | {f"node.{1 if on_leader else 2}.replica.selector.class": RACK_AWARE}
    async with running(tmp_path, brokers=4, overrides=overrides) as broker:
        broker.state.topics.create("t", 1, {}, broker.clock.now_ms(), [[1, 2]])
        found = await read(await broker.client(), "b")
        assert found.preferred_read_replica == (2 if on_leader else -1)


async def test_releases_before_kip_392_serve_from_the_leader_alone(tmp_path: Path) -> None:
    racks = {f"node.{id}.broker.rack": rack for id, rack in RACKS.items()}
    async with running(tmp_path, brokers=4, overrides=racks, release="2.3") as broker:
        broker.state.topics.create("t", 1, {}, broker.clock.now_ms(), [[1, 2]])
        codes = [(await read(await broker.client(node), "b", version=11)).error_code for node in (0, 1)]
        assert codes == [0, NOT_LEADER]


async def test_each_node_has_its_rack_in_responses(cluster: Broker) -> None:
    client = await cluster.client()
    assert {one.node_id: one.rack for one in (await client.call(MetadataRequest(topics=[]), 9)).brokers} == RACKS
    described = await client.call(DescribeClusterRequest(include_cluster_authorized_operations=False), 0)
    assert {one.broker_id: one.rack for one in described.brokers} == RACKS
    refused = await (await cluster.client(1)).call(produce(records(b"c")), 10)
    assert [(one.node_id, one.rack) for one in refused.node_endpoints] == [(1, "a")]
