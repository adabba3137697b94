"""Connections: the order of responses, peers that do not read, listeners and addresses, and the stop of the broker."""

from __future__ import annotations

import asyncio
import signal
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop
from structlog.testing import capture_logs

from ottla.broker.network import connections, server
from ottla.protocol.messages.cluster.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups.join_group import JoinGroupRequest
from ottla.protocol.messages.records.delete_records import DeleteRecordsRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.harness import (
    Client,
    Closed,
    create_topics,
    fetch,
    frame,
    new_topic,
    only,
    ping,
    process,
    produce,
    records,
    running,
    values,
)
from ottla_testing.patience import PATIENCE_S, patiently

# Order


async def test_requests_after_a_waiting_fetch_start_after_its_response(tmp_path: Path) -> None:
    """As in Kafka; a Produce of another connection wakes it."""
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client, other = await broker.client(), await broker.client()
        waiting = await client.send(fetch(("t", 0, 0), max_wait_ms=1000), 11)
        others = [await client.send(ping(), 0), await client.send(MetadataRequest(topics=[]), 9)]
        await broker.settle()
        assert broker.log("t").log_end_offset == 0
        assert not client.reader._buffer  # type: ignore[attr-defined]
        assert only(await other.call(produce(records(b"x")), 9)).error_code == 0
        received = [await client.receive() for _ in range(3)]
        assert [number for number, _ in received] == [waiting, *others]
        assert values(only(received[0][1]).records) == [b"x"]


async def test_list_offsets_after_a_waiting_fetch_returns_the_end_after_its_records(tmp_path: Path) -> None:
    """Else a consumer's lag is -1, and a Kafka Streams task that waits for lag 0 never runs."""
    topic = ListOffsetsRequest.ListOffsetsTopic
    latest = topic(name="t", partitions=[topic.ListOffsetsPartition(partition_index=0, timestamp=-1)])
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client, other = await broker.client(), await broker.client()
        await client.send(fetch(("t", 0, 0), max_wait_ms=60_000), 11)
        await client.send(ListOffsetsRequest(replica_id=-1, topics=[latest]), 5)
        await broker.settle()
        await other.call(produce(records(b"x", b"y")), 9)
        fetched, ends = only((await client.receive())[1]), only((await client.receive())[1])
        assert values(fetched.records) == [b"x", b"y"] and ends.offset == 2


async def test_list_offsets_after_delete_records_returns_the_new_log_start(tmp_path: Path) -> None:
    deleting, listing = DeleteRecordsRequest.DeleteRecordsTopic, ListOffsetsRequest.ListOffsetsTopic
    until = deleting(name="t", partitions=[deleting.DeleteRecordsPartition(partition_index=0, offset=2)])
    earliest = listing(name="t", partitions=[listing.ListOffsetsPartition(partition_index=0, timestamp=-2)])
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        await client.call(produce(records(b"a", b"b", b"c")), 9)
        await client.send(DeleteRecordsRequest(topics=[until], timeout_ms=1000), 1)
        await client.send(ListOffsetsRequest(replica_id=-1, topics=[earliest]), 5)
        deleted, starts = only((await client.receive())[1]), only((await client.receive())[1])
        assert (deleted.error_code, deleted.low_watermark, starts.offset) == (0, 2, 2)


async def test_connections_that_close_at_once_take_no_receive_buffers(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        clients = [await broker.client() for _ in range(100)]
        for client in clients:
            client.close()
        async with asyncio.timeout(PATIENCE_S):
            while broker.running.connections.open:
                await asyncio.sleep(0)
        assert len(broker.running.connections.pool._free) <= 1


async def test_pipelined_requests_get_responses_in_order(tmp_path: Path) -> None:
    """One waits at a time; later ones are not read until its response is sent."""
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        pairs = 100
        for _ in range(pairs):
            await client.send(fetch(("t", 0, 0), max_wait_ms=1000), 11)
            await client.send(ping(), 0)
        for number in range(pairs):
            await broker.settle()
            assert [one.waiting for one in broker.running.connections.open if one.waiting] == ["Fetch"]
            broker.clock.advance(1000)
            assert [(await client.receive())[0] for _ in range(2)] == [2 * number + 1, 2 * number + 2]


async def test_requests_split_and_joined_are_parsed(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        one = frame(produce(records(b"x" * 300)), 9, 1)
        for byte in range(0, len(one), 7):
            await client.send_bytes(one[byte : byte + 7])
            await asyncio.sleep(0)
        assert struct.unpack_from(">i", await client.receive_bytes()) == (1,)
        heap = b"".join(frame(produce(records(b"%d" % n)), 9, n) for n in range(2000))
        await client.send_bytes(heap)
        numbers = [struct.unpack_from(">i", await client.receive_bytes())[0] for _ in range(2000)]
        assert numbers == list(range(2000))
        assert broker.log("t").log_end_offset == 2001


# acks


async def test_produce_with_acks_0_has_no_response(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        await client.send(produce(records(b"a"), acks=0), 9)
        number = await client.send(produce(records(b"b"), acks=1), 9)
        received, response = await client.receive()
        assert (received, only(response).base_offset) == (number, 1)


@pytest.mark.parametrize("why", ["unknown topic", "bad batch", "internal topic"])
async def test_produce_error_with_acks_0_closes_the_connection(why: str, tmp_path: Path) -> None:
    data = records(b"a")
    topic = {"unknown topic": "nobody", "internal topic": "__consumer_offsets"}.get(why, "t")
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        before = await client.send(ping(), 0)
        await client.send(produce(data[:-1] if why == "bad batch" else data, topic, acks=0), 9)
        assert (await client.receive())[0] == before
        assert await client.is_closed()


@pytest.mark.parametrize("acks", [2, -2, 32767, -32768])
async def test_invalid_acks_are_refused_for_every_partition(acks: int, tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        response = only(await client.call(produce(records(b"a"), acks=acks), 9))
        assert (response.error_code, response.base_offset, response.log_start_offset) == (21, -1, -1)
        assert broker.log("t").log_end_offset == 0


# Peers that do not read


@pytest.mark.process
@pytest.mark.soak
async def test_peer_that_does_not_read_costs_its_socket_buffers_only(
    tmp_path: Path, scaled: Callable[[int], int]
) -> None:
    """It requests hundreds of megabytes and reads nothing; then it reads all, and every response is whole."""
    with process(tmp_path) as broker:
        port = broker.ports[0]
        well = await Client.connect(port)
        await well.call(create_topics("t"), 4)
        value = bytes(range(256)) * 3900
        assert only(await well.call(produce(records(value)), 9)).error_code == 0
        idle = await Client.connect(port)
        await well.call(fetch(("t", 0, 0)), 11)
        before = broker.rss_bytes()
        count = scaled(400)
        for _ in range(count):
            idle.writer.write(frame(fetch(("t", 0, 0), partition_max_bytes=2 << 20), 11, 5))
        for _ in range(50):
            assert only(await well.call(produce(records(b"v"), acks=1), 9)).error_code == 0
        grown = broker.rss_bytes() - before
        assert grown < 12 << 20, f"{grown / 1e6:.1f} MB more"
        for _ in range(count):
            response = await idle.receive_bytes()
            assert len(response) > len(value) and value in response[:-1]
        grown = broker.rss_bytes() - before
        assert grown < 24 << 20, f"{grown / 1e6:.1f} MB more"
        idle.close()
        well.close()
        assert broker.end() == 0
        assert "Traceback" not in broker.error


async def test_peer_that_does_not_read_is_no_longer_read_from(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        broker.log("t").append(records(b"v" * 1_000_000), now_ms=broker.clock.now_ms())
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports[0], limit=1 << 16)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        for number in range(200):
            writer.write(frame(fetch(("t", 0, 0), partition_max_bytes=2 << 20), 11, number))
        for _ in range(20):
            await broker.settle()
        (stuck,) = [one for one in broker.running.connections.open if not one._reading]
        assert stuck._transport.get_write_buffer_size() < 3_000_000
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        for number in range(200):
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            response = await reader.readexactly(size)
            assert struct.unpack_from(">i", response) == (number,) and size > 1_000_000
        assert stuck._reading
        writer.close()


async def test_disconnected_peer_leaves_no_state(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        partition = broker.state.topics.partition("t", 0)
        clients = [await broker.client() for _ in range(20)]
        for client in clients:
            await client.send(fetch(("t", 0, 0), max_wait_ms=60_000), 11)
        await broker.settle()
        assert len(partition.waiters) == 20
        for client in clients:
            client.writer.transport.abort()
        await broker.settle()
        assert not partition.waiters
        assert len(broker.running.connections.open) <= 1


# Listeners


@pytest.mark.parametrize("version", [1, 3, 4])
async def test_disconnect_of_a_waiting_client_is_detected(version: int, tmp_path: Path) -> None:
    """Also in the versions that delay later requests: there are none, so the socket is still read."""
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        before = set(broker.running.connections.open)
        client = await broker.client()
        await client.send(fetch(("t", 0, 0), max_wait_ms=2**31 - 1), version)
        await broker.settle()
        client.close()
        async with asyncio.timeout(PATIENCE_S):
            while broker.running.connections.open - before:
                await asyncio.sleep(0)


async def test_each_listener_advertises_its_own_address(tmp_path: Path) -> None:
    configs = {
        "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://[::1]:0,OUTSIDE://127.0.0.1:0,EVERY://[::]:0",
        "advertised.listeners": "OUTSIDE://broker.example:19092",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,EVERY:PLAINTEXT",
    }
    async with running(tmp_path / "data", overrides=configs) as broker:
        ports = broker.ports
        expected = [
            (0, "127.0.0.1", ("127.0.0.1", ports[0])),
            (1, "::1", ("::1", ports[1])),
            (2, "127.0.0.1", ("broker.example", 19092)),
            (3, "127.0.0.1", ("127.0.0.1", ports[3])),
            (3, "::1", ("::1", ports[3])),
        ]
        for listener, host, address in expected:
            client = await broker.client(listener, host)
            (node,) = (await client.call(MetadataRequest(topics=[]), 9)).brokers
            found = await client.call(FindCoordinatorRequest(key="g"), 2)
            cluster = await client.call(DescribeClusterRequest(include_cluster_authorized_operations=False), 0)
            (described,) = cluster.brokers
            for shown in (node, found, described):
                assert (shown.host, shown.port) == address, (listener, host)


# Stopping


async def test_stop_completes_requests_in_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "DRAIN_SECONDS", 3600)
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client, silent = await broker.client(), await broker.client()
        waiting = await client.send(fetch(("t", 0, 0), max_wait_ms=60_000), 11)
        await client.send(ping(), 0)  # not started, so without a response
        await broker.settle()
        async with patiently():
            await broker.running.stop()
        number, response = await client.receive()
        assert number == waiting and (only(response).error_code, len(only(response).records)) == (0, 0)
        assert await client.is_closed() and await silent.is_closed()
        with pytest.raises(OSError):
            await Client.connect(broker.ports[0])
        broker.running.stop = lambda: asyncio.sleep(0)  # type: ignore[method-assign]


async def test_stop_completes_joins_of_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "DRAIN_SECONDS", 3600)
    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        await client.send(request, 2)
        await broker.settle()
        stopping = asyncio.ensure_future(broker.running.stop())
        response = (await client.receive())[1]
        assert response.error_code in (14, 15, 16)  # codes at which a client looks up its coordinator again
        async with patiently():
            await stopping
        broker.running.stop = lambda: asyncio.sleep(0)  # type: ignore[method-assign]


async def test_stop_does_not_wait_for_a_peer_that_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "DRAIN_SECONDS", 0.1)
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        broker.log("t").append(records(b"v" * 1_000_000), now_ms=broker.clock.now_ms())
        client = await broker.client()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(40):
            await client.send(fetch(("t", 0, 0), partition_max_bytes=2 << 20), 11)
        await broker.settle()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_flushes_and_exits_with_zero(number: signal.Signals, tmp_path: Path) -> None:
    with process(tmp_path) as broker:
        client = await Client.connect(broker.ports[0])
        await client.call(create_topics("t"), 4)
        assert only(await client.call(produce(records(b"kept"), acks=1), 9)).error_code == 0
        await client.send(fetch(("t", 0, 1), max_wait_ms=60_000), 11)
        await (other := await Client.connect(broker.ports[0])).call(ping(), 0)
        assert broker.end(number) == 0
        assert only((await client.receive())[1]).error_code == 0
        assert await client.is_closed() and await other.is_closed()
        client.close()
        other.close()
        assert "Traceback" not in broker.error
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with process(tmp_path) as broker:
        client = await Client.connect(broker.ports[0])
        assert values(only(await client.call(fetch(("t", 0, 0)), 11)).records) == [b"kept"]
        client.close()


@pytest.mark.process
async def test_broker_runs_on_asyncios_loop_without_uvloop(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "uvloop.py").write_text("raise ImportError('not here')\n")
    with process(tmp_path, environ={"PYTHONPATH": str(hidden)}) as broker:
        client = await Client.connect(broker.ports[0])
        await client.call(create_topics("t"), 4)
        assert only(await client.call(produce(records(b"x")), 9)).base_offset == 0
        await client.send(fetch(("t", 0, 1), max_wait_ms=60_000), 11)
        assert broker.end() == 0
        assert only((await client.receive())[1]).error_code == 0
        client.close()
        assert "Traceback" not in broker.error


@pytest.mark.process
async def test_more_partitions_than_open_files_are_served(tmp_path: Path) -> None:
    """A topic beyond the limit is refused and leaves nothing; everything else continues."""
    wrapper = ("import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)); "
               "sys.argv[0] = 'ottla'; runpy.run_module('ottla.tools', run_name='__main__')")  # fmt: skip
    with process(tmp_path, command=wrapper) as broker:
        client = await Client.connect(broker.ports[0])
        await client.call(create_topics("t"), 4)
        request = type(create_topics())(topics=[new_topic("big", 500)])
        (response,) = (await client.call(request, 5)).topics
        assert response.error_code == 56
        assert only(await client.call(produce(records(b"x")), 9)).error_code == 0
        request = type(create_topics())(topics=[new_topic("big", 20)])
        (response,) = (await client.call(request, 5)).topics
        assert response.error_code == 0
        assert only(await client.call(produce(records(b"y"), "big", 19), 9)).error_code == 0
        client.close()
        assert broker.end() == 0
    kept = [path for path in (tmp_path / "data").glob("big-*") if not path.name.endswith("-delete")]
    assert len(kept) == 20


async def test_port_is_free_after_a_stop(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as chosen:
        port = chosen.getsockname()[1]
    for _ in range(2):
        async with running(tmp_path / "data", overrides={"listeners": f"PLAINTEXT://127.0.0.1:{port}"}) as broker:
            assert (await (await broker.client()).call(ping(), 0)).error_code == 0
    with pytest.raises((OSError, Closed)):
        await Client.connect(port)


# Server-side errors


async def test_error_before_a_handler_runs_is_logged_and_closes_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("a defect")

    with capture_logs() as lines:
        async with running(tmp_path / "data") as broker:
            client = await broker.client()
            await client.call(ping(), 0)
            with monkeypatch.context() as patch:
                patch.setattr(connections, "call", fails)
                await client.send(ping(), 0)
                assert await client.is_closed()
            await broker.settle()  # other connections are served
    (line,) = [line for line in lines if line["event"] == "connection closed"]
    assert (line["log_level"], line["client_id"], str(line["exc_info"])) == ("error", "test", "a defect")


async def test_error_of_building_a_late_response_is_logged_and_closes_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("a defect")

    with capture_logs() as lines:
        async with running(tmp_path / "data") as broker:
            await broker.topic("t")
            client = await broker.client()
            await client.send(fetch(("t", 0, 0), max_wait_ms=1000), 11)
            await broker.settle()
            with monkeypatch.context() as patch:
                patch.setattr(connections, "add_response", fails)
                broker.clock.advance(1000)
                assert await client.is_closed()
    (line,) = [line for line in lines if line["event"] == "connection closed"]
    assert (line["log_level"], str(line["exc_info"])) == ("error", "a defect")


def test_response_with_more_pieces_than_one_libuv_write_arrives_whole(tmp_path: Path) -> None:
    pieces = [b"%010d" % number for number in range(1 << 20)] + [b"the end"]

    async def exchange() -> bytes:
        async with running(tmp_path / "data") as broker:
            client = await broker.client()
            await client.call(ping(), 0)
            (connection,) = broker.running.connections.open
            connection._send(list(pieces))
            return await client.reader.readexactly(sum(map(len, pieces)))

    assert uvloop.run(exchange()) == b"".join(pieces)
