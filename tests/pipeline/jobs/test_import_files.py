"""The files of an import, the conversion of their columns, and their order."""

from __future__ import annotations

import datetime
import os
import re
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.backend import ReadError, TopicPartition
from ottla.pipeline.jobs.import_ import files
from ottla.pipeline.jobs.import_.plan import Plan
from ottla.pipeline.jobs.import_.produce import BY_KEY
from ottla_testing.pipeline.import_samples import NOW_MS, planned, put, put_records, some

NAMES = ("offset", "timestamp", "key", "value")


def rows_of(plan: Plan) -> dict[TopicPartition, list[tuple[Any, ...]]]:
    """Returns the rows of the pieces: offset, timestamp, key, value, headers."""
    found: dict[TopicPartition, list[tuple[Any, ...]]] = {}
    for piece in plan.pieces:
        of = found.setdefault(piece.key, [])
        for rows in piece.read():
            of += [
                (
                    row["offset"],
                    row["timestamp"],
                    row["key"],
                    row["value"],
                    [tuple(h.values()) for h in row["headers"] or ()],
                )
                for row in rows.to_pylist()
            ]
    return found


def test_listed_ignores_other_files(tmp_path: Path) -> None:
    put_records(tmp_path, "a b", 0, some(2))
    put_records(tmp_path, "u", 7, some(2), "z")
    for name in ("_ottla/x.parquet", ".hidden/x.parquet", "_x.parquet", ".x.parquet", "x.crc", "x.parquet.tmp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"no")
    found = files.listed(tmp_path)
    assert [(file.topic, file.partition) for file in found] == [("a b", 0), ("u", 7)]
    assert [file.path for file in files.listed(found[1].path)] == [found[1].path]
    assert files.listed(tmp_path / "topic=u")[0][2:4] == ("u", 7)


def test_mark_changes_with_bytes(tmp_path: Path) -> None:
    one = put_records(tmp_path / "one", "t", 0, some(50))
    two = put_records(tmp_path / "two", "t", 0, some(50))
    assert planned(tmp_path / "one")[1] == planned(tmp_path / "two")[1]
    os.utime(two, (1, 1))
    assert planned(tmp_path / "one")[1] == planned(tmp_path / "two")[1]
    data = bytearray(two.read_bytes())
    data[len(data) // 3] ^= 1
    two.write_bytes(data)
    marks = [files.look(files.listed(path.parent)[0]).mark for path in (one, two)]
    assert marks[0] != marks[1]


def test_listed_delta_table_newest_version(tmp_path: Path) -> None:
    table = pa.table({"value": pa.array([b"old"]), "topic": ["t"], "partition": pa.array([1], pa.int32())})
    deltalake.write_deltalake(str(tmp_path), table, partition_by=["topic", "partition"])
    newer = table.set_column(0, "value", pa.array([b"new"]))
    deltalake.write_deltalake(str(tmp_path), newer, mode="overwrite")
    assert rows_of(planned(tmp_path)[0]) == {TopicPartition("t", 1): [(0, -1, None, b"new", [])]}


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(2)])
def test_value_of_any_string_or_binary_type(tmp_path: Path, kind: pa.DataType) -> None:
    values = pa.array([b"ab", b"cd", None], pa.binary()).cast(pa.binary(2) if kind == pa.binary(2) else kind)
    put(tmp_path, "x.parquet", value=values, key=values.dictionary_encode() if kind == pa.string() else values)
    found = rows_of(planned(tmp_path, to_topic="t")[0])
    assert found[TopicPartition("t", 0)] == [(n, -1, v, v, []) for n, v in enumerate((b"ab", b"cd", None))]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamp_of_any_unit_rounded_down(tmp_path: Path, unit: Any) -> None:
    per_s = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    times = pa.array([0, -1, 1_700_000_000 * per_s + per_s // 3, None], pa.timestamp(unit, "UTC"))
    put(tmp_path, "x.parquet", value=["a", "b", "c", "d"], timestamp=times)
    found = [row[1] for row in rows_of(planned(tmp_path, to_topic="t")[0])[TopicPartition("t", 0)]]
    kept = pq.read_table(tmp_path / "x.parquet").column("timestamp").to_pylist()
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert found == [-1 if t is None else (t - epoch) // datetime.timedelta(milliseconds=1) for t in kept]


def test_headers_of_any_list_type(tmp_path: Path) -> None:
    kind = pa.large_list(pa.struct([("value", pa.string()), ("key", pa.large_string())]))
    headers = pa.array(
        [[{"key": "a", "value": "1"}, {"key": "a", "value": None}], [], None, [{"key": "", "value": ""}]], kind
    )
    put(tmp_path, "x.parquet", value=["a", "b", "c", "d"], headers=headers, offset=[3, 4, 6, 9])
    found = rows_of(planned(tmp_path, to_topic="t")[0])[TopicPartition("t", 0)]
    assert [(row[0], row[4]) for row in found] == [
        (3, [("a", b"1"), ("a", None)]),
        (4, []),
        (6, []),
        (9, [("", b"")]),
    ]


def test_topics_and_partitions_in_columns(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    topics, partitions = rng.choice(["a", "b"], 500), rng.integers(0, 3, 500)
    offsets = rng.permutation(500)
    put(
        tmp_path,
        "x.parquet",
        topic=pa.array(topics),
        partition=pa.array(partitions, pa.int32()),
        offset=pa.array(offsets),
        value=pa.array([b"%d" % n for n in offsets]),
    )
    found = rows_of(planned(tmp_path)[0])
    assert len(found) == 6
    for key, rows in found.items():
        mask = (topics == key.topic) & (partitions == key.partition)
        assert [(row[0], row[3]) for row in rows] == [(n, b"%d" % n) for n in sorted(offsets[mask].tolist())]
    assert {key.topic for key in rows_of(planned(tmp_path, topics=["b"])[0])} == {"b"}
    assert {key.topic for key in rows_of(planned(tmp_path, like=re.compile("a|c"))[0])} == {"a"}


@given(st.lists(st.sets(st.integers(0, 60), min_size=1, max_size=20), min_size=1, max_size=5), st.integers(1, 300))
def test_overlapping_files_merged_by_offset(
    tmp_path_factory: pytest.TempPathFactory, parts: list[set[int]], cut: int
) -> None:
    place = tmp_path_factory.mktemp("merged")
    there: set[int] = set()
    for number, part in enumerate(parts):
        if own := sorted(part - there):
            put_records(place, "t", 0, [r for r in some(61) if r.offset in own], f"{number}")
            there |= set(own)
    plan, _ = planned(place, piece_bytes=cut)
    assert [row[0] for row in rows_of(plan)[TopicPartition("t", 0)]] == sorted(there)
    assert plan.rows == len(there)
    lasts = [piece.last for piece in plan.pieces]
    assert lasts == sorted(lasts) and all(a.last < b.first for a, b in zip(plan.pieces, plan.pieces[1:], strict=False))


def test_rows_without_offsets_numbered_in_file_order(tmp_path: Path) -> None:
    put(tmp_path, "b.parquet", value=["3", "4"])
    put(tmp_path, "a.parquet", value=["0", "1", "2"], timestamp=[5, None, NOW_MS])
    found = rows_of(planned(tmp_path, to_topic="t", piece_bytes=1)[0])[TopicPartition("t", 0)]
    assert [(row[0], row[1], row[3]) for row in found] == [
        (0, 5, b"0"),
        (1, -1, b"1"),
        (2, NOW_MS, b"2"),
        (3, -1, b"3"),
        (4, -1, b"4"),
    ]
    (piece,) = planned(tmp_path, to_topic="t", no_partition=BY_KEY)[0].pieces
    assert piece.partition == BY_KEY


VALUES = {"value": ["a", "b"]}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": ["a"]}, "x.parquet has no column value: its columns are key"),
        ({"value": [1, 2]}, "value is of type int64: it must be string or binary"),
        ({**VALUES, "headers": [1, 2]}, "headers is of type int64: it must be a list of structs of key and value"),
        ({**VALUES, "timestamp": ["a", "b"]}, "timestamp is of type string"),
        ({**VALUES, "offset": [1, None]}, "has a row without offset"),
        ({**VALUES, "offset": [4, 4]}, "offset 4 is repeated in "),
        ({**VALUES, "offset": [-1, 4]}, "offset -1 is not a valid offset"),
        ({**VALUES, "partition": [-1, 0]}, "partition -1 is not a partition number"),
        ({**VALUES, "topic": ["a", "b"]}, "the files have several topics, a, b: choose one of them for t"),
        ({"value": pa.array([], pa.string())}, "there are no rows to import"),
    ],
)
def test_invalid_columns_refused(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    put(tmp_path, "x.parquet", **columns)
    with pytest.raises(ReadError, match=re.escape(message)):
        rows_of(planned(tmp_path, to_topic="t")[0])


def test_rows_without_topic_or_partition(tmp_path: Path) -> None:
    put(tmp_path, "x.parquet", **VALUES)
    with pytest.raises(ReadError, match=r"has no topic: name one with --to-topic"):
        planned(tmp_path)
    with pytest.raises(ReadError, match=r"'a/b' is not a valid topic name"):
        planned(tmp_path, to_topic="a/b")
    with pytest.raises(ReadError, match=r"no file has records of u"):
        planned(tmp_path, topics=["u"])
    put(tmp_path, "y.parquet", **VALUES, offset=[1, 2])
    with pytest.raises(ReadError, match=r"x\.parquet has no offsets, but .*y\.parquet has"):
        planned(tmp_path, to_topic="t")
    (tmp_path / "z.parquet").write_bytes(b"PAR1 but not really PAR1")
    with pytest.raises(ReadError, match=r"z\.parquet is not a readable Parquet file"):
        planned(tmp_path, to_topic="t")


def test_internal_topics_only_if_named(tmp_path: Path) -> None:
    put_records(tmp_path, "__consumer_offsets", 0, some(2))
    put_records(tmp_path, "t", 0, some(2))
    assert [key.topic for key in planned(tmp_path)[0].keys] == ["t"]
    assert [key.topic for key in planned(tmp_path, topics=["__consumer_offsets"])[0].keys] == ["__consumer_offsets"]
