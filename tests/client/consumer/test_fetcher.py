"""Fetches: the visible records of a set, damage, limits that are too small, offsets out of range."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.consumer.records import Chunk
from ottla.client.net.errors import ClientError, ConfigError, KafkaError, MessageTooLarge
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import batch, legacy
from ottla.protocol.records.batch import Header, Record
from ottla_testing.broker import harness
from ottla_testing.client.reading import NOW_MS, consumer_of, read, values, write


def records(*offsets: int) -> list[Record]:
    return [Record(offset, NOW_MS + offset, None, b"%d" % offset) for offset in offsets]


def marker(offset: int, producer_id: int, kind: int) -> bytearray:
    key = b"\0\0" + kind.to_bytes(2, "big")
    record = Record(offset, NOW_MS, key, b"\0\0\0\0\0\0")
    return batch.build(
        [record],
        batch.BatchFields(producer_id=producer_id, producer_epoch=0, transactional=True, control=True),
        base_offset=offset,
    )


def written(offset: int, producer_id: int) -> bytearray:
    return batch.build(
        records(offset),
        batch.BatchFields(producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True),
        base_offset=offset,
    )


def shown(chunk: Chunk) -> list[int]:
    found: list[int] = []
    while some := chunk.read():
        found += [record.offset for record in some]
    return found


def test_isolation_decides_the_visible_records() -> None:
    # Producer 7 aborts, 8 commits, 7 commits its next transaction; 9 wrote without a transaction.
    data = b"".join(
        [written(0, 7), written(1, 8), marker(2, 7, 0), written(3, 7), marker(4, 8, 1), marker(5, 7, 1), written(6, 9)]
    )
    assert shown(Chunk("t", 0, data, 0)) == [0, 1, 3, 6]
    chunk = Chunk("t", 0, data, 0, committed_only=True, aborted=[(7, 0)])
    assert shown(chunk) == [1, 3, 6] and chunk.offset == chunk.next_offset == 7
    # Two aborted transactions: the second begins after the marker of the first.
    chunk = Chunk("t", 0, data, 0, committed_only=True, aborted=[(7, 3), (7, 0)])
    assert shown(chunk) == [1, 6]
    # Only control batches: the position moves past them.
    chunk = Chunk("t", 0, bytes(marker(5, 7, 1)), 5)
    assert shown(chunk) == [] and chunk.offset == 6


def test_records_below_the_fetch_offset_and_gaps_are_skipped() -> None:
    compacted = batch.build(records(4, 9), batch.BatchFields(last_offset_delta=9), base_offset=3)
    chunk = Chunk("t", 0, bytes(batch.build(records(0, 1, 2)) + compacted), 2)
    assert chunk.next_offset == 13
    assert shown(chunk) == [2, 4, 9] and chunk.offset == 13
    emptied = batch.build([], batch.BatchFields(last_offset_delta=9), base_offset=3)
    chunk = Chunk("t", 0, bytes(emptied), 5)
    assert shown(chunk) == [] and chunk.offset == 13
    for magic in (0, 1):
        wrapper = legacy.build(records(4, 5, 6, 7), magic=magic, codec=1)
        assert shown(Chunk("t", 0, bytes(wrapper), 6)) == [6, 7]


@given(st.integers(0, 2), st.integers(0, 400))
def test_cut_last_batch_is_not_an_error(magic: int, cut: int) -> None:
    entries = [
        bytes(batch.build(records(n), base_offset=n) if magic == 2 else legacy.build(records(n), magic=magic))
        for n in range(4)
    ]
    data = b"".join(entries)[:cut]
    whole = min(cut // len(entries[0]), 4)
    chunk = Chunk("t", 0, data, 0)
    assert shown(chunk) == list(range(whole)) and chunk.next_offset == whole
    assert chunk.needed_bytes == (len(entries[0]) if 12 <= cut < len(entries[0]) else 0) or cut < 17


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_damage_is_raised_after_the_intact_records(magic: int) -> None:
    entries = [
        bytearray(batch.build(records(n), base_offset=n) if magic == 2 else legacy.build(records(n), magic=magic))
        for n in range(3)
    ]
    entries[1][-1] ^= 1
    chunk = Chunk("t", 0, b"".join(entries), 0)
    assert [record.offset for record in chunk.read()] == [0]
    for _ in range(2):
        with pytest.raises(KafkaError, match="t-0 cannot be read at offset 1") as damaged:
            chunk.read()
        assert damaged.value.code == ErrorCode.CORRUPT_MESSAGE
    if magic < 2:
        assert shown(Chunk("t", 0, b"".join(entries), 0, check_crcs=False)) == [0, 1, 2]


def test_headers_and_fields_are_read_as_written() -> None:
    headers = (Header("a", b""), Header("", None), Header("\udcff", b"x" * 200))
    many = [Record(n, NOW_MS - n * 3_000_000, b"k" * (n * 70) or None, b"v" * (n * 9000), headers) for n in range(4)]
    chunk = Chunk("t", 3, bytes(batch.build(many, leader_epoch=5)), 0)
    found = chunk.read()
    assert [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in found] == [tuple(r) for r in many]
    assert {(r.topic, r.partition, r.timestamp_type, r.leader_epoch) for r in found} == {("t", 3, 0, 5)}
    appended = batch.build(many[:2], batch.BatchFields(log_append_time=True, max_timestamp=99))
    assert {(r.timestamp_ms, r.timestamp_type) for r in Chunk("t", 0, bytes(appended), 0).read()} == {(99, 1)}


@given(st.binary(min_size=1, max_size=90), st.integers(1, 5))
def test_bytes_that_are_not_records_raise_corrupt_message(payload: bytes, count: int) -> None:
    whole = bytearray(batch.build(records(0)))[:61] + payload
    whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
    whole[57:61] = count.to_bytes(4, "big")
    try:
        list(batch.records(bytes(whole)))
        is_good = True
    except ValueError:
        is_good = False
    chunk = Chunk("t", 0, bytes(whole), 0, check_crcs=False)
    if is_good:
        chunk.read()
    else:
        with pytest.raises(KafkaError):
            chunk.read()


async def test_fetch_limit_that_is_too_small_grows_up_to_fetch_max_bytes(tmp_path: Path) -> None:
    for release in ("0.9", "3.9"):
        async with harness.running(tmp_path / release, release=release) as broker:
            await broker.topic("t")
            write(broker, b"x" * 5000)
            write(broker, b"y")
            options = {"max_partition_fetch_bytes": 200}
            async with consumer_of(broker, "t", **options) as consumer:
                assert [len(value or b"") for value in await values(consumer, 2)] == [5000, 1]
    async with harness.running(tmp_path / "again", release="0.9") as broker:
        await broker.topic("t")
        write(broker, b"x" * 5000)
        write(broker, b"y")
        async with consumer_of(broker, "t", max_partition_fetch_bytes=200, fetch_max_bytes=1000) as consumer:
            for _ in range(2):
                with pytest.raises(MessageTooLarge, match=r"t-0: the batch at offset 0 has 50\d\d bytes"):
                    await read(consumer, 1)
            consumer.seek("t", 0, 1)
            assert await values(consumer, 1) == [b"y"]


@pytest.mark.parametrize("release", ["0.8.2", "0.10.2", "ottla"])
async def test_offset_out_of_range_is_reset_by_the_policy(release: str, tmp_path: Path) -> None:
    async with harness.running(tmp_path, release=release) as broker:
        await broker.topic("t")
        write(broker, b"a", b"b")
        async with consumer_of(broker, assign=[("t", 0)]) as consumer:
            await read(consumer, 2)
            consumer.seek("t", 0, 1000)
            assert await values(consumer, 1) == [b"a"]
            consumer.seek_to_end()
            assert await consumer.position("t", 0) == 2
            consumer.seek_to_beginning(("t", 0))
            assert await values(consumer, 2) == [b"a", b"b"]
        async with consumer_of(broker, assign=[("t", 0)], offset_reset="none") as consumer:
            with pytest.raises(KafkaError, match="no position"):
                await read(consumer, 1)
            consumer.seek("t", 0, 1000)
            with pytest.raises(KafkaError, match="offset 1000 is out of range"):
                await read(consumer, 1)
        async with consumer_of(broker, assign=[("t", 0)], offset_reset="latest") as consumer:
            assert await consumer.position("t", 0) == 2
            write(broker, b"c")
            assert await values(consumer, 1) == [b"c"]


async def test_seek_at_any_moment_returns_no_record_twice(tmp_path: Path) -> None:
    """Also between the pass that starts a fetch and the fetch's first step."""
    async with harness.running(tmp_path) as broker:
        await broker.topic("t")
        write(broker, b"a", b"b")
        async with consumer_of(broker, assign=[("t", 0)], fetch_max_wait_ms=0) as consumer:
            for passes in range(12):
                consumer.seek("t", 0, 0)
                for _ in range(passes):
                    await asyncio.sleep(0)
                consumer.seek("t", 0, 0)
                assert await values(consumer, 2) == [b"a", b"b"]
                assert await consumer.getmany(60) == {}, f"a second seek {passes} iterations after the first"


async def test_seek_at_any_moment_of_a_lookup_is_kept(tmp_path: Path) -> None:
    """Also between the pass that starts the lookup and its first step."""
    async with harness.running(tmp_path) as broker:
        await broker.topic("t")
        write(broker, b"a", b"b")
        async with consumer_of(broker, assign=[("t", 0)], fetch_max_wait_ms=0) as consumer:
            for passes in range(12):
                consumer.seek_to_beginning()
                for _ in range(passes):
                    await asyncio.sleep(0)
                consumer.seek("t", 0, 1)
                assert await values(consumer, 1) == [b"b"]
                assert await consumer.getmany(60) == {}, f"a seek {passes} iterations after the start of a lookup"


async def test_consumer_continues_after_a_lost_connection(tmp_path: Path) -> None:
    async with harness.running(tmp_path) as broker:
        await broker.topic("t")
        write(broker, b"a")
        async with consumer_of(broker, "t") as consumer:
            assert await values(consumer, 1) == [b"a"]
            waiting = asyncio.ensure_future(values(consumer, 1))
            await asyncio.sleep(0.02)
            for connection in list(consumer._cluster._open.values()):
                connection.close()
            write(broker, b"b")
            assert await waiting == [b"b"]


async def test_topic_created_later_is_read(tmp_path: Path) -> None:
    async with harness.running(tmp_path) as broker:
        async with consumer_of(broker, "t", allow_auto_create_topics=False) as consumer:
            assert await consumer.getmany(20) == {}
            await broker.topic("t", 2)
            write(broker, b"a", partition=1)
            assert await values(consumer, 1) == [b"a"]
        async with consumer_of(broker, "no/name") as consumer:
            with pytest.raises(KafkaError) as refused:
                await read(consumer, 1)
            assert refused.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_pause_times_and_deserializers(tmp_path: Path) -> None:
    async with harness.running(tmp_path) as broker:
        await broker.topic("t", 2)
        write(broker, b"1", b"2", b"x")
        write(broker, b"4", partition=1)
        async with consumer_of(broker, "t", value_deserializer=lambda value: int(value)) as consumer:
            assert await consumer.beginning_offsets([("t", 0)]) == {("t", 0): 0}
            assert await consumer.end_offsets([("t", 0), ("t", 1)]) == {("t", 0): 3, ("t", 1): 1}
            times = await consumer.offsets_for_times({("t", 0): NOW_MS + 1, ("t", 1): NOW_MS + 9})
            assert times[("t", 0)] == (1, NOW_MS + 1, 0) and times[("t", 1)] is None
            while not consumer.assignment():
                await asyncio.sleep(0.005)
            consumer.pause(("t", 0))
            assert consumer.paused() == [("t", 0)]
            assert await values(consumer, 1) == [4]
            assert await consumer.getmany(20) == {}
            consumer.resume(("t", 0))
            found = await consumer.getmany(1000)
            assert [record.value for record in found["t", 0]] == [1, 2]
            for _ in range(2):
                with pytest.raises(ClientError, match="failed for the record of t-0 at offset 2"):
                    await consumer.getmany(1000)
            consumer.seek("t", 0, 1)
            assert await values(consumer, 1) == [2]
            with pytest.raises(ClientError, match="not assigned"):
                consumer.seek("t", 9, 0)
    with pytest.raises(ConfigError, match=r"did you mean offset\.reset"):
        consumer_of(broker, "t", offset_resett="x")
