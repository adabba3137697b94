"""Audits log directories with Spark: segments in tasks, partitions at the driver.

    report = audit(spark, ["/var/lib/kafka"])
    print(report.to_text())
    sys.exit(report.exit_code)

Owns only the distribution of tasks; see `steps.py` for the checks, and `pipeline/jobs/audit/report.py` for the document
of `to_json`. It takes no lock and writes nothing, so it works beside a running broker. The workers must see the
directories at the same paths as the driver.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from pyspark.sql import SparkSession

from ....protocol.text import plural
from ..spark_tasks import ProgressCallback, run, size_of, tasks
from .report import AuditReport
from .rules import Checked, RuleItem, Rules, check, evaluated, items
from .steps import Audit
from .tasks import Packed, SegmentItem, look_over

OF_RULES = "ottla audit: rules"  # the name of the check of rules in Spark's UI


def audit(
    spark: SparkSession,
    paths: str | Sequence[str],
    *,
    topics: Sequence[str] | None = None,
    records: bool = True,
    rules: Rules | Iterable[str] = (),
    on_progress: ProgressCallback | None = None,
    now_ms: int | None = None,
    store_conf: Mapping[str, str] | None = None,
) -> AuditReport:
    """Returns the findings in these data directories, or partition folders, of Ottla or of Apache Kafka.

    `topics`: only these, internal ones included; all if None. `records`: also checks the records in the batches.
    `rules`: lines such as "key required" (`rules.FORMS`) that the records must keep; a `Rules` also has schemas.
    `on_progress` receives the progress (`spark_tasks.Meter` prints it). `now_ms`: the reference for the age of open
    transactions, the clock if None. Paths may be URLs of copies in an object store, with `store_conf` as its settings.
    Raises ReadError for a path that is no data directory and for a missing topic, RuleError; JobError if Spark fails.
    """
    began = time.monotonic()
    planned = Audit(paths, topics=topics, records=records, store_conf=store_conf)

    def runner(items: Sequence[SegmentItem]) -> Iterable[tuple[SegmentItem, Packed]]:
        return run(spark, items, look_over, on_progress=on_progress, name="ottla audit")

    report = planned.report(runner, now_ms=int(time.time() * 1000) if now_ms is None else now_ms)
    made = rules if isinstance(rules, Rules) else Rules.of(rules)
    if made:
        pieces = items(planned.places(), made, store_conf)
        _evaluate(report, made, run(spark, pieces, check, on_progress=on_progress, name=OF_RULES))
    report.seconds = time.monotonic() - began
    return report


def audit_brokers(
    spark: SparkSession,
    config: Mapping[str, str],
    *,
    rules: Rules | Iterable[str],
    topics: Sequence[str] | None = None,
    like: str | None = None,
    on_progress: ProgressCallback | None = None,
    on_plan: Callable[[str], object] | None = None,
    dry_run: bool = False,
) -> AuditReport | None:
    """Returns the findings of the rules for topics of running brokers; their files are not read.

    `config`: the `kafka.*` options of the brokers without their prefix. `topics`: only these, internal ones included;
    `like`: a regular expression that full names must match. The others as of `audit`; None is returned for `dry_run`.
    Raises ReadError, RuleError; JobError if Spark fails.
    """
    from . import brokers

    began = time.monotonic()
    made = rules if isinstance(rules, Rules) else Rules.of(rules)
    planned = brokers.plan(config, made, topics=topics, like=like)
    if on_plan is not None:
        count, amount = tasks(spark, planned.items), len(planned.keys)
        on_plan(f"audit of {plural(amount, 'partition')} by {plural(len(made.rules), 'rule')}, in {count} tasks")
    if dry_run:
        return None
    found = list(run(spark, planned.items, check, on_progress=on_progress, name=OF_RULES))
    report = planned.report(found, int(time.time() * 1000))
    _evaluate(report, made, found)
    report.seconds = time.monotonic() - began
    return report


def _evaluate(report: AuditReport, rules: Rules, found: Iterable[tuple[RuleItem, Checked]]) -> None:
    """Adds the results and the findings of the rules to a report."""
    report.rules, findings = evaluated(rules, found)
    for directory, finding in findings:
        report.directories[directory].add(finding)


def plan_text(spark: SparkSession, planned: Audit, rules: Rules) -> str:
    """Returns one line with the plan of an audit. Raises ReadError."""
    segments, places = planned.items(), planned.places()
    count, size = tasks(spark, segments), sum(map(size_of, segments))
    what = "batches and their records" if planned.records else "batches without their records"
    plan = f"audit of {what}: {len(places)} partitions, {len(segments)} segments, {size} bytes, in {count} tasks"
    if rules:
        pieces = items(places, rules, planned.store_conf)
        more = tasks(spark, pieces)
        folders = len({(one.directory, one.label) for one in pieces})
        plan += f"; {plural(len(rules.rules), 'rule')} for {folders} partitions, in {more} tasks"
    return plan
