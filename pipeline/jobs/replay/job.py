"""Replays a range of offsets or of time from a log to topics, with Spark.

    settings = ReplaySettings(topics=["orders"], to_topic="orders-again", speed=10)
    replay(spark, "/var/lib/kafka", settings, bootstrap="broker:9092")

Owns the distribution of tasks; `rounds.py` has the steps. At least once: the producers are idempotent, so their retries
cause no duplicates, but a retried task, and a replay continued after a failure, repeat the records of one round, some
seconds of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from ....protocol.text import elapsed
from ...backend import Backend, OffsetRange, ReadError, Selection
from ...offsets import positions, resolve
from ...session import first_interrupt_noted
from ...sink.errors import SinkError
from .. import spark_tasks
from ..export import arguments
from ..export.job import backend_of, paths_of
from ..export.tasks import FILE_BYTES
from ..import_.produce import check_wide, counts, ensure, options_of
from ..spark_tasks import JobError, Progress, ProgressCallback
from .report import Replayed, ReplayReport
from .rounds import Replay
from .tasks import ReplaySettings, Sends, Work, replay_part


def replay(
    spark: SparkSession,
    source: str | Sequence[str] | Mapping[str, str],
    settings: ReplaySettings | None = None,
    *,
    bootstrap: str,
    dry_run: bool = False,
    on_plan: Callable[[str], object] | None = None,
    on_progress: ProgressCallback | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> ReplayReport:
    """Sends records of a log to topics of the brokers at `bootstrap`, in order within each partition.

    `source`: log directories and partition folders, also as URLs of objects, or the `kafka.*` options of running
    brokers without their prefix.
    Ctrl-C, or `is_over`, ends it after the current round, some seconds of records: the report has the reached offsets.
    A second Ctrl-C interrupts the round. With `dry_run` nothing is sent. `on_plan` receives the plan line by line,
    `on_progress` the progress. Raises ReadError, SinkError, JobError; the message ends with the reached offsets.
    """
    settings = settings or ReplaySettings()
    settings.check()
    options = options_of(bootstrap, settings.config or {})
    to_topic, keeps_partitions = settings.to_topic, settings.partitions == "keep"
    began = time.monotonic()
    with backend_of(source, FILE_BYTES, settings.store_conf) as backend:
        ranges, widths = _ranges(backend, settings)
        all_offsets = sum(one.size for one in ranges)
        _check_not_itself(source, bootstrap, to_topic, widths)
        wanted = {to_topic: max(widths.values(), default=1)} if to_topic is not None else widths
        name = source["bootstrap.servers"] if isinstance(source, Mapping) else ", ".join(paths_of(source))
        report = ReplayReport(name, bootstrap)
        report.partitions = [Replayed(*one.key, one.start, one.start, one.end, 0) for one in ranges]
        if dry_run or on_plan is not None:
            there = counts(options, sorted(wanted))
            if keeps_partitions:
                check_wide(there, wanted)
            _report_plan(on_plan, ranges, wanted, there, settings)
        if dry_run:
            return report
        wanted = wanted if keeps_partitions else {**wanted, **counts(options, sorted(wanted))}
        tasks = max(1, spark_tasks.parallelism(spark)) if all_offsets else 1
        # Tasks need no login besides that in `options`, and no choice of topics and offsets, which may be a long one.
        own = replace(
            settings, config=None, store_conf=None, topics=None, like=None, starting="earliest", ending="latest"
        )
        sends = Sends(options, ensure(options, wanted), own, tasks)

        def on_round(report: ReplayReport) -> None:
            if on_progress is not None:
                done = sum(one.reached - one.start for one in report.partitions)
                guess = report.bytes * all_offsets // max(1, done)
                seconds = time.monotonic() - began
                on_progress(Progress(done, all_offsets, report.bytes, guess, seconds, ended=done == all_offsets))

        with first_interrupt_noted() as stopped:
            made = Replay(
                backend,
                ranges,
                sends,
                lambda works: spark_tasks.run(spark, works, replay_part, bytes_of=_alone, name="ottla replay"),
                time.time,
                time.sleep,
                lambda: stopped() or is_over(),
                on_round,
            )
            try:
                made.all(report)
            except KeyboardInterrupt:
                report.stopped = True
            except (JobError, ReadError, SinkError) as error:
                if report.rounds:
                    raise type(error)(f"{error}; continue with --from-offsets '{report.offsets}'") from error
                raise
    report.seconds = time.monotonic() - began
    return report


def _alone(work: Work) -> int:
    """Returns the size of a whole bundle, so that every part is a task of its own: all must run at the same time."""
    return spark_tasks.MOST_BYTES


def _ranges(backend: Backend, settings: ReplaySettings) -> tuple[list[OffsetRange], dict[str, int]]:
    """Returns the ranges to replay, and the number of partitions of each topic."""
    committed = settings.is_committed
    keys = backend.partitions(Selection.named(settings.topics, settings.like))
    widths: dict[str, int] = {}
    for key in keys:
        widths[key.topic] = max(widths.get(key.topic, 0), key.partition + 1)
    starting, ending = arguments.limit(settings.starting, "--from"), arguments.limit(settings.ending, "--until")
    ranges = resolve(backend, keys, starting, ending, no_match="latest", committed=committed, fail_on_data_loss=True)
    # Empty ranges are reported as well: --from-offsets of the next run must name every partition.
    empty = sorted(set(keys) - {one.key for one in ranges})
    starts = positions(backend, keys, starting, committed=committed, of=empty) if empty else {}
    return sorted([*ranges, *(OffsetRange(*key, at, at) for key, at in starts.items())]), widths


def _check_not_itself(
    source: str | Sequence[str] | Mapping[str, str], bootstrap: str, to_topic: str | None, widths: Mapping[str, int]
) -> None:
    if isinstance(source, Mapping) and source.get("bootstrap.servers") == bootstrap:
        for topic in widths:
            if to_topic in (None, topic):
                raise ReadError(f"topic {topic} would be replayed to itself: name another topic with --to-topic")


def _report_plan(
    on_plan: Callable[[str], object] | None,
    ranges: Sequence[OffsetRange],
    wanted: Mapping[str, int],
    there: Mapping[str, int],
    settings: ReplaySettings,
) -> None:
    if on_plan is None:
        return
    rate, speed = settings.rate, settings.speed
    size = sum(one.size for one in ranges)
    pace = "as fast as possible"
    if rate is not None:
        pace = f"{rate:g} records per second, about {elapsed(round(size / rate) * 1000)}"
    elif speed is not None:
        pace = f"{speed:g} times the pace of the timestamps"
    on_plan(f"{len(ranges)} partitions, {size:,} offsets to {', '.join(sorted(wanted))}: {pace}; each at least once")
    if new := sorted(set(wanted) - set(there)):
        on_plan(f"topics to create: {', '.join(new)}")
