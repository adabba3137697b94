"""`ottla pipeline audit`: exit code 1 with any finding."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ....protocol.mistakes import FAILED
from ...cluster import context_of
from ..command import (
    Job,
    PlanCallback,
    Report,
    UsageError,
    add_source,
    add_store_conf,
    check_store_conf,
    chosen_topics,
    pattern,
    source,
)
from ..export import decoding_arguments
from ..export.decoding_arguments import PARTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..export.value_columns import Decoding
    from ..spark_tasks import ProgressCallback
    from .rules import Rules


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add_store_conf(parser)
    words = "check batches without the records in them"
    parser.add_argument("--no-records", dest="records", action="store_false", help=words)
    parser.add_argument(
        "--rule",
        action="append",
        metavar="[TOPIC:]RULE",
        default=[],
        help="the records must keep it, such as `orders: key required`; may be repeated",
    )
    parser.add_argument("--rules", metavar="FILE", help="rules, one a line")
    decoding_arguments.add(parser, to="which is a rule")


def check(parsed: argparse.Namespace) -> None:
    parsed.source = source(parsed)
    check_store_conf(parsed)
    decoding_arguments.check(parsed)
    texts = [*parsed.rule, *_rules_in(parsed.rules)]
    if parsed.paths:
        parsed.chosen = chosen_topics(parsed)
    else:
        pattern(parsed)
    parsed.rule_set = _rules(parsed, texts, [decoding_arguments.decoding(parsed, part) for part in PARTS])
    if not parsed.paths:
        _check_brokers(parsed)


def _check_brokers(parsed: argparse.Namespace) -> None:
    from .brokers import plan

    if not (parsed.rule_set or any(part.is_ddl(parsed) for part in PARTS)):
        raise UsageError("the files of running brokers cannot be read: they need --rule, --rules or --decode")
    if not parsed.records:
        raise UsageError("--no-records needs PATH")
    plan(parsed.source, parsed.rule_set, topics=parsed.topic, like=parsed.topics)


def _rules_in(path: str | None) -> list[str]:
    from .rules import lines

    try:
        return [] if path is None else lines(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--rules: cannot read {path}: {error}") from error


def _rules(parsed: argparse.Namespace, texts: Sequence[str], decodings: Sequence[Decoding | None]) -> Rules:
    """Returns the rules. Raises UsageError for a topic that is not audited."""
    from ..partitions import chosen
    from .rules import Rules

    found = Rules.of(texts, *decodings)
    if parsed.paths and any(rule.topic for rule in found.rules):
        known = {folder.topic for folder in chosen(parsed.paths, topics=parsed.chosen)}
        for rule in found.rules:
            if rule.topic is not None and rule.topic not in known:
                raise UsageError(f"rule {rule.text!r}: there is no topic {rule.topic} in what is audited")
    return found


def run(
    spark: SparkSession, parsed: argparse.Namespace, on_plan: PlanCallback, on_progress: ProgressCallback | None
) -> tuple[Report | None, int]:
    from . import job

    rules = parsed.rule_set
    if any(part.is_ddl(parsed) for part in PARTS):
        context_of(spark)  # Spark parses the schema, so it must have started
        made = [decoding_arguments.of_spark(parsed, part) for part in PARTS]
        texts = [*parsed.rule, *_rules_in(parsed.rules)]
        rules = _rules(parsed, texts, [one or two for one, two in zip(made, (rules.value, rules.key), strict=True)])
    if not parsed.paths:
        report = job.audit_brokers(
            spark,
            parsed.source,
            rules=rules,
            topics=parsed.topic,
            like=parsed.topics,
            on_progress=on_progress,
            on_plan=on_plan,
            dry_run=parsed.dry_run,
        )
        return report, FAILED if report is not None and report.findings else 0
    wanted = {"topics": parsed.chosen, "records": parsed.records, "rules": rules, "store_conf": parsed.store_conf}
    on_plan(job.plan_text(spark, parsed.paths, **wanted))
    if parsed.dry_run:
        return None, 0
    report = job.audit(spark, parsed.paths, on_progress=on_progress, **wanted)
    return report, FAILED if report.findings else 0


JOB = Job(
    name="audit",
    words="Check batches, indexes, sequences and transactions; exit code 1 with any finding.",
    add_arguments=add_arguments,
    check=check,
    run=run,
    plots=True,
)
