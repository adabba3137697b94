"""The rows of the sink: valid columns and target partitions."""

from __future__ import annotations

import datetime
import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.producer.partitioners import java_default
from ottla.pipeline.sink.errors import SinkError
from ottla.pipeline.sink.rows import HEADERS, SENT, Targets, check_columns, content, murmur2
from ottla.protocol.murmur2 import java_partition
from ottla.protocol.murmur2 import murmur2 as murmur2_of_one

BYTES = st.binary(max_size=40)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch({name: of if isinstance(of, pa.Array) else pa.array(of) for name, of in columns.items()})


# -- target partitions


@given(st.lists(st.none() | BYTES, max_size=30), st.integers(0, 5))
def test_murmur2_matches_kafka(keys: list[bytes | None], skipped: int) -> None:
    found = murmur2(pa.array(keys, pa.binary()).slice(skipped))
    assert found.tolist() == [murmur2_of_one(key or b"") for key in keys[skipped:]]


def test_murmur2_long_keys_and_strings() -> None:
    keys = [random.Random(3).randbytes(size) for size in (*range(70), 1000, 65537)]
    assert murmur2(pa.array(keys, pa.binary())).tolist() == [murmur2_of_one(key) for key in keys]
    texts = ["", "a", "grün", "日本語", None]
    found = Targets({"t": 7}).numbers(batch(key=pa.array(texts), value=[""] * 5), "t")
    choose = java_default(random.Random(0)).choose
    expected = [choose("t", text.encode(), 7, ()) for text in texts if text is not None]
    assert found.tolist()[:4] == expected


@given(
    st.lists(st.tuples(st.none() | BYTES, st.none() | BYTES, st.none() | st.integers(0, 2)), min_size=1, max_size=20),
    st.integers(1, 20),
)
def test_numbers_by_column_then_key_then_value(rows: list[Any], size: int) -> None:
    keys, values, given_ = zip(*rows, strict=True)
    whole = batch(
        key=pa.array(keys, pa.binary()), value=pa.array(values, pa.binary()), partition=pa.array(given_, pa.int32())
    )
    targets = Targets({"t": 3})
    found = targets.numbers(whole, "t").tolist()
    for (key, _, where), partition in zip(rows, found, strict=True):
        assert 0 <= partition < 3
        if where is not None:
            assert partition == where
        elif key is not None:
            assert partition == java_partition(key, 3)
    # Whatever the grouping of the rows, each goes to the same partition.
    pieces = [targets.numbers(whole.slice(at, size), "t") for at in range(0, len(rows), size)]
    assert [one for piece in pieces for one in piece.tolist()] == found


def test_numbers_of_rows_without_key_spread() -> None:
    found = Targets({"t": 4}).numbers(batch(value=[b"%d" % number for number in range(4000)]), "t").tolist()
    counts = [found.count(partition) for partition in range(4)]
    assert min(counts) > 800


@given(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3)), st.data())
def test_targets_have_numbers_in_order(counts: dict[str, int], data: st.DataObject) -> None:
    targets = Targets(counts)
    wanted = [(topic, number) for topic in sorted(counts) for number in range(counts[topic])]
    assert [*targets] == [targets[number] for number in range(len(targets))] == wanted
    with pytest.raises(IndexError):
        targets[len(wanted)]
    if not wanted:
        return
    rows = data.draw(st.lists(st.sampled_from(wanted), min_size=1))
    topics, partitions = zip(*rows, strict=True)
    given_ = batch(topic=[*topics], partition=pa.array(partitions, pa.int32()), value=["v"] * len(rows))
    assert [targets[number] for number in targets.numbers(given_, None).tolist()] == rows


def test_numbers_of_several_topics() -> None:
    rows = batch(topic=["a", "b", "a", "b"], key=[b"1", b"2", b"3", b"4"], value=[b""] * 4, more=[1, 2, 3, 4])
    targets = Targets({"a": 5, "b": 3})
    expected = [("ab"[n % 2], java_partition(b"%d" % (n + 1), 5 - 2 * (n % 2))) for n in range(4)]
    assert [targets[number] for number in targets.numbers(rows, None).tolist()] == expected
    # The option overrides the column.
    assert {targets[number][0] for number in targets.numbers(rows, "b").tolist()} == {"b"}
    assert not Targets({}).numbers(rows.slice(0, 0), None).size


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ({"topic": ["a", None]}, None, "a row has no topic"),
        ({"topic": ["a", "z"]}, None, "a row goes to topic 'z', whose partitions"),
        ({"partition": pa.array([0, 2], pa.int32())}, "a", "a row goes to partition 2 of topic 'a', which has 2"),
        ({"partition": pa.array([-1, None], pa.int32())}, "a", "a row goes to partition -1 of topic 'a'"),
    ],
)
def test_numbers_without_valid_target_refused(columns: dict[str, Any], topic: str | None, message: str) -> None:
    with pytest.raises(SinkError, match=message):
        Targets({"a": 2}).numbers(batch(value=[b"", b""], **columns), topic)


# -- columns


@pytest.mark.parametrize(
    ("fields", "topic", "message"),
    [
        ({"key": pa.string()}, "t", "there is no column value"),
        ({"value": pa.string()}, None, "no target topic"),
        ({"value": pa.int64()}, "t", "column value is of type int64: it must be string or binary"),
        ({"value": pa.string(), "partition": pa.int64()}, "t", "column partition is of type int64: it must be int"),
        ({"value": pa.string(), "timestamp": pa.string()}, "t", "column timestamp is of type string"),
        ({"value": pa.string(), "headers": pa.string()}, "t", "column headers is of type string"),
        ({"value": pa.string(), "topic": pa.binary()}, "t", "column topic is of type binary: it must be string"),
    ],
)
def test_check_columns_refused(fields: dict[str, pa.DataType], topic: str | None, message: str) -> None:
    with pytest.raises(SinkError, match=message):
        check_columns(pa.schema(fields), topic)


def test_check_columns_accepted() -> None:
    fields = {"value": pa.large_string(), "key": pa.large_binary(), "other": pa.float64(), "partition": pa.int32()}
    check_columns(pa.schema(fields), "t")
    check_columns(pa.schema({"value": pa.binary(), "topic": pa.string(), "headers": HEADERS}), None)
    check_columns(pa.schema({"value": pa.binary(), "timestamp": pa.timestamp("us", tz="Europe/Berlin")}), "t")
    twice = pa.schema([pa.field("value", pa.string()), pa.field("value", pa.string())])
    with pytest.raises(SinkError, match="there are 2 columns value"):
        check_columns(twice, "t")


def test_content_of_rows() -> None:
    at = datetime.datetime(2024, 5, 6, 7, 8, 9, 123_999, tzinfo=datetime.UTC)
    before = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=datetime.UTC)
    rows = batch(
        value=pa.array(["ü", None, ""], pa.large_string()),
        timestamp=pa.array([at, None, before], pa.timestamp("us", tz="UTC")),
        headers=pa.array([None, [], [{"key": "h", "value": b"v"}, {"key": "", "value": None}]], HEADERS),
    )
    found = content(rows, timestamp_ms=5)
    assert found.schema == SENT
    assert found.column("timestamp").to_pylist() == [1714979289123, 5, -1]
    assert found.column("value").to_pylist() == ["ü".encode(), None, b""]
    assert found.column("key").to_pylist() == [None] * 3
    assert found.column("headers").to_pylist()[2] == [{"key": "h", "value": b"v"}, {"key": "", "value": None}]
    assert content(batch(value=["a"], timestamp=[7])).column("timestamp").to_pylist() == [7]
    assert content(batch(value=["a"])).column("timestamp").to_pylist() == [-1]
    seconds = batch(value=["a"], timestamp=pa.array([7], pa.timestamp("s")))
    assert content(seconds).column("timestamp").to_pylist() == [7000]
    nanos = batch(value=["a"], timestamp=pa.array([7_999_999], pa.timestamp("ns")))
    assert content(nanos).column("timestamp").to_pylist() == [7]
