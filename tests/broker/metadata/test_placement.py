"""Laws of the placement of replicas on nodes and racks: those of KRaft's StripedReplicaPlacer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.metadata.placement import place
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.topics.create_topics import CreateTopicsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.harness import Broker, create_topics, new_topic, running

RACKS = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}


@given(
    st.dictionaries(st.integers(0, 20), st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=10),
    st.data(),
)
def test_replicas_are_spread_over_racks_and_led_by_running_nodes(racks: dict[int, str | None], data: st.DataObject):
    nodes = sorted(racks)
    stopped = data.draw(st.sets(st.sampled_from(nodes), max_size=len(nodes) - 1), "stopped")
    factor = data.draw(st.integers(1, len(nodes)), "factor")
    count, first = data.draw(st.integers(1, 30), "count"), data.draw(st.integers(0, 100), "first")
    placed = place(count, factor, first, racks, stopped)
    assert len(placed) == count and placed == place(count, factor, first, racks, stopped)
    sizes = Counter(racks.values())
    for replicas in placed:
        assert len(replicas) == len(set(replicas)) == factor and set(replicas) <= set(nodes)
        assert replicas[0] not in stopped
        of_rack = Counter(racks[node] for node in replicas)
        # A rack has at most one replica more than another one that has a further node, and the leader's rack two: it
        # is not the first in order if the racks before it have no running node.
        for rack, used in of_rack.items():
            for other in sizes:
                assert used <= of_rack[other] + 1 + (rack == racks[replicas[0]]) or of_rack[other] == sizes[other]
            unused = {node for node in nodes if racks[node] == rack} - set(replicas) - stopped
            assert not unused or not stopped & {node for node in replicas if racks[node] == rack}


@given(st.integers(0, 50), st.integers(1, 6))
def test_each_rack_leads_a_third_and_all_nodes_lead(first: int, factor: int):
    placed = place(60, factor, first, RACKS, ())
    racks = [RACKS[replicas[0]] for replicas in placed]
    assert all(set(racks[start : start + 3]) == {"a", "b", "c"} for start in range(0, 60, 3))
    # With as many replicas as racks, and equal sizes, racks and nodes advance together; a new order every six
    # partitions lets other nodes lead.
    leaders = Counter(replicas[0] for replicas in placed)
    assert set(leaders) == set(RACKS) and max(leaders.values()) <= 20
    assert all({RACKS[node] for node in replicas} == {"a", "b", "c"} for replicas in placed if factor >= 3)


@given(st.integers(1, 9), st.integers(0, 50))
def test_without_racks_each_node_leads_once_in_each_round(size: int, first: int):
    racks = dict.fromkeys(range(1, size + 1))
    placed = place(3 * size, size, first, racks, ())
    leaders = [replicas[0] for replicas in placed]
    assert leaders[0] == 1 + first % size
    assert all(set(leaders[start : start + size]) == set(racks) for start in range(0, 3 * size, size))


def test_new_orders_make_other_nodes_share_partitions():
    racks = dict.fromkeys(range(6))
    pairs = {frozenset(replicas) for replicas in place(60, 2, 0, racks, ())}
    assert len(pairs) > 6  # more than the six pairs of neighbours


def test_topics_of_one_partition_are_led_by_every_node_of_every_rack():
    leaders = [place(1, 3, first, RACKS, ())[0][0] for first in range(6)]
    assert sorted(leaders) == sorted(RACKS) and [RACKS[node] for node in leaders] == ["a", "b", "c"] * 2


def test_a_rack_without_running_nodes_follows_but_does_not_lead():
    placed = place(12, 3, 0, RACKS, {2, 3})
    assert {RACKS[replicas[0]] for replicas in placed} == {"a", "c"}
    assert all({RACKS[node] for node in replicas} == {"a", "b", "c"} for replicas in placed)


def test_with_all_nodes_stopped_replicas_are_placed_all_the_same():
    assert place(1, 2, 0, {1: None, 2: None}, {1, 2}) == [(1, 2)]


def racks_of(broker: Broker, topic: str) -> list[list[str | None]]:
    racks = broker.state.nodes.racks
    return [[racks[node] for node in one.replicas] for one in broker.state.topics.named(topic).partitions]


def grown(topic: str, count: int) -> CreatePartitionsRequest:
    requested = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=count, assignments=None)
    return CreatePartitionsRequest(topics=[requested], timeout_ms=9, validate_only=False)


OVERRIDES = {f"node.{node}.broker.rack": rack for node, rack in RACKS.items()}


async def test_created_topics_and_partitions_have_a_replica_on_each_rack(tmp_path: Path):
    async with running(tmp_path, brokers=tuple(RACKS), overrides=OVERRIDES) as broker:
        client = await broker.client(3)
        request = CreateTopicsRequest(topics=[new_topic("t", 4, replication=3)])
        assert [one.error_code for one in (await client.call(request, 7)).topics] == [0]
        assert [one.error_code for one in (await client.call(grown("t", 8), 3)).results] == [0]
        await client.call(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="auto")]), 9)
        for topic, count in (("t", 8), ("auto", 1)):
            placed = racks_of(broker, topic)
            assert len(placed) == count and all(sorted(map(str, racks)) == ["a", "b", "c"] for racks in placed)
        broker.state.internal_topic("__consumer_offsets", 0)
        assert all(len(set(racks)) == 3 for racks in racks_of(broker, "__consumer_offsets"))


async def test_only_some_racks_are_refused_with_zookeeper_alone(tmp_path: Path):
    some = {"node.1.broker.rack": "a"}
    async with running(tmp_path / "new", brokers=2, overrides=some) as broker:
        assert (await (await broker.client()).call(create_topics("t"), 5)).topics[0].error_code == 0
    async with running(tmp_path / "old", brokers=2, overrides=some, release="2.8") as broker:
        client = await broker.client()
        (refused,) = (await client.call(create_topics("t"), 5)).topics
        assert (refused.error_code, refused.error_message) == (ErrorCode.UNKNOWN_SERVER_ERROR, None)
        await broker.topic("made")
        assert (await client.call(grown("made", 2), 3)).results[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        one = CreateTopicsRequest.CreatableTopic.CreatableReplicaAssignment(partition_index=0, broker_ids=[2])
        by_hand = CreateTopicsRequest(topics=[new_topic("t", -1, replication=-1, assignments=[one])])
        assert (await client.call(by_hand, 5)).topics[0].error_code == 0
