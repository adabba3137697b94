"""Unusual folders: unreadable ones, thousands of tiny segments, links, reports."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from ottla.pipeline.backend import OffsetRange, ReadError, Selection, Wanted
from ottla.pipeline.cli import put, spark_start
from ottla.pipeline.jobs.audit.steps import Audit
from ottla.pipeline.jobs.census.plan import plan
from ottla.pipeline.offsets import split
from ottla.pipeline.readers.files import BatchBackend, FileBackend, pieces
from ottla.pipeline.sources.source import BatchesSource, LogSource
from ottla.storage import inspect
from ottla.storage.errors import StorageError
from ottla_testing.patience import PATIENCE_S
from ottla_testing.pipeline.logs_samples import rows, wanted, written


@pytest.fixture
def barred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a data directory of two partitions, the second of which this user may not list."""
    for name in ("orders-0", "orders-1"):
        written(tmp_path / name, [(2, 0, 3)])
    listed = os.listdir

    def listing(path: Any = ".") -> Any:
        if str(path).endswith("orders-1"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "listdir", listing)
    return tmp_path


def test_unreadable_partition_raises(barred: Path) -> None:
    """It was skipped silently: a count of the directory was too low."""
    message = f"^cannot read {barred}/orders-1: Permission denied$"
    with pytest.raises(StorageError, match=message):
        inspect.partitions(barred)
    for path in (barred, barred / "orders-1"):
        for look in (
            lambda path: FileBackend([path]).partitions(Selection()),
            lambda path: plan([path]),
            lambda path: Audit([path]).report(now_ms=0),
        ):
            with pytest.raises(ReadError, match=message):
                look(str(path))
    assert [str(key) for key in FileBackend([str(barred / "orders-0")]).partitions(Selection())] == ["orders-0"]


def test_tiny_segments_joined_to_few_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a task for each, Spark took five minutes for four seconds of reading."""
    folder = written(tmp_path / "tiny-0", [(2, 0, 2)] * 600, rolls=range(1, 600))
    whole = OffsetRange("tiny", 0, folder.records[3].offset, folder.end - 1)
    offsets = [record.offset for record in folder.records[3:-1]]
    backend = FileBackend([str(tmp_path)])
    backend.partitions(Selection())
    monkeypatch.setattr(pieces, "JOINED_BYTES", 1 << 30)
    (piece,) = backend.pieces([whole], wanted(), at_least=None)
    assert [row["offset"] for row in rows([piece])] == offsets
    monkeypatch.setattr(pieces, "JOINED_BYTES", 4 * piece.size_bytes // 599)
    found = backend.pieces([whole], wanted())
    assert 150 <= len(found) < 450
    assert all(one.end == other.start for one, other in pairwise(found))
    assert [row["offset"] for row in rows(found)] == offsets
    of_batches = Wanted(("baseOffset", "lastOffset"))
    batch_backend = BatchBackend([str(tmp_path)])
    batches = batch_backend.pieces([whole], of_batches)
    assert len(batches) == len(found)
    parts = split([whole], 2)  # the effect of maxRecordsPerPartition
    assert len(backend.pieces(parts, wanted())) >= len(parts) > 512
    timed = wanted(from_ms=max(record.timestamp for record in folder.records))
    joined = rows(backend.pieces([whole], timed))

    # With minPartitions, and without joining: the same rows, also with time bounds.
    monkeypatch.setattr(pieces, "PIECES_PLENTY", 10_000)
    alone = backend.pieces([whole], wanted())
    assert len(alone) >= 590
    monkeypatch.setattr(pieces, "PIECES_PLENTY", 512)
    assert backend.pieces([whole], wanted(), at_least=1) == alone
    assert rows(batch_backend.pieces([whole], of_batches, at_least=1)) == rows(batches)
    assert rows(backend.pieces([whole], timed, at_least=1)) == joined


def test_report_written_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed write leaves the previous report; a pipe is written directly."""
    path = tmp_path / "report.json"
    path.write_text("the last one")
    path.chmod(0o640)

    def full(of: Path, data: bytes) -> int:
        of.touch()
        raise OSError(28, "No space left on device", str(of))

    monkeypatch.setattr(Path, "write_bytes", full)
    for place in (path, tmp_path / "new.json"):
        with pytest.raises(OSError, match="No space left on device") as error:
            put(str(place), b"half")
        assert error.value.filename == str(place)
    monkeypatch.undo()
    assert path.read_text() == "the last one"
    assert not (tmp_path / "new.json").exists()
    put(str(path), b"the new one")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("the new one", 0o640)
    linked = tmp_path / "link.json"
    linked.symlink_to(path)
    put(str(linked), b"by a link")
    assert (path.read_text(), linked.is_symlink()) == ("by a link", True)
    put("/dev/null", b"away")
    assert not Path("/dev/null").is_file()


INTERRUPTED = """
import os, signal
from ottla.pipeline.session import _undisturbed

signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts the tests in the background ignores it

def press():
    os.kill(os.getpid(), signal.SIGINT)

for times in (0, 1, 2):
    done = []
    try:
        with _undisturbed():
            for _ in range(times):
                press()
                done.append(1)
    except KeyboardInterrupt:
        done.append("interrupted")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    print(*done)
"""


def test_ctrl_c_delayed_while_jvm_starts() -> None:
    """PySpark abandoned it, and it ran forever. A second Ctrl-C interrupts at once."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.stdout, done.stderr) == ("\n1 interrupted\n1 interrupted\n", "")


def test_link_to_partition_folder(tmp_path: Path) -> None:
    written(tmp_path / "data" / "orders-1", [(2, 0, 3)])
    for name, to in (("all", "data"), ("one", "data/orders-1"), ("old-7", "data")):
        (tmp_path / name).symlink_to(tmp_path / to)
        path = str(tmp_path / name)
        assert [str(key) for key in FileBackend([path]).partitions(Selection())] == ["orders-1"], name
        assert [(folder.topic, folder.partition) for folder in plan([path]).folders] == [("orders", 1)]
        report = Audit([path]).report(now_ms=0)
        assert [(one.topic, one.partition) for one in report.directories[0].partitions] == [("orders", 1)]
    (tmp_path / "away").symlink_to(tmp_path / "nothing-0")
    for look in (lambda path: FileBackend([path]).partitions(Selection()), lambda path: plan([path])):
        with pytest.raises(ReadError, match=f"{tmp_path}/away"):
            look(str(tmp_path / "away"))


def test_write_to_read_only_source_refused() -> None:
    for source in (LogSource, BatchesSource):
        for write in (source({}).writer, source({}).streamWriter):
            with pytest.raises(ReadError, match=f"^{source.SOURCE} cannot be written to; the format ottla writes"):
                write(StructType([]), False)


def test_spark_start_reason() -> None:
    """The cause in the JVM's output, if there is one."""
    output = "WARNING: noise\norg.SparkException: Exception thrown in awaitResult:\n\tat a.b(c)\n"
    assert spark_start._reason(output) == "org.SparkException: Exception thrown in awaitResult:"
    causes = "Caused by: java.io.IOException: Failed to connect to /127.0.0.1:1\n\tat d\nCaused by: e\n"
    assert spark_start._reason(output + causes) == "java.io.IOException: Failed to connect to /127.0.0.1:1"
    assert spark_start._reason("nothing") == ""
