"""Large conversions for old consumers, over the wire.

No step is long, others are served in between, and a client, a topic or a broker that ends meanwhile frees all
memory.
"""

from __future__ import annotations

import asyncio
import random
import struct
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from ottla.broker.cooperative import AT_ONCE, CooperativeScheduler
from ottla.broker.logs import get_logger
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.records import formats
from ottla.protocol.records import rows as bulk
from ottla.protocol.records.batch import Record
from ottla.protocol.records.compression import Codec
from ottla_testing.broker.harness import Broker, Closed, fetch, only, ping, produce, records, running
from ottla_testing.broker.stored_logs import T0, fetch_partition, is_waiting, offsets, place, stored
from ottla_testing.patience import PATIENCE_S

STEP_BYTES, STEP_RECORDS = 256 * 1024, 2000
COUNT = 14_000
FEW = 8_000  # enough for several iterations of the loop
ALL = 1 << 26  # more than the log has
RELEASES = ["2.8", "3.9", "ottla"]


def tiny(count: int = COUNT) -> list[Record]:
    return [Record(n, T0 + n, None, b"v") for n in range(count)]


LOGS: dict[str, Callable[[], bytes]] = {
    "one batch": lambda: stored(2, tiny()),
    "one batch, gzip": lambda: stored(2, tiny(), Codec.GZIP),
    "a batch for each record": lambda: b"".join(stored(2, [record]) for record in tiny(FEW)),
    "old messages": lambda: stored(1, tiny()),
    "old wrapper, lz4": lambda: stored(1, tiny(), Codec.LZ4),
    "few": lambda: stored(2, tiny(FEW)),
}
_made: dict[str, bytes] = {}


def log_of(name: str) -> bytes:
    """A log that is built once."""
    if name not in _made:
        _made[name] = LOGS[name]()
    return _made[name]


class Watch:
    """Counts what conversions read in each iteration of the loop, and how many run at once. Work in other threads
    blocks no client and does not count.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.iterations: list[tuple[int, int]] = []  # (bytes, records) of the iterations with reads
        self.under_way = self.most_under_way = 0
        self._bytes = self._records = 0
        self._ended = False
        for name in ("read_messages", "read_records"):
            monkeypatch.setattr(bulk, name, self._counted(getattr(bulk, name)))
        monkeypatch.setattr(CooperativeScheduler, "run", self._counting_runs(CooperativeScheduler.run))

    def _counted(self, read: Callable[..., tuple[list[Any], int]]) -> Callable[..., tuple[list[Any], int]]:
        def reading(*arguments: Any) -> tuple[list[Any], int]:
            found, used = read(*arguments)
            if threading.current_thread() is threading.main_thread():
                self._bytes += used
                self._records += len(found)
            return found, used

        return reading

    def _counting_runs(self, run: Callable[..., Any]) -> Callable[..., Any]:
        async def counted(iterations: CooperativeScheduler, steps: Any) -> Any:
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
            try:
                return await run(iterations, steps)
            finally:
                self.under_way -= 1

        return counted

    def begin(self) -> None:
        """Counts the iterations of this loop from now on."""
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        if self._bytes:
            self.iterations.append((self._bytes, self._records))
            self._bytes = self._records = 0
        if not self._ended:
            asyncio.get_running_loop().call_soon(self._next_turn)

    def begin_again(self) -> None:
        """Forgets what was counted."""
        self.iterations.clear()

    def end(self) -> None:
        self._ended = True
        self._next_turn()

    def is_within(self, works: int = 1) -> bool:
        """Whether no iteration had more than one step of each job."""
        return all(size <= works * STEP_BYTES and records <= works * STEP_RECORDS for size, records in self.iterations)

    @property
    def records(self) -> int:
        return sum(records for _, records in self.iterations)

    async def after(self, iterations: int) -> None:
        """Returns after this many more iterations with reads."""
        iterations += len(self.iterations)
        async with asyncio.timeout(PATIENCE_S):
            while len(self.iterations) < iterations:
                await asyncio.sleep(0)

    async def nothing_under_way(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.under_way:
                await asyncio.sleep(0)


@pytest.fixture
async def watch(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watch]:
    get_logger()
    watch = Watch(monkeypatch)
    watch.begin()
    yield watch
    watch.end()


def check(response: Any, count: int, newest: int) -> None:
    """Every record once, in the format of the version."""
    assert response.error_code == 0
    found = []
    position = 0
    while position < len(response.records):
        offset, size, _, magic, attributes = struct.unpack_from(">qiIbb", response.records, position)
        assert magic == newest
        if attributes:
            found += offsets(bytes(response.records[position : position + 12 + size]))
        else:
            found.append(offset)
        position += 12 + size
    assert found == list(range(count))


async def requested(broker: Broker, version: int = 2) -> tuple[Any, asyncio.Task[Any]]:
    """A client, and its pending fetch of the whole log."""
    client = await broker.client()
    task = fetch_partition(client, version, partition_max_bytes=ALL, max_bytes=ALL)
    return client, asyncio.get_running_loop().create_task(task)


# ---- one conversion


@pytest.mark.parametrize("log", [name for name in LOGS if not name.startswith("few")])
async def test_conversion_steps_are_short_and_others_are_served_in_between(
    log: str, watch: Watch, tmp_path: Path, stride: int
) -> None:
    """In a small run by one of the releases."""
    release = random.choice(RELEASES)
    for number, name in enumerate(RELEASES if stride == 1 else [release]):
        watch.begin_again()
        await check_steps(log, name, watch, tmp_path / str(number))


async def check_steps(log: str, release: str, watch: Watch, folder: Path) -> None:
    old = log.startswith("old")
    version = 1 if old else 2
    count = FEW if log == "a batch for each record" else COUNT
    await place(folder, {"t": log_of(log)})
    async with running(folder, release=release) as broker:
        other = await broker.client()
        _, task = await requested(broker, version)
        await watch.after(1)
        responded = 0
        while not task.done():
            await other.call(ping(), 0)
            responded += not task.done()
        assert responded >= 2
        check(await task, count, 0 if old else 1)
    assert watch.is_within() and watch.records >= count
    assert len(watch.iterations) >= count // STEP_RECORDS


@pytest.mark.parametrize("release", ["2.8", "3.9", "ottla"])
async def test_partitions_of_one_step_each_yield_in_between(release: str, watch: Watch, tmp_path: Path) -> None:
    logs = {f"t{number}": stored(2, tiny(1900)) for number in range(8)}
    await place(tmp_path, logs)
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        response = await client.call(fetch(*[(name, 0, 0) for name in logs]), 2)
        assert len(response.responses) == len(logs)
        for topic in response.responses:
            check(topic.partitions[0], 1900, 1)
    assert watch.is_within() and watch.records == len(logs) * 1900


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
async def test_bytes_bound_a_step_of_large_records(codec: Codec, watch: Watch, tmp_path: Path) -> None:
    """Records just below a step take one each; larger ones go to a thread."""
    sizes = [200_000] * 8 + [300_000] * 2 + [100_000] * 8
    sent = [Record(n, T0 + n, None, bytes(size)) for n, size in enumerate(sizes)]
    await place(tmp_path, {"t": stored(2, sent, codec)})
    async with running(tmp_path) as broker:
        _, task = await requested(broker)
        check(await task, len(sizes), 1)
    assert watch.is_within() and watch.records == 16
    assert len(watch.iterations) >= 8 + 4


async def test_records_appended_during_a_conversion_are_not_returned(watch: Watch, tmp_path: Path) -> None:
    await place(tmp_path, {"t": log_of("one batch")})
    async with running(tmp_path) as broker:
        other = await broker.client()
        _, task = await requested(broker)
        await watch.after(2)
        assert only(await other.call(produce(records(b"late")), 9)).base_offset == COUNT
        assert not task.done()
        response = await task
        check(response, COUNT, 1)
        assert response.high_watermark == COUNT
        assert offsets((await fetch_partition(other, 2, offset=COUNT)).records) == [COUNT]


@pytest.mark.parametrize("wanted", [0, 1000])
async def test_check_of_min_bytes_reads_a_bounded_number_of_entries(
    wanted: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A client with min_bytes at its bounds gets that many bytes at once. One with more waits, and only a limited
    number of later entries is read.
    """
    data = log_of("old messages")
    looked = 0
    read_header = formats.read_header

    def counted(*arguments: Any, **more: Any) -> Any:
        nonlocal looked
        looked += 1
        return read_header(*arguments, **more)

    await place(tmp_path, {"t": data})
    async with running(tmp_path) as broker:
        client = await broker.client()
        bound = len(data) - 2000
        request = fetch(
            ("t", 0, 0), partition_max_bytes=bound, max_bytes=ALL, min_bytes=bound + wanted, max_wait_ms=1000
        )
        with monkeypatch.context() as patches:
            patches.setattr(formats, "read_header", counted)
            await client.send(request, 4)
            assert await is_waiting(broker) == bool(wanted)
        assert (0 < looked <= STEP_RECORDS + 1) if wanted else not looked
        broker.clock.advance(1000)
        assert len(only((await client.receive())[1]).records) == bound


# ---- several


async def test_two_conversions_alternate(watch: Watch, tmp_path: Path) -> None:
    await place(tmp_path, {"t": log_of("one batch")})
    async with running(tmp_path) as broker:
        other = await broker.client()
        (_, first), (_, second) = await requested(broker, 1), await requested(broker, 2)
        await watch.after(3)
        assert watch.under_way == 2
        await other.call(ping(), 0)
        assert not first.done() and not second.done()
        check(await first, COUNT, 0)
        check(await second, COUNT, 1)
    assert watch.is_within(2)


async def test_conversions_above_the_limit_all_complete(watch: Watch, tmp_path: Path) -> None:
    await place(tmp_path, {"t": log_of("few")})
    async with running(tmp_path) as broker:
        tasks = [(await requested(broker))[1] for _ in range(AT_ONCE + 2)]
        for task in tasks:
            check(await task, FEW, 1)


async def test_connection_has_one_conversion_at_a_time(watch: Watch, tmp_path: Path) -> None:
    """Else one client could hold as many responses in memory as it has requests in flight."""
    await place(tmp_path, {"t": log_of("few")})
    async with running(tmp_path) as broker:
        client = await broker.client()
        for version in (2, 1, 2):
            await client.send(fetch(("t", 0, 0), partition_max_bytes=ALL), version)
        await client.send(ping(), 0)
        for magic in (1, 0, 1):
            check(only((await client.receive())[1]), FEW, magic)
        await client.receive()
    assert watch.most_under_way == 1


# ---- disconnects, deletions and stops


async def test_disconnected_clients_leave_no_conversion(watch: Watch, tmp_path: Path) -> None:
    """More of them than may run at once: each frees its place, and the next one is served."""
    await place(tmp_path, {"t": log_of("few")})
    with capture_logs() as events:
        async with running(tmp_path) as broker:
            for _ in range(AT_ONCE + 1):
                client, task = await requested(broker)
                await watch.after(2)
                assert watch.under_way == 1
                client.close()
                await watch.nothing_under_way()
                with pytest.raises(Closed):
                    await task
            check(await (await requested(broker))[1], FEW, 1)
            await broker.settle()
            assert len(broker.running.connections.open) <= 1 + 1
    assert [event for event in events if event["log_level"] == "error"] == []


@pytest.mark.parametrize("log", ["one batch", "one batch, gzip"])
async def test_topic_deleted_during_a_conversion(log: str, watch: Watch, tmp_path: Path) -> None:
    """Bytes that were read before are returned, or the topic is unknown; then it is gone."""
    await place(tmp_path, {"t": log_of(log)})
    with capture_logs() as events:
        async with running(tmp_path) as broker:
            admin = await broker.client()
            client, task = await requested(broker)
            await watch.after(2)
            response = await admin.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5)
            assert response.responses[0].error_code == 0 and not task.done()
            found = await task
            if found.error_code:
                assert (found.error_code, found.records) == (3, b"")
            else:
                check(found, COUNT, 1)
            assert (await fetch_partition(client, 2)).error_code == 3
            # A topic of that name is another one: no response has the old one's records.
            await broker.topic("t")
            assert (await fetch_partition(client, 2)).records == b""
    assert [event for event in events if event["log_level"] == "error"] == []


async def test_stop_completes_a_conversion(watch: Watch, tmp_path: Path) -> None:
    await place(tmp_path, {"t": log_of("few")})
    async with running(tmp_path) as broker:
        client, task = await requested(broker)
        await watch.after(2)
        stop = asyncio.get_running_loop().create_task(broker.running.stop())
        check(await task, FEW, 1)
        await stop
        assert await client.is_closed()
    assert watch.under_way == 0


# ---- waiting, then converted


async def test_waiting_fetch_is_converted_in_steps_when_it_wakes(watch: Watch, tmp_path: Path) -> None:
    async with running(tmp_path, overrides={"message.max.bytes": "20000000"}) as broker:
        await broker.topic("t")
        client, other = await broker.client(), await broker.client()
        task = asyncio.get_running_loop().create_task(
            fetch_partition(client, 2, max_wait_ms=1000, partition_max_bytes=ALL)
        )
        assert await is_waiting(broker)
        sent = only(await other.call(produce(log_of("few")), 9))
        assert sent.error_code == 0
        check(await task, FEW, 1)
    assert watch.is_within() and watch.records >= FEW
