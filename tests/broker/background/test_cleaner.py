"""The log cleaner in a real broker with a manual clock: which logs it cleans, and what delays or stops a pass."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.background.cleaner_process import CleanerProcess, throttle
from ottla.broker.clock import ManualClock
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.records import batch, formats, legacy
from ottla.protocol.records.compression import Codec
from ottla.storage.check.directory import Verification
from ottla_testing.broker.harness import Broker, running
from ottla_testing.patience import PATIENCE_S
from ottla_testing.protocol.batches import batch_of

T0 = 1_700_000_000_000
BACKOFF_MS = 15_000
Rows = list[tuple[int, bytes | None, bytes | None]]


def write(broker: Broker, *pairs: tuple[bytes, bytes | None], topic: str = "t", **more: Any) -> None:
    """A batch for each (key, value), each in a segment of its own."""
    log = broker.log(topic)
    for key, value in pairs:
        broker.clock.advance(2)
        built = batch_of([batch.Record(0, broker.clock.now_ms(), key, value)], **more)
        log.append(built, now_ms=broker.clock.now_ms())


def rows(broker: Broker, topic: str = "t") -> Rows:
    """(offset, key, value) of all records that a consumer reads."""
    log, found, offset = broker.log(topic), [], broker.log(topic).log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20).records
        if not len(data):
            break
        for position, _ in formats.headers(data):
            records = formats.records(data, position)
            found += [(record.offset, record.key, record.value) for record in records if record.offset >= offset]
        offset = [header for _, header in formats.headers(data)][-1].next_offset
    return found


async def make(broker: Broker, topic: str = "t", **configs: str) -> None:
    given = {"segment.ms": "1", "cleanup.policy": "compact"}
    given.update((key.replace("_", "."), value) for key, value in configs.items())
    await broker.topic(topic, configs=given)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


def clean_up_to(folder: Path, topic: str = "t") -> int | None:
    """The cleaner offset in the checkpoint."""
    path = folder / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return next((int(line.split()[2]) for line in lines if line.split()[0] == topic), None)


def names(folder: Path, ending: str, topic: str = "t") -> list[str]:
    return sorted(path.name for path in (folder / f"{topic}-0").glob(f"*{ending}"))


async def idle(broker: Broker) -> None:
    """Waits until no pass is under way."""
    await until(lambda: broker.state._cleaner is not None and broker.state._cleaner._pass is None)


async def cleaned(broker: Broker, clock: ManualClock, folder: Path, offset: int, topic: str = "t") -> None:
    clock.advance(BACKOFF_MS)
    await until(lambda: clean_up_to(folder, topic) == offset)
    await idle(broker)


SIX = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3" * 40), (b"c", b"4"), (b"b", None), (b"a", b"6")]


async def test_cleaning_keeps_the_last_record_of_each_key_at_its_offset(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    async with running(tmp_path, clock=clock) as broker:
        await make(broker)
        write(broker, *SIX, *[(b"end", b"x" * 90)] * 2)
        before = broker.log("t").segments[-1].base_offset
        assert before == 7
        await cleaned(broker, clock, tmp_path, before)
        expected = [(3, b"c", b"4"), (4, b"b", None), (5, b"a", b"6"), (6, b"end", b"x" * 90), (7, b"end", b"x" * 90)]
        assert rows(broker) == expected  # the last of `end` is in the active segment
        log = broker.log("t")
        assert (log.log_start_offset, log.log_end_offset) == (0, 8)
        assert names(tmp_path, ".log.deleted") and len(log.segments) == 2
        clock.advance(60_000)
        assert names(tmp_path, ".deleted") == []
        # The tombstone is removed after its delete horizon, in a pass with new records.
        write(broker, *[(b"end", b"y" * 90)] * 3)
        clock.advance(86_400_000)
        await until(lambda: (4, b"b", None) not in rows(broker))
        await idle(broker)
        assert [row[0] for row in rows(broker)] == [3, 5, 9, 10]
    async with running(tmp_path, clock=clock) as broker:
        assert [row[0] for row in rows(broker)] == [3, 5, 9, 10]
    assert [found for found in Verification(str(tmp_path)).findings() if found.wrong] == []


async def test_cleaning_leaves_logs_that_are_not_due(tmp_path: Path) -> None:
    """Logs that are not dirty enough, too young, or not compacted are left; overdue records are cleaned in any case."""
    clock = ManualClock(T0)
    pairs = [(b"a", b"1" * 90), (b"a", b"2" * 90), (b"a", b"3" * 90)]
    async with running(tmp_path, clock=clock) as broker:
        await make(broker, "clean", min_cleanable_dirty_ratio="1.0")
        await make(broker, "young", min_compaction_lag_ms="1000000")
        await make(broker, "plain", cleanup_policy="delete")
        await make(broker, "overdue", min_cleanable_dirty_ratio="1.0", max_compaction_lag_ms="20000")
        for topic in ("clean", "young", "plain", "overdue"):
            write(broker, *pairs, topic=topic)
        clock.advance(BACKOFF_MS)
        await idle(broker)
        assert not (tmp_path / "cleaner-offset-checkpoint").exists()
        await cleaned(broker, clock, tmp_path, 2, "overdue")
        assert [len(rows(broker, topic)) for topic in ("clean", "young", "plain", "overdue")] == [3, 3, 3, 2]
        clock.advance(1_000_000)
        await until(lambda: clean_up_to(tmp_path, "young") == 2)
        await idle(broker)
        assert [len(rows(broker, topic)) for topic in ("clean", "young", "plain")] == [3, 2, 3]


async def test_cleaner_turned_off_makes_no_pass(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    async with running(tmp_path, clock=clock, overrides={"log.cleaner.enable": "false"}) as broker:
        await make(broker)
        write(broker, *SIX)
        clock.advance(10 * BACKOFF_MS)
        assert broker.state._cleaner is None and len(rows(broker)) == 6


SLOW = {"log.cleaner.io.max.bytes.per.second": "1"}


def process_of(broker: Broker) -> int | None:
    """The id of the process of the pass under way."""
    runner = broker.state._cleaner and broker.state._cleaner._runner
    assert runner is None or isinstance(runner, CleanerProcess)
    return runner._process.pid if runner is not None and runner._process is not None else None


async def slow(broker: Broker, clock: ManualClock) -> None:
    """Fills a topic so that its pass writes one group and then sleeps for minutes."""
    await make(broker)
    for number in range(4):
        write(broker, (b"%d" % (number % 2), b"x" * 1_000_000))
    clock.advance(BACKOFF_MS)


async def test_topic_recreated_during_a_pass_is_left_alone(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    async with running(tmp_path, clock=clock, overrides=SLOW) as broker:
        await slow(broker, clock)
        assert broker.state._cleaner is not None and broker.state._cleaner._pass is not None
        client = await broker.client()
        response = await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        assert response.responses[0].error_code == 0
        await make(broker)
        write(broker, *SIX)
        await idle(broker)
        assert [row[0] for row in rows(broker)] == list(range(6)) and names(tmp_path, ".cleaned") == []
        assert clean_up_to(tmp_path) is None


async def test_broker_stop_during_a_pass_leaves_the_log_intact(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    async with running(tmp_path, clock=clock, overrides=SLOW) as broker:
        await slow(broker, clock)
        await until(lambda: process_of(broker) is not None)
        expected = rows(broker)
    assert names(tmp_path, ".cleaned") == [] and (tmp_path / ".kafka_cleanshutdown").exists()
    async with running(tmp_path, clock=clock) as broker:
        assert rows(broker) == expected


async def test_killed_cleaner_process_leaves_the_log_intact(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    async with running(tmp_path, clock=clock) as broker:
        broker.state.config.set_dynamic("log.cleaner.io.max.bytes.per.second", "1")
        await slow(broker, clock)
        await until(lambda: process_of(broker) is not None)
        os.kill(process_of(broker) or 0, signal.SIGKILL)
        await idle(broker)
        assert len(rows(broker)) == 4 and names(tmp_path, ".cleaned") == []
        broker.state.config.set_dynamic("log.cleaner.io.max.bytes.per.second", None)
        await cleaned(broker, clock, tmp_path, 3)
        assert [row[0] for row in rows(broker)] == [1, 2, 3]


async def test_damaged_log_is_skipped_and_others_are_cleaned(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    pairs = [(b"a", b"1" * 90), (b"a", b"2" * 90), (b"a", b"3" * 90)]
    async with running(tmp_path, clock=clock) as broker:
        await make(broker, "bad")
        await make(broker, "good")
        for topic in ("bad", "good"):
            write(broker, *pairs, topic=topic)
        path = tmp_path / "bad-0" / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        await cleaned(broker, clock, tmp_path, 2, "good")
        clock.advance(BACKOFF_MS)
        await idle(broker)
        assert len(rows(broker, "good")) == 2 and broker.log("bad").log_end_offset == 3
        assert path.read_bytes() == data and names(tmp_path, ".cleaned", "bad") == []


async def test_log_with_a_record_above_a_lowered_limit_is_skipped(tmp_path: Path) -> None:
    """As in Kafka 4.4, which limits each record of a compressed batch that it reads."""
    clock = ManualClock(T0)
    async with running(tmp_path, clock=clock, release="4.4") as broker:
        await make(broker, "small")
        await make(broker, "large")
        await make(broker, "plain")
        for topic, size, codec in (("small", 80, Codec.GZIP), ("large", 90, Codec.GZIP), ("plain", 90, Codec.NONE)):
            write(broker, *[(b"a", bytes([number]) * size) for number in range(4)], topic=topic, codec=codec)
            found = broker.state.topics.get(topic)
            assert found is not None
            limit = {"max.decompressed.message.bytes": "90"}
            broker.state.topics.set_configs(found, found.config.overrides | limit, clock.now_ms())
        await cleaned(broker, clock, tmp_path, 3, "small")
        await cleaned(broker, clock, tmp_path, 3, "plain")
        clock.advance(BACKOFF_MS)
        await idle(broker)
        assert [len(rows(broker, topic)) for topic in ("small", "plain", "large")] == [2, 2, 4]
        assert not clean_up_to(tmp_path, "large") and not names(tmp_path, ".cleaned", "large")


@pytest.mark.parametrize(("release", "magics"), [("2.8", {0}), ("3.9", {0}), ("4.3", {2}), ("ottla", {2})])
async def test_old_formats_are_cleaned_as_in_each_release(release: str, magics: set[int], tmp_path: Path) -> None:
    clock = ManualClock(T0)
    async with running(tmp_path, clock=clock, release=release) as broker:
        await make(broker)
    folder = tmp_path / "t-0"
    for path in folder.glob("0*"):
        path.unlink()
    for number in range(3):
        records = [batch.Record(number, -1, b"k%d" % (number % 2), b"%d" % number)]
        (folder / f"{number:020d}.log").write_bytes(legacy.build(records, magic=0))
    (tmp_path / ".kafka_cleanshutdown").unlink()
    async with running(tmp_path, clock=clock, release=release) as broker:
        assert len(rows(broker)) == 3
        await cleaned(broker, clock, tmp_path, 2)
        assert [(offset, key) for offset, key, _ in rows(broker)] == [(0, b"k0"), (1, b"k1"), (2, b"k0")]
        data = (folder / f"{0:020d}.log").read_bytes()
        assert {header.magic for _, header in formats.headers(data)} == magics


async def test_producer_continues_after_all_its_records_were_cleaned(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    async with running(tmp_path, clock=clock) as broker:
        await make(broker)
        for sequence in range(3):
            write(broker, (b"a", b"x" * 90), producer_id=5, producer_epoch=0, base_sequence=sequence)
        write(broker, (b"a", b"y" * 90), (b"a", b"z" * 90))
        await cleaned(broker, clock, tmp_path, 4)
        assert [row[0] for row in rows(broker)] == [3, 4]
    for path in [*(tmp_path / "t-0").glob("*.snapshot"), tmp_path / ".kafka_cleanshutdown"]:
        path.unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    async with running(tmp_path, clock=clock) as broker:
        log = broker.log("t")
        again = batch.build(
            [batch.Record(0, T0, b"a", b"x" * 90)], batch.BatchFields(producer_id=5, producer_epoch=0, base_sequence=2)
        )
        assert log.append(again, now_ms=T0).duplicate
        write(broker, (b"a", b"new"), producer_id=5, producer_epoch=0, base_sequence=3)
        assert log.log_end_offset == 6


async def test_retention_waits_for_a_pass(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    async with running(tmp_path, clock=clock) as broker:
        await make(broker, cleanup_policy="compact,delete", retention_ms="1000")
        write(broker, (b"a", b"1" * 90), (b"b", b"2" * 90), (b"c", b"3" * 90))
        log = broker.log("t")
        clock.advance(BACKOFF_MS)
        assert broker.state._cleaner is not None and broker.state._cleaner.is_cleaning(log)
        clock.advance(300_000 - BACKOFF_MS)
        await broker.state.durability.idle()
        assert log.log_start_offset == 0
        await until(lambda: clean_up_to(tmp_path) == 2)
        await idle(broker)
        clock.advance(300_000)
        await broker.state.durability.idle()
        assert log.log_start_offset == 3


def test_throttle_sleeps_for_the_time_of_its_bytes() -> None:
    now, waited = [100.0], []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        now[0] += seconds

    on_progress = throttle(1000, lambda: now[0], sleep)
    on_progress(500)
    now[0] += 2.0
    on_progress(500)
    on_progress(2000)
    assert waited == [pytest.approx(0.5), pytest.approx(0.5)]
