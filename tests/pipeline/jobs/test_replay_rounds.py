"""Replays without Spark and without waiting: sleeping advances the clock."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.testing.embedded import Embedded
from ottla.client.producer.partitioners import java_partition
from ottla.pipeline.backend import OffsetRange, Selection, TopicPartition
from ottla.pipeline.jobs.import_.produce import ensure, options_of
from ottla.pipeline.jobs.replay import schedule
from ottla.pipeline.jobs.replay.report import ReplayReport
from ottla.pipeline.jobs.replay.rounds import ROUND_S, Replay
from ottla.pipeline.jobs.replay.tasks import Played, ReplaySettings, Sends, Work, play, replay_part
from ottla.pipeline.offsets import parse_offsets
from ottla.pipeline.readers.files import FileBackend
from ottla.pipeline.readers.wire import WireBackend
from ottla.pipeline.sink.batches import Batch
from ottla.pipeline.sink.task_writer import Sent
from ottla.protocol.records.batch import Header, Record
from ottla_testing.pipeline.logs_samples import Folder as LogFolder
from ottla_testing.pipeline.logs_samples import split, write
from ottla_testing.pipeline.wire_world import QUICK, consumed

NOW_MS = 1_700_000_000_000
START_S = 5_000.0
HURRY = {name: value for name, value in QUICK.items() if name.startswith(("retry", "reconnect", "request"))}
OPTIONS = options_of("127.0.0.1:1", HURRY)


class Time:
    """A clock that only sleeping advances."""

    def __init__(self) -> None:
        self.now_s = START_S
        self.slept = 0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert 0 < seconds <= schedule.NAP_S
        self.slept += 1
        self.now_s += seconds


class Log:
    """The log of the senders, with the time of each record."""

    def __init__(self, time: Time) -> None:
        self.time = time
        self.found: list[tuple[float, str, int, bytes, int]] = []
        self.open = 0

    def senders(self, options: Any) -> Any:
        log = self
        log.open += 1

        class Sender:
            records = size = 0

            def __init__(self, where: tuple[str, int]) -> None:
                self.where = where

            def put(self, batch: Batch) -> None:
                assert batch.first == self.records
                self.records += batch.records
                self.size += batch.content_bytes
                for rows in batch.rows:
                    for row in rows.to_pylist():
                        log.found.append((log.time(), *self.where, row["value"], row["timestamp"]))

            def finish(self) -> Sent:
                return Sent(self.where[0], self.where[1], self.records, self.size, -1, -1)

        class Senders:
            of = staticmethod(Sender)

            def close(self) -> None:
                log.open -= 1

        return Senders()


def log_of(path: Path, records: Sequence[Record], partition: int = 0, topic: str = "t") -> None:
    """Writes a partition's folder with these records, ten per batch."""
    folder = LogFolder(path / f"{topic}-{partition}", [records[0].offset], [[]])
    folder.path.mkdir(parents=True)
    for begin in range(0, len(records), 10):
        folder.entries[-1] += split(list(records[begin : begin + 10]), 2, 0)
    write(folder)


def record(offset: int, time_ms: int, text: str = "") -> Record:
    return Record(offset, time_ms, b"k%d" % (offset % 5), f"{text}{offset}".encode(), (Header("h", b"x"),))


def ranges_of(backend: Any) -> list[OffsetRange]:
    keys = backend.partitions(Selection())
    starts, ends = backend.earliest(keys), backend.latest(keys, committed=False)
    return [OffsetRange(key.topic, key.partition, starts[key], ends[key]) for key in keys]


def replayed(
    path: Path,
    time: Time,
    log: Log,
    *,
    is_over: Callable[[], bool] = lambda: False,
    ranges: Any = None,
    **settings: Any,
) -> ReplayReport:
    backend = FileBackend([str(path)])
    report = ReplayReport(str(path), "there")

    def run(works: Sequence[Work]) -> Iterator[tuple[Work, Played]]:
        # Tasks run concurrently: each begins at the same time.
        begun_s, ended_s = time.now_s, time.now_s
        for work in works:
            time.now_s = begun_s
            again = pickle.loads(pickle.dumps(work))
            yield work, play(again, time, time.sleep, log.senders)
            ended_s = max(ended_s, time.now_s)
        time.now_s = ended_s

    sends = Sends(OPTIONS, {"t": 4, "u": 4}, ReplaySettings(**settings))
    Replay(
        backend,
        ranges if ranges is not None else ranges_of(backend),
        sends,
        run,
        time,
        time.sleep,
        is_over,
    ).all(report)
    assert log.open == 0
    return report


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def log(time: Time) -> Log:
    return Log(time)


# -- pacing


def rows_at(times_ms: Sequence[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(np.array(times_ms, np.int64))], names=["timestampMs"])


@given(st.lists(st.lists(st.integers(-1, 20_000), max_size=30), max_size=5), st.sampled_from([0.5, 1.0, 10.0, 333.3]))
def test_at_pace_no_record_early(batches: list[list[int]], speed: float) -> None:
    slices = list(schedule.at_pace(map(rows_at, batches), START_S, 5_000, speed))
    found = [int(ms) for one in slices for ms in schedule.milliseconds(one.rows)]
    assert found == [ms for batch in batches for ms in batch]
    dues = [one.due_s for one in slices for _ in range(one.rows.num_rows)]
    assert dues == sorted(dues)
    latest = 5_000
    for ms, due_s in zip(found, dues, strict=True):
        latest = max(latest, ms)
        wanted_s = START_S + (latest - 5_000) / 1000 / speed
        assert wanted_s - 1e-6 <= due_s <= wanted_s + schedule.SLICE_S + 1 / speed / 500


@given(st.lists(st.integers(0, 300), max_size=8), st.sampled_from([0.5, 3.0, 10.0, 99.0, 1234.0]))
def test_at_rate_limit_kept(sizes: list[int], rate: float) -> None:
    slices = list(schedule.at_rate([rows_at([0] * size) for size in sizes], START_S, rate))
    dues = [one.due_s for one in slices for _ in range(one.rows.num_rows)]
    assert len(dues) == sum(sizes)
    for number, due_s in enumerate(dues):
        assert START_S + number / rate - schedule.SLICE_S - 1e-6 <= due_s <= START_S + number / rate + 1e-6


# -- rounds


def test_replay_without_pace(tmp_path: Path, time: Time, log: Log) -> None:
    for partition in range(3):
        log_of(tmp_path, [record(n, NOW_MS + n) for n in range(7, 107, 2)], partition)
    report = replayed(tmp_path, time, log, to_topic="u")
    assert time.slept == 0
    assert (report.records, report.stopped) == (150, False)
    assert all(one.reached == one.end == 106 for one in report.partitions)
    for partition in range(3):
        of = [(value, ms) for _, topic, at, value, ms in log.found if (topic, at) == ("u", partition)]
        assert of == [(b"%d" % n, NOW_MS + n) for n in range(7, 107, 2)]
    assert report.bytes >= sum(len(b"k1hx" + value) for _, _, _, value, _ in log.found)
    assert json.loads(report.to_json())["offsets"] == {"t": {str(n): 106 for n in range(3)}}


def test_replay_rate_over_all_partitions(tmp_path: Path, time: Time, log: Log) -> None:
    for partition, count in enumerate((300, 100, 1)):
        log_of(tmp_path, [record(n, NOW_MS) for n in range(count)], partition)
    report = replayed(tmp_path, time, log, rate=10.0)
    assert report.records == 401 and report.rounds > 5
    assert 38 <= time() - START_S <= 42
    for second in range(0, 40, 4):
        sent = sum(at < START_S + second for at, *_ in log.found)
        assert abs(sent - 10 * second) <= 25, second
    for partition in range(3):
        values = [int(value) for _, _, at, value, _ in log.found if at == partition]
        assert values == sorted(values)


def test_replay_rate_counts_records_not_offsets(tmp_path: Path, time: Time, log: Log) -> None:
    log_of(tmp_path, [record(1000 * n, NOW_MS) for n in range(300)])
    report = replayed(tmp_path, time, log, rate=10.0)
    assert report.records == 300 and report.rounds < 30
    assert 28 <= time() - START_S <= 34


@pytest.mark.parametrize("speed", [1.0, 60.0])
def test_replay_speed(tmp_path: Path, time: Time, log: Log, speed: float) -> None:
    minute = 60_000
    log_of(tmp_path, [record(n, NOW_MS + n * minute // 10, "a") for n in range(30)], 0)
    log_of(tmp_path, [record(n, NOW_MS + 10 * minute + (-1) ** n * 500, "b") for n in range(20)], 1)
    log_of(tmp_path, [record(0, -1, "c")], 2)
    report = replayed(tmp_path, time, log, speed=speed)
    assert report.records == 51
    for at, _, _, value, ms in log.found:
        due_s = START_S + max(0, ms - NOW_MS) / 1000 / speed
        assert at >= due_s - 1e-6
        assert at <= due_s + 1.0 / speed + 2 * schedule.SLICE_S, value
    if speed == 1.0:
        assert report.rounds < 60  # most of the 120 intervals of 5 seconds have no records


def test_replay_new_timestamps_are_send_times(tmp_path: Path, time: Time, log: Log) -> None:
    log_of(tmp_path, [record(n, NOW_MS - n) for n in range(50)])
    replayed(tmp_path, time, log, rate=10.0, timestamps="new")
    assert [ms for *_, ms in log.found] == [int(at * 1000) for at, *_ in log.found]


def test_replay_partitions_by_key(tmp_path: Path, time: Time, log: Log) -> None:
    log_of(tmp_path, [record(n, NOW_MS) for n in range(50)])
    replayed(tmp_path, time, log, partitions="key")
    for partition in range(4):
        of = [int(value) for _, _, at, value, _ in log.found if at == partition]
        assert of == [n for n in range(50) if java_partition(b"k%d" % (n % 5), 4) == partition]


def test_replay_stopped_continues_from_offsets(tmp_path: Path, time: Time, log: Log) -> None:
    for partition, count in enumerate((200, 50)):
        log_of(tmp_path, [record(n, NOW_MS) for n in range(count)], partition)
    looks = iter([False, False, True])
    report = replayed(tmp_path, time, log, rate=10.0, is_over=lambda: next(looks))
    assert report.stopped and report.rounds == 2 and 90 <= report.records <= 110
    assert "stopped; continue with --from-offsets" in report.to_text()
    reached = parse_offsets(report.offsets, "--from-offsets")
    backend = FileBackend([str(tmp_path)])
    ends = backend.latest(list(reached), committed=False)
    rest = [OffsetRange(*key, reached[key], ends[key]) for key in reached]
    again = replayed(tmp_path, time, log, ranges=rest)
    assert again.records + report.records == 250 and not again.stopped
    for partition, count in enumerate((200, 50)):
        assert [int(value) for _, _, at, value, _ in log.found if at == partition] == list(range(count))


def test_replay_stopped_during_pause(tmp_path: Path, time: Time, log: Log) -> None:
    log_of(tmp_path, [record(0, NOW_MS), record(1, NOW_MS + 3_600_000)])
    report = replayed(tmp_path, time, log, speed=1.0, is_over=lambda: time() > START_S + 60)
    assert report.stopped and report.records == 1
    assert time() < START_S + 60 + ROUND_S
    assert parse_offsets(report.offsets, "") == {TopicPartition("t", 0): 1}


# -- with brokers


def test_replay_from_broker_to_broker(tmp_path: Path) -> None:
    records = [record(n, NOW_MS + n) for n in range(500)]
    for partition in range(2):
        log_of(tmp_path / "data", records, partition, "src")
    log_of(tmp_path / "data", [Record(0, -1, None, b"", ()), Record(1, NOW_MS, b"", None, ())], 0, "odd")
    with (
        Embedded(data_dir=tmp_path / "data") as broker,
        WireBackend({"bootstrap.servers": broker.bootstrap}) as backend,
    ):
        options = options_of(broker.bootstrap, HURRY)

        def run(works: Sequence[Work]) -> Iterator[tuple[Work, Played]]:
            for work in works:
                yield work, replay_part(pickle.loads(pickle.dumps(work)))

        for topic in ("src", "odd"):
            keys = backend.partitions(Selection(topics=(topic,)))
            ends = backend.latest(keys, committed=True)
            ranges = [OffsetRange(*key, 0, ends[key]) for key in keys]
            counts, settings = ensure(options, {f"{topic}2": len(keys)}), ReplaySettings(to_topic=f"{topic}2")
            report = ReplayReport("", "")
            clock = Time()
            Replay(backend, ranges, Sends(options, counts, settings), run, clock, clock.sleep).all(report)
            assert report.records == sum(one.size for one in ranges)
            assert consumed(broker, f"{topic}2") == consumed(broker, topic)
