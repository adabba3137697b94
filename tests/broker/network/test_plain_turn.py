"""Plain requests of several connections in one turn of the event loop: written together, or begun again."""

from __future__ import annotations

import asyncio
import errno
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.network import plain_turn
from ottla.broker.network.connections import ClientConnection
from ottla.broker.network.plain_turn import PlainTurn
from ottla.protocol.messages.records.delete_records import DeleteRecordsRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.records import formats
from ottla.storage.log.append_run import AppendRun
from ottla.storage.partition_log import PartitionLog
from ottla_testing.broker.harness import (
    Broker,
    Client,
    Closed,
    fetch,
    frame,
    only,
    produce,
    read_response,
    records,
    running,
    values,
)
from ottla_testing.each import each
from ottla_testing.storage.simulated_files import SimulatedFiles

VERSION = 9


class HeldTurn(PlainTurn):
    """A turn that every connection waits for, and that only the test ends."""

    def waits(self) -> bool:
        return True

    def wait(self, connection: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._waiting[connection] = None


def hold(broker: Broker) -> HeldTurn:
    turn = broker.running.connections.turn
    turn.__class__ = HeldTurn
    assert isinstance(turn, HeldTurn)
    return turn


def release(turn: PlainTurn) -> None:
    turn.__class__ = PlainTurn


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of batches of each write of a run."""
    found: list[int] = []
    append = PartitionLog.append_run

    def noting(log: PartitionLog, run: AppendRun, now_ms: int) -> None:
        found.append(len(run.headers))
        append(log, run, now_ms)

    monkeypatch.setattr(PartitionLog, "append_run", noting)
    return found


async def clients(broker: Broker, count: int, topic: str = "t", partition: int = 0) -> list[Client]:
    """Clients whose next request is a remembered one."""
    found = [await broker.client() for _ in range(count)]
    for client in found:
        assert only(await client.call(produce(records(b"first"), topic, partition), VERSION)).error_code == 0
    return found


async def send(client: Client, *sent: Any, number: int = 100) -> None:
    await client.send_bytes(b"".join(frame(one, VERSION, number + n) for n, one in enumerate(sent)))


async def received(client: Client, count: int = 1, number: int = 100) -> list[tuple[int, int]]:
    """The (error, base offset) of the next responses, which are in order."""
    found = []
    for n in range(count):
        correlation_id, response = read_response(await client.receive_bytes(), ProduceRequest, VERSION)
        assert correlation_id == number + n
        found.append((only(response).error_code, only(response).base_offset))
    return found


async def waiting(turn: PlainTurn, count: int) -> None:
    """Waits until so many connections wait for the turn."""
    while len(turn._waiting) < count:
        await asyncio.sleep(0.001)


def taken(connection: ClientConnection) -> int:
    """The number of requests that wait."""
    return 0 if connection._plain is None else len(connection._plain._taken)


def stored(broker: Broker, topic: str = "t", partition: int = 0) -> list[bytes]:
    log = broker.log(topic, partition)
    return [value or b"" for value in values(log.read(log.log_start_offset, 1 << 20).records)]


async def test_requests_of_one_turn_are_one_write(tmp_path: Path, writes: list[int]) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t", 2)
        three = await clients(broker, 3)
        other = await clients(broker, 1, partition=1)
        turn = hold(broker)
        for n, client in enumerate(three):
            await send(client, *(produce(records(b"%d-%d" % (n, k))) for k in range(2)))
            await waiting(turn, n + 1)
        await send(other[0], produce(records(b"other"), partition=1))
        await waiting(turn, 4)
        assert broker.log("t").log_end_offset == 3 and not writes
        turn._end()
        assert writes == [6, 1]
        assert [await received(client, 2) for client in three] == [[(0, 3 + 2 * n), (0, 4 + 2 * n)] for n in range(3)]
        assert await received(other[0]) == [(0, 1)]
        assert stored(broker) == [b"first"] * 3 + [b"%d-%d" % (n, k) for n in range(3) for k in range(2)]
        assert stored(broker, partition=1) == [b"first", b"other"]


async def test_second_read_event_of_a_connection_waits_too(tmp_path: Path, writes: list[int]) -> None:
    """The bytes of the first one are kept: its buffer has been used again."""
    async with running(tmp_path) as broker:
        await broker.topic("t")
        one, two = await clients(broker, 2)
        turn = hold(broker)
        for n, client in enumerate((one, two, one)):
            await send(client, produce(records(b"%d" % n * 50)), number=100 + n // 2)
            while sum(map(taken, broker.running.connections.open)) <= n:
                await asyncio.sleep(0.001)
        turn._end()
        assert writes == [3]
        assert await received(one, 2) == [(0, 2), (0, 4)] and await received(two) == [(0, 3)]
        assert stored(broker)[2:] == [b"%d" % n * 50 for n in range(3)]


async def test_other_requests_come_after_what_waits(tmp_path: Path, writes: list[int]) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        one, two = await clients(broker, 2)
        turn = hold(broker)
        await send(one, produce(records(b"a")))
        await waiting(turn, 1)
        assert values(only(await two.call(fetch(("t", 0, 2)), 11)).records) == [b"a"]
        assert writes == [1] and await received(one) == [(0, 2)]
        await send(one, produce(records(b"b")))
        await waiting(turn, 1)
        await send(one, produce(records(b"c")), produce(records(b"d"), partition=7), produce(records(b"e")), number=101)
        assert await received(one, 4) == [(0, 3), (0, 4), (3, -1), (0, 5)] and not turn.is_open


def appended(broker: Broker) -> None:
    broker.log("t").append(records(b"between"), now_ms=broker.clock.now_ms())


def start_moved(broker: Broker) -> None:
    broker.log("t").delete_records_before(1)


def epoch_begun(broker: Broker) -> None:
    broker.log("t").leader_epoch += 1


def reconfigured(broker: Broker) -> None:
    topic = broker.state.topics.get("t")
    assert topic is not None
    broker.state.topics.set_configs(topic, {"max.message.bytes": "90"}, broker.clock.now_ms())


def deleted(broker: Broker) -> None:
    topic = broker.state.topics.get("t")
    assert topic is not None
    broker.state.topics.delete(topic, broker.clock.now_ms())


CHANGES: dict[str, tuple[Callable[[Broker], None], list[tuple[int, int]]]] = {
    "append": (appended, [(0, 4), (0, 5), (0, 6)]),
    "log start": (start_moved, [(0, 3), (0, 4), (0, 5)]),
    "leader epoch": (epoch_begun, [(0, 3), (0, 4), (0, 5)]),
    "config": (reconfigured, [(0, 3), (0, 4), (10, -1)]),
    "deletion": (deleted, [(3, -1), (3, -1), (3, -1)]),
}


@each("change", list(CHANGES))
async def test_requests_begin_again_after_a_change_of_their_log(change: str, tmp_path: Path) -> None:
    """Their outcome is that of requests that arrive after the change."""
    do, outcomes = CHANGES[change]
    async with running(tmp_path / change) as broker:
        await broker.topic("t")
        three = await clients(broker, 3)
        turn = hold(broker)
        for n, client in enumerate(three):
            await send(client, produce(records(b"%d" % n * (1 if n < 2 else 40))))
            await waiting(turn, n + 1)
        do(broker)
        release(turn)
        turn._end()
        assert [await received(client) for client in three] == [[one] for one in outcomes]


async def test_connection_begins_again_with_its_other_request_last(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        one, two = await clients(broker, 2)
        turn = hold(broker)
        await send(one, produce(records(b"a")), produce(records(b"b")))
        await send(two, produce(records(b"c")))
        await waiting(turn, 2)
        appended(broker)
        release(turn)
        wanted = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[wanted])]
        )
        await one.send_bytes(frame(request, 2, 102))
        found = await received(one, 2)
        _, last = read_response(await one.receive_bytes(), ListOffsetsRequest, 2)
        found += await received(two)
        assert sorted(found) == [(0, 3), (0, 4), (0, 5)] and found[0] < found[1]
        assert only(last).offset > found[1][1]
        assert sorted(stored(broker)[2:]) == [b"a", b"b", b"between", b"c"]


async def test_immediate_requests_begin_again_too(tmp_path: Path) -> None:
    """Those of a connection that does not wait, in a turn that another one has begun."""
    async with running(tmp_path) as broker:
        await broker.topic("t", 2)
        one, two = await clients(broker, 2)
        (three,) = await clients(broker, 1, partition=1)
        turn = hold(broker)
        await send(one, produce(records(b"a")))
        await waiting(turn, 1)
        appended(broker)
        release(turn)
        await send(three, produce(records(b"other"), partition=1), produce(records(b"again"), partition=1))
        assert await received(three, 2) == [(0, 1), (0, 2)]
        assert await received(one) == [(0, 3)]
        await send(two, produce(records(b"b")))
        assert await received(two) == [(0, 4)]
        assert stored(broker) == [b"first", b"first", b"between", b"a", b"b"]
        assert stored(broker, partition=1) == [b"first", b"other", b"again"]


async def test_garbage_after_what_waits_closes_the_connection_after_the_response(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        one, two = await clients(broker, 2)
        turn = hold(broker)
        await send(one, produce(records(b"a")))
        await send(two, produce(records(b"b")))
        await waiting(turn, 2)
        await one.send_bytes(struct.pack(">i", -5))
        assert await received(one) == [(0, 2)]
        with pytest.raises(Closed):
            await one.receive_bytes()
        assert await received(two) == [(0, 3)]


async def test_lost_connection_loses_no_other_response(tmp_path: Path, writes: list[int]) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        one, two = await clients(broker, 2)
        turn = hold(broker)
        await send(one, produce(records(b"a")))
        await send(two, produce(records(b"b")))
        await waiting(turn, 2)
        one.close()
        while len(broker.running.connections.open) > 1:
            await asyncio.sleep(0.001)
        turn._end()
        assert writes == [2] and await received(two) in ([(0, 2)], [(0, 3)])
        await send(two, produce(records(b"c")))
        await waiting(turn, 1)
        appended(broker)
        two.close()
        while broker.running.connections.open:
            await asyncio.sleep(0.001)
        turn._end()
        assert stored(broker)[4:] == [b"between"]


async def test_stop_of_the_broker_writes_what_waits(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        one, two = await clients(broker, 2)
        turn = hold(broker)
        await send(one, produce(records(b"a")))
        await send(two, produce(records(b"b")))
        await waiting(turn, 2)
        draining = asyncio.ensure_future(broker.running.connections.drain(5))
        assert sorted([*await received(one), *await received(two)]) == [(0, 2), (0, 3)]
        await draining
        broker.running.connections.stopping = False
    async with running(tmp_path) as broker:
        assert sorted(stored(broker)[2:]) == [b"a", b"b"]


@each("number", [errno.EIO, errno.ENOSPC])
async def test_failed_write_is_the_error_of_the_first_request(number: int, tmp_path: Path) -> None:
    disk = SimulatedFiles()
    async with running(tmp_path / str(number), files=disk) as broker:
        await broker.topic("t")
        three = await clients(broker, 3)
        turn = hold(broker)
        for n, client in enumerate(three):
            await send(client, produce(records(b"%d" % n)))
            await waiting(turn, n + 1)
        failing = [True]
        disk.fail_with = number
        disk.failing = lambda operation, path: operation == "write" and path.endswith(".log") and failing.pop() is None
        disk.failing = lambda operation, path: (
            operation == "write" and path.endswith(".log") and bool(failing and failing.pop())
        )
        turn._end()
        found = [await received(client) for client in three]
        assert found[0] == [(56, -1)]
        assert found[1:] == ([[(0, 3)], [(0, 4)]] if number == errno.ENOSPC else [[(56, -1)], [(56, -1)]])


async def test_connections_wait_while_there_are_several(tmp_path: Path, writes: list[int]) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        one, two = await clients(broker, 2)
        turn = broker.running.connections.turn
        for _ in range(2 * plain_turn.TRIED_EVERY):
            await send(one, produce(records(b"x")))
            assert (await received(one))[0][0] == 0
        assert not turn.collects
        for _ in range(4 * plain_turn.TRIED_EVERY):
            await asyncio.gather(*(send(client, produce(records(b"x"))) for client in (one, two)))
            for client in (one, two):
                assert (await received(client))[0][0] == 0
            if turn.collects:
                break
        assert turn.collects and 2 in writes
        for _ in range(plain_turn.ALONE_MAX):
            await send(one, produce(records(b"x")))
            assert (await received(one))[0][0] == 0
        assert not turn.collects


async def test_random_requests_of_many_connections(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    """Each record is stored once, at the offset of its response, and those of a connection in their order."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    async with running(tmp_path) as broker:
        await broker.topic("t", 3, {"internal.segment.bytes": "20000"})
        broker.running.connections.turn.collects = True
        many = [await broker.client() for _ in range(8)]
        responded: dict[tuple[int, int], bytes] = {}

        async def client(number: int, own: Client) -> None:
            last = dict.fromkeys(range(3), -1)
            for turn in range(scaled(60)):
                sent = [(draw.randrange(3), b"%d-%d-%d" % (number, turn, k)) for k in range(draw.choice((1, 1, 2, 5)))]
                await send(own, *(produce(records(value), partition=index) for index, value in sent))
                found = await received(own, len(sent))
                for (index, value), (code, offset) in zip(sent, found, strict=True):
                    assert code == 0 and offset > last[index]
                    last[index] = offset
                    assert responded.setdefault((index, offset), value) is value
                if draw.random() < 0.05:
                    await own.call(fetch(("t", 0, 0)), 11)
                if draw.random() < 0.03:
                    to = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition(partition_index=0, offset=0)
                    of = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[to])
                    await own.call(DeleteRecordsRequest(topics=[of], timeout_ms=1000), 0)

        await asyncio.gather(*(client(number, own) for number, own in enumerate(many)))
        for index in range(3):
            log, offset, found = broker.log("t", index), 0, dict[int, bytes]()
            while offset < log.log_end_offset:
                data = log.read(offset, 1 << 20).records
                for position, header in formats.headers(data):
                    found |= {one.offset: one.value or b"" for one in formats.records(data, position)}
                    offset = header.next_offset
            assert found == {at: value for (of, at), value in responded.items() if of == index}
