"""Unexpected input of the sink: full disks, unsupported columns, options without a value, replays."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from ottla.broker.testing.embedded import Embedded
from ottla.pipeline.sink import SinkError, SinkOptions, idempotent_grant, send
from ottla.pipeline.sink.exactly_once import checked
from ottla.pipeline.sink.gathered_writes import write_staged
from ottla.pipeline.sink.rows import SENT
from ottla.pipeline.sink.staged_rows import SMALL_BYTES, Place, _Stage, stage
from ottla.pipeline.sink.task_writer import Sending
from ottla.pipeline.sources.writer import BatchWriter, StagedBatchWriter, StagedRows, batch_writer, stream_writer
from ottla_testing.pipeline import sink_world as world

AT = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
VALUE = T.StructField("value", T.StringType())


def random_rows() -> pa.RecordBatch:
    return next(world.rows([bytes([number % 251]) * 997 + b"%d" % (number**9) for number in range(300)]))


# -- staging


def test_stage_full_disk_raises_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """During the write of the file, and during the flush at its end."""
    path = tmp_path / "0-full.arrow"

    def full(of: _Stage, buffering: int) -> Any:
        path.symlink_to("/dev/full")
        return path.open("wb", buffering=buffering)

    for buffering in (0, 1 << 20):
        monkeypatch.setattr(_Stage, "_opened", lambda of, buffering=buffering: full(of, buffering))
        with pytest.raises(SinkError, match=r"^stagingLocation: .*0-full.arrow cannot be written: No space left"):
            stage([random_rows()], Place(str(tmp_path), "q", 0), message_bytes=100)
        assert not path.is_symlink()
    assert Path("/dev/full").exists()


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_staged_files_of_killed_driver_removed_by_next(tmp_path: Path) -> None:
    """Files of another key stay, and those of another run if this one fails."""
    with Embedded() as broker:
        name = world.topic(broker)
        options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": name, "stagingLocation": str(tmp_path)}

        def writer(key: str) -> StagedBatchWriter:
            found = batch_writer(options | {"idempotencyKey": key}, T.StructType([VALUE]), overwrite=False)
            assert isinstance(found, StagedBatchWriter)
            return found

        def staged(by: StagedBatchWriter) -> StagedRows:
            rows = random.Random(1).randbytes(SMALL_BYTES + 1)
            return by.write(world.rows([rows]))

        long = "k" * 300
        killed, failed, last, other = (writer(key) for key in (long, long, long, "other"))
        staged(killed)
        kept = staged(other).staged.file
        failed.abort([staged(failed), None])
        assert len(files_in(tmp_path)) == 2
        last.commit([staged(last), None])
        assert [str(path) for path in files_in(tmp_path)] == [kept]
        killed.commit([])
        assert len(world.seen(broker, name)[0]) == 1


# -- rows and columns


@pytest.mark.parametrize("headers", [[{"key": None, "value": b"x"}], [None]])
def test_headers_without_key_refused_by_driver(headers: list[Any]) -> None:
    kind = SENT.field("headers").type
    rows = pa.record_batch({"value": pa.array([b"v", b"w"]), "headers": pa.array([headers, []], kind)})
    with Embedded() as broker:
        name = world.topic(broker)
        with pytest.raises(SinkError, match="a header's key is null"):
            write_staged(world.options(broker, topic=name), "headers", 0, [stage([rows], None)])
        assert world.seen(broker, name) == {}


def test_unused_columns_may_have_any_type_unless_passed_to_tasks() -> None:
    schema = T.StructType([VALUE, T.StructField("age", T.YearMonthIntervalType()), T.StructField("age", T.LongType())])
    assert checked(schema, SinkOptions.read(AT)) == ["value"]
    with pytest.raises(
        SinkError, match=r"^column age is of type interval year to month, which PySpark cannot pass to tasks"
    ):
        stream_writer(AT, schema)


@pytest.mark.parametrize(
    ("more", "order", "message"),
    [
        (T.StructField("headers", T.ArrayType(T.NullType(), False)), None, r"^column headers is of type array<void>"),
        (T.StructField("key", T.YearMonthIntervalType()), None, r"^column key is of type interval year to month"),
        (
            T.StructField("by", T.MapType(T.StringType(), T.StringType())),
            "by",
            r"^orderBy names by, .* map<.* cannot be sorted",
        ),
        (
            T.StructField("by", T.ArrayType(T.VariantType())),
            "by",
            r"^orderBy names by, .* array<variant>, which cannot be sorted",
        ),
    ],
)
def test_unwritable_column_named(more: T.StructField, order: str | None, message: str) -> None:
    schema = T.StructType([VALUE, more])
    with pytest.raises(SinkError, match=message):
        stream_writer(AT | ({"orderBy": order} if order else {}), schema)


# -- options


@pytest.mark.parametrize("name", ["topic", "transactionalId", "kafka.batch.size"])
def test_option_without_value_refused(name: str) -> None:
    given: Any = AT | {name: None}
    with pytest.raises(SinkError, match=f"{name} has no value"):
        SinkOptions.read(given)


# -- log messages


def test_batch_without_idempotency_key_logs_at_least_once(caplog: pytest.LogCaptureFixture) -> None:
    schema = T.StructType([VALUE])
    assert isinstance(batch_writer(AT, schema, overwrite=False), BatchWriter)
    assert "at least once" in caplog.text
    caplog.clear()
    batch_writer(AT | {"idempotencyKey": "k"}, schema, overwrite=False)
    stream_writer(AT, schema)
    assert caplog.text == ""


def test_stream_skipping_micro_batch_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with Embedded() as broker:
        name = world.topic(broker)
        options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": name}
        writer = stream_writer(options, T.StructType([VALUE]))
        for number, batch_id in enumerate((0, 0)):
            messages = [StagedRows(stage(world.rows([b"%d" % number]), None), "query")]
            writer.commit(messages, batch_id)
            assert ("micro-batch 0" in caplog.text and "committed before" in caplog.text) == bool(number)
        assert world.seen(broker, name) == {0: [b"0"]}


# -- in flight


def test_at_most_five_batches_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches sent while a response is awaited: at most this many are in flight."""
    windows: list[int] = []
    taking = Sending._take_response

    async def counted(sending: Sending) -> None:
        windows.append(len(sending._responses))
        await taking(sending)

    monkeypatch.setattr(Sending, "_take_response", counted)
    with Embedded() as broker:
        options, name = world.options(broker, rows_per_batch=2), world.topic(broker)
        some = world.values(40)
        assert send(options, idempotent_grant(options), (name, 0), world.rows(some)).records == 40
        assert world.seen(broker, name) == {0: some}
    assert windows == [1, *([5] * 15), 4, 3, 2, 1]
