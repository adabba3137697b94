"""Shared parts of the sink's tests: options with short timeouts, rows, and the contents of a log."""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ottla.broker.testing.embedded import Embedded
from ottla.pipeline.sink.options import SinkOptions
from ottla.pipeline.sink.task_writer import Sent, send
from ottla.pipeline.sink.transaction import Grant, SinkTransaction
from ottla_testing.patience import PATIENCE_MS
from ottla_testing.pipeline import wire_world

RELEASES = ("0.11", "1.1", "2.5", "3.9", "4.0", "4.3", "ottla")
"""Releases between which the behaviour of coordinators and leaders changed."""

QUICK = {
    "kafka.request.timeout.ms": "4000",
    "kafka.delivery.timeout.ms": str(PATIENCE_MS),
    "kafka.max.block.ms": str(PATIENCE_MS),
    "kafka.retry.backoff.ms": "5",
    "kafka.retry.backoff.max.ms": "50",
    "kafka.reconnect.backoff.ms": "5",
    "kafka.reconnect.backoff.max.ms": "50",
}
ROW_BYTES = 46
"""The size of a row of `values` in a batch: ten bytes, and the most that a record takes in addition."""

_names = itertools.count()


def options(broker: Embedded | str, *, rows_per_batch: int | None = None, **more: Any) -> SinkOptions:
    """Returns the sink's options for this broker; underscores in `more` stand for dots, and names with one for
    `kafka.*`."""
    bootstrap = broker if isinstance(broker, str) else broker.bootstrap
    given = {"kafka.bootstrap.servers": bootstrap, **QUICK}
    if rows_per_batch is not None:
        given["kafka.batch.size"] = str(rows_per_batch * ROW_BYTES)
    for name, value in more.items():
        given["kafka." + name.replace("_", ".") if "_" in name else name] = str(value)
    return SinkOptions.read(given)


def topic(broker: Embedded, partitions: int = 1, **configs: Any) -> str:
    """Creates a topic and returns its name."""
    given = {name.replace("_", "."): value for name, value in configs.items()}
    return broker.create_topic(f"t{next(_names)}", partitions=partitions, configs=given)


def transactional_id() -> str:
    """Returns an unused transactional id."""
    return f"query-{next(_names)}"


def values(count: int, first: int = 0) -> list[bytes]:
    """Returns distinct values of ten bytes each."""
    return [b"row%07d" % number for number in range(first, first + count)]


def rows(some: Sequence[bytes], *sizes: int) -> Iterator[pa.RecordBatch]:
    """Yields these values as rows, in record batches of these sizes, repeated; or in a single one."""
    position = 0
    for size in itertools.cycle(sizes or (max(1, len(some)),)):
        if position >= len(some):
            return
        yield pa.record_batch({"value": pa.array(some[position : position + size], pa.binary())})
        position += size


def interrupted(some: Sequence[bytes], at: int, act: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    """Yields rows one by one; calls `act` before the one at index `at`."""
    for number, value in enumerate(some):
        if number == at:
            act()
        yield pa.record_batch({"value": pa.array([value], pa.binary())})


def seen(broker: Embedded, name: str) -> dict[int, list[bytes]]:
    """Returns the committed values by partition."""
    found: dict[int, list[bytes]] = {}
    for record in broker.records(name):
        found.setdefault(record.partition, []).append(record.value or b"")
    return found


def log(broker: Embedded, name: str) -> list[tuple[int, int, bytes]]:
    """Returns (batch's first offset, sequence, value) of each committed record of the first partition, in order."""
    want = wire_world.wanted("partition", "offset", "batchOffset", "sequence", "value", committed=True)
    found = [row for row in wire_world.all_rows(broker, name, want=want) if row["partition"] == 0]
    return [(row["batchOffset"], row["sequence"], row["value"]) for row in found]


def written(
    given: SinkOptions, owner: str, batch_id: int, parts: Mapping[tuple[str, int], Iterable[pa.RecordBatch]]
) -> list[Sent]:
    """Writes a whole micro-batch."""
    with SinkTransaction(given, owner) as transaction:
        grant = transaction.begin()
        transaction.add(parts)
        sent = [send(given, grant, where, iter(some)) for where, some in parts.items()]
        transaction.commit(batch_id)
        return sent


@contextlib.contextmanager
def begun(given: SinkOptions, owner: str, *parts: tuple[str, int]) -> Iterator[tuple[SinkTransaction, Grant]]:
    """Begins a transaction with these partitions."""
    with SinkTransaction(given, owner) as transaction:
        grant = transaction.begin()
        transaction.add(parts)
        yield transaction, grant


def free_listener() -> str:
    """Returns an address that a broker can use again after a restart."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
