"""`ottla_log`: the records of log directories, read from their segment files."""

from __future__ import annotations

from .source import LogsSource


class LogSource(LogsSource):
    """`spark.read.format("ottla_log").load("/var/lib/ottla")`, batch and streaming."""

    SOURCE = "ottla_log"
