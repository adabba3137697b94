"""Limits of connections: how many in all, how many from one address, how fast they open, how long one may be idle."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.clock import ManualClock
from ottla.broker.config.dynamic import check_dynamic
from ottla.broker.config.host_limits import host_limits
from ottla.broker.config.values import Config, ConfigSource
from ottla.broker.connection_info import ConnectionInfo
from ottla.broker.errors import ConfigError
from ottla.broker.metrics.client_ledger import ClientLibrary
from ottla.broker.network.admission import Admission, Verdict
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.harness import Broker, Client, Closed, fetch, ping, produce, records, running
from ottla_testing.patience import patiently

IDLE_MS = 60_000
NO_CLIENT = {"max.connections.per.ip.overrides": "10.0.0.9:0"}


async def results(client: Client) -> bool:
    """Sends a request and returns its response."""
    await client.send(ping(), 0)
    async with patiently():
        await client.receive()
    return True


async def is_silent(client: Client, *, send: bool = True) -> bool:
    """Whether nothing arrives for a moment; a request that was sent stays sent."""
    if send:
        await client.send(ping(), 0)
    try:
        async with asyncio.timeout(0.1):
            await client.receive()
    except TimeoutError:
        return True
    return False


async def test_connection_above_the_limit_waits_until_another_closes(tmp_path: Path) -> None:
    async with running(tmp_path, overrides={"max.connections": "2"}) as broker:
        first, second, third, fourth = [await broker.client() for _ in range(4)]
        assert await results(first) and await results(second)
        assert await is_silent(third) and await is_silent(fourth)
        first.close()
        await third.receive()
        assert await is_silent(fourth, send=False)
        third.close()
        await fourth.receive()


async def test_held_connections_are_served_when_the_limit_is_raised(tmp_path: Path) -> None:
    async with running(tmp_path, overrides={"max.connections": "1"}) as broker:
        first, second = await broker.client(), await broker.client()
        assert await results(first) and await is_silent(second)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        change = resource.AlterableConfig(name="max.connections", config_operation=0, value="2")
        changed = resource(resource_type=4, resource_name="", configs=[change])
        requested = IncrementalAlterConfigsRequest(resources=[changed], validate_only=False)
        assert [one.error_code for one in (await first.call(requested, 0)).responses] == [0]
        await second.receive()


async def test_lowered_limit_closes_the_least_recently_used_connections(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        clients: list[Client] = []
        for _ in range(4):
            clients.append(await broker.client())
            assert await results(clients[-1])
            broker.clock.advance(1_000)
        assert await results(clients[0])
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        change = resource.AlterableConfig(name="max.connections", config_operation=0, value="2")
        changed = resource(resource_type=4, resource_name="", configs=[change])
        broker.clock.advance(1_000)
        requested = IncrementalAlterConfigsRequest(resources=[changed], validate_only=False)
        assert [one.error_code for one in (await clients[3].call(requested, 0)).responses] == [0]
        for closed in clients[1:3]:
            with pytest.raises(Closed):
                await closed.receive()
        assert await results(clients[0]) and await results(clients[3])


async def test_listener_has_a_limit_of_its_own(tmp_path: Path) -> None:
    overrides = {
        "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "listener.name.b.max.connections": "1",
    }
    async with running(tmp_path, overrides=overrides) as broker:
        clients = [await broker.client(0), await broker.client(0), await broker.client(1)]
        assert [await results(client) for client in clients] == [True, True, True]
        assert await is_silent(await broker.client(1))
        assert await results(await broker.client(0))  # a full listener holds no connection of another


async def test_connections_above_the_limit_of_an_address_are_closed(tmp_path: Path) -> None:
    overrides = {"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "127.0.0.2:2,localhost:3"}
    async with running(tmp_path, overrides=overrides) as broker:
        clients = [await broker.client() for _ in range(3)]
        assert [await results(client) for client in clients] == [True] * 3
        assert await (await broker.client()).is_closed()
        clients[0].close()
        await broker_has(broker, 2)
        assert await results(await broker.client())


async def broker_has(broker: Broker, count: int) -> None:
    while len(broker.running.connections.open) > count:
        await asyncio.sleep(0)


async def test_connections_above_the_rate_wait(tmp_path: Path) -> None:
    """Ten may open at once in windows of ten seconds; each further one at most a second later."""
    async with running(tmp_path, overrides={"max.connection.creation.rate": "1"}) as broker:
        clients = [await broker.client() for _ in range(12)]
        assert [await results(client) for client in clients[:10]] == [True] * 10
        assert await is_silent(clients[10]) and await is_silent(clients[11])
        broker.clock.advance(1000)
        await clients[10].receive()
        broker.clock.advance(1000)
        await clients[11].receive()


async def test_idle_connections_are_closed(tmp_path: Path) -> None:
    async with running(tmp_path, overrides={"connections.max.idle.ms": str(IDLE_MS)}) as broker:
        await broker.topic("t")
        idle, busy, waiting = [await broker.client() for _ in range(3)]
        assert await results(idle) and await results(busy)
        await waiting.send(fetch(("t", 0, 0), max_wait_ms=10 * IDLE_MS, min_bytes=1), 4)
        await broker.settle()
        broker.clock.advance(IDLE_MS - 1)
        assert await results(busy) and await results(idle)
        broker.clock.advance(IDLE_MS - 1)
        assert await results(busy)
        broker.clock.advance(IDLE_MS // 10)
        assert await idle.is_closed()
        assert await results(busy)
        await busy.call(produce(records(b"v")), 3)
        await waiting.receive()  # a client that waits for a response is not idle
        broker.clock.advance(2 * IDLE_MS)
        assert await busy.is_closed() and await waiting.is_closed()


@pytest.mark.parametrize("text", ["a", "a:", ":", "a:b", "a:1,b", "a:1,,b:1", "a:9999999999"])
def test_invalid_host_limits_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        host_limits(text)
    with pytest.raises(ConfigError):  # and is refused
        check_dynamic(Config(), ConfigSource.DYNAMIC_BROKER, {"max.connections.per.ip.overrides": text})
    with pytest.raises(ConfigError):
        Config({"max.connections.per.ip.overrides": text})


PIECES = ["127.0.0.1", "::1", "#", " ", ",", ":", "+5", "-5", "7", "٣", "x" * 70, "0" * 11]


@given(st.lists(st.sampled_from(PIECES)))
def test_accepted_host_limits_can_be_parsed(parts: list[str]) -> None:
    """A limit that cannot be parsed would fail at each connection, and at the next start."""
    text = "".join(parts)
    try:
        check_dynamic(Config(), ConfigSource.DYNAMIC_BROKER, {"max.connections.per.ip.overrides": text})
    except ConfigError:
        return
    config = Config({"max.connections.per.ip.overrides": text})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(socket, "gethostbyname", lambda name: name.encode("idna").decode())  # no name lookup
        assert Admission(config, ManualClock()).arrive(Coming("10.0.0.1")) is Verdict.SERVED


class Coming:
    """A connection of the model."""

    last_active_ms = 0
    is_waited_for = False

    def __init__(self, host: str, listener: str = "A") -> None:
        self.info = ConnectionInfo(listener, "", host, ClientLibrary(listener, None, None, False), 1)
        self.listener = listener
        self.verdict: Verdict | None = None

    def admit(self) -> None:
        self.verdict = Verdict.SERVED

    def refuse(self) -> None:
        self.verdict = Verdict.REFUSED

    def expire(self) -> None:
        raise AssertionError


ARRIVALS = st.tuples(st.sampled_from(["10.0.0.1", "10.0.0.2"]), st.sampled_from("AB"))


@given(
    st.integers(0, 4),
    st.integers(0, 3),
    st.integers(0, 3),
    st.lists(st.one_of(ARRIVALS, st.integers(0, 20)), max_size=40),
)
def test_random_connections_match_the_model(most: int, most_of_host: int, most_of_a: int, events: list[Any]) -> None:
    """Random arrivals and departures: no limit is ever exceeded, and the held connections of a listener keep their
    order.
    """
    config = Config(
        {
            "listeners": "A://:9092,B://:9093",
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            "max.connections": str(most),
            "max.connections.per.ip": str(most_of_host),
            "listener.name.a.max.connections": str(most_of_a),
        }
        | NO_CLIENT
    )
    admission = Admission(config, ManualClock())
    served: list[Coming] = []
    held: list[Coming] = []

    def next_one() -> Coming | None:
        """The longest held connection whose listener has room; of each listener only its first is looked at."""
        if len(served) == most:
            return None
        full = {"A"} if sum(one.listener == "A" for one in served) == most_of_a else set[str]()
        return next((one for one in held if one.listener not in full), None)

    def drain() -> None:
        while (one := next_one()) is not None:
            held.remove(one)
            if sum(other.info.client_host == one.info.client_host for other in served) < most_of_host:
                assert one.verdict is Verdict.SERVED
                served.append(one)
            else:
                assert one.verdict is Verdict.REFUSED
        assert all(one.verdict is Verdict.HELD for one in held)

    for event in events:
        if isinstance(event, tuple):
            one = Coming(*event)
            one.verdict = admission.arrive(one)
            held.append(one)
            drain()
        elif everybody := served + held:
            gone = everybody[event % len(everybody)]
            (served if gone in served else held).remove(gone)
            admission.leave(gone)
            drain()


async def test_replaced_state_stops_its_timers(tmp_path: Path) -> None:
    """Each reset of an embedded broker would leave a timer otherwise."""
    async with running(tmp_path, overrides={"connections.max.idle.ms": str(IDLE_MS)}) as broker:
        client = await broker.client()
        assert await results(client)
        broker.running.connections.attach(broker.state)  # its watch begins with the next connection
        broker.clock.advance(3 * IDLE_MS)
        assert await results(client)


def test_thousands_of_held_connections_may_close_in_any_order() -> None:
    admission = Admission(Config({"max.connections": "0"}), ManualClock())
    held = [Coming("10.0.0.1") for _ in range(30_000)]
    begun = time.process_time()
    assert {admission.arrive(one) for one in held} == {Verdict.HELD}
    for one in held[:10_000] + held[:10_000:-1] + held[10_000:10_001]:
        admission.leave(one)
    assert time.process_time() - begun < 3


@pytest.mark.parametrize("release", ["0.8.2", "2.2", "2.7", "4.3"])
async def test_old_releases_have_no_limits(tmp_path: Path, release: str) -> None:
    async with running(tmp_path, release=release) as broker:
        clients = [await broker.client() for _ in range(3)]
        reported = [await client.call(MetadataRequest(topics=[]), 0) for client in clients]
        assert [len(one.brokers) for one in reported] == [1, 1, 1]
