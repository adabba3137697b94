"""Offsets in Spark's JSON, and the ranges of a batch query over logs that grow, expire and disappear."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.backend import DataLoss, OffsetRange, Offsets, Piece, Selection, TopicPartition, Wanted
from ottla.pipeline.offsets import (
    EARLIEST,
    LATEST,
    MAX_PIECES,
    AtOffset,
    AtOffsets,
    AtTime,
    AtTimes,
    Limit,
    OptionError,
    flat,
    nested,
    offsets_json,
    parse_assignment,
    parse_offsets,
    parse_times,
    positions,
    resolve,
    split,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ALL = (A0, A1, B0)
START, END = AtOffset(EARLIEST), AtOffset(LATEST)

keys = st.builds(TopicPartition, st.text(min_size=1), st.integers(0, 2**31 - 1))


class Logs:
    """Three logs: start, end, last stable offset, and the timestamp of each record, 10 ms apart."""

    def __init__(self) -> None:
        self.begins: Offsets = {A0: 0, A1: 10, B0: 5}
        self.ends: Offsets = {A0: 100, A1: 20, B0: 5}
        self.stable: Offsets = {A0: 90, A1: 20, B0: 5}
        self.calls: list[str] = []

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.append("closed")

    def partitions(self, selection: Selection) -> list[TopicPartition]:
        return selection.of(self.begins, frozenset())

    def earliest(self, of: Sequence[TopicPartition]) -> Offsets:
        self.calls.append(f"earliest {len(of)}")
        return {key: self.begins[key] for key in of if key in self.begins}

    def latest(self, of: Sequence[TopicPartition], *, committed: bool) -> Offsets:
        self.calls.append(f"latest {len(of)}")
        return {key: (self.stable if committed else self.ends)[key] for key in of if key in self.ends}

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        found = {key: max(self.begins[key], -(-ms // 10)) for key, ms in times.items() if key in self.begins}
        return {key: offset if offset < self.ends[key] else None for key, offset in found.items()}

    def topic_id(self, topic: str) -> bytes:
        return bytes(16)

    def pieces(self, ranges: Sequence[OffsetRange], wanted: Wanted, *, at_least: int | None) -> Sequence[Piece]:
        return []


def read(starting: Limit = START, ending: Limit = END, *, of: Any = ALL, logs: Logs | None = None, **how: Any) -> Any:
    how = {"no_match": "error", "committed": False, "fail_on_data_loss": True} | how
    return [(str(one.key), one.start, one.end) for one in resolve(logs or Logs(), of, starting, ending, **how)]


@given(st.dictionaries(keys, st.integers(EARLIEST, 2**63 - 1)))
def test_offsets_json_round_trip(offsets: Offsets) -> None:
    assert parse_offsets(offsets_json(offsets), "x") == offsets
    assert flat(json.loads(json.dumps(nested(offsets)))) == offsets


@given(st.sets(keys, min_size=1))
def test_assignment_names_each_partition(assigned: set[TopicPartition]) -> None:
    by_topic = {one.topic: [key.partition for key in assigned if key.topic == one.topic] for one in assigned}
    assert set(parse_assignment(json.dumps(by_topic), "x")) == assigned


def test_json_as_spark_writes_it() -> None:
    assert offsets_json({B0: 7, A1: -2, A0: 23}) == '{"a":{"0":23,"1":-2},"b":{"0":7}}'
    assert parse_assignment('{"a":[0,1],"b":[0]}', "x") == (A0, A1, B0)
    assert parse_times('{"a": {"0": 1000}}', "x") == {A0: 1000}


@pytest.mark.parametrize(
    "text", ["", "5", "[]", '{"a": 5}', '{"a": {"0": "5"}}', '{"a": {"-1": 5}}', '{"a": {"٣": 5}}']
)
def test_invalid_json_refused(text: str) -> None:
    for parse in (parse_offsets, parse_times):
        with pytest.raises(OptionError, match="startingX is"):
            parse(text, "startingX")


def test_resolve_earliest_to_latest() -> None:
    assert read() == [("a-0", 0, 100), ("a-1", 10, 20)]
    assert read(committed=True) == [("a-0", 0, 90), ("a-1", 10, 20)]
    assert read(of=[]) == []


def test_resolve_plain_query_makes_two_calls() -> None:
    logs = Logs()
    read(logs=logs)
    assert logs.calls == ["earliest 3", "latest 3"]


def test_resolve_explicit_offsets() -> None:
    given = AtOffsets({A0: 5, A1: EARLIEST, B0: EARLIEST})
    assert read(given, AtOffsets({A0: 7, A1: LATEST, B0: LATEST})) == [("a-0", 5, 7), ("a-1", 10, 20)]
    assert read(given, of=ALL, committed=True)[0] == ("a-0", 5, 90)
    with pytest.raises(OptionError, match=r"must name every partition .* it lacks a-1, b-0$"):
        read(AtOffsets({A0: 5}))
    with pytest.raises(OptionError, match=r"endingOffsets .* lacks b-0 and names c-7, which is not read"):
        read(ending=AtOffsets({A0: 5, A1: 15, TopicPartition("c", 7): 0}))
    with pytest.raises(OptionError, match="startingOffsetsByTimestamp must name"):
        read(AtTimes({A0: 5}))


def test_resolve_filtered_partitions_must_be_named_and_are_not_read() -> None:
    logs = Logs()
    given = AtOffsets({A0: 5, A1: EARLIEST, B0: 10**9})
    assert resolve(logs, ALL, given, END, no_match="error", committed=False, fail_on_data_loss=True, of=[A1]) == [
        OffsetRange("a", 1, 10, 20)
    ]
    assert all(calls.endswith(" 1") for calls in logs.calls)
    with pytest.raises(OptionError, match="lacks b-0"):
        resolve(
            logs,
            ALL,
            AtOffsets({A0: 5, A1: 10}),
            END,
            no_match="error",
            committed=False,
            fail_on_data_loss=True,
            of=[A1],
        )


def test_resolve_timestamps() -> None:
    assert read(AtTime(55), AtTime(100), of=[A0]) == [("a-0", 6, 10)]
    assert read(AtTimes({A0: 60, A1: 0}), of=[A0, A1]) == [("a-0", 6, 100), ("a-1", 10, 20)]
    assert read(AtTime(60), AtTime(10**6), of=[A0]) == [("a-0", 6, 100)]
    with pytest.raises(OptionError, match=r"startingTimestamp: a-1 has no record with a timestamp >= 201; .*=latest"):
        read(AtTime(201), of=[A0, A1])
    assert read(AtTime(201), of=[A0, A1], no_match="latest") == [("a-0", 21, 100)]
    assert positions(Logs(), ALL, AtTime(201), committed=False) == {A0: 21, A1: 20, B0: 5}


def test_resolve_timestamp_after_last_stable_offset_has_no_match() -> None:
    assert read(AtTime(900), of=[A0]) == [("a-0", 90, 100)]
    with pytest.raises(OptionError, match="no record with a timestamp >= 900"):
        read(AtTime(900), of=[A0], committed=True)
    assert read(AtTime(0), AtTime(950), of=[A0], committed=True) == [("a-0", 0, 90)]


@pytest.mark.parametrize(
    ("starting", "ending"),
    [
        (AtOffsets({A0: 8}), AtOffsets({A0: 7})),
        (AtOffsets({A0: 101}), END),
        (AtTime(80), AtTime(70)),
        (AtTime(80), AtOffsets({A0: 7})),
        (START, AtOffsets({A1: 9})),
    ],
)
def test_resolve_start_after_end_refused(starting: Limit, ending: Limit) -> None:
    of = [A1] if ending == AtOffsets({A1: 9}) else [A0]
    with pytest.raises(OptionError, match=r"starts at offset \d+, which is after its end, \d+"):
        read(starting, ending, of=of)


def test_resolve_log_deleted_meanwhile_is_empty() -> None:
    logs = Logs()
    logs.begins[A0] = 120  # deleted by retention after the end was read
    assert read(of=[A0, A1], logs=logs) == [("a-1", 10, 20)]


def test_resolve_data_loss(caplog: pytest.LogCaptureFixture) -> None:
    begun = AtOffsets({A1: 3})
    with pytest.raises(DataLoss, match="a-1 begins at offset 10: those from 3 on are deleted; failOnDataLoss=false"):
        read(begun, of=[A1])
    assert read(begun, of=[A1], fail_on_data_loss=False) == read(of=[A1])
    assert read(AtOffsets({A1: 12}), of=[A1]) == [("a-1", 12, 20)]
    with pytest.raises(DataLoss, match="a-0 ends at offset 100, before the requested end, 101"):
        read(ending=AtOffsets({A0: 101}), of=[A0])
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        assert read(ending=AtOffsets({A0: 101}), of=[A0], fail_on_data_loss=False) == [("a-0", 0, 100)]
        assert read(AtOffsets({A1: 3}), AtOffsets({A1: 7}), of=[A1], fail_on_data_loss=False) == []
    assert [record.getMessage()[:22] for record in caplog.records] == ["records may be lost: a"] * 2


def test_resolve_deleted_partition_is_data_loss() -> None:
    gone = TopicPartition("gone", 0)
    for starting in (START, AtOffsets({A0: 5, gone: 5}), AtTime(5)):
        with pytest.raises(DataLoss, match="gone-0 no longer exists"):
            read(starting, of=[A0, gone])
        assert [name for name, *_ in read(starting, of=[A0, gone], fail_on_data_loss=False)] == ["a-0"]


@given(
    st.lists(
        st.builds(
            lambda start, size: OffsetRange("a", 0, start, start + size), st.integers(0, 99), st.integers(1, 200)
        ),
        max_size=3,
    ),
    st.integers(1, 50),
)
def test_split(ranges: list[OffsetRange], most: int) -> None:
    pieces = split(ranges, most)
    assert all(0 < piece.size <= most for piece in pieces)
    assert [offset for piece in pieces for offset in range(piece.start, piece.end)] == [
        offset for whole in ranges for offset in range(whole.start, whole.end)
    ]
    assert len(pieces) == sum(-(-whole.size // most) for whole in ranges)
    assert split(ranges, None) == ranges


def test_split_is_bounded() -> None:
    with pytest.raises(OptionError, match="tasks"):
        split([OffsetRange("a", 0, 0, MAX_PIECES + 1)], 1)
