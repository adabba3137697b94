"""Small files of an export to Delta merged: the same rows, once, after an interruption and for the next export, too."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ottla.pipeline.backend import ReadError, Selection
from ottla.pipeline.cli import pipeline
from ottla.pipeline.jobs.export import layout
from ottla.pipeline.jobs.export.commit import Committer, Settings
from ottla.pipeline.jobs.export.delta import file_sizes
from ottla.pipeline.jobs.export.manifest import Commit, Exported, ExportedFile
from ottla.pipeline.jobs.export.tasks import Form
from ottla.pipeline.jobs.export.value_columns import Decoding
from ottla.pipeline.jobs.optimize.job import OptimizeSettings, optimize
from ottla.pipeline.jobs.verify.compare import compare
from ottla.pipeline.jobs.verify.plan import plan
from ottla.pipeline.jobs.verify.report import VerifyReport
from ottla.pipeline.readers.files import FileBackend
from ottla.protocol.records.batch import Header, Record
from ottla_testing import SUPPORT
from ottla_testing.pipeline.export_samples import DAY_MS, NOW_MS, a_log, exported

DELTA = Settings("delta")


def more(data: Path, topics: int = 1, *, partitions: int = 1, first: int = 0, count: int = 4) -> None:
    """Appends records of two days."""
    for topic in range(topics):
        for partition in range(partitions):
            records = [
                Record(n, NOW_MS + n % 2 * DAY_MS, b"k" if n % 3 else None, b'{"id": %d}' % n, (Header("h", None),))
                for n in range(first, first + count)
            ]
            a_log(data, f"orders.{topic}", partition, [records])


def lake(data: Path, runs: int = 5, **options: Any) -> Path:
    """Exports after each of some appends: a file for each run, partition and day."""
    for run in range(runs):
        more(data, first=4 * run, **options)
        exported(data, data.parent / "lake", form=Form(format="delta"), settings=DELTA)
    return data.parent / "lake"


def rows(root: Path) -> pa.Table:
    order = [(name, "ascending") for name in ("topic", "partition", "offset")]
    return DeltaTable(str(root)).to_pyarrow_table().sort_by(order)


def differences(data: Path, root: Path) -> tuple[int, int]:
    """Returns the number of differences from the logs, and of compared rows."""
    with FileBackend([str(data)]) as logs:
        made = plan(logs, str(root), Selection())
        report = VerifyReport(made)
        for check in made.checks:
            report.add(check, compare(check))
    return report.differences, sum(one.counts.rows for one in report.partitions.values())


def files(root: Path) -> int:
    return sum(len(of) for days in file_sizes(str(root)).values() for of in days.values())


def test_files_of_each_day_become_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    root = lake(data, topics=2, partitions=2)
    before = rows(root)
    assert files(root) == 5 * 2 * 2 * 2
    lines: list[str] = []
    report = optimize(str(root), on_plan=lines.append)
    assert lines[0].startswith("orders.0: 20 files, ") and lines[0].endswith(", 4 days with several files")
    assert [(one.topic, one.files, one.files_after) for one in report.topics] == [
        ("orders.0", 20, 4),
        ("orders.1", 20, 4),
    ]
    assert report.to_text().splitlines()[-1].startswith("40 files -> 8 in ")
    assert files(root) == 8 and rows(root).equals(before)
    assert differences(data, root) == (0, 80)
    table = DeltaTable(str(root))
    logged = [
        json.loads(line) for line in (root / "_delta_log" / f"{table.version():020d}.json").read_text().splitlines()
    ]
    changes = [one[kind]["dataChange"] for one in logged for kind in ("add", "remove") if kind in one]
    assert changes and not any(changes)
    again = optimize(str(root))
    assert [one.files_after for one in again.topics] == [4, 4] and DeltaTable(str(root)).version() == table.version()


def test_next_export_adds_only_what_is_new(tmp_path: Path) -> None:
    data = tmp_path / "data"
    root = lake(data)
    optimize(str(root), OptimizeSettings(delete_old_hours=0))
    more(data, first=20)
    report = exported(data, root, form=Form(format="delta"), settings=DELTA)
    assert (report.records, report.skipped) == (4, 20)
    assert differences(data, root) == (0, 24) and rows(root)["offset"].to_pylist() == list(range(24))


def test_old_files_are_deleted_and_those_of_the_export_stay(tmp_path: Path) -> None:
    data = tmp_path / "data"
    root = lake(data)
    own = sorted(path.relative_to(root) for path in (root / layout.OWN).rglob("*"))
    assert optimize(str(root)).deleted == 0
    report = optimize(str(root), OptimizeSettings(delete_old_hours=0))
    assert report.deleted == 10 and "10 old files deleted" in report.to_text()
    there = {str(path.relative_to(root)) for path in root.glob("topic=*/**/*.parquet")}
    assert len(there) == 2 == files(root)
    assert sorted(path.relative_to(root) for path in (root / layout.OWN).rglob("*")) == own
    assert differences(data, root) == (0, 20)


def test_decoded_columns_and_the_size_of_files(tmp_path: Path) -> None:
    data, root = tmp_path / "data", tmp_path / "lake"
    decoding = Decoding.json(pa.schema([("id", pa.int64()), ("at", pa.list_(pa.struct([("x", pa.string())])))]))
    form = Form(format="delta", decoding=decoding, on_undecodable="dead-letter")
    settings = Settings("delta", decoding={"kind": "json", "schema": decoding.schema})
    for run in range(3):
        more(data, first=4 * run)
        exported(data, root, form=form, settings=settings)
    before = rows(root)
    assert before["decoded"].to_pylist()[5] == {"id": 5, "at": None}
    optimize(str(root), OptimizeSettings(file_bytes=1))
    assert files(root) == 6
    optimize(str(root), OptimizeSettings(codec="none"))
    assert files(root) == 2 and rows(root).equals(before)


def test_topic_of_several_generations_stays(tmp_path: Path) -> None:
    data = tmp_path / "data"
    root = lake(data, topics=2)
    shutil.rmtree(data)
    more(data, topics=1)
    exported(data, root, form=Form(format="delta"), settings=DELTA, new_generation=True)
    report = optimize(str(root))
    assert report.kept == ["orders.0"] and [one.topic for one in report.topics] == ["orders.1"]
    assert "orders.0: kept as it is" in report.to_text()
    assert differences(data, root) == (0, 4)


# -- interruptions


def test_interrupted_commit_is_completed_first(tmp_path: Path) -> None:
    data = tmp_path / "data"
    root = lake(data)
    path = "topic=orders.0/partition=0/date=2023-11-14/00000000000000000020-00000000000000000020.parquet"
    (root / path).write_bytes(b"unfinished")
    file = ExportedFile(path, 1, 10, 20, 20, None, None)
    pending = Commit(6, (Exported("orders.0", None, 0, 0, 20, 21, records=1, files=(file,)),))
    (root / layout.PENDING).write_bytes(pending.to_json())
    optimize(str(root))
    assert not (root / layout.PENDING).exists() and not (root / path).exists() and files(root) == 2
    assert differences(data, root) == (0, 20)


def test_files_without_their_transaction_are_no_rows(tmp_path: Path) -> None:
    """The state of a process that ended after the files were written, and before the commit."""
    data = tmp_path / "data"
    root = lake(data)
    copy = shutil.copytree(root, tmp_path / "copy")
    optimize(str(copy))
    new = [
        path.relative_to(copy)
        for path in copy.glob("topic=*/**/*.parquet")
        if not (root / path.relative_to(copy)).exists()
    ]
    assert len(new) == 2
    for path in new:
        shutil.copy(copy / path, root / path)
    assert differences(data, root) == (0, 20) and files(root) == 10
    assert optimize(str(root), OptimizeSettings(delete_old_hours=0)).deleted == 12
    assert differences(data, root) == (0, 20) and files(root) == 2


@pytest.mark.process
def test_process_killed(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    chance = random.Random(scaled(3))
    data = tmp_path / "data"
    whole = lake(data, runs=3, topics=6)
    before, child = rows(whole), str(SUPPORT / "pipeline" / "optimize_child.py")
    for turn in range(min(scaled(3), 20)):
        root = shutil.copytree(whole, tmp_path / str(turn))
        with subprocess.Popen([sys.executable, child, str(root)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"begun\n"
            log, written = root / "_delta_log", chance.randint(0, 5)
            while process.poll() is None and len(list(log.glob("*.json"))) < 3 + 1 + written:
                time.sleep(0.001)
            process.kill()
        assert rows(root).equals(before) and differences(data, root) == (0, 72)
        optimize(str(root))
        assert files(root) == 12 and rows(root).equals(before) and differences(data, root) == (0, 72)


# -- refusals, and the command


def test_other_folders_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, root = tmp_path / "data", tmp_path / "lake"
    more(data)
    exported(data, root, form=Form())
    assert pipeline(["optimize", str(root)]) == 2
    assert "plain Parquet, whose readers would see rows twice" in capsys.readouterr().err
    exported(data, tmp_path / "ice", form=Form(format="iceberg"), settings=Settings("iceberg"))
    assert pipeline(["optimize", str(tmp_path / "ice")]) == 2
    assert "system.rewrite_data_files" in capsys.readouterr().err
    assert pipeline(["optimize", str(data)]) == 2
    assert "is not the folder of an export" in capsys.readouterr().err


def test_invalid_regular_expression_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadError, match="is not a regular expression"):
        optimize(str(lake(tmp_path / "data")), OptimizeSettings(like="("))


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    root, report = lake(data, topics=2), tmp_path / "report.json"
    assert pipeline(["optimize", str(root), "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("orders.0: 10 files, ") and files(root) == 20
    assert pipeline(["optimize", str(root), "--topic", "orders.1", "--report", str(report)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("orders.1: 10 files, ") and "1 of 1, " in err and files(root) == 12
    assert json.loads(report.read_text())["topics"][0]["files_after"] == 2
    assert pipeline(["optimize", str(root), "--topic", "other"]) == 1
    assert "there is no topic other in" in capsys.readouterr().err
    for flag in ("--file-bytes", "--delete-old"):
        assert pipeline(["optimize", str(root), flag, "-1"]) == 2
    capsys.readouterr()
    with Committer(str(root), DELTA):
        assert pipeline(["optimize", str(root)]) == 1
    assert "is in use by another export" in capsys.readouterr().err
