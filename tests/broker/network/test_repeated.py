"""The short way of repeated requests beside the long way: equal responses and counters, whatever changes in between."""

from __future__ import annotations

import contextlib
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.metadata.topology import TopologyError
from ottla.broker.metrics.counters import RequestMetrics
from ottla.broker.network.connections import Connections
from ottla.broker.network.plain_produce import PlainProduce
from ottla.broker.network.repeated import KNOWN_MAX, RepeatedRequests
from ottla.protocol.messages.configs.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.records import steps
from ottla.storage.errors import StorageError
from ottla_testing.broker.delegating import SECURED, logged_in
from ottla_testing.broker.harness import Broker, Client, frame, produce, read_response, records, running
from ottla_testing.broker.permissions import AUTHORIZED, permission

Wanted = MetadataRequest.MetadataRequestTopic
NAMES = ("t", "other", "__consumer_offsets")
SETTINGS: list[tuple[str, int, int, dict[str, str]]] = [
    ("ottla", 1, 13, {}),
    ("ottla", 3, 13, {}),
    ("3.9", 3, 12, {}),
    ("2.4", 2, 9, {}),
    ("0.11.0", 1, 4, {}),
    ("ottla", 1, 13, AUTHORIZED),
    ("3.9", 3, 12, SECURED | AUTHORIZED),
]
"""Releases with a number of brokers, the last version of Metadata, and configs."""


class LongWay(Connections):
    """Connections whose requests all take the long way."""

    @property
    def allows_short_way(self) -> bool:
        return False


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[type]]:
    """Counts the requests that took a short way, by class."""
    counted: Counter[type] = Counter()

    def counting(cls: type) -> None:
        take = cls.take  # type: ignore[attr-defined]

        def counted_take(self: Any, *arguments: Any, **more: Any) -> Any:
            found = take(self, *arguments, **more)
            counted[cls] += bool(found)
            return found

        monkeypatch.setattr(cls, "take", counted_take)

    counting(RepeatedRequests)
    counting(PlainProduce)
    yield counted


async def exchanged(client: Client, sent: bytes, count: int = 1) -> list[bytes]:
    await client.send_bytes(sent)
    return [await client.receive_bytes() for _ in range(count)]


def counters(broker: Broker) -> Any:
    metrics = broker.running.connections.metrics
    assert metrics is not None
    return {
        key: (Counter(one.versions), one.request_bytes, one.response_bytes, Counter(one.errors))
        for key, one in metrics.apis.items()
    }


def drawn(draw: random.Random, broker: Broker, newest: int) -> tuple[MetadataRequest, int]:
    version = draw.choice((newest, newest, 1, 0, draw.randint(0, newest)))
    names = draw.choice(([], ["t"], ["t"], ["t", "other"], ["missing"], ["t", "t"], list(NAMES)))
    wanted = [Wanted(name=name) for name in names]
    if version >= 12 and draw.random() < 0.4:
        ids = [topic.id for topic in broker.state.topics] or [bytes(15) + b"x"]
        wanted = [Wanted(name=None, topic_id=draw.choice(ids)), *draw.choice(([], wanted))]
    everything = version > 0 and draw.random() < 0.3
    return (
        MetadataRequest(
            topics=None if everything else wanted,
            allow_auto_topic_creation=version < 4,
            include_topic_authorized_operations=version >= 8 and draw.random() < 0.3,
            include_cluster_authorized_operations=8 <= version <= 10 and draw.random() < 0.3,
        ),
        version,
    )


def change(draw: random.Random, broker: Broker) -> None:
    """Changes something that a response to Metadata may have."""
    topics, topology, now_ms = broker.state.topics, broker.state.topology, broker.clock.now_ms()
    name, node_id = draw.choice(NAMES[:2]), draw.choice(broker.state.nodes.ids[1:] or (0,))
    topic = topics.get(name)
    kind = draw.randrange(9)
    if topic is None:
        topics.create(name, draw.choice((1, 3)), {}, now_ms)
    elif kind == 0 and topic.online_partitions() == topic.partitions:
        topics.delete(topic, now_ms)
    elif kind == 1:
        steps.run(topics.adding_partitions(topic, len(topic.partitions) + 1, now_ms))
    elif kind == 2:
        topics.set_configs(topic, {"max.message.bytes": str(draw.randint(1000, 2000))}, now_ms)
    elif kind == 3:
        topic.partitions[0].go_offline("its disk has failed")
    elif kind == 4:
        broker.state.nodes.racks[node_id] = draw.choice((None, "a", "b"))
    else:
        acts: list[Callable[[], None]] = [
            lambda: topology.take_offline(name, 0),
            lambda: topology.bring_online(name, 0),
            lambda: topology.stop_node(node_id),
            lambda: topology.start_node(node_id),
            lambda: topology.move_leader(name, 0, node_id),
        ]
        with contextlib.suppress(TopologyError, StorageError):
            draw.choice(acts)()


@pytest.mark.soak
async def test_both_ways_give_the_same(tmp_path: Path, taken: Counter[type], scaled: Callable[[int], int]) -> None:
    """Random requests of which most repeat an earlier one, among Produce requests, and random changes in between."""
    seed = random.randrange(1 << 32)
    for turn in range(scaled(5)):
        draw = random.Random(f"{seed}-{turn}")
        release, brokers, newest, configs = SETTINGS[(seed + turn) % len(SETTINGS)]
        async with running(tmp_path / str(turn), release=release, brokers=brokers, overrides=configs) as broker:
            connections = broker.running.connections
            connections.observe(RequestMetrics())
            client = await (logged_in(broker) if SECURED.items() <= configs.items() else broker.client())
            earlier: list[tuple[MetadataRequest, int]] = []
            for name in NAMES[:2]:
                await broker.topic(name, 2)
            for number in range(60):
                if draw.random() < 0.3:
                    change(draw, broker)
                if configs and draw.random() < 0.3:
                    await client.call(permission(draw, NAMES[:2]), 1)
                fresh = drawn(draw, broker, newest)
                one = draw.choice(earlier[-3:]) if earlier and draw.random() < 0.8 else fresh
                earlier.append(one)
                data = b"".join(frame(*one, number * 10 + n, "client") for n in range(draw.choice((1, 3))))
                found: list[Any] = []
                for kind in (Connections, LongWay):
                    connections.__class__ = kind
                    connections.observe(RequestMetrics())
                    responses = await exchanged(client, data, data.count(b"client"))
                    found.append((responses, counters(broker)))
                assert found[0] == found[1], f"seed {seed}, turn {turn}, {one}"
    assert taken[RepeatedRequests]


async def test_responses_keep_their_order(tmp_path: Path, taken: Counter[type]) -> None:
    """Both short ways and the long one alternate in one read event."""
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        sent: list[tuple[Any, int]] = [(produce(records(b"0")), 9), (MetadataRequest(topics=[Wanted(name="t")]), 9)] * 4
        sent.insert(5, (MetadataRequest(topics=[Wanted(name="missing")], allow_auto_topic_creation=False), 9))
        for _ in range(3):
            data = b"".join(frame(*one, number) for number, one in enumerate(sent))
            responses = await exchanged(client, data, len(sent))
            assert [struct.unpack_from(">i", one)[0] for one in responses] == list(range(len(sent)))
            for (request, version), one in zip(sent, responses, strict=True):
                read_response(one, type(request), version)
        assert broker.log("t").log_end_offset == 12
        assert taken[PlainProduce] >= 10
        assert taken[RepeatedRequests] >= 8


async def test_created_topic_is_created_once(tmp_path: Path, taken: Counter[type]) -> None:
    async with running(tmp_path) as broker:
        client = await broker.client()
        request = MetadataRequest(topics=[Wanted(name="new")])
        found = [await client.call(request, 9) for _ in range(4)]
        assert [one.topics[0].error_code for one in found] == [0] * 4
        assert taken[RepeatedRequests] == 2
        topic = broker.state.topics.get("new")
        assert topic is not None
        broker.state.topics.delete(topic, broker.clock.now_ms())
        assert (await client.call(request, 9)).topics[0].topic_id != topic.id
        assert broker.state.topics.get("new") is not None


async def test_memory_of_a_connection_is_bounded(tmp_path: Path, taken: Counter[type]) -> None:
    """Few requests are remembered, and no large response."""
    async with running(tmp_path) as broker:
        await broker.topic("large", 600)
        client = await broker.client()
        for number in range(KNOWN_MAX * 2):
            await broker.topic(f"topic-{number}")
            for name in ("large", f"topic-{number}"):
                for _ in range(3):
                    await client.call(MetadataRequest(topics=[Wanted(name=name)]), 9)
        (connection,) = broker.running.connections.open
        kept = connection._repeated
        assert kept is not None
        assert 0 < len(kept._known) <= KNOWN_MAX
        assert taken[RepeatedRequests] == KNOWN_MAX * 2


async def nothing(broker: Broker) -> None:
    pass


async def recorded(broker: Broker) -> None:
    class Sink:
        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *arguments, **more: None

    broker.running.connections.listen(Sink())  # type: ignore[arg-type]


async def throttled(broker: Broker) -> None:
    entry = AlterClientQuotasRequest.EntryData
    entity = [entry.EntityData(entity_type="client-id", entity_name="test")]
    ops = [entry.OpData(key="request_percentage", value=1000.0, remove=False)]
    request = AlterClientQuotasRequest(entries=[entry(entity=entity, ops=ops)], validate_only=False)
    response = await (await broker.client()).call(request, 1)
    assert response.entries[0].error_code == 0
    assert broker.state.quotas.throttle is not None


async def logged(broker: Broker) -> None:
    broker.running.connections.levels.logs_requests = True


@pytest.mark.parametrize("begin", [recorded, throttled, logged, nothing])
async def test_all_take_the_long_way_while_each_has_to_be_seen(
    tmp_path: Path, taken: Counter[type], begin: Callable[[Broker], Any]
) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        request = MetadataRequest(topics=[Wanted(name="t")])
        expected = [await client.call(request, 9) for _ in range(3)]
        assert taken[RepeatedRequests] == 1
        before = broker.running.connections.levels.logs_requests
        try:
            await begin(broker)
            for _ in range(3):
                assert await client.call(request, 9) == expected[0]
        finally:
            broker.running.connections.levels.logs_requests = before
        assert taken[RepeatedRequests] == (4 if begin is nothing else 1)
