"""Two thousand connections at once, and a request of a real client that violates the schema."""

from __future__ import annotations

import asyncio
import resource
import struct
from collections.abc import Callable, Iterator

import pytest

from ottla.protocol.compiler import build, parse
from ottla.protocol.messages.records.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.topics.metadata import MetadataRequest, MetadataResponse
from ottla_testing.clients.four_clients import READERS, WRITERS
from ottla_testing.clients.mixed_records import difference, mixed
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.patience import PATIENCE_S

CONNECTIONS = 2_000
FETCH, METADATA = 1, 3
FETCH_VERSION = 12  # the last version with topic names only
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raises the limit of open files for this process, to one socket for each connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * CONNECTIONS), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """Returns a request with the header of flexible versions, correlation id 7 and no client id."""
    payload = struct.pack(">hhihB", api_key, version, 7, -1, 0) + body
    return struct.pack(">i", len(payload)) + payload


async def response_body(reader: asyncio.StreamReader) -> bytes:
    """Returns the body of the next response; empty if the broker closed the connection."""
    try:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
    except asyncio.IncompleteReadError:
        return b""
    return (await reader.readexactly(size))[5:]


async def connect(broker: RunningBroker) -> Streams:
    return await asyncio.open_connection("127.0.0.1", broker.port)


def waiting_fetch(topic: str, offset: int) -> FetchRequest:
    partition = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
    )


@pytest.mark.slow
async def test_two_thousand_connections_at_once_are_served(
    own_broker: RunningBroker, create: Callable[..., str], many_files: None
) -> None:
    """All get responses, all wait in a fetch while a client works, and one record wakes all of them."""
    create(own_broker.address, "quiet")
    create(own_broker.address, "busy")
    opened: list[Streams] = []
    try:
        for _ in range(0, CONNECTIONS, 200):
            opened += await asyncio.gather(*(connect(own_broker) for _ in range(200)))
        asking = frame(METADATA, 12, build(MetadataRequest(topics=None), 12))
        for _, writer in opened:
            writer.write(asking)
        bodies = await asyncio.wait_for(asyncio.gather(*(response_body(reader) for reader, _ in opened)), PATIENCE_S)
        assert len(bodies) == CONNECTIONS and len(set(bodies)) == 1
        assert {topic.name for topic in parse(MetadataResponse, 12, bodies[0]).topics} == {"quiet", "busy"}

        waiting = frame(FETCH, FETCH_VERSION, build(waiting_fetch("quiet", 0), FETCH_VERSION))
        for _, writer in opened:
            writer.write(waiting)
        woken = asyncio.gather(*(response_body(reader) for reader, _ in opened))
        sent = mixed(1000, plain=True)
        await asyncio.to_thread(WRITERS["confluent-kafka"], own_broker.address, "busy", sent)
        found = await asyncio.to_thread(READERS["confluent-kafka"], own_broker.address, "busy", len(sent))
        assert difference(sent, found) is None
        assert not woken.done()
        await asyncio.to_thread(WRITERS["confluent-kafka"], own_broker.address, "quiet", sent[:1])
        for body in await asyncio.wait_for(woken, PATIENCE_S):
            (partition,) = parse(FetchResponse, FETCH_VERSION, body).responses[0].partitions
            assert (partition.error_code, partition.high_watermark) == (0, 1)
    finally:
        for _, writer in opened:
            writer.close()


@pytest.mark.parametrize("version", range(9, 14))
async def test_metadata_request_of_librdkafka_with_additional_bytes_is_served(
    version: int, broker: RunningBroker
) -> None:
    """Its issue 5049: from v9 on the null array has four bytes. As in Kafka, bytes left over are ignored."""
    proper = build(MetadataRequest(topics=None, allow_auto_topic_creation=False), version)
    assert not any(proper)
    for body in (proper, b"\0\0\0" + proper, b"\0\0" + proper):
        reader, writer = await connect(broker)
        writer.write(frame(METADATA, version, body))
        found = await asyncio.wait_for(response_body(reader), PATIENCE_S)
        assert [node.port for node in parse(MetadataResponse, version, found).brokers] == [broker.port]
        writer.close()
