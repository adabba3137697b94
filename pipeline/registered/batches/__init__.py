"""Makes `format("ottla_batches")` known to Spark: the record batches of log directories."""

from contextlib import suppress

with suppress(ImportError):  # without the extra there is nothing to be found
    from ottla.pipeline.sources.source import BatchesSource as DefaultSource

__all__ = ["DefaultSource"]
