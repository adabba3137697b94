"""`ottla pipeline export` without Spark: arguments, errors before it starts, plans, and reports."""

from __future__ import annotations

import argparse
import errno
import json
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from ottla.broker import Embedded
from ottla.pipeline.backend import ReadError, TopicPartition
from ottla.pipeline.cli import pipeline
from ottla.pipeline.jobs import spark_tasks
from ottla.pipeline.jobs.command import UsageError
from ottla.pipeline.jobs.export import arguments as asking
from ottla.pipeline.jobs.export import commit, decoding_arguments
from ottla.pipeline.jobs.export.job import ExportSettings
from ottla.pipeline.jobs.export.manifest import ExportError
from ottla.pipeline.jobs.export.plan import FROM_START, TO_END
from ottla.pipeline.jobs.export.value_columns import Decoding
from ottla.pipeline.offsets import AtOffsets, AtTime, OptionError
from ottla.protocol.records.batch import Record
from ottla_testing.pipeline.export_samples import NOW_MS, a_log, checked, iceberg, visible
from ottla_testing.pipeline.wire_world import config

EXPORT = import_module("ottla.pipeline.jobs.export.job")
SESSION = import_module("ottla.pipeline.session")
SPARK: Any = SimpleNamespace(stop=lambda: None)


@pytest.fixture
def logs(tmp_path: Path) -> str:
    for topic in ("orders", "users"):
        records = [Record(n, NOW_MS + n, b"k", b'{"id":%d}' % n, ()) for n in range(10)]
        a_log(tmp_path / "data", topic, 0, [records])
    return str(tmp_path / "data")


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the tasks here, one after the other."""

    def run(spark: Any, items: Sequence[Any], task: Any, *, on_progress: Any, **_: Any) -> Iterator[Any]:
        for item in items:
            yield item, task(item)
        if on_progress is not None:
            on_progress(spark_tasks.Progress(len(items), len(items), 10**6, 10**6, 0.5, True))

    monkeypatch.setattr(spark_tasks, "run", run)
    monkeypatch.setattr(spark_tasks, "tasks", lambda spark, items, **_: len(items))
    monkeypatch.setattr(SESSION, "session", lambda master=None, **conf: SPARK)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    try:
        found = pipeline(["export", *arguments])
    except SystemExit as stopped:
        found = stopped.code
    out, err = capsys.readouterr()
    assert (found, out, err.count("\n")) == (code, "", 1), err
    return err.removesuffix("\n")


def test_limit_offsets_and_times() -> None:
    assert asking.limit("Earliest", "--from") == FROM_START and asking.limit(" latest ", "--from") == TO_END
    for text in ("2023-11-14T22:13:20Z", "2023-11-14 22:13:20", "2023-11-14T23:13:20+01:00", str(NOW_MS)):
        assert asking.limit(text, "--from") == AtTime(NOW_MS)
    assert asking.limit("2023-11-14", "--from") == asking.limit("20231114", "--from") == AtTime(1_699_920_000_000)
    assert asking.limit('{"a": {"1": 7}}', "--from") == AtOffsets({TopicPartition("a", 1): 7})
    with pytest.raises(ExportError, match=r"^--from is 'soon': it must be earliest, latest, a time such as"):
        asking.limit("soon", "--from")
    with pytest.raises(OptionError, match="--until is"):
        asking.limit("{", "--until")


def test_folder_and_schema_arguments(tmp_path: Path) -> None:
    assert asking.folder("file:///a%20b/c") == "/a b/c" and asking.folder("/a/../b") == "/b"
    assert asking.folder("s3://bucket/x/") == "s3://bucket/x"
    for path in ("hdfs:/x", "file://host/x"):
        with pytest.raises(ExportError, match=f"cannot export to {path}: it must be a folder mounted"):
            asking.folder(path)
    parser = argparse.ArgumentParser()
    decoding_arguments.add(parser, to="")
    (tmp_path / "schema").write_text('"string"')
    parsed = parser.parse_args(
        ["--decode=json", f"--schema=@{tmp_path}/schema", "--decode-key=json", "--key-schema=a INT"]
    )
    decoding_arguments.check(parsed)
    assert parsed.schema == '"string"' and parsed.key_schema == "a INT"
    parsed.key_schema = "@/nowhere"
    with pytest.raises(UsageError, match="cannot read the schema in /nowhere"):
        decoding_arguments.check(parsed)


def test_export_invalid_arguments_refused(
    capsys: pytest.CaptureFixture[str], logs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = ["--to", str(tmp_path / "out")]
    for arguments, problem in (
        ([logs], "the following arguments are required: --to"),
        (to, "give either PATH or --bootstrap-server"),
        ([logs, "--bootstrap", "a:1", *to], "give either PATH or --bootstrap-server"),
        ([logs, "--kafka", "a=b", *to], "--kafka and --command-config need --bootstrap"),
        ([logs, "--schema", "a INT", *to], "--schema needs --decode"),
        ([logs, "--decode", "avro", *to], "--decode avro needs --schema"),
        (
            [logs, "--decode", "avro", "--schema", "x", *to],
            "it is not an Avro schema: Expecting value: line 1 column 1",
        ),
        ([logs, "--add-columns", *to], "--add-columns needs --format delta or iceberg: files of Parquet have no"),
        ([logs, "--table", "a.b", *to], "--table needs --format iceberg"),
        ([logs, "--format", "iceberg", "--table", "a", *to], "--table a: it must be NAMESPACE.NAME"),
        ([logs, "--format", "iceberg", "--catalog", "rest", *to], "--catalog rest needs --catalog-conf uri=..."),
        ([logs, "--rows-per-file", "0", *to], "--rows-per-file 0: it must be 1 or more"),
        ([logs, "--from", "soon", *to], "--from is 'soon': it must be earliest"),
        ([logs, "--topic", "missing", *to], "there is no topic missing in"),
        ([logs, "--topics", "(", *to], "--topics (: missing )"),
        ([logs, "--to", "hdfs://a"], "cannot export to hdfs://a: it must be a folder mounted here"),
        ([str(tmp_path / "nowhere"), *to], "cannot read"),
    ):
        assert problem in refused(capsys, *arguments)
    from ottla.pipeline import extras

    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    assert refused(capsys, logs, "--format", "delta", *to).endswith("pip install 'ottla[delta]'")
    assert refused(capsys, logs, "--format", "iceberg", *to).endswith("pip install 'ottla[iceberg]'")
    assert refused(capsys, logs, "--decode", "avro", "--schema", "{}", *to).endswith("pip install 'ottla[avro]'")
    assert not (tmp_path / "out").exists()


def test_export_run(capsys: pytest.CaptureFixture[str], logs: str, tmp_path: Path) -> None:
    out, place = tmp_path / "out", tmp_path / "report.json"
    arguments = ["export", logs, "--to", str(out), "--topic", "orders", "--rows-per-file", "8", "--codec", "snappy"]
    assert pipeline([*arguments, "--report", str(place)]) == 0
    printed, err = capsys.readouterr()
    size = sum((out / path).stat().st_size for path in visible(out))
    assert printed == (
        f"orders: 10 records in 2 files, {size:,} bytes\n  partition 0: offsets 0 to 9\n"
        f"10 records in 2 files, {size:,} bytes in {out}\n"
    )
    assert err.startswith(f"ottla pipeline export: 1 topics, 10 offsets to {out}, about ")
    assert ": 1 pieces in 1 tasks; 0 offsets exported before\n" in err
    report = json.loads(place.read_text())
    assert report["total"] | {"bytes": 0} == {
        "records": 10,
        "files": 2,
        "bytes": 0,
        "skipped": 0,
        "undecoded": 0,
        "gone": 0,
    }
    assert report["topics"][0]["partitions"][0]["offsets"] == [[0, 10]]
    assert pipeline([*arguments, "--quiet"]) == 0
    printed, err = capsys.readouterr()
    assert printed.startswith("orders: 0 records in 0 files, 0 bytes, 10 offsets exported before\n") and not err
    assert pipeline(["export", logs, "--to", str(out), "--quiet", "--decode", "json"]) == 1
    assert "with decoding none, not json" in capsys.readouterr().err


def test_export_to_iceberg(capsys: pytest.CaptureFixture[str], logs: str, tmp_path: Path) -> None:
    arguments = ["export", logs, "--to", str(tmp_path / "own"), "--format", "iceberg", "--quiet"]
    for _ in range(2):
        assert pipeline(arguments) == 0
    with iceberg(tmp_path / "own") as table:
        assert table.scan().to_arrow().num_rows == 20
    where = ["--table", "a.b", "--catalog", "sql", "--catalog-conf", f"uri=sqlite:///{tmp_path}/c.db"]
    capsys.readouterr()
    assert "with table ottla.export, own catalog, not a.b, sql catalog" in refused(
        capsys, *arguments[1:], *where, code=1
    )
    arguments[3] = str(tmp_path / "other")
    assert pipeline([*arguments, *where, "--decode", "json"]) == 0
    with iceberg(tmp_path / "other", "a.b", uri=f"sqlite:///{tmp_path}/c.db") as table:
        assert table.scan().to_arrow().column("decoded").to_pylist()[0] == '{"id":0}'


def test_verify_run(capsys: pytest.CaptureFixture[str], logs: str, tmp_path: Path) -> None:
    lake, place = tmp_path / "lake", tmp_path / "report.json"
    assert pipeline(["export", logs, "--to", str(lake), "--format", "iceberg", "--quiet"]) == 0
    capsys.readouterr()
    arguments = ["verify", logs, "--export", str(lake), "--report", str(place)]
    assert pipeline(arguments) == 0
    out, err = capsys.readouterr()
    assert out.endswith(f"20 records, 20 rows in {lake}: no difference\n") and "2 partitions, about " in err
    with iceberg(lake) as table:
        table.delete("offset = 4 and topic = 'orders'")
    assert pipeline([*arguments, "--dry-run"]) == 0
    assert pipeline([*arguments, "--topic", "users"]) == 0
    capsys.readouterr()
    assert pipeline([*arguments, "--quiet"]) == 1
    assert "  ! offset 4: not in the export\n" in capsys.readouterr().out
    assert json.loads(place.read_text())["differences"] == 1
    for more, problem in (
        (["--table", "b"], "--table b: it must be NAMESPACE.NAME"),
        (["--bootstrap-server", "a:1"], "give either PATH or --bootstrap-server"),
        (["--export", str(tmp_path)], f"{tmp_path} is not the folder of an export: it has no _ottla/export.json"),
    ):
        assert pipeline([*arguments, *more]) == 2
        assert problem in capsys.readouterr().err


def test_export_dry_run_changes_nothing(capsys: pytest.CaptureFixture[str], logs: str, tmp_path: Path) -> None:
    arguments = ["export", logs, "--to", str(tmp_path / "out")]
    assert pipeline([*arguments, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"{topic}: 1 partitions, 10 offsets, 0 exported before" for topic in ("orders", "users")]
    assert lines[2].startswith(f"2 topics, 20 offsets to {tmp_path}/out, about ") and len(lines) == 3
    assert not (tmp_path / "out").exists()
    assert pipeline([*arguments, "--topics", "u.*", "--quiet"]) == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    capsys.readouterr()
    assert pipeline([*arguments, "--dry-run"]) == 0
    assert "users: 1 partitions, 0 offsets, 10 exported before" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_export_from_running_brokers(capsys: pytest.CaptureFixture[str], broker: Embedded, tmp_path: Path) -> None:
    address = config(broker)["bootstrap.servers"]
    arguments = ["export", "--bootstrap", address, "--kafka", "client.id=x", "--topic", "v2-zstd", "--quiet"]
    assert pipeline([*arguments, "--to", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.startswith("v2-zstd: 120 records in 1 file, ")
    assert len(checked(tmp_path / "out")) == 120


def test_export_full_disk_names_folder(
    capsys: pytest.CaptureFixture[str], logs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(commit, "write_atomically", full)
    message = refused(capsys, logs, "--to", str(tmp_path / "out"), "--quiet", code=1)
    assert message == f"ottla pipeline export: cannot export to {tmp_path}/out: No space left on device"


def test_export_invalid_setting_refused(logs: str, tmp_path: Path) -> None:
    wrong: tuple[tuple[dict[str, Any], str], ...] = (
        ({"format": "orc"}, "format is 'orc': it must be parquet, delta or iceberg"),
        ({"codec": "lzo"}, "codec is 'lzo': it must be zstd, snappy, lz4, gzip or none"),
        ({"on_undecodable": "skip"}, "on_undecodable is 'skip': it must be null, fail or dead-letter"),
        ({"isolation": "none"}, "isolation is 'none': it must be read_committed or read_uncommitted"),
        ({"rows_per_file": 0}, "file_bytes and rows_per_file must be 1 or more"),
        ({"like": "("}, "is not a regular expression"),
    )
    for options, why in wrong:
        with pytest.raises(ReadError, match=why):
            EXPORT.export(SPARK, logs, str(tmp_path / "out"), ExportSettings(**options))
    decoding = Decoding.json(pa.schema([("id", pa.int64())]))
    report = EXPORT.export(
        SPARK,
        [logs],
        str(tmp_path / "out"),
        ExportSettings(topics=["orders", "users"], like="o.*", decoding=decoding, format="delta"),
    )
    assert (list(report.topics), report.records, report.undecoded) == (["orders"], 10, 0)
