"""Imports Parquet to topics of running brokers, exactly once.

Owns the division of an import into transactions, and their order; and the target topics: created if missing, and
checked for their number of partitions. The transactional id is the identity of the import
(files, topics), and each transaction commits its number with it, so a second run continues after the last committed
one. The brokers keep that number for offsets.retention.minutes, by default a week.

A task writes all rows of a transaction for one partition, in the order of the offsets; the brokers assign new ones.
Keys, values, headers and timestamps are kept; a record without a timestamp is sent without one (-1). Raises ReadError,
and the errors of the sink.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from ....client.admin.calls import Calls
from ....client.admin.topics import TopicCalls
from ....client.admin.types import NewTopic
from ....client.net.cluster import Cluster
from ....client.net.errors import ClientError, KafkaError, UnsupportedVersion
from ....protocol.errors import ErrorCode
from ....protocol.limits import INT64_MAX
from ...backend import ReadError, TopicPartition
from ...readers.wire.connection import ClusterCalls
from ...sink.options import SinkOptions
from ...sink.rows import SENT, partitions_of
from ...sink.task_writer import Sent, send
from ...sink.transaction import Grant, SinkTransaction
from . import rows
from .plan import Piece, Plan
from .report import Imported, ImportReport
from .rows import FilePart

T = TypeVar("T")

PIECE_BYTES = 32 << 20
TRANSACTION_BYTES = 512 << 20
"""The size of a transaction in memory: some seconds of writing. An open transaction delays other `read_committed`
readers, and is repeated after an interruption."""

TRANSACTION_TIMEOUT_MS = 15 * 60_000
"""The default of transaction.max.timeout.ms."""

BY_KEY = -1
"""In a plan: the partition of rows without one, which go to the partition of their key."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The work of a task: rows for one partition of `count`. `by_key`: only the read rows whose keys belong to it."""

    topic: str
    partition: int
    count: int
    by_key: bool
    clusters: tuple[tuple[FilePart, ...], ...]
    plain_bytes: int
    options: SinkOptions
    grant: Grant

    def __str__(self) -> str:
        return str(TopicPartition(self.topic, self.partition))

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows for the sink."""
        for found in rows.read(self.clusters):
            some = found.select(SENT.names)
            if self.by_key:
                where = partitions_of(some.column("key"), some.column("value"), count=self.count, topic=self.topic)
                some = some.filter(pa.array(np.equal(where, self.partition)))
            if some.num_rows:
                yield some


Run = Callable[[Sequence[Delivery]], Iterator[tuple[Delivery, Sent]]]
"""Runs `deliver` for each, anywhere."""


def deliver(work: Delivery) -> Sent:
    """Does a task's work; repeated or concurrent attempts add no duplicates. Raises SinkError, ReadError."""
    return send(work.options, work.grant, (work.topic, work.partition), work.read())


def options_of(bootstrap: str, config: Mapping[str, str]) -> SinkOptions:
    """Returns the sink's options: `config` are configs of Kafka's producer. Raises SinkError."""
    kafka = {"transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS), **config, "bootstrap.servers": bootstrap}
    return SinkOptions.read({f"kafka.{name}": str(value) for name, value in kafka.items()})


def transactions(plan: Plan, most_bytes: int = TRANSACTION_BYTES) -> list[list[Piece]]:
    """Returns the pieces of each transaction: partitions advance together, each in the order of its offsets."""
    found: list[list[Piece]] = []
    size = most_bytes
    for piece in sorted(plan.pieces, key=lambda piece: (piece.number, piece.key)):
        if size >= most_bytes:
            found.append([])
            size = 0
        found[-1].append(piece)
        size += piece.plain_bytes
    return found


def deliveries(
    pieces: Sequence[Piece], counts: Mapping[str, int], options: SinkOptions, grant: Grant
) -> list[Delivery]:
    """Returns the work of a transaction's tasks: one for each target partition."""
    by_key: dict[TopicPartition, list[Piece]] = {}
    for piece in pieces:
        by_key.setdefault(piece.key, []).append(piece)
    found: list[Delivery] = []
    for key, some in sorted(by_key.items()):
        clusters = tuple(cluster for piece in some for cluster in piece.clusters)
        size = sum(piece.plain_bytes for piece in some)
        count = counts[key.topic]
        targets = range(count) if key.partition == BY_KEY else (key.partition,)
        found += [
            Delivery(key.topic, target, count, key.partition == BY_KEY, clusters, size, options, grant)
            for target in targets
        ]
    return found


def bring(
    plan: Plan,
    source: str,
    options: SinkOptions,
    identity: str,
    run: Run,
    *,
    partitions: int | None = None,
    most_bytes: int = TRANSACTION_BYTES,
) -> ImportReport:
    """Writes the plan's rows to the topics. A missing topic is created with as many partitions as its rows need, or
    with `partitions` if that is more. Raises the errors in the module docstring."""
    wanted = {topic: max(count, 1) for topic, count in plan.partitions.items()}
    counts = ensure(options, wanted if partitions is None else {t: max(n, partitions) for t, n in wanted.items()})
    report = ImportReport(source, str(options.kafka["bootstrap.servers"]), plan.files)
    found: dict[TopicPartition, list[Sent]] = {}
    with SinkTransaction(options, f"ottla-import-{identity}") as transaction:
        grant: Grant | None = transaction.begin()
        last = transaction.committed_batch()
        for number, pieces in enumerate(transactions(plan, most_bytes)):
            if last is not None and number <= last:
                report.skipped += sum(piece.rows for piece in pieces)
                continue
            grant = grant or transaction.begin()
            works = deliveries(pieces, counts, options, grant)
            transaction.add((work.topic, work.partition) for work in works)
            for _, sent in run(works):
                if sent.records:
                    found.setdefault(TopicPartition(sent.topic, sent.partition), []).append(sent)
            transaction.commit(number)
            grant = None
    for key, parts in sorted(found.items()):
        records, size = sum(sent.records for sent in parts), sum(sent.bytes for sent in parts)
        last = parts[-1].last_offset
        report.partitions.append(Imported(*key, records, size, parts[0].first_offset, last + 1 if last >= 0 else -1))
    return report


# -- the target topics

KEPT: Mapping[str, str | None] = {"retention.ms": "-1"}
"""The configs of a created topic: old records must not be deleted by retention,"""

ANY_TIME: Mapping[str, str | None] = {"message.timestamp.after.max.ms": str(INT64_MAX)}
"""and, with Kafka 3.6 or later, not be refused for a future timestamp."""


class _Topics(TopicCalls):
    def __init__(self, cluster: Cluster) -> None:
        self._calls = Calls(cluster)


def _run(options: SinkOptions, work: Callable[[_Topics], Coroutine[Any, Any, T]]) -> T:
    with ClusterCalls(options.client) as calls:
        return calls.read("the request failed", lambda cluster: work(_Topics(cluster)))


def counts(options: SinkOptions, names: list[str]) -> dict[str, int]:
    """Returns the number of partitions of each existing topic. Raises ReadError."""

    async def describe(topics: _Topics) -> dict[str, int]:
        found = await topics.describe_topics(names)
        for one in found.values():
            if isinstance(one, ClientError) and not _has(one, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise one
        return {name: len(one.partitions) for name, one in found.items() if not isinstance(one, ClientError)}

    return _run(options, describe) if names else {}


def ensure(options: SinkOptions, wanted: Mapping[str, int]) -> dict[str, int]:
    """Creates the missing topics with these numbers of partitions, and returns the number of each. Raises ReadError for
    a topic with fewer."""
    there = counts(options, sorted(wanted))
    check_wide(there, wanted)
    missing = {name: count for name, count in wanted.items() if name not in there}

    async def make(topics: _Topics) -> None:
        left = dict(missing)
        for replication, configs in ((-1, {**KEPT, **ANY_TIME}), (-1, KEPT), (1, KEPT)):
            new_topics = [NewTopic(name, max(1, count), replication, configs=configs) for name, count in left.items()]
            results = await topics.create_topics(new_topics)
            failed = {name: result for name, result in results.items() if isinstance(result, ClientError)}
            # An earlier attempt whose response was lost may have created it.
            left = {name: left[name] for name, one in failed.items() if not _has(one, ErrorCode.TOPIC_ALREADY_EXISTS)}
            if not left:
                return
            # A broker may lack the default replication factor (before 2.4), or a config.
            errors = [failed[name] for name in left]
            lacks = [_has(one, ErrorCode.INVALID_CONFIG) or isinstance(one, UnsupportedVersion) for one in errors]
            if replication > 0 or not all(lacks):
                raise failed[min(left)]

    if missing:
        _run(options, make)
    return {**there, **{name: max(1, count) for name, count in missing.items()}}


def check_wide(there: Mapping[str, int], wanted: Mapping[str, int]) -> None:
    """Raises ReadError for a topic with fewer partitions than its records need."""
    for name, count in there.items():
        if count < wanted[name]:
            raise ReadError(f"topic {name} has {count} partitions, but its records need {wanted[name]}")


def _has(error: ClientError, code: ErrorCode) -> bool:
    return isinstance(error, KafkaError) and error.code == code
