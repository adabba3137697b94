"""Several nodes in one broker: ports, and listeners that refuse and accept again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.broker.config.serve_options import StartupError, serve_options
from ottla.broker.config.values import Config
from ottla.broker.errors import ConfigError
from ottla_testing.broker.harness import Closed, ping, running


def made(brokers: int, **configs: str):  # type: ignore[no-untyped-def]
    overrides = {"log.dirs": "/d", **{key.replace("_", "."): value for key, value in configs.items()}}
    return serve_options(Config.load(overrides=overrides), brokers=brokers)


def test_nodes_have_consecutive_ports_of_each_listener():
    options = made(3, listeners="PLAINTEXT://h:9092,PLAINTEXT_2://h:9192", listener_security_protocol_map=MAP)
    assert [(number, str(listener)) for number, listener in options.nodes()] == [
        (number, f"{name}://h:{port + number - 1}")
        for number in (1, 2, 3)
        for name, port in (("PLAINTEXT", 9092), ("PLAINTEXT_2", 9192))
    ]
    options = made(2, listeners="PLAINTEXT://h:0")
    assert [listener.port for _, listener in options.nodes()] == [0, 0]


MAP = "PLAINTEXT:PLAINTEXT,PLAINTEXT_2:PLAINTEXT"


def test_nodes_are_advertised_at_consecutive_ports():
    options = made(3, listeners="PLAINTEXT://:9092", advertised_listeners="PLAINTEXT://outside:29092")
    found = [options.advertised_address("PLAINTEXT", 9091 + number, "here", number) for number in (1, 2, 3)]
    assert found == [("outside", 29092), ("outside", 29093), ("outside", 29094)]
    options = made(3, listeners="PLAINTEXT://:9092")
    assert options.advertised_address("PLAINTEXT", 9094, "here", 3) == ("here", 9094)


@pytest.mark.parametrize(
    ("brokers", "configs", "problem"),
    [
        (0, {}, "expected 1 to 100"),
        (101, {}, "expected 1 to 100"),
        (3, {"listeners": "PLAINTEXT://h:65534"}, "not enough ports from 65534 on"),
        (3, {"advertised_listeners": "PLAINTEXT://h:65534"}, "not enough ports from 65534 on"),
        (
            2,
            {"listeners": "PLAINTEXT://h:9092,PLAINTEXT_2://h:9093", "listener_security_protocol_map": MAP},
            "two listeners need the same port",
        ),
    ],
)
def test_invalid_nodes_are_refused_without_side_effects(brokers, configs, problem):
    with pytest.raises(ConfigError, match=problem):
        made(brokers, **configs)


async def test_every_node_serves_its_own_port(tmp_path: Path):
    async with running(tmp_path, brokers=3) as broker:
        assert len(set(broker.ports)) == 3
        assert broker.running.ports == {(n + 1, "PLAINTEXT"): port for n, port in enumerate(broker.ports)}
        for node in range(3):
            await (await broker.client(node)).call(ping(), 0)
        assert sorted(connection.node_id for connection in broker.running.connections.open) == [1, 2, 3]


async def test_a_directory_of_another_node_is_refused(tmp_path: Path):
    async with running(tmp_path, overrides={"node.id": "7"}):
        pass
    with pytest.raises(StartupError, match="belongs to node 7, and the nodes are 1,2,3: name it in --node-ids"):
        async with running(tmp_path, brokers=3):
            pass
    async with running(tmp_path) as broker:
        assert broker.running.ports == {(7, "PLAINTEXT"): broker.ports[0]}


async def test_a_listener_that_refuses_keeps_its_port_and_its_connections(tmp_path: Path):
    async with running(tmp_path, brokers=2) as broker:
        client = await broker.client(0)
        for _ in range(3):  # repeatable
            broker.running.refuse([(1, None)])
            with pytest.raises(ConnectionRefusedError):
                await broker.client(0)
            await client.call(ping(), 0)
            await (await broker.client(1)).call(ping(), 0)
            broker.running.refuse([(1, None)])
            broker.running.refuse([])
            await (await broker.client(0)).call(ping(), 0)
        broker.running.refuse([])
        assert [sock.getsockname()[1] for sock in broker.running.sockets] == broker.ports
        broker.running.connections.cut(1)
        with pytest.raises(Closed):
            await client.call(ping(), 0)


async def test_pending_connections_are_reset(tmp_path: Path):
    async with running(tmp_path) as broker:
        _, writer = await asyncio.open_connection("127.0.0.1", broker.ports[0])
        broker.running.refuse([(None, "OTHER")])
        broker.running.refuse([(None, "PLAINTEXT")])
        broker.running.connections.cut(listener="PLAINTEXT")
        with pytest.raises(ConnectionError):
            await broker.client()
        broker.running.refuse([])
        await (await broker.client()).call(ping(), 0)
        writer.close()


async def test_stopped_node_refuses_connections_until_it_starts(tmp_path: Path):
    async with running(tmp_path, brokers=2) as broker:
        client = await broker.client(1)
        await client.call(ping(), 0)
        broker.running.show_node(2, False)
        assert await client.is_closed()
        broker.running.refuse([(None, None)])
        broker.running.refuse([])
        with pytest.raises(ConnectionRefusedError):
            await broker.client(1)
        broker.running.refuse([(None, None)])
        broker.running.show_node(2, True)
        with pytest.raises(ConnectionRefusedError):
            await broker.client(1)
        broker.running.refuse([])
        await (await broker.client(1)).call(ping(), 0)
