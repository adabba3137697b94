"""The calls of Spark to the reader of a stream, and the commits to a consumer group: no session, no JVM."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from ottla.pipeline.backend import DataLoss, Offsets, ReadError
from ottla.pipeline.options import parse
from ottla.pipeline.readers import wire
from ottla.pipeline.schemas import schema
from ottla.pipeline.sources.stream import Group, LogsStreamReader, stream_reader
from ottla_testing.pipeline.stream_fakes import T0, T1, Clock, FakeBackend

BACKEND = FakeBackend()


def backend() -> Any:
    """Returns the backend of the readers here; a module-level function, so that readers can be pickled."""
    return BACKEND


def reader(logs: Mapping[Any, tuple[int, int]], **options: str) -> LogsStreamReader:
    BACKEND.__init__(dict(logs))
    found = parse(
        {"kafka.bootstrap.servers": "nowhere:1", "startingOffsets": "earliest", "columns": "offset"} | options,
        "ottla",
        True,
    )
    return stream_reader(found, backend, schema(found))


def test_query_from_initial_offset_to_rows() -> None:
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
def test_default_read_limit(options: dict[str, str], expected: object) -> None:
    assert reader({}, **options).getDefaultReadLimit() == expected


def test_read_limit_of_spark_overrides_upper_option_only() -> None:
    both = {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "3"}
    one = reader({T0: (0, 20)}, **both)
    start = one.initialOffset()
    assert one.latestOffset(start, ReadMaxRows(5)) == {"t": {"0": 5}}
    assert one.latestOffset({"t": {"0": 18}}, ReadMaxRows(5)) == {"t": {"0": 18}}
    assert one.latestOffset({"t": {"0": 18}}, ReadMinRows(2)) == {"t": {"0": 20}}
    assert one.latestOffset({"t": {"0": 10}}, ReadMaxBytes(1)) == {"t": {"0": 15}}
    assert one.latestOffset({"t": {"0": 1}}, ReadAllAvailable()) == {"t": {"0": 20}}


def test_available_now_reads_present_records_only() -> None:
    one = reader({T0: (0, 5)}, maxOffsetsPerTrigger="3")
    one.prepareForTriggerAvailableNow()
    BACKEND.logs[T0] = (0, 50)
    assert one.latestOffset(one.initialOffset(), ReadMaxRows(3)) == {"t": {"0": 3}}
    assert one.latestOffset({"t": {"0": 3}}, ReadMaxRows(3)) == {"t": {"0": 5}}
    assert one.latestOffset({"t": {"0": 5}}, ReadMaxRows(3)) == {"t": {"0": 5}}


def test_reader_picklable_during_query() -> None:
    one = reader({T0: (0, 5)})
    one.initialOffset()
    again = pickle.loads(pickle.dumps(one))
    assert again.latestOffset({"t": {"0": 1}}, ReadAllAvailable()) == {"t": {"0": 5}}


def test_lost_data_fails_query_or_not() -> None:
    one = reader({T0: (4, 9)})
    with pytest.raises(DataLoss, match="t-0 begins at offset 4, after 1"):
        one.latestOffset({"t": {"0": 1}}, ReadAllAvailable())
    one = reader({T0: (4, 9)}, failOnDataLoss="false")
    assert one.latestOffset({"t": {"0": 1}}, ReadAllAvailable()) == {"t": {"0": 9}}


def test_group_commit_at_next_latest_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    committed: list[Offsets] = []
    monkeypatch.setattr(wire, "commit_offsets", lambda config, group, offsets: committed.append(offsets))
    one = reader({T0: (0, 5), T1: (0, 1)}, commitGroup="g")
    start = one.initialOffset()
    end = one.latestOffset(start, ReadAllAvailable())
    assert committed == []
    BACKEND.logs[T0] = (0, 6)
    one.latestOffset(end, ReadAllAvailable())
    one.latestOffset(end, ReadAllAvailable())
    one.commit(end)
    assert committed == [{T0: 5, T1: 1}]
    one.commit({"t": {"0": 6, "1": 1}})
    one.stop()
    assert committed == [{T0: 5, T1: 1}, {T0: 6, T1: 1}]


class Brokers:
    """Commits, or fails after some seconds."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.fail_ms, self.committed = clock, 0, list[Offsets]()

    def __call__(self, offsets: Offsets) -> None:
        if self.fail_ms:
            self.clock.now_ms += self.fail_ms
            raise ReadError("no broker responded")
        self.committed.append(offsets)


def test_failed_commit_retried_with_next_progress(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    brokers = Brokers(clock)
    group = Group("g", brokers, now_ms=clock)
    brokers.fail_ms = 5_000
    group.processed({T0: 1})
    assert [record.getMessage() for record in caplog.records] == [
        "commit to group g failed, retried later: no broker responded"
    ]
    brokers.fail_ms = 0
    group.processed({T0: 2})
    assert brokers.committed == []  # the query does not wait for a commit in every batch
    clock.now_ms += 45_000
    group.processed({T0: 3})
    group.processed({T0: 3})
    assert brokers.committed == [{T0: 3}]
    group.close()
    assert brokers.committed == [{T0: 3}]


def test_pending_commit_tried_at_close() -> None:
    clock = Clock()
    brokers = Brokers(clock)
    group = Group("g", brokers, now_ms=clock)
    brokers.fail_ms = 5_000
    group.processed({T0: 1})
    group.close()
    assert brokers.committed == []
    brokers.fail_ms = 0
    group.close()
    assert brokers.committed == [{T0: 1}]


@pytest.mark.process
@pytest.mark.parametrize(("error", "code"), [("EOFError", 0), ("ValueError", 1)])
def test_process_of_a_query_ends_silently_once_spark_has_gone(error: str, code: int) -> None:
    """The runner of PySpark reads on until the connection is closed, and then stops the reader."""
    program = f"""
from ottla.pipeline.sources.stream import LogsStreamReader
reader = object.__new__(LogsStreamReader)
reader._open = reader._group = None
try:
    raise {error}
finally:
    reader.stop()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == code and bool(done.stderr) == bool(code)
