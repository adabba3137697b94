"""Shared parts of the wire tests: brokers with given bytes as their logs, and pieces read to rows."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ottla.broker.testing.embedded import Embedded
from ottla.client import Admin, Consumer
from ottla.client.net.security import Settings
from ottla.pipeline.backend import OffsetRange, Selection, TopicPartition, Wanted
from ottla.pipeline.readers.columns import METADATA_COLUMNS, RECORD_COLUMNS
from ottla.pipeline.readers.wire import WireBackend
from ottla.pipeline.readers.wire.backend import WirePiece
from ottla.protocol.records import batch
from ottla_testing.patience import PATIENCE_MS

NOW_MS = 1_700_000_000_000
COLUMNS = (*RECORD_COLUMNS, "headers")
ALL = (*COLUMNS, *METADATA_COLUMNS)
QUICK = {
    "default.api.timeout.ms": str(PATIENCE_MS),
    "request.timeout.ms": "2000",
    "retry.backoff.ms": "5",
    "retry.backoff.max.ms": "50",
    "reconnect.backoff.ms": "5",
    "fetch.max.wait.ms": "50",
}


def config(broker: Embedded | str, **more: Any) -> Settings:
    """Returns the options of a reader of this broker, with short timeouts."""
    bootstrap = broker if isinstance(broker, str) else broker.bootstrap
    given = {name.replace("_", "."): str(of) for name, of in more.items()}
    return Settings({"bootstrap.servers": bootstrap, **QUICK, **given})


def wanted(*columns: str, **more: Any) -> Wanted:
    return Wanted(columns or COLUMNS, **more)


def piece(
    broker: Embedded | str, topic: str, end: int, start: int = 0, want: Wanted | None = None, **more: Any
) -> WirePiece:
    """Returns the work of reading a range of a topic's first partition."""
    return WirePiece(config(broker, **more), OffsetRange(topic, 0, start, end), want or wanted())


def rows(work: WirePiece) -> list[dict[str, Any]]:
    """Returns the rows of a task, whose piece is pickled."""
    pickled = pickle.dumps(work)
    assert len(pickled) < 2000
    found: list[dict[str, Any]] = []
    for some in pickle.loads(pickled).read():
        some.validate(full=True)
        assert some.schema.names == list(work.wanted.columns)
        found += some.to_pylist()
    return found


def offsets(work: WirePiece) -> list[int]:
    return [row["offset"] for row in rows(work)]


def all_rows(broker: Embedded | str, topic: str, *, want: Wanted | None = None, **more: Any) -> list[dict[str, Any]]:
    """Returns every record of a topic, planned and read like a query does."""
    want = want or wanted()
    with WireBackend(config(broker, **more)) as backend:
        keys = backend.partitions(Selection(topics=(topic,)))
        starts, ends = backend.earliest(keys), backend.latest(keys, committed=want.committed)
        ranges = [OffsetRange(*key, starts[key], ends[key]) for key in keys]
        return [row for work in backend.pieces(ranges, want, at_least=None) for row in rows(work)]


def consumed(broker: Embedded, topic: str, isolation: Any = "read_uncommitted") -> list[tuple[Any, ...]]:
    """Returns the same with the project's consumer: (partition, offset, ms, type, key, value, headers)."""

    async def work() -> list[tuple[Any, ...]]:
        found = []
        parts = len(broker.topic(topic).partitions)
        options: Any = {"offset_reset": "earliest", "isolation": isolation, "retry_backoff_ms": 5}
        assign = [(topic, number) for number in range(parts)]
        async with Consumer(broker.bootstrap, assign=assign, **options) as consumer:
            ends = await consumer.end_offsets([(topic, number) for number in range(parts)])
            left = {where for where, end in ends.items() if end}
            while left:
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    for r in records:
                        found.append(
                            (
                                r.partition,
                                r.offset,
                                r.timestamp_ms,
                                r.timestamp_type,
                                r.key,
                                r.value,
                                tuple((header.key, header.value) for header in r.headers),
                            )
                        )
                for where in list(left):
                    if await consumer.position(*where) >= ends[where]:
                        left.discard(where)
        return sorted(found)

    return asyncio.run(work())


def shown(found: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Converts rows to the form of `consumed`."""
    return sorted(
        (
            row["partition"],
            row["offset"],
            -1 if row["timestampType"] == -1 else round(row["timestamp"].timestamp() * 1000),
            row["timestampType"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in found
    )


@contextlib.contextmanager
def stored(folder: Path, logs: Mapping[str, bytes], release: str = "2.8", **configs: Any) -> Iterator[Embedded]:
    """Starts a broker whose topics, of one partition each, have these bytes as their logs."""
    from ottla_testing.broker.stored_logs import put_log

    settings = {name.replace("_", "."): str(of) for name, of in configs.items()}
    with Embedded(release=release, data_dir=folder, configs=settings) as broker:
        for name in logs:
            broker.create_topic(name)
    for name, data in logs.items():
        put_log(folder / f"{name}-0", bytes(data))
    with Embedded(release=release, data_dir=folder, configs=settings) as broker:
        yield broker


def delete_below(broker: Embedded, topic: str, offset: int) -> None:
    """Raises the log start offset."""

    async def work() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.delete_records({(topic, 0): offset})

    asyncio.run(work())


def transactional(offset: int, producer_id: int) -> bytes:
    """Returns a batch of one record within a transaction."""
    record = batch.Record(offset, NOW_MS + offset, None, b"%d" % offset)
    return bytes(
        batch.build(
            [record],
            batch.BatchFields(producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True),
            base_offset=offset,
        )
    )


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    """Returns a transaction marker."""
    record = batch.Record(offset, NOW_MS + offset, struct.pack(">hh", 0, commit), struct.pack(">hi", 0, 0))
    return bytes(
        batch.build(
            [record],
            batch.BatchFields(producer_id=producer_id, producer_epoch=0, transactional=True, control=True),
            base_offset=offset,
        )
    )


def plain(*offsets: int, codec: int = 0, value_bytes: int = 10) -> bytes:
    """Returns one v2 batch with records at these offsets."""
    some = [batch.Record(offset, NOW_MS + offset, None, b"%d" % offset + b"v" * value_bytes) for offset in offsets]
    return bytes(batch.build(some, base_offset=offsets[0], codec=codec))


KEY = TopicPartition("t", 0)
