"""Quotas of partition creations and deletions (KIP-599), and of connections by address (KIP-612)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.harness import Closed, create_topics, ping, running
from ottla_testing.broker.quota_cases import set_quotas
from ottla_testing.broker.quota_world import HELD, LOOP_ITERATIONS, held, is_heard, limited

# --- partitions

EXCEEDED = (89, None)


def errors_of(response: Any) -> list[tuple[int, str | None]]:
    results = getattr(response, "topics", None) or getattr(response, "results", None) or response.responses
    return [(one.error_code, one.error_message) for one in results]


def more_partitions(count: int, *names: str) -> CreatePartitionsRequest:
    requested = CreatePartitionsRequest.CreatePartitionsTopic
    return CreatePartitionsRequest(
        topics=[requested(name=name, count=count, assignments=None) for name in names],
        timeout_ms=1,
        validate_only=False,
    )


def deleting(*names: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=1)


async def test_topics_beyond_the_bucket_are_refused_individually(tmp_path: Path) -> None:
    async with limited(tmp_path, controller_mutation_rate=1) as (broker, client):
        response = await client.call(
            create_topics("a", "b", "c", partitions=10), 7
        )  # 11 tokens; the second one leads to -9
        assert errors_of(response) == [(0, None), (0, None), EXCEEDED]
        assert response.throttle_time_ms == 9000
        assert [topic.name for topic in broker.state.topics] == ["t", "a", "b"]
        await client.send(ping(), 0)
        assert not await is_heard(broker, client)
        broker.clock.advance(9000)
        await client.receive()
        response = await client.call(create_topics("c"), 7)
        assert (errors_of(response), response.throttle_time_ms) == ([(0, None)], 0)


async def test_request_that_empties_the_bucket_does_not_wait(tmp_path: Path) -> None:
    async with limited(tmp_path, controller_mutation_rate=1) as (broker, client):
        response = await client.call(create_topics("a", partitions=100), 7)
        assert (errors_of(response), response.throttle_time_ms) == ([(0, None)], 0)
        response = await client.call(deleting("a"), 5)
        assert (errors_of(response), response.throttle_time_ms) == ([EXCEEDED], 89_000)
        named = DeleteTopicsRequest.DeleteTopicState(name="a", topic_id=bytes(16))
        by_name = DeleteTopicsRequest(topics=[named], timeout_ms=1)
        (refused,) = (await (await held(broker)).call(by_name, 6)).responses
        assert (refused.error_code, refused.topic_id) == (89, broker.state.topics.named("a").id)


async def test_rate_of_0_refuses_forever_in_zookeeper_releases(tmp_path: Path) -> None:
    async with running(tmp_path, release="2.8") as broker:
        client = await held(broker)
        await set_quotas(await broker.client(), HELD, controller_mutation_rate=0)
        response = await client.call(create_topics("a", "b"), 7)
        assert (errors_of(response), response.throttle_time_ms) == ([(0, None), EXCEEDED], 0)
        broker.clock.advance(1_000_000)
        assert errors_of(await client.call(create_topics("b"), 7)) == [EXCEEDED]
        assert errors_of(await client.call(create_topics("b"), 5)) == [(0, None)]


async def test_added_partitions_are_charged(tmp_path: Path) -> None:
    async with limited(tmp_path, controller_mutation_rate=1) as (broker, client):
        await broker.topic("u")
        response = await client.call(more_partitions(21, "t", "u"), 3)
        assert errors_of(response) == [(0, None), EXCEEDED]
        assert response.throttle_time_ms == 9000
        assert len(broker.state.topics.named("u").partitions) == 1


@pytest.mark.parametrize("version", [2, 5])
async def test_older_versions_are_served_and_throttled(version: int, tmp_path: Path) -> None:
    async with limited(tmp_path, controller_mutation_rate=1) as (broker, client):
        response = await client.call(create_topics("a", "b", partitions=10), version)
        assert [code for code, _ in errors_of(response)] == [0, 0]
        assert response.throttle_time_ms == 9000
        other = await held(broker)
        response = await other.call(deleting("a"), 4)
        assert ([one.error_code for one in response.responses], response.throttle_time_ms) == ([0], 19_000)
        third = await held(broker)
        response = await third.call(more_partitions(3, "t"), 2)
        assert (errors_of(response), response.throttle_time_ms) == ([(0, None)], 21_000)


async def test_auto_created_topics_are_charged_without_a_wait(tmp_path: Path) -> None:
    async with limited(tmp_path, controller_mutation_rate=1) as (broker, client):
        requested = MetadataRequest.MetadataRequestTopic
        names = [f"named-{number}" for number in range(20)]
        request = MetadataRequest(topics=[requested(name=name) for name in names], allow_auto_topic_creation=True)
        response = await client.call(request, 9)
        assert response.throttle_time_ms == 0 and len(broker.state.topics) == 21
        response = await client.call(create_topics("a"), 7)
        assert (errors_of(response), response.throttle_time_ms) == ([EXCEEDED], 9000)


@pytest.mark.parametrize(("release", "charged"), [("3.2", False), ("3.9", True)])
async def test_charging_of_validate_only_depends_on_the_release(release: str, charged: bool, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        client = await held(broker)
        await set_quotas(await broker.client(), HELD, controller_mutation_rate=1)
        await client.call(create_topics("a", partitions=20, validate_only=True), 7)
        response = await client.call(create_topics("a"), 7)
        assert errors_of(response)[0] == (EXCEEDED if charged else (0, None))


# --- connections


async def test_connections_of_an_address_are_limited(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        admin = await broker.client()
        await set_quotas(admin, {"ip": "127.0.0.1"}, connection_creation_rate=1)
        for _ in range(10):
            await (await broker.client()).call(ping(), 0)
        left = await broker.client()
        await left.send(ping(), 0)
        response = asyncio.ensure_future(left.receive_bytes())
        for _ in range(LOOP_ITERATIONS):
            await admin.call(ping(), 0)
        assert not response.done()
        broker.clock.advance(999)
        for _ in range(LOOP_ITERATIONS):
            await admin.call(ping(), 0)
        assert not response.done()
        broker.clock.advance(1)  # 1.1 connections per second exceed the quota by 10 % of ten seconds
        with pytest.raises(Closed):
            await response
        await set_quotas(admin, {"ip": "127.0.0.1"}, connection_creation_rate=None)
        await (await broker.client()).call(ping(), 0)


async def test_unserved_connection_does_not_delay_shutdown(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        admin = await broker.client()
        await set_quotas(admin, {"ip": None}, connection_creation_rate=1)
        for _ in range(12):
            await broker.client()
        for _ in range(LOOP_ITERATIONS):
            await admin.call(ping(), 0)
