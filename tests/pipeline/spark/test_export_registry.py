"""Values decoded by a schema registry in the tasks of Spark, and their columns in Spark."""

from __future__ import annotations

import struct
from pathlib import Path

from pyspark.sql import SparkSession

from ottla.pipeline import ExportSettings, export
from ottla.pipeline.jobs.export.value_columns import Decoding
from ottla.pipeline.jobs.export.value_schemas.registry import Registry
from ottla.protocol.records.batch import Record
from ottla_testing.pipeline.export_samples import NOW_MS, a_log
from ottla_testing.pipeline.schema_registry import serving

ORDER = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; uint64 large = 2; google.protobuf.Timestamp at = 3; repeated string tags = 4; }"""


def test_typed_columns_and_dead_letters_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    with serving() as served:
        served.authorization = "Bearer abc"
        number = served.add("orders-value", ORDER, "PROTOBUF")
        values = [
            struct.pack(">bI", 0, number) + b"\x00\x08\x05\x10\x07\x1a\x02\x08\x3c\x22\x01a\x22\x01b",
            struct.pack(">bI", 0, 5) + b"\x00\x08\x05",
        ]
        records = [Record(n, NOW_MS + n, b"k", value, ()) for n, value in enumerate(values)]
        a_log(tmp_path / "data", "orders", 0, [records])
        source = Registry.of(served.url, {"bearer.auth.token": "abc"})
        decoding = Decoding.protobuf(source.latest("orders-value"), None, "protobuf-confluent", source)
        settings = ExportSettings(decoding=decoding, on_undecodable="dead-letter")
        report = export(spark, str(tmp_path / "data"), str(tmp_path / "lake"), settings)
    assert report.undecoded == 1
    found = spark.read.parquet(str(tmp_path / "lake"))
    assert dict(found.dtypes)["decoded"] == "struct<id:bigint,large:decimal(20,0),at:timestamp,tags:array<string>>"
    first, second = found.orderBy("offset").selectExpr("decoded.*", "unix_seconds(decoded.at)", "deadLetter").collect()
    assert (first["id"], first["large"], first[4], first["tags"], first["deadLetter"]) == (5, 7, 60, ["a", "b"], None)
    assert second["id"] is None and bytes(second["deadLetter"]["value"]) == values[1]
    assert second["deadLetter"]["error"] == f"schema 5 is not in {served.url}"
