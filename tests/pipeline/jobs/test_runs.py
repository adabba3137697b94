"""What interrupted jobs left: found at its place, and removed unless a job runs or records would be lost."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.pipeline.backend import ReadError
from ottla.pipeline.cli import pipeline
from ottla.pipeline.jobs.export import layout
from ottla.pipeline.jobs.export.commit import Committer, Settings
from ottla.pipeline.jobs.export.tasks import Form, Format
from ottla.pipeline.jobs.import_ import staging_folder
from ottla.pipeline.jobs.runs.unfinished import unfinished
from ottla.protocol.records.batch import Record
from ottla.storage.io.files import DiskFiles
from ottla_testing.pipeline.export_samples import NOW_MS, a_log, checked, exported


class Interrupted(Exception):
    """Stands for the end of a process."""


class Dying(DiskFiles):
    """A disk on which no file becomes a part of an export."""

    def replace(self, source: str, target: str) -> None:
        if target.endswith(".parquet"):
            raise Interrupted
        super().replace(source, target)


def runs(capsys: pytest.CaptureFixture[str], action: str, *paths: Path, code: int = 0) -> str:
    assert pipeline(["runs", action, *map(str, paths)]) == code
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for start in (0, 5):
        a_log(tmp_path / "data", "orders", 0, [[Record(start + n, NOW_MS, b"k", b"v", ()) for n in range(5)]])
    return tmp_path / "data"


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_interrupted_export_listed_and_undone(
    capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path, format: Format
) -> None:
    lake = tmp_path / "lakes" / "orders"
    settings = Settings(format)
    form = Form(format=format)
    with pytest.raises(Interrupted):
        exported(data, lake, files=Dying(), settings=settings, form=form)
    assert [one.what for one in unfinished([str(lake)])] == ["an interrupted commit"]
    (lake / layout.UNFINISHED / "killed.parquet").write_bytes(b"x" * 1000)
    (one,) = unfinished([str(lake.parent)])
    assert (one.kind, one.path, one.files, one.kept) == ("export", str(lake), 2, "")
    assert one.what == "files of pieces that are not in the export and an interrupted commit" and one.bytes > 1000
    shown = runs(capsys, "list", lake)
    assert shown.startswith(f"{lake}: export: {one.what}; 2 files, ")
    assert runs(capsys, "list", lake.parent) == shown
    assert runs(capsys, "clean", lake).startswith(f"{lake}: removed: export: ")
    assert unfinished([str(lake)]) == [] and list((lake / layout.UNFINISHED).iterdir()) == []
    assert runs(capsys, "list", lake) == f"{lake}: no job has left anything\n"
    exported(data, lake, settings=settings, form=form)
    assert len(checked(lake)) == 10


def test_running_export_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with Committer(str(lake), Settings()):
        (lake / layout.UNFINISHED / "piece.parquet").write_bytes(b"x")
        assert "\n  kept: it is running\n" in runs(capsys, "clean", lake, code=1)
        assert "\n  kept: it is running\n" in runs(capsys, "list", lake)
        assert (lake / layout.UNFINISHED / "piece.parquet").exists()


def test_lock_of_another_process_survives_the_listing(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    Committer(str(lake), Settings()).close()
    (lake / layout.UNFINISHED / "piece.parquet").write_bytes(b"x")
    program = (
        "import sys\nfrom ottla.storage.io.files import DiskFiles\n"
        f"lock = DiskFiles().lock({str(lake / layout.LOCK)!r})\nprint('held', flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        for _ in range(2):
            assert [one.kept for one in unfinished([str(lake)])] == ["it is running"]
        assert other.stdin is not None
        other.stdin.close()
    assert [one.kept for one in unfinished([str(lake)])] == [""]


def test_import_folder_beside_a_data_directory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "restored"
    target.mkdir()
    with staging_folder.staged(DiskFiles(), str(target), "identity", ["orders"]) as staging:
        piece = Path(staging.path) / staging_folder.PIECES / "a"
        piece.mkdir()
        (piece / "x.log").write_bytes(b"12345")
        assert "  kept: it is running\n" in runs(capsys, "clean", target, code=1)
    shown = runs(capsys, "list", target)
    assert shown == runs(capsys, "list", tmp_path)
    assert shown.startswith(f"{staging.path}: import: partitions for {target}; ")
    adding = Path(staging.path) / staging_folder.ADDING
    adding.write_text("{}")
    kept = f"  kept: it has begun to add its topics to {target}: run that import again\n"
    assert kept in runs(capsys, "clean", target, code=1)
    adding.unlink()
    assert ": removed: import: " in runs(capsys, "clean", target)
    assert not Path(staging.path).exists() and target.exists()


@pytest.mark.parametrize("suffix", ["upgraded", "compacted"])
def test_segments_of_an_interrupted_rewrite(
    capsys: pytest.CaptureFixture[str], data: Path, tmp_path: Path, suffix: str
) -> None:
    segment = data / "orders-0" / f"{0:020d}.log"
    left = data / "orders-0" / f"{segment.name}.0123456789ab.{suffix}"
    shutil.copy(segment, left)
    before = segment.read_bytes()
    lock = DiskFiles().lock(str(data / ".lock"))
    assert "  kept: a job or a broker uses the directory\n" in runs(capsys, "clean", data, code=1)
    lock.release()
    report = tmp_path / "runs.json"
    assert pipeline(["runs", "clean", str(data), "--report", str(report), "--dry-run"]) == 0 and left.exists()
    assert pipeline(["runs", "clean", str(data), "--report", str(report)]) == 0
    capsys.readouterr()
    (document,) = json.loads(report.read_text())["runs"]
    assert document.pop("changed") > 0
    assert document == {
        "kind": "upgrade or compact",
        "path": str(data),
        "what": "new segments that were not put in place",
        "files": 1,
        "bytes": len(before),
        "state": "removed",
        "problem": None,
    }
    assert not left.exists() and segment.read_bytes() == before


def test_directory_that_was_not_closed_is_kept(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    left = data / "orders-0" / f"{0:020d}.log.0123456789ab.upgraded"
    left.write_bytes(b"x")
    (data / ".kafka_cleanshutdown").unlink()
    assert f"  kept: {data} was not closed cleanly: start its broker" in runs(capsys, "clean", data, code=1)
    assert left.exists()


def test_paths_that_cannot_be_read_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(ReadError, match=r"cannot read .*missing: No such file"):
        unfinished([str(tmp_path / "missing")])
    assert pipeline(["runs", "list", str(tmp_path / "missing")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(SystemExit):
        pipeline(["runs", "remove", str(tmp_path)])
    assert "remove" in capsys.readouterr().err
