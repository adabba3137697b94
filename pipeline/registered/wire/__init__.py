"""Makes `format("ottla")` known to Spark: records over the wire."""

from contextlib import suppress

with suppress(ImportError):  # without the extra there is nothing to be found
    from ottla.pipeline.sources.source import WireSource as DefaultSource

__all__ = ["DefaultSource"]
