"""Retention in a real broker with a manual clock: which segments are deleted, and when their files are."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.clock import ManualClock
from ottla.protocol.records import batch
from ottla_testing.broker.harness import Broker, running

T0 = 1_700_000_000_000
CHECK_MS = 300_000
DELAY_MS = 60_000


def write(broker: Broker, *times_ms: int, topic: str = "t", size: int = 100) -> None:
    """Writes a batch of one record at each time; each in its own segment if segments are small."""
    for time_ms in times_ms:
        log = broker.log(topic)
        log.append(batch.build([batch.Record(0, time_ms, b"k", b"x" * size, ())]), now_ms=broker.clock.now_ms())


def names(folder: Path, suffix: str = ".log", topic: str = "t") -> list[int]:
    """The base offsets of the files with a suffix."""
    return sorted(int(path.name[:20]) for path in (folder / f"{topic}-0").glob(f"[0-9]*{suffix}"))


async def make(broker: Broker, policy: str = "delete", **configs: str) -> None:
    given = {"segment.ms": "1", "cleanup.policy": policy}
    given.update((key.replace("_", "."), value) for key, value in configs.items())
    await broker.topic("t", configs=given)


async def passed(broker: Broker, ms: int) -> None:
    """Advances the clock and lets the effects settle."""
    broker.clock.advance(ms)
    await broker.state.durability.idle()


async def test_retention_by_time_removes_files_a_minute_later(tmp_path: Path) -> None:
    """The newest timestamp of a segment decides, and has to be older than the limit; a young active segment stays."""
    clock = ManualClock(T0)
    async with running(tmp_path, clock=clock) as broker:
        await make(broker, retention_ms=str(CHECK_MS))
        write(broker, T0 - 2, T0, T0 + 2)
        log = broker.log("t")
        assert names(tmp_path) == [0, 1, 2]
        oldest = log.read(0, 1 << 20).records
        await passed(broker, CHECK_MS - 1)
        assert log.log_start_offset == 0
        await passed(broker, 1)
        assert (log.log_start_offset, log.log_end_offset) == (1, 3)
        assert (names(tmp_path), names(tmp_path, ".log.deleted")) == ([1, 2], [0])
        await passed(broker, DELAY_MS - 1)
        assert names(tmp_path, ".log.deleted") == names(tmp_path, ".index.deleted") == [0]
        await passed(broker, 1)
        assert not list((tmp_path / "t-0").glob("*.deleted"))
        assert next(iter(batch.records(oldest))).timestamp == T0 - 2
        await passed(broker, CHECK_MS - DELAY_MS)
        # Everything is old now: a new, empty segment replaces the active one, and stays.
        assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (3, 3, 0)
        await passed(broker, 10 * CHECK_MS)
        assert names(tmp_path) == [3]
        write(broker, clock.now_ms())
        assert (log.log_start_offset, log.log_end_offset) == (3, 4)
    async with running(tmp_path, clock=clock) as broker:
        assert (broker.log("t").log_start_offset, broker.log("t").log_end_offset) == (3, 4)


async def test_retention_by_size_keeps_at_least_the_limit(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    async with running(tmp_path, clock=clock) as broker:
        await make(broker, retention_ms="-1", retention_bytes="350")
        write(broker, *range(T0, T0 + 50, 10))
        log = broker.log("t")
        one = log.size_bytes // 5
        assert 350 // one == 2 and 350 % one
        await passed(broker, CHECK_MS)
        assert log.log_start_offset == 2 and log.size_bytes == 3 * one


@pytest.mark.parametrize(
    ("policy", "release", "start"),
    [("delete", "ottla", 5), ("compact,delete", "ottla", 5), ("compact", "ottla", 0), ("", "4.3", 0)],
)
async def test_retention_follows_the_cleanup_policy(policy: str, release: str, start: int, tmp_path: Path) -> None:
    """A policy without delete ignores time and size; the log start offset applies under all policies."""
    clock = ManualClock(T0)
    overrides = {"log.cleaner.enable": "false"}
    async with running(tmp_path, clock=clock, release=release, overrides=overrides) as broker:
        await make(broker, policy, retention_ms="1000", retention_bytes="0")
        write(broker, *range(T0, T0 + 50, 10))
        log = broker.log("t")
        await passed(broker, CHECK_MS)
        assert log.log_start_offset == start
        if start == 0:
            log.delete_records_before(3)
            await passed(broker, CHECK_MS)
            assert names(tmp_path) == [3, 4]


async def test_future_timestamp_keeps_its_segment_and_later_ones(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    async with running(tmp_path, clock=clock) as broker:
        await make(broker, retention_ms="1000", message_timestamp_after_max_ms="1000000000")
        write(broker, T0, T0 + 900_000_000, T0 + 900_000_002)
        await passed(broker, CHECK_MS)
        assert names(tmp_path) == [1, 2] and broker.log("t").log_start_offset == 1


async def test_deleted_records_lose_their_files_at_the_next_pass(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    async with running(tmp_path, clock=clock) as broker:
        await make(broker, retention_ms="-1", file_delete_delay_ms="7")
        write(broker, *range(T0, T0 + 40, 10))
        log = broker.log("t")
        log.delete_records_before(2)
        assert names(tmp_path) == [0, 1, 2, 3]
        await passed(broker, CHECK_MS)
        assert names(tmp_path) == [2, 3] and names(tmp_path, ".log.deleted") == [0, 1]
        await passed(broker, 7)
        assert names(tmp_path, ".log.deleted") == []
        log.delete_records_before(4)  # the newest one stays until another segment follows
        await passed(broker, CHECK_MS)
        assert names(tmp_path) == [3] and log.log_start_offset == 4


async def test_broker_configs_apply_at_once_and_leftovers_go_at_the_next_start(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    overrides = {"log.retention.check.interval.ms": "10", "log.retention.minutes": "1"}
    async with running(tmp_path, clock=clock, overrides=overrides) as broker:
        await make(broker)
        write(broker, T0, T0 + 1000)
        await passed(broker, 60_000)
        assert names(tmp_path) == [0, 1]
        await passed(broker, 10)
        assert names(tmp_path) == [1] and names(tmp_path, ".log.deleted") == [0]
    assert names(tmp_path, ".log.deleted") == [0]
    async with running(tmp_path, clock=clock, overrides=overrides):
        assert names(tmp_path, ".log.deleted") == []


async def test_folder_of_a_deleted_topic_is_removed_after_the_delay(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    async with running(tmp_path, clock=clock, overrides={"log.segment.delete.delay.ms": "5000"}) as broker:
        for when in range(2):
            await make(broker)
            write(broker, T0)
            broker.state.topics.delete(broker.state.topics.named("t"), clock.now_ms())
            assert len(list(tmp_path.glob("t-0.*-delete"))) == 1 and not (tmp_path / "t-0").exists()
            if when == 0:
                await passed(broker, 4999)
                assert list(tmp_path.glob("*-delete"))
                await passed(broker, 1)
                assert not list(tmp_path.glob("*-delete"))
    assert list(tmp_path.glob("*-delete"))
    async with running(tmp_path, clock=clock):
        assert not list(tmp_path.glob("*-delete"))


ROLLS: list[tuple[dict[str, str], list[int]]] = [
    ({"cleanup.policy": "compact", "max.compaction.lag.ms": "100"}, [0, 2]),
    ({"cleanup.policy": "compact,delete", "max.compaction.lag.ms": "100"}, [0, 2]),
    ({"cleanup.policy": "delete", "max.compaction.lag.ms": "100"}, [0]),
    ({"cleanup.policy": "compact"}, [0]),
    ({"cleanup.policy": "delete", "segment.ms": "100"}, [0, 2]),
    ({"cleanup.policy": "delete", "segment.ms": "100", "segment.jitter.ms": "5000"}, [0, 1, 2, 3]),
    # The jitter is bounded by segment.ms, not by the shorter lag, so the difference may be 0.
    (
        {
            "cleanup.policy": "compact",
            "max.compaction.lag.ms": "100",
            "segment.jitter.ms": "5000",
            "segment.ms": "10000",
        },
        [0, 1, 2, 3],
    ),
]


async def test_segments_roll_by_the_topics_time(tmp_path: Path) -> None:
    """The largest jitter is used; a compacted topic rolls early enough for its records to be compacted (KIP-354)."""
    async with running(tmp_path, clock=ManualClock(T0)) as broker:
        for number, (configs, rolled_at) in enumerate(ROLLS):
            await broker.topic(f"t{number}", configs=configs)
            log = broker.log(f"t{number}")
            log._pick = lambda bound: bound - 1
            log._active.jitter_ms = log._jitter()
            write(broker, T0 - 40, T0 + 60, T0 + 62, T0 + 64, topic=f"t{number}")
            assert [segment.base_offset for segment in log._segments] == rolled_at, configs
