"""Batch queries of the sources, without Spark: the files read, the rows, and the errors."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ottla.pipeline.backend import DataLoss, ReadError
from ottla.pipeline.filters import Narrowed
from ottla.pipeline.offsets import OptionError
from ottla.pipeline.readers.columns import BATCH_COLUMNS, METADATA_COLUMNS, RECORD_COLUMNS
from ottla.pipeline.spark_api import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, Not
from ottla.protocol.records import formats
from ottla_testing.pipeline.read_samples import (
    BATCHES,
    EVENT_BATCHES,
    FORMATS,
    NOW_MS,
    PER_BATCH,
    PER_EVENT_BATCH,
    STEP_MS,
)
from ottla_testing.pipeline.read_through import EPOCH, as_rows, holding, planned, rows

TOPIC, PARTITION, OFFSET, TIME = ("topic",), ("partition",), ("offset",), ("timestamp",)


def at(ms: int) -> Any:
    return EPOCH + timedelta(milliseconds=NOW_MS + ms)


def files_of(folder: Path) -> int:
    return len(list(folder.glob("*.log")))


def pieces(directory: Path, *filters: Filter, **options: str) -> int:
    return len(planned("ottla_log", {"path": directory} | options, filters)[1])


def offsets(directory: Path, *filters: Filter, **options: str) -> list[tuple[int, int]]:
    """Returns partition and offset of the rows of a query of `events`."""
    options = {"columns": "partition,offset,timestamp", "subscribe": "events"} | options
    return [(row["partition"], row["offset"]) for row in rows("ottla_log", {"path": directory} | options, filters)]


@cache
def whole(directory: Path) -> list[dict[str, Any]]:
    return rows("ottla_log", {"path": directory, "columns": "topic,partition,offset,timestamp,key"})


FILTERS: Sequence[Sequence[Filter]] = [
    [EqualTo(TOPIC, "events"), EqualTo(PARTITION, 2)],
    [In(TOPIC, ("v0-none", "v2-zstd", None)), GreaterThanOrEqual(OFFSET, 40), LessThan(OFFSET, 45)],
    [In(OFFSET, (0, 119, 399)), Not(EqualTo(PARTITION, 3))],
    [GreaterThan(TIME, at(300_000)), IsNotNull(("key",)), Not(EqualTo(OFFSET, 350))],
    [GreaterThanOrEqual(TIME, at(100_000)), LessThan(TIME, at(110_000))],
    [EqualTo(TIME, at(53_000))],
    [LessThan(TIME, at(0))],
    [GreaterThan(OFFSET, 10**6)],
    [EqualTo(TOPIC, "none")],
    [Not(In(PARTITION, (0, 1, None)))],
]


@pytest.mark.parametrize("number", range(len(FILTERS)))
def test_pushdown_does_not_change_rows(directory: Path, number: int) -> None:

    options = {"path": directory, "columns": "topic,partition,offset,timestamp,key"}
    expected = [row for row in whole(directory) if all(holding(test, row) for test in FILTERS[number])]
    assert rows("ottla_log", options, FILTERS[number]) == expected
    assert bool(expected) == (number not in (7, 8, 9))


def test_pushdown_skips_files(directory: Path) -> None:
    files = {folder.name: files_of(folder) for folder in directory.glob("*-[0-9]")}
    events = [directory / f"events-{n}" for n in range(4)]
    per_file = files["events-1"]
    assert per_file >= 4
    assert pieces(directory) == sum(files.values()) - files["events-0"]
    assert pieces(directory, EqualTo(TOPIC, "events")) == 3 * per_file
    assert pieces(directory, subscribe="events") == 3 * per_file
    assert pieces(directory, EqualTo(TOPIC, "events"), EqualTo(PARTITION, 2)) == per_file
    assert pieces(directory, EqualTo(OFFSET, 3), subscribe="events") == 3
    assert pieces(directory, In(OFFSET, (3, 4, 399)), subscribe="events") == 6
    assert pieces(directory, GreaterThanOrEqual(OFFSET, 375), subscribe="events") == 3
    last = PER_EVENT_BATCH * (EVENT_BATCHES - 1)
    assert pieces(directory, GreaterThan(TIME, at(last * STEP_MS)), subscribe="events") == 3
    assert pieces(directory, GreaterThan(TIME, at(10**9))) <= len(FORMATS)
    assert pieces(directory, EqualTo(TOPIC, "none")) == 0
    assert pieces(events[1]) == per_file and pieces(events[0]) == 0


def test_push_filters_not_seen_as_overridden(directory: Path) -> None:
    reader, _, _ = planned("ottla_log", {"path": directory})
    # The check of Spark for a session without pushdown.
    assert getattr(reader.pushFilters, "__func__", None) is DataSourceReader.pushFilters
    # Unless Spark separates the plans of queries, filters narrow a query only on request.
    tests = [EqualTo(TOPIC, "none"), GreaterThan(OFFSET, 10**6)]
    whole, parts, again = planned("ottla_log", {"path": directory, "pushdown": "false"}, tests)
    assert again == tests and len(parts) == len(planned("ottla_log", {"path": directory})[1])
    assert whole.narrowed == Narrowed()
    assert list(reader.read(InputPartition(None))) == []


def test_min_partitions_and_max_records_per_partition(directory: Path) -> None:
    of = directory / "events-1"
    plain = offsets(directory, subscribe="events")
    assert pieces(of, minPartitions="4") == files_of(of)
    assert 8 <= pieces(of, minPartitions="8") <= 12
    assert pieces(directory, subscribe="events", maxRecordsPerPartition="7") >= 3 * 400 // 7
    assert offsets(directory, maxRecordsPerPartition="7", minPartitions="500") == plain


def test_starting_and_ending_options(directory: Path) -> None:
    starts = json.dumps({"events": {"0": -2, "1": 5, "2": -2, "3": 390}})
    ends = json.dumps({"events": {"0": -1, "1": 8, "2": 2, "3": -1}})
    expected = [(1, 5), (1, 6), (1, 7), (2, 0), (2, 1), *((3, offset) for offset in range(390, 400))]
    assert offsets(directory, startingOffsets=starts, endingOffsets=ends) == expected
    assert offsets(directory, EqualTo(PARTITION, 2), startingOffsets=starts, endingOffsets=ends) == [(2, 0), (2, 1)]
    options = {"path": directory, "columns": "offset", "assign": '{"events": [1]}'}
    # Timestamps go back within a batch: the first record at or after a timestamp may precede an earlier one.
    found = rows("ottla_log", options | {"startingTimestamp": NOW_MS + 100_000, "endingTimestamp": NOW_MS + 105_000})
    assert [row["offset"] for row in found] == [100, 101, 102, 103]
    with pytest.raises(OptionError, match="startingTimestamp: events-1 has no record with a timestamp >="):
        rows("ottla_log", options | {"startingTimestamp": NOW_MS + 10**9})
    late = {"startingTimestamp": NOW_MS + 10**9, "startingOffsetsByTimestampStrategy": "latest"}
    assert rows("ottla_log", options | late) == []
    with pytest.raises(DataLoss, match="events-1 ends at offset 400, before the requested end, 500"):
        rows("ottla_log", options | {"endingOffsets": '{"events": {"1": 500}}'})
    lenient = {"endingOffsets": '{"events": {"1": 500}}', "failOnDataLoss": "false"}
    assert len(rows("ottla_log", options | lenient)) == 400


def test_headers_metadata_and_columns_options(directory: Path) -> None:
    options = {"path": directory, "subscribe": "v2-lz4", "includeHeaders": "true", "metadata": "true"}
    found = rows("ottla_log", options)
    assert list(found[0]) == [*RECORD_COLUMNS, "headers", *METADATA_COLUMNS]
    assert found[0]["headers"] == [{"key": "h", "value": b"0"}, {"key": "h", "value": None}, {"key": "ü", "value": b""}]
    assert found[1]["headers"] is None
    assert (found[20]["magic"], found[20]["codec"], found[20]["batchOffset"], found[20]["crcOk"]) == (
        2,
        "lz4",
        15,
        True,
    )
    assert found[0]["file"] == str(directory / "v2-lz4-0" / ("0" * 20 + ".log"))
    old = rows("ottla_log", options | {"subscribe": "v0-gzip"})[0]
    assert (old["magic"], old["timestampType"], old["producerId"], old["headers"]) == (0, -1, -1, None)
    assert old["timestamp"] == EPOCH - timedelta(milliseconds=1)
    chosen = rows("ottla_log", options | {"columns": "offset, headers"})
    assert chosen == [{"offset": row["offset"], "headers": row["headers"]} for row in found]
    own = StructType().add("value", "binary").add("offset", "long", nullable=False)
    plain = {"path": directory, "subscribe": "v2-lz4"}
    assert rows("ottla_log", plain, schema=own) == [{"value": row["value"], "offset": row["offset"]} for row in found]


def test_transactions(directory: Path) -> None:
    options = {"path": directory, "subscribe": "transactions"}
    everything = rows("ottla_log", options | {"metadata": "true", "includeControlRecords": "true"})
    plain = rows("ottla_log", options)
    markers = [row for row in everything if row["control"]]
    assert len(everything) == len(plain) + len(markers) and len(markers) == 5
    assert [row["offset"] for row in everything] == list(range(len(everything)))
    aborted = {*range(9, 12), *range(14, 17), *range(27, 30), *range(32, 35)}
    open_from = 36
    committed = rows("ottla_log", options | {"kafka.isolation.level": "read_committed"})
    expected = [row for row in plain if row["offset"] not in aborted and row["offset"] < open_from]
    assert committed == expected
    assert rows("ottla_log", options | {"isolationLevel": "read_committed"}, [EqualTo(OFFSET, 14)]) == []


# --- damage

BROKEN = 3 * PER_BATCH  # the first offset of the damaged batch


@pytest.fixture
def damaged(directory: Path, tmp_path: Path) -> Path:
    """Returns a folder of one partition with a flipped bit in one batch."""
    folder = tmp_path / "v2-lz4-0"
    folder.mkdir()
    data = bytearray((directory / "v2-lz4-0" / ("0" * 20 + ".log")).read_bytes())
    position = next(position for position, header in formats.headers(data) if header.base_offset == BROKEN)
    data[position + 80] ^= 1
    (folder / ("0" * 20 + ".log")).write_bytes(data)
    return folder


def test_damage(damaged: Path, directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    sound = rows("ottla_log", {"path": directory / "v2-lz4-0"})
    options = {"path": damaged}
    with pytest.raises(ReadError) as raised:
        rows("ottla_log", options)
    assert str(damaged) in str(raised.value) and f"offset {BROKEN}" in str(raised.value) and "byte" in str(raised.value)
    with caplog.at_level(logging.WARNING):
        left = rows("ottla_log", options | {"onCorrupt": "skip"})
    kept = [row for row in sound if not BROKEN <= row["offset"] < BROKEN + PER_BATCH]
    assert left == kept
    assert any("v2-lz4" in record.getMessage() for record in caplog.records)
    shown = rows("ottla_log", options | {"onCorrupt": "emit", "metadata": "true"})
    wrong = [row for row in shown if not row["crcOk"]]
    assert [row["offset"] for row in shown if row["crcOk"]] == [row["offset"] for row in kept]
    assert wrong and wrong[0]["offset"] == BROKEN
    emit = {"onCorrupt": "emit", "columns": "offset,crcOk,timestamp"}
    for test in (EqualTo(OFFSET, BROKEN), GreaterThan(TIME, at(1000 * BROKEN)), In(OFFSET, (BROKEN, 3))):
        expected = rows("ottla_log", options | emit)
        assert rows("ottla_log", options | emit, [test]) == [row for row in expected if holding(test, row)]
    with pytest.raises(OptionError, match="onCorrupt=emit needs the column crcOk"):
        rows("ottla_log", options | {"onCorrupt": "emit"})


# --- batches


def test_batches_source_rows(directory: Path) -> None:
    options = {"path": directory, "subscribe": "v2-none,v1-gzip,v1-none"}
    found = rows("ottla_batches", options)
    assert list(found[0]) == list(BATCH_COLUMNS)
    of = {topic: [row for row in found if row["topic"] == topic] for topic in ("v2-none", "v1-gzip", "v1-none")}
    assert [row["lastOffset"] for row in of["v2-none"]] == [PER_BATCH * n - 1 for n in range(1, BATCHES + 1)]
    assert {(row["magic"], row["codec"], row["recordCount"]) for row in of["v2-none"]} == {(2, "none", PER_BATCH)}
    assert [row["baseOffset"] for row in of["v1-gzip"]] == [None] * BATCHES
    assert len(of["v1-none"]) == BATCHES * PER_BATCH
    # A batch that is cut by a range is still one row.
    assert rows("ottla_batches", options | {"maxRecordsPerPartition": 7}) == found
    for tests in (
        [EqualTo(("lastOffset",), 29)],
        [GreaterThan(("baseOffset",), 20), LessThan(("baseOffset",), 50)],
        [LessThan(("baseOffset",), 31), GreaterThanOrEqual(("lastOffset",), 40)],
        [In(("baseOffset",), (15, 45)), EqualTo(TOPIC, "v2-none")],
        [Not(IsNotNull(("baseOffset",)))],
    ):
        expected = [row for row in found if all(holding(test, row) for test in tests)]
        assert rows("ottla_batches", options, tests) == expected and (expected or len(tests) == 1)


# --- messages


def test_errors_are_one_sentence(directory: Path, tmp_path: Path) -> None:
    def message(**options: Any) -> str:
        with pytest.raises(ReadError) as raised:
            rows("ottla_log", {"path": directory} | options)
        assert raised.value.__cause__ is None and raised.value.__suppress_context__
        assert "\n" not in str(raised.value)
        return str(raised.value)

    assert "there is no folder" in message(path=tmp_path / "nowhere")
    assert "none" in message(subscribe="none,events") and str(directory) in message(subscribe="none,events")
    assert "events-9" in message(assign='{"events": [9]}')
    assert "must name every partition" in message(subscribe="events", startingOffsets='{"events": {"1": 5}}')
    assert "did you mean startingOffsets?" in message(startingOffset="earliest")
    assert "can't be latest" in message(startingOffsets="latest")


def test_several_directories(directory: Path, tmp_path: Path) -> None:
    one, other = directory / "v2-none-0", directory / "v2-zstd-0"
    both = as_rows(rows("ottla_log", {"path": f"{one},{other}", "includeHeaders": "true"}))
    assert both == as_rows(rows("ottla_log", {"paths": json.dumps([str(other), str(one)]), "includeHeaders": "true"}))
    assert both == as_rows(
        rows("ottla_log", {"path": f"file:{directory}", "subscribePattern": "v2-(none|zstd)", "includeHeaders": "true"})
    )
    assert len(both) == 2 * BATCHES * PER_BATCH


def test_options_without_effect_logged(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        planned("ottla_log", {"path": directory, "groupIdPrefix": "g", "maxOffsetsPerTrigger": 5})
    message = [record.getMessage() for record in caplog.records]
    assert len(message) == 2 and all("has no effect" in text for text in message)
