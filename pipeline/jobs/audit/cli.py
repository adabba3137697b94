"""`ottla pipeline audit`: exit code 1 with any finding."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ....protocol.mistakes import FAILED
from ..command import (
    Job,
    Result,
    Running,
    UsageError,
    add_source,
    add_store_conf,
    check_store_conf,
    chosen_topics,
    source,
)
from ..export import decoding_arguments
from ..export.decoding_arguments import PARTS

if TYPE_CHECKING:
    from ..export.value_columns import Decoding
    from .rules import Rules


class Command(Job):
    words = "Check batches, indexes, sequences and transactions; exit code 1 with any finding."
    plots = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
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

    def check(self, parsed: argparse.Namespace) -> None:
        parsed.source = source(parsed)
        check_store_conf(parsed)
        decoding_arguments.check(parsed)
        parsed.rule = [*parsed.rule, *_rules_in(parsed.rules)]
        parsed.chosen = chosen_topics(parsed)
        parsed.rule_set = _rules(parsed, [decoding_arguments.decoding(parsed, part) for part in PARTS])
        if not parsed.paths:
            _check_brokers(parsed)

    def run(self, running: Running) -> Result:
        spark, parsed, on_plan, on_progress = running
        from . import job
        from .steps import Audit

        rules = parsed.rule_set
        if decoding_arguments.needs_spark(parsed):
            rules = _rules(parsed, decoding_arguments.of_spark(spark, parsed, (rules.value, rules.key)))
        if not parsed.paths:
            report = job.audit_brokers(
                spark,
                parsed.source,
                rules=rules,
                topics=parsed.topics,
                like=parsed.like,
                on_progress=on_progress,
                on_plan=on_plan,
                dry_run=parsed.dry_run,
            )
            return report, FAILED if report is not None and report.findings else 0
        wanted = {"topics": parsed.chosen, "records": parsed.records, "store_conf": parsed.store_conf}
        on_plan(job.plan_text(spark, Audit(parsed.paths, **wanted), rules))
        if parsed.dry_run:
            return None, 0
        report = job.audit(spark, parsed.paths, rules=rules, on_progress=on_progress, **wanted)
        return report, FAILED if report.findings else 0


def _check_brokers(parsed: argparse.Namespace) -> None:
    from .brokers import plan

    if not (parsed.rule_set or decoding_arguments.needs_spark(parsed)):
        raise UsageError("the files of running brokers cannot be read: they need --rule, --rules or --decode")
    if not parsed.records:
        raise UsageError("--no-records needs PATH")
    plan(parsed.source, parsed.rule_set, topics=parsed.topics, like=parsed.like)


def _rules_in(path: str | None) -> list[str]:
    from .rules import lines

    try:
        return [] if path is None else lines(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--rules: cannot read {path}: {error}") from error


def _rules(parsed: argparse.Namespace, decodings: Sequence[Decoding | None]) -> Rules:
    """Returns the rules. Raises RuleError for a topic that is not audited."""
    from ..partitions import chosen
    from .rules import Rules

    found = Rules.of(parsed.rule, *decodings)
    if parsed.paths and any(rule.topic for rule in found.rules):
        found.check({folder.topic for folder in chosen(parsed.paths, topics=parsed.chosen)})
    return found
