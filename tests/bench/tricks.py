"""Measures the techniques described in docs/internals/tricks.md, each next to what it replaces.
    .venv/bin/python tests/bench/tricks.py [NAME ...]
Prints the best of several rounds. Load on the machine makes all of them slower, but changes their ratios less.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import io
import os
import pkgutil
import subprocess
import sys
import tempfile
import threading
import time
import timeit
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from ottla.protocol import compiler, messages, schema
from ottla.protocol.layouts import Effort, struct_of
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.records import batch, walk
from ottla.protocol.records.new_tuple import new_tuple
from ottla.protocol.structs import parse_value
from ottla.storage.io.files import DiskFile

ROUNDS = 7
MIB = 1 << 20


def best_us(work: Callable[[], object], number: int = 1000) -> float:
    """Returns the processor time of one call in the best round, in microseconds."""
    return min(timeit.repeat(work, timer=time.process_time, number=number, repeat=ROUNDS)) / number * 1e6


def report(name: str, **figures: float) -> None:
    print(f"{name}: " + ", ".join(f"{label.replace('_', ' ')} {figure:.3g}" for label, figure in figures.items()))


def generated_codec() -> None:
    """Compares generated code with the Struct of the same declaration, for Produce v9 with one partition."""
    body = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic_data()])
    data = compiler.build(body, 9)
    parse, layout = compiler.reader(ProduceRequest, 9), struct_of(ProduceRequest, 9)
    report(
        "parse Produce v9 (us)",
        generated=best_us(lambda: parse(data, 0)),
        with_construct=best_us(lambda: parse_value(layout, io.BytesIO(data), Effort(1000, ""), ""), 100),
    )
    report(
        "build Produce v9 (us)",
        generated=best_us(lambda: compiler.build(body, 9)),
    )


def topic_data() -> Any:
    kinds = schema.types_of(ProduceRequest)
    topic = kinds["topic_data"].__args__[0]
    partition = schema.types_of(topic)["partition_data"].__args__[0]
    return topic(name="orders", partition_data=[partition(index=0, records=b"x" * 100)])


def late_constructors() -> None:
    """Measures compiling the constructors of all message classes, as an import would."""
    for module in pkgutil.walk_packages(messages.__path__, f"{messages.__name__}."):
        importlib.import_module(module.name)
    classes = all_subclasses(schema.Value)
    begun = time.process_time()
    for cls in classes:
        schema._make_init(cls)  # pyright: ignore[reportPrivateUsage]
    report("compile constructors (ms)", classes=len(classes), all_of_them=(time.process_time() - begun) * 1e3)


def all_subclasses(cls: type[Any]) -> list[type[Any]]:
    return [one for child in cls.__subclasses__() for one in (child, *all_subclasses(child))]


async def nothing() -> None:
    """A handler that never waits."""


def driven(start: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with contextlib.suppress(StopIteration):
        start().send(None)


def coroutines() -> None:
    """Compares a handler that never waits, driven by hand, with the same as a task of asyncio and of uvloop."""

    async def tasks(number: int) -> float:
        loop = asyncio.get_running_loop()
        begun = time.process_time()
        for _ in range(number):
            await loop.create_task(nothing())
        return (time.process_time() - begun) / number * 1e6

    import uvloop

    figures = {"by_hand": best_us(lambda: driven(nothing), 10_000)}
    for name, factory in {"task_asyncio": asyncio.new_event_loop, "task_uvloop": uvloop.new_event_loop}.items():
        with asyncio.Runner(loop_factory=factory) as runner:
            figures[name] = min(runner.run(tasks(5000)) for _ in range(ROUNDS))
    report("a handler that does not wait (us)", **figures)


def reads() -> None:
    """Compares pread with a slice of a mapping whose pages one call loads, for 1 MiB of a file in the page cache."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(os.urandom(64 * MIB))
        file.flush()
        fd = os.open(file.name, os.O_RDWR)
        positions = range(0, 64 * MIB, MIB)

        def by_pread() -> None:
            for position in positions:
                os.pread(fd, MIB, position)

        disk_file = DiskFile(file.name, fd)
        report(
            "1 MiB of a file (us)",
            pread=best_us(by_pread, 3) / len(positions),
            slice_of_a_mapping=best_us(lambda: [disk_file.read(position, MIB) for position in positions], 3)
            / len(positions),
        )


def frozen() -> None:
    """Measures a full garbage collection in a process that has imported the broker."""
    program = (
        "import gc, time, ottla.broker.main, ottla.broker.handlers\n"
        "def full():\n"
        " best = 9.0\n"
        " for _ in range(7):\n"
        "  begun = time.process_time(); gc.collect(); best = min(best, time.process_time() - begun)\n"
        " return best * 1e3\n"
        "before, count = full(), len(gc.get_objects()); gc.freeze(); print(count, before, full())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    count, before, after = map(float, done.stdout.split())
    report("full collection (ms)", objects=count, not_frozen=before, frozen=after)


class Six(NamedTuple):
    """A named tuple like those of the records code."""

    a: int
    b: int
    c: int
    d: int
    e: int
    f: int


def tuples() -> None:
    """Measures creating a NamedTuple of six fields from the values of a tuple."""
    values = (1, 2, 3, 4, 5, 6)
    report(
        "a NamedTuple of six (ns)",
        tuple_new=best_us(lambda: new_tuple(Six, values), 100_000) * 1e3,
        the_class=best_us(lambda: Six(*values), 100_000) * 1e3,
    )


def records() -> None:
    """Compares checking whole records by shape with checking varint by varint."""
    made = batch.build([batch.Record(i, 1_700_000_000_000 + i, None, b"x" * 100) for i in range(1000)])
    header = batch.read_header(made)
    payload = memoryview(made)[batch.HEADER_BYTES :]
    most = 1 << 40
    shaped = best_us(lambda: walk.whole_from(payload, 0, header.record_count, 0, -most, most, False), 20)
    plain = best_us(
        lambda: walk._any_shape_from(payload, 0, header.record_count, 0, -most, most, False),  # pyright: ignore
        20,
    )
    report("check a record of 100 bytes (us)", by_shape=shaped / 1000, by_varint=plain / 1000)


def scrape() -> None:
    """Measures how late an event loop wakes while a thread renders 20,000 samples, with and without the pauses of a
    scrape."""
    from prometheus_client import generate_latest
    from prometheus_client.core import GaugeMetricFamily

    from ottla.broker.admin_api.scrape import GIVE_WAY_SECONDS, ROWS_AT_ONCE

    class Samples(list[Any]):
        def __init__(self, pause: bool) -> None:
            family = GaugeMetricFamily("rows", "rows", labels=["number"])
            for number in range(20_000):
                family.add_metric([str(number)], number)
            super().__init__(family.samples)
            self.pause = pause

        def __iter__(self) -> Any:
            for number, sample in enumerate(super().__iter__(), 1):
                yield sample
                if self.pause and number % ROWS_AT_ONCE == 0:
                    time.sleep(GIVE_WAY_SECONDS)

    class Rows:
        def __init__(self, pause: bool) -> None:
            self.samples = Samples(pause)

        def describe(self) -> list[Any]:
            return []

        def collect(self) -> Any:
            family = GaugeMetricFamily("rows", "rows", labels=["number"])
            family.samples = self.samples
            yield family

    async def late_ms(rows: Rows) -> list[float]:
        thread = threading.Thread(target=lambda: generate_latest(rows))  # type: ignore[arg-type]
        thread.start()
        late: list[float] = []
        while thread.is_alive():
            begun = time.perf_counter()
            await asyncio.sleep(0.0005)
            late.append((time.perf_counter() - begun) * 1e3 - 0.5)
        return sorted(late)

    for pause in (False, True):
        late = min((asyncio.run(late_ms(Rows(pause))) for _ in range(ROUNDS)), key=lambda found: found[len(found) // 2])
        report(
            f"an event loop wakes late, {'with' if pause else 'without'} sleeps (ms)",
            median=late[len(late) // 2],
            worst=late[-1],
        )


ALL = (generated_codec, late_constructors, coroutines, reads, frozen, tuples, records, scrape)

if __name__ == "__main__":
    gc.disable()
    for measure in ALL:
        if not sys.argv[1:] or measure.__name__ in sys.argv[1:]:
            measure()
