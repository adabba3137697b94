"""A range of offsets or of time, from a log into topics, with Spark.

    replay(spark, "/var/lib/kafka", bootstrap="broker:9092", topics=["orders"], to_topic="orders-again", speed=10)

Owns the handing out; see `rounds.py` for what is done. At least once: the producers are idempotent, so that
none of their retries sends anything twice, but a task that is tried again, and a replay that goes on behind a failure,
send the records of one round again, which is some seconds of them.
"""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from ....protocol.text import elapsed
from ...backend import Backend, OffsetRange, ReadError, Selection, TopicPartition
from ...offsets import Limit, positions, resolve
from ...readers.files import FileBackend
from ...sink.errors import SinkError
from .. import spark_tasks
from ..export import arguments
from ..import_.produce import options_of
from ..import_.topics import check_wide, counts, ensure
from ..spark_tasks import JobError, Progress, Say
from .report import Replayed, ReplayReport
from .rounds import Replay, Settings
from .schedule import LEAST, MOST
from .tasks import Played, Work, replay_part

__all__ = ["ReplayReport", "replay"]

ISOLATIONS = ("read_committed", "read_uncommitted")


def replay(
    spark: SparkSession,
    source: str | Sequence[str] | Mapping[str, str],
    *,
    bootstrap: str,
    to_topic: str | None = None,
    topics: Sequence[str] | None = None,
    like: str | None = None,
    starting: str | Limit = "earliest",
    ending: str | Limit = "latest",
    rate: float | None = None,
    speed: float | None = None,
    timestamps: str = "keep",
    partitions: str = "keep",
    isolation: str = "read_committed",
    config: Mapping[str, str] | None = None,
    dry_run: bool = False,
    tell: Callable[[str], object] | None = None,
    say: Say | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> ReplayReport:
    """Sends records of a log into topics of brokers, of each partition in their order.

    `source`: log directories and partition folders, or the `kafka.*` options of running brokers without their prefix.
    `topics`, or a pattern that whole names are `like`; all but the brokers' own if neither. `starting` and `ending`:
    "earliest", "latest", a time, or offsets (`asking.limit`). Markers are left out, and so are aborted transactions
    unless `isolation` is "read_uncommitted".

    They go to topics of their own names, or all to `to_topic`; topics that are not there are made. `partitions`:
    "keep", or "key" for where Kafka's default partitioner puts their keys. `timestamps`: "keep", or "new" for the time
    at which each is sent. `rate`: so many records a second over all; `speed`: so many times the pace of the timestamps,
    all partitions in step; as fast as it goes if neither. `config` are settings of Kafka's producer.

    Ctrl-C, or `is_over`, ends it behind the round that is under way, which has some seconds of records: the report has
    the offsets that were reached. A second Ctrl-C does not wait for the round. With `dry_run` nothing is sent. Raises
    ReadError, SinkError, JobError; what an error says ends with the offsets that were reached.
    """
    _check(rate, speed, timestamps, partitions, isolation)
    options = options_of(bootstrap, config or {})
    committed = isolation == "read_committed"
    began = time.monotonic()
    with _backend(source) as backend:
        ranges, widths = _ranges(backend, topics, like, starting, ending, committed)
        _check_not_itself(source, bootstrap, to_topic, widths)
        wanted = {to_topic: max(widths.values(), default=1)} if to_topic is not None else widths
        report = ReplayReport(_name(source), bootstrap)
        report.partitions = [Replayed(*one.key, one.start, one.start, one.end, 0) for one in ranges]
        if dry_run or tell is not None:
            there = counts(options, sorted(wanted))
            if partitions == "keep":
                check_wide(there, wanted)
            _tell(tell, ranges, wanted, there, rate, speed)
        if dry_run:
            return report
        settings = Settings(
            options,
            ensure(options, wanted if partitions == "keep" else {**wanted, **counts(options, sorted(wanted))}),
            to_topic,
            partitions == "key",
            timestamps == "new",
            committed,
            rate,
            speed,
            max(1, spark.sparkContext.defaultParallelism),
        )
        with _stoppable() as stopped:
            made = Replay(
                backend,
                ranges,
                settings,
                lambda works: _run(spark, works),
                time.time,
                time.sleep,
                lambda: stopped() or is_over(),
                _teller(say, ranges, began),
            )
            _all(made, report)
    report.seconds = time.monotonic() - began
    return report


def _all(made: Replay, report: ReplayReport) -> None:
    try:
        made.all(report)
    except KeyboardInterrupt:
        report.stopped = True
    except (JobError, ReadError, SinkError) as error:
        if report.rounds:
            raise type(error)(f"{error}; it goes on with --from-offsets '{report.offsets}'") from error
        raise


def _run(spark: SparkSession, works: Sequence[Work]) -> Iterator[tuple[Work, Played]]:
    return spark_tasks.run(spark, works, replay_part, bytes_of=_alone, name="ottla replay")


def _alone(work: Work) -> int:
    """As much as a bundle holds: all run at the same time."""
    return spark_tasks.MOST_BYTES


@contextlib.contextmanager
def _stoppable() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed. The second time it does what it always did."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before: Any = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: Any) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, stop)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def _check(rate: float | None, speed: float | None, timestamps: str, partitions: str, isolation: str) -> None:
    if rate is not None and speed is not None:
        raise ReadError("either rate or speed says how fast")
    for name, number in (("rate", rate), ("speed", speed)):
        if number is not None and not LEAST <= number <= MOST:
            raise ReadError(f"{name} is {number}: it must be above 0, from {LEAST:g} to {MOST:g}")
    for name, value, choices in (
        ("timestamps", timestamps, ("keep", "new")),
        ("partitions", partitions, ("keep", "key")),
        ("isolation", isolation, ISOLATIONS),
    ):
        if value not in choices:
            raise ReadError(f"{name} is {value!r}: it must be {' or '.join(choices)}")


def _backend(source: str | Sequence[str] | Mapping[str, str]) -> Any:
    if isinstance(source, Mapping):
        from ...readers.wire import WireBackend

        return WireBackend(source)
    return FileBackend([source] if isinstance(source, str) else source)


def _name(source: str | Sequence[str] | Mapping[str, str]) -> str:
    if isinstance(source, Mapping):
        return source["bootstrap.servers"]
    return source if isinstance(source, str) else ", ".join(source)


def _ranges(
    backend: Backend,
    topics: Sequence[str] | None,
    like: str | None,
    starting: str | Limit,
    ending: str | Limit,
    committed: bool,
) -> tuple[list[OffsetRange], dict[str, int]]:
    """What is replayed, and how many partitions the topics have."""
    try:
        matches = re.compile(like).fullmatch if like is not None else None
    except re.error as error:
        raise ReadError(f"{like!r} is no regular expression: {error}") from error
    if topics is None:
        selection = Selection(pattern=like)
    else:
        selection = Selection(tuple(topic for topic in topics if matches is None or matches(topic)))
    keys: list[TopicPartition] = backend.partitions(selection)
    widths: dict[str, int] = {}
    for key in keys:
        widths[key.topic] = max(widths.get(key.topic, 0), key.partition + 1)
    starting = arguments.limit(starting, "--from") if isinstance(starting, str) else starting
    ending = arguments.limit(ending, "--until") if isinstance(ending, str) else ending
    ranges = resolve(backend, keys, starting, ending, no_match="latest", committed=committed, fail_on_data_loss=True)
    # Those of which there is nothing to be sent are told of as well: who goes on must name every partition.
    empty = sorted(set(keys) - {one.key for one in ranges})
    starts = positions(backend, keys, starting, committed=committed, of=empty) if empty else {}
    return sorted([*ranges, *(OffsetRange(*key, at, at) for key, at in starts.items())]), widths


def _check_not_itself(
    source: str | Sequence[str] | Mapping[str, str], bootstrap: str, to_topic: str | None, widths: Mapping[str, int]
) -> None:
    if isinstance(source, Mapping) and source.get("bootstrap.servers") == bootstrap:
        for topic in widths:
            if to_topic in (None, topic):
                raise ReadError(f"topic {topic} would be replayed into itself: name another with --to-topic")


def _tell(
    tell: Callable[[str], object] | None,
    ranges: Sequence[OffsetRange],
    wanted: Mapping[str, int],
    there: Mapping[str, int],
    rate: float | None,
    speed: float | None,
) -> None:
    if tell is None:
        return
    size = sum(one.size for one in ranges)
    pace = "as fast as it goes"
    if rate is not None:
        pace = f"{rate:g} records a second, about {elapsed(round(size / rate) * 1000)}"
    elif speed is not None:
        pace = f"{speed:g} times as fast as by their timestamps"
    tell(f"{len(ranges)} partitions, {size:,} offsets into {', '.join(sorted(wanted))}: {pace}; each at least once")
    if new := sorted(set(wanted) - set(there)):
        tell(f"topics that are made: {', '.join(new)}")


def _teller(say: Say | None, ranges: Sequence[OffsetRange], began: float) -> Callable[[ReplayReport], object]:
    all_offsets = sum(one.size for one in ranges)

    def told(report: ReplayReport) -> None:
        if say is not None:
            done = sum(one.reached - one.start for one in report.partitions)
            guess = report.bytes * all_offsets // max(1, done)
            seconds = time.monotonic() - began
            say(Progress(done, all_offsets, report.bytes, guess, seconds, ended=done == all_offsets))

    return told
