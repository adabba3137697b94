"""Unexpected input of the sink: unsupported columns, options without a value, options of another way to write."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import types as T

from ottla.broker.testing.embedded import Embedded
from ottla.pipeline.sink.errors import SinkError
from ottla.pipeline.sink.exactly_once import checked
from ottla.pipeline.sink.options import SinkOptions
from ottla.pipeline.sink.task_writer import Sending, send
from ottla.pipeline.sink.transaction import idempotent_grant
from ottla.pipeline.sources.writer import BatchWriter, StreamWriter
from ottla_testing.pipeline import sink_world as world

AT = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
VALUE = T.StructField("value", T.StringType())


# -- rows and columns


def test_unused_columns_may_have_any_type_unless_passed_to_tasks() -> None:
    schema = T.StructType([VALUE, T.StructField("age", T.YearMonthIntervalType()), T.StructField("age", T.LongType())])
    assert checked(schema, SinkOptions.read(AT)) == ["value"]
    with pytest.raises(
        SinkError, match=r"^column age is of type interval year to month, which PySpark cannot pass to tasks"
    ):
        StreamWriter(AT, schema)


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
        checked(schema, SinkOptions.read(AT | ({"orderBy": order} if order else {})))


# -- options


@pytest.mark.parametrize("name", ["topic", "transactionalId", "kafka.batch.size"])
def test_option_without_value_refused(name: str) -> None:
    given: Any = AT | {name: None}
    with pytest.raises(SinkError, match=f"{name} has no value"):
        SinkOptions.read(given)


def test_columns_that_are_read() -> None:
    schema = T.StructType([T.StructField(name, T.StringType()) for name in ("id", "value", "rank", "topic")])
    ordered = SinkOptions.read(AT | {"orderBy": "rank,value"})
    assert checked(schema, ordered) == ["value", "rank", "topic"]
    with pytest.raises(SinkError, match="orderBy names rank, which is not a column; use value"):
        checked(T.StructType([VALUE]), ordered)


# -- the format ottla


def test_format_logs_at_least_once(caplog: pytest.LogCaptureFixture) -> None:
    for make, what in ((StreamWriter, "each micro-batch"), (BatchWriter, "each batch")):
        caplog.clear()
        make(AT, T.StructType([VALUE]))
        assert f"{what} is written at least once" in caplog.text


@pytest.mark.parametrize("name", ["transactionalId", "orderBy"])
def test_format_refuses_options_of_write_exactly_once(name: str) -> None:
    for make in (StreamWriter, BatchWriter):
        with pytest.raises(SinkError, match=rf"^{name} is an option of write_exactly_once: .* at least once$"):
            make(AT | {name: "value"}, T.StructType([VALUE]))


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
