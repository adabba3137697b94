"""Queues, batches and memory: which records wait, their results, and the order."""

from __future__ import annotations

import asyncio
import itertools
from random import Random

import pytest

from ottla.client.net.errors import BufferFull, ClientClosed, InvalidRequest, UnsupportedVersion
from ottla.client.producer.accumulator import BATCH_OVERHEAD, Accumulator, Batch, PartitionQueue, RecordMetadata
from ottla.client.producer.batches import encode, magic_of
from ottla.protocol.records import batch, formats
from ottla_testing.client.simulated_loop import SimulatedLoop


def made(buffer_bytes: int = 1000) -> tuple[Accumulator, list[Batch]]:
    opened: list[Batch] = []
    return Accumulator(buffer_bytes=buffer_bytes, delivery_s=10.0, opened=opened.append), opened


def filled(accumulator: Accumulator, queue: PartitionQueue, *values: bytes, at_s: float = 1.0) -> Batch:
    """Returns a batch with these values, as `Producer.send` builds it."""
    batch = accumulator.open_batch(queue, at_s)
    for number, value in enumerate(values):
        accumulator.free -= 10
        batch.size += 10
        batch.records.append((1000 + number, None, value, ()))
        batch.futures.append(asyncio.get_running_loop().create_future())
        queue.next_ordinal += 1
    return batch


async def test_batches_queue_in_order_with_deadlines_and_ordinals() -> None:
    accumulator, opened = made()
    queue = accumulator.queue("t", 3)
    assert accumulator.queue("t", 3) is queue and not queue.has_work()
    first = filled(accumulator, queue, b"a", b"b", at_s=5)
    second = filled(accumulator, queue, b"c", at_s=6)
    assert opened == [first, second] and queue.open is second and queue.has_work()
    assert [(b.created_s, b.deadline_s, b.ordinal) for b in opened] == [(5, 15, 0), (6, 16, 2)]
    assert queue.take_first() is first and first.count == 2 and queue.open is second
    assert queue.take_first() is second and queue.open is None and not queue.has_work()


async def test_each_record_gets_its_metadata() -> None:
    accumulator, _ = made()
    queue = accumulator.queue("t", 3)
    own, appended, unknown, old = (filled(accumulator, queue, b"a", b"b") for _ in range(4))
    old.magic = 0
    futures = {id(b): b.futures for b in (own, appended, unknown, old)}
    own.futures[0].cancel()
    accumulator.fulfil(own, 7, -1)
    accumulator.fulfil(appended, 7, 5555)
    accumulator.fulfil(unknown, -1, -1)
    accumulator.fulfil(old, 7, -1)
    assert futures[id(own)][0].cancelled() and futures[id(own)][1].result() == RecordMetadata("t", 3, 8, 1001)
    assert [f.result() for f in futures[id(appended)]] == [("t", 3, 7, 5555), ("t", 3, 8, 5555)]
    assert [f.result() for f in futures[id(unknown)]] == [("t", 3, -1, -1)] * 2
    assert [(f.result().has_offset, f.result().has_timestamp) for f in futures[id(old)]] == [(True, False)] * 2
    assert accumulator.free == 1000 and not accumulator.undone
    accumulator.fail(own, lambda index: RuntimeError())  # a finished future is unchanged
    assert accumulator.free == 1000


async def test_each_record_gets_its_error() -> None:
    accumulator, _ = made()
    failing = filled(accumulator, accumulator.queue("t", 0), b"a", b"b")
    futures = failing.futures
    accumulator.fail(failing, lambda index: ValueError(index))
    assert [f.exception().args for f in futures] == [(0,), (1,)]  # type: ignore[union-attr]


async def test_split_batch_keeps_all_records_and_returns_its_memory() -> None:
    accumulator, _ = made()
    queue = accumulator.queue("t", 0)
    whole = filled(accumulator, queue, b"a", b"b", b"c")
    queue.take_first()
    futures = whole.futures
    parts = whole.halves()
    accumulator.replace(whole, parts)
    assert [[r[2] for r in p.records] for p in parts] == [[b"a"], [b"b", b"c"]]
    assert [(p.count, p.ordinal, p.deadline_s) for p in parts] == [(1, 0, 11), (2, 1, 11)]
    assert sum(p.size - BATCH_OVERHEAD for p in parts) == 30
    assert list(accumulator.undone) == parts
    for part in reversed(parts):
        queue.keep_order(part)
    assert queue.put_back == parts
    for offset, part in enumerate(parts):
        accumulator.fulfil(part, offset, -1)
    assert accumulator.free == 1000 and all(f.done() for f in futures)


def test_memory_is_given_in_order_within_the_timeout() -> None:
    loop = SimulatedLoop()
    accumulator, _ = made(100)

    async def main() -> None:
        await accumulator.room(80, 5)
        order: list[int] = []

        async def wait(number: int, size: int, timeout_s: float) -> None:
            await accumulator.room(size, timeout_s)
            order.append(number)

        tasks = [asyncio.ensure_future(wait(*each)) for each in ((0, 50, 5.0), (1, 10, 9.0), (2, 30, 1.0))]
        await asyncio.sleep(0)
        assert accumulator.is_waited_for and accumulator.free == 20  # the second would fit, but it waits for its turn
        with pytest.raises(BufferFull):
            await tasks[2]
        assert loop.now_s == 1001
        tasks[0].cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert order == [1] and accumulator.free == 10
        accumulator.give_room(80)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert accumulator.free == 90 and not accumulator.is_waited_for

    loop.run(main())


def test_memory_given_to_a_cancelled_send_is_returned() -> None:
    loop = SimulatedLoop()
    accumulator, _ = made(100)

    async def main() -> None:
        await accumulator.room(100, 5)
        waiting = asyncio.ensure_future(accumulator.room(60, 5))
        later = asyncio.ensure_future(accumulator.room(60, 5))
        await asyncio.sleep(0)
        accumulator.give_room(100)
        waiting.cancel()
        await asyncio.wait([waiting, later])
        assert waiting.cancelled() and later.exception() is None and accumulator.free == 40
        last = asyncio.ensure_future(accumulator.room(60, 5))
        await asyncio.sleep(0)
        accumulator.refuse_waiters(ClientClosed)
        with pytest.raises(ClientClosed):
            await last

    loop.run(main())


async def test_sequence_of_an_error_identifies_the_record() -> None:
    accumulator, _ = made()
    queue = accumulator.queue("t", 0)
    for ordinal, epoch, sequence, count in ((0, 0, 0, 5), (5, 0, 5, 5), (20, 0, 10, 5), (25, 1, 0, 3)):
        placed = Batch(queue, ordinal, 0, 0)
        placed.producer_id, placed.epoch, placed.base_sequence, placed.count = 7, epoch, sequence, count
        queue.note_place(placed)
    assert len(queue.places) == 3  # the second only continues the count
    assert [queue.ordinal_of(7, 0, s) for s in (0, 7, 12)] == [0, 7, 22]
    assert queue.ordinal_of(7, 1, 2) == 27
    assert queue.ordinal_of(8, 0, 0) == queue.ordinal_of(7, 2, 0) == -1


ROWS = [
    (
        1000 + 9 * number,
        None if number % 3 else b"k" * number,
        b"v" * (7 * number) if number % 5 else None,
        [("h", b"1"), ("é", None)] if number % 7 == 0 else (),
    )
    for number in range(300)
]


@pytest.mark.parametrize(("version", "codec"), [*itertools.product((3, 9, 13), range(4)), (7, 4)])
def test_batch_is_decoded_as_it_was_given(version: int, codec: int) -> None:
    data = encode(ROWS, version, codec, None, 4000, 3, 77)
    header = batch.read_header(data)
    assert header.size_bytes == len(data) and batch.crc_matches(data, 0, header)
    assert header[9:12] == (4000, 3, 77) and (header.base_timestamp, header.max_timestamp) == (1000, 1000 + 9 * 299)
    found = [(r.timestamp, r.key, r.value, [tuple(h) for h in r.headers]) for r in batch.records(data)]
    assert found == [(t, k, v, list(h)) for t, k, v, h in ROWS]
    again = [batch.Record(n, t, k, v, [batch.Header(*h) for h in hs]) for n, (t, k, v, hs) in enumerate(ROWS)]
    assert data == batch.build(
        again, batch.BatchFields(producer_id=4000, producer_epoch=3, base_sequence=77), codec=codec
    )  # as the broker's own writer


@pytest.mark.parametrize(("version", "codec"), [*itertools.product((0, 1, 2), range(4))])
def test_old_produce_versions_use_old_formats(version: int, codec: int) -> None:
    rows = [(t, k, v, ()) for t, k, v, _ in ROWS]
    data = encode(rows, version, codec, None)
    heads = list(formats.headers(data))
    assert {header.magic for _, header in heads} == {magic_of(version)} and len(heads) == (1 if codec else 300)
    found = [(r.timestamp, r.key, r.value) for at, _ in heads for r in formats.records(data, at)]
    assert found == [(t if version == 2 else -1, k, v) for t, k, v, _ in rows]


def test_batch_that_cannot_be_encoded_raises() -> None:
    for version, codec, rows, error in (
        (2, 0, ROWS, UnsupportedVersion),
        (6, 4, ROWS, UnsupportedVersion),
        (9, 0, [(2**63, None, None, ())], InvalidRequest),
    ):
        with pytest.raises(error):
            encode(rows, version, codec, None)


def test_sizes_at_varint_boundaries_are_exact() -> None:
    random = Random(3)
    edges = [0, 1, 63, 64, 8191, 8192, 70_000]
    for _ in range(30):
        rows = [
            (5000 + random.choice([-9000, *edges]), b"k" * random.choice(edges), b"v" * random.choice(edges), ())
            for _ in range(5)
        ]
        found = [(r.timestamp, r.key, r.value) for r in batch.records(encode(rows, 9, 0, None))]
        assert found == [row[:3] for row in rows]
