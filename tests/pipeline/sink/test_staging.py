"""Rows between the tasks of a sink and its driver: in messages or files, bounded, complete, and removed afterwards."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.sink import SinkError
from ottla.pipeline.sink.staged_rows import Place, Staged, folder, remove, stage, staged_rows, sweep, total

SCHEMA = pa.schema([pa.field("key", pa.binary()), pa.field("value", pa.binary(), nullable=False)])


def batch(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array([None, *values][1:], pa.binary()), pa.array(values, pa.binary())], schema=SCHEMA)


def random_batches(size_bytes: int, seed: int = 1) -> list[pa.RecordBatch]:
    """Returns batches of bytes that do not compress."""
    chance = random.Random(seed)
    return [batch(*(chance.randbytes(1000) for _ in range(10))) for _ in range(size_bytes // 20_000)]


def files(place: Place) -> list[str]:
    return sorted(path.name for path in place.folder.iterdir()) if place.folder.exists() else []


@given(st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=20).map(lambda some: batch(*some)), max_size=5))
def test_stage_inline_round_trip(batches: list[pa.RecordBatch]) -> None:
    staged: Staged = pickle.loads(pickle.dumps(stage(iter([batch()[:0], *batches]), None)))
    assert staged.rows == sum(one.num_rows for one in batches)
    assert list(staged_rows([staged])) == batches
    assert (staged.inline is None) == (not batches)


def test_stage_large_rows_in_file(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    batches = random_batches(scaled(1_000_000))
    place = Place(f"file://{tmp_path}", "a query/of ours", 7)
    small = stage(batches[:2], place)
    large = stage(batches, place)
    assert small.file is None and small.inline is not None and len(small.inline) == small.bytes
    assert large.inline is None and large.file is not None
    path = Path(large.file)
    assert path.stat().st_size == large.bytes
    assert path.parent == tmp_path / "ottla-staging" / "a%20query%2Fof%20ours"
    assert path.name.startswith("7-")
    assert list(staged_rows([small, large])) == batches[:2] + batches
    assert total([small, large]) == (10 * (2 + len(batches)), small.bytes + large.bytes)
    remove([small, large])
    remove([large])
    assert files(place) == []


def test_stage_large_rows_without_location_refused() -> None:
    with pytest.raises(SinkError, match=r"more than 50000 bytes, .* stagingLocation must name a folder"):
        stage(random_batches(100_000), None, message_bytes=50_000)


def test_stage_failing_task_leaves_no_file(tmp_path: Path) -> None:
    place = Place(str(tmp_path), "q", 0)

    def failing() -> object:
        yield from random_batches(200_000)
        assert files(place) != []
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        stage(failing(), place, message_bytes=1_000)  # pyright: ignore[reportArgumentType]
    assert files(place) == []


def test_sweep_removes_this_and_earlier_batches(tmp_path: Path) -> None:
    def staged(unit: int, owner: str = "q") -> Staged:
        return stage(random_batches(60_000, unit), Place(str(tmp_path), owner, unit), message_bytes=1_000)

    for unit in (2, 10, 11):
        staged(unit)
        staged(unit)
    other = staged(1, "other")
    kept = tmp_path / "ottla-staging" / "q" / "1-notes.txt"
    kept.write_text("not ours")
    sweep(Place(str(tmp_path), "q", 10))
    assert [name.split("-")[0] for name in files(Place(str(tmp_path), "q", 10))] == ["1", "11", "11"]
    kept.unlink()
    sweep(Place(str(tmp_path), "q", 11))
    assert not kept.parent.exists()
    assert other.file is not None and Path(other.file).exists()
    sweep(Place(str(tmp_path), "nobody", 11))


def test_staged_rows_missing_or_changed_file_raises(tmp_path: Path) -> None:
    place = Place(str(tmp_path), "q", 0)
    one = stage(random_batches(100_000), place, message_bytes=1_000)
    assert one.file is not None
    path, whole = Path(one.file), Path(one.file).read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(SinkError, match=rf"{path} has {len(whole) - 1} bytes, but its task wrote {len(whole)}"):
        list(staged_rows([one]))
    path.write_bytes(bytes(len(whole)))
    with pytest.raises(SinkError, match="has changed since its task wrote it"):
        assert list(staged_rows([one])) != []
    path.unlink()
    with pytest.raises(SinkError, match=r"cannot be read: No such file .* must share the folder"):
        list(staged_rows([one]))


def test_staging_location_local_only(tmp_path: Path) -> None:
    assert folder("/a b") == folder("file:/a%20b") == folder("file:///a%20b") == "/a b"
    assert folder("relative/place") == "relative/place"
    for wrong in ("s3://bucket/x", "hdfs:/x", "file://elsewhere/x"):
        with pytest.raises(SinkError, match="driver and tasks have mounted"):
            folder(wrong)
    (tmp_path / "a file").write_text("")
    with pytest.raises(SinkError, match=r"cannot be written: Not a directory"):
        stage(random_batches(50_000), Place(str(tmp_path / "a file"), "q", 0), message_bytes=100)
