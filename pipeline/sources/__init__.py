"""The data sources for Spark: `ottla_log` and `ottla_batches` over directories, `ottla` over brokers.

`source.py` has the classes that Spark loads; `reader.py` has batch queries and `stream.py` streaming queries, each over
a `Backend`.
"""
