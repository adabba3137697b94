"""The duplicate scan below the cached batches, over the wire: its responses, and which requests wait for it.

`Held` stops a scan in its thread until the test releases it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.broker.network import server
from ottla.protocol.messages.topics.create_topics import CreateTopicsRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.storage.producers.duplicate_scan import DuplicateScan
from ottla.storage.producers.producer_state import CachedBatch
from ottla_testing.broker.harness import Broker, Client, Closed, fetch, only, ping, produce, values
from ottla_testing.broker.idempotence import T0, Sent, Writer, killed, numbered, writing
from ottla_testing.patience import PATIENCE_S

COPY = numbered(0, 2)
FOUND = Sent(0, 0, T0 + 1, 0)
SMALL_SEGMENTS = {"log.index.size.max.bytes": "200", "log.index.interval.bytes": "0"}


class Held:
    """The scans that have started, held until a test releases them."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.gate = threading.Event()
        self._begin = threading.Semaphore(0)

    async def one_more(self) -> None:
        """Waits until one more scan is in its thread."""
        assert await asyncio.get_running_loop().run_in_executor(None, self._begin.acquire, True, 15)

    def wait(self, thread: int) -> None:
        self.begun.append(thread)
        self._begin.release()
        assert self.gate.wait(PATIENCE_S)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    found = Held()
    scan = DuplicateScan.__call__

    def holding(self: DuplicateScan) -> CachedBatch | None:
        found.wait(threading.get_ident())
        return scan(self)

    monkeypatch.setattr(DuplicateScan, "__call__", holding)
    yield found
    found.gate.set()


async def fill(writer: Writer, batches: int = 8, topic: str = "t") -> None:
    await writer.write(*[(2 * number, 2) for number in range(batches)], topic=topic)


async def send_request(broker: Broker, data: bytes, topic: str = "t") -> asyncio.Task[Sent]:
    """A pending request on a connection of its own."""
    writer = Writer(broker, await broker.client(), Path())
    task = asyncio.get_running_loop().create_task(writer.send(data, topic))
    await asyncio.sleep(0)
    return task


@pytest.mark.parametrize("how", ["running", "closed", "killed"])
async def test_duplicate_of_an_uncached_batch_returns_its_offset(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with writing(folder, overrides=SMALL_SEGMENTS) as writer:
        await writer.broker.topic("t")
        await fill(writer, 100)
        copy = killed(folder)
        if how == "running":
            await check_all(writer)
    if how != "running":
        async with writing(folder if how == "closed" else copy, overrides=SMALL_SEGMENTS) as writer:
            await check_all(writer)


async def check_all(writer: Writer) -> None:
    assert len(writer.broker.log("t").segment_bases()) > 5
    for number in range(100):
        expected = Sent(0, 2 * number, T0 + 2 * number + 1, 0)
        assert await writer.send(numbered(2 * number)) == expected
        assert await writer.send(numbered(2 * number), version=3) == expected._replace(log_start=-1)
    for data in (numbered(1), numbered(0, 1), numbered(0, 4)):  # other boundaries
        assert (await writer.send(data))[:2] == (46, -1)
    assert (await writer.send(numbered(195, 4)))[:2] == (45, -1)  # the same, of cached batches
    assert (await writer.send(numbered(0, 1, epoch=1)))[:2] == (0, 200)
    for data in (numbered(0), numbered(196)):  # in the old epoch
        assert (await writer.send(data))[:2] == (47, -1)
    assert (await writer.send(numbered(0, 2, epoch=1)))[0] == 45  # in the new epoch, which was not written


@pytest.mark.parametrize(
    ("release", "overrides", "error"),
    [
        ("ottla", {"producer.duplicate.scan.bytes": "0"}, 46),
        ("ottla", {"producer.duplicate.scan.bytes": "300"}, 46),
        ("ottla", {"ottla.behaviour.below_cache": "out_of_order"}, 45),
        ("1.0.1", {}, 46),
        ("1.0.1", {"producer.duplicate.scan.bytes": "1000000"}, 46),
        ("4.3", {}, 45),
    ],
)
async def test_duplicate_scan_is_not_made(
    release: str, overrides: dict[str, str], error: int, tmp_path: Path, held: Held
) -> None:
    held.gate.set()
    async with writing(tmp_path / "data", release, overrides) as writer:
        await writer.broker.topic("t")
        await fill(writer)
        assert (await writer.send(COPY))[0] == error
        assert (await writer.send(numbered(14)))[:2] == (0, 14)
    assert len(held.begun) == (overrides.get("producer.duplicate.scan.bytes") == "300" and release == "ottla")


async def test_scan_reach_counts_from_the_log_end(tmp_path: Path) -> None:
    reach = sum(len(numbered(2 * number)) for number in range(1, 8))
    async with writing(tmp_path / "data", overrides={"producer.duplicate.scan.bytes": str(reach)}) as writer:
        await writer.broker.topic("t")
        await fill(writer)
        assert writer.broker.log("t").size_bytes == len(COPY) + reach
        assert (await writer.send(numbered(2)))[:2] == (0, 2)
        assert (await writer.send(COPY))[:2] == (46, -1)


async def test_batch_below_the_log_start_is_no_duplicate(tmp_path: Path) -> None:
    async with writing(tmp_path / "data") as writer:
        await writer.broker.topic("t")
        await fill(writer)
        writer.broker.log("t").delete_records_before(3)
        assert await writer.send(COPY) == Sent(46, -1, -1, 3)
        assert await writer.send(numbered(2)) == Sent(0, 2, T0 + 3, 3)


async def test_scan_delays_later_appends_of_its_partition_only(tmp_path: Path, held: Held) -> None:
    async with writing(tmp_path / "data") as writer:
        broker = writer.broker
        await broker.topic("t")
        await broker.topic("other")
        await fill(writer)
        await fill(writer, topic="other")
        scanning = await send_request(broker, COPY)
        await held.one_more()
        later = [
            await send_request(broker, data)
            for data in (numbered(16), numbered(18), numbered(14), bytes(numbered(99, 1)))
        ]
        # Others are served: other partitions, reads of this one, other requests of the connection.
        await writer.write((16, 2), topic="other")
        client = await broker.client()
        assert len(values(only(await client.call(fetch(("t", 0, 0)), 11)).records)) == 16
        assert (await client.call(ping(), 0)).error_code == 0
        assert writer.end() == 16 and not scanning.done() and not any(task.done() for task in later)
        assert threading.get_ident() not in held.begun
        held.gate.set()
        assert await scanning == FOUND
        assert [(await task)[:2] for task in later] == [(0, 16), (0, 18), (0, 14), (45, -1)]
        assert writer.end() == 20


async def test_requests_of_one_connection_get_responses_in_order(tmp_path: Path, held: Held) -> None:
    """A duplicate, a new batch, and a duplicate of that: sent at once."""
    async with writing(tmp_path / "data") as writer:
        await writer.broker.topic("t")
        await fill(writer)
        client = await writer.broker.client()
        sent = [await client.send(produce(data), 9) for data in (COPY, numbered(16), numbered(2), numbered(16))]
        await held.one_more()
        held.gate.set()
        for correlation_id, offset in zip(sent, (0, 16, 2, 16), strict=True):
            got, response = await client.receive()
            assert (got, only(response).base_offset, only(response).error_code) == (correlation_id, offset, 0)
        assert writer.end() == 18


async def test_scans_of_one_partition_run_in_sequence(tmp_path: Path, held: Held) -> None:
    async with writing(tmp_path / "data") as writer:
        broker = writer.broker
        for topic in ("t", "other"):
            await broker.topic(topic)
            await fill(writer, topic=topic)
        first, second = await send_request(broker, COPY), await send_request(broker, numbered(2))
        await held.one_more()
        elsewhere = await send_request(broker, COPY, "other")
        await held.one_more()  # another partition's scan runs in parallel
        await broker.settle()
        assert len(held.begun) == 2 and not (first.done() or second.done() or elsewhere.done())
        held.gate.set()
        assert [await first, (await second)[:2], await elsewhere] == [FOUND, (0, 2), FOUND]
        assert len(held.begun) == 3


async def test_topic_deleted_during_a_scan(tmp_path: Path, held: Held) -> None:
    async with writing(tmp_path / "data") as writer:
        broker = writer.broker
        await broker.topic("t")
        await fill(writer)
        scanning, later = await send_request(broker, COPY), await send_request(broker, numbered(16))
        await held.one_more()
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
        assert (await writer.client.call(request, 4)).responses[0].error_code == 0
        # The name may be used again; no record of the old topic enters the new one.
        made = CreateTopicsRequest.CreatableTopic(
            name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        assert (await writer.client.call(CreateTopicsRequest(topics=[made]), 4)).topics[0].error_code == 0
        held.gate.set()
        assert (await scanning)[0] in (3, 56)
        assert (await later)[0] == 3
        assert writer.end() == 0
        assert len(list((tmp_path / "data").glob("*-delete"))) == 1
        broker.clock.advance(60_000)
        assert not list((tmp_path / "data").glob("*-delete"))


async def test_stop_waits_for_a_scan(tmp_path: Path, held: Held) -> None:
    folder = tmp_path / "data"
    async with writing(folder) as writer:
        await writer.broker.topic("t")
        await fill(writer)
        scanning, later = await send_request(writer.broker, COPY), await send_request(writer.broker, numbered(16))
        await held.one_more()
        stopping = asyncio.get_running_loop().create_task(writer.broker.running.stop())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not stopping.done()
        held.gate.set()
        assert await scanning == FOUND
        assert (await later)[:2] == (0, 16)
        await stopping
    async with writing(folder) as writer:
        assert writer.end() == 18
        assert (await writer.send(numbered(16)))[:2] == (0, 16)


async def test_scan_that_outlasts_the_stop_ends_with_an_error(
    tmp_path: Path, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data is closed during the scan: no response, nothing appended, and a clean shutdown."""
    monkeypatch.setattr(server, "DRAIN_SECONDS", 0.05)
    folder = tmp_path / "data"
    async with writing(folder) as writer:
        await writer.broker.topic("t")
        await fill(writer)
        scanning, later = await send_request(writer.broker, COPY), await send_request(writer.broker, numbered(16))
        await held.one_more()
        tail = writer.broker.state.topics.partition("t", 0).unfinished
        assert tail is not None
        await writer.broker.running.stop()
        held.gate.set()
        with pytest.raises((Closed, ConnectionError)):
            await scanning
        with pytest.raises((Closed, ConnectionError)):
            await later
        await asyncio.wait([tail])
        assert tail.exception() is not None
    assert (folder / ".kafka_cleanshutdown").exists()
    async with writing(folder) as writer:
        assert writer.end() == 16


async def test_disconnected_client_delays_no_other_append(tmp_path: Path, held: Held) -> None:
    async with writing(tmp_path / "data") as writer:
        await writer.broker.topic("t")
        await fill(writer)
        client = await writer.broker.client()
        await client.send(produce(COPY), 9)
        await held.one_more()
        client.writer.transport.abort()
        later = await send_request(writer.broker, numbered(16))
        held.gate.set()
        assert (await later)[:2] == (0, 16)


async def test_duplicate_with_acks_0_is_ignored_and_a_refusal_closes(tmp_path: Path, held: Held) -> None:
    held.gate.set()
    async with writing(tmp_path / "data") as writer:
        await writer.broker.topic("t")
        await fill(writer)
        client: Client = await writer.broker.client()
        await client.send(produce(COPY, acks=0), 9)
        assert (await client.call(ping(), 0)).error_code == 0
        await client.send(produce(numbered(1), acks=0), 9)  # written, in other batches
        assert await client.is_closed()
        assert writer.end() == 16


async def test_request_with_several_partitions_scans_each(tmp_path: Path, held: Held) -> None:
    """Each has its own response, whichever of them needs a scan."""
    held.gate.set()
    async with writing(tmp_path / "data") as writer:
        for topic in ("a", "b", "c"):
            await writer.broker.topic(topic)
            await fill(writer, topic=topic)
        request = produce(COPY, "a")
        request.topic_data += produce(numbered(16), "b").topic_data + produce(numbered(1), "c").topic_data
        result = await writer.client.call(request, 9)
        found = [only(type(result)(responses=[topic])) for topic in result.responses]
        assert [(one.error_code, one.base_offset) for one in found] == [(0, 0), (0, 16), (46, -1)]
