"""Parquet to topics of a broker: every record once, in order, after any number of runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ottla.broker.testing.embedded import Embedded
from ottla.client import Admin
from ottla.client.admin.types import ConfigResource, ResourceType
from ottla.client.producer.partitioners import java_partition
from ottla.pipeline.backend import ReadError
from ottla.pipeline.jobs.import_.produce import BY_KEY, Delivery, bring, deliver, options_of, transactions
from ottla.pipeline.jobs.import_.report import ImportReport
from ottla.pipeline.sink.task_writer import Sent
from ottla_testing.each import each
from ottla_testing.pipeline.columnar_samples import FORMATS
from ottla_testing.pipeline.import_samples import exported, planned, put, put_records, read, some
from ottla_testing.pipeline.logs_samples import written
from ottla_testing.pipeline.wire_world import QUICK, consumed

HURRY = {name: value for name, value in QUICK.items() if name.startswith(("retry", "reconnect", "request"))}


@pytest.fixture(scope="module")
def broker() -> Iterator[Embedded]:
    with Embedded() as broker:
        yield broker


def imported(
    broker: Embedded, source: Path, fails_after: int | None = None, most_bytes: int = 1 << 30, **options: Any
) -> ImportReport:
    partitions = options.pop("partitions", None)
    plan, identity = planned(source, no_partition=BY_KEY, **options)
    left = [fails_after]

    def run(works: Sequence[Delivery]) -> Iterator[tuple[Delivery, Sent]]:
        for work in works:
            yield work, deliver(work)
            if left[0] is not None:
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt

    sink = options_of(broker.bootstrap, HURRY)
    return bring(plan, str(source), sink, identity, run, partitions=partitions, most_bytes=most_bytes)


def test_import_to_broker_round_trip_all_formats(tmp_path: Path, broker: Embedded) -> None:
    logs = tmp_path / "logs"
    for number, (magic, codec) in enumerate(FORMATS):
        written(logs / f"f{magic}-{codec}", [(magic, codec, 1 + 9 * n) for n in range(3)], seed=number)
    exported(logs, tmp_path / "parquet", rows_per_file=11)
    report = imported(broker, tmp_path / "parquet")
    before = read(logs)
    assert report.records == sum(map(len, before.values()))
    for topic in ("f0", "f1", "f2"):
        found: dict[int, list[Any]] = {}
        for partition, offset, time, _, key, value, headers in consumed(broker, topic, "read_committed"):
            found.setdefault(partition, []).append((None if time == -1 else time, key, value, headers))
            assert offset == len(found[partition]) - 1
        assert found == {key.partition: [one[1:] for one in of] for key, of in before.items() if key.topic == topic}
    assert any(one[1] is None for of in before.values() for one in of)


def test_import_second_run_adds_nothing(tmp_path: Path, broker: Embedded) -> None:
    for partition in (0, 3):
        put_records(tmp_path, "twice", partition, some(30))
    first = imported(broker, tmp_path)
    assert (first.records, first.skipped) == (60, 0)
    assert [(one.partition, one.first, one.end) for one in first.partitions] == [(0, 0, 30), (3, 0, 30)]
    second = imported(broker, tmp_path)
    assert (second.records, second.skipped, second.partitions) == (0, 60, [])
    assert "60 records were imported by an earlier run" in second.to_text()
    assert len(consumed(broker, "twice", "read_committed")) == 60
    put_records(tmp_path, "twice", 0, some(5, 100), "more")  # other files are another import
    assert imported(broker, tmp_path).records == 65


@each("fails_after", range(6), strided=True)
def test_import_interrupted_continues(tmp_path: Path, broker: Embedded, fails_after: int) -> None:
    topic = f"cut{fails_after}"
    for partition in (0, 1):
        for start in range(0, 90, 30):
            put_records(tmp_path, topic, partition, some(30, start), f"{start:02d}")
    few = {"piece_bytes": 1, "most_bytes": 1}
    assert len(transactions(planned(tmp_path, piece_bytes=1)[0], 1)) == 6
    with pytest.raises(KeyboardInterrupt):
        imported(broker, tmp_path, fails_after, **few)
    report = imported(broker, tmp_path, **few)
    assert (report.records, report.skipped) == (180 - 30 * fails_after, 30 * fails_after)
    found = consumed(broker, topic, "read_committed")
    assert [(one[0], one[5]) for one in found] == [(n, b"v%d" % at) for n in (0, 1) for at in range(90)]


def test_import_rows_without_partition_by_key(tmp_path: Path, broker: Embedded) -> None:
    keys = [b"k%d" % (n % 9) for n in range(100)]
    put(tmp_path, "a.parquet", key=[key.decode() for key in keys], value=[f"v{n}" for n in range(100)])
    put(tmp_path, "b.parquet", value=pa.array([b"w%d" % n for n in range(20)]))
    report = imported(broker, tmp_path, to_topic="bykey", partitions=3)
    assert report.records == 120
    found = consumed(broker, "bykey", "read_committed")
    for partition in range(3):
        of = [one[5] for one in found if one[0] == partition and one[4] is not None]
        assert of == [b"v%d" % n for n, key in enumerate(keys) if java_partition(key, 3) == partition]
    assert len({one[0] for one in found if one[4] is None}) == 3
    assert {one[2] for one in found} == {-1}


def test_import_created_topic_keeps_old_records(tmp_path: Path, broker: Embedded) -> None:
    put_records(tmp_path, "made", 2, some(3, time_ms=1000))
    imported(broker, tmp_path)
    assert [one[2] for one in consumed(broker, "made")] == [1000, 1001, 1002]
    assert len(broker.topic("made").partitions) == 3

    async def configs() -> dict[str, str | None]:
        resource = ConfigResource(ResourceType.TOPIC, "made")
        async with Admin(broker.bootstrap) as admin:
            found = (await admin.describe_configs([resource]))[resource]
            assert isinstance(found, dict)
            return {name: entry.value for name, entry in found.items()}

    assert asyncio.run(configs())["retention.ms"] == "-1"


def test_import_topic_with_too_few_partitions_refused(tmp_path: Path, broker: Embedded) -> None:
    broker.create_topic("narrow", 2)
    put_records(tmp_path, "wide", 2, some(3))
    with pytest.raises(ReadError, match="topic narrow has 2 partitions, but its records need 3"):
        imported(broker, tmp_path, to_topic="narrow")
    assert consumed(broker, "narrow") == []
