"""Configs of single nodes, `node.<id>.<config>`: their sources, what may differ, and what each node does with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.broker import Embedded
from ottla.broker.config.node_configs import MAY_DIFFER
from ottla.broker.config.serve_options import serve_options
from ottla.broker.config.values import ACTED_ON, Config, ConfigSource
from ottla.broker.errors import ConfigError
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.records.fetch import FetchRequest
from ottla.protocol.messages.topics.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.configuring import BROKER, SET, change, describe, shown
from ottla_testing.broker.harness import Closed, fetch, only, ping, produce, records, running

STATIC = int(ConfigSource.STATIC_BROKER)
REQUIRED = {"listeners": "PLAINTEXT://h:9092", "log.dirs": "/d"}


def test_node_configs_come_from_every_source_in_the_order_of_precedence(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.1.broker.rack=file\nnode.2.broker.rack=file\nnode.3.broker.rack=file\nbroker.rack=all\n")
    environ = {"KAFKA_NODE_2_BROKER_RACK": "variable", "KAFKA_NODE_3_BROKER_RACK": "variable"}
    config = Config.load({"node.3.broker.rack": "override", "broker.rack": "other"}, {}, environ, file)
    found = [config.of(node)["broker.rack"] for node in (1, 2, 3, 4)]
    assert found == ["file", "variable", "override", "other"]
    assert config["broker.rack"] == "other" and not config.warnings


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("node.1.log.dirs", "node.1.log.dirs: log.dirs cannot differ between nodes"),
        ("node.1.num.partitions", "num.partitions cannot differ between nodes"),
        ("node.1.log.retention.hours", "log.retention.hours cannot differ between nodes"),
        ("node.1.node.id", "node.id cannot differ between nodes"),
        ("node.1.listeners", "listeners cannot differ between nodes"),
        ("node.1.ottla.behaviour.old_formats", "cannot differ between nodes"),
        ("node.1.broker.rak", "unknown config broker.rak for node 1"),
        ("node.1.retention.ms", "for node 1 in the configuration is a topic config"),
        ("node.one.broker.rack", "unknown config node.one.broker.rack"),
        ("node.01.broker.rack", "unknown config node.01.broker.rack"),
        ("node.1.max.connections", "Invalid value 1 0 for configuration node.1.max.connections"),
        ("node.1.replica.selector.class", "Class 1 0 could not be found; expected org.apache.kafka.common.replica"),
        ("replica.selector.class", "Class 1 0 could not be found; expected org.apache.kafka.common.replica"),
    ],
)
def test_wrong_node_configs_are_refused_in_one_line(name: str, problem: str) -> None:
    text = {"node.1.num.partitions": "1", "node.1.log.retention.hours": "1", "node.1.node.id": "1"}.get(name, "1 0")
    text = "false" if "behaviour" in name else text
    for made in (lambda: Config({name: text}), lambda: Config.load({name: text})):
        with pytest.raises(ConfigError) as refused:
            made()
        shown = str(refused.value).replace("in --override", "in the configuration")
        assert problem in shown and "\n" not in shown


def test_an_unknown_node_config_in_a_file_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.1.broker.rak=r\n")
    (warning,) = Config.load(file=file, environ={}).warnings
    assert "broker.rak for node 1" in warning and "did you mean broker.rack" in warning


def test_a_config_of_a_node_that_does_not_exist_is_refused() -> None:
    config = Config({**REQUIRED, "node.0.broker.rack": "r"})
    with pytest.raises(ConfigError, match=r"node.0.broker.rack: there is no node 0, the nodes are 1,2"):
        serve_options(config, brokers=2)
    assert serve_options(config, node_ids=(0, 1)).node_ids == (0, 1)
    with pytest.raises(ConfigError, match="there is no node 0, the nodes are 1"):
        serve_options(config)


async def test_a_lone_node_has_its_config_or_does_not_start(tmp_path: Path) -> None:
    rack = {"node.1.broker.rack": "r"}
    async with running(tmp_path / "new", overrides=rack) as broker:
        assert await shown(await broker.client(), BROKER, "1", "broker.rack") == {"broker.rack": ("r", STATIC)}
    async with running(tmp_path / "seven", overrides={"node.id": "7"}):
        pass
    with pytest.raises(Exception, match="belongs to node 7, and the nodes are 1"):
        async with running(tmp_path / "seven", overrides=rack):
            pass


def test_configs_that_may_differ_have_an_effect() -> None:
    assert MAY_DIFFER <= ACTED_ON


async def test_each_node_describes_its_configs(tmp_path: Path) -> None:
    overrides = {"num.io.threads": "4", "node.2.num.io.threads": "5", "node.2.broker.rack": "r2", "broker.rack": "r"}
    async with running(tmp_path, brokers=3, overrides=overrides) as broker:
        found: dict[int, Any] = {}
        for node in (1, 2, 3):
            client = await broker.client(node - 1)
            entries = {one.name: one for one in (await describe(client, BROKER, str(node))).configs}
            found[node] = [
                (entries[name].value, entries[name].config_source) for name in ("num.io.threads", "broker.rack")
            ]
            assert not [name for name in entries if name.startswith("node.2")]
        other = [("4", STATIC), ("r", STATIC)]
        assert found == {1: other, 2: [("5", STATIC), ("r2", STATIC)], 3: other}


async def test_a_dynamic_value_is_that_of_all_nodes(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=2, overrides={"node.2.max.connections": "9"}) as broker:
        config = broker.state.config
        assert (config["max.connections"], config.of(2)["max.connections"]) == ((1 << 31) - 1, 9)
        assert (await change(await broker.client(), BROKER, "", ("max.connections", SET, "50")))[0] == 0
        assert (config["max.connections"], config.of(2)["max.connections"]) == (50, 50)
    async with running(tmp_path, brokers=2, overrides={"node.2.max.connections": "9"}) as broker:
        assert broker.state.config.of(2)["max.connections"] == 50


async def test_each_node_acts_on_its_configs(tmp_path: Path) -> None:
    overrides = {
        "node.2.auto.create.topics.enable": "false",
        "node.2.fetch.max.bytes": "1024",
        "node.2.max.request.partition.size.limit": "1",
        "node.2.socket.request.max.bytes": "1000",
        "node.2.max.connections.per.ip": "2",
    }
    async with running(tmp_path, brokers=2, overrides=overrides) as broker:
        first, second = await broker.client(0), await broker.client(1)
        requested = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")])
        (refused,) = (await second.call(requested, 9)).topics
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (created,) = (await first.call(requested, 9)).topics
        assert created.error_code == 0

        await broker.topic("two", 2)
        limited = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=100)
        listed = [(await client.call(limited, 0)).topics for client in (first, second)]
        assert [sum(len(one.partitions) for one in topics) for topics in listed] == [3, 1]

        broker.state.topology.move_leader("t", 0, 1)
        for _ in range(2):
            assert only(await first.call(produce(records(b"x" * 800)), 9)).error_code == 0
        wanted: FetchRequest = fetch(("t", 0, 0))
        assert [len(only(await client.call(wanted, 12)).records) > 1200 for client in (first, second)] == [True, False]

        assert only(await (await broker.client(0)).call(produce(records(b"x" * 2000)), 9)).error_code == 0
        with pytest.raises(Closed):
            await second.call(produce(records(b"x" * 2000)), 9)
        again = [await broker.client(1) for _ in range(3)]
        assert (await again[0].call(ping(), 0)).error_code == 0
        with pytest.raises(Closed):
            await again[2].call(ping(), 0)


def test_fixtures_take_node_configs() -> None:
    with Embedded(brokers=2, configs={"node.1.broker.rack": "a", "node.2.broker.rack": "b"}) as broker:
        assert len(broker.bootstrap.split(",")) == 2
    with pytest.raises(ValueError, match="there is no node 3"):
        Embedded(brokers=2, configs={"node.3.broker.rack": "a"})
