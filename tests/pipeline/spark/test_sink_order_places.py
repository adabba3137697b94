"""The order of rows through a shuffle, without Spark: places, packed rows, and the comparison of repeated
computations."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.sink.errors import SinkError
from ottla.pipeline.sink.options import SinkOptions
from ottla.pipeline.sink.rows import SENT, Part, Targets, gathered, split
from ottla.pipeline.sink.tasks import (
    MOST_TARGETS,
    ORDER,
    PLACE,
    ROW_BITS,
    Computed,
    Places,
    Work,
    check_computed,
    pack,
    packed_rows,
    placed_rows,
    slices,
    unpack,
)
from ottla.pipeline.sink.transaction import Grant

TARGETS = Targets({"a": 3, "b": 2})


class Row(NamedTuple):
    topic: str
    key: bytes | None
    partition: int | None
    value: int
    timestamp: int


ROW = st.builds(
    Row,
    topic=st.sampled_from(["a", "b"]),
    key=st.none() | st.sampled_from([b"x", b"y", b"z"]),
    partition=st.none() | st.integers(0, 1),
    value=st.integers(0, 3),
    timestamp=st.integers(0, 3),
)
FRAME = st.lists(st.lists(ROW, max_size=12), min_size=1, max_size=4)
"""The rows of a DataFrame, partition by partition."""


def work(order_by: str | None, chunk_bytes: int) -> Work:
    given_ = {"kafka.bootstrap.servers": "none:1"} | ({"orderBy": order_by} if order_by else {})
    computations: Any = None
    return Work(SinkOptions.read(given_), Grant("t", 1, 0), TARGETS, 2, 0, False, "w", computations, chunk_bytes)


def batches(rows: Sequence[tuple[int, Row]], chance: random.Random) -> Iterator[pa.RecordBatch]:
    """Yields numbered rows as Arrow batches of random sizes."""
    edges = sorted({0, len(rows), *(chance.randrange(len(rows) + 1) for _ in range(3))})
    for start, stop in itertools.pairwise(edges):
        some = rows[start:stop]
        columns = {
            "topic": pa.array([row.topic for _, row in some], pa.string()),
            "key": pa.array([row.key for _, row in some], pa.binary()),
            "value": pa.array([b"%d" % number for number, _ in some], pa.binary()),
            "partition": pa.array([row.partition for _, row in some], pa.int32()),
            "timestamp": pa.array([row.timestamp for _, row in some], pa.int64()),
            f"{ORDER}0": pa.array([row.value for _, row in some], pa.int64()),
        }
        yield pa.RecordBatch.from_pydict(columns)


def written(frame: list[list[Row]], order_by: str | None, chance: random.Random) -> dict[tuple[str, int], list[int]]:
    """Returns the numbers of each target's rows as the tasks get them; the shuffle delivers them in any order."""
    doing = work(order_by, chance.choice([1, 200, 10**6]))
    numbers = itertools.count()
    placed: list[pa.RecordBatch] = []
    for partition, rows in enumerate(frame):
        numbered = batches([(next(numbers), row) for row in rows], chance)
        placed.extend((placed_rows if order_by else packed_rows)(doing, partition, numbered))
    if not placed:
        return {}
    table = pa.Table.from_batches(placed)
    table = table.take(pa.array(chance.sample(range(table.num_rows), table.num_rows)))
    task = pa.array(doing.places.target(table.column(PLACE).to_numpy()) % doing.tasks)
    found: dict[tuple[str, int], list[int]] = {}
    for number in range(doing.tasks):
        mine = table.filter(pc.equal(task, number))  # type: ignore[attr-defined]
        # Spark's sort: by target first if there is an orderBy.
        targets = pa.array(doing.places.target(mine.column(PLACE).to_numpy()))
        keys = [(PLACE, "ascending")]
        if order_by:
            keys = [("target", "ascending"), (f"{ORDER}0", "ascending"), *keys]
        mine = mine.append_column("target", targets).sort_by(keys)
        some: list[Part] = list(slices(doing, mine.to_batches(max_chunksize=chance.randint(1, 9))))
        assert [one.target for one in some] == sorted(one.target for one in some)
        for one in some:
            values = one.rows.column("value").to_pylist()
            found.setdefault(TARGETS[one.target], []).extend(map(int, values))
    return found


@given(FRAME, st.sampled_from([None, "value"]), st.randoms(use_true_random=False))
def test_places_restore_frame_order_after_any_shuffle(
    frame: list[list[Row]], order_by: str | None, chance: random.Random
) -> None:
    found = written(frame, order_by, chance)
    assert written(frame, order_by, chance) == found  # another attempt, with other record batches
    rows = list(itertools.chain.from_iterable(frame))
    assert sorted(itertools.chain.from_iterable(found.values())) == list(range(len(rows)))
    targets: dict[tuple[str, bytes], set[tuple[str, int]]] = defaultdict(set)
    for (topic, partition), numbers in found.items():
        assert numbers == sorted(numbers, key=lambda number: (rows[number].value if order_by else 0, number))
        for row in map(rows.__getitem__, numbers):
            assert row.topic == topic and row.partition in (None, partition)
            if row.key is not None and row.partition is None:
                targets[topic, row.key].add((topic, partition))
    assert all(len(where) == 1 for where in targets.values())


# -- packed rows


HEADERS = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=2), "value": st.none() | st.binary(max_size=2)})
)
CONTENT = st.tuples(
    st.integers(-(2**63), 2**63 - 1), st.none() | st.binary(max_size=3), st.none() | st.binary(max_size=9), HEADERS
)
NUMBERED = st.lists(st.lists(st.tuples(st.integers(0, 3), CONTENT), max_size=9), max_size=4)


def packed(given_: list[list[tuple[int, Any]]], most_bytes: int) -> dict[int, list[bytes]]:
    """Returns the values of each target; each record batch is a slice of a larger one."""
    batches: list[pa.RecordBatch] = []
    for some in given_:
        filled = [*some, (0, (1, b"unseen", None, None))]
        columns = [pa.array([row[at] for _, row in filled], SENT.field(at).type) for at in range(len(SENT))]
        columns.append(pa.array([target for target, _ in filled], pa.int32()))
        batches.append(pa.RecordBatch.from_arrays(columns, names=[*SENT.names, "target"]).slice(0, len(some)))
    values: dict[int, list[bytes]] = defaultdict(list)
    for rows in gathered(batches, most_bytes):
        numbers = [one.column("target").to_numpy() for one in rows]
        parts = list(split([one.select(SENT.names) for one in rows], numbers))
        assert [one.target for one in parts] == sorted({one.target for one in parts})
        for one in parts:
            values[one.target].append(pack(one.rows))
    return values


@given(NUMBERED, st.integers(1, 2000))
def test_packed_rows_are_the_rows_in_their_order(given_: list[list[tuple[int, Any]]], most_bytes: int) -> None:
    values = packed(given_, most_bytes)
    assert packed(given_, most_bytes) == values  # else a repeated computation would have another digest
    found: dict[int, list[Any]] = {}
    for target, some in values.items():
        unpacked = unpack(pa.array(some, pa.binary()), SENT)
        unpacked.validate(full=True)
        found[target] = unpacked.to_pylist()
    wanted: dict[int, list[Any]] = {}
    for target, row in itertools.chain.from_iterable(given_):
        wanted.setdefault(target, []).append(dict(zip(SENT.names, row, strict=True)))
    assert found == wanted


def test_record_batches_are_joined_and_cut() -> None:
    def sizes(value_bytes: int) -> list[list[int]]:
        rows = pa.RecordBatch.from_pylist([{"value": b"x" * value_bytes}] * 10)
        return [[one.num_rows for one in some] for some in gathered([rows, rows[:0]] * 4, 400)]

    assert sizes(10) == [[10, 10], [10, 10]]  # a batch has 140 bytes
    assert sizes(100) == [[3], [3], [3], [1]] * 4
    assert sizes(1000) == [[1]] * 40


# -- places


@given(st.integers(1, MOST_TARGETS), st.data())
def test_places_ascend_by_target_partition_and_row(targets: int, data: st.DataObject) -> None:
    places = Places(targets)
    most = 1 << 32 - (targets - 1).bit_length()
    position = st.tuples(st.integers(0, targets - 1), st.integers(0, most - 1), st.integers(0, (1 << ROW_BITS) - 1))
    one, other = data.draw(position), data.draw(position)
    (first,), (second,) = (places.of(np.array([at[0]]), at[1], at[2]).tolist() for at in (one, other))
    assert (first < second, first == second) == (one < other, one == other)
    assert first >= 0
    assert places.target(np.array([first])).tolist() == [one[0]]


def test_places_out_of_range_refused() -> None:
    with pytest.raises(
        SinkError, match=r"^the DataFrame has more than 4096 partitions, .* coalesce or repartition it$"
    ):
        Places(MOST_TARGETS).of(np.array([0]), 4096, 0)
    assert Places(MOST_TARGETS).of(np.array([0]), 4095, 0).tolist() == [4095 << ROW_BITS]
    with pytest.raises(SinkError, match=r"^partition 2 of the DataFrame has more than 2147483648 rows"):
        Places(1).of(np.array([0, 0]), 2, (1 << ROW_BITS) - 1)


# -- repeated computations


def digest(rows: Sequence[bytes], size: int = 3) -> Computed:
    found = Computed()
    for first in range(0, len(rows), size):
        some = rows[first : first + size]
        found = found.plus(len(some), pa.record_batch({"value": pa.array(some, pa.binary())}).serialize())
    return found


@given(st.lists(st.sampled_from([b"", b"a", b"b", b"ab"]), max_size=9), st.randoms(use_true_random=False))
def test_digest_detects_other_order(rows: list[bytes], chance: random.Random) -> None:
    other = chance.sample(rows, len(rows))
    computed = {0: {digest(rows), digest(other)}, 1: {digest([b"c"])}}
    if other == rows:
        check_computed(computed, len(rows) + 1)
    else:
        with pytest.raises(
            SinkError, match=r"^partition 0 of the DataFrame was computed again .* written from scratch$"
        ):
            check_computed(computed, len(rows) + 1)


def test_check_computed_detects_missing_rows() -> None:
    computed = {0: {digest([b"a", b"b"])}}
    check_computed(computed, 2)
    with pytest.raises(SinkError, match=r"^1 rows were written, but the DataFrame had 2: .* written from scratch$"):
        check_computed(computed, 1)
