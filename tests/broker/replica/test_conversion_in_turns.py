"""Large conversions for old consumers, over the wire: no step between two turns of the loop is long, others are served
in between, and a client, a topic or a broker that goes away meanwhile leaves nothing behind.
"""

from __future__ import annotations

import asyncio
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
from ottla_testing.broker.stored_logs import T0, ask, is_waiting, offsets, place, stored
from ottla_testing.patience import PATIENCE_S

STEP_BYTES, STEP_RECORDS = 256 * 1024, 2000
COUNT = 40_000
FEW = 12_000  # enough to be under way for some turns
ALL = 1 << 26  # more than there is


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
    """Made once."""
    if name not in _made:
        _made[name] = LOGS[name]()
    return _made[name]


class Watch:
    """What conversions read in each turn of the loop, and how many of them are under way.

    What runs in another thread holds nobody up, and does not count.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turns: list[tuple[int, int]] = []  # (bytes, records) of those in which something was read
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
        async def counted(turns: CooperativeScheduler, steps: Any) -> Any:
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
            try:
                return await run(turns, steps)
            finally:
                self.under_way -= 1

        return counted

    def begin(self) -> None:
        """Counts the turns of this loop from now on."""
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        if self._bytes:
            self.turns.append((self._bytes, self._records))
            self._bytes = self._records = 0
        if not self._ended:
            asyncio.get_running_loop().call_soon(self._next_turn)

    def end(self) -> None:
        self._ended = True
        self._next_turn()

    def is_within(self, works: int = 1) -> bool:
        """Whether no turn had more than one step of each work."""
        return all(size <= works * STEP_BYTES and records <= works * STEP_RECORDS for size, records in self.turns)

    @property
    def records(self) -> int:
        return sum(records for _, records in self.turns)

    async def after(self, turns: int) -> None:
        """Returns when something was read in so many more turns."""
        turns += len(self.turns)
        async with asyncio.timeout(PATIENCE_S):
            while len(self.turns) < turns:
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


def check(answer: Any, count: int, newest: int) -> None:
    """Every record once, in the format that the version knows."""
    assert answer.error_code == 0
    found = []
    position = 0
    while position < len(answer.records):
        offset, size, _, magic, attributes = struct.unpack_from(">qiIbb", answer.records, position)
        assert magic == newest
        if attributes:
            found += offsets(bytes(answer.records[position : position + 12 + size]))
        else:
            found.append(offset)
        position += 12 + size
    assert found == list(range(count))


async def asked(broker: Broker, version: int = 2) -> tuple[Any, asyncio.Task[Any]]:
    """A client, and its fetch of all there is."""
    client = await broker.client()
    task = ask(client, version, partition_max_bytes=ALL, max_bytes=ALL)
    return client, asyncio.get_running_loop().create_task(task)


# ---- one conversion


@pytest.mark.parametrize("release", ["2.8", "3.9", "ottla"])
@pytest.mark.parametrize("log", [name for name in LOGS if not name.startswith("few")])
async def test_no_turn_is_long_and_others_are_served_in_between(
    log: str, release: str, watch: Watch, tmp_path: Path
) -> None:
    old = log.startswith("old")
    version = 1 if old else 2
    count = FEW if log == "a batch for each record" else COUNT
    await place(tmp_path, {"t": log_of(log)})
    async with running(tmp_path, release=release) as broker:
        other = await broker.client()
        _, task = await asked(broker, version)
        await watch.after(1)
        answered = 0
        while not task.done():
            await other.call(ping(), 0)
            answered += not task.done()
        assert answered >= 2
        check(await task, count, 0 if old else 1)
    assert watch.is_within() and watch.records >= count
    assert len(watch.turns) >= count // STEP_RECORDS


@pytest.mark.parametrize("release", ["2.8", "3.9", "ottla"])
async def test_partitions_that_are_each_a_step_have_a_turn_each(release: str, watch: Watch, tmp_path: Path) -> None:
    logs = {f"t{number}": stored(2, tiny(1900)) for number in range(8)}
    await place(tmp_path, logs)
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        answer = await client.call(fetch(*[(name, 0, 0) for name in logs]), 2)
        assert len(answer.responses) == len(logs)
        for topic in answer.responses:
            check(topic.partitions[0], 1900, 1)
    assert watch.is_within() and watch.records == len(logs) * 1900


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
async def test_bytes_bound_a_turn_where_records_are_large(codec: Codec, watch: Watch, tmp_path: Path) -> None:
    """Records just below a step each take one of their own; those above are handed to a thread."""
    sizes = [200_000] * 8 + [300_000] * 2 + [100_000] * 8
    sent = [Record(n, T0 + n, None, bytes(size)) for n, size in enumerate(sizes)]
    await place(tmp_path, {"t": stored(2, sent, codec)})
    async with running(tmp_path) as broker:
        _, task = await asked(broker)
        check(await task, len(sizes), 1)
    assert watch.is_within() and watch.records == 16
    assert len(watch.turns) >= 8 + 4


async def test_what_is_appended_meanwhile_is_not_in_the_answer(watch: Watch, tmp_path: Path) -> None:
    await place(tmp_path, {"t": log_of("one batch")})
    async with running(tmp_path) as broker:
        other = await broker.client()
        _, task = await asked(broker)
        await watch.after(2)
        assert only(await other.call(produce(records(b"late")), 9)).base_offset == COUNT
        assert not task.done()
        answer = await task
        check(answer, COUNT, 1)
        assert answer.high_watermark == COUNT
        assert offsets((await ask(other, 2, offset=COUNT)).records) == [COUNT]


@pytest.mark.parametrize("wanted", [0, 1000])
async def test_whether_to_wait_is_not_found_out_by_reading_on_and_on(
    wanted: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A client that wants as much as its bounds let through, or more, is sent whole entries, which are a bit less. For
    what lies behind them only so many are looked at; then the first is answered, and the second waits."""
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
        assert 0 < looked <= STEP_RECORDS + 1
        broker.clock.advance(1000)
        assert bound - 100 < len(only((await client.receive())[1]).records) <= bound


# ---- several


async def test_two_at_once_take_turns(watch: Watch, tmp_path: Path) -> None:
    await place(tmp_path, {"t": log_of("one batch")})
    async with running(tmp_path) as broker:
        other = await broker.client()
        (_, first), (_, second) = await asked(broker, 1), await asked(broker, 2)
        await watch.after(3)
        assert watch.under_way == 2
        await other.call(ping(), 0)
        assert not first.done() and not second.done()
        check(await first, COUNT, 0)
        check(await second, COUNT, 1)
    assert watch.is_within(2)


async def test_more_than_may_run_at_once_are_all_answered(watch: Watch, tmp_path: Path) -> None:
    await place(tmp_path, {"t": log_of("few")})
    async with running(tmp_path) as broker:
        tasks = [(await asked(broker))[1] for _ in range(AT_ONCE + 2)]
        for task in tasks:
            check(await task, FEW, 1)


async def test_a_connection_has_one_of_them_at_a_time(watch: Watch, tmp_path: Path) -> None:
    """Else one client could hold as many answers in memory as it has requests under way."""
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


# ---- what goes away meanwhile


async def test_clients_that_go_leave_nothing_behind(watch: Watch, tmp_path: Path) -> None:
    """More of them than may run at once: each gives its place back, and the next is served."""
    await place(tmp_path, {"t": log_of("few")})
    with capture_logs() as events:
        async with running(tmp_path) as broker:
            for _ in range(AT_ONCE + 1):
                client, task = await asked(broker)
                await watch.after(2)
                assert watch.under_way == 1
                client.close()
                await watch.nothing_under_way()
                with pytest.raises(Closed):
                    await task
            check(await (await asked(broker))[1], FEW, 1)
            await broker.settle()
            assert len(broker.running.connections.open) <= 1 + 1
    assert [event for event in events if event["log_level"] == "error"] == []


@pytest.mark.parametrize("log", ["one batch", "one batch, gzip"])
async def test_a_topic_that_is_deleted_meanwhile(log: str, watch: Watch, tmp_path: Path) -> None:
    """What was read before is sent, or the topic is said to be unknown; then it is gone."""
    await place(tmp_path, {"t": log_of(log)})
    with capture_logs() as events:
        async with running(tmp_path) as broker:
            admin = await broker.client()
            client, task = await asked(broker)
            await watch.after(2)
            answer = await admin.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), 5)
            assert answer.responses[0].error_code == 0 and not task.done()
            found = await task
            if found.error_code:
                assert (found.error_code, found.records) == (3, b"")
            else:
                check(found, COUNT, 1)
            assert (await ask(client, 2)).error_code == 3
            # One of the same name is another: an answer of the old one does not come from it.
            await broker.topic("t")
            assert (await ask(client, 2)).records == b""
    assert [event for event in events if event["log_level"] == "error"] == []


async def test_a_stop_lets_a_conversion_end(watch: Watch, tmp_path: Path) -> None:
    await place(tmp_path, {"t": log_of("few")})
    async with running(tmp_path) as broker:
        client, task = await asked(broker)
        await watch.after(2)
        stop = asyncio.get_running_loop().create_task(broker.running.stop())
        check(await task, FEW, 1)
        await stop
        assert await client.is_closed()
    assert watch.under_way == 0


# ---- parked, then converted


async def test_a_parked_fetch_is_converted_in_turns_when_it_wakes(watch: Watch, tmp_path: Path) -> None:
    async with running(tmp_path, overrides={"message.max.bytes": "20000000"}) as broker:
        await broker.topic("t")
        client, other = await broker.client(), await broker.client()
        task = asyncio.get_running_loop().create_task(ask(client, 2, max_wait_ms=1000, partition_max_bytes=ALL))
        assert await is_waiting(broker)
        sent = only(await other.call(produce(log_of("few")), 9))
        assert sent.error_code == 0
        check(await task, FEW, 1)
    assert watch.is_within() and watch.records >= FEW
