"""KIP-192's two fields in Metadata: only on request, from v9 on, in every profile; otherwise Kafka's bytes."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.releases.profiles import profile
from ottla.protocol.compiler import build
from ottla.protocol.messages.topics.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.primitives import varint_bytes
from ottla.protocol.schema import field
from ottla_testing.broker.harness import Broker, Client, frame, read_response, running
from ottla_testing.protocol.independent import KafkaPython3

VERSIONS = range(14)
SINCE = 9
NO_TOPIC = "there-is-none"


def asking(*names: str, extended: bool) -> MetadataRequest:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=True, include_message_format=extended)


async def response_bytes(client: Client, request: bytes) -> bytes:
    """Returns the response frame without its size and correlation id."""
    await client.send_bytes(request)
    return (await client.receive_bytes())[4:]


def with_tags(request: bytes, *tags: tuple[int, bytes]) -> bytes:
    """Returns a flexible request with these tagged fields at its end."""
    assert request[-1] == 0
    body = request[4:-1] + varint_bytes(len(tags))
    for tag, data in tags:
        body += varint_bytes(tag) + varint_bytes(len(data)) + data
    return struct.pack(">i", len(body)) + body


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as started:
        await started.topic("t", 2)
        await started.topic("u", 1, {"max.message.bytes": "77777"})
        yield started


@pytest.mark.parametrize("version", VERSIONS)
async def test_response_without_the_extension_matches_an_independent_codec(broker: Broker, version: int) -> None:
    """kafka-python supports Apache's fields only: its round trip shows that there are no others."""
    client = await broker.client()
    other: Any = KafkaPython3()
    body = await response_bytes(client, frame(asking("t", "u", NO_TOPIC * 30, extended=False), version, 1))
    body = body[1:] if version >= SINCE else body  # tagged fields of the header
    assert other.read("MetadataResponse", version, body)[1] == body
    extended = await response_bytes(client, frame(asking("t", "u", NO_TOPIC * 30, extended=True), version, 1))
    extended = extended[1:] if version >= SINCE else extended
    if version < SINCE:
        assert extended == body
    else:  # this test can detect a difference
        assert len(extended) == len(body) + 2 * (3 + 1 + 3 + 4)
        assert other.read("MetadataResponse", version, extended)[1] != extended


@pytest.mark.parametrize("version", VERSIONS)
async def test_extension_has_the_format_and_size_limit_of_each_topic(broker: Broker, version: int) -> None:
    client = await broker.client()
    response = await client.call(asking("u", "t", NO_TOPIC * 30, extended=True), version)
    found = {topic.name: (topic.message_format_version, topic.max_message_bytes) for topic in response.topics}
    nothing = (-1, -1)
    extended = {"t": (2, 1048588), "u": (2, 77777)} if version >= SINCE else {"t": nothing, "u": nothing}
    assert found == {**extended, NO_TOPIC * 30: nothing}  # a too long name
    everything = await client.call(MetadataRequest(topics=None, include_message_format=True), max(version, 1))
    assert {t.name: t.max_message_bytes for t in everything.topics} == {n: size for n, (_, size) in extended.items()}


@pytest.mark.parametrize("version", range(SINCE, 14))
async def test_other_tags_are_ignored(broker: Broker, version: int) -> None:
    client = await broker.client()
    plain = frame(asking("t", extended=False), version, 1)
    expected = await response_bytes(client, plain)
    for tags in ([(0, b"")], [(10191, b""), (10193, b"\x07")], [(2**31 - 1, bytes(300))]):
        assert await response_bytes(client, with_tags(plain, *tags)) == expected
    requested = frame(asking("t", extended=True), version, 1)
    assert requested == with_tags(plain, (10192, b""))
    assert await response_bytes(client, with_tags(plain, (3, b"xyz"), (10192, b""), (10200, b"z"))) == (
        await response_bytes(client, requested)
    )


FORMATS = [
    ("ottla", {"inter.broker.protocol.version": "2.8"}, {"message.format.version": "0.9.0"}, 0),
    ("ottla", {}, {"message.format.version": "0.9.0"}, 2),
    ("2.4", {"log.message.format.version": "0.10.2"}, {}, 1),
    ("2.8", {"log.message.format.version": "0.10.2"}, {"message.format.version": "2.8"}, 2),
    ("2.8", {}, {"message.format.version": "0.10.0"}, 1),
    ("3.9", {}, {"message.format.version": "0.10.0"}, 2),
    ("4.3", {}, {}, 2),
]


@pytest.mark.parametrize(("release", "overrides", "configs", "magic"), FORMATS)
async def test_extension_reports_the_written_format(
    release: str, overrides: dict[str, str], configs: dict[str, str], magic: int, tmp_path: Path
) -> None:
    async with running(tmp_path, overrides=overrides, release=release) as broker:
        await broker.topic("t", 1, configs)
        client = await broker.client()
        served = profile(release).served[3]
        assert served.last >= SINCE
        for version in range(max(served.first, SINCE), served.last + 1):
            (topic,) = (await client.call(asking("t", extended=True), version)).topics
            assert topic.message_format_version == magic == broker.log("t").config.rules.target_magic
            assert topic.max_message_bytes == broker.log("t").config.rules.max_message_bytes


async def test_extension_field_encoding() -> None:
    topic = MetadataResponse.MetadataResponseTopic(
        error_code=0, name="t", partitions=[], message_format_version=1, max_message_bytes=258
    )
    raw = build(MetadataResponse(brokers=[], topics=[topic]), 9)
    assert bytes.fromhex("02 d04f 01 01 d14f 04 00000102") in raw  # two tags: number, size, value
    _, parsed = read_response(bytes(4) + b"\0" + raw, MetadataRequest, 9)
    assert parsed.topics == [topic]


@pytest.mark.parametrize("given", [{}, {"tag": 5}, {"ignorable": True}])
def test_extension_tags_do_not_collide(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="tagged and ignorable"):
        field(extension=True, **given)
