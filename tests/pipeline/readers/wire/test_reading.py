"""Pieces over the wire from brokers of all releases: the same records as consumers read, in every format."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.testing.embedded import Embedded
from ottla.client import Producer
from ottla.pipeline.backend import DataLoss, OffsetRange, ReadError, Selection, TopicPartition
from ottla.pipeline.readers.wire import WireBackend
from ottla.pipeline.readers.wire.backend import WirePiece
from ottla.pipeline.readers.wire.decoding import Decoder
from ottla.pipeline.readers.wire.fetch import Fetched
from ottla_testing.each import each
from ottla_testing.pipeline.columnar_samples import FORMATS, entries, some_records
from ottla_testing.pipeline.columnar_samples import shown as held
from ottla_testing.pipeline.wire_world import (
    ALL,
    COLUMNS,
    NOW_MS,
    all_rows,
    config,
    consumed,
    delete_below,
    marker,
    offsets,
    piece,
    plain,
    rows,
    shown,
    stored,
    transactional,
    wanted,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

RELEASES = ("0.8.2", "0.9", "0.10.0", "0.10.2", "0.11", "1.1", "2.4", "2.8", "3.9", "4.3", "ottla")


@pytest.fixture(scope="module")
def broker() -> Iterator[Embedded]:
    with Embedded(brokers=2) as running:
        yield running


@pytest.fixture
def topic(broker: Embedded) -> str:
    return broker.create_topic()


def in_many_batches(broker: Embedded, topic: str, count: int) -> None:
    """Produces one record per batch."""
    for n in range(count):
        broker.send(topic, b"%d" % n * 50)


def test_read_all_formats_and_codecs(tmp_path: Path) -> None:
    """Logs of three entries each, in combinations that no broker of today writes: read at each start and end."""
    logs, records = {}, {}
    for magic, codec in FORMATS:
        some = some_records(30, magic * 10 + codec, headers=magic == 2)
        name = f"v{magic}-{codec}"
        logs[name] = b"".join(entries(some[n : n + 10], magic, codec) for n in (0, 10, 20))
        records[name] = held(some, magic)
    with stored(tmp_path, logs) as broker:
        for name, some in records.items():
            end = some[-1].offset + 1
            found = rows(piece(broker, name, end, want=wanted(*ALL)))
            assert shown(found) == consumed(broker, name), name
            assert [row["offset"] for row in found] == [record.offset for record in some]
            assert [(row["key"], row["value"]) for row in found] == [(r.key, r.value) for r in some]
            codec = ("none", "gzip", "snappy", "lz4", "zstd")[int(name[-1])]
            assert {(row["magic"], row["codec"], row["crcOk"], row["file"]) for row in found} == {
                (int(name[1]), codec, True, None)
            }
            for start, stop in ((1, end), (some[3].offset, some[25].offset), (some[9].offset, some[10].offset)):
                expected = [record.offset for record in some if start <= record.offset < stop]
                assert offsets(piece(broker, name, stop, start)) == expected


@each("release", RELEASES, strided=True)
def test_read_from_every_release(release: str) -> None:
    with Embedded(release=release) as broker:
        topic = broker.create_topic(partitions=2)
        for number in range(2):
            for n in range(20):
                broker.send(topic, b"value %d" % n, key=str(n % 3), partition=number, timestamp_ms=NOW_MS + n)
        found = all_rows(broker, topic)
        assert len(found) == 40 and shown(found) == consumed(broker, topic)
        assert {row["topic"] for row in found} == {topic}
        # Small limits: many Fetches, and with old versions entries that do not fit.
        assert all_rows(broker, topic, max_partition_fetch_bytes=100) == found
        assert offsets(piece(broker, topic, 15, 7, max_partition_fetch_bytes=1)) == list(range(7, 15))


def write_in_transactions(broker: Embedded, topic: str) -> None:
    """Writes committed and aborted transactions of two producers, and records outside of transactions."""

    async def work() -> None:
        async with (
            Producer(broker.bootstrap, transactional_id=f"{topic}-1") as one,
            Producer(broker.bootstrap, transactional_id=f"{topic}-2") as two,
            Producer(broker.bootstrap) as plainly,
        ):
            for n in range(6):
                await one.begin()
                await two.begin()
                await asyncio.gather(
                    *(one.send_and_wait(topic, b"one %d" % (10 * n + m), partition=0) for m in range(3))
                )
                await plainly.send_and_wait(topic, b"plain %d" % n, partition=0)
                await asyncio.gather(*(two.send_and_wait(topic, b"two %d" % n, partition=0) for _ in range(2)))
                await (one.commit() if n % 3 else one.abort())
                await (two.commit() if n % 2 else two.abort())

    asyncio.run(work())
    with WireBackend(config(broker)) as backend:
        key = [TopicPartition(topic, 0)]
        # The last marker is written after the response to the commit.
        while backend.latest(key, committed=True) != backend.latest(key, committed=False):
            pass


def by_kafka_python(broker: Embedded, topic: str, isolation: str) -> list[tuple[int, Any, Any]]:
    python: Any = kafka
    with python.KafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level=isolation, auto_offset_reset="earliest"
    ) as consumer:
        where = python.TopicPartition(topic, 0)
        consumer.assign([where])
        end = consumer.end_offsets([where])[where]
        found: list[tuple[int, Any, Any]] = []
        while consumer.position(where) < end:
            for record in consumer.poll(timeout_ms=200).get(where, ()):
                found.append((record.offset, record.key, record.value))
        return found


def test_read_committed_and_uncommitted_transactions(broker: Embedded, topic: str, stride: int) -> None:
    write_in_transactions(broker, topic)
    for isolation in ("read_committed", "read_uncommitted"):
        want = wanted(committed=isolation == "read_committed")
        found = all_rows(broker, topic, want=want)
        assert shown(found) == consumed(broker, topic, isolation)
        found_rows = [(row["offset"], row["key"], row["value"]) for row in found]
        assert found_rows == by_kafka_python(broker, topic, isolation)
        end = found[-1]["offset"] + 1
        # From any offset: transactions aborted before it are still known.
        for start in range(random.randrange(3 * stride), end, 3 * stride):
            expected = [row["offset"] for row in found if row["offset"] >= start]
            work = piece(broker, topic, end, start, want, max_partition_fetch_bytes=150)
            assert offsets(work) == expected
    controls = all_rows(broker, topic, want=wanted(*ALL, committed=True, control=True))
    markers = [row for row in controls if row["control"]]
    assert len(markers) == 12 and all(row["transactional"] for row in markers)
    assert sorted(row["key"][3] for row in markers) == [0] * 5 + [1] * 7


def test_read_committed_waits_for_last_stable_offset(broker: Embedded, topic: str) -> None:
    async def work() -> None:
        async with Producer(broker.bootstrap, transactional_id=topic) as producer:
            await producer.begin()
            await producer.send(topic, b"open", partition=0)
            await producer.flush()
            await asyncio.to_thread(requested)
            await producer.commit()

    def requested() -> None:
        assert all_rows(broker, topic, want=wanted(committed=True)) == []
        assert len(all_rows(broker, topic)) == 1
        work = piece(broker, topic, 1, want=wanted(committed=True), default_api_timeout_ms=300)
        with pytest.raises(ReadError, match="transactions are open from its last stable offset, 0, on") as refused:
            rows(work)
        assert not isinstance(refused.value, DataLoss)

    asyncio.run(work())
    assert len(all_rows(broker, topic, want=wanted(committed=True))) == 1


def test_read_gaps_left_by_cleaner(tmp_path: Path) -> None:
    kept = plain(3, 4, 9) + plain(40, 41) + plain(50)
    # At the end only a marker, whose transaction's records were removed.
    log = kept + transactional(60, 7) + marker(90, 7, commit=True)
    with stored(tmp_path, {"t": log}) as broker:
        assert offsets(piece(broker, "t", 91)) == [3, 4, 9, 40, 41, 50, 60]
        assert offsets(piece(broker, "t", 91, 61)) == []
        assert offsets(piece(broker, "t", 40, 10)) == []
        assert offsets(piece(broker, "t", 45, 10, max_partition_fetch_bytes=1)) == [40, 41]
        assert offsets(piece(broker, "t", 91, 5, wanted("offset", control=True))) == [9, 40, 41, 50, 60, 90]


def test_read_deleted_records_raise_data_loss(broker: Embedded, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    broker.send_many(topic, [b"%d" % n for n in range(20)])
    delete_below(broker, topic, 8)
    with pytest.raises(DataLoss, match=rf"{topic}-0 has lost offsets 2 to 7: it begins at offset 8 \(broker at 127"):
        rows(piece(broker, topic, 20, 2))
    assert offsets(piece(broker, topic, 20, 2, wanted(fail_on_loss=False))) == list(range(8, 20))
    assert offsets(piece(broker, topic, 5, 2, wanted(fail_on_loss=False))) == []
    with pytest.raises(DataLoss, match="lost offsets 30 to 39: it ends at offset 20"):
        rows(piece(broker, topic, 40, 30))
    with caplog.at_level(logging.WARNING):
        assert offsets(piece(broker, topic, 40, 30, wanted(fail_on_loss=False))) == []
    assert "lost offsets 30 to 39" in caplog.text
    # A log truncated after the start: the existing records are returned first.
    work = piece(broker, topic, 22, 18, default_api_timeout_ms=300)
    found = []
    with pytest.raises(DataLoss, match="lost offsets 20 to 21: it ends at offset 20"):
        for some in work.read():
            found += some.column("offset").to_pylist()
    assert found == [18, 19]


def test_read_deleted_or_recreated_topic_raises_data_loss(broker: Embedded) -> None:
    topic = broker.create_topic()
    broker.send_many(topic, [b"%d" % n for n in range(5)])
    with WireBackend(config(broker)) as backend:
        keys = backend.partitions(Selection(topics=(topic,)))
        (work,) = backend.pieces([OffsetRange(*keys[0], 0, 5)], wanted("offset"), at_least=None)
    broker.delete_topic(topic)
    with pytest.raises(DataLoss, match=f"{topic}-0 has lost offsets 0 to 4: it was deleted"):
        rows(work)
    assert not [one for one in broker.topics() if one.name == topic]  # reading has not created it
    broker.create_topic(topic)
    broker.send_many(topic, [b"other"] * 7)
    with pytest.raises(DataLoss, match="deleted and created again"):
        rows(work)
    unsure = WirePiece(work.config, work.range, wanted("offset", fail_on_loss=False), work.topic_id)
    assert offsets(unsure) == [0, 1, 2, 3, 4]


def test_read_while_leaders_move(broker: Embedded, topic: str) -> None:
    in_many_batches(broker, topic, 300)
    found, moved = [], 0
    for some in piece(broker, topic, 300, max_partition_fetch_bytes=2000).read():
        found += some.column("offset").to_pylist()
        leader = broker.topology.leader(topic)
        if moved < 6:
            broker.topology.move_leader(topic, 0, 1 + leader % 2)
            moved += 1
    assert found == list(range(300)) and moved > 1


def test_read_while_brokers_stop(broker: Embedded, topic: str) -> None:
    in_many_batches(broker, topic, 100)
    reading = piece(broker, topic, 100, max_partition_fetch_bytes=2000).read()
    found = next(reading).column("offset").to_pylist()
    leader = broker.topology.leader(topic)
    broker.topology.stop_node(leader)
    try:
        found += next(reading).column("offset").to_pylist()
    finally:
        broker.topology.start_node(leader)
    found += [offset for some in reading for offset in some.column("offset").to_pylist()]
    assert found == list(range(100))


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("disconnect", {"when": "before"}),
        ("disconnect", {"when": "after"}),
        ("truncate", {"bytes": 30}),
        ("error", {"code": "NOT_LEADER_OR_FOLLOWER"}),
        ("error", {"code": "UNKNOWN_SERVER_ERROR"}),
        ("error", {"code": "UNKNOWN_TOPIC_OR_PARTITION"}),
        ("error", {"code": "FENCED_LEADER_EPOCH"}),
        ("error", {"code": "OFFSET_OUT_OF_RANGE"}),
        ("delay", {"ms": 30}),
    ],
)
def test_read_transient_fault_retried(broker: Embedded, topic: str, kind: str, arguments: dict[str, Any]) -> None:
    in_many_batches(broker, topic, 100)
    with getattr(broker.faults, kind)("Fetch", topic=topic, times=3, after=1, **arguments) as fault:
        assert offsets(piece(broker, topic, 100, max_partition_fetch_bytes=2000)) == list(range(100))
    assert fault.fired == 3


def test_read_permanent_fault_raises_before_timeout(broker: Embedded, topic: str) -> None:
    broker.send_many(topic, [b"0"])
    hurried: Any = {"default_api_timeout_ms": 300, "request_timeout_ms": 100}
    with (
        broker.faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER", topic=topic),
        pytest.raises(ReadError, match=rf"{topic}-0 cannot be read at offset 0: NOT_LEADER.*127.0.0.1"),
    ):
        rows(piece(broker, topic, 1, **hurried))
    with (
        broker.faults.error("Fetch", "TOPIC_AUTHORIZATION_FAILED", topic=topic),
        pytest.raises(ReadError, match="TOPIC_AUTHORIZATION_FAILED"),
    ):
        rows(piece(broker, topic, 1))
    with (
        broker.faults.stall("Fetch", topic=topic),
        pytest.raises(ReadError, match="no response to FetchRequest"),
    ):
        rows(piece(broker, topic, 1, fetch_max_wait_ms=0, **hurried))
    with pytest.raises(ReadError, match=r"cannot connect to the brokers at 127.0.0.1:1: .*127.0.0.1:1"):
        rows(piece("127.0.0.1:1", topic, 1, **hurried))


def test_read_damage_in_transit(broker: Embedded, topic: str) -> None:
    for n in range(4):
        broker.send_many(topic, [b"%d" % m for m in range(10 * n, 10 * n + 10)])
    small: Any = {"max_partition_fetch_bytes": 1}
    with broker.faults.wrong_crc(topic=topic, nth=2):
        with pytest.raises(ReadError, match=rf"{topic}-0 is damaged at offset 10, byte 0 .* 127.0.0.1:.*CRC") as failed:
            rows(piece(broker, topic, 40, **small))
        assert "\n" not in str(failed.value)
    with broker.faults.wrong_crc(topic=topic, nth=2):
        assert offsets(piece(broker, topic, 40, want=wanted(on_corrupt="skip"), **small)) == [
            *range(10),
            *range(20, 40),
        ]


def test_read_damage_of_all_kinds_by_policy(caplog: pytest.LogCaptureFixture) -> None:
    good, bad = plain(0, 1, 2), bytearray(plain(3, 4, 5))
    bad[-12] ^= 1  # within a value: it still decodes
    worse = bytearray(plain(6, 7))
    worse[61] ^= 0x70  # the length of the first record
    unknown = bytearray(plain(8, 9))
    unknown[16] = 7  # a magic of no format
    log = good + bytes(bad) + bytes(worse) + bytes(unknown) + plain(10, 11)
    # A broker would truncate such a log when it opens it, so the bytes go straight to the decoder.
    fetched = Fetched(memoryview(log), (), 1, "there:1")

    def decoded(columns: tuple[str, ...] = ("offset", "value", "crcOk"), end: int = 12, **more: Any) -> list[Any]:
        decoder = Decoder(wanted(*columns, **more), OffsetRange("t", 0, 1, end))
        found = [tuple(row.values()) for some in decoder.rows(fetched) for row in some.to_pylist()]
        decoder.close()
        return found

    with pytest.raises(ReadError, match=rf"t-0 is damaged at offset 3, byte {len(good)} .* there:1: .*CRC"):
        decoded()
    with caplog.at_level(logging.WARNING):
        assert [row[0] for row in decoded(on_corrupt="skip")] == [1, 2, 10, 11]
    assert "damaged entries skipped partition=t-0 count=3" in caplog.text
    emitted = decoded(on_corrupt="emit")
    assert [(offset, ok) for offset, _, ok in emitted] == [
        (1, True),
        (2, True),
        (3, False),
        (4, False),
        (5, False),
        (6, False),
        (8, False),
        (10, True),
        (11, True),
    ]
    assert emitted[5][1] == bytes(worse) and emitted[6][1] == bytes(unknown)
    assert decoded(ALL, on_corrupt="emit")[5][4] == 6
    assert [row[0] for row in decoded(on_corrupt="emit", end=6)] == [1, 2, 3, 4, 5]


def test_read_large_records(broker: Embedded) -> None:
    topic = broker.create_topic(configs={"max.message.bytes": 8_000_000})
    values = [b"a" * 10, b"b" * 3_000_000, b"c" * 6_000_000, b"d"]
    for value in values:
        broker.send(topic, value)
    work = piece(broker, topic, 4, want=wanted("value"), max_partition_fetch_bytes=1000, fetch_max_bytes=10_000)
    assert [row["value"] for row in rows(work)] == values
    assert [row["value"] for row in rows(piece(broker, topic, 4, want=wanted("value")))] == values


def test_read_large_records_from_old_brokers() -> None:
    with Embedded(release="0.10.0", configs={"message.max.bytes": 4_000_000}) as broker:
        topic = broker.create_topic()
        values = [b"a" * 10, b"b" * 3_000_000, b"c"]
        for value in values:
            broker.send(topic, value)
        assert [row["value"] for row in rows(piece(broker, topic, 3, want=wanted("value")))] == values
        with pytest.raises(ReadError, match=r"at offset 1 .*127.*has 3000\d+ bytes, and kafka.fetch.max.bytes is 2000"):
            rows(piece(broker, topic, 3, fetch_max_bytes=2_000_000))


def test_read_columns_and_time_bounds(broker: Embedded, topic: str) -> None:
    for n in range(10):
        broker.send(topic, b"%d" % n, headers=[("h", str(n))], timestamp_ms=NOW_MS + n)
    assert [list(row) for row in rows(piece(broker, topic, 10, want=wanted("partition", "topic")))] == [
        ["partition", "topic"]
    ] * 10
    none = [some.num_rows for some in WirePiece(config(broker), piece(broker, topic, 10, 3).range, wanted()).read()]
    assert sum(none) == 7
    nothing = piece(broker, topic, 10, 3)
    bare = WirePiece(nothing.config, nothing.range, nothing.wanted.__class__(()))
    assert sum(some.num_rows for some in bare.read()) == 7
    late = wanted("offset", from_ms=NOW_MS + 7)
    assert set(offsets(piece(broker, topic, 10, want=late))) == {7, 8, 9}
    with WireBackend(config(broker)) as backend:
        one = piece(broker, topic, 10).range
        (work,) = backend.pieces([one], late, at_least=None)
        assert work.range.start == 7
        assert not backend.pieces([one], wanted("offset", from_ms=NOW_MS + 10), at_least=None)


def test_read_closed_early_and_within_running_loop(broker: Embedded, topic: str) -> None:
    in_many_batches(broker, topic, 100)
    work = piece(broker, topic, 100, max_partition_fetch_bytes=2000)
    reading = work.read()
    next(reading)
    reading.close()

    async def within() -> list[int]:
        return offsets(work)

    assert asyncio.run(within()) == list(range(100))


def test_piece_pickles_small(broker: Embedded) -> None:
    found_rows = pickle.dumps(piece(broker, "t", 10))
    assert len(found_rows) < 1000
    assert pickle.loads(found_rows) == piece(broker, "t", 10)
    assert json.dumps(piece(broker, "t", 10).config)
    assert rows(piece(broker, "t", 0)) == [] and COLUMNS
