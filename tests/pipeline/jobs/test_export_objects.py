"""Exports to an object store, interrupted at every request: each row once, and no document names a missing object.

The store is a server of S3's protocol in this process.
"""

from __future__ import annotations

import io
import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from ottla.pipeline.cli import pipeline
from ottla.pipeline.jobs.export import commit as committing
from ottla.pipeline.jobs.export import layout
from ottla.pipeline.jobs.export.commit import ObjectCommitter, Settings, opener
from ottla.pipeline.jobs.export.delta import DeltaTable
from ottla.pipeline.jobs.export.iceberg import catalog_of, described
from ottla.pipeline.jobs.export.job import ExportSettings
from ottla.pipeline.jobs.export.manifest import Commit, ExportError, exported_files
from ottla.pipeline.jobs.export.report import ExportReport
from ottla.pipeline.jobs.export.tasks import Form
from ottla.pipeline.jobs.export.value_columns import Decoding
from ottla.pipeline.jobs.optimize.job import OptimizeSettings, optimize
from ottla.pipeline.objects.files import ObjectFiles
from ottla.protocol.records.batch import Record
from ottla_testing.pipeline.export_samples import DAY_MS, NOW_MS, a_log, exported, rows_of
from ottla_testing.pipeline.object_server import (
    BUCKET,
    KEYS,
    FakeClock,
    Fault,
    ObjectServer,
    object_server,
    object_server_process,
)
from ottla_testing.pipeline.read_samples import Row

SMALL = Form(file_bytes=400)
DELTA = Form(file_bytes=400, format="delta")


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    with pytest.MonkeyPatch.context() as patch, object_server() as found:
        for name, value in KEYS.items():
            patch.setenv(name, value)
        yield found


@pytest.fixture(scope="module")
def other(server: ObjectServer) -> Iterator[ObjectServer]:
    """Starts a server for deltalake, which waits for it without releasing Python's lock."""
    with object_server_process() as found:
        yield found


@pytest.fixture
def store(server: ObjectServer) -> ObjectServer:
    server.reset()
    return server


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


@pytest.fixture(scope="module")
def expected(source: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    from ottla_testing.pipeline.export_samples import checked

    out = tmp_path_factory.mktemp("export") / "out"
    exported(source, out, form=SMALL)
    return checked(out)


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committing, "GROUP_PIECES", 2)


def run(source: Path, files: ObjectFiles, **options: Any) -> ExportReport:
    return exported(source, files.root, files=files, **{"form": SMALL, **options})


def objects(files: ObjectFiles) -> list[str]:
    """Returns the names of all objects below the root."""
    return [one.path.removeprefix(f"{files.root}/") for one in files.below(files.root)]


def visible(files: ObjectFiles) -> list[str]:
    """Returns the objects that a reader takes for a part of the table."""
    return [name for name in objects(files) if not name.startswith(("_", "."))]


def rows(files: ObjectFiles) -> list[Row]:
    def tables() -> Iterator[Any]:
        for path in visible(files):
            folder, _, name = path.rpartition("/")
            place, of = layout.place(folder), layout.file_name(name)
            assert place is not None and of is not None
            yield place, of, pq.read_table(io.BytesIO(files.read_bytes(f"{files.root}/{path}")))

    return rows_of(tables())


def consistent(files: ObjectFiles, expected: list[Row]) -> None:
    """Checks what holds at any time: rows are there at most once, and documents name existing objects."""
    found = rows(files)
    assert len({row[:3] for row in found}) == len(found) and set(found) <= set(expected)
    assert {file.path for _, file in exported_files(files, files.root)} <= set(visible(files))


def complete(files: ObjectFiles, expected: list[Row]) -> None:
    """Checks a complete export: no other object is left."""
    assert rows(files) == expected
    assert sorted(file.path for _, file in exported_files(files, files.root)) == visible(files)
    left = {name for name in objects(files) if name.startswith("_ottla/") and "/manifest/" not in name}
    assert left == {layout.SETTINGS}


def steps_of(source: Path, store: ObjectServer, **options: Any) -> list[str]:
    run(source, store.files("steps"), **options)
    log = list(store.log)
    store.files("steps").remove_all([f"s3://{BUCKET}/steps/{name}" for name in objects(store.files("steps"))])
    return log


@pytest.mark.parametrize("fault", get_args(Fault))
def test_export_interrupted_at_every_request(
    source: Path, expected: list[Row], store: ObjectServer, fault: Fault, scaled: Callable[[int], int]
) -> None:
    steps = len(steps_of(source, store))
    assert steps > 25
    chosen = range(steps) if scaled(1) > 1 else sorted(random.Random().sample(range(steps), 7))
    for step in chosen:
        files = store.files(f"{fault.replace(' ', '-')}-{step}")
        store.reset(step, fault)
        if fault in ("busy", "lost"):
            run(source, files)
        else:
            with suppress(OSError, ExportError):  # deleting at the end may fail without an error
                run(source, files)
                assert step >= steps - 4
        assert len(store.log) > step
        store.reset()
        files = store.files(files.root.rpartition("/")[2])
        consistent(files, expected)
        run(source, files, form=Form(file_bytes=random.choice((200, 2000))), part_bytes=100)
        complete(files, expected)
        assert run(source, files).records == 0


def test_export_interrupted_twice(
    source: Path, expected: list[Row], store: ObjectServer, scaled: Callable[[int], int]
) -> None:
    """The recovery of an interrupted run is interrupted again, each at a random request."""
    rng = random.Random(6)
    for turn in range(scaled(4)):
        for _ in range(3):
            store.reset(rng.randrange(40), rng.choice(("killed before", "killed after")))
            with suppress(OSError, ExportError):
                run(source, store.files(f"twice-{turn}"))
            store.reset()
            consistent(store.files(f"twice-{turn}"), expected)
        run(source, store.files(f"twice-{turn}"))
        complete(store.files(f"twice-{turn}"), expected)


def test_export_owner_continues_after_it_lost_its_lock(
    source: Path, expected: list[Row], store: ObjectServer, scaled: Callable[[int], int]
) -> None:
    """While a request of the first export waits, a second one takes its lock over and exports everything; then the
    first continues, as after a pause of its machine that its clock did not see."""
    other = {"form": Form(file_bytes=2000), "part_bytes": 100}  # with files of its own names
    steps = steps_of(source, store)
    begin = next(number for number, line in enumerate(steps) if "HTTP_IF_NONE_MATCH" in line) + 4
    intention = next(number for number, line in enumerate(steps) if line.startswith("PUT") and "pending" in line)
    document = next(number for number, line in enumerate(steps) if line.startswith("PUT") and "/manifest/" in line)
    chosen = list(range(begin, len(steps)))
    for step in chosen if scaled(1) > 1 else sorted(random.sample(chosen, 6)):
        prefix = f"late-{step}"
        store.reset(step)
        store.meanwhile = lambda prefix=prefix: run(source, store.files(prefix), **other)
        with suppress(OSError, ExportError):
            run(source, store.files(prefix))
            assert not intention <= step <= document
        store.reset()
        assert rows(store.files(prefix)) == expected
        consistent(store.files(prefix), expected)
        run(source, store.files(prefix))
        complete(store.files(prefix), expected)


def test_export_owner_continues_after_a_recovery(
    source: Path, expected: list[Row], store: ObjectServer, scaled: Callable[[int], int]
) -> None:
    """As before, but the second process only recovers: what it undid can no longer be committed."""
    steps = steps_of(source, store)
    document = next(number for number, line in enumerate(steps) if line.startswith("PUT") and "/manifest/" in line)
    for step in range(document - 5 if scaled(1) > 1 else document - 1, document + 1):
        files = store.files(f"recovered-{step}")
        store.reset(step)
        store.meanwhile = lambda files=files: ObjectCommitter(
            files.root, Settings(), files=store.files(files.root.rpartition("/")[2])
        ).close()
        with pytest.raises((OSError, ExportError)):
            run(source, files)
        store.reset()
        files = store.files(f"recovered-{step}")
        assert not rows(files)
        consistent(files, expected)
        run(source, files)
        complete(files, expected)


def test_export_requests_of_a_commit(source: Path, store: ObjectServer) -> None:
    """A copy for each file, and four more: the intention, the lock, the document, and one that deletes."""
    log = steps_of(source, store)
    begin = next(number for number, line in enumerate(log) if "pending.json" in line and line.startswith("PUT"))
    end = next(number for number, line in enumerate(log) if line.startswith("POST"))
    commit = [line for line in log[begin : end + 1] if "/unfinished/" not in line]
    copies = [line for line in commit if "COPY_SOURCE" in line]
    assert len(copies) == 3 and len(commit) == len(copies) + 4
    assert "manifest/" in commit[-2] and commit[-2].endswith("HTTP_IF_NONE_MATCH")


def test_export_documents_are_read_in_parallel(source: Path, store: ObjectServer) -> None:
    files = store.files("many")
    run(source, files)
    number = len(files.list(f"{files.root}/{layout.MANIFEST}"))
    for more in range(number + 1, 60):
        document = Commit(more, ()).to_json()
        store.files("many").put(f"{files.root}/{layout.MANIFEST}/{more:020d}.json", document)
    store.reset()
    assert run(source, store.files("many")).records == 0
    assert sum("/manifest/0" in line for line in store.log) == 59


# --- the lock


def test_lock_of_living_export_refused(source: Path, store: ObjectServer) -> None:
    files = store.files("lock")
    with ObjectCommitter(files.root, Settings(), files=files):
        lock = files._lock
        assert lock is not None
        clock = FakeClock()
        clock.sleep = lambda seconds: lock.renew()  # type: ignore[method-assign]
        with pytest.raises(ExportError, match=r"in use by another export: locked by process \d+ on .* since 20"):
            run(source, store.files("lock", clock))
        assert not visible(files)
    assert run(source, store.files("lock")).records == 18


def test_lock_taken_over_after_a_lease(source: Path, store: ObjectServer) -> None:
    dead = store.files("dead")
    dead.lock(f"{dead.root}/{layout.LOCK}")
    clock = FakeClock()
    assert run(source, store.files("dead", clock)).records == 18
    assert 60 <= clock.now < 70


def test_lock_lost_stops_its_owner(source: Path, store: ObjectServer) -> None:
    clock = FakeClock()
    files = store.files("lost", clock)
    with (
        pytest.raises(OSError, match="not renewed in time"),
        ObjectCommitter(files.root, Settings(), files=files) as opened,
    ):
        opened.skip([])
        clock.now += 46
        files.put(f"{files.root}/x", b"")
    broken = store.files("broken", FakeClock())
    lock = broken.lock(f"{broken.root}/{layout.LOCK}")
    store.files("broken").remove(lock.path)
    with pytest.raises(OSError, match="another process has the lock"):
        lock.renew()
    with pytest.raises(OSError, match="or was broken"):
        broken.put(f"{broken.root}/x", b"")
    assert not broken.exists(f"{broken.root}/x")


def test_lock_renewed_though_a_response_was_lost(store: ObjectServer) -> None:
    clock = FakeClock()
    files = store.files("renewed", clock)
    lock = files.lock(f"{files.root}/lock")
    for _ in range(5):
        clock.now += 40
        store.reset(0, "lost")
        lock.renew()
        lock.check()
    store.reset(0, "refused")
    with pytest.raises(PermissionError):
        lock.renew()
    store.reset()
    clock.now += 50
    with pytest.raises(OSError, match="not renewed in time"):
        lock.check()
    lock.renew()  # no other process took it meanwhile
    lock.check()
    lock.release()
    assert not objects(files)


def test_lock_needs_a_store_that_obeys_conditions() -> None:
    from obstore.store import MemoryStore

    class Ignoring(ObjectFiles):
        def create(self, path: str, data: bytes) -> str:
            self.put(path, data)
            return ""

    with pytest.raises(OSError, match="ignores If-None-Match"):
        Ignoring("memory://", MemoryStore()).lock("memory:///lock")


# --- Delta


def delta(files: ObjectFiles, store: ObjectServer) -> dict[str, Any]:
    place = store.place(files.root.rpartition("/")[2])
    table = lambda: DeltaTable(files.root, DELTA.schema, place)  # noqa: E731
    return {"form": DELTA, "settings": Settings("delta"), "table": table}


@pytest.mark.process
def test_export_delta_interrupted(
    source: Path, expected: list[Row], other: ObjectServer, scaled: Callable[[int], int]
) -> None:
    """The table and the manifest have the same files, each once, wherever a commit was interrupted."""
    from deltalake import DeltaTable as Lake

    files = other.files("delta")
    run(source, files, **delta(files, other))
    steps, store = len(other.reset()), other
    for step in range(steps) if scaled(1) > 1 else sorted(random.sample(range(steps), 6)):
        files = store.files(f"delta-{step}")
        store.reset(step, random.choice(("killed before", "killed after")))
        with suppress(OSError, ExportError):
            run(source, files, **delta(files, store))
        store.reset()
        files = store.files(f"delta-{step}")
        for _ in range(2):
            run(source, files, **delta(files, store))
        named = sorted(file.path for _, file in exported_files(files, files.root))
        table = Lake(files.root, storage_options=delta_options(store))
        assert sorted(uri.removeprefix(f"{files.root}/") for uri in table.file_uris()) == named
        assert sorted(name for name in visible(files) if name.endswith(".parquet")) == named
        read = table.to_pyarrow_table().sort_by([("partition", "ascending"), ("offset", "ascending")])
        assert read.column("value").to_pylist() == [row.value for row in expected]


@pytest.mark.process
def test_files_of_a_table_merged_in_store(tmp_path: Path, other: ObjectServer) -> None:
    """Old files are deleted, but nothing of the export; the next export continues."""
    files = other.files("merged")
    for at in range(0, 9, 3):
        a_log(tmp_path / "data", "orders", 0, [[Record(at + n, NOW_MS, None, b"v", ()) for n in range(3)]])
        run(tmp_path / "data", files, **delta(files, other))
    own = files.list(f"{files.root}/{layout.MANIFEST}")
    report = optimize(files.root, OptimizeSettings(store_conf=other.conf, delete_old_hours=0))
    assert (report.topics[0].files, report.topics[0].files_after, report.deleted) == (3, 1, 3)
    assert len([name for name in visible(files) if name.endswith(".parquet")]) == 1
    assert files.list(f"{files.root}/{layout.MANIFEST}") == own and files.exists(f"{files.root}/{layout.SETTINGS}")
    a_log(tmp_path / "data", "orders", 0, [[Record(9, NOW_MS, None, b"v", ())]])
    added = run(tmp_path / "data", files, **delta(files, other))
    assert (added.records, added.skipped) == (1, 9)


@pytest.mark.process
def test_export_new_columns_in_store(source: Path, other: ObjectServer) -> None:
    """The settings of the folder, an object, are replaced."""
    files = other.files("columns")

    def once(decoding: Decoding | None, *, add: bool) -> ExportReport:
        settings = ExportSettings(format="delta", decoding=decoding, add_columns=add)
        form = settings.form()
        table = opener(files.root, form, None, other.place("columns"))
        return run(source, files, form=form, settings=settings.of_folder(), table=table)

    once(None, add=False)
    for _ in range(2):
        assert once(Decoding.json(), add=True).records == 0
    assert once(Decoding.json(), add=False).records == 0
    with pytest.raises(ExportError, match="with decoding json, not none"):
        once(None, add=False)
    from deltalake import DeltaTable as Lake

    table = Lake(files.root, storage_options=delta_options(other))
    assert "decoded" in [one.name for one in table.schema().fields]


def delta_options(store: ObjectServer) -> dict[str, str]:
    return store.place("x").options()


# --- Iceberg

ICEBERG = Form(file_bytes=400, format="iceberg")


def iceberg_table(files: ObjectFiles, store: ObjectServer, database: Path) -> dict[str, Any]:
    place = store.place(files.root.rpartition("/")[2])
    of = catalog_of(files.root, "raw.kafka", {"type": "sql", "uri": f"sqlite:///{database}"})
    settings = Settings("iceberg", table=described(of, is_own=False))
    return {"form": ICEBERG, "settings": settings, "table": opener(files.root, ICEBERG, of, place)}


def iceberg_values(files: ObjectFiles, store: ObjectServer, database: Path) -> tuple[list[str], list[bytes]]:
    """Returns the files and the values of a table as another program reads it, which has its own settings."""
    more = {"s3.endpoint": store.url, "s3.region": "us-east-1"}
    catalog = load_catalog("ottla", type="sql", uri=f"sqlite:///{database}", **more)
    try:
        table = catalog.load_table("raw.kafka")
        read = table.scan().to_arrow().sort_by([("partition", "ascending"), ("offset", "ascending")])
        paths = [task.file.file_path for task in table.scan().plan_files()]
        return sorted(path.removeprefix(f"{files.root}/") for path in paths), read.column("value").to_pylist()
    finally:
        catalog.close()


@pytest.mark.process
def test_export_iceberg_interrupted(
    source: Path, expected: list[Row], other: ObjectServer, tmp_path: Path, scaled: Callable[[int], int]
) -> None:
    """The table and the manifest have the same files, each once, wherever a commit was interrupted."""
    store, values = other, [row.value for row in expected]
    files = store.files("iceberg")
    run(source, files, **iceberg_table(files, store, tmp_path / "first"))
    steps = len(store.reset())
    assert iceberg_values(files, store, tmp_path / "first")[1] == values
    for step in range(steps) if scaled(1) > 1 else sorted(random.sample(range(steps), 6)):
        files, database = store.files(f"iceberg-{step}"), tmp_path / f"{step}"
        store.reset(step, random.choice(get_args(Fault)))
        with suppress(OSError, ExportError):
            run(source, files, **iceberg_table(files, store, database))
        store.reset()
        files = store.files(f"iceberg-{step}")
        for _ in range(2):
            run(source, files, **iceberg_table(files, store, database))
        named = sorted(file.path for _, file in exported_files(files, files.root))
        assert iceberg_values(files, store, database) == (named, values)
        assert sorted(name for name in visible(files) if name.endswith(".parquet")) == named


# --- errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "https://host/x"], "https://host/x can only be read: objects are written to s3, s3a, gs,"),
        (["--to", "hdfs://host/x"], "it must be a folder mounted here and on the workers, or the URL of objects"),
        (
            ["--to", "s3://lake/x", "--format", "iceberg"],
            "an Iceberg table in an object store needs a catalog",
        ),
        (["--to", "s3://lake/x", "--file-bytes", str(5 << 30)], "it must be 4294967296 or less in an object store"),
        (["--to", "s3://lake/x", "--store-conf", "secret_access_key=abc"], "credentials come from the environment"),
        (["--to", "s3://lake/x", "--store-conf", "colour=abc"], "'colour' is not valid"),
        (["--to", "out", "--store-conf", "region=x"], "settings of an object store do not apply to the folder"),
    ],
)
def test_command_refuses_invalid_arguments(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert pipeline(["export", str(source), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and "abc" not in error


def test_errors_have_no_secrets(source: Path, store: ObjectServer) -> None:
    files = store.files("errors")
    store.reset(3, "refused")
    with pytest.raises(PermissionError) as raised:
        run(source, files)
    text = f"{raised.value!r} {raised.value.__cause__!r} {raised.value.filename}"
    assert re.search(r"status 403", text) and f"s3://{BUCKET}/errors/" in text
    assert not any(secret in text for secret in (*KEYS.values(), "Signature", "Debug"))


def test_export_to_missing_bucket(source: Path, store: ObjectServer) -> None:
    from ottla.pipeline.objects.places import Place

    files = Place.of("s3://no-such-bucket/x", store.conf).files()
    with pytest.raises(OSError, match="NoSuchBucket"):
        run(source, files)
