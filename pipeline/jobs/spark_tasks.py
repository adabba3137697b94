"""Runs many pieces of work through Spark, in bundles of similar size, and yields results in order of completion.

Owns the bundles, the single Spark job, and its progress. Only items and results are transferred, both small and
picklable; the task is a top-level function of a module that the workers can import. Works with classic Spark, on one
machine and on a cluster.

The results come through an accumulator: Spark delivers the updates of a task to the driver when the task ends, once
whatever the number of attempts. Nothing else of a job arrives before its end.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TextIO, TypeVar

from pyspark import InheritableThread
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

from ...protocol import text
from ..cluster import context_of, worker_python
from ..extras import SetupError

Item = TypeVar("Item")
Result = TypeVar("Result")

WAVES = 8
"""Bundles per core: with several, cores finish at about the same time although bundles differ in size."""

LEAST_BYTES = 4 << 20
MOST_BYTES = 64 << 20
"""The size of a bundle: worth the start of a task, and small enough for regular progress."""

ITEM_BYTES = 64 << 10
"""The cost of an item besides its bytes: opening a file, returning facts."""

TICK_S = 0.5
LINE_S = 5.0
SENTENCE_LETTERS = 500

_OF_SPARK = re.compile(r"^.*\(TID [0-9]+\) \([^()]*\): |[a-z]+(\.[a-z]+)+\.SparkException: ")

ProgressCallback = Callable[["Progress"], None]


class JobError(Exception):
    """A job failed. The message is one sentence, which names the item."""


class Sized(Protocol):
    """An item with a size."""

    @property
    def size_bytes(self) -> int: ...


class Progress(NamedTuple):
    """The progress of a job. `ended` marks the last report."""

    items: int
    all_items: int
    bytes: int
    all_bytes: int
    seconds: float
    ended: bool = False

    def __str__(self) -> str:
        done = f"{self.items} of {self.all_items}, {text.size(self.bytes)} of {text.size(self.all_bytes)}"
        if not self.bytes:
            return done
        speed = text.speed(self.bytes, self.seconds)
        if self.ended:
            return f"{done}, {speed} in {text.elapsed(self.seconds * 1000)}"
        left_s = round(self.seconds * (self.all_bytes - self.bytes) / self.bytes)
        return f"{done}, {speed}, {text.elapsed(left_s * 1000)} left"


class Meter:
    """Prints progress: on a terminal one line that is rewritten, else a line every few seconds, and the last one."""

    def __init__(self, what: str, stream: TextIO | None = None) -> None:
        self._what = what
        self._stream = stream if stream is not None else sys.stderr
        self._on_terminal = self._stream is not None and self._stream.isatty()
        self._printed_s = 0.0

    def __call__(self, progress: Progress) -> None:
        is_due = progress.ended or progress.seconds >= self._printed_s + LINE_S
        if self._stream is None or not (self._on_terminal or is_due):
            return
        self._printed_s = progress.seconds
        line = f"{self._what}: {progress}"
        with contextlib.suppress(OSError, ValueError):  # stderr may be closed
            if self._on_terminal:
                self._stream.write(f"\r\x1b[K{line}" + ("\n" if progress.ended else ""))
            else:
                self._stream.write(line + "\n")
            self._stream.flush()


def bundles(sizes: Sequence[int], cores: int) -> list[list[int]]:
    """Returns the indexes of the items of each task: large items alone and first, small ones together."""
    costs = [max(size, 0) + ITEM_BYTES for size in sizes]
    aim = min(max(sum(costs) // max(cores * WAVES, 1), LEAST_BYTES), MOST_BYTES)
    found: list[list[int]] = []
    left = 0
    for index in sorted(range(len(costs)), key=lambda index: (-costs[index], index)):
        if left < costs[index]:
            found.append([])
            left = aim
        found[-1].append(index)
        left -= costs[index]
    return found


def size_of(item: Sized) -> int:
    """Returns the size of an item that has one."""
    return item.size_bytes


def tasks(spark: SparkSession, items: Iterable[Sized]) -> int:
    """Returns the number of tasks of `run` for these items."""
    sizes = list(map(size_of, items))
    return len(bundles(sizes, parallelism(spark))) if sizes else 0


def parallelism(spark: SparkSession) -> int:
    """Returns the number of tasks that run at the same time. Raises SetupError for a session of Spark Connect."""
    return context_of(spark).defaultParallelism


def ended(spark: SparkSession, error: Exception) -> JobError | SetupError:
    """Returns the error of a job that Spark ended: one of the workers' Python by itself, else a JobError."""
    return worker_python(error, context_of(spark).pythonExec) or JobError(f"Spark ended the job: {sentence(error)}")


def run(
    spark: SparkSession,
    items: Sequence[Item],
    task: Callable[[Item], Result],
    *,
    bytes_of: Callable[[Any], int] = size_of,
    on_progress: ProgressCallback | None = None,
    name: str = "ottla",
) -> Iterator[tuple[Item, Result]]:
    """Runs `task(item)` for every item in Spark's workers, and yields each item with its result once its bundle is
    done.

    `bytes_of` returns the size of an item, by default its `size_bytes`. `on_progress` receives the progress, such as a
    `Meter`. `name` is shown in Spark's UI. The first failing item raises JobError and cancels the rest, as does
    closing the iterator. SetupError if the workers' Python lacks Ottla. Without items the session is not used.
    """
    sizes = [bytes_of(item) for item in items]
    if not items:
        if on_progress is not None:
            on_progress(Progress(0, 0, 0, 0, 0.0, ended=True))
        return
    context = context_of(spark)
    parts = [[(index, items[index]) for index in part] for part in bundles(sizes, context.defaultParallelism)]
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    group = f"{name}-{uuid.uuid4()}"
    results: Accumulator[list[Any]] = context.accumulator([], _Inbox(inbox.put))

    def drive() -> None:
        try:
            context.setJobGroup(group, name)
            context.parallelize(parts, len(parts)).foreachPartition(functools.partial(_work, task, results))
            inbox.put(None)
        except Exception as error:  # raised by the thread that waits for results
            inbox.put(error)

    began = time.monotonic()
    done: set[int] = set()
    done_bytes, all_bytes = 0, sum(sizes)

    def report_progress(*, ended: bool) -> None:
        if on_progress is not None:
            on_progress(Progress(len(done), len(items), done_bytes, all_bytes, time.monotonic() - began, ended))

    thread = InheritableThread(target=drive, daemon=True)
    thread.start()
    try:
        while len(done) < len(items):
            try:
                found = inbox.get(timeout=TICK_S)
            except queue.Empty:
                report_progress(ended=False)
                continue
            if found is None:
                raise JobError(f"Spark ended the job without a result for {items[min(set(range(len(items))) - done)]}")
            if isinstance(found, Exception):
                raise ended(spark, found) from found
            index, result, problem = found
            if problem is not None:
                raise JobError(f"{items[index]}: {problem}")
            if index not in done:
                done.add(index)
                done_bytes += sizes[index]
                report_progress(ended=False)
                yield items[index], result
    finally:
        report_progress(ended=True)
        if thread.is_alive() and len(done) < len(items):
            with contextlib.suppress(Exception):  # a stopped session has nothing to cancel
                context.cancelJobGroup(group)
        thread.join(timeout=10)


class _Inbox(AccumulatorParam[list[Any]]):
    """Collects results in a task; at the driver, where `deliver` is set, passes them on."""

    def __init__(self, deliver: Callable[[Any], None] | None = None) -> None:
        self._deliver = deliver

    def __reduce__(self) -> tuple[type[_Inbox], tuple[()]]:
        return _Inbox, ()

    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:
        if self._deliver is None:
            value1.extend(value2)
        else:
            for result in value2:
                self._deliver(result)
        return value1


def _work(task: Callable[[Any], Any], results: Accumulator[list[Any]], parts: Iterable[list[tuple[int, Any]]]) -> None:
    """Runs one Spark task: adds (index, result, problem) of each item of its bundle."""
    for part in parts:
        for index, item in part:
            try:
                found = (index, task(item), None)
            except Exception as error:  # any error: the driver names the item
                results.add([(index, None, sentence(error))])
                return
            results.add([found])


def sentence(error: Exception) -> str:
    """Returns the message of an error in one line."""
    if (thrown := getattr(error, "java_exception", None)) is not None:
        # The other lines are Java frames; the prefix is the number of the task and stage.
        text = _OF_SPARK.sub("", str(thrown).partition("\n")[0])
    else:
        text, kind = " ".join(str(error).split()), type(error)
        # Errors of Ottla are complete sentences; of others the type is more informative than the text.
        if not text or not kind.__module__.startswith("ottla."):
            text = f"{kind.__name__}: {text}" if text else kind.__name__
    return text if len(text) <= SENTENCE_LETTERS else text[: SENTENCE_LETTERS - 3] + "..."
