"""Refusals of old versions of Fetch, and their waits, in each family of releases.

zstd for clients that cannot read it, topics without conversion, files that cannot be read. The expectations are the
responses of Kafka 2.8.2 and 3.9.1 (the latter also with inter.broker.protocol.version 2.8) to the same requests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.broker.errors import ConfigError
from ottla.protocol.messages.configs.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.records import formats
from ottla.protocol.records.compression import Codec
from ottla_testing.broker.harness import Broker, Client, fetch, only, produce, records, running
from ottla_testing.broker.stored_logs import fetch_partition, is_waiting, offsets, place, plain, rows, stored, wrapper
from ottla_testing.each import each

UNSUPPORTED_VERSION = 35
UNSUPPORTED_COMPRESSION_TYPE = 76
OFF = {"message.downconversion.enable": "false"}
PROTOCOL = "inter.broker.protocol.version"


def refused(response: Any) -> int:
    """The code of a response without other values."""
    assert (response.high_watermark, response.last_stable_offset, response.log_start_offset) == (-1, -1, -1)
    assert response.records == b""
    return response.error_code


async def set_configs(client: Client, topic: str, configs: dict[str, str]) -> None:
    """Replaces all configs of a topic, by the oldest API."""
    resource = AlterConfigsRequest.AlterConfigsResource
    requested = [resource.AlterableConfig(name=name, value=value) for name, value in configs.items()]
    changed = resource(resource_type=2, resource_name=topic, configs=requested)
    request = AlterConfigsRequest(resources=[changed], validate_only=False)
    assert (await client.call(request, 0)).responses[0].error_code == 0


# ---- zstd


@pytest.mark.parametrize("release", ["2.1", "2.8", "3.0", "3.9", "ottla"])
async def test_zstd_is_not_converted_down(release: str, tmp_path: Path) -> None:
    """76 if it comes first, also after dropped records; else the response ends before it."""
    data = stored(2, rows(2)) + stored(2, rows(2, 2), Codec.ZSTD) + stored(2, rows(2, 4))
    await place(tmp_path, {"t": data})
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        for version in (0, 1, 2, 3):
            magic = 0 if version < 2 else 1
            assert (await fetch_partition(client, version)).records == plain(rows(2), magic)
            for offset in (2, 3):
                assert refused(await fetch_partition(client, version, offset=offset)) == UNSUPPORTED_COMPRESSION_TYPE
            assert (await fetch_partition(client, version, offset=4)).records == plain(rows(2, 4), magic)
        for version in (4, 9, 10):  # a producer's own codec is returned to all versions
            assert (await fetch_partition(client, version)).records == data


@pytest.mark.parametrize("release", ["2.1", "2.8", "3.0", "3.9", "4.0", "4.3", "ottla"])
async def test_zstd_topic_needs_fetch_v10_from_2_1_to_3_9(release: str, tmp_path: Path) -> None:
    """By the topic's config alone, regardless of its content and of other errors."""
    await place(tmp_path, {"t": stored(2, rows(2)), "empty": b""}, {"compression.type": "zstd"})
    is_refused = release in ("2.1", "2.8", "3.0", "3.9")
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        for version in range(4 if release.startswith("4.") else 0, 10):
            for topic, offset, otherwise in (("t", 0, 0), ("t", 2, 0), ("t", 9, 1), ("empty", 0, 0), ("empty", 1, 1)):
                response = await fetch_partition(client, version, topic, offset)
                if is_refused:
                    assert refused(response) == UNSUPPORTED_COMPRESSION_TYPE, (version, topic, offset)
                else:
                    assert response.error_code == otherwise, (version, topic, offset)
        assert (await fetch_partition(client, 10)).records == stored(2, rows(2))
        assert (await fetch_partition(client, 10, "t", 9)).error_code == 1
        # Only with such a partition.
        assert (await fetch_partition(client, 9, "none")).error_code == 3


@pytest.mark.parametrize("version", [1, 3, 4, 9])
async def test_zstd_refusal_waits_like_other_responses(version: int, tmp_path: Path) -> None:
    """Else a client at the end of the log would retry without a pause."""
    async with running(tmp_path, release="2.8") as broker:
        await broker.topic("t", configs={"compression.type": "zstd"})
        await ends_at_its_deadline(broker, version, UNSUPPORTED_COMPRESSION_TYPE)


async def test_zstd_refusal_is_in_every_response_of_a_session(tmp_path: Path) -> None:
    await place(tmp_path, {"t": stored(2, rows(2)), "u": stored(2, rows(1))})
    async with running(tmp_path, release="2.8") as broker:
        client = await broker.client()
        await set_configs(client, "t", {"compression.type": "zstd"})
        first = await client.call(fetch(("t", 0, 0), ("u", 0, 0), session_id=0, session_epoch=0), 9)
        assert [topic.partitions[0].error_code for topic in first.responses] == [UNSUPPORTED_COMPRESSION_TYPE, 0]
        assert first.session_id
        for epoch in (1, 2):
            response = await client.call(fetch(("u", 0, 1), session_id=first.session_id, session_epoch=epoch), 9)
            assert (response.error_code, [topic.topic for topic in response.responses]) == (0, ["t"])
            assert refused(only(response)) == UNSUPPORTED_COMPRESSION_TYPE
        await set_configs(client, "t", {})
        response = await client.call(fetch(session_id=first.session_id, session_epoch=3), 9)
        assert only(response).records == stored(2, rows(2))


async def ends_at_its_deadline(broker: Broker, version: int, code: int) -> None:
    client = await broker.client()
    await client.send(fetch(("t", 0, 0), max_wait_ms=500), version)
    assert await is_waiting(broker)
    broker.clock.advance(499)
    assert await is_waiting(broker)
    broker.clock.advance(1)
    assert refused(only((await client.receive())[1])) == code


# ---- message.downconversion.enable (KIP-283)


@pytest.mark.parametrize("release", ["2.0.0", "2.8", "3.0", "3.9", "ottla"])
@pytest.mark.parametrize("where", ["topic", "broker"])
async def test_conversion_turned_off_is_refused(release: str, where: str, tmp_path: Path) -> None:
    await place(tmp_path, {"t": stored(2, rows(2))}, OFF if where == "topic" else {})
    overrides = {"log.message.downconversion.enable": "false"} if where == "broker" else {}
    async with running(tmp_path, release=release, overrides=overrides) as broker:
        client = await broker.client()
        for version in (0, 1, 2, 3):
            assert refused(await fetch_partition(client, version)) == UNSUPPORTED_VERSION
        assert (await fetch_partition(client, 4)).records == stored(2, rows(2))
        await set_configs(client, "t", {"message.downconversion.enable": "true"})
        assert (await fetch_partition(client, 3)).records == plain(rows(2), 1)


async def test_conversion_turned_off_for_all_topics_applies_at_once(tmp_path: Path) -> None:
    """A topic's own config has precedence."""
    resource = AlterConfigsRequest.AlterConfigsResource
    await place(tmp_path, {"t": stored(2, rows(2)), "u": stored(2, rows(2))})
    async with running(tmp_path, release="2.8") as broker:
        client = await broker.client()
        await set_configs(client, "u", {"message.downconversion.enable": "true"})
        for value, code in (("false", UNSUPPORTED_VERSION), ("true", 0)):
            config = resource.AlterableConfig(name="log.message.downconversion.enable", value=value)
            changed = resource(resource_type=4, resource_name="", configs=[config])
            request = AlterConfigsRequest(resources=[changed], validate_only=False)
            assert (await client.call(request, 0)).responses[0].error_code == 0
            assert (await fetch_partition(client, 3)).error_code == code
            assert (await fetch_partition(client, 3, "u")).records == plain(rows(2), 1)


@pytest.mark.parametrize("release", ["0.11", "1.1"])
async def test_conversion_cannot_be_turned_off_before_2_0(release: str, tmp_path: Path) -> None:
    await place(tmp_path, {"t": stored(2, rows(2))}, OFF)
    async with running(tmp_path, release=release) as broker:
        assert (await fetch_partition(await broker.client(), 3)).records == plain(rows(2), 1)
        with pytest.raises(ConfigError, match=r"message\.downconversion\.enable"):
            await broker.topic("u", configs=OFF)


# The response of Fetch v3 (unless noted) for a topic without conversion: 2.8 looks for a newer format in the bytes it
# read; from 3.0 on the topic's format decides, also for an empty read or a wrong offset.
NOT_CONVERTED = [
    ("the end of the log", 0, 35),
    ("an empty log", 0, 35),
    ("a wrong offset", 1, 35),
    ("the beginning of a batch, v2", 0, 35),
    ("old messages", 0, 35),
    ("no such topic", 3, 3),
]


@each(("case", "scanned", "always"), NOT_CONVERTED)
@each("release", ["2.0", "2.8", "3.0", "3.9", "ottla"])
async def test_conversion_turned_off_refuses_old_versions_only(
    case: str, scanned: int, always: int, release: str, tmp_path: Path
) -> None:
    logs = {"t": stored(2, rows(2)), "empty": b"", "old": plain(rows(2), 1) + wrapper(plain(rows(2), 0), offset=3)}
    await place(tmp_path, logs, OFF)
    version, topic, offset, bound = {
        "the end of the log": (3, "t", 2, 1 << 20),
        "an empty log": (3, "empty", 0, 1 << 20),
        "a wrong offset": (3, "t", 9, 1 << 20),
        "the beginning of a batch, v2": (2, "t", 0, 50),
        "old messages": (3, "old", 0, 1 << 20),
        "no such topic": (3, "none", 0, 1 << 20),
    }[case]
    async with running(tmp_path, release=release) as broker:
        response = await fetch_partition(await broker.client(), version, topic, offset, partition_max_bytes=bound)
        expected = scanned if release in ("2.0", "2.8") else always
        assert response.error_code == expected
        if expected == 0 and topic != "empty" and offset == 0:
            assert response.records == logs[topic][:bound]


@pytest.mark.parametrize(
    ("release", "protocol", "codes"),
    [
        # Fetch v1 and v3 of messages v1: as the topic was made, with message.format.version 0.10.2; then with 2.8.
        ("2.8", None, [35, 0, 35, 0]),
        ("3.9", "2.8", [35, 0, 35, 35]),
        ("3.9", None, [35, 35, 35, 35]),
        ("ottla", "2.8", [35, 0, 35, 0]),
        ("ottla", None, [35, 35, 35, 35]),
    ],
)
async def test_conversion_depends_on_the_topics_format(
    release: str, protocol: str | None, codes: list[int], tmp_path: Path
) -> None:
    """Releases from 3.0 on make no scan at any protocol version; the own profile does below 3.0."""
    data = plain(rows(2), 1)
    await place(tmp_path, {"t": data}, {"message.format.version": "0.10.2", **OFF})
    async with running(tmp_path, release=release, overrides={PROTOCOL: protocol} if protocol else {}) as broker:
        client = await broker.client()
        results = [await fetch_partition(client, version) for version in (1, 3)]
        await set_configs(client, "t", {"message.format.version": "2.8", **OFF})
        results += [await fetch_partition(client, version) for version in (1, 3)]
        assert [response.error_code for response in results] == codes
        assert [response.records for response in results] == [b"" if code else data for code in codes]
        assert (await fetch_partition(client, 4)).records == data


@pytest.mark.parametrize(("release", "code"), [("2.8", 0), ("3.9", UNSUPPORTED_VERSION)])
async def test_conversion_refusal_waits_like_other_responses(release: str, code: int, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t", configs=OFF)
        client = await broker.client()
        await client.send(fetch(("t", 0, 0), max_wait_ms=500), 3)
        assert await is_waiting(broker)
        broker.clock.advance(500)
        assert only((await client.receive())[1]).error_code == code


@pytest.mark.parametrize("release", ["2.8", "3.9", "ottla"])
async def test_conversion_turned_off_still_converts_for_followers(release: str, tmp_path: Path) -> None:
    await place(tmp_path, {"t": stored(2, rows(2))}, OFF)
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        for version in (1, 3):
            for replica in (0, 7):
                response = only(await client.call(fetch(("t", 0, 0), replica_id=replica), version))
                assert (response.error_code, response.records) == (0, plain(rows(2), version // 2))
            response = only(await client.call(fetch(("t", 0, 0), replica_id=-2), version))  # a consumer that debugs
            assert refused(response) == UNSUPPORTED_VERSION


# ---- files that cannot be read


@pytest.mark.parametrize("release", ["1.1", "2.8", "3.9", "4.3", "ottla"])
async def test_disk_error_has_a_code_of_the_version(release: str, tmp_path: Path) -> None:
    """KIP-112: before v6 it is NOT_LEADER_OR_FOLLOWER, at which a client updates its metadata and retries."""
    await place(tmp_path, {"t": stored(2, rows(2))})
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        broker.log("t").abandon()
        served = broker.state.profile.served[1]
        for version in range(served.first, min(served.last, 12) + 1):
            assert refused(await fetch_partition(client, version)) == (6 if version < 6 else 56), version


# ---- waiting

LONG_POLLS = [
    ("0.9", 0),
    ("0.9", 1),
    ("0.10.2", 2),
    ("0.10.2", 3),
    *((r, v) for r in ("2.8", "3.9", "ottla") for v in range(4)),
]


async def appended(broker: Broker, release: str) -> None:
    """One record, as the newest clients of the release send it."""
    client = await broker.client()
    if release in ("0.9", "0.10.2"):
        magic = 0 if release == "0.9" else 1
        response = await client.call(produce(plain(rows(1), magic)), 1 if magic == 0 else 2)
    else:
        response = await client.call(produce(records(b"v" * 30)), 7)
    assert only(response).error_code == 0


@each(("release", "version"), LONG_POLLS)
async def test_old_versions_wait_for_stored_bytes(release: str, version: int, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t")
        client = await broker.client()
        await client.send(fetch(("t", 0, 0), max_wait_ms=1000), version)
        assert await is_waiting(broker)
        await appended(broker, release)
        found = only((await client.receive())[1])
        assert (found.error_code, found.high_watermark, offsets(found.records)) == (0, 1, [0])
        newest = 0 if version < 2 else 1
        assert all(header.magic <= newest for _, header in formats.headers(found.records))
        # The stored bytes count, not the converted ones.
        size = broker.log("t").size_bytes
        await client.send(fetch(("t", 0, 0), max_wait_ms=1000, min_bytes=2 * size + 1), version)
        await appended(broker, release)
        assert await is_waiting(broker)
        await appended(broker, release)
        assert offsets(only((await client.receive())[1]).records) == [0, 1, 2]
        # The deadline ends the wait with the present bytes.
        await client.send(fetch(("t", 0, 2), max_wait_ms=1000, min_bytes=1 << 20), version)
        assert await is_waiting(broker)
        broker.clock.advance(999)
        assert await is_waiting(broker)
        broker.clock.advance(1)
        assert offsets(only((await client.receive())[1]).records) == [2]


@pytest.mark.parametrize(("release", "size"), [("2.8", 20), ("3.9", 0), ("ottla", 20)])
async def test_fetch_with_a_bound_below_one_message_returns_at_once(release: str, size: int, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t")
        client = await broker.client()
        await client.send(fetch(("t", 0, 0), max_wait_ms=1000, partition_max_bytes=20), 2)
        assert await is_waiting(broker)
        await appended(broker, release)
        assert len(only((await client.receive())[1]).records) == size
        response = await fetch_partition(client, 2, max_wait_ms=1000, partition_max_bytes=20)
        assert len(response.records) == size


@pytest.mark.parametrize("release", ["2.8", "3.9", "ottla"])
async def test_deleted_topic_ends_the_wait_of_old_versions(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t")
        clients = [await broker.client() for _ in range(4)]
        for version, client in enumerate(clients):
            await client.send(fetch(("t", 0, 0), max_wait_ms=60_000), version)
        assert await is_waiting(broker)
        response = await (await broker.client()).call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5)
        assert response.responses[0].error_code == 0
        for client in clients:
            assert refused(only((await client.receive())[1])) == 3
