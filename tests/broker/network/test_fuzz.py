"""Random requests of every API, whole and damaged: the broker responds or closes, and stays consistent.

Each run uses another seed and prints it on failure; OTTLA_FUZZ_SEED repeats one.
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog

from ottla.broker.config.resource_types import BROKER_LOGGER
from ottla.broker.logs import get_logger
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.streams.parts import KeyValue
from ottla.protocol.schema import Value, group_of
from ottla_testing.broker.harness import (
    Broker,
    Client,
    Closed,
    fetch,
    frame,
    only,
    ping,
    produce,
    read_response,
    records,
    running,
    values,
)
from ottla_testing.broker.routes import ROUTES
from ottla_testing.broker.streaming import Subtopology, joining, subtopology, topology
from ottla_testing.protocol.values import random_value

TOPICS = ["t", "u", "t", "new", "__consumer_offsets", "__cluster_metadata", "no.such"]
CONFIGS = ["retention.ms", "segment.bytes", "cleanup.policy", "max.message.bytes", "compression.type", "no.such"]
TIMES = {"max_wait_ms": 400, "session_timeout_ms": 60_000, "rebalance_timeout_ms": 60_000}
WAITS_FOR_OTHERS = {"JoinGroup", "SyncGroup"}


class Guesser:
    """Replaces some random values by plausible ones, so that requests pass the first checks."""

    def __init__(self, random: random.Random, topic_ids: list[bytes]) -> None:
        self.random = random
        self.topic_ids = topic_ids

    def improve(self, value: Any, version: int, name: str = "") -> Any:
        if isinstance(value, Value):
            for field, declared in value._fields.items():
                if version in declared.versions:
                    setattr(value, field, self.improve(getattr(value, field), version, field))
            return value
        if isinstance(value, list):
            return [self.improve(item, version, name) for item in value]
        if name in TIMES and isinstance(value, int):
            return min(value, TIMES[name])
        if self.random.random() < 0.2:
            return value
        return self.guess(value, name)

    def guess(self, value: Any, name: str) -> Any:
        random = self.random
        if name in ("name", "topic", "topic_name", "topic_names", "resource_name") and value is not None:
            return random.choice([*TOPICS, *CONFIGS, "1", ""])
        if name == "topic_id":
            return random.choice([*self.topic_ids, bytes(16)])
        if name in ("partition", "partition_index", "partition_indexes", "index", "partitions") and value is not None:
            return random.choice([0, 0, 1, 2, -1])
        if name in ("group_id", "key", "coordinator_keys", "groups", "groups_names", "member_id"):
            return random.choice(["g", "h", ""])
        if name in ("fetch_offset", "offset", "timestamp", "committed_offset"):
            return random.choice([0, 1, 3, -1, -2, -3, -4, -5, -6, 1_700_000_000_000])
        if name in ("generation_id", "acks", "generation_id_or_member_epoch", "count", "num_partitions"):
            return random.choice([-1, 0, 1, 2, 5])
        if name in ("replication_factor", "leader_epoch", "current_leader_epoch", "last_fetched_epoch"):
            return random.choice([-1, 0, 1])
        if name in ("session_id", "session_epoch"):
            return random.choice([0, -1, 1, value])
        if name == "resource_type":
            return random.choice([2, 4, 8, value])
        if name == "config_operation":
            return random.choice([0, 1, 2, 3, value])
        if name == "records":
            return self.batch()
        return value

    def batch(self) -> bytes:
        random = self.random
        codec = random.choice([0, 0, 1, 2, 3, 4])
        fields: dict[str, Any] = {"codec": codec}
        if random.random() < 0.4:
            fields |= {"producer_id": random.randrange(3), "producer_epoch": 0, "base_sequence": random.randrange(4)}
        if random.random() < 0.1:
            fields["transactional"] = True
        made = records(*[b"v" * random.randrange(30) for _ in range(random.randrange(1, 4))], **fields)
        return bytes(damaged(made, random)) if random.random() < 0.4 else bytes(made)


def damaged(data: bytes | bytearray, random: random.Random) -> bytearray:
    """Flips bits, removes bytes, inserts bytes."""
    out = bytearray(data)
    for _ in range(random.choice([1, 1, 1, 2, 8])):
        kind = random.randrange(4)
        at = random.randrange(len(out)) if out else 0
        if kind == 0 and out:
            out[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            del out[at:]
        elif kind == 2:
            out[at:at] = random.randbytes(random.randrange(1, 9))
        elif out:
            size = min(random.choice([1, 2, 4, 8]), len(out) - at)
            out[at : at + size] = random.choice([b"\xff" * size, b"\x7f" + b"\xff" * (size - 1), bytes(size)])
    return out


class Unhurt:
    """Fails when the broker or the event loop logs an error, or a response has UNKNOWN_SERVER_ERROR where a Kafka's has
    not.
    """

    def __init__(self, broker: Broker, seed: int) -> None:
        self.broker = broker
        self.seed = seed
        self.contexts: list[dict[str, Any]] = []
        get_logger()  # configures structlog, which the capture then replaces
        self.capture = structlog.testing.capture_logs()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: self.contexts.append(context))

    def __enter__(self) -> Unhurt:
        self.events = self.capture.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.capture.__exit__(*exc)

    def check(self, what: Any) -> None:
        errors = [event for event in self.events if event["log_level"] not in ("info", "debug", "warning")]
        self.events.clear()
        assert not errors and not self.contexts, f"seed {self.seed}: {what!r} led to {errors or self.contexts}"

    def check_response(self, payload: Any, what: Any) -> None:
        if fails_in_kafka(*what):
            return
        assert -1 not in error_codes(payload), f"seed {self.seed}: {what!r} got {payload!r}"


def fails_in_kafka(name: str, version: int, request: Any) -> bool:
    """Returns whether Kafka's own response to this request may have UNKNOWN_SERVER_ERROR: to Produce before v7 for a
    codec that does not exist, in each version for a batch whose size overflows; to StreamsGroupHeartbeat for tags or a
    topology that its code does not expect; to IncrementalAlterConfigs for operations on loggers that do not exist.
    """
    if name == "StreamsGroupHeartbeat":
        return is_unexpected_by_kafka(request)
    if name == "IncrementalAlterConfigs":
        loggers = [one for one in request.resources if one.resource_type == BROKER_LOGGER]
        return any(config.config_operation not in range(4) for one in loggers for config in one.configs)
    if name != "Produce":
        return False
    batches = [data.records or b"" for topic in request.topic_data for data in topic.partition_data]
    overflows = any(
        len(batch) >= 12 and struct.unpack_from(">i", batch, 8)[0] > (1 << 31) - 1 - 12 for batch in batches
    )
    unknown_codec = any(len(batch) >= 23 and batch[22] & 7 > 4 for batch in batches)
    return overflows or (unknown_codec and 3 <= version < 7)


def is_unexpected_by_kafka(request: Any) -> bool:
    """Returns whether the heartbeat of a streams group has a tag twice, or a topology with a negative epoch, with a
    subtopology twice, or with indexes or numbers of partitions that are impossible. Without a topology the response
    depends on the group.
    """
    tags = [tag.key for tag in request.client_tags or ()]
    if len(set(tags)) < len(tags) or request.topology is None:
        return True
    parts = request.topology.subtopologies or []
    groups = [(part, one) for part in parts for one in part.copartition_groups]
    indexes = [(index, len(part.source_topics)) for part, one in groups for index in one.source_topics]
    indexes += [
        (index, len(part.repartition_source_topics)) for part, one in groups for index in one.repartition_source_topics
    ]
    partitions = [topic.partitions for part in parts for topic in part.repartition_source_topics]
    return (
        request.topology.epoch < 0
        or len({part.subtopology_id for part in parts}) < len(parts)
        or any(not 0 <= index < count for index, count in indexes)
        or any(count < 0 for count in partitions)
    )


@pytest.mark.parametrize(
    ("version", "position", "value", "fails"),
    [(6, 22, 7, True), (7, 22, 7, False), (2, 22, 7, False), (6, 22, 4, False), (8, 8, 0x7F, True), (8, 8, 0, False)],
)
def test_requests_that_fail_in_kafka(version: int, position: int, value: int, fails: bool) -> None:
    batch = bytearray(records(b"a"))
    batch[position] = value
    if value == 0x7F:
        batch[9:12] = b"\xff\xff\xff"
    assert fails_in_kafka("Produce", version, produce(bytes(batch), "t")) == fails


def test_heartbeats_of_streams_groups_that_fail_in_kafka() -> None:
    tag, together = KeyValue(key="k", value="v"), Subtopology.CopartitionGroup
    parts = [
        subtopology(
            copartition_groups=[together(source_topics=[index], source_topic_regex=[], repartition_source_topics=[])]
        )
        for index in (0, 1, -1)
    ]
    expected: list[dict[str, Any]] = [{}, {"client_tags": [tag]}, {"topology": topology(parts[0])}]
    assert not any(is_unexpected_by_kafka(joining(**more)) for more in expected)
    topologies = [None, topology(epoch=-1), topology(parts[0], parts[0]), *map(topology, parts[1:])]
    unexpected = [{"client_tags": [tag, tag]}, *({"topology": one} for one in topologies)]
    assert all(is_unexpected_by_kafka(joining(**more)) for more in unexpected)


@pytest.mark.parametrize(
    ("kind", "operation", "fails"), [(BROKER_LOGGER, -1, True), (BROKER_LOGGER, 0, False), (2, -1, False)]
)
def test_alterations_that_fail_in_kafka(kind: int, operation: int, fails: bool) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name="a", config_operation=operation, value="INFO")
    altered = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=kind, resource_name="1", configs=[config])], validate_only=False
    )
    assert fails_in_kafka("IncrementalAlterConfigs", 1, altered) == fails


def error_codes(value: Any) -> set[int]:
    if isinstance(value, list):
        return set().union(*map(error_codes, value))
    if not isinstance(value, Value):
        return set()
    found = {getattr(value, name) for name in value._fields if name.endswith("error_code")}
    return found.union(*(error_codes(getattr(value, name)) for name in value._fields))


async def outcome(broker: Broker, pinger: Client, client: Client, may_wait: bool) -> bytes | None:
    """The response, or None if the connection was closed. Moves the clock where the broker waits."""
    receiving = asyncio.ensure_future(client.receive_bytes())
    try:
        for wait_ms in (0, 500, 70_000) if may_wait else (0, 500):
            broker.clock.advance(wait_ms)
            for _ in range(3):
                await pinger.call(ping(), 0)
                if receiving.done():
                    return receiving.result()
        return await receiving
    except Closed:
        return None
    finally:
        receiving.cancel()


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("OTTLA_FUZZ_SEED", random.randrange(1 << 32)))
    print(f"OTTLA_FUZZ_SEED={chosen}")
    return chosen


async def prepared(broker: Broker) -> list[bytes]:
    ids = [await broker.topic("t", 2), await broker.topic("u", 1, {"cleanup.policy": "compact"})]
    broker.log("t").append(records(b"a", b"b", b"c"), now_ms=broker.clock.now_ms())
    return ids


async def serves_others(broker: Broker) -> None:
    """Checks that a valid client is served as usual."""
    if broker.state.topics.get("well") is None:
        await broker.topic("well")
    client = await broker.client()
    before = broker.log("well").log_end_offset
    payload = only(await client.call(produce(records(b"fine"), "well"), 9))
    assert (payload.error_code, payload.base_offset) == (0, before)
    assert values(only(await client.call(fetch(("well", 0, before)), 12)).records) == [b"fine"]
    client.close()


@pytest.mark.soak
async def test_random_requests_get_responses(tmp_path: Path, seed: int, scaled: Callable[[int], int]) -> None:
    chooser = random.Random(seed)
    responded = closed = 0
    async with running(tmp_path / "data") as broker:
        guesser = Guesser(chooser, await prepared(broker))
        client, pinger = await broker.client(), await broker.client()
        with Unhurt(broker, seed) as unhurt:
            for number in range(scaled(8000)):
                route = chooser.choice(list(ROUTES.values()))
                version = chooser.choice(list(route.versions.range()))
                request_class = route.request_class
                request = guesser.improve(random_value(group_of(request_class, version), chooser), version)
                await client.send_bytes(frame(request, version, number))
                what = (route.name, version, request)
                if route.name == "Produce" and request.acks == 0:
                    await client.send_bytes(struct.pack(">ihhih", 10, 18, 0, number, -1))
                    route, version, request_class = ROUTES[18], 0, ROUTES[18].request_class
                payload = await outcome(broker, pinger, client, route.name in WAITS_FOR_OTHERS)
                if payload is None:
                    closed += 1
                    client.close()
                    client = await broker.client()
                else:
                    responded += 1
                    correlation_id, response = read_response(payload, request_class, version)
                    assert correlation_id == number, what
                    unhurt.check_response(response, what)
                unhurt.check(what)
                if number % 500 == 0:
                    await serves_others(broker)
            await serves_others(broker)
    # A whole request of a served version is refused with a code; only acks=0 closes the connection instead.
    assert responded > 0.9 * (responded + closed), (responded, closed)


@pytest.mark.soak
async def test_damaged_requests_get_a_response_or_close(
    tmp_path: Path, seed: int, scaled: Callable[[int], int]
) -> None:
    chooser = random.Random(seed)
    responded = closed = 0
    async with running(tmp_path / "data") as broker:
        guesser = Guesser(chooser, await prepared(broker))
        with Unhurt(broker, seed) as unhurt:
            client, pinger = await broker.client(), await broker.client()
            for number in range(scaled(4000)):
                route = chooser.choice(list(ROUTES.values()))
                version = chooser.choice(list(route.versions.range()))
                value = random_value(group_of(route.request_class, version), chooser)
                value = guesser.improve(value, version)
                body = damaged(frame(value, version, number)[chooser.choice([4, 14, 18]) :], chooser)
                head = struct.pack(">hhih", route.api_key, version, number, 4) + b"test"
                whole = (head + body) if chooser.random() < 0.9 else bytes(body)
                await client.send_bytes(struct.pack(">i", len(whole)) + whole)
                await client.send_bytes(struct.pack(">ihhih", 10, 18, 0, 1 << 30, -1))
                what = (route.name, version, bytes(whole))
                while (payload := await outcome(broker, pinger, client, True)) is not None:
                    responded += 1
                    if struct.unpack_from(">i", payload) == (1 << 30,):
                        break
                else:
                    closed += 1
                    client.close()
                    client = await broker.client()
                unhurt.check(what)
                if number % 500 == 0:
                    await serves_others(broker)
            await serves_others(broker)
    assert responded and closed
