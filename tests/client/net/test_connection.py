"""One connection: order of responses, timeouts, all kinds of ends, malformed responses, and the negotiation of
versions.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.net.connection import OLD_VERSIONS, SOFTWARE, Connection, Opening, connect
from ottla.client.net.errors import ConnectionLost, InvalidRequest, KafkaError, RequestTimedOut, UnsupportedVersion
from ottla.protocol.errors import MalformedMessage, ProtocolViolation
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.schema import Versions
from ottla_testing.broker import harness
from ottla_testing.client.scripted import CLOSE, SILENT, Heard, Later, ScriptedNetwork, bytes_of, metadata
from ottla_testing.each import each

MODERN = {MetadataRequest: "0-13", ListOffsetsRequest: "0-11"}
ONE = {1: ("one", 9092)}
REQUEST = MetadataRequest(topics=[])


@pytest.fixture
def network() -> ScriptedNetwork:
    return ScriptedNetwork()


def opened(**options: Any) -> Coroutine[Any, Any, Connection]:
    return connect("one", 9092, **{"client_id": "me", "request_timeout_s": 30.0, **options})


def named(cluster_id: str) -> Any:
    return metadata(ONE, cluster_id=cluster_id)


# Order, parts, time


def test_pipelined_requests_get_responses_in_order(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    broker.does[MetadataRequest] = lambda request, version, link: named(str(len(broker.requests_of(MetadataRequest))))

    async def main() -> None:
        connection = await opened()
        futures = [connection.send(REQUEST) for _ in range(20)]
        assert "20 in flight" in repr(connection)
        responses = [reply.cluster_id for reply in await asyncio.gather(*futures)]
        assert responses == [str(n) for n in range(1, 21)]
        assert "0 in flight" in repr(connection)
        connection.close()

    network.run(main())
    assert {heard.client_id for heard in broker.heard} == {"me"}


def test_requests_of_one_loop_iteration_are_one_write(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    broker.does[MetadataRequest] = lambda request, version, link: named("c")

    async def main() -> None:
        connection = await opened()
        (link,) = broker.links
        before = len(link.writes)
        futures = [connection.send(REQUEST) for _ in range(5)]
        await asyncio.gather(*futures)
        assert len(link.writes) == before + 1
        large = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="n" * 30_000)] * 3)
        await asyncio.gather(connection.send(large), connection.send(REQUEST))
        assert len(link.writes) == before + 3  # large parts are not copied together: all but the last, and the last
        connection.close()

    network.run(main())
    assert len(broker.requests_of(MetadataRequest)) == 7


def test_request_without_a_response_in_time_ends_the_connection(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    broker.does[MetadataRequest] = lambda request, version, link: SILENT

    async def main() -> None:
        connection = await opened(request_timeout_s=30.0)
        started = network.loop.time()
        patient = connection.send(REQUEST, timeout_s=60.0)
        first = connection.send(REQUEST)
        last = connection.send(REQUEST)
        with pytest.raises(RequestTimedOut, match="no response to MetadataRequest from one:9092"):
            await first
        assert network.loop.time() - started == pytest.approx(30)
        for lost in (patient, last):
            with pytest.raises(ConnectionLost) as caught:
                await lost
            assert not isinstance(caught.value, RequestTimedOut)
        assert connection.is_closed
        with pytest.raises(ConnectionLost):
            await connection.request(REQUEST)

    network.run(main())


def test_each_request_has_its_own_deadline(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    broker.does[MetadataRequest] = lambda request, version, link: Later(20, named("c"))

    async def main() -> None:
        connection = await opened(request_timeout_s=30.0)
        for _ in range(5):  # 100 s in all
            await connection.request(REQUEST)
        await asyncio.sleep(1000)  # an idle connection has no deadline
        assert not connection.is_closed
        with pytest.raises(RequestTimedOut):
            await connection.request(REQUEST, timeout_s=10.0)

    network.run(main())


def test_response_to_a_cancelled_request_is_skipped_in_its_turn(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    broker.does[MetadataRequest] = lambda request, version, link: Later(
        1, named(str(len(broker.requests_of(MetadataRequest))))
    )

    async def main() -> None:
        connection = await opened()
        given_up = connection.send(REQUEST)
        kept = connection.send(REQUEST)
        given_up.cancel()
        assert (await kept).cluster_id == "2"
        assert not connection.is_closed
        connection.close()

    network.run(main())


def test_posted_request_has_no_response(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    broker.does[MetadataRequest] = lambda request, version, link: SILENT if version == 1 else named("c")

    async def main() -> None:
        connection = await opened()
        connection.post(REQUEST, 1)
        assert (await connection.request(REQUEST)).cluster_id == "c"
        connection.close()
        with pytest.raises(ConnectionLost, match="closed by this client"):
            connection.post(REQUEST, 1)

    network.run(main())
    assert [heard.version for heard in broker.requests_of(MetadataRequest)] == [1, 13]


def test_wait_writable_returns_when_the_peer_reads(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)

    async def main() -> None:
        connection = await opened()
        await connection.wait_writable()
        (link,) = broker.links
        link.pause()
        network.loop.call_later(5, link.resume)
        started = network.loop.time()
        await asyncio.gather(connection.wait_writable(), connection.wait_writable())
        assert network.loop.time() - started == pytest.approx(5)
        link.pause()
        network.loop.call_later(5, link.end)
        with pytest.raises(ConnectionLost):
            await connection.wait_writable()

    network.run(main())


# Ends


def test_close_within_a_response_fails_requests_in_flight(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)

    def cut(request: Any, version: int, link: Any) -> Any:
        if len(broker.requests_of(MetadataRequest)) == 1:
            return named("whole")
        link.feed(bytes_of(named("cut"), version, link.correlation_id, MetadataRequest)[:-1])
        return CLOSE

    broker.does[MetadataRequest] = cut

    async def main() -> None:
        connection = await opened()
        futures = [connection.send(REQUEST) for _ in range(3)]
        assert (await futures[0]).cluster_id == "whole"
        for future in futures[1:]:
            with pytest.raises(ConnectionLost, match="closed by the broker"):
                await future

    network.run(main())


def test_socket_error_is_the_cause(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    broker.does[MetadataRequest] = lambda request, version, link: link.end(ConnectionResetError("reset")) or SILENT

    async def main() -> None:
        connection = await opened()
        with pytest.raises(ConnectionLost, match="lost: reset") as caught:
            await connection.request(REQUEST)
        assert isinstance(caught.value.__cause__, ConnectionResetError)
        again = await asyncio.gather(connection.send(REQUEST), return_exceptions=True)
        assert again[0] is not caught.value and isinstance(again[0], ConnectionLost)

    network.run(main())


def test_close_flushes_written_requests_and_fails_waiting_ones(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    broker.does[MetadataRequest] = lambda request, version, link: SILENT

    async def main() -> None:
        connection = await opened()
        future = connection.send(REQUEST)
        connection.close()
        connection.close()
        with pytest.raises(ConnectionLost, match="closed by this client"):
            await future
        await connection.wait_closed()
        assert len(broker.links[0].writes) == 2  # versions, metadata
        assert not broker.links[0].is_aborted

    network.run(main())


def test_refused_connection_raises_connection_lost(network: ScriptedNetwork) -> None:
    async def main() -> None:
        with pytest.raises(ConnectionLost, match="cannot connect to one:9092: connection refused"):
            await opened()
        network.silent.add(("one", 9092))
        started = network.loop.time()
        with pytest.raises(ConnectionLost, match="within 10 s"):
            await opened(opening=Opening(10.0))
        assert network.loop.time() - started == pytest.approx(10)

    network.run(main())


# Malformed responses

LIES = {
    "another's correlation id": lambda right: right[:4] + struct.pack(">i", 4711) + right[8:],
    "bytes missing": lambda right: struct.pack(">i", len(right) - 5) + right[4:-1],
    "a negative size": lambda right: struct.pack(">i", -1) + right[4:],
    "an endless size": lambda right: struct.pack(">i", 2**31 - 1) + right[4:],
    "no header": lambda right: struct.pack(">i", 3) + b"abc",
    "endless tags in the header": lambda right: struct.pack(">i", 10) + right[4:8] + b"\xff" * 6,
    "a repeated response": lambda right: right + right,
}


@pytest.mark.parametrize("lie", LIES)
def test_malformed_response_ends_the_connection(lie: str, network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    broker.does[MetadataRequest] = lambda request, version, link: LIES[lie](
        bytes_of(named("c"), version, link.correlation_id, MetadataRequest)
    )

    async def main() -> None:
        connection = await opened()
        outcomes = await asyncio.gather(connection.send(REQUEST), connection.send(REQUEST), return_exceptions=True)
        lost = outcomes[-1]
        assert isinstance(lost, ConnectionLost) and "malformed response" in str(lost)
        assert isinstance(lost.__cause__, ProtocolViolation | MalformedMessage)
        assert connection.is_closed and broker.links[0].is_aborted

    network.run(main())


@pytest.mark.parametrize("left_over", [b"\0", bytes(1024)])
def test_bytes_left_over_after_a_response_are_ignored(left_over: bytes, network: ScriptedNetwork) -> None:
    """Like Kafka's Java client."""
    broker = network.broker(versions=MODERN)

    def reply(request: object, version: int, link: Any) -> bytes:
        right = bytes_of(named("c"), version, link.correlation_id, MetadataRequest)
        return struct.pack(">i", len(right) - 4 + len(left_over)) + right[4:] + left_over

    broker.does[MetadataRequest] = reply

    async def main() -> None:
        connection = await opened()
        for response in await asyncio.gather(connection.send(REQUEST), connection.send(REQUEST)):
            assert response.cluster_id == "c"

    network.run(main())


def test_response_without_a_request_ends_the_connection(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)

    async def main() -> None:
        connection = await opened()
        broker.links[0].feed(bytes_of(named("c"), 13, 1, MetadataRequest))
        with pytest.raises(ConnectionLost, match="response without a request"):
            await connection.request(REQUEST)

    network.run(main())


def test_response_size_is_limited(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    broker.does[MetadataRequest] = lambda request, version, link: named("c" * 5000)

    async def main() -> None:
        connection = await opened(frame_bytes_max=4096)
        with pytest.raises(ConnectionLost, match=r"a frame of 50.. bytes; the most is 4096"):
            await connection.request(REQUEST)

    network.run(main())


@given(pieces=st.lists(st.integers(1, 60), min_size=1, max_size=30), names=st.lists(st.text(max_size=40), max_size=6))
def test_response_in_pieces_of_any_size_is_read(pieces: list[int], names: list[str]) -> None:
    network = ScriptedNetwork()
    broker = network.broker(versions=MODERN)
    broker.does[MetadataRequest] = lambda request, version, link: SILENT

    async def main() -> None:
        connection = await opened()
        futures = [connection.send(REQUEST) for _ in names]
        await asyncio.sleep(0.1)
        first = 2  # the first id was that of ApiVersions
        data = b"".join(bytes_of(named(name), 13, first + n, MetadataRequest) for n, name in enumerate(names))
        position = turn = 0
        while position < len(data):
            size = pieces[turn % len(pieces)]
            broker.links[0].feed(data[position : position + size])
            position, turn = position + size, turn + 1
        assert [reply.cluster_id for reply in await asyncio.gather(*futures)] == names
        connection.close()

    network.run(main())


@given(data=st.binary(max_size=200))
def test_random_bytes_raise_only_connection_lost(data: bytes) -> None:
    network = ScriptedNetwork()
    broker = network.broker(versions=MODERN)
    head = struct.pack(">ii", 4 + len(data), 2)
    broker.does[MetadataRequest] = lambda request, version, link: head + data

    async def main() -> None:
        connection = await opened()
        (outcome,) = await asyncio.gather(connection.send(REQUEST), return_exceptions=True)
        assert connection.is_closed == isinstance(outcome, ConnectionLost)
        connection.close()

    network.run(main())


def test_request_that_cannot_be_encoded_is_refused_without_effects(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    broker.does[MetadataRequest] = lambda request, version, link: named("c")

    async def main() -> None:
        connection = await opened()
        with pytest.raises(InvalidRequest, match=r"MetadataRequest\.topics"):
            connection.send(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=None)]), 1)
        with pytest.raises(UnsupportedVersion):
            connection.send(ProduceRequest(acks=1, timeout_ms=1, topic_data=[]))
        assert (await connection.request(REQUEST)).cluster_id == "c"
        connection.close()

    network.run(main())


# Versions


def heard_of(heard: list[Heard]) -> list[tuple[str, int]]:
    return [(type(each.request).__name__, each.version) for each in heard]


def test_highest_common_version_is_used(network: ScriptedNetwork) -> None:
    network.broker(versions={MetadataRequest: "2-99", ProduceRequest: "98-99"})

    async def main() -> None:
        connection = await opened()
        assert connection.versions[3] == Versions(2, 99)
        assert connection.version_of(MetadataRequest) == 13
        assert connection.version_of(MetadataRequest, 8) == 8
        assert connection.version_of(MetadataRequest) == 13
        with pytest.raises(UnsupportedVersion, match=r"Metadata: .* serves v2-v99, this client v0-v13 up to v1"):
            connection.version_of(MetadataRequest, 1)
        with pytest.raises(UnsupportedVersion, match=r"Produce: .* serves v98-v99, this client v0-v13$"):
            connection.version_of(ProduceRequest)
        with pytest.raises(UnsupportedVersion, match="one:9092 does not serve ListOffsets"):
            connection.version_of(ListOffsetsRequest)
        connection.close()

    network.run(main())


def test_api_versions_has_name_and_version_of_the_client(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)

    async def main() -> None:
        (await opened()).close()

    network.run(main())
    (heard,) = broker.heard
    assert (heard.request.client_software_name, heard.request.client_software_version) == SOFTWARE


@pytest.mark.parametrize(
    ("served", "offered", "wanted"),
    [("0-0", [], [3, 0]), ("0-2", [(0, 2)], [3, 2]), ("0-1", [(0, 9)], [3, 2, 0]), ("0-0", [(0, -7)], [3, 0])],
)
def test_error_35_leads_to_a_lower_version(
    served: str, offered: list[tuple[int, int]], wanted: list[int], network: ScriptedNetwork
) -> None:
    broker = network.broker(versions={ApiVersionsRequest: served, **MODERN})

    def api_versions(request: Any, version: int, link: Any) -> Any:
        if version in Versions.of(served):
            return ApiVersionsResponse(error_code=0, api_keys=broker.api_keys())
        keys = [ApiVersionsResponse.ApiVersion(api_key=18, min_version=a, max_version=b) for a, b in offered]
        return bytes_of(ApiVersionsResponse(error_code=35, api_keys=keys), 0, link.correlation_id)

    broker.does[ApiVersionsRequest] = api_versions

    async def main() -> None:
        connection = await opened()
        assert connection.versions[3] == Versions(0, 13) and connection.has_negotiated
        connection.close()

    network.run(main())
    assert [heard.version for heard in broker.heard] == wanted
    assert len(broker.links) == 1


def test_broker_refusing_every_api_versions_raises_unsupported_version(network: ScriptedNetwork) -> None:
    broker = network.broker(versions={ApiVersionsRequest: "none"})

    async def main() -> None:
        with pytest.raises(KafkaError, match=r"UNSUPPORTED_VERSION \(35\)"):
            await opened()

    network.run(main())
    assert len(broker.links) == 1 and broker.links[0].is_closing()


def test_broker_closing_on_api_versions_but_serving_old_requests_is_old(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=None)

    async def main() -> None:
        connection = await opened()
        assert connection.versions is OLD_VERSIONS and not connection.has_negotiated
        assert connection.version_of(MetadataRequest) == 0
        connection.close()

    network.run(main())
    assert heard_of(broker.heard) == [
        ("ApiVersionsRequest", 3),
        ("ListOffsetsRequest", 0),
        ("ApiVersionsRequest", 0),
    ]


def test_broker_closing_once_is_not_old(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    right = broker.does[ApiVersionsRequest]
    broker.does[ApiVersionsRequest] = lambda request, version, link: (
        CLOSE if len(broker.heard) == 1 else right(request, version, link)
    )

    async def main() -> None:
        connection = await opened()
        assert connection.version_of(MetadataRequest) == 13
        connection.close()

    network.run(main())


@pytest.mark.parametrize("how", ["closes on everything", "old ones are not expected", "silent", "not readable"])
def test_failures_that_do_not_indicate_an_old_broker(how: str, network: ScriptedNetwork) -> None:
    broker = network.broker(versions=None)
    if how == "closes on everything":
        broker.does[ListOffsetsRequest] = lambda request, version, link: CLOSE
    elif how == "silent":
        broker.does[ApiVersionsRequest] = lambda request, version, link: SILENT
    elif how == "not readable":
        broker.does[ApiVersionsRequest] = lambda request, version, link: b"HTTP/1.1 400 Bad Request\r\n\r\n"

    async def main() -> None:
        with pytest.raises(ConnectionLost):
            await opened(old_brokers=how != "old ones are not expected")

    network.run(main())
    assert all(link.is_closing() for link in broker.links)


def test_cancelled_connect_leaves_nothing_open(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    broker.does[ApiVersionsRequest] = lambda request, version, link: SILENT

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await opened()
        await asyncio.sleep(1)

    network.run(main())
    assert broker.links[0].is_closing()


def test_features_are_known_by_their_highest_level(network: ScriptedNetwork) -> None:
    broker = network.broker(versions=MODERN)
    feature = ApiVersionsResponse.SupportedFeatureKey(name="ottla.duplicate.scan", min_version=1, max_version=2)
    broker.does[ApiVersionsRequest] = lambda request, version, link: ApiVersionsResponse(
        error_code=0, api_keys=broker.api_keys(), supported_features=[feature]
    )

    async def main() -> None:
        connection = await opened()
        assert connection.features == {"ottla.duplicate.scan": 2}
        connection.close()

    network.run(main())


# Over real sockets, with brokers of all releases

PRODUCE_VERSION = {"0.8.2": 0, "0.9": 0, "0.10.2": 2, "1.0": 5, "2.3": 7, "3.9": 11, "4.3": 13, "ottla": 13}


@each("release", PRODUCE_VERSION, strided=True)
async def test_each_release_is_negotiated_over_a_socket(release: str, tmp_path: Path) -> None:
    async with harness.running(tmp_path, release=release) as broker:
        connection = await connect("127.0.0.1", broker.ports[0], client_id="me", request_timeout_s=15)
        assert connection.version_of(ProduceRequest) == PRODUCE_VERSION[release]
        responses = await asyncio.gather(*(connection.send(REQUEST) for _ in range(3)))
        assert [[node.node_id for node in reply.brokers] for reply in responses] == [[1]] * 3
        connection.close()
        await connection.wait_closed()


async def test_large_response_and_close_within_a_response_over_a_socket(tmp_path: Path) -> None:
    async with harness.running(tmp_path, overrides={"message.max.bytes": "4000000"}) as broker:
        await broker.topic("t")
        connection = await connect("127.0.0.1", broker.ports[0], client_id="me", request_timeout_s=15)
        values = [bytes([n]) * 700_000 for n in range(4)]
        for value in values:
            await connection.request(harness.produce(harness.records(value)), 8)
        wanted = harness.fetch(("t", 0, 0), max_bytes=1 << 23, partition_max_bytes=1 << 23)
        # Two large responses in flight: the records of the first one are unchanged while the second arrives.
        first, second = await asyncio.gather(connection.send(wanted, 11), connection.send(wanted, 11))
        assert harness.values(harness.only(first).records) == values
        assert harness.values(harness.only(second).records) == values
        waiting = connection.send(harness.fetch(("t", 0, 4), max_wait_ms=60_000), 11)
        await broker.settle()
        for open_connection in list(broker.running.connections.open):
            open_connection.abort()
        with pytest.raises(ConnectionLost):
            await waiting


async def test_connect_to_an_unused_port_raises_connection_lost(unused_tcp_port: int) -> None:
    with pytest.raises(ConnectionLost, match="cannot connect"):
        await connect("127.0.0.1", unused_tcp_port, client_id="me", request_timeout_s=15)


async def test_wait_writable_waits_for_a_broker_that_does_not_read(tmp_path: Path) -> None:
    """With asyncio's own event loop, whose writelines() does not pause the protocol in some releases of Python."""
    async with harness.running(tmp_path, overrides={"message.max.bytes": "4000000"}) as broker:
        await broker.topic("t")
        connection = await connect("127.0.0.1", broker.ports[0], client_id="me", request_timeout_s=15)
        (peer,) = broker.running.connections.open
        peer._transport.pause_reading()
        sent = [connection.send(harness.produce(harness.records(bytes(1_000_000))), 8) for _ in range(20)]
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(connection.wait_writable())
        await broker.settle()
        assert not waiting.done()
        peer._transport.resume_reading()
        await waiting
        assert [harness.only(response).base_offset for response in await asyncio.gather(*sent)] == list(range(20))
        connection.close()
        await connection.wait_closed()
