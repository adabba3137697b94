"""The data sources for Spark: `ottla_log` and `ottla_batches` over directories, `ottla` over the wire.

`log.py`, `batches.py` and `wire.py` are what Spark is given; `reader.py` is the batch side of all three and `stream.py`
the streaming side, each over a `Backend`.
"""
