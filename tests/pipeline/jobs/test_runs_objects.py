"""What interrupted exports left in an object store: found by its names, and removed as the next run would."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.pipeline.cli import pipeline
from ottla.pipeline.jobs.export import layout
from ottla.pipeline.jobs.export.commit import Settings, opener
from ottla.pipeline.jobs.export.iceberg import catalog_of, described
from ottla.pipeline.jobs.export.tasks import Form, Format
from ottla.pipeline.objects.files import ObjectFiles
from ottla.pipeline.objects.lock import Timing
from ottla.pipeline.objects.places import Place
from ottla.protocol.records.batch import Record
from ottla_testing.each import each
from ottla_testing.pipeline.export_samples import NOW_MS, a_log, exported
from ottla_testing.pipeline.object_server import BUCKET, KEYS, FakeClock, ObjectServer, object_server_process


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectServer]:
    with pytest.MonkeyPatch.context() as patch, object_server_process() as found:
        for name, value in KEYS.items():
            patch.setenv(name, value)
        yield found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs") / "data"
    a_log(root, "orders", 0, [[Record(n, NOW_MS, b"k", b"v", ()) for n in range(5)]])
    return root


class Slept(FakeClock):
    """A clock that calls `meanwhile` during each sleep."""

    def meanwhile(self) -> None:
        pass

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.meanwhile()


@pytest.fixture
def clock(store: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Slept:
    """The clock of the command's locks, so that nothing waits."""
    store.reset()
    found, files = Slept(), Place.files

    def timed(place: Place) -> ObjectFiles:
        made = files(place)
        made._timing = Timing(clock=found, sleep=found.sleep, renews=False)
        return made

    monkeypatch.setattr(Place, "files", timed)
    return found


def runs(capsys: pytest.CaptureFixture[str], store: ObjectServer, action: str, *paths: str, code: int = 0) -> list[str]:
    conf = [f"--store-conf={name}={value}" for name, value in store.conf.items()]
    assert pipeline(["runs", action, *paths, *conf]) == code
    out, err = capsys.readouterr()
    assert err == ""
    return out.splitlines()


def names(files: ObjectFiles) -> list[str]:
    return [one.path.removeprefix(f"{files.root}/") for one in files.below(files.root)]


def export(data: Path, store: ObjectServer, files: ObjectFiles, format: Format, **more: object) -> None:
    place = store.place(files.root.removeprefix(f"s3://{BUCKET}/"))
    form = Form(format=format)
    table = opener(files.root, form, None, place) if format == "delta" else None
    exported(data, files.root, files=files, form=form, settings=Settings(format), table=table, **more)  # type: ignore[arg-type]


def left_piece(store: ObjectServer, prefix: str, data: bytes = b"x") -> str:
    """Writes an object of a task that was not committed, and returns its URL."""
    files = store.files(prefix)
    files.put(path := f"{files.root}/{layout.UNFINISHED}/a.parquet", data)
    return path


@pytest.mark.process
@each("format", ["parquet", "delta"])
def test_killed_export_listed_and_undone(
    capsys: pytest.CaptureFixture[str], data: Path, store: ObjectServer, clock: Slept, format: Format
) -> None:
    """Killed before each of its requests: afterwards nothing but the export is left."""
    export(data, store, store.files(f"{format}/whole"), format)
    steps = len(store.reset())
    seen = set[str]()
    for step in range(steps):
        prefix = f"{format}/at-{step}"
        store.reset(step, "killed before")
        with suppress(Exception):
            export(data, store, store.files(prefix), format)
        store.reset()
        files = store.files(prefix)
        if not names(files):
            continue
        shown = runs(capsys, store, "list", files.root)
        assert runs(capsys, store, "list", files.root, code=0) == shown
        if shown == [f"{files.root}: no job has left anything"]:
            continue
        what = shown[0].removeprefix(f"{files.root}: export: ").partition(";")[0]
        seen.add(what)
        cleaned = runs(capsys, store, "clean", files.root)
        assert cleaned == [shown[0].replace(": export:", ": removed: export:")]
        left = {name for name in names(files) if name.startswith("_ottla/") and "/manifest/" not in name}
        assert left == {layout.SETTINGS}
        assert runs(capsys, store, "list", files.root) == [f"{files.root}: no job has left anything"]
        export(data, store, store.files(prefix), format)
    pieces, commit, lock = (
        "files of pieces that are not in the export",
        "an interrupted commit",
        ", with a lock: it runs, or was killed",
    )
    assert {f"{pieces}{lock}", f"{pieces} and {commit}{lock}"} <= seen


@pytest.mark.process
def test_folder_of_exports_and_report(
    capsys: pytest.CaptureFixture[str], data: Path, store: ObjectServer, clock: Slept, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        files = store.files(f"several/{name}")
        export(data, store, files, "parquet")
        left_piece(store, f"several/{name}", bytes(1000))
    store.files("several/c").put(f"s3://{BUCKET}/several/c/other", b"1")
    root, report = f"s3://{BUCKET}/several", tmp_path / "runs.json"
    shown = runs(capsys, store, "list", f"{root}/", "--report", str(report))
    assert [line.partition(";")[0] for line in shown] == [
        f"{root}/{name}: export: files of pieces that are not in the export" for name in ("a", "b")
    ]
    one = json.loads(report.read_text())["runs"][0]
    assert one.pop("changed") > NOW_MS
    assert one == {
        "kind": "export",
        "path": f"{root}/a",
        "what": "files of pieces that are not in the export",
        "files": 1,
        "bytes": 1000,
        "state": "left",
        "problem": None,
    }
    runs(capsys, store, "clean", root)
    assert runs(capsys, store, "list", root) == [f"{root}: no job has left anything"]


@pytest.mark.process
def test_running_export_kept(capsys: pytest.CaptureFixture[str], data: Path, store: ObjectServer, clock: Slept) -> None:
    files = store.files("running")
    export(data, store, files, "parquet")
    piece, files = left_piece(store, "running"), store.files("running", clock)
    lock = files.lock(f"{files.root}/{layout.LOCK}")
    clock.meanwhile = lock.renew  # type: ignore[method-assign]
    shown = runs(capsys, store, "clean", files.root, code=1)
    assert "which is alive; to break the lock, delete the object" in shown[1] and shown[1].startswith("  kept: ")
    assert files.exists(piece)
    lock.release()
    runs(capsys, store, "clean", files.root)
    assert not files.exists(piece)


@pytest.mark.process
def test_table_in_another_catalog_kept(
    capsys: pytest.CaptureFixture[str], data: Path, store: ObjectServer, clock: Slept, tmp_path: Path
) -> None:
    files, form = store.files("iceberg"), Form(format="iceberg")
    of = catalog_of(files.root, "raw.kafka", {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog"})
    settings = Settings("iceberg", table=described(of, is_own=False))
    table = opener(files.root, form, of, Place(files.root, tuple(sorted(store.conf.items()))))
    exported(data, files.root, files=files, form=form, settings=settings, table=table)
    piece = left_piece(store, "iceberg")
    shown = runs(capsys, store, "clean", files.root, code=1)
    assert shown[1].endswith("its table is raw.kafka, sql catalog: run that export again") and files.exists(piece)


@pytest.mark.process
@each(
    "arguments, message",
    [
        (["s3://no-such-bucket/x"], "cannot read s3://no-such-bucket/x: NoSuchBucket"),
        (["s3://lake/nothing-here"], "there is no object in s3://lake/nothing-here"),
        (["https://127.0.0.1:1/x"], "https://127.0.0.1:1/x can only be read"),
        (["tiered:s3://lake/a!/b"], "logs with tiered storage can only be read"),
    ],
)
def test_places_that_cannot_be_read_refused(
    capsys: pytest.CaptureFixture[str], store: ObjectServer, arguments: list[str], message: str
) -> None:
    conf = [f"--store-conf={name}={value}" for name, value in store.conf.items() if arguments[0].startswith("s3")]
    assert pipeline(["runs", "list", *arguments, *conf]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


def test_settings_of_a_store_need_a_url(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert pipeline(["runs", "list", str(tmp_path), "--store-conf", "region=a"]) == 2
    assert "settings of an object store need the URL of one" in capsys.readouterr().err
