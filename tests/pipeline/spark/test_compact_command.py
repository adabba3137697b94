"""`ottla pipeline compact` without Spark: arguments, errors before it starts, the plan, the report."""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.pipeline.cli import pipeline
from ottla.pipeline.jobs import spark_tasks
from ottla.pipeline.jobs.compact.steps import Buckets
from ottla.protocol.records import batch
from ottla.protocol.records.batch import Record
from ottla.protocol.text import size as size_text
from ottla.storage.config import LogConfig
from ottla.storage.format import checkpoint
from ottla.storage.io.files import DiskFiles
from ottla.storage.log_dir.directory import DataDirectory
from ottla_testing.pipeline.compacting_here import disk_contents

COMPACT = import_module("ottla.pipeline.jobs.compact.job")
SESSION = import_module("ottla.pipeline.session")
OFFSETS = "__consumer_offsets"


class Rows:
    """The methods of an RDD that the shuffle uses."""

    def __init__(self, parts: Sequence[Sequence[Any]]) -> None:
        self.parts = parts

    def flatMap(self, function: Callable[[Any], Iterable[Any]]) -> Rows:
        return Rows([[found for row in part for found in function(row)] for part in self.parts])

    def partitionBy(self, count: int, function: Callable[[Any], int]) -> Rows:
        rows = [row for part in self.parts for row in part]
        return Rows([[row for row in rows if function(row[0]) == number] for number in range(count)])

    def mapPartitions(self, function: Callable[[Iterable[Any]], Iterable[Any]]) -> Rows:
        return Rows([list(function(iter(part))) for part in self.parts])

    def collect(self) -> list[Any]:
        return [row for part in self.parts for row in part]


class Context:
    defaultParallelism = 2

    def parallelize(self, rows: Sequence[Any], slices: int) -> Rows:
        return Rows([list(rows[number::slices]) for number in range(slices)])

    def setJobDescription(self, words: str | None) -> None:
        pass


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the tasks here, one after the other."""

    def run(
        spark: Any, items: Sequence[Any], task: Any, *, bytes_of: Any = spark_tasks.size_of, **_: Any
    ) -> Iterator[Any]:
        for item in items:
            assert bytes_of(item) > 0 and str(item).endswith(".log")
            yield item, task(item)

    monkeypatch.setattr(spark_tasks, "run", run)
    spark = SimpleNamespace(stop=lambda: None, sparkContext=Context())
    monkeypatch.setattr(SESSION, "session", lambda master=None, **conf: spark)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Writes a closed directory: two partitions of offsets and one of orders, each with three keys in five segments."""
    root = tmp_path / "data"
    made = DataDirectory.open(DiskFiles(), root, node_id=1)
    for topic, partition in ((OFFSETS, 0), (OFFSETS, 1), ("orders", 0)):
        log = made.open_partition(topic, partition, config=LogConfig(segment_bytes=300), now_ms=0)
        for number in range(5):
            records = [Record(n, 1000 + n, b"k%d" % n, b"%d" % number + bytes(60)) for n in range(3)]
            log.append(batch.build(records), now_ms=0)
    made.close()
    return root


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    try:
        found = pipeline(["compact", *arguments])
    except SystemExit as stopped:
        found = stopped.code
    out, err = capsys.readouterr()
    assert (found, out, err.count("\n")) == (2, "", 1), err
    return err.removesuffix("\n").removeprefix("ottla pipeline compact: ")


def test_compact_invalid_arguments_refused(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    for arguments, problem in (
        (["--force"], "--force needs --topic: it applies to the named topics only"),
        (
            ["--topic", "orders"],
            "topic orders is not compacted, according to the cleaner's checkpoint: force drops all but the last",
        ),
        (["--topic", "missing"], "there is no topic missing"),
        (
            ["--config", "retention.ms=1"],
            "retention.ms has no effect on a compaction: use segment.bytes, segment.index.bytes",
        ),
        (["--config", "segment.bytes=x"], "segment.bytes=x is invalid: it must be a number >= 14"),
        (["--min-dirty-ratio", "2"], "argument --min-dirty-ratio: '2' is not a number from 0 to 1"),
        (["--topics", "("], "--topics (: missing )"),
    ):
        assert refused(capsys, str(data), *arguments).startswith(problem)
    assert "is the folder of a partition" in refused(capsys, str(data / "orders-0"))
    open_one = DataDirectory.open(DiskFiles(), data, node_id=1)
    assert refused(capsys, str(data)).startswith(f"{data} is in use by a broker")
    open_one.abandon()
    assert refused(capsys, str(data)).startswith(f"{data} was not closed cleanly")


def test_compact_dry_run_then_run_then_nothing_left(
    capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path
) -> None:
    folders = sorted(path for path in data.iterdir() if path.is_dir())
    before = [disk_contents(path) for path in folders]
    size = sum(path.stat().st_size for path in data.glob(f"{OFFSETS}-*/*.log"))
    assert pipeline(["compact", str(data), "--dry-run"]) == 0
    out, err = capsys.readouterr()
    assert [disk_contents(path) for path in folders] == before and err == ""
    assert out == (
        f"{OFFSETS}: 2 of 2 partitions would be compacted: {size_text(size * 4 // 5)} rewritten, "
        f"of {size_text(size)} in 10 segments\n"
    )
    assert pipeline(["compact", str(data), "--report", str(tmp_path / "report.json")]) == 0
    out, err = capsys.readouterr()
    assert f"{OFFSETS}: 2 of 2 partitions compacted: 24 -> 6 records (0 -> 0 tombstones), 10 -> 4 segments" in out
    assert "to be 2 groups" in err
    found = json.loads((tmp_path / "report.json").read_text())
    assert [topic["topic"] for topic in found["topics"]] == [OFFSETS] and not found["topics"][0]["problems"]
    assert disk_contents(data / "orders-0") == before[folders.index(data / "orders-0")]
    offsets = checkpoint.read_offsets(DiskFiles(), str(data / checkpoint.CLEANER_OFFSET))
    assert offsets == {(OFFSETS, 0): 12, (OFFSETS, 1): 12}
    assert not [path for path in data.rglob("*") if ".compacted" in path.name]
    assert pipeline(["compact", str(data), "--quiet"]) == 0
    assert f"{OFFSETS}: 2 partitions, nothing to compact" in capsys.readouterr().out
    # A broker opens it.
    made = DataDirectory.open(DiskFiles(), data, node_id=1)
    log = made.open_partition(OFFSETS, 1, config=LogConfig(), now_ms=0)
    assert made.was_clean and log.log_end_offset == 15 and len(log.segments) == 2
    made.close()


def test_compact_damaged_partition_reported_and_left(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    path = data / f"{OFFSETS}-1" / f"{3:020d}.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    before = disk_contents(path.parent)
    assert pipeline(["compact", str(data), "--topic", "orders", "--topic", OFFSETS, "--force"]) == 1
    out, _ = capsys.readouterr()
    assert f"left unchanged: {OFFSETS}-1: {path}, in the window from byte 0: " in out
    assert f"{OFFSETS}: 1 of 2 partitions compacted: 12 -> 3 records" in out and "orders: 1 of 1" in out
    assert disk_contents(path.parent) == before
    assert not [path for path in data.rglob("*") if ".compacted" in path.name]


def test_compact_buckets_assigned_to_tasks_by_size() -> None:
    def buckets(count: int, rows: int) -> Buckets:
        return Buckets(0, "", count, rows, ())

    made = [buckets(1, 3), buckets(1, 4), buckets(3, 29), buckets(1, 1)]
    assert COMPACT._bins(made, 10) == ([[0], [0], [1, 2, 3], [4]], 5)
