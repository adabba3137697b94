"""`ottla`: the records of topics, fetched from brokers."""

from __future__ import annotations

from .reader import LogsSource


class WireSource(LogsSource):
    """`spark.read.format("ottla").option("kafka.bootstrap.servers", "localhost:9092")`, batch and streaming."""

    SOURCE = "ottla"
