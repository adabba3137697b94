"""Records in Parquet on their way back into logs: to topics of brokers, or straight to segments.

Owns finding the files (`files`), reading them in the order of a partition (`rows`), cutting the work (`pieces`), and
the two ways in: `segments`, `staging`, `adding` and `filling` for a data directory whose broker is stopped, `sending`
for brokers that run. Needs the extra `pipeline`, but no Spark; `job.py` runs it there.
"""

from __future__ import annotations
