"""Readers of streams over real files and a real broker, without Spark: restarts, rolls, deletions, and a group."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ottla.broker.testing.embedded import Embedded
from ottla.pipeline.options import SourceOptions, parse
from ottla.pipeline.schemas import schema
from ottla.pipeline.sources.source import open_backend
from ottla.pipeline.sources.stream import LogsStreamReader, stream_reader

CONFIGS = {"log.segment.delete.delay.ms": "0"}
SMALL = {"segment.bytes": "2000"}


def reader(options: SourceOptions) -> LogsStreamReader:
    return stream_reader(options, partial(open_backend, options), schema(options))


def rows(one: LogsStreamReader, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> list[list[object]]:
    found: list[list[object]] = []
    for piece in one.partitions(start, end):
        for batch in one.read(piece):
            found += [list(row.values()) for row in batch.to_pylist()]
    return sorted(found)


@pytest.mark.parametrize("source", ["ottla_log", "ottla"])
def test_restarts_of_query_and_broker_lose_and_repeat_nothing(
    source: str, tmp_path: Path, scaled: Callable[[int], int]
) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    broker = Embedded(release="3.9", data_dir=tmp_path / "data", configs=CONFIGS)
    broker.start()
    try:
        broker.create_topic("t", partitions=2, configs=SMALL)
        written, read = list[list[object]](), dict[int, list[list[object]]]()
        planned, done = list[str](), 0
        counts = [0, 0]

        def fresh() -> LogsStreamReader:
            place = {"path": str(tmp_path / "data")}
            if source == "ottla":
                place = {"kafka.bootstrap.servers": broker.bootstrap}
            given = {"startingOffsets": "earliest", "columns": "partition,offset,value", "maxOffsetsPerTrigger": "25"}
            return reader(parse(place | given, source, True))  # type: ignore[arg-type]

        one = fresh()
        for step in range(scaled(25)):
            for partition in range(2):
                for _ in range(chance.randrange(12)):
                    value = f"{step} {chance.random()}" + "." * 60
                    broker.send("t", value, partition=partition)
                    written.append([partition, counts[partition], value.encode()])
                    counts[partition] += 1
            if source == "ottla_log":  # checkpointed at intervals, and by a broker that is closed
                broker.stop()
                if chance.random() < 0.7:
                    broker.start()
            if chance.random() < 0.3:
                one.stop()
                one = fresh()
                if planned:
                    last = json.loads(planned[-1])
                    assert one.partitions(last, last) == []
                if len(planned) > done:  # the process died: the batch is read again
                    start = json.loads(planned[done - 1]) if done else one.initialOffset()
                    assert rows(one, start, json.loads(planned[-1])) == read[done]
                    done += 1
            if len(planned) == done:
                start = json.loads(planned[-1]) if planned else one.initialOffset()
                end = one.latestOffset(start, one.getDefaultReadLimit())
                if end != start:
                    planned.append(json.dumps(end))
                    read[done] = rows(one, start, end)
                    assert len(read[done]) <= 25
                    done += chance.random() < 0.7
            if source == "ottla_log":
                broker.stop()
                broker.start()
        start = json.loads(planned[done - 1]) if done else one.initialOffset()
        one.stop()
        one = fresh()
        one.prepareForTriggerAvailableNow()
        if done < len(planned):
            read[done] = rows(one, start, json.loads(planned[-1]))
            start, done = json.loads(planned[-1]), done + 1
        while (end := one.latestOffset(start, one.getDefaultReadLimit())) != start:
            read[done] = rows(one, start, end)
            start, done = end, done + 1
        one.stop()
        assert sorted(row for batch in read.values() for row in batch) == sorted(written)
    finally:
        broker.stop()


def test_file_stream_commits_to_group_and_survives_unreachable_brokers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"path": str(tmp_path / "data"), "startingOffsets": "earliest", "commitGroup": "g"}
    given |= {"kafka.default.api.timeout.ms": "300", "kafka.request.timeout.ms": "200"}
    with Embedded(data_dir=tmp_path / "data") as broker:
        broker.create_topic("t")
        broker.send("t", "a")
        one = reader(parse(given | {"kafka.bootstrap.servers": broker.bootstrap}, "ottla_log", True))
        start = one.initialOffset()
        one.commit({"t": {"0": 1}})
        assert [(at.topic, at.partition, at.offset) for at in broker.group("g").offsets] == [("t", 0, 1)]
    one.commit({"t": {"0": 2}})
    assert "commit to group g failed" in caplog.text
    assert start == {"t": {"0": 0}}
    one.stop()
