"""The tap reports every request as the client saw it: decodable or not, served or not, with faults, parked."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from ottla.broker.admin_api.seen_requests import SeenRequest
from ottla.broker.faults import actions
from ottla.broker.faults.rule_set import Faults
from ottla.broker.faults.rules import Rule
from ottla.broker.logs import get_logger
from ottla.broker.recording import decoding
from ottla.broker.recording.exchange import Buffer, Ending, Exchange, Peer
from ottla.broker.recording.ring import Ring
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.records.fetch import FetchRequest
from ottla.protocol.messages.security.alter_user_scram_credentials import AlterUserScramCredentialsRequest as Alter
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.storage.io.memory import MemoryFiles
from ottla_testing.broker.harness import Broker, frame, produce, records, running
from ottla_testing.patience import PATIENCE_S

FOLDER = Path("/tapped")


class Heard:
    """A sink that keeps all events, and checks their order."""

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self.gone: list[Peer] = []
        self.begun_ones: list[Exchange] = []
        self.ended_ones: list[Exchange] = []
        self.news = asyncio.Event()

    def opened(self, peer: Peer) -> None:
        assert peer.number not in {one.number for one in self.peers}
        self.peers.append(peer)
        self.news.set()

    def begun(self, exchange: Exchange, frame: memoryview) -> None:
        assert exchange.peer in self.peers and exchange.peer not in self.gone
        assert exchange.ending is Ending.PENDING and exchange.duration_ns == -1
        assert not self.begun_ones or exchange.number > self.begun_ones[-1].number
        self.begun_ones.append(exchange)
        self.news.set()

    def ended(self, exchange: Exchange, response: Sequence[Buffer]) -> None:
        assert exchange in self.begun_ones and exchange not in self.ended_ones
        assert exchange.ending is not Ending.PENDING and exchange.duration_ns >= 0
        assert exchange.peer not in self.gone
        self.ended_ones.append(exchange)
        self.news.set()

    def closed(self, peer: Peer) -> None:
        pending = [one.number for one in self.begun_ones if one.peer is peer and one.ending is Ending.PENDING]
        assert peer in self.peers and peer not in self.gone and not pending
        self.gone.append(peer)
        self.news.set()

    async def until(self, what: str, count: int) -> list[Any]:
        while len(found := getattr(self, what)) < count:
            self.news.clear()
            async with asyncio.timeout(PATIENCE_S):
                await self.news.wait()
        assert len(found) == count
        return found


def memory(**more: Any) -> Any:
    return running(FOLDER, files=MemoryFiles(lambda: 0), faults=Faults(), **more)


def listen(broker: Broker) -> Heard:
    heard = Heard()
    broker.running.connections.listen(heard)
    return heard


def fetch(topic: str, wait_ms: int = 0, offset: int = 0) -> FetchRequest:
    part = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])],
    )


async def test_request_and_response_are_reported_with_their_bytes() -> None:
    async with memory() as broker:
        heard = listen(broker)
        client = await broker.client()
        request = frame(MetadataRequest(topics=[]), 12, 77, "me")
        await client.send_bytes(request)
        complete = await client.receive_bytes()
        (one,) = heard.ended_ones
        assert (one.request, one.request_bytes) == (request[4:], len(request) - 4)
        assert (one.response, one.response_bytes) == (complete, len(complete))
        assert (one.api_key, one.api_version, one.correlation_id, one.client_id) == (3, 12, 77, "me")
        assert (one.ending, one.reason, one.fault) == (Ending.RESPONDED, "", None)
        assert one.time_ms == broker.state.clock.now_ms() and one.number == 1
        peer = one.peer
        assert (peer.listener, peer.local_port, peer.client_host) == ("PLAINTEXT", broker.ports[0], "127.0.0.1")
        assert (peer.node_id, peer.opened_ms) == (broker.state.node_id, one.time_ms)
        assert peer.client_port == client.writer.get_extra_info("sockname")[1]
        client.close()
        assert await heard.until("gone", 1) == [peer]


async def test_client_library_is_known_after_api_versions() -> None:
    async with memory() as broker:
        heard = listen(broker)
        client = await broker.client()
        await client.call(MetadataRequest(topics=[]), 12)
        assert heard.ended_ones[0].software_name is None
        await client.call(ApiVersionsRequest(client_software_name="lib", client_software_version="1.2"), 3)
        await client.call(MetadataRequest(topics=[]), 12)
        assert (heard.ended_ones[-1].software_name, heard.ended_ones[-1].software_version) == ("lib", "1.2")


async def test_request_after_a_waiting_fetch_begins_after_its_response() -> None:
    async with memory() as broker:
        await broker.topic("t")
        heard = listen(broker)
        client = await broker.client()
        await client.send(fetch("t", 60_000), 11)
        await heard.until("begun_ones", 1)
        await client.send(MetadataRequest(topics=[]), 12)
        await broker.settle()
        own = heard.begun_ones[0].peer.number
        assert [one.ending for one in heard.begun_ones if one.peer.number == own] == [Ending.PENDING]
        other = await broker.client()
        await other.call(produce(records(b"x")), 9)
        await client.receive()
        await client.receive()
        ended = [one for one in heard.ended_ones if one.peer.number == own]
        assert [one.api_key for one in ended] == [1, 3] and ended[0].number < ended[1].number


async def test_acks_0_is_silent() -> None:
    async with memory() as broker:
        await broker.topic("t")
        heard = listen(broker)
        client = await broker.client()
        await client.send(produce(records(b"x"), acks=0), 9)
        (one,) = await heard.until("ended_ones", 1)
        assert (one.ending, one.response, one.response_bytes) == (Ending.SILENT, None, 0)


@pytest.mark.parametrize(
    ("data", "key", "version", "client_id", "why"),
    [
        (b"\x00\x03", -1, -1, None, "a request of 2 bytes has no header"),
        (struct.pack(">hhih", 999, 1, 5, 2) + b"me", 999, 1, "me", "API key 999 is not served"),
        (struct.pack(">hhih", 3, 99, 5, -1), 3, 99, None, "Metadata v99 is not served, but v0 to v13"),
        (
            struct.pack(">hhih", 4, 1, 5, 2) + b"me",
            4,
            1,
            "me",
            "between brokers and controllers; clients do not need it",
        ),
        (struct.pack(">hhih", 3, 1, 5, 2) + b"me" + b"\x7f\xff\xff\xff", 3, 1, "me", "topics: 2147483647 items"),
        (struct.pack(">hhih", 3, 1, 5, 2) + b"\xff\xfe", 3, 1, "\ufffd\ufffd", "client id is not UTF-8"),
    ],
)
async def test_undecodable_and_unserved_requests_are_reported(
    data: bytes, key: int, version: int, client_id: str | None, why: str
) -> None:
    async with memory() as broker:
        heard = listen(broker)
        client = await broker.client()
        await client.send_bytes(struct.pack(">i", len(data)) + data)
        assert await client.is_closed()
        (one,) = heard.ended_ones
        assert (one.api_key, one.api_version, one.client_id, one.request) == (key, version, client_id, data)
        assert (one.ending, one.response) == (Ending.CLOSED, None) and why in one.reason
        await heard.until("gone", 1)


async def test_unserved_version_of_api_versions_is_reported_with_its_response() -> None:
    async with memory() as broker:
        heard = listen(broker)
        client = await broker.client()
        data = struct.pack(">hhih", 18, 99, 5, -1)
        await client.send_bytes(struct.pack(">i", len(data)) + data)
        await client.receive_bytes()
        (one,) = heard.ended_ones
        assert one.ending is Ending.RESPONDED and one.api_version == 99
        responded: Any = decoding.response_value(one)
        assert responded.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_protocol_violation_closes_earlier_requests() -> None:
    async with memory() as broker:
        await broker.topic("t")
        heard = listen(broker)
        client = await broker.client()
        await client.send(fetch("t", 60_000), 11)
        await heard.until("begun_ones", 1)
        await client.send_bytes(struct.pack(">i", -5))
        assert await client.is_closed()
        (one,) = await heard.until("ended_ones", 1)
        assert one.ending is Ending.CLOSED and "a frame of -5 bytes" in one.reason


async def test_parked_fetch_ends_closed_when_its_client_disconnects() -> None:
    async with memory() as broker:
        await broker.topic("t")
        heard = listen(broker)
        client = await broker.client()
        await client.send(fetch("t", 60_000), 11)
        await heard.until("begun_ones", 1)
        client.close()
        (one,) = await heard.until("ended_ones", 1)
        assert (one.ending, one.reason) == (Ending.CLOSED, "the client closed the connection")
        await heard.until("gone", 1)


async def test_disconnect_and_stop_are_reported() -> None:
    async with memory() as broker:
        await broker.topic("t")
        heard = listen(broker)
        for _ in range(2):
            client = await broker.client()
            await client.send(fetch("t", 60_000), 11)
        await heard.until("begun_ones", 2)
        broker.running.connections.cut()
        for one in await heard.until("ended_ones", 2):
            assert (one.ending, one.reason) == (Ending.CLOSED, "the broker cut the connection")
        client = await broker.client()
        await client.send(fetch("t", 60_000), 11)
        await heard.until("begun_ones", 3)
    assert heard.ended_ones[2].ending is Ending.RESPONDED, "a stop responds to waiting requests"
    assert len(heard.gone) == len(heard.peers) == 3


@pytest.mark.parametrize(
    ("action", "ending", "fault"),
    [
        (actions.error("UNKNOWN_SERVER_ERROR"), Ending.RESPONDED, "fault 1: error"),
        (actions.delay(1), Ending.RESPONDED, "fault 1: delay"),
        (actions.disconnect(), Ending.CLOSED, "fault 1: disconnect"),
        (actions.disconnect("after"), Ending.CLOSED, "fault 1: disconnect"),
        (actions.truncate(6), Ending.CLOSED, "fault 1: truncate"),
        (actions.garble(), Ending.RESPONDED, "fault 1: garble"),
        (actions.throttle(1), Ending.RESPONDED, "fault 1: throttle"),
    ],
    ids=lambda value: value.name if isinstance(value, actions.Action) else None,
)
async def test_faulted_request_is_reported_as_the_client_saw_it(
    action: actions.Action, ending: Ending, fault: str
) -> None:
    async with memory() as broker:
        await broker.topic("t")
        heard = listen(broker)
        broker.running.faults.add(Rule(action=action, api="Metadata", seed=1))
        client = await broker.client()
        topic = MetadataRequest.MetadataRequestTopic(name="t")
        await client.send(MetadataRequest(topics=[topic]), 1)
        seen = await client.reader.read(4)
        size = struct.unpack(">i", seen)[0] if seen else 0
        seen = b""
        while len(seen) < size and (more := await client.reader.read(size - len(seen))):
            seen += more
        (one,) = await heard.until("ended_ones", 1)
        assert (one.ending, one.fault) == (ending, fault)
        assert (one.response or b"", one.response_bytes) == (seen, len(seen))
        assert ("fault 1" in one.reason) == (ending is Ending.CLOSED)


async def test_stalled_request_of_a_disconnected_client_names_its_fault() -> None:
    async with memory() as broker:
        heard = listen(broker)
        broker.running.faults.add(Rule(action=actions.stall(), api="Metadata"))
        client = await broker.client()
        await client.send(MetadataRequest(topics=[]), 12)
        await heard.until("begun_ones", 1)
        client.close()
        (one,) = await heard.until("ended_ones", 1)
        assert (one.ending, one.fault) == (Ending.CLOSED, "fault 1: stall")


async def test_fetch_with_a_wrong_crc_is_reported_as_sent() -> None:
    async with memory() as broker:
        await broker.topic("t")
        client = await broker.client()
        await client.call(produce(records(b"x")), 9)
        heard = listen(broker)
        broker.running.faults.add(Rule(action=actions.wrong_crc()))
        await client.call(fetch("t"), 11)
        (one,) = heard.ended_ones
        assert one.fault == "fault 1: wrong_crc"
        result = decoding.response_plain(one)
        assert result is not None
        (entry,) = result["responses"][0]["partitions"][0]["records"]["batches"]
        assert entry["damaged"] == "the CRC is another one"


async def test_exchanges_have_the_id_of_their_node() -> None:
    async with memory(brokers=3) as broker:
        heard = listen(broker)
        for number in range(3):
            client = await broker.client(number)
            await client.call(MetadataRequest(topics=[]), 12)
        assert [(one.peer.node_id, one.peer.local_port) for one in heard.ended_ones] == [
            (node, port) for node, port in zip(broker.state.nodes.ids, broker.ports, strict=True)
        ]


# Subscriptions


async def test_connections_have_no_tap_without_subscribers() -> None:
    async with memory() as broker:
        connections = broker.running.connections
        assert connections.tap is None
        client = await broker.client()
        await client.call(MetadataRequest(topics=[]), 12)
        heard = listen(broker)
        assert connections.tap is not None and not heard.peers
        await client.call(MetadataRequest(topics=[]), 12)
        assert [one.number for one in heard.ended_ones] == [1], "numbers begin with the first subscriber"
        assert [one.number for one in heard.peers] == [1]
        second = listen(broker)
        assert second.peers == heard.peers, "open connections are reported at once"
        connections.unlisten(heard)
        assert connections.tap is not None
        connections.unlisten(second)
        connections.unlisten(second)
        assert connections.tap is None
        await client.call(MetadataRequest(topics=[]), 12)
        assert len(heard.ended_ones) == 1 and not second.begun_ones
        third = listen(broker)
        await client.call(MetadataRequest(topics=[]), 12)
        assert [one.number for one in third.ended_ones] == [2]


async def test_requests_begun_before_the_first_subscription_are_not_reported() -> None:
    async with memory() as broker:
        await broker.topic("t")
        client = await broker.client()
        await client.send(fetch("t", 60_000), 11)
        other = await broker.client()
        await other.call(MetadataRequest(topics=[]), 12)
        heard = listen(broker)
        await client.send(MetadataRequest(topics=[]), 12)
        await other.call(produce(records(b"x")), 9)
        await client.receive()
        await client.receive()
        assert sorted(one.api_key for one in heard.ended_ones) == [0, 3]


class Failing(Heard):
    """A sink that raises."""

    def ended(self, exchange: Exchange, response: Sequence[Buffer]) -> None:
        raise RuntimeError("a defect")


async def test_failing_subscriber_is_unsubscribed() -> None:
    async with memory() as broker:
        failing = Failing()
        broker.running.connections.listen(failing)
        heard = listen(broker)
        client = await broker.client()
        get_logger()  # configures structlog, which the capture then replaces
        with capture_logs() as log:
            for _ in range(3):
                await client.call(MetadataRequest(topics=[]), 12)
        assert len(heard.ended_ones) == 3 and len(failing.begun_ones) == 1
        assert [(one["log_level"], one["sink"]) for one in log] == [("error", "Failing")]


async def test_frames_no_subscriber_wants_are_not_copied() -> None:
    async with memory() as broker:
        await broker.topic("t")
        heard = Heard()
        broker.running.connections.listen(heard, 200)
        client = await broker.client()
        await client.call(produce(records(b"x" * 1000)), 9)
        await client.call(fetch("t"), 11)
        sent, fetched = heard.ended_ones
        assert sent.request is None and sent.request_bytes > 1000 and sent.response is not None
        assert sent.produced is not None and (sent.produced.topics, sent.produced.codecs) == (("t",), ("none",))
        assert fetched.request is not None and fetched.response is None and fetched.response_bytes > 1000
        everything = listen(broker)
        await client.call(fetch("t"), 11)
        assert everything.ended_ones[0].response is not None


async def test_tap_survives_another_state() -> None:
    async with memory() as broker:
        heard = listen(broker)
        broker.running.attach(broker.state)
        client = await broker.client()
        await client.call(MetadataRequest(topics=[]), 12)
        assert len(heard.ended_ones) == 1


# The ring


NO_FRAME = memoryview(b"")


def exchange(number: int, request: int = 10, key: int = 3) -> Exchange:
    found: Any = Exchange(number, None, 0, 0, key, 0, 0, None, bytes(request), request)  # type: ignore[arg-type]
    return found


def complete(one: Exchange, size: int) -> Exchange:
    one.response, one.response_bytes, one.ending = bytes(size), size, Ending.RESPONDED
    return one


def test_the_ring_keeps_the_newest() -> None:
    ring = Ring(exchanges=5)
    for number in range(1, 13):
        ring.begun(exchange(number), NO_FRAME)
        assert ring.next_number == number + 1
    assert [one.number for one in ring.list()] == [8, 9, 10, 11, 12]
    assert [one.number for one in ring.list(11)] == [11, 12]
    assert ring.find(8) is not None and ring.find(7) is None and ring.find(13) is None
    assert (ring.forgotten(), ring.forgotten(6), ring.forgotten(8)) == (7, 2, 0)
    assert ring.clear() == 5 and ring.list() == [] and ring.forgotten() == 0
    ring.ended(exchange(12), ())
    assert ring.list() == []
    ring.begun(exchange(13), NO_FRAME)
    assert [one.number for one in ring.list()] == [13]


def test_the_ring_is_bounded_by_bytes() -> None:
    ring = Ring(exchanges=1000, size_bytes=20_000, frame_bytes=5_000)
    for number in range(1, 101):
        one = exchange(number, 1000)
        ring.begun(one, NO_FRAME)
        ring.ended(complete(one, 2000), ())
        assert sum(len(kept.request or b"") + len(kept.response or b"") for kept in ring.list()) <= 20_000
    assert [one.number for one in ring.list()] == [96, 97, 98, 99, 100]
    ring.ended(complete(exchange(3), 100), ())  # evicted already
    assert ring._size == sum(ring._sizes)


def test_ring_drops_large_frames_without_changing_the_exchange() -> None:
    ring = Ring(frame_bytes=100)
    large, small = exchange(1, 101), exchange(2, 100)
    for one in (large, small):
        ring.begun(one, NO_FRAME)
        ring.ended(complete(one, 100), ())
    assert (ring.list()[0].request, ring.list()[0].request_bytes) == (None, 101)
    assert ring.list()[0].response == bytes(100) and ring.list()[1] is small
    ring.begun(three := exchange(3), NO_FRAME)
    ring.ended(complete(three, 101), ())
    assert ring.list()[2].response is None and ring.list()[2].response_bytes == 101
    four = exchange(4, 0, 0)
    four.request = frame(produce(records(b"x" * 200, codec=1), acks=0), 9, 4)[4:]
    ring.begun(four, NO_FRAME)
    kept = SeenRequest(ring.list()[3])
    assert kept.request is None and kept.topics == ("t",)
    assert kept.produced is not None and (kept.produced.acks, kept.produced.codecs) == (0, ("gzip",))
    assert large.request == bytes(101) and three.response == bytes(101)
    assert ring._size == sum(ring._sizes)


async def test_the_ring_keeps_no_credentials() -> None:
    ring = Ring()
    async with memory(ring=ring) as broker:
        heard = listen(broker)
        client = await broker.client()
        one = Alter.ScramCredentialUpsertion(
            name="alice", mechanism=1, iterations=4096, salt=b"SALTSALT", salted_password=b"SECRETSECRET"
        )
        await client.call(Alter(deletions=[], upsertions=[one]), 0)
    (kept,), (result,) = ring.list(), heard.ended_ones
    assert b"SECRET" in (result.request or b"")
    assert kept.request is not None and b"SECRET" not in kept.request and b"SALT" not in kept.request
    assert b"alice" in kept.request and kept.ending is Ending.RESPONDED


async def test_ring_keeps_no_password_without_a_handshake() -> None:
    ring = Ring()
    async with memory(ring=ring) as broker:
        for token in (b"\0user\0SECRETSECRET", b"\0Admin\0SECRETSECRET"):
            client = await broker.client()
            await client.send_bytes(struct.pack(">i", len(token)) + token)
            assert await client.is_closed()
    kept = ring.list()
    assert [one.ending for one in kept] == [Ending.CLOSED] * 2
    assert not any(b"SECRET" in (one.request or b"") for one in kept)
    assert [one.client_id for one in kept] == [None] * 2


async def test_ring_wakes_waiters_at_a_change() -> None:
    ring = Ring()
    await ring.changed(ring.changes + 1, 15)
    await ring.changed(ring.changes, 0.001)
    waits = asyncio.create_task(ring.changed(ring.changes, 15))
    await asyncio.sleep(0)
    ring.begun(one := exchange(1), NO_FRAME)
    await waits
    waits = asyncio.create_task(ring.changed(ring.changes, 15))
    await asyncio.sleep(0)
    ring.ended(complete(one, 5), ())
    await waits
    assert ring._change is None
