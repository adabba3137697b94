"""Which connections are served: how many, how many from one address, how fast they come, how long they may be idle."""

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
from ottla.broker.errors import ConfigError
from ottla.broker.network.admission import Admission, Verdict
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.harness import Broker, Client, fetch, ping, produce, records, running
from ottla_testing.patience import patiently

IDLE_MS = 60_000
NOBODY = {"max.connections.per.ip.overrides": "10.0.0.9:0"}


async def answers(client: Client) -> bool:
    """Sends a request, and returns when it is answered."""
    await client.send(ping(), 0)
    async with patiently():
        await client.receive()
    return True


async def is_silent(client: Client, *, send: bool = True) -> bool:
    """Whether nothing comes for a moment; a request that was sent stays sent."""
    if send:
        await client.send(ping(), 0)
    try:
        async with asyncio.timeout(0.1):
            await client.receive()
    except TimeoutError:
        return True
    return False


async def test_one_connection_too_many_waits_until_another_goes(tmp_path: Path) -> None:
    async with running(tmp_path, overrides={"max.connections": "2"}) as broker:
        first, second, third, fourth = [await broker.client() for _ in range(4)]
        assert await answers(first) and await answers(second)
        assert await is_silent(third) and await is_silent(fourth)
        first.close()
        await third.receive()
        assert await is_silent(fourth, send=False)
        third.close()
        await fourth.receive()


async def test_more_connections_are_served_when_the_config_is_raised(tmp_path: Path) -> None:
    async with running(tmp_path, overrides={"max.connections": "1"}) as broker:
        first, second = await broker.client(), await broker.client()
        assert await answers(first) and await is_silent(second)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        change = resource.AlterableConfig(name="max.connections", config_operation=0, value="2")
        changed = resource(resource_type=4, resource_name="", configs=[change])
        asked = IncrementalAlterConfigsRequest(resources=[changed], validate_only=False)
        assert [one.error_code for one in (await first.call(asked, 0)).responses] == [0]
        await second.receive()


async def test_a_listener_may_have_a_limit_of_its_own(tmp_path: Path) -> None:
    overrides = {
        "listeners": "A://127.0.0.1:0,B://127.0.0.1:0",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "listener.name.b.max.connections": "1",
    }
    async with running(tmp_path, overrides=overrides) as broker:
        clients = [await broker.client(0), await broker.client(0), await broker.client(1)]
        assert [await answers(client) for client in clients] == [True, True, True]
        assert await is_silent(await broker.client(1))


async def test_an_address_may_have_so_many(tmp_path: Path) -> None:
    overrides = {"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "127.0.0.2:2,localhost:3"}
    async with running(tmp_path, overrides=overrides) as broker:
        clients = [await broker.client() for _ in range(3)]
        assert [await answers(client) for client in clients] == [True] * 3
        assert await (await broker.client()).is_closed()
        clients[0].close()
        await broker_has(broker, 2)
        assert await answers(await broker.client())


async def broker_has(broker: Broker, count: int) -> None:
    while len(broker.running.connections.open) > count:
        await asyncio.sleep(0)


async def test_connections_that_come_too_fast_wait_for_their_turn(tmp_path: Path) -> None:
    """Ten may come at once in windows of ten seconds; each one more is due a second later at the most."""
    async with running(tmp_path, overrides={"max.connection.creation.rate": "1"}) as broker:
        clients = [await broker.client() for _ in range(12)]
        assert [await answers(client) for client in clients[:10]] == [True] * 10
        assert await is_silent(clients[10]) and await is_silent(clients[11])
        broker.clock.advance(1000)
        await clients[10].receive()
        broker.clock.advance(1000)
        await clients[11].receive()


async def test_idle_connections_are_closed(tmp_path: Path) -> None:
    async with running(tmp_path, overrides={"connections.max.idle.ms": str(IDLE_MS)}) as broker:
        await broker.topic("t")
        idle, busy, waiting = [await broker.client() for _ in range(3)]
        assert await answers(idle) and await answers(busy)
        await waiting.send(fetch(("t", 0, 0), max_wait_ms=10 * IDLE_MS, min_bytes=1), 4)
        await broker.settle()
        broker.clock.advance(IDLE_MS - 1)
        assert await answers(busy) and await answers(idle)
        broker.clock.advance(IDLE_MS - 1)
        assert await answers(busy)
        broker.clock.advance(IDLE_MS // 10)
        assert await idle.is_closed()
        assert await answers(busy)
        await busy.call(produce(records(b"v")), 3)
        await waiting.receive()  # who waits for an answer is not idle
        broker.clock.advance(2 * IDLE_MS)
        assert await busy.is_closed() and await waiting.is_closed()


@pytest.mark.parametrize("text", ["a", "a:", ":", "a:b", "a:1,b", "a:1,,b:1", "a:9999999999"])
def test_limits_of_hosts_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ConfigError):
        host_limits(text)
    with pytest.raises(ConfigError):  # and so not taken either
        check_dynamic(Config(), ConfigSource.DYNAMIC_BROKER, {"max.connections.per.ip.overrides": text})
    with pytest.raises(ConfigError):
        Config({"max.connections.per.ip.overrides": text})


PIECES = ["127.0.0.1", "::1", "#", " ", ",", ":", "+5", "-5", "7", "٣", "x" * 70, "0" * 11]


@given(st.lists(st.sampled_from(PIECES)))
def test_whatever_limits_of_hosts_are_taken_can_be_read(parts: list[str]) -> None:
    """One that cannot would be met by each connection from there on, and by the next start."""
    text = "".join(parts)
    try:
        check_dynamic(Config(), ConfigSource.DYNAMIC_BROKER, {"max.connections.per.ip.overrides": text})
    except ConfigError:
        return
    config = Config({"max.connections.per.ip.overrides": text})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(socket, "gethostbyname", lambda name: name.encode("idna").decode())  # asks nobody
        assert Admission(config, ManualClock()).arrive(Coming("10.0.0.1")) is Verdict.SERVED


class Coming:
    """A connection of the model."""

    listener = "PLAINTEXT"
    last_active_ms = 0
    is_waited_for = False

    def __init__(self, host: str) -> None:
        self.client_host = host
        self.verdict: Verdict | None = None

    def admit(self) -> None:
        self.verdict = Verdict.SERVED

    def refuse(self) -> None:
        self.verdict = Verdict.REFUSED

    def expire(self) -> None:
        raise AssertionError


@given(
    st.integers(0, 4),
    st.integers(0, 3),
    st.lists(st.one_of(st.sampled_from(["10.0.0.1", "10.0.0.2"]), st.integers(0, 20)), max_size=40),
)
def test_counts_and_order_are_those_of_a_list(most: int, most_of_host: int, events: list[Any]) -> None:
    """Arrivals by host, departures by place: never more than the limits are served, and nobody passes another."""
    config = Config({"max.connections": str(most), "max.connections.per.ip": str(most_of_host)} | NOBODY)
    admission = Admission(config, ManualClock())
    served: list[Coming] = []
    held: list[Coming] = []

    def drain() -> None:
        while held and len(served) < most:
            one = held.pop(0)
            if sum(other.client_host == one.client_host for other in served) < most_of_host:
                assert one.verdict is Verdict.SERVED
                served.append(one)
            else:
                assert one.verdict is Verdict.REFUSED

    for event in events:
        if isinstance(event, str):
            one = Coming(event)
            one.verdict = admission.arrive(one)
            held.append(one)
            drain()
            assert not held or held[-1] is not one or one.verdict is Verdict.HELD
        elif everybody := served + held:
            gone = everybody[event % len(everybody)]
            (served if gone in served else held).remove(gone)
            admission.leave(gone)
            drain()


async def test_of_a_state_that_is_not_served_any_more_nobody_looks(tmp_path: Path) -> None:
    """Each reset of an embedded broker would leave a timer behind."""
    async with running(tmp_path, overrides={"connections.max.idle.ms": str(IDLE_MS)}) as broker:
        client = await broker.client()
        assert await answers(client)
        broker.running.connections.attach(broker.state)  # whose watch begins with the next connection
        broker.clock.advance(3 * IDLE_MS)
        assert await answers(client)


def test_thousands_that_are_held_may_leave_in_any_order() -> None:
    admission = Admission(Config({"max.connections": "0"}), ManualClock())
    held = [Coming("10.0.0.1") for _ in range(30_000)]
    begun = time.process_time()
    assert {admission.arrive(one) for one in held} == {Verdict.HELD}
    for one in held[:10_000] + held[:10_000:-1] + held[10_000:10_001]:
        admission.leave(one)
    assert time.process_time() - begun < 3


@pytest.mark.parametrize("release", ["0.8.2", "2.2", "2.7", "4.3"])
async def test_releases_without_the_limits_have_none(tmp_path: Path, release: str) -> None:
    async with running(tmp_path, release=release) as broker:
        clients = [await broker.client() for _ in range(3)]
        told = [await client.call(MetadataRequest(topics=[]), 0) for client in clients]
        assert [len(one.brokers) for one in told] == [1, 1, 1]
