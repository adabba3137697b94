"""Quotas (KIP-219): a broker returns the time for which it reads no requests, and the connection writes none for that
time.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections.abc import Coroutine
from typing import Any

import pytest

from ottla.client.net.connection import THROTTLED_SINCE, Connection, connect
from ottla.client.net.errors import RequestTimedOut
from ottla.protocol import messages
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.schema import response_class, spec
from ottla_testing.client.scripted import SILENT, Later, ScriptedBroker, ScriptedNetwork, metadata
from ottla_testing.each import each

ONE = {1: ("one", 9092)}
REQUEST = MetadataRequest(topics=[])
LOOKED_UP = ListOffsetsRequest(replica_id=-1, topics=[])


@pytest.fixture
def network() -> ScriptedNetwork:
    return ScriptedNetwork()


def opened(**options: Any) -> Coroutine[Any, Any, Connection]:
    return connect("one", 9092, **{"client_id": "me", "request_timeout_s": 30.0, **options})


def throttling(network: ScriptedNetwork, *times_ms: int, newest: int = 13) -> ScriptedBroker:
    """Returns a broker with these throttle times in its Metadata responses, in turn, then 0."""
    broker = network.broker(versions={MetadataRequest: f"0-{newest}", ListOffsetsRequest: "0-11"})
    left = [*times_ms]
    broker.does[MetadataRequest] = lambda request, version, link: metadata(
        ONE, throttle_time_ms=left.pop(0) if left else 0
    )
    return broker


def heard_after(broker: ScriptedBroker, since: float) -> list[Any]:
    """Returns when each Metadata and ListOffsets request was read."""
    return [
        pytest.approx(heard.at_s - since)
        for heard in broker.heard
        if isinstance(heard.request, MetadataRequest | ListOffsetsRequest)
    ]


@pytest.mark.parametrize(("newest", "paused"), [(13, True), (6, True), (5, False), (3, False), (2, False)])
def test_nothing_is_written_during_the_throttle_time(newest: int, paused: bool, network: ScriptedNetwork) -> None:
    broker = throttling(network, 4000 if newest > 2 else 0, newest=newest)

    async def main() -> None:
        connection = await opened()
        since = network.loop.time()
        await connection.request(REQUEST)  # its own response is not late
        assert network.loop.time() == since
        first = connection.send(LOOKED_UP)
        await asyncio.sleep(1)
        second = connection.send(REQUEST)  # is delayed with it, whatever its API is
        await asyncio.gather(first, second)
        await connection.request(REQUEST)  # the throttle time is over
        assert heard_after(broker, since) == ([0, 4, 4, 4] if paused else [0, 0, 1, 1])
        connection.close()

    network.run(main())


def test_later_end_of_two_throttle_times_counts(network: ScriptedNetwork) -> None:
    broker = throttling(network, 4000, 1000)

    async def main() -> None:
        connection = await opened()
        since = network.loop.time()
        await asyncio.gather(connection.request(REQUEST), connection.request(REQUEST))
        await connection.request(REQUEST)
        assert heard_after(broker, since) == [0, 0, 4]
        connection.close()

    network.run(main())


def test_throttle_time_does_not_count_for_request_timeouts(network: ScriptedNetwork) -> None:
    """Neither for a request in flight that the broker reads later, nor for waiting requests."""
    broker = throttling(network, 8000)
    broker.does[ListOffsetsRequest] = lambda request, version, link: SILENT

    async def main() -> None:
        connection = await opened(request_timeout_s=10.0)
        since = network.loop.time()
        first, under_way = connection.send(REQUEST), connection.send(LOOKED_UP)
        await first
        with pytest.raises(RequestTimedOut):
            await under_way
        assert network.loop.time() - since == pytest.approx(18)

        broker.does[MetadataRequest] = lambda request, version, link: metadata(ONE, throttle_time_ms=8000)
        connection = await opened(request_timeout_s=10.0)
        since = network.loop.time()
        await connection.request(REQUEST)
        with pytest.raises(RequestTimedOut):
            await connection.request(LOOKED_UP)
        assert network.loop.time() - since == pytest.approx(18)

    network.run(main())


def test_throttle_time_is_limited_to_the_request_timeout(network: ScriptedNetwork) -> None:
    broker = throttling(network, 2**31 - 1)

    async def main() -> None:
        connection = await opened(request_timeout_s=10.0)
        since = network.loop.time()
        await connection.request(REQUEST)
        await connection.request(REQUEST)
        assert heard_after(broker, since) == [0, 10]
        connection.close()

    network.run(main())


def test_negative_throttle_time_is_ignored(network: ScriptedNetwork) -> None:
    broker = throttling(network, -5)

    async def main() -> None:
        connection = await opened()
        since = network.loop.time()
        await connection.request(REQUEST)
        await connection.request(REQUEST)
        assert heard_after(broker, since) == [0, 0]
        connection.close()

    network.run(main())


def test_waiting_requests_are_written_at_close(network: ScriptedNetwork) -> None:
    broker = throttling(network, 4000)

    async def main() -> None:
        connection = await opened()
        await connection.request(REQUEST)
        (link,) = broker.links
        before = len(link.writes)
        connection.post(LOOKED_UP)  # as Produce with acks=0
        await asyncio.sleep(1)
        assert len(link.writes) == before
        connection.close()
        assert len(link.writes) == before + 1
        await asyncio.sleep(10)
        assert len(link.writes) == before + 1

    network.run(main())


def test_throttle_time_of_another_connection_is_ignored(network: ScriptedNetwork) -> None:
    broker = throttling(network, 4000)

    async def main() -> None:
        one, other = await opened(), await opened()
        since = network.loop.time()
        await one.request(REQUEST)
        await other.request(REQUEST)
        assert heard_after(broker, since) == [0, 0]
        one.close()
        other.close()

    network.run(main())


def test_connection_lost_during_the_throttle_time_fails_at_once(network: ScriptedNetwork) -> None:
    broker = throttling(network, 4000)
    broker.does[ListOffsetsRequest] = lambda request, version, link: Later(1, None)

    async def main() -> None:
        connection = await opened()
        since = network.loop.time()
        await connection.request(REQUEST)
        waiting = connection.send(LOOKED_UP)
        broker.stop()
        with pytest.raises(Exception, match="closed by the broker"):
            await waiting
        assert network.loop.time() == since
        await asyncio.sleep(10)

    network.run(main())
    assert not broker.requests_of(ListOffsetsRequest)


@each("module", [m.name for m in pkgutil.walk_packages(messages.__path__, f"{messages.__name__}.") if not m.ispkg])
def test_versions_with_client_side_throttling_have_the_field(module: str) -> None:
    """They begin with the version of KIP-219, and for newer APIs with version 0."""
    loaded = importlib.import_module(module)
    for name, cls in vars(loaded).items():
        if name.endswith("Request") and isinstance(cls, type) and cls.__module__ == loaded.__name__:
            since = THROTTLED_SINCE.get(spec(cls).api_key)
            field = response_class(cls)._fields.get("throttle_time_ms")  # type: ignore[attr-defined]
            if since is None:
                assert field is None or field.versions.first == 0
            else:
                assert field.versions.first <= since and since in spec(cls).versions
