"""Whether what lies in log directories is sound, checked with Spark: segments in tasks, partitions at the driver.

    report = audit(spark, ["/var/lib/kafka"])
    print(report.to_text())
    sys.exit(report.exit_code)

Owns nothing but the handing out; see `steps.py` for what is checked, and `pipeline/jobs/audit/report.py` for
the document of `to_json`. It takes no lock and writes nothing, so it works beside a running broker. The workers must
see the directories at the same paths as the driver.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from pyspark.sql import SparkSession

from ..spark_tasks import Say, run, tasks
from .report import AuditReport
from .steps import Audit
from .tasks import Packed, SegmentItem, look_over

__all__ = ["AuditReport", "audit", "plan_text"]


def audit(
    spark: SparkSession,
    paths: str | Sequence[str],
    *,
    topics: Sequence[str] | None = None,
    records: bool = True,
    say: Say | None = None,
    now_ms: int | None = None,
) -> AuditReport:
    """What is wrong in these data directories, or partition folders, of Ottla or of Apache Kafka.

    `topics`: only these, internal ones included where they are named; all if None. `records`: batches are opened and
    the records inside checked, too. `say` hears of progress (`running.Meter` prints it). `now_ms`: what the age of open
    transactions counts to, the clock if None. Raises ReadError for a path that is no data directory and a topic that is
    not there; JobError if Spark fails.
    """
    began = time.monotonic()
    planned = Audit([paths] if isinstance(paths, str) else paths, topics=topics, records=records)

    def runner(items: Sequence[SegmentItem]) -> Iterable[tuple[SegmentItem, Packed]]:
        return run(spark, items, look_over, bytes_of=size_of, say=say, name="ottla audit")

    report = planned.report(runner, now_ms=int(time.time() * 1000) if now_ms is None else now_ms)
    report.seconds = time.monotonic() - began
    return report


def size_of(item: SegmentItem) -> int:
    """The bytes of a segment."""
    return item.size_bytes


def plan_text(
    spark: SparkSession, paths: str | Sequence[str], *, topics: Sequence[str] | None = None, records: bool = True
) -> str:
    """One line about what an audit will do. Raises as `audit`."""
    planned = Audit([paths] if isinstance(paths, str) else paths, topics=topics, records=records)
    partitions, segments, size = planned.amounts
    count = tasks(spark, planned.items(), bytes_of=size_of)
    what = "batches and the records inside" if records else "batches, not the records inside"
    return f"audit of {what}: {partitions} partitions, {segments} segments, {size} bytes, in {count} tasks"
