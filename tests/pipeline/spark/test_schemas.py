"""The columns of a query: from its options, and from user schemas."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import StructType

from ottla.pipeline.offsets import OptionError
from ottla.pipeline.options import SourceOptions, parse
from ottla.pipeline.readers.columns import BATCH_COLUMNS, FIELDS, SIZE_COLUMNS, batch_schema
from ottla.pipeline.readers.columns import schema as arrow_schema_of
from ottla.pipeline.schemas import checked, columns, schema
from ottla.pipeline.sources.reader import arrow_schema

SPARKS = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
HEADERS = ", headers array<struct<key:string,value:binary>>"
METADATA = (
    ", magic int, codec string, producerId bigint, producerEpoch smallint, sequence int, leaderEpoch int, "
    "batchOffset bigint, transactional boolean, control boolean, crcOk boolean, file string"
)


def of(source: Any = "ottla_log", **given: str) -> SourceOptions:
    place = {"kafka.bootstrap.servers": "h:1"} if source == "ottla" else {"path": "/data"}
    return parse(place | given, source, False)


def ddl(found: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in found.fields)


def test_default_columns_match_sparks_kafka_source() -> None:
    for source in ("ottla", "ottla_log"):
        assert ddl(schema(of(source))) == SPARKS
        assert ddl(schema(of(source, includeHeaders="true"))) == SPARKS + HEADERS
        assert ddl(schema(of(source, metadata="true"))) == SPARKS + METADATA
        assert ddl(schema(of(source, metadata="true", includeHeaders="true"))) == SPARKS + HEADERS + METADATA
    assert all(field.nullable for field in schema(of()).fields)
    assert ddl(schema(of(columns="offset,headers,crcOk"))) == f"offset bigint{HEADERS}, crcOk boolean"


def test_arrow_and_spark_types_agree() -> None:
    whole = of(metadata="true", includeHeaders="true")
    assert set(columns(whole)) == set(FIELDS) - set(SIZE_COLUMNS)
    sizes = of(columns=",".join(SIZE_COLUMNS))
    assert arrow_schema(schema(sizes)).equals(arrow_schema_of(SIZE_COLUMNS))
    assert arrow_schema(schema(whole)).equals(arrow_schema_of(columns(whole)))
    batches = of("ottla_batches")
    assert columns(batches) == BATCH_COLUMNS
    assert arrow_schema(schema(batches)).equals(batch_schema(BATCH_COLUMNS))


def test_user_schema_selects_columns() -> None:
    headers = schema(of(columns="headers"))["headers"].dataType
    given = StructType().add("offset", "long", nullable=False).add("key", "binary").add("headers", headers)
    assert checked(given, of()) == ("offset", "key", "headers")
    assert not arrow_schema(given).field("offset").nullable
    assert checked(schema(of(columns="key")), of(columns="key")) == ("key",)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (StructType(), {}, "the schema is empty: it needs at least one column"),
        (StructType().add("valeu", "binary"), {}, r"schema: ottla_log has no column valeu; did you mean value\?"),
        (StructType().add("timestamptype", "integer"), {}, r"did you mean timestampType\?"),
        (StructType().add("x", "integer"), {}, "ottla_log has no column x; it has key, value"),
        (StructType().add("offset", "integer"), {}, "column offset is bigint, not int"),
        (StructType().add("key", "string"), {}, "column key is binary, not string"),
        (StructType().add("key", "binary").add("key", "binary"), {}, "a column twice"),
        (StructType().add("key", "binary"), {"columns": "value"}, "give one of them"),
        (StructType().add("key", "binary"), {"includeControlRecords": "true"}, "needs the column control"),
        (StructType().add("key", "binary"), {"onCorrupt": "emit"}, "needs the column crcOk, which metadata=true"),
    ],
)
def test_user_schema_refused(given: StructType, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        checked(given, of(**options))


def test_columns_option_refused() -> None:
    with pytest.raises(OptionError, match=r"columns: ottla_log has no column kee; did you mean key\?"):
        schema(of(columns="kee"))
    with pytest.raises(OptionError, match="each column may be named once"):
        schema(of(columns="key,key"))
    with pytest.raises(OptionError, match="ottla_batches has no column key; it has topic"):
        schema(of("ottla_batches", columns="key"))
    with pytest.raises(OptionError, match="includeControlRecords needs the column control"):
        schema(of(includeControlRecords="true"))
    with pytest.raises(OptionError, match="which columns gives"):
        schema(of("ottla_batches", onCorrupt="emit"))
    assert schema(of(includeControlRecords="true", onCorrupt="emit", columns="control,crcOk"))
