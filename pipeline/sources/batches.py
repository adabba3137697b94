"""`ottla_batches`: the headers of the batches in log directories, one row per batch."""

from __future__ import annotations

from .source import LogsSource


class BatchesSource(LogsSource):
    """`spark.read.format("ottla_batches").load("/var/lib/ottla")`, batch and streaming."""

    SOURCE = "ottla_batches"
