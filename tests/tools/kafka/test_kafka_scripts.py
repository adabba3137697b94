"""kafka-topics.sh and kafka-broker-api-versions.sh of the image: the output of Kafka's tools, with a broker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.broker.metadata.topics import Topic
from ottla.broker.releases.profiles import NEWEST, api_names, profile
from ottla.client.admin.admin import ConfigEntry, ConfigSource, PartitionDescription, TopicDescription
from ottla.protocol.schema import Versions
from ottla.storage.format.partition_metadata import encode_id
from ottla.tools.kafka import broker_api_versions, kafka_topics
from ottla.tools.kafka import topics as topics_command
from ottla.tools.kafka.admin_command import CannotDo
from ottla_testing.broker.harness import Broker, running

Tool = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def topics(capsys: pytest.CaptureFixture[str]) -> Tool:
    """Runs kafka-topics with a broker; returns (exit code, stdout, stderr)."""

    async def run(broker: Broker, *arguments: str) -> tuple[int, str, str]:
        given = ["--bootstrap-server", f"127.0.0.1:{broker.ports[0]}", *arguments]
        code = await asyncio.to_thread(kafka_topics.main, given)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def topic_of(broker: Broker, name: str) -> Topic:
    topic = broker.state.topics.get(name)
    assert topic
    return topic


async def test_topics_are_created_listed_described_extended_and_deleted(tmp_path: Path, topics: Tool) -> None:
    async with running(tmp_path, release="4.3") as broker:
        assert await topics(broker, "--list") == (0, "\n", "")
        made = await topics(
            broker,
            *("--create", "--topic", "orders", "--partitions", "2", "--replication-factor", "1"),
            *("--config", "retention.ms=1000", "--config", "cleanup.policy = compact"),
        )
        assert made == (0, "Created topic orders.\n", "")
        code, out, _ = await topics(broker, "--create", "--topic", "order.lines")
        assert (code, out.splitlines()[1]) == (0, "Created topic order.lines.")
        assert out.startswith("WARNING: Due to limitations in metric names")
        assert await topics(broker, "--list") == (0, "order.lines\norders\n", "")
        assert await topics(broker, "--list", "--topic", "ord..s") == (0, "orders\n", "")
        node, topic_id = broker.state.node_id, encode_id(topic_of(broker, "orders").id)
        code, out, _ = await topics(broker, "--describe", "--topic", "orders")
        head, *partitions = out.split("\n")
        configs = head.rpartition("Configs: ")[2].split(",")
        assert head.startswith(
            f"Topic: orders\tTopicId: {topic_id}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: "
        )
        assert {"retention.ms=1000", "cleanup.policy=compact"} <= set(configs)
        assert partitions == [
            f"\tTopic: orders\tPartition: {index}\tLeader: {node}\tReplicas: {node}\tIsr: {node}\tElr: \tLastKnownElr: "
            for index in range(2)
        ] + [""]
        by_id = await topics(broker, "--describe", "--topic-id", topic_id)
        assert by_id == (0, out, "")
        assert await topics(broker, "--alter", "--topic", "orders", "--partitions", "5") == (0, "", "")
        assert len(topic_of(broker, "orders").partitions) == 5
        assert await topics(broker, "--delete", "--topic", "order.*") == (0, "", "")
        assert await topics(broker, "--list") == (0, "\n", "")


async def test_internal_topics_are_listed_unless_excluded(tmp_path: Path, topics: Tool) -> None:
    async with running(tmp_path, release="4.3") as broker:
        await broker.topic("__consumer_offsets")
        await broker.topic("t")
        assert await topics(broker, "--list") == (0, "__consumer_offsets\nt\n", "")
        assert await topics(broker, "--list", "--exclude-internal") == (0, "t\n", "")
        code, out, _ = await topics(broker, "--describe", "--exclude-internal")
        assert (code, out.count("Topic: t\t"), "__consumer_offsets" in out) == (0, 2, False)


async def test_errors_have_kafkas_texts(tmp_path: Path, topics: Tool) -> None:
    failed = "Error while executing topic command : "
    async with running(tmp_path, release="4.3") as broker:
        await broker.topic("t")
        create = ("--create", "--topic", "t")
        assert await topics(broker, *create) == (1, f"{failed}Topic 't' already exists.\n", "")
        assert await topics(broker, *create, "--if-not-exists") == (0, "", "")
        missing = (1, f"{failed}Topic 'x' does not exist as expected\n", "")
        for action in (["--describe"], ["--delete"], ["--alter", "--partitions", "2"]):
            assert await topics(broker, *action, "--topic", "x") == missing
            assert (await topics(broker, *action, "--topic", "x", "--if-exists"))[:2] == (0, "")
        code, out, _ = await topics(broker, "--describe", "--topic-id", "A" * 22)
        assert (code, out) == (1, f"{failed}TopicId '{'A' * 22}' does not exist as expected\n")
        assert (await topics(broker, "--create", "--topic", "p", "--partitions", "0"))[:2] == (
            1,
            f"{failed}The partitions must be greater than 0\n",
        )
        assert (await topics(broker, "--create", "--topic", "p", "--replication-factor", "0"))[0] == 1
        assert (await topics(broker, "--create", "--topic", "p", "--config", "no"))[0] == 1
        code, out, _ = await topics(broker, "--create", "--topic", "p", "--config", "no.such=1")
        assert (code, out) == (1, f"{failed}Unknown topic config name: no.such\n")
        code, out, _ = await topics(broker, "--list", "--topic", "(")
        assert (code, out.startswith(f"{failed}( is an invalid regex")) == (1, True)
        assert await topics(broker, "--list") == (0, "t\n", "")


async def test_eligible_replicas_are_omitted_for_a_broker_without_them(tmp_path: Path, topics: Tool) -> None:
    async with running(tmp_path, release="2.8") as broker:
        await broker.topic("t")
        code, out, _ = await topics(broker, "--describe", "--topic", "t")
        assert (code, out.endswith("\tElr: N/A\tLastKnownElr: N/A\n")) == (0, True)


async def test_unreachable_broker_is_one_line(topics: Tool, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        port = broker.ports[0]
    code = await asyncio.to_thread(kafka_topics.main, ["--bootstrap-server", f"127.0.0.1:{port}", "--list"])
    assert (code, capsys.readouterr().out.startswith("Error while executing topic command : ")) == (1, True)
    code = await asyncio.to_thread(broker_api_versions.main, ["--bootstrap-server", f"127.0.0.1:{port}"])
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (1, "", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "exactly one action"),
        (["--list", "--describe"], "exactly one action"),
        (["--list"], "--bootstrap-server must be specified"),
        (["--create"], "--create, --alter and --delete need --topic"),
        (["--delete"], "--create, --alter and --delete need --topic"),
        (["--alter", "--topic", "t"], "--alter needs --partitions"),
        (["--describe", "--config", "a=b"], "--config needs --create"),
        (["--create", "--topic", "t", "--replica-assignment", "1", "--partitions", "1"], "cannot be combined"),
        (["--list", "--zookeeper", "z:2181"], "--zookeeper is not supported"),
        (["--alter", "--topic", "t", "--delete-config", "a"], "--delete-config is not supported"),
        (["--list", "--what"], "unknown flag --what"),
        (["--list", "--command-config", "/no/such/file"], "cannot read /no/such/file"),
    ],
)
def test_wrong_arguments_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    server = [] if arguments == ["--list"] else ["--bootstrap-server", "127.0.0.1:1"]
    assert kafka_topics.main([*server, *arguments]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


def test_file_of_a_client_that_cannot_be_used_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nssl.truststore.location=/no/such/store\nssl.truststore.type=PEM\n")
    given = ["--bootstrap-server", "127.0.0.1:1", "--command-config", str(file)]
    assert kafka_topics.main([*given, "--list"]) == 1
    assert broker_api_versions.main(given) == 1
    assert "".join(capsys.readouterr()).count("/no/such/store: No such file or directory\n") == 2
    file.write_text("security.protocol=TLS\n")
    assert kafka_topics.main([*given, "--list"]) == 1
    with pytest.raises(SystemExit):
        broker_api_versions.main(given)
    assert capsys.readouterr().err.count("security.protocol must be one of PLAINTEXT, SSL") == 2


# Layout


def entry(name: str, value: str, source: ConfigSource) -> ConfigEntry:
    return ConfigEntry(name, value, source, False, False)


def lines(*flags: str) -> list[str]:
    """A topic with a partition without a leader and one with a missing replica."""
    topic = TopicDescription(
        "t",
        bytes(16),
        False,
        (
            PartitionDescription(0, 1, 4, (1, 2), (1, 2), ()),
            PartitionDescription(1, -1, 5, (2, 1), (), (2, 1)),
            PartitionDescription(2, 2, 6, (2, 1), (2,), (1,)),
        ),
    )
    configs = {
        "a": entry("a", "1", ConfigSource.DEFAULT),
        "b": entry("b", "2", ConfigSource.DYNAMIC_TOPIC),
        "c": entry("c", "3", ConfigSource.STATIC_BROKER),
    }
    arguments = topics_command.topics_parser().parse_args(["--describe", *flags])
    found = topics_command.description(topic, configs, arguments, {}, False)
    assert found is not None
    return found[1]


def test_layout_of_several_nodes() -> None:
    tail = "\tElr: N/A\tLastKnownElr: N/A"
    head = "Topic: t\tPartitionCount: 3\tReplicationFactor: 2\tConfigs: b=2,c=3"
    partitions = [
        "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2" + tail,
        "\tTopic: t\tPartition: 1\tLeader: none\tReplicas: 2,1\tIsr: " + tail,
        "\tTopic: t\tPartition: 2\tLeader: 2\tReplicas: 2,1\tIsr: 2" + tail,
    ]
    assert lines() == [head, *partitions]
    assert lines("--topics-with-overrides") == [head]
    assert lines("--under-replicated-partitions") == partitions[1:]
    assert lines("--unavailable-partitions") == partitions[1:2]
    assert lines("--at-min-isr-partitions") == partitions[2:]
    assert lines("--under-min-isr-partitions") == partitions[1:2]
    arguments = topics_command.topics_parser().parse_args(["--describe", "--topics-with-overrides"])
    plain = TopicDescription("p", bytes(16), False, (PartitionDescription(0, 1, 0, (1,), (1,), ()),))
    assert topics_command.description(plain, {}, arguments, {}, True) is None


def test_replica_assignments_are_parsed() -> None:
    assert topics_command.assignment_of(None) == topics_command.assignment_of("") == {}
    assert topics_command.assignment_of("1:2,2:1, 3:1") == {0: [1, 2], 1: [2, 1], 2: [3, 1]}
    for text, message in (("1:1", "duplicate"), ("1,1:2", "different"), ("a", "not ID:ID"), ("1,", "not ID:ID")):
        with pytest.raises(CannotDo, match=message):
            topics_command.assignment_of(text)


async def test_api_versions_of_a_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with running(tmp_path, release="3.9") as broker:
        given = ["--bootstrap-server", f"127.0.0.1:{broker.ports[0]}"]
        assert await asyncio.to_thread(broker_api_versions.main, given) == 0
        out = capsys.readouterr().out
        head, *apis, end = out.splitlines()
        assert head == f"127.0.0.1:{broker.ports[0]} (id: {broker.state.node_id} rack: null isFenced: false) -> ("
        assert end == ")"
        assert apis[0] == "\tProduce(0): 0 to 11 [usable: 11],"
        numbers = [int(match[1]) for match in (re.match(r"\t\w+\((\d+)\): .*[^,],?$", line) for line in apis) if match]
        known = broker_api_versions.known_versions()
        assert numbers == sorted(known)
        result = {line.strip(" \t,") for line in apis}
        newer = profile(NEWEST).apis.keys() - profile("3.9").apis.keys()
        assert newer
        assert {f"{api_names()[key]}({key}): UNSUPPORTED" for key in newer} <= result


def test_layout_of_versions() -> None:
    def made(*pairs: tuple[int, int, int]) -> dict[int, Versions]:
        return {key: Versions(low, high) for key, low, high in pairs}

    result = made((0, 0, 13), (1, 4, 4), (2, 0, 1), (3, 9, 9), (999, 1, 2))
    own = made((0, 0, 12), (1, 0, 18), (2, 5, 6), (3, 0, 5), (4, 0, 1))
    names = {0: "Produce", 1: "Fetch", 2: "Old", 3: "New", 4: "None"}
    assert broker_api_versions.versions_text(result, names, own) == (
        "(\n\tProduce(0): 0 to 13 [usable: 12],\n\tFetch(1): 4 [usable: 4],\n\tOld(2): 0 to 1 [unusable: node too old],"
        "\n\tNew(3): 9 [unusable: node too new],\n\tNone(4): UNSUPPORTED,\n\tUNKNOWN(999): 1 to 2\n)"
    )
