"""The steps of an import to a data directory; the caller runs the tasks.

Owns the order of the steps; each can be interrupted, and a second run continues. Raises ReadError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...backend import ReadError
from .adoption import Target, exists_already
from .plan import Plan
from .report import Imported, ImportReport
from .staging_folder import Staging, staged
from .tasks import Layout, Work, Written

Run = Callable[[Sequence[Work]], Iterator[tuple[Work, Written]]]
"""Runs `tasks.write` for each piece of work, anywhere."""


def fill(
    plan: Plan,
    source: str,
    target: Target,
    identity: str,
    layout: Layout,
    run: Run,
    *,
    now_ms: int,
) -> ImportReport:
    """Writes the plan's pieces as segments and adds them to a data directory whose broker is stopped. `identity` is
    unique to this import. Raises ReadError."""
    topics = list(plan.partitions)
    report = ImportReport(source, target.path, plan.files)
    with staged(target.files, target.path, identity, topics) as staging:
        done = target.settle(staging)
        if not done:
            try:
                _check(target, staging, topics)
            except ReadError:
                if staging.is_new:
                    staging.remove()
                raise
        left = [piece for piece in plan.pieces if piece.topic not in done]
        report.skipped = sum(piece.rows for piece in plan.pieces) - sum(piece.rows for piece in left)
        if not left:
            staging.remove()
            return report
        if staging.taken_over:
            report.notes.append(f"{staging.taken_over} pieces were completed by an earlier run")
        for _ in run(staging.work(left, layout, now_ms)):
            pass
        facts = staging.assemble(left)
        for key, of in sorted(facts.items()):
            report.partitions.append(Imported(*key, of.records, of.bytes, of.first, of.end, of.segments))
        target.add(staging)
    return report


def _check(place: Target, staging: Staging, topics: Sequence[str]) -> None:
    """Raises ReadError if the topics cannot be added."""
    place.check(topics, ours=list(staging.read_adding() or ()))
    if place.has_history and (known := place.existing(topics)):
        raise ReadError(exists_already(min(known), place.path))
