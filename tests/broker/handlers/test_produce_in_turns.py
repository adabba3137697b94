"""Large sets that Produce validates and converts in steps: others are served in between, appends keep their order.

Steps are counted where bytes are processed, by the iteration of the event loop in which that happens.
"""

from __future__ import annotations

import asyncio
import math
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.replica.partition import Partition
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.records import batch, rows, validate_legacy
from ottla.protocol.records.batch import Record
from ottla_testing.broker.harness import Broker, Client, only, ping, produce, running
from ottla_testing.broker.producing import NOW, broken, made, message, wrapper
from ottla_testing.patience import PATIENCE_S

STEP_BYTES, STEP_RECORDS = 256 * 1024, 2000  # the time for which a step may block the loop
MANY = 20_000
LARGE = b"".join(message(index, timestamp=NOW) for index in range(MANY))
LARGE_GZIP = wrapper(LARGE, offset=MANY - 1)
LARGE_BATCH = bytes(batch.build([Record(index, NOW, b"k", b"v") for index in range(MANY)], codec=1))
# (version of Produce, configs of a topic, a set that takes several steps, a small one)
SLOW: dict[str, tuple[int, dict[str, str], bytes, bytes]] = {
    "v1": (2, {}, LARGE, message()),
    "v1 gzip": (2, {}, LARGE_GZIP, message()),
    "v2 rebuilt": (9, {"compression.type": "lz4"}, LARGE_BATCH, made(2, 1)),
    "v2 looked into": (9, {}, LARGE_BATCH, made(2, 0)),
}
slow = pytest.mark.parametrize("case", SLOW)


async def until(holds: Callable[[], object]) -> None:
    """Waits for a condition of the broker, which runs in this loop."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0)


async def begun(broker: Broker, name: str = "t") -> Partition:
    """The partition, once an append to it is under way."""
    partition = broker.state.topics.partition(name, 0)
    await until(lambda: partition.unfinished)
    assert partition.log.log_end_offset == 0
    return partition


# ---- steps


class Watch:
    """Counts the work in each iteration of the loop, by the function that does it; other threads do not count."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turn = 0
        self.records: Counter[tuple[int, str]] = Counter()
        self.bytes: Counter[tuple[int, str]] = Counter()
        self._thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self._count_iterations()
        crc32, read, examine = zlib.crc32, rows.read_messages, validate_legacy._examine_plain

        def summing(data: Any, *start: int) -> int:  # of each message that is checked
            self.note(sys._getframe(1).f_code.co_name, len(data), 1)
            return crc32(data, *start)

        def reading(*arguments: Any) -> Any:
            found, used = read(*arguments)
            self.note("read", used, len(found))
            return found, used

        def examining(view: Any, position: int, *arguments: Any) -> Any:
            seen, end = examine(view, position, *arguments)
            self.note("examine", 0, seen.records)  # a few bytes of each
            return seen, end

        monkeypatch.setattr(zlib, "crc32", summing)
        monkeypatch.setattr(rows, "read_messages", reading)
        monkeypatch.setattr(validate_legacy, "_examine_plain", examining)

    def _count_iterations(self) -> None:
        self.turn += 1
        self._loop.call_soon(self._count_iterations)

    def note(self, name: str, size_bytes: int, records: int) -> None:
        if threading.get_ident() == self._thread:
            self.records[self.turn, name] += records
            self.bytes[self.turn, name] += size_bytes

    def of(self, name: str) -> list[int]:
        """The records in each iteration in which that function worked."""
        return [count for (_, worked), count in self.records.items() if worked == name and count]


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("count", "value_bytes"), [(10_000, 0), (6_000, 300)])
async def test_conversion_yields_after_every_step(
    count: int, value_bytes: int, magic: int, codec: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    value = bytes(value_bytes)
    set_of_all = b"".join(message(index, None, value, magic=magic) for index in range(count))
    size = len(message(0, None, value, magic=magic))
    data = wrapper(set_of_all, magic=magic, offset=count - 1) if codec else set_of_all
    least = max(math.ceil(count / STEP_RECORDS), math.ceil(len(set_of_all) / STEP_BYTES))
    async with running(tmp_path / "data", overrides={"message.max.bytes": "100000000"}) as broker:
        await broker.topic("t")
        client, other = await broker.client(), await broker.client()
        with monkeypatch.context() as patches:
            watch = Watch(patches)
            number = await client.send(produce(data), 2)
            partition = await begun(broker)
            served = 0
            while partition.unfinished:
                await other.call(ping(), 0)
                served += bool(partition.unfinished)
            received, response = await client.receive()
        assert received == number and (only(response).error_code, only(response).base_offset) == (0, 0)
        assert partition.log.log_end_offset == count
        assert served >= least // 2, "a client of another connection waits for the conversion"
        assert max(watch.records.values()) <= STEP_RECORDS
        assert max(watch.bytes.values()) <= STEP_BYTES + size
        # Every record is read twice, in a plain set three times: at least that many steps.
        looks = ["read", "_examining_inner"] if codec else ["read", "examine", "_split_plain"]
        for name in looks:
            # A set begins with one step at once, which is repeated if the set is large.
            assert count <= sum(watch.of(name)) <= count + STEP_RECORDS, name
            assert len(watch.of(name)) >= (least if name != "examine" else math.ceil(count / STEP_RECORDS)), name


async def test_small_sets_are_appended_in_one_step(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        partition = broker.state.topics.partition("t", 0)
        for data, version in ((message(), 1), (made(1, 1), 2), (made(2, 1), 9)):
            assert only(await client.call(produce(data), version)).error_code == 0
            assert partition.unfinished is None


# ---- order


@slow
async def test_small_set_waits_for_an_earlier_large_one(case: str, tmp_path: Path) -> None:
    """On one connection, written at once; then again with two more after them."""
    version, configs, large, small = SLOW[case]
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 1, configs)
        client = await broker.client()
        numbers = [await client.send(produce(data), version) for data in (large, small, large, small)]
        await begun(broker)
        results = [await client.receive() for _ in numbers]
        assert [number for number, _ in results] == numbers
        count = 1 if version == 2 else 3
        offsets = [(only(response).error_code, only(response).base_offset) for _, response in results]
        assert offsets == [(0, 0), (0, MANY), (0, MANY + count), (0, 2 * MANY + count)]
        assert broker.log("t").log_end_offset == 2 * (MANY + count)


@slow
async def test_appends_of_two_connections_keep_their_order(case: str, tmp_path: Path) -> None:
    version, configs, large, small = SLOW[case]
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 1, configs)
        first, second, third = [await broker.client() for _ in range(3)]
        await first.send(produce(large), version)
        partition = await begun(broker)
        before = partition.unfinished
        await second.send(produce(small), version)
        await until(lambda: partition.unfinished is not before)
        before = partition.unfinished
        await third.send(produce(large), version)
        await until(lambda: partition.unfinished is not before)
        assert partition.log.log_end_offset == 0, "all three were submitted before the first was done"
        offsets = [only((await client.receive())[1]).base_offset for client in (third, second, first)]
        count = 1 if version == 2 else 3
        assert offsets == [MANY + count, MANY, 0]


async def test_append_to_another_partition_does_not_wait(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 2, {"compression.type": "lz4"})
        client, other = await broker.client(), await broker.client()
        await client.send(produce(LARGE_BATCH), 9)
        await begun(broker)
        assert only(await other.call(produce(made(2, 0), partition=1), 9)).error_code == 0
        assert (broker.log("t").log_end_offset, broker.log("t", 1).log_end_offset) == (0, 3)
        assert (await client.receive())[0] == 1


@pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
async def test_produce_in_steps_delays_the_next_request_of_its_connection(version: int, tmp_path: Path) -> None:
    """No later request starts before its response; other connections continue."""
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 2, {"compression.type": "lz4"} if version >= 3 else {})
        client, other = await broker.client(), await broker.client()
        await client.send(produce(LARGE if version < 3 else LARGE_BATCH), version)
        await client.send(produce(message() if version < 3 else made(2, 0), partition=1), version)
        await client.send(ping(), 0)
        partition = await begun(broker)
        while partition.unfinished:
            assert broker.log("t", 1).log_end_offset == 0
            await other.call(ping(), 0)
        assert [(await client.receive())[0] for _ in range(3)] == [1, 2, 3]
        assert broker.log("t", 1).log_end_offset == (1 if version < 3 else 3)


@slow
async def test_refusal_after_many_steps_does_not_delay_the_next_append(case: str, tmp_path: Path) -> None:
    version, configs, large, small = SLOW[case]
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 1, {**configs, "cleanup.policy": "compact"})
        client = await broker.client()
        keyless = message(0, None) if version == 2 else bytes(batch.build([Record(0, NOW, None, b"v")]))
        if case == "v1":
            bad = LARGE + keyless
        elif case == "v1 gzip":
            bad = wrapper(LARGE + message(MANY, None), offset=MANY)
        else:
            rows_of = [Record(index, NOW, b"k" if index < MANY else None, b"v") for index in range(MANY + 1)]
            bad = bytes(batch.build(rows_of, codec=1))
        for data in (bad, small, broken(large), keyless, small):
            await client.send(produce(data), version)
        codes = [only((await client.receive())[1]).error_code for _ in range(5)]
        assert codes == [87, 0, 2, 87, 0]
        assert broker.log("t").log_end_offset == (2 if version == 2 else 6)


async def test_partitions_of_a_request_are_converted_in_parallel(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 4)
        client = await broker.client()
        topic = ProduceRequest.TopicProduceData
        data = [LARGE, message(), broken(LARGE), LARGE_GZIP]
        parts = [topic.PartitionProduceData(index=index, records=part) for index, part in enumerate(data)]
        request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic(name="t", partition_data=parts)])
        ((responded,),) = ((await client.call(request, 2)).responses,)
        assert [(a.index, a.error_code, a.base_offset) for a in responded.partition_responses] == [
            *[(0, 0, 0), (1, 0, 0), (2, 2, -1), (3, 0, 0)]
        ]
        assert [broker.log("t", index).log_end_offset for index in range(4)] == [MANY, 1, 0, MANY]


# ---- disconnects and deletions


@slow
@pytest.mark.parametrize("acks", [0, -1])
async def test_records_are_appended_after_their_client_disconnected(acks: int, case: str, tmp_path: Path) -> None:
    version, configs, large, small = SLOW[case]
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 1, configs)
        client = await Client.connect(broker.ports[0])
        await client.send(produce(large, acks=acks), version)
        partition = await begun(broker)
        client.writer.transport.abort()
        for connection in list(broker.running.connections.open):
            connection.abort()  # as when a disconnect is detected at once, which it is not while the socket is not read
        await until(lambda: not broker.running.connections.open)
        assert partition.unfinished and partition.log.log_end_offset == 0
        other = await broker.client()
        assert only(await other.call(produce(small), version)).base_offset == MANY


async def test_refusal_with_acks_0_after_many_steps_closes_the_connection(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        await client.send(produce(LARGE + broken(message()), acks=0), 2)
        assert await client.is_closed()
        assert broker.log("t").log_end_offset == 0


@slow
async def test_topic_deleted_during_a_conversion_refuses_the_append(case: str, tmp_path: Path) -> None:
    """All waiting requests get a response, and a new topic of that name gets none of the records."""
    version, configs, large, small = SLOW[case]
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 1, configs)
        first, second, other = [await broker.client() for _ in range(3)]
        await first.send(produce(large), version)
        partition = await begun(broker)
        before = partition.unfinished
        await second.send(produce(small), version)
        await until(lambda: partition.unfinished is not before)
        deleted = await other.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 3)
        assert deleted.responses[0].error_code == 0 and partition.unfinished
        await broker.topic("t", 1, configs)
        for client in (first, second):
            response = only((await client.receive())[1])
            assert (response.error_code, response.base_offset, response.log_start_offset) == (3, -1, -1)
        assert broker.log("t").log_end_offset == 0
        assert only(await first.call(produce(small), version)).base_offset == 0


@slow
async def test_broker_stop_completes_appends_in_steps(case: str, tmp_path: Path) -> None:
    version, configs, large, _ = SLOW[case]
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 1, configs)
        client = await broker.client()
        number = await client.send(produce(large), version)
        await begun(broker)
        stopping = asyncio.ensure_future(broker.running.stop())
        received, response = await client.receive()
        assert (received, only(response).error_code, only(response).base_offset) == (number, 0, 0)
        await stopping
    async with running(tmp_path / "data") as broker:
        assert broker.log("t").log_end_offset == MANY
