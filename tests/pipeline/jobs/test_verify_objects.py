"""Exports in an object store compared with their logs: what differs is found, as in folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.pipeline.backend import Selection
from ottla.pipeline.jobs.export import layout
from ottla.pipeline.jobs.export.commit import Settings, opener
from ottla.pipeline.jobs.export.iceberg import catalog_of, described
from ottla.pipeline.jobs.export.manifest import ExportError
from ottla.pipeline.jobs.export.tasks import Form, Format
from ottla.pipeline.jobs.verify.compare import compare
from ottla.pipeline.jobs.verify.plan import plan
from ottla.pipeline.jobs.verify.report import VerifyReport
from ottla.pipeline.objects.files import ObjectFiles
from ottla.pipeline.objects.places import Place
from ottla.pipeline.readers.files import FileBackend
from ottla.protocol.records.batch import Record
from ottla_testing.each import each
from ottla_testing.pipeline.export_samples import DAY_MS, NOW_MS, a_log, exported
from ottla_testing.pipeline.object_server import KEYS, ObjectServer, object_server_process
from ottla_testing.pipeline.web_server import web_server

FORMATS: tuple[Format, ...] = ("parquet", "delta", "iceberg")
COUNT = 9


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectServer]:
    """Starts a server in a process of its own, for deltalake."""
    with pytest.MonkeyPatch.context() as patch, object_server_process() as found:
        for name, value in KEYS.items():
            patch.setenv(name, value)
        yield found


class Export:
    """An export of 9 records of two days in objects, and its comparison with the log."""

    def __init__(self, folder: Path, store: ObjectServer, kind: Format, name: str) -> None:
        self.folder, self.place, self.store = folder, store.place(f"{name}-{kind}"), store
        self.root = self.place.url
        self.catalog = catalog_of(self.root, "raw.t", {"type": "sql", "uri": f"sqlite:///{folder}/{kind}.db"})
        table = described(self.catalog, is_own=False) if kind == "iceberg" else None
        self.form, self.settings = Form(format=kind, rows_per_file=2), Settings(kind, table=table)
        if kind != "iceberg":
            self.catalog = None
        records = [[Record(n, NOW_MS + n % 2 * DAY_MS, None, b"v%d" % n, ())] for n in range(COUNT)]
        a_log(folder / "data", "orders", 0, records)
        self.run()

    @property
    def files(self) -> ObjectFiles:
        """The objects, without the lock of an export."""
        return self.store.files(self.root.rpartition("/")[2])

    def run(self) -> None:
        table: Any = opener(self.root, self.form, self.catalog, self.place)
        options = {"files": self.files, "form": self.form, "settings": self.settings, "table": table}
        exported(self.folder / "data", self.root, **options)

    def verified(self) -> VerifyReport:
        with FileBackend([str(self.folder / "data")], part_bytes=300) as logs:
            made = plan(logs, self.root, Selection(), self.catalog, place=self.place)
            report = VerifyReport(made)
            for check in made.checks:
                report.add(check, compare(check))
        return report

    def data_files(self) -> list[str]:
        return sorted(one.path for one in self.files.below(self.root) if "/topic=orders/" in one.path)


@each("kind", FORMATS)
def test_equal_and_one_file_is_gone_and_one_is_another(kind: Format, tmp_path: Path, store: ObjectServer) -> None:
    made = Export(tmp_path, store, kind, "changed")
    report = made.verified()
    (counts,) = (one.counts for one in report.partitions.values())
    assert (report.differences, counts.records, counts.rows) == (0, COUNT, COUNT)
    first, second, *_ = made.data_files()
    made.files.put(second, made.files.read_bytes(first))
    report = made.verified()
    (counts,) = (one.counts for one in report.partitions.values())
    assert counts.repeated and counts.missing
    made.files.remove_all([first])
    report = made.verified()
    assert f"{first.removeprefix(made.root)[1:]} is missing" in report.problems


def test_files_beside_the_manifest_and_of_another_size(tmp_path: Path, store: ObjectServer) -> None:
    made = Export(tmp_path, store, "parquet", "beside")
    first, second, *_ = made.data_files()
    made.files.put(f"{first.rpartition('/')[0]}/other.parquet", made.files.read_bytes(first))
    made.files.put(second, made.files.read_bytes(second)[:-1])
    problems = made.verified().problems
    assert len(problems) == 2 and any(one.endswith("other.parquet is not in the manifest") for one in problems)
    assert any("bytes, but was written with" in one for one in problems)


def test_export_to_a_folder_that_a_store_or_a_web_server_has(tmp_path: Path, store: ObjectServer) -> None:
    made = Export(tmp_path, store, "parquet", "copied")
    lake, there = tmp_path / "lake", store.files("copied-of-a-folder")
    exported(tmp_path / "data", lake, form=made.form, settings=made.settings)
    assert (lake / layout.LOCK).stat().st_size == 0
    for path in (one for one in lake.rglob("*") if one.is_file()):
        there.put(f"{there.root}/{path.relative_to(lake).as_posix()}", path.read_bytes())
    made.root, made.place = there.root, store.place("copied-of-a-folder")
    assert made.verified().to_text().endswith(f"9 records, 9 rows in {made.root}: no difference\n")
    with web_server(lake) as server:
        made.root, made.place = server.url, Place.of(server.url)
        assert made.verified().differences == 0
        first, *_ = sorted(lake.rglob("*.parquet"))
        first.unlink()
        assert f"{first.relative_to(lake).as_posix()} is missing" in made.verified().problems


@each("left", [layout.LOCK, layout.PENDING])
def test_running_or_interrupted_export_is_refused(left: str, tmp_path: Path, store: ObjectServer) -> None:
    made = Export(tmp_path, store, "parquet", f"left-{left.rpartition('/')[2]}")
    made.files.put(f"{made.root}/{left}", b"{}")
    with pytest.raises(ExportError, match=r"is in use by an export|has an interrupted commit"):
        made.verified()


def test_place_without_an_export_is_refused(store: ObjectServer, tmp_path: Path) -> None:
    place = store.place("nothing")
    with FileBackend([str(tmp_path)]) as logs, pytest.raises(ExportError, match="is not the folder of an export"):
        plan(logs, place.url, Selection(), place=place)
