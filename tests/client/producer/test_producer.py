"""The producer with brokers in the same event loop: written formats by release and mode, and options."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.client.net import errors
from ottla.client.producer.partitioners import java_partition
from ottla.client.producer.producer import Producer, RecordMetadata
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records import batch
from ottla_testing.client.produced_logs import headers_of, idempotent, producing, records_of, running  # type: ignore[attr-defined]
from ottla_testing.each import each

BEFORE_3 = {"inter.broker.protocol.version": "2.8"}
MANY = [(f"key {n % 7}".encode(), f"value {n}".encode()) for n in range(300)]

# release, overrides, stored format, whether "requested" was idempotent, whether "required" works
RELEASES = [
    ("0.9", {}, 0, False, False),
    ("0.10.2", {}, 1, False, False),
    ("0.11", {}, 2, False, True),
    ("1.0", {}, 2, True, True),
    ("2.4", {}, 2, True, True),
    ("2.8", {}, 2, True, True),
    ("2.8", {"log.message.format.version": "0.9.0"}, 0, False, False),
    ("2.8", {"log.message.format.version": "0.10.2"}, 1, False, False),
    ("1.0", {"log.message.format.version": "0.10.2"}, 1, False, False),
    ("3.9", {}, 2, True, True),
    ("3.9", {"log.message.format.version": "0.10.2"}, 2, True, True),
    ("4.3", {}, 2, True, True),
    ("ottla", {}, 2, True, True),
    ("ottla", {**BEFORE_3, "log.message.format.version": "0.10.2"}, 1, False, False),
]
NAMES = [f"{release}{'-' + '-'.join(overrides.values()) if overrides else ''}" for release, overrides, *_ in RELEASES]


@each(("release", "overrides", "magic", "had", "works"), RELEASES, strided=True)
@each("mode", ["off", "requested", "required"])
async def test_idempotence_mode_with_each_release(
    release: str, overrides: dict[str, str], magic: int, had: bool, works: bool, mode: str, tmp_path: Path
) -> None:
    async with running(tmp_path, release=release, overrides=overrides) as broker:
        await broker.topic("t", 2)
        async with producing(broker, enable_idempotence=mode) as producer:
            sent = [await producer.send("t", value, key) for key, value in MANY]
            if mode == "required" and not works:
                for future in sent:
                    with pytest.raises(errors.IdempotenceUnsupported, match="'t'") as raised:
                        await future
                    assert raised.value.topic == "t" and raised.value.message_format == magic
                assert not records_of(broker, "t", 0) and not records_of(broker, "t", 1)
                return
            done = await asyncio.gather(*sent)
        stored = {(p, r.offset): (r.key, r.value) for p in (0, 1) for r in records_of(broker, "t", p)}
        assert [stored[m.partition, m.offset] for m in done] == MANY
        assert all(m.partition == java_partition(key, 2) for m, (key, _) in zip(done, MANY, strict=True))
        now = broker.clock.now_ms()
        assert {m.timestamp_ms for m in done} == ({now} if release != "0.9" else {-1})
        assert {header.magic for header in headers_of(broker, "t")} == {magic}
        assert idempotent(broker, "t") == (had if mode == "requested" else mode == "required")


@pytest.mark.parametrize("acks", [0, 1, "all", -1])
async def test_acks_are_sent_as_configured(acks: Any, tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        async with producing(broker, acks=acks) as producer:
            done = [await producer.send_and_wait("t", b"%d" % n) for n in range(5)]
        known = acks != 0
        expected = [
            RecordMetadata("t", 0, n if known else -1, broker.clock.now_ms() if known else -1) for n in range(5)
        ]
        assert (
            done == expected and {m.has_offset for m in done} == {known} and {m.has_timestamp for m in done} == {known}
        )
        await broker.settle()
        assert [r.value for r in records_of(broker, "t")] == [b"0", b"1", b"2", b"3", b"4"]
        assert idempotent(broker, "t") == known


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("release", ["0.10.2", "ottla"])
async def test_codecs_and_headers_round_trip(codec: str | None, release: str, tmp_path: Path) -> None:
    headers = [("a", b"1"), ("b", None), ("a", b"")] if release == "ottla" else []
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t")
        async with producing(broker, compression_type=codec, batch_size=100_000) as producer:
            sent = [await producer.send("t", value * 20, key, headers) for key, value in MANY]
            if codec == "zstd" and release == "0.10.2":
                with pytest.raises(errors.UnsupportedVersion, match="zstd"):
                    await sent[0]
                return
            await asyncio.gather(*sent)
        found = records_of(broker, "t")
        assert [(r.key, r.value) for r in found] == [(key, value * 20) for key, value in MANY]
        assert {tuple(r.headers) for r in found} == {tuple(batch.Header(*h) for h in headers)}
        assert {header.codec for header in headers_of(broker, "t")} == {
            [None, "gzip", "snappy", "lz4", "zstd"].index(codec)
        }


async def test_headers_with_old_formats_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path, release="0.10.2") as broker:
        await broker.topic("t")
        async with producing(broker) as producer:
            with pytest.raises(errors.UnsupportedVersion, match="headers"):
                await producer.send_and_wait("t", b"v", headers=[("a", b"1")])
            assert (await producer.send_and_wait("t", b"v")).offset == 0


async def test_zstd_before_produce_v7_is_refused_without_a_gap(tmp_path: Path) -> None:
    async with running(tmp_path, release="2.0") as broker:
        await broker.topic("t")
        async with producing(broker, compression_type="zstd") as producer:
            for _ in range(3):
                with pytest.raises(errors.UnsupportedVersion, match="zstd"):
                    await producer.send_and_wait("t", b"v")


@pytest.mark.parametrize("mode", ["requested", "required"])
async def test_topic_of_unknown_format_is_retried_after_error_43(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without permission to read configs, and no Ottla broker: batches are sent, refused, and sent without idempotence,
    in order.
    """
    monkeypatch.setattr("ottla.client.producer.idempotence._format_in", lambda response: None)
    overrides = {"log.message.format.version": "0.10.2"}
    async with running(tmp_path, release="2.3", overrides=overrides) as broker:
        await broker.topic("t")
        async with producing(broker, enable_idempotence=mode, batch_size=100) as producer:
            sent = [await producer.send("t", value) for _, value in MANY]
            if mode == "required":
                for future in sent:
                    with pytest.raises(errors.IdempotenceUnsupported):
                        await future
                with pytest.raises(errors.IdempotenceUnsupported):
                    await producer.send_and_wait("t", b"")
            else:
                assert [m.offset for m in await asyncio.gather(*sent)] == list(range(300))
                assert [r.value for r in records_of(broker, "t")] == [value for _, value in MANY]


async def test_mode_is_decided_per_topic(tmp_path: Path) -> None:
    async with running(tmp_path, release="2.8") as broker:
        await broker.topic("new")
        await broker.topic("old", configs={"message.format.version": "0.10.2"})
        async with producing(broker) as producer:
            for topic in ("new", "old", "new", "old"):
                await producer.send_and_wait(topic, b"v")
        assert idempotent(broker, "new") and not idempotent(broker, "old")


@pytest.mark.parametrize(("given", "meant"), [(True, "required"), (False, "off"), ("true", "required")])
def test_idempotence_true_and_false_are_accepted_with_one_warning(given: Any, meant: str) -> None:
    with pytest.warns(DeprecationWarning, match=meant) as caught:
        assert Producer(enable_idempotence=given).options.enable_idempotence == meant
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Producer(enable_idempotence=meant)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"acks": 0, "enable_idempotence": "required"}, "acks=0"),
        ({"enable_idempotence": "maybe"}, "requested"),
        ({"acks": 2}, "acks"),
        ({"acks": True}, "acks"),
        ({"compression_type": "brotli"}, "brotli"),
        ({"linger_ms": -1}, "linger"),
        ({"compression_type": "gzip", "compression_level": 10}, "compression.level"),
        ({"compression_type": "snappy", "compression_level": 1}, "compression.level"),
        ({"lingerms": 1}, "linger.ms"),
        ({"max_in_flight_requests_per_connection": 0}, "max.in.flight"),
        ({"delivery_timeout_ms": 10}, "request.timeout.ms"),
        ({"partitioner": "dice"}, "dice"),
    ],
)
def test_invalid_options_raise_config_error(options: dict[str, Any], text: str) -> None:
    with pytest.raises(errors.ConfigError, match=text):
        Producer(**options)


def test_options_take_kafkas_names() -> None:
    config = {
        "bootstrap.servers": "a:1,b:2",
        "acks": "0",
        "enable.idempotence": "requested",
        "linger.ms": "5",
        "max.in.flight.requests.per.connection": "20",
        "compression.type": "lz4",
        "partitioner": "consistent_random",
    }
    options = Producer.from_config(config).options
    assert (options.addresses(), options.acks, options.enable_idempotence) == ([("a", 1), ("b", 2)], 0, "off")
    assert (options.linger_ms, options.max_in_flight_requests_per_connection) == (5, 20)
    assert options.compression_type == "lz4"
    assert Producer().options.enable_idempotence == "requested"


async def test_partitioners_serializers_and_explicit_partitions(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", 3)
        options: dict[str, Any] = {"partitioner": "round_robin", "value_serializer": str.encode, "random": Random(1)}
        async with producing(broker, **options) as producer:
            chosen = [(await producer.send_and_wait("t", "v")).partition for _ in range(6)]
            assert chosen == [0, 1, 2, 0, 1, 2]
            assert (await producer.send_and_wait("t", "v", partition=1)).partition == 1
            with pytest.raises(errors.KafkaError, match="no partition 3"):
                await producer.send("t", "v", partition=3)
            assert [p.index for p in await producer.partitions_for("t")] == [0, 1, 2]


async def test_invalid_record_raises_at_send(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        async with producing(broker) as producer:
            wrongs: tuple[dict[str, Any], ...] = (
                {"value": "text"},
                {"key": 1},
                {"headers": [(b"k", b"v")]},
                {"headers": [("k", "v")]},
            )
            for wrong in wrongs:
                with pytest.raises(TypeError):
                    await producer.send("t", **wrong)
            with pytest.raises(errors.ConfigError):
                await producer.send("t", b"v", timestamp_ms=-5)
            done = await producer.send_and_wait("t", bytearray(b"v"), memoryview(b"k"), {"h": b"1"}, timestamp_ms=77)
            assert done.timestamp_ms == 77
        (record,) = records_of(broker, "t")
        assert record == batch.Record(0, 77, b"k", b"v", (batch.Header("h", b"1"),))


async def test_missing_topic_raises_no_such_topic(tmp_path: Path) -> None:
    overrides = {"auto.create.topics.enable": "false"}
    async with running(tmp_path, overrides=overrides) as broker, producing(broker, max_block_ms=1000) as producer:
        with pytest.raises(errors.NoSuchTopic):
            await producer.send("nowhere", b"v")


async def test_topic_is_created_if_the_broker_does_so(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, producing(broker) as producer:
        assert (await producer.send_and_wait("fresh", b"v")).offset == 0


async def test_oversized_record_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", configs={"max.message.bytes": "1000"})
        async with producing(broker, max_request_size=5000, buffer_memory=4000) as producer:
            for size in (5000, 4000):
                with pytest.raises(errors.MessageTooLarge):
                    await producer.send("t", bytes(size))
            with pytest.raises(errors.MessageTooLarge, match="'t'"):
                await producer.send_and_wait("t", bytes(2000))
            assert (await producer.send_and_wait("t", b"small")).offset == 0
            assert producer._sender and producer._sender.accumulator.free == 4000


@pytest.mark.parametrize("mode", ["off", "required"])
async def test_oversized_batch_is_split(mode: str, tmp_path: Path) -> None:
    """For a broker that does not return the limit of the topic."""
    async with running(tmp_path, release="2.8") as broker:
        await broker.topic("t", configs={"max.message.bytes": "1000"})
        async with producing(broker, enable_idempotence=mode, max_in_flight_requests_per_connection=1) as producer:
            sent = [await producer.send("t", b"%0200d" % n) for n in range(100)]
            await producer.flush()
            assert [(await future).offset for future in sent] == list(range(100))
        assert [r.value for r in records_of(broker, "t")] == [b"%0200d" % n for n in range(100)]
        assert max(header.size_bytes for header in headers_of(broker, "t")) <= 1000


async def test_limit_of_the_topic_bounds_batches_of_ottla(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", configs={"max.message.bytes": "1000"})
        async with producing(broker) as producer:
            await asyncio.gather(*[await producer.send("t", bytes(200)) for n in range(40)])
        assert {header.record_count for header in headers_of(broker, "t")} == {4}


async def test_refused_record_fails_alone(tmp_path: Path) -> None:
    """KIP-467: the response identifies the invalid record; the following records are written."""
    async with running(tmp_path) as broker:
        await broker.topic("t", configs={"cleanup.policy": "compact"})
        async with producing(broker) as producer:
            fine = await producer.send("t", b"v", b"k")
            wrong = await producer.send("t", b"v")
            with pytest.raises(errors.KafkaError) as raised:
                await wrong
            assert raised.value.code == ErrorCode.INVALID_RECORD
            with pytest.raises(errors.KafkaError, match="another record"):
                await fine
            assert (await producer.send_and_wait("t", b"v", b"k")).offset == 0
            assert (await producer.send_and_wait("t", b"w", b"k")).offset == 1
        assert {h.producer_epoch for h in headers_of(broker, "t")} == {1}  # a new start after the gap


async def test_linger_collects_records_and_flush_does_not_wait_for_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        async with producing(broker, linger_ms=100_000, delivery_timeout_ms=200_000) as producer:
            first = await producer.send("t", b"1")
            await asyncio.sleep(0.02)
            second = await producer.send("t", b"2")
            assert not first.done()
            await producer.flush()
            assert (first.result().offset, second.result().offset) == (0, 1)
            last = await producer.send("t", b"3")
        assert last.result().offset == 2  # stop sends waiting records
        assert [h.record_count for h in headers_of(broker, "t")] == [2, 1]


async def test_full_buffer_blocks_and_then_raises(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        options: dict[str, Any] = {
            "buffer_memory": 3000,
            "max_block_ms": 1000,
            "max_in_flight_requests_per_connection": 1,
        }
        async with producing(broker, **options) as producer:
            await producer.send_and_wait("t", b"")
            sent = [await producer.send("t", bytes(900)) for _ in range(30)]  # waits for memory again and again
            assert len(await asyncio.gather(*sent)) == 30
            await broker.running.stop()
            for _ in range(3):
                await producer.send("t", bytes(900))
            with pytest.raises(errors.BufferFull):
                await producer.send("t", bytes(900))
            await producer.stop(timeout_s=0.01)


async def test_cancelled_wait_takes_no_memory(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        async with producing(broker, buffer_memory=1000, linger_ms=60_000) as producer:
            await producer.partitions_for("t")
            kept = await producer.send("t", bytes(800))
            waiting = [asyncio.create_task(producer.send("t", bytes(300))) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            kept.cancel()  # changes nothing: the record is sent
            futures = await asyncio.gather(*waiting, return_exceptions=True)
            assert isinstance(futures[0], asyncio.CancelledError)
            await producer.flush()
            assert producer._sender and producer._sender.accumulator.free == 1000
        assert [len(r.value or b"") for r in records_of(broker, "t")] == [800, 300, 300]


async def test_stop_with_undeliverable_records_ends(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        producer = Producer(f"127.0.0.1:{broker.ports[0]}", now_ms=broker.clock.now_ms)
        with pytest.raises(errors.ClientClosed):
            await producer.send("t", b"v")
        await producer.start()
        await producer.send_and_wait("t", b"v")
        await broker.running.stop()
        future = await producer.send("t", b"v")
        await producer.stop(timeout_s=0.02)
        with pytest.raises(errors.ClientClosed):
            await future
        with pytest.raises(errors.ClientClosed):
            await producer.send("t", b"v")
        await producer.stop()


async def test_cancelled_stop_still_closes(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        producer = Producer(f"127.0.0.1:{broker.ports[0]}", now_ms=broker.clock.now_ms)
        await producer.start()
        await producer.send_and_wait("t", b"v")
        await broker.running.stop()
        future = await producer.send("t", b"v")
        stopping = asyncio.create_task(producer.stop())
        await asyncio.sleep(0.01)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        with pytest.raises(errors.ClientClosed):
            await future
        await producer.stop()


async def test_last_committed_identifies_records_of_this_producer(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", 2)
        async with producing(broker) as producer, producing(broker) as other:
            assert await producer.last_committed("t", 0) is None
            for n in range(40):
                await producer.send("t", b"ours %d" % n, partition=0)
            await producer.flush()
            for n in range(30):
                await other.send_and_wait("t", b"theirs %d" % n, partition=0)
            found = await producer.last_committed("t", 0)
            assert found is not None
            assert (found.offset, found.sequence, found.ordinal, found.value) == (39, 39, 39, b"ours 39")
            assert await producer.last_committed("t", 1) is None
            broker.log("t").delete_records_before(45)
            assert await producer.last_committed("t", 0) is None


async def test_more_than_five_in_flight_only_if_the_log_is_searched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for release, most in (("ottla", 20), ("3.9", 5)):
        folder = tmp_path / release
        folder.mkdir()
        async with running(folder, release=release) as broker:
            await broker.topic("t")
            async with producing(broker, max_in_flight_requests_per_connection=20, batch_size=0) as producer:
                await producer.send_and_wait("t", b"")
                sender = producer._sender
                assert sender is not None
                peak, send = 0, sender._send

                def sending(node: Any, *rest: Any, send: Any = send) -> None:
                    nonlocal peak
                    send(node, *rest)
                    peak = max(peak, node.in_flight)

                sender._send = sending  # type: ignore[method-assign]
                await asyncio.gather(*(producer.send("t", b"v") for _ in range(50)))
                await producer.flush()
                assert peak == most
    assert len([record for record in caplog.records if "limited to 5" in record.message]) == 1
