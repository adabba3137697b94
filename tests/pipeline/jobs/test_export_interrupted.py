"""Exports interrupted at every file operation: readers never see a partial state, and the next run continues.

The disk is simulated: a process ends, power is lost, or an operation fails; a table, if there is one, keeps its files.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from ottla.pipeline.backend import Selection, Wanted
from ottla.pipeline.jobs.export import commit as committing
from ottla.pipeline.jobs.export import layout
from ottla.pipeline.jobs.export.commit import Committer, Settings
from ottla.pipeline.jobs.export.delta import DeltaTable
from ottla.pipeline.jobs.export.iceberg import IcebergTable
from ottla.pipeline.jobs.export.manifest import Commit, ExportError, Manifest, exported_files
from ottla.pipeline.jobs.export.plan import Request, plan
from ottla.pipeline.jobs.export.tasks import Form, Format, write
from ottla.pipeline.jobs.iceberg_catalog import path_of
from ottla.pipeline.readers.files import FileBackend
from ottla.protocol.records.batch import Record
from ottla.storage.io.files import DiskFiles
from ottla_testing import SUPPORT
from ottla_testing.pipeline.export_samples import NOW_MS, a_log, checked, exported, iceberg, rows, visible
from ottla_testing.pipeline.read_samples import Row
from ottla_testing.storage.simulated_files import Killed, SimulatedFiles

ROOT = "/lake/orders"
DAY_MS = 86_400_000
DELTA = Settings("delta")
SMALL = Form(file_bytes=400)  # each segment makes its own files


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns two partitions, with two segments and one; some records of the first have another day."""
    root = tmp_path_factory.mktemp("export") / "data"
    for partition, batches in ((0, 2), (1, 1)):
        records = [
            [Record(n, NOW_MS + n // 9 * DAY_MS, b"k", b"%d" % n, ()) for n in range(at, at + 3)]
            for at in range(0, 6 * batches, 3)
        ]
        a_log(root, "orders", partition, records, segment_bytes=200)
    return root


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "GROUP_PIECES", 2)


@pytest.fixture(scope="module")
def expected(source: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    out = tmp_path_factory.mktemp("export") / "out"
    exported(source, out, form=SMALL)
    found = checked(out)
    assert len(found) == 18 and len(visible(out)) == 4
    return found


def a_disk() -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_directory("/lake")
    files.sync_directory("/")
    return files


class ATable:
    """A table with its own list of files; `dies` is the moment of a crash: before it takes a document, or after."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.dies = ""

    def version(self) -> int | None:
        return self.commits[-1].number if self.commits else None

    def add(self, commit: Commit) -> None:
        if self.dies == "before":
            raise Killed
        self.commits.append(commit)
        if self.dies == "after":
            raise Killed

    def close(self) -> None:
        pass

    def extend(self) -> None:
        raise AssertionError("every run has the same columns")

    @property
    def files(self) -> list[str]:
        return sorted(file.path for commit in self.commits for one in commit.exported for file in one.files)


def steps_of(source: Path, table: ATable | None = None) -> list[str]:
    files = a_disk()
    files.restart()
    exported(source, ROOT, files=files, form=SMALL, table=None if table is None else lambda: table)
    return list(files.log)


def chosen(steps: list[str], scaled: Callable[[int], int], stride: int, turn: int = 0) -> list[int]:
    """Returns every third step, and of the writes of table files only some; all others with a larger scale. A small
    run takes every 18th."""
    every = 3 * stride if scaled(1) == 1 else 1
    writes = [n for n, step in enumerate(steps) if step.startswith("write") and layout.UNFINISHED in step]
    left = set(random.Random(turn).sample(writes, min(len(writes), scaled(4))))
    others = [n for n in range(len(steps)) if n not in writes]
    return sorted([*others[random.randrange(every) :: every], *left])


def once(found: list[Row], expected: list[Row]) -> None:
    """Checks that the rows are among the expected ones, without duplicates."""
    assert len({row[:3] for row in found}) == len(found) and set(found) <= set(expected)


LOSSES = ["process", "power", "operation"]


@pytest.mark.parametrize("lost", LOSSES)
def test_export_interrupted_at_every_operation(
    source: Path, expected: list[Row], lost: str, scaled: Callable[[int], int], stride: int
) -> None:
    rng = random.Random(5)
    for step in chosen(steps_of(source), scaled, stride, LOSSES.index(lost)):
        files = a_disk()
        files.restart()
        files.fail_at, files.killing, files.portion = step, lost != "operation", rng.choice((0.0, 0.5, 1.0))
        with pytest.raises(OSError if lost == "operation" else Killed):
            exported(source, ROOT, files=files, form=SMALL)
        if lost == "power":
            files.crash(rng)
        elif lost == "process":
            files.restart()
        else:
            files.fail_at = None
        if lost != "power" or files.exists(ROOT):
            once(rows(ROOT, files), expected)
        if files.exists(ROOT):
            there = set(visible(ROOT, files))
            assert {file.path for _, file in exported_files(files, ROOT)} <= there
        exported(source, ROOT, files=files, form=Form(file_bytes=rng.choice((200, 2000))), part_bytes=100)
        assert checked(ROOT, files) == expected
    assert exported(source, ROOT, files=files, form=SMALL).records == 0


def test_export_committed_files_are_durable(source: Path, expected: list[Row]) -> None:
    done = a_disk()
    exported(source, ROOT, files=done, form=SMALL)
    for seed in range(10):
        files = done.fork()
        files.crash(random.Random(seed))
        assert exported(source, ROOT, files=files, form=SMALL).records == 0
        assert checked(ROOT, files) == expected
        assert visible(ROOT, files) == visible(ROOT, done)


def test_export_interrupted_twice(source: Path, expected: list[Row], scaled: Callable[[int], int]) -> None:
    """The recovery of an interrupted run is interrupted again, each at a random place."""
    rng = random.Random(6)
    for _ in range(scaled(8)):
        files = a_disk()
        for _ in range(3):
            files.restart()
            files.fail_at, files.killing = rng.randint(0, 150), True
            try:
                exported(source, ROOT, files=files, form=SMALL)
            except Killed:
                files.crash(rng) if rng.random() < 0.5 else files.restart()
            files.fail_at = None
            if files.exists(ROOT):
                once(rows(ROOT, files), expected)
        files.restart()
        exported(source, ROOT, files=files, form=SMALL)
        assert checked(ROOT, files) == expected


def test_export_table_has_each_file_once(
    source: Path, expected: list[Row], scaled: Callable[[int], int], stride: int
) -> None:
    """Killed at every operation, and while the table receives files: recovery makes it agree with the manifest."""
    steps = [*chosen(steps_of(source, ATable()), scaled, stride), "before", "after"]
    for step in steps:
        files, table = a_disk(), ATable()
        files.restart()
        if isinstance(step, str):
            table.dies = step
        else:
            files.fail_at, files.killing = step, True
        with pytest.raises(Killed):
            exported(source, ROOT, files=files, form=SMALL, table=lambda table=table: table)
        files.restart()
        table.dies = ""
        assert set(table.files) <= set(visible(ROOT, files)) if files.exists(ROOT) else not table.files
        exported(source, ROOT, files=files, form=SMALL, table=lambda table=table: table)
        assert checked(ROOT, files) == expected
        assert table.files == visible(ROOT, files)
        assert [commit.number for commit in table.commits] == list(range(1, len(table.commits) + 1))


def test_export_manifest_older_than_table_refused(source: Path) -> None:
    files, table = a_disk(), ATable()
    exported(source, ROOT, files=files, form=SMALL, table=lambda: table)
    files.remove(f"{ROOT}/{layout.MANIFEST}/{2:020d}.json")
    with pytest.raises(ExportError, match=r"lacks manifest documents up to 0{19}2\.json, which its table has"):
        exported(source, ROOT, files=files, form=SMALL, table=lambda: table)


# --- tasks


def test_export_tasks_run_twice_or_die(source: Path, expected: list[Row]) -> None:
    """Only the result that the driver takes becomes visible; files of other attempts are removed."""
    files = a_disk()
    with FileBackend([str(source)]) as logs, Committer(ROOT, Settings(), files=files) as committer:
        made = plan(logs, committer.manifest, Request(Selection()), ROOT, SMALL)
        for work in made.works:
            write(work, files)  # like speculative tasks
            with pytest.raises(OSError):
                write(replace(work, piece=Dying(work.piece)), files)
            committer.add(work, write(work, files), None)
        assert len(files.list(f"{ROOT}/{layout.UNFINISHED}")) > len(made.works)
        committer.commit()
        once(rows(ROOT, files), expected)
        late = write(made.works[0], files)
    assert checked(ROOT, files) == expected
    # A task that outlives its driver writes to the unfinished folder, which the next run sweeps.
    name = f"{ROOT}/{layout.UNFINISHED}/{late.files[0][0]}"
    files.open(name, create=True).close()
    assert rows(ROOT, files) == expected
    exported(source, ROOT, files=files, form=SMALL)
    assert checked(ROOT, files) == expected


class Dying:
    """A piece that raises in the middle."""

    def __init__(self, piece: object) -> None:
        self._piece = piece
        self.wanted = Wanted(layout.READ)

    def read(self):  # type: ignore[no-untyped-def]
        yield next(self._piece.read())  # type: ignore[attr-defined]
        raise OSError("it breaks off")


def test_export_files_missing_at_driver_refused(source: Path) -> None:
    files = a_disk()
    with FileBackend([str(source)]) as logs, Committer(ROOT, Settings(), files=files) as committer:
        work, other, *_ = plan(logs, Manifest(), Request(Selection()), ROOT, SMALL).works
        elsewhere = a_disk()
        elsewhere.make_directory(f"{ROOT}/{layout.UNFINISHED}")
        committer.add(work, write(work, elsewhere), None)
        with pytest.raises(ExportError, match="must be mounted at the same path on the workers"):
            committer.commit()
        pending = files.read_bytes(f"{ROOT}/{layout.PENDING}")
        committer.add(other, write(other, files), None)
        committer.commit()  # only a new opening of the folder can determine the state
        assert files.read_bytes(f"{ROOT}/{layout.PENDING}") == pending and not visible(ROOT, files)
    exported(source, ROOT, files=files, form=SMALL)
    assert len(checked(ROOT, files)) == 18


@pytest.mark.process
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_export_process_killed(tmp_path: Path, scaled: Callable[[int], int], kind: Format) -> None:
    """Killed by a signal, at any time: its lock is released at once, and the next run continues. Also with a table."""
    rng = random.Random(8)
    records = [[Record(n, NOW_MS, None, b"%d" % n, ()) for n in range(at, at + 4)] for at in range(0, 200, 4)]
    a_log(tmp_path / "data", "orders", 0, records, segment_bytes=200)
    child = [sys.executable, str(SUPPORT / "pipeline" / "export_child.py"), str(tmp_path / "data")]
    for turn in range(min(scaled(1), 10)):
        out = tmp_path / str(turn)
        with subprocess.Popen([*child, str(out), kind], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"begun\n"
            steps_left = rng.randint(1, 12)
            while process.poll() is None and len(list((out / layout.MANIFEST).glob("*.json"))) < steps_left:
                time.sleep(0.001)
            process.kill()
        seen = [row.offset for row in rows(out)]
        assert seen == list(range(len(seen)))
        report = exported(
            tmp_path / "data", out, settings=Settings(kind), form=Form(file_bytes=400, format=kind), part_bytes=200
        )
        assert report.skipped + report.records == 200 and report.skipped > 0
        assert [row.offset for row in checked(out)] == list(range(200))
        assert files_of(out, kind) == visible(out)


# --- tables


class Dies(DiskFiles):
    """The real disk, for a process that ends at the n-th step of a commit."""

    def __init__(self, at: int) -> None:
        self.left = at

    def step(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise Killed

    def replace(self, source: str, target: str) -> None:
        self.step()
        super().replace(source, target)
        self.step()

    def remove(self, path: str) -> None:
        self.step()
        super().remove(path)


def delta_files(root: Path) -> list[str]:
    from deltalake import DeltaTable as Lake

    return sorted(str(Path(path).relative_to(root)) for path in Lake(str(root)).file_uris())


def files_of(root: Path, kind: Format) -> list[str]:
    """Returns the files of the table, by its own library."""
    if kind == "delta":
        return delta_files(root)
    with iceberg(root) as table:
        return sorted(path_of(one.file.file_path).removeprefix(f"{root}/") for one in table.scan().plan_files())


def table_of(root: Path, kind: Format) -> pa.Table:
    """Returns the rows, by the table's own library."""
    if kind == "delta":
        from deltalake import DeltaTable as Lake

        found: pa.Table = Lake(str(root)).to_pyarrow_table()
    else:
        with iceberg(root) as table:
            found = table.scan().to_arrow()
    return found.sort_by([("partition", "ascending"), ("offset", "ascending")])


def offsets_of(root: Path, kind: Format) -> list[str]:
    """Returns the offsets of each commit."""
    if kind == "delta":
        from deltalake import DeltaTable as Lake

        return [one["ottla.offsets"] for one in Lake(str(root)).history() if "ottla.offsets" in one][::-1]
    with iceberg(root) as table:
        summaries = [one.summary for one in table.snapshots()]
        assert [one["ottla.number"] for one in summaries] == [str(n + 1) for n in range(len(summaries))]
        return [one["ottla.offsets"] for one in summaries]


TABLES: tuple[Format, ...] = ("delta", "iceberg")


@pytest.mark.parametrize("kind", TABLES)
def test_export_table_interrupted(source: Path, tmp_path: Path, expected: list[Row], kind: Format) -> None:
    """The table and the manifest have the same files, each once, wherever a commit was interrupted."""
    at = 0
    form, settings = Form(format=kind, file_bytes=400), Settings(kind)
    while True:
        root, files = tmp_path / str(at), Dies(at)
        with contextlib.suppress(Killed):
            exported(source, root, files=files, form=form, settings=settings)
        if files.left >= 0:
            break
        for _ in range(2):
            exported(source, root, form=form, settings=settings)
        assert checked(root) == expected and files_of(root, kind) == visible(root)
        at += 3
    assert at > 15
    table = table_of(root, kind)
    assert table.column("value").to_pylist() == [row.value for row in expected]
    assert table.column("offset").to_pylist() == [row.offset for row in expected]
    assert offsets_of(root, kind) == ['{"orders": {"0": [[0, 12]]}}', '{"orders": {"1": [[0, 6]]}}']


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("dies", ["before", "after"])
def test_export_killed_at_commit_of_table(
    source: Path, tmp_path: Path, expected: list[Row], monkeypatch: pytest.MonkeyPatch, kind: Format, dies: str
) -> None:
    """The table alone decides whether the files of the last document stay."""
    root, form, settings = tmp_path / "t", Form(format=kind, file_bytes=400), Settings(kind)
    tables = {"delta": DeltaTable, "iceberg": IcebergTable}
    whole = tables[kind].add

    def add(table: DeltaTable | IcebergTable, commit: Commit) -> None:
        if dies == "after":
            whole(table, commit)  # type: ignore[arg-type]
        raise Killed

    monkeypatch.setattr(tables[kind], "add", add)
    for turn in range(3):  # without a recovery that continues, the second would be as the first
        with pytest.raises(Killed) if dies == "before" or turn < 2 else contextlib.nullcontext():
            exported(source, root, form=form, settings=settings)
    monkeypatch.undo()
    exported(source, root, form=form, settings=settings)
    assert checked(root) == expected and files_of(root, kind) == visible(root)
    assert table_of(root, kind).num_rows == 18


def test_export_delta_changed_by_others(source: Path, tmp_path: Path, expected: list[Row]) -> None:
    """A table may be optimised and vacuumed between two runs: its rows stay, without duplicates."""
    from deltalake import DeltaTable as Lake

    exported(source, tmp_path / "t", form=Form(format="delta", file_bytes=400), settings=DELTA)
    Lake(str(tmp_path / "t")).optimize.compact()
    Lake(str(tmp_path / "t")).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert DeltaTable(str(tmp_path / "t"), layout.SCHEMA).version() == 2
    report = exported(source, tmp_path / "t", form=Form(format="delta", file_bytes=400), settings=DELTA)
    assert (report.records, report.skipped) == (0, 18)
    table = Lake(str(tmp_path / "t")).to_pyarrow_table()
    assert table.num_rows == 18
