"""Eligible leader replicas (KIP-966): the rules of Kafka's controller, in elections, responses and records."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.metadata.nodes import Nodes
from ottla.broker.replica.assignment import NO_LEADER, Assignment
from ottla.protocol.messages.cluster.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.topics.create_topics import CreateTopicsRequest
from ottla.protocol.messages.topics.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla_testing.broker.configuring import BROKER, SET, TOPIC, change
from ottla_testing.broker.harness import Broker, Client, fetch, new_topic, only, produce, records, running

Shown = tuple[int, list[int], list[int], list[int]]


def stopping(nodes: Nodes, now: Assignment, node: int, least: int = 2) -> Assignment:
    nodes.stopped.add(node)
    return nodes.elected(now, is_held=False, unclean=False, least=least)


def starting(nodes: Nodes, now: Assignment, node: int, least: int = 2) -> Assignment:
    nodes.stopped.discard(node)
    return nodes.elected(now, is_held=False, unclean=False, least=least)


def test_replicas_that_leave_a_small_isr_stay_eligible() -> None:
    nodes = Nodes(1, range(1, 4))
    now = stopping(nodes, Assignment((1, 2, 3), (1, 2, 3), 1), 1)
    assert now == Assignment((1, 2, 3), (2, 3), 2, 1, 1), "as many as min.insync.replicas are in sync"
    now = stopping(nodes, now, 2)
    assert now == Assignment((1, 2, 3), (3,), 3, 2, 2, eligible=(2,))
    now = stopping(nodes, now, 3)
    assert now == Assignment((1, 2, 3), (), NO_LEADER, 3, 3, eligible=(2, 3), last_known=(3,))
    assert starting(nodes, now, 1) == now, "it left while enough others were in sync, so it may lack records"
    now = starting(nodes, now, 2)
    assert now == Assignment((1, 2, 3), (1, 2), 2, 4, 4)
    assert starting(nodes, now, 3) == Assignment((1, 2, 3), (1, 2, 3), 2, 4, 5)


def test_fewer_replicas_than_min_insync_replicas_count_as_enough() -> None:
    nodes = Nodes(1, range(1, 3))
    now = stopping(nodes, Assignment((1,), (1,), 1), 1)
    assert now == Assignment((1,), (), NO_LEADER, 1, 1, eligible=(1,), last_known=(1,))
    assert starting(nodes, now, 1) == Assignment((1,), (1,), 1, 2, 2)


def test_unclean_election_clears_the_eligible_replicas() -> None:
    nodes = Nodes(1, range(1, 4))
    nodes.stopped = {1, 2}
    now = Assignment((1, 2, 3), (), NO_LEADER, 3, 3, eligible=(1, 2), last_known=(2,))
    assert nodes.elected(now, is_held=False, unclean=True, least=2) == Assignment((1, 2, 3), (3,), 3, 4, 4)


def test_last_known_leader_leads_if_no_other_replica_is_known() -> None:
    nodes = Nodes(1, range(1, 4))
    nodes.stopped = {1}
    now = Assignment((1, 2, 3), (), NO_LEADER, 3, 3, last_known=(2,))
    assert nodes.elected(now, is_held=False, unclean=False, least=2) == Assignment((1, 2, 3), (2, 3), 2, 4, 4)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Nodes, Assignment, int]:
    nodes = Nodes(1, range(1, draw(st.integers(3, 6))))
    replicas = tuple(draw(st.permutations(nodes.ids))[: draw(st.integers(1, len(nodes.ids)))])
    least = draw(st.integers(1, 3))
    now = Assignment(replicas, replicas, replicas[0])
    for stopped in draw(st.lists(st.sets(st.sampled_from(nodes.ids)), max_size=4)):
        nodes.stopped = stopped
        now = nodes.elected(now, is_held=False, unclean=False, least=least)
    nodes.stopped = draw(st.sets(st.sampled_from(nodes.ids)))
    return nodes, now, least


@given(situations(), st.booleans())
def test_random_elections_keep_the_invariants(situation: tuple[Nodes, Assignment, int], unclean: bool) -> None:
    nodes, before, least = situation
    after = nodes.elected(before, is_held=False, unclean=unclean, least=least)
    enough = min(least, len(after.replicas))
    assert not set(after.isr) & set(after.eligible)
    assert set(after.isr) | set(after.eligible) <= set(after.replicas)
    assert (after.leader == NO_LEADER) == (after.isr == ())
    assert len(after.isr) < enough or not after.eligible
    assert after.leader != NO_LEADER or after.eligible, "a partition without a leader knows who could lead"
    had = {*before.isr, *before.eligible}
    if after.leader in had or after.leader == NO_LEADER:
        assert len(after.isr) >= enough or set(after.eligible) == had - set(after.isr)
    else:
        assert unclean and not had - nodes.stopped
    assert nodes.elected(after, is_held=False, unclean=unclean, least=least) == after


async def shown(client: Client) -> Shown:
    """Returns leader, ISR, eligible leader replicas and last known ones of t-0."""
    requested = DescribeTopicPartitionsRequest.TopicRequest(name="t")
    request = DescribeTopicPartitionsRequest(topics=[requested], response_partition_limit=9)
    (one,) = (await client.call(request, 0)).topics[0].partitions
    return (
        one.leader_id,
        list(one.isr_nodes),
        list(one.eligible_leader_replicas or ()),
        list(one.last_known_elr or ()),
    )


async def made(broker: Broker, least: str = "2") -> Client:
    """Creates t with a partition of three replicas."""
    client = await broker.client(0)
    topic = new_topic("t", 1, replication=3)
    topic.configs = [type(topic).CreatableTopicConfig(name="min.insync.replicas", value=least)]
    (created,) = (await client.call(CreateTopicsRequest(topics=[topic]), 7)).topics
    assert created.error_code == 0
    return client


def shrink(broker: Broker) -> None:
    """Leaves node 1 alone in sync, and then no one but node 4, which has no replica."""
    for node in (3, 2):
        broker.state.topology.stop_node(node)


async def test_eligible_replicas_are_described_and_survive_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=3, release="4.3") as broker:
        client = await made(broker)
        assert await shown(client) == (1, [1, 2, 3], [], [])
        shrink(broker)
        assert await shown(client) == (1, [1], [2], [])
        response = await client.call(produce(records(b"a"), acks=-1), 9)
        assert only(response).error_code == 19, "fewer than min.insync.replicas"
        note = broker.state.topology.note()
    async with running(tmp_path, brokers=3, release="4.3", note=note) as broker:
        client = await broker.client(0)
        assert await shown(client) == (1, [1], [2], [])
        broker.state.topology.take_offline("t", 0)
        assert await shown(client) == (-1, [], [1, 2], [1])
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1000)
        assert (await client.call(request, 2)).error_code == 0
        broker.state.topology.bring_online("t", 0)
        assert await shown(client) == (1, [1], [2], [])
        broker.state.topology.start_node(2)
        assert await shown(client) == (1, [1, 2], [], [])


async def test_eligible_replica_leads_after_the_last_in_sync_stopped(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=4, release="4.3") as broker:
        await made(broker)
        client = await broker.client(3)
        shrink(broker)
        broker.state.topology.stop_node(1)
        assert await shown(client) == (-1, [], [1, 2], [1])
        broker.state.topology.start_node(3)
        assert await shown(client) == (-1, [], [1, 2], [1])
        broker.state.topology.start_node(2)
        assert await shown(client) == (2, [2, 3], [], [])


async def test_change_of_min_insync_replicas_clears_the_eligible_replicas(tmp_path: Path) -> None:
    for kind, name in ((TOPIC, "t"), (BROKER, "")):
        async with running(tmp_path / str(kind), brokers=3, release="4.3") as broker:
            client = await made(broker)
            shrink(broker)
            assert await change(client, kind, name, ("retention.ms" if name else "log.retention.ms", SET, "7")) == (
                0,
                None,
            )
            assert await change(client, TOPIC, "t", ("min.insync.replicas", SET, "2")) == (0, None), "no change"
            assert await shown(client) == (1, [1], [2], [])
            assert await change(client, kind, name, ("min.insync.replicas", SET, "3")) == (0, None)
            assert await shown(client) == (1, [1], [], [])


async def test_partitions_without_the_feature_keep_their_last_isr(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=4, release="4.3") as broker:
        await made(broker)
        for node in (3, 2, 1):
            broker.state.topology.stop_node(node)
        assert await shown(await broker.client(3)) == (-1, [], [1, 2], [1])
        note = broker.state.topology.note()
    async with running(tmp_path, brokers=4, release="3.9", note=note) as broker:
        broker.state.topology.start_node(2)
        assert await shown(await broker.client(3)) == (2, [2], [], [])
        broker.state.topology.stop_node(2)
        assert await shown(await broker.client(3)) == (-1, [2], [], [])


async def visible(client: Client) -> tuple[int, int]:
    """Returns the high watermark of t-0 and the number of bytes that a consumer gets."""
    got = only(await client.call(fetch(("t", 0, 0)), 11))
    assert got.error_code == 0
    return got.high_watermark, len(got.records or b"")


async def test_high_watermark_stays_while_too_few_replicas_are_in_sync(tmp_path: Path) -> None:
    """KAFKA-15583: from 3.7 on; acks=1 still writes."""
    for release, holds in (("4.3", True), ("3.7", True), ("3.6", False), ("ottla", True)):
        async with running(tmp_path / release, brokers=3, release=release) as broker:
            client = await made(broker)
            assert only(await client.call(produce(records(b"a"), acks=1), 9)).error_code == 0
            one = await visible(client)
            assert one[0] == 1
            shrink(broker)
            assert only(await client.call(produce(records(b"b"), acks=1), 9)).error_code == 0
            assert await visible(client) == (one if holds else (2, 2 * one[1]))
            waiting = asyncio.ensure_future(
                (await broker.client(0)).call(fetch(("t", 0, 1), min_bytes=1, max_wait_ms=10**6), 11)
            )
            assert await change(client, TOPIC, "t", ("min.insync.replicas", SET, "1")) == (0, None)
            assert only(await waiting).high_watermark == 2
            assert await change(client, TOPIC, "t", ("min.insync.replicas", SET, "2")) == (0, None)
            assert only(await client.call(produce(records(b"c"), acks=1), 9)).error_code == 0
            assert (await visible(client))[0] == (2 if holds else 3)
            broker.state.topology.start_node(3)
            assert (await visible(client))[0] == 3
