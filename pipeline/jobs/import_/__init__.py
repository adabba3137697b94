"""Imports records from Parquet into logs: to topics of brokers, or directly as segments.

Owns finding the files (`files`), reading them in the order of a partition (`rows`), dividing the work (`plan`), and the
two targets: `tasks`, `staging_folder`, and `adoption` for a data directory whose broker is stopped, `produce`
for running brokers. Needs the extra `pipeline`, but no Spark apart from `job.py`.
"""
