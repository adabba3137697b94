"""Responses of Produce: the codes, offsets and times of Kafka's partition responses, and idempotent producers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.messages.topics.create_topics import CreateTopicsRequest
from ottla.protocol.records import batch, formats
from ottla_testing.broker.harness import Client, fetch, new_topic, only, process, produce, records, running, values

HOUR_MS = 3_600_000


def shown(response: Any) -> tuple[int, int, int, int]:
    return response.error_code, response.base_offset, response.log_append_time_ms, response.log_start_offset


async def test_create_time_and_log_append_time(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        now = broker.clock.now_ms()
        await broker.topic("created")
        await broker.topic("appended", 1, {"message.timestamp.type": "LogAppendTime"})
        client = await broker.client()
        old = records(b"v", timestamp=now - 5000)
        assert shown(only(await client.call(produce(old, "created"), 9))) == (0, 0, -1, 0)
        assert shown(only(await client.call(produce(old, "appended"), 9))) == (0, 0, now, 0)
        for topic, expected in (("created", now - 5000), ("appended", now)):
            data = only(await client.call(fetch((topic, 0, 0)), 11)).records
            header = batch.read_header(data)
            assert (header.max_timestamp, header.log_append_time) == (expected, topic == "appended")
            assert batch.crc_matches(memoryview(data), 0, header)


async def test_produce_errors_have_the_log_start_offset_after_the_log_was_read(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 1, {"cleanup.policy": "compact,delete", "segment.bytes": "1048576"})
        client = await broker.client()
        good = records(b"a", b"b", key=b"k")
        assert only(await client.call(produce(good), 9)).error_code == 0
        broker.log("t").delete_records_before(1)
        now = broker.clock.now_ms()
        future = records(b"v", key=b"k", timestamp=now + HOUR_MS + 1)
        gap = records(b"v", key=b"k", producer_id=5, producer_epoch=0, base_sequence=3)
        large = records(b"v" * 1_048_577, key=b"k")
        cases: list[tuple[str, Any, tuple[int, int, int, int]]] = [
            ("success", good, (0, 2, -1, 1)),
            ("no key", records(b"v"), (87, -1, -1, 1)),
            ("future", future, (32, -1, -1, 1)),
            ("gap", gap, (59, -1, -1, 1)),
            ("corrupt", bytes(good[:-1]) + b"\x7f", (2, -1, -1, -1)),
            ("large", large, (10, -1, -1, -1)),
        ]
        for name, data, expected in cases:
            assert shown(only(await client.call(produce(data), 9))) == expected, name
        assert only(await client.call(produce(records(b"v"), "t"), 4)).log_start_offset == -1  # no field before v5


async def test_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    configs = {"segment.bytes": "1048576", "max.message.bytes": "4000000"}
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 1, configs)
        client = await broker.client()
        assert shown(only(await client.call(produce(records(b"v" * 1_048_577)), 9))) == (18, -1, -1, -1)
        fits = records(b"v" * (1_048_576 - len(records(b"")) - 4))
        assert len(fits) == 1_048_576  # the exact limit is allowed
        assert only(await client.call(produce(fits), 9)).error_code == 0


async def test_record_errors_name_the_records(tmp_path: Path) -> None:
    """From v8 on: all invalid records of the batch, those with an invalid time first (KIP-467)."""
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 1, {"cleanup.policy": "compact"})
        client = await broker.client()
        now = broker.clock.now_ms()
        late = now + HOUR_MS + 1
        rows = [(now, b"k"), (now, None), (late, b"k"), (now, None), (now, b"k")]
        made = [batch.Record(n, time, key, b"v", ()) for n, (time, key) in enumerate(rows)]
        for chosen, code, indexes in ((made, 32, [1, 2, 3]), ([*made[:2], made[3]._replace(offset=2)], 87, [1, 2])):
            request = produce(batch.build(chosen))
            response = only(await client.call(request, 8))
            assert response.error_code == code and response.error_message
            assert [error.batch_index for error in response.record_errors] == indexes
            assert all(error.batch_index_error_message for error in response.record_errors)
            response = only(await client.call(request, 7))
            assert (response.error_code, response.error_message, response.record_errors) == (code, None, [])
        # A batch that is refused as a whole lists no records.
        response = only(await client.call(produce(bytes(records(b"v")) * 2), 8))
        assert (response.error_code, response.error_message, response.record_errors) == (87, None, [])
        assert broker.log("t").log_end_offset == 0


@pytest.mark.parametrize(
    ("configs", "age_ms", "code"),
    [
        ({}, -HOUR_MS, 0),
        ({}, -HOUR_MS - 1, 32),
        ({}, 10**12, 0),
        ({"message.timestamp.before.max.ms": "1000"}, 1000, 0),
        ({"message.timestamp.before.max.ms": "1000"}, 1001, 32),
        ({"message.timestamp.after.max.ms": "9223372036854775807"}, -(10**12), 0),
        ({"message.timestamp.before.max.ms": "0", "message.timestamp.type": "LogAppendTime"}, 10**9, 0),
    ],
)
async def test_timestamps_out_of_range_are_refused(
    configs: dict[str, str], age_ms: int, code: int, tmp_path: Path
) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 1, configs)
        client = await broker.client()
        data = records(b"v", timestamp=broker.clock.now_ms() - age_ms)
        assert only(await client.call(produce(data), 9)).error_code == code


async def test_refused_partition_does_not_affect_the_others(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 3)
        client = await broker.client()
        topic = ProduceRequest.TopicProduceData
        data = [bytes(records(b"a")), bytes(records(b"b"))[:-1], bytes(records(b"c")), bytes(records(b"d"))]
        parts = [topic.PartitionProduceData(index=index, records=one) for index, one in enumerate(data)]
        request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[topic(name="t", partition_data=parts)])
        (response,) = (await client.call(request, 9)).responses
        codes = [(p.index, p.error_code) for p in response.partition_responses]
        assert codes == [(0, 0), (1, 87), (2, 0), (3, 3)]
        assert [broker.log("t", index).log_end_offset for index in range(3)] == [1, 0, 1]


async def test_internal_topics_accept_the_admin_client_only(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        broker.state.internal_topic("__consumer_offsets", 0)
        client = await broker.client()
        request = produce(records(b"v", key=b"k"), "__consumer_offsets")
        assert shown(only(await client.call(request, 9))) == (17, -1, -1, -1)
        assert only(await client.call(request, 9, "__admin_client")).error_code == 0


async def test_transactional_batches_without_a_transaction_are_refused(tmp_path: Path) -> None:
    """The code depends on whether the request has a transactional id, here an unknown one; damage is checked later."""
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        data = records(b"v", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        assert only(await client.call(produce(data), 9)).error_code == 53
        assert only(await client.call(produce(data, transactional_id="x"), 9)).error_code == 49
        data[-1] ^= 1
        assert only(await client.call(produce(data), 9)).error_code == 53
        assert only(await client.call(produce(data, transactional_id="x"), 9)).error_code == 49
        plain = produce(records(b"v"), transactional_id="x")
        assert only(await client.call(plain, 9)).error_code == 0
        assert broker.log("t").log_end_offset == 1


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
async def test_topic_with_a_codec_recompresses(codec: str, tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 1, {"compression.type": codec})
        client = await broker.client()
        for source in range(5):
            data = records(*[b"%d" % n * 50 for n in range(20)], codec=source)
            assert only(await client.call(produce(data), 9)).base_offset == source * 20
        data = only(await client.call(fetch(("t", 0, 0)), 11)).records
        wanted = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[codec]
        assert {header.codec for _, header in formats.headers(data)} == {wanted}
        assert values(data) == [b"%d" % n * 50 for n in range(20)] * 5


# Idempotence


def sequenced(sequence: int, count: int = 1, epoch: int = 0, producer_id: int = 9, timestamp: int = 0) -> bytearray:
    fields: Any = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return records(*[b"s%d" % n for n in range(count)], timestamp=timestamp or 1_700_000_000_000, **fields)


async def test_five_newest_batches_are_deduplicated(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()

        async def sent(*arguments: int, **more: int) -> tuple[int, int, int]:
            response = only(await client.call(produce(sequenced(*arguments, **more)), 9))
            return response.error_code, response.base_offset, response.log_append_time_ms

        assert await sent(3) == (59, -1, -1)  # the log has no state of the producer
        for number in range(6):
            assert await sent(number * 2, 2, timestamp=1000 + number) == (0, number * 2, -1)
        for number in range(1, 6):
            # The first response again, but with the batch's largest time where a first response has -1.
            assert await sent(number * 2, 2, timestamp=1000 + number) == (0, number * 2, 1000 + number)
        assert await sent(0, 2) == (0, 0, 1000)  # no longer cached, but found in the log
        assert await sent(0, 1) == (46, -1, -1)  # written long ago, in another batch
        assert await sent(1, 2) == (45, -1, -1)  # no copy, so it has other records
        assert await sent(10, 1) == (45, -1, -1)
        assert await sent(11, 2) == (45, -1, -1)  # half of it is new: a duplicate response would lose it
        assert await sent(13) == (45, -1, -1)  # a gap
        assert await sent(12, epoch=1) == (45, -1, -1)  # a new epoch begins with sequence 0
        assert await sent(0, epoch=1) == (0, 12, -1)
        assert await sent(12, epoch=0) == (47, -1, -1)  # fenced
        assert await sent(1, epoch=1) == (0, 13, -1)
        assert broker.log("t").log_end_offset == 14


async def test_sequences_wrap_around_after_the_last(tmp_path: Path) -> None:
    last = 2**31 - 1
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        assert only(await client.call(produce(sequenced(0)), 9)).error_code == 0
        known = broker.log("t").producers()
        known[9] = known[9]._replace(batches=(known[9].batches[0]._replace(last_sequence=last - 3),))
        for sequence, count, offset in ((last - 2, 2, 1), (last, 3, 3), (2, 1, 6)):
            response = only(await client.call(produce(sequenced(sequence, count)), 9))
            assert (response.error_code, response.base_offset) == (0, offset)
        response = only(await client.call(produce(sequenced(last, 3)), 9))
        assert (response.error_code, response.base_offset) == (0, 3)


async def test_duplicate_batch_is_validated(tmp_path: Path) -> None:
    """A batch that is too old by now is refused (the order of checks is Kafka's)."""
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 1, {"message.timestamp.before.max.ms": "1000"})
        client = await broker.client()
        data = sequenced(0)
        assert only(await client.call(produce(data), 9)).error_code == 0
        broker.clock.advance(1001)
        assert only(await client.call(produce(data), 9)).error_code == 32


@pytest.mark.process
async def test_producer_state_survives_a_kill(tmp_path: Path) -> None:
    with process(tmp_path) as broker:
        client = await Client.connect(broker.ports[0])
        await client.call(CreateTopicsRequest(topics=[new_topic("t")]), 4)
        for sequence in range(3):
            assert only(await client.call(produce(sequenced(sequence)), 9)).base_offset == sequence
        client.close()
        broker.process.kill()
    with process(tmp_path) as broker:
        client = await Client.connect(broker.ports[0])
        found = [only(await client.call(produce(sequenced(sequence)), 9)) for sequence in (0, 2, 3, 5)]
        assert [(a.error_code, a.base_offset) for a in found] == [(0, 0), (0, 2), (0, 3), (45, -1)]
        client.close()
