"""What Spark asks of the reader of a stream, and what a consumer group is told: no session, no JVM."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from ottla.pipeline.backend import DataLoss, Offsets, ReadError
from ottla.pipeline.options import parse
from ottla.pipeline.schemas import schema
from ottla.pipeline.sources import stream as module
from ottla.pipeline.sources.stream import Group, LogsStreamReader, stream_reader
from ottla_testing.pipeline.stream_fakes import T0, T1, Clock, FakeBackend

BACKEND = FakeBackend()


def backend() -> Any:
    """Where the readers here look; a function of a module, as a reader that is pickled needs."""
    return BACKEND


def reader(logs: Mapping[Any, tuple[int, int]], **options: str) -> LogsStreamReader:
    BACKEND.__init__(dict(logs))
    found = parse(
        {"kafka.bootstrap.servers": "nowhere:1", "startingOffsets": "earliest", "columns": "offset"} | options,
        "ottla",
        True,
    )
    return stream_reader(found, backend, schema(found))


def test_a_query_from_its_first_position_to_its_rows() -> None:
    one = reader({T0: (2, 9)}, minPartitions="3")
    start = one.initialOffset()
    end = one.latestOffset(start, one.getDefaultReadLimit())
    assert (start, end, one.reportLatestOffset()) == ({"t": {"0": 2}}, {"t": {"0": 9}}, {"t": {"0": 9}})
    rows = [
        row for piece in one.partitions(start, end) for batch in one.read(piece) for row in batch.to_pydict()["offset"]
    ]
    assert rows == [2, 3, 4, 5, 6, 7, 8]
    one.stop()
    one.stop()
    assert BACKEND.closed == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "5"}, ReadMaxRows(5)),
        ({"minOffsetsPerTrigger": "3"}, ReadMinRows(3)),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "3"}, ReadMaxRows(5)),
    ],
)
def test_the_limit_that_spark_is_told(options: dict[str, str], expected: object) -> None:
    assert reader({}, **options).getDefaultReadLimit() == expected


def test_limits_by_spark_go_before_those_of_the_options_but_the_lower_one_holds() -> None:
    both = {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "3"}
    one = reader({T0: (0, 20)}, **both)
    start = one.initialOffset()
    assert one.latestOffset(start, ReadMaxRows(5)) == {"t": {"0": 5}}
    assert one.latestOffset({"t": {"0": 18}}, ReadMaxRows(5)) == {"t": {"0": 18}}
    assert one.latestOffset({"t": {"0": 18}}, ReadMinRows(2)) == {"t": {"0": 20}}
    assert one.latestOffset({"t": {"0": 10}}, ReadMaxBytes(1)) == {"t": {"0": 15}}
    assert one.latestOffset({"t": {"0": 1}}, ReadAllAvailable()) == {"t": {"0": 20}}


def test_what_there_is_now_is_read_and_no_more() -> None:
    one = reader({T0: (0, 5)}, maxOffsetsPerTrigger="3")
    one.prepareForTriggerAvailableNow()
    BACKEND.logs[T0] = (0, 50)
    assert one.latestOffset(one.initialOffset(), ReadMaxRows(3)) == {"t": {"0": 3}}
    assert one.latestOffset({"t": {"0": 3}}, ReadMaxRows(3)) == {"t": {"0": 5}}
    assert one.latestOffset({"t": {"0": 5}}, ReadMaxRows(3)) == {"t": {"0": 5}}


def test_a_reader_can_be_pickled_with_a_query_under_way() -> None:
    one = reader({T0: (0, 5)})
    one.initialOffset()
    again = pickle.loads(pickle.dumps(one))
    assert again.latestOffset({"t": {"0": 1}}, ReadAllAvailable()) == {"t": {"0": 5}}


def test_lost_data_fails_the_query_or_not() -> None:
    one = reader({T0: (4, 9)})
    with pytest.raises(DataLoss, match="t-0 begins at 4, behind 1"):
        one.latestOffset({"t": {"0": 1}}, ReadAllAvailable())
    one = reader({T0: (4, 9)}, failOnDataLoss="false")
    assert one.latestOffset({"t": {"0": 1}}, ReadAllAvailable()) == {"t": {"0": 9}}


def test_a_group_is_told_what_is_processed_when_the_next_batch_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Offsets] = []
    monkeypatch.setattr(module, "committing", lambda options: told.append)
    one = reader({T0: (0, 5), T1: (0, 1)}, commitGroup="g")
    start = one.initialOffset()
    end = one.latestOffset(start, ReadAllAvailable())
    assert told == []
    BACKEND.logs[T0] = (0, 6)
    one.latestOffset(end, ReadAllAvailable())
    one.latestOffset(end, ReadAllAvailable())
    one.commit(end)
    assert told == [{T0: 5, T1: 1}]
    one.commit({"t": {"0": 6, "1": 1}})
    one.stop()
    assert told == [{T0: 5, T1: 1}, {T0: 6, T1: 1}]


class Brokers:
    """Commits, or fails after some seconds."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.fail_ms, self.told = clock, 0, list[Offsets]()

    def __call__(self, offsets: Offsets) -> None:
        if self.fail_ms:
            self.clock.now_ms += self.fail_ms
            raise ReadError("no broker answered")
        self.told.append(offsets)


def test_a_commit_that_fails_is_tried_again_with_the_next(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    brokers = Brokers(clock)
    group = Group("g", brokers, now_ms=clock)
    brokers.fail_ms = 5_000
    group.processed({T0: 1})
    assert [record.getMessage() for record in caplog.records] == [
        "not committed to group g, tried again later: no broker answered"
    ]
    brokers.fail_ms = 0
    group.processed({T0: 2})
    assert brokers.told == []  # the query does not wait for them all the time
    clock.now_ms += 45_000
    group.processed({T0: 3})
    group.processed({T0: 3})
    assert brokers.told == [{T0: 3}]
    group.close()
    assert brokers.told == [{T0: 3}]


def test_what_is_owed_is_committed_at_the_end_or_never() -> None:
    clock = Clock()
    brokers = Brokers(clock)
    group = Group("g", brokers, now_ms=clock)
    brokers.fail_ms = 5_000
    group.processed({T0: 1})
    group.close()
    assert brokers.told == []
    brokers.fail_ms = 0
    group.close()
    assert brokers.told == [{T0: 1}]
