"""Makes `format("ottla_log")` known to Spark: records of log directories."""

from contextlib import suppress

with suppress(ImportError):  # without the extra there is nothing to be found
    from ottla.pipeline.sources.source import LogSource as DefaultSource

__all__ = ["DefaultSource"]
