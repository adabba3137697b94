"""Bytes that no client should send: each gets Kafka's response, or the connection closes; nothing else happens."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import crc32c
import pytest

from ottla.protocol.messages.configs.describe_configs import DescribeConfigsRequest
from ottla.protocol.messages.records.delete_records import DeleteRecordsRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.records.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.harness import (
    Broker,
    Client,
    Closed,
    create_topics,
    fetch,
    frame,
    only,
    ping,
    process,
    produce,
    records,
    running,
)
from ottla_testing.each import each
from ottla_testing.patience import PATIENCE_S

CORRUPT, TOO_LARGE, INVALID_RECORD, UNSUPPORTED_CODEC = 2, 10, 87, 76
UNEXPECTED = -1  # Kafka's code for data that its codecs cannot read

NO_KAFKA = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c40303") + bytes(192),
    "ssh": b"SSH-2.0-OpenSSH_9.9\r\n",
    "negative size": b"\xff\xff\xff\xff",
    "least size": b"\x80\x00\x00\x00",
    "greatest size": b"\x7f\xff\xff\xff",
    "one more than the limit": struct.pack(">i", 104857601),
    "empty frame": bytes(4),
    "cut header": struct.pack(">ihhi", 8, 18, 0, 1),
    "negative client id": struct.pack(">ihhih", 10, 18, 0, 1, -2),
    "client id past the end": struct.pack(">ihhih", 10, 18, 0, 1, 5),
    "client id not UTF-8": struct.pack(">ihhih", 12, 18, 0, 1, 2) + b"\xc3\x28",
    "tags past the end": struct.pack(">ihhih", 15, 60, 0, 1, -1) + b"\xff\xff\xff\xff\x0f",
    "tags without end": struct.pack(">ihhih", 16, 60, 0, 1, -1) + b"\xff\xff\xff\xff\xff\xff",
    "array of 2^31-1": struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
    "array of -2": struct.pack(">ihhihi", 14, 3, 1, 1, -1, -2),
    "no body": struct.pack(">ihhih", 10, 0, 9, 1, -1),
}


@each("name", NO_KAFKA)
async def test_invalid_request_closes_the_connection(name: str, tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        other, client = await broker.client(), await broker.client()
        await client.send_bytes(NO_KAFKA[name])
        assert await client.is_closed()
        assert (await other.call(ping(), 0)).error_code == 0


async def test_frame_above_the_configured_size_closes_the_connection(tmp_path: Path) -> None:
    async with running(tmp_path / "data", overrides={"socket.request.max.bytes": "1000"}) as broker:
        await broker.topic("t")
        client = await broker.client()
        spare = 1000 + 4 - len(frame(produce(records(b"")), 3, 1))
        value = b"v" * (spare - 10)
        value += b"v" * (1004 - len(frame(produce(records(value)), 3, 1)))
        whole = frame(produce(records(value)), 3, 1)
        assert len(whole) == 1004
        await client.send_bytes(whole)
        assert struct.unpack_from(">i", await client.receive_bytes()) == (1,)
        await client.send_bytes(frame(produce(records(value + b"v")), 3, 1))
        assert await client.is_closed()


async def unknown_things(broker: Broker, client: Client) -> list[tuple[str, Any, Any]]:
    """(subject, the received code, Kafka's code)."""
    listed = ListOffsetsRequest.ListOffsetsTopic
    epochs = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    deleted = DeleteRecordsRequest.DeleteRecordsTopic
    requested = MetadataRequest.MetadataRequestTopic
    grown = CreatePartitionsRequest.CreatePartitionsTopic
    described = DescribeConfigsRequest.DescribeConfigsResource
    none = b"n" * 16
    found: list[tuple[str, Any, Any]] = []
    for topic, partition in (("nobody", 0), ("t", 1), ("t", -1), ("t", 2**31 - 1), ("", 0), ("../t", 0)):
        where = f"{topic!r} {partition}"
        response = only(await client.call(produce(records(b"v"), topic, partition), 9))
        found.append(
            (f"produce {where}", (response.error_code, response.base_offset, response.log_start_offset), (3, -1, -1))
        )
        response = only(await client.call(fetch((topic, partition, 0)), 11))
        shown = (response.error_code, response.high_watermark, len(response.records))
        found.append((f"fetch {where}", shown, (3, -1, 0)))
        one = listed(name=topic, partitions=[listed.ListOffsetsPartition(partition_index=partition, timestamp=-1)])
        response = only(await client.call(ListOffsetsRequest(replica_id=-1, topics=[one]), 5))
        found.append((f"list {where}", (response.error_code, response.offset, response.timestamp), (3, -1, -1)))
        one = epochs(topic=topic, partitions=[epochs.OffsetForLeaderPartition(partition=partition, leader_epoch=0)])
        response = only(await client.call(OffsetForLeaderEpochRequest(topics=[one]), 3))
        found.append(
            (f"epochs {where}", (response.error_code, response.leader_epoch, response.end_offset), (3, -1, -1))
        )
        one = deleted(name=topic, partitions=[deleted.DeleteRecordsPartition(partition_index=partition, offset=0)])
        response = only(await client.call(DeleteRecordsRequest(topics=[one], timeout_ms=1), 1))
        found.append((f"delete {where}", (response.error_code, response.low_watermark), (3, -1)))
    response = only(await client.call(produce(records(b"v"), "", topic_id=none), 13))
    found.append(("produce by id", response.error_code, 100))
    for topic_id in (none, bytes(16)):
        response = only(await client.call(fetch((topic_id, 0, 0)), 13))
        found.append(("fetch by id", response.error_code, 100))
    for name, topic_id, version, code in (
        ("nobody", bytes(16), 9, 3),
        ("a/b", bytes(16), 9, 17),
        ("", bytes(16), 1, 17),
        ("x" * 250, bytes(16), 12, 17),
        (None, none, 12, 100),
        (None, bytes(16), 12, 100),
        (None, none, 11, 42),
        ("t", none, 10, 42),
    ):
        request = MetadataRequest(
            topics=[requested(name=name, topic_id=topic_id)], allow_auto_topic_creation=version < 4
        )
        (response,) = (await client.call(request, version)).topics
        found.append((f"metadata {name!r} v{version}", (response.error_code, response.partitions), (code, [])))
    for name, code in (("nobody", 3), ("", 3)):
        response = await client.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=1), 3)
        found.append((f"delete {name!r}", response.responses[0].error_code, code))
        grow = CreatePartitionsRequest(
            topics=[grown(name=name, count=3, assignments=None)], timeout_ms=1, validate_only=False
        )
        found.append((f"grow {name!r}", (await client.call(grow, 1)).results[0].error_code, code))
    for kind, name, code in ((2, "nobody", 3), (2, "a/b", 17), (4, "7", 42), (4, "x", 42), (99, "t", 42)):
        one = described(resource_type=kind, resource_name=name, configuration_keys=None)
        response = await client.call(DescribeConfigsRequest(resources=[one]), 2)
        found.append((f"configs {kind} {name!r}", response.results[0].error_code, code))
    return found


async def test_unknown_topics_and_partitions_have_their_error(tmp_path: Path) -> None:
    async with running(tmp_path / "data", overrides={"auto.create.topics.enable": "false"}) as broker:
        await broker.topic("t")
        found = await unknown_things(broker, await broker.client())
    assert [(what, came) for what, came, _ in found] == [(what, wanted) for what, _, wanted in found]


# Batches


def sealed(data: bytes | bytearray) -> bytearray:
    """The batch with a CRC that matches it."""
    out = bytearray(data)
    struct.pack_into(">I", out, 17, crc32c.crc32c(out[21:]))
    return out


def changed(data: bytes | bytearray, at: int, layout: str, value: int) -> bytearray:
    """Changes one field of the header, and updates the CRC if it covers that field."""
    out = bytearray(data)
    struct.pack_into(layout, out, at, value)
    return sealed(out) if at >= 21 else out


def with_payload(payload: bytes, count: int) -> bytearray:
    """An uncompressed batch whose payload need not be records."""
    head = bytearray(records(b"v"))[:61]
    out = head + payload
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">i", out, 23, count - 1)
    struct.pack_into(">i", out, 57, count)
    return sealed(out)


def record(body: bytes, length: int | None = None) -> bytes:
    return zigzag(len(body) if length is None else length) + body


def zigzag(value: int) -> bytes:
    left, out = 2 * value if value >= 0 else -2 * value - 1, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


GOOD = bytes(records(b"one", b"two", b"three"))
ONE = b"\0\0\0\x01\x02v\0"  # attributes, timestamp and offset deltas 0, no key, value "v", no headers
BAD_BATCHES: dict[str, tuple[bytes | bytearray | None, int]] = {
    "null": (None, INVALID_RECORD),
    "nothing": (b"", INVALID_RECORD),
    "less than a length": (GOOD[:11], INVALID_RECORD),
    "less than a magic": (GOOD[:16], INVALID_RECORD),
    "a byte short": (GOOD[:-1], INVALID_RECORD),
    "two batches": (GOOD + GOOD, INVALID_RECORD),
    "zeros": (bytes(100), CORRUPT),
    "magic 0": (changed(GOOD, 16, ">b", 0), INVALID_RECORD),
    "magic 1": (changed(GOOD, 16, ">b", 1), INVALID_RECORD),
    "magic 3": (changed(GOOD, 16, ">b", 3), CORRUPT),
    "magic -1": (changed(GOOD, 16, ">b", -1), CORRUPT),
    "length 0": (changed(GOOD, 8, ">i", 0), CORRUPT),
    "length -1": (changed(GOOD, 8, ">i", -1), CORRUPT),
    "length 2^31-1": (changed(GOOD, 8, ">i", 2**31 - 1), UNEXPECTED),
    "length 2^31-13": (changed(GOOD, 8, ">i", 2**31 - 13), INVALID_RECORD),
    "base offset 1": (changed(GOOD, 0, ">q", 1), INVALID_RECORD),
    "crc": (changed(GOOD, 17, ">I", 1), CORRUPT),
    "control": (changed(GOOD, 21, ">h", 0x20), INVALID_RECORD),
    "codec 5": (changed(GOOD, 21, ">h", 5), UNEXPECTED),
    "codec 7": (changed(GOOD, 21, ">h", 7), UNEXPECTED),
    "gzip that is none": (changed(GOOD, 21, ">h", 1), UNEXPECTED),
    "snappy that is none": (changed(GOOD, 21, ">h", 2), UNEXPECTED),
    "lz4 that is none": (changed(GOOD, 21, ">h", 3), UNEXPECTED),
    "zstd that is none": (changed(GOOD, 21, ">h", 4), UNEXPECTED),
    "a producer without sequence": (changed(GOOD, 43, ">q", 7), INVALID_RECORD),
    "count 0": (changed(GOOD, 57, ">i", 0), INVALID_RECORD),
    "count -1": (changed(GOOD, 57, ">i", -1), INVALID_RECORD),
    "count 2": (changed(GOOD, 57, ">i", 2), INVALID_RECORD),
    "count 2^31-1": (changed(changed(GOOD, 57, ">i", 2**31 - 1), 23, ">i", 2**31 - 2), INVALID_RECORD),
    "count one too many": (changed(changed(GOOD, 57, ">i", 4), 23, ">i", 3), INVALID_RECORD),
    "count one too few": (changed(changed(GOOD, 57, ">i", 2), 23, ">i", 1), INVALID_RECORD),
    "last offset delta 5": (changed(GOOD, 23, ">i", 5), INVALID_RECORD),
    "last offset delta -1": (changed(GOOD, 23, ">i", -1), INVALID_RECORD),
    "no records": (with_payload(b"", 1), INVALID_RECORD),
    "a record past the end": (with_payload(record(ONE, 100), 1), INVALID_RECORD),
    "a record of -1": (with_payload(record(ONE, -1), 1), INVALID_RECORD),
    "a record of 2^31-1": (with_payload(record(ONE, 2**31 - 1), 1), INVALID_RECORD),
    "a varint without end": (with_payload(b"\xff" * 20, 1), INVALID_RECORD),
    "bytes left over": (with_payload(record(ONE) + b"\0", 1), INVALID_RECORD),
    "too large": (records(b"v" * 1_048_588), TOO_LARGE),
}


@each("name", BAD_BATCHES)
async def test_invalid_batch_is_refused_and_not_appended(name: str, tmp_path: Path) -> None:
    data, code = BAD_BATCHES[name]
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        for version in (7, 8, 12):
            response = only(await client.call(produce(data), version))
            assert (response.error_code, response.base_offset, response.log_append_time_ms) == (code, -1, -1), version
        assert broker.log("t").log_end_offset == 0
        assert only(await client.call(produce(GOOD), 8)).base_offset == 0


async def test_trailing_partial_batch_is_dropped(tmp_path: Path) -> None:
    """As in Kafka: a partial batch is ignored."""
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        assert only(await client.call(produce(GOOD + GOOD[:30]), 8)).error_code == 0
        assert broker.log("t").size_bytes == len(GOOD)


async def test_every_flipped_bit_is_detected(tmp_path: Path) -> None:
    """Except in the leader epoch, which the CRC leaves out and the broker overwrites."""
    batch = bytes(records(b"x"))
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        codes = set()
        accepted = []
        for bit in range(len(batch) * 8):
            data = bytearray(batch)
            data[bit // 8] ^= 1 << bit % 8
            response = only(await client.call(produce(data), 8))
            codes.add(response.error_code)
            if response.error_code == 0:
                accepted.append(bit // 8)
        assert sorted(set(accepted)) == [12, 13, 14, 15]
        assert codes == {0, CORRUPT, INVALID_RECORD, 53}  # 53 for the transactional bit
        for length in range(len(batch)):
            assert only(await client.call(produce(batch[:length]), 8)).error_code == INVALID_RECORD
        assert broker.log("t").log_end_offset == len(accepted)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
async def test_damage_in_compressed_batches_is_detected(codec: int, tmp_path: Path) -> None:
    """With a matching CRC, as of a client with a broken codec: refused, or stored as its content."""
    batch = bytes(records(*[b"value %d" % n for n in range(20)], codec=codec))
    chooser = random.Random(codec)
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        for _ in range(100):
            data = bytearray(batch)
            data[chooser.randrange(61, len(data))] ^= 1 << chooser.randrange(8)
            assert only(await client.call(produce(sealed(data)), 8)).error_code in (0, INVALID_RECORD, UNEXPECTED)


async def test_zstd_needs_produce_v7(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        data = records(b"v", codec=4)
        codes = {version: only(await client.call(produce(data), version)).error_code for version in range(3, 13)}
        assert codes == {version: UNSUPPORTED_CODEC if version < 7 else 0 for version in range(3, 13)}


# A broker as a process


async def bad_inputs(port: int, count: int, chooser: random.Random) -> None:
    """Bytes for one connection each; some of the clients disconnect in the middle."""
    whole = frame(produce(GOOD), 9, 1)
    for _ in range(count):
        client = await Client.connect(port)
        kind = chooser.randrange(5)
        try:
            if kind == 0:
                await client.send_bytes(chooser.choice(list(NO_KAFKA.values())))
            elif kind == 1:
                await client.send_bytes(whole[: chooser.randrange(len(whole))])
                client.close()
                continue
            elif kind == 2:
                await client.send_bytes(struct.pack(">i", 100 << 20) + bytes(chooser.randrange(2000)))
                client.close()
                continue
            elif kind == 3:
                data, _ = chooser.choice(list(BAD_BATCHES.values())[:-1])
                await client.call(produce(data), 8)
            else:
                body = bytearray(whole[4:])
                body[chooser.randrange(14, len(body))] ^= 1 << chooser.randrange(8)
                await client.send_bytes(struct.pack(">i", len(body)) + body + frame(ping(), 0, 2))
                while struct.unpack_from(">i", await client.receive_bytes()) != (2,):
                    pass
            if kind == 0:
                await client.receive_bytes()
        except (Closed, ConnectionError):
            pass
        client.close()


@pytest.mark.process
@pytest.mark.soak
async def test_invalid_input_costs_no_memory_and_logs_no_stack(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    with process(tmp_path) as broker:
        well = await Client.connect(broker.ports[0])
        await well.call(create_topics("t"), 4)
        chooser = random.Random(1)
        await bad_inputs(broker.ports[0], 500, chooser)
        before = broker.rss_bytes()
        rounds = 4
        for number in range(rounds):
            await bad_inputs(broker.ports[0], scaled(4000) // rounds, chooser)
            response = only(await asyncio.wait_for(well.call(produce(GOOD, acks=1), 9), PATIENCE_S))
            assert response.error_code == 0, number
        grown = broker.rss_bytes() - before
        well.close()
        assert broker.end() == 0
        assert "Traceback" not in broker.error and "[error" not in broker.error, broker.error[-2000:]
    assert grown < 6 << 20, f"{grown / 1e6:.1f} MB more"


@pytest.mark.process
async def test_announced_bytes_cost_no_memory_before_they_arrive(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    """Two hundred peers that announce 100 MB each and send a hundred bytes."""
    with process(tmp_path) as broker:
        port = broker.ports[0]
        clients = [await Client.connect(port) for _ in range(20)]
        before = broker.rss_bytes()
        clients += [await Client.connect(port) for _ in range(200)]
        for client in clients:
            await client.send_bytes(struct.pack(">i", 100 << 20) + bytes(100))
        other = await Client.connect(port)
        assert (await other.call(ping(), 0)).error_code == 0
        grown = broker.rss_bytes() - before
        for client in [*clients, other]:
            client.close()
    assert grown < 40 << 20, f"{grown / 1e6:.1f} MB more"


@pytest.mark.parametrize(("version", "flags"), [(9, (1, 0)), (10, (1, 1)), (9, (0, 1)), (11, (1,)), (13, (0,))])
async def test_metadata_v0_with_null_topics_of_librdkafka_returns_all(
    version: int, flags: tuple[int, ...], tmp_path: Path
) -> None:
    """As in Kafka, which ignores the remaining bytes (librdkafka issue 5049)."""
    body = bytes(4) + bytes((*flags, 0)) + b"\0"
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        head = struct.pack(">hhih", 3, version, 7, -1) + b"\0"
        await client.send_bytes(struct.pack(">i", len(head) + len(body)) + head + body)
        assert b"\x02t" in await client.receive_bytes()
