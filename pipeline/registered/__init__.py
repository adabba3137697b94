"""What stands at the top when Ottla is installed: `pyspark_ottla`, `pyspark_ottla_log` and `pyspark_ottla_batches`.

Spark looks for modules whose names begin with `pyspark_`, imports each, and knows its `DefaultSource` from then on, so
that `format("ottla_log")` needs no register call. Each of the folders here is one of them (`package-dir` in
`pyproject.toml`), which is why they, and no others, import `ottla` by its full name. A failing import would take all
Python sources from Spark, also those of others: where the extra `ottla[pipeline]` is not installed they have none.
"""
