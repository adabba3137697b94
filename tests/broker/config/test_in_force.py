"""Every dynamic broker config and every topic config applies at once and survives a restart.

A table has the observable effect of each; `test_tables_cover_all_dynamic_configs` compares it with the configs acted
on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from ottla.broker.config.definitions import facts
from ottla.broker.config.message_format import down_converts
from ottla.broker.config.values import ACTED_ON
from ottla.protocol.records.compression import Codec
from ottla_testing.broker.configuring import BROKER, DELETE, SET, TOPIC, change, shown
from ottla_testing.broker.harness import Broker, running

# Read on each use: the test observes the value that is read.
WHEN_NEEDED = {
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": "4000000",
    "log.cleaner.io.max.bytes.per.second": "1000000.0",
    "max.connection.creation.rate": "5",
    "max.connections": "50",
    "max.connections.per.ip": "6",
    "max.connections.per.ip.overrides": "10.0.0.1:7",
    "replica.alter.log.dirs.io.max.bytes.per.second": "7000",
    "leader.replication.throttled.rate": "7001",
    "follower.replication.throttled.rate": "7002",
    "transaction.partition.verification.enable": "false",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "errors.deadletterqueue.topic.name.prefix": "queue.",
}
# Kafka opens and closes listeners; Ottla refuses that.
REFUSED = {"listeners", "listener.security.protocol.map"}
# Listeners have these from the start on, in Kafka too.
REFUSED |= {"sasl.enabled.mechanisms", "sasl.jaas.config"}
REFUSED |= {"sasl.kerberos.principal.to.local.rules", "sasl.kerberos.service.name"}
# Of single listeners; security/test_tls.py covers their effects.
BY_LISTENER = {name for name in ACTED_ON if name.startswith("ssl.")}
# Cannot be set for all brokers; test_acted_on.py covers its effects and restart.
OF_ONE_BROKER = {"cordoned.log.dirs"}


class Effect(NamedTuple):
    """A value and its observable effect; `with_it` has other configs that it requires."""

    text: str
    seen: Callable[[Broker], Any]
    expected: Any
    with_it: Mapping[str, str] = MappingProxyType({})


def log(path: str) -> Callable[[Broker], Any]:
    """The effect on a setting of the log of t."""

    def seen(broker: Broker) -> Any:
        value = broker.log("t").config
        for name in path.split("."):
            value = getattr(value, name)
        return value

    return seen


def of_topic(name: str) -> Callable[[Broker], Any]:
    """The effect on a config of t that is read on use."""
    return lambda broker: broker.state.topics.named("t").config[name]


def converts(broker: Broker) -> bool:
    return down_converts(broker.state.topics.named("t").config)


COMPACT = {"cleanup.policy": "compact"}
OF_TOPIC = {
    "cleanup.policy": Effect("compact", log("deletes"), False),
    "compression.gzip.level": Effect("3", log("rules.compression_level"), 3, {"compression.type": "gzip"}),
    "compression.lz4.level": Effect("4", log("rules.compression_level"), 4, {"compression.type": "lz4"}),
    "compression.type": Effect("snappy", log("rules.compression"), Codec.SNAPPY),
    "compression.zstd.level": Effect("5", log("rules.compression_level"), 5, {"compression.type": "zstd"}),
    "delete.retention.ms": Effect("6", of_topic("delete.retention.ms"), 6),
    "errors.deadletterqueue.group.enable": Effect("true", of_topic("errors.deadletterqueue.group.enable"), True),
    "file.delete.delay.ms": Effect("7", of_topic("file.delete.delay.ms"), 7),
    "flush.messages": Effect("8", log("flush_messages"), 8),
    "flush.ms": Effect("9", log("flush_ms"), 9),
    "index.interval.bytes": Effect("10", log("index_interval_bytes"), 10),
    "internal.segment.bytes": Effect("2000", log("segment_bytes"), 2_000),
    "leader.replication.throttled.replicas": Effect("*", of_topic("leader.replication.throttled.replicas"), ["*"]),
    "follower.replication.throttled.replicas": Effect(
        "0:1", of_topic("follower.replication.throttled.replicas"), ["0:1"]
    ),
    "max.compaction.lag.ms": Effect("11", log("segment_ms"), 11, COMPACT),
    "max.decompressed.message.bytes": Effect("12", log("rules.max_record_bytes"), 12),
    "max.message.bytes": Effect("12", log("rules.max_message_bytes"), 12),
    "message.downconversion.enable": Effect("false", converts, False),
    "message.timestamp.after.max.ms": Effect("14", log("rules.timestamp_after_max_ms"), 14),
    "message.timestamp.before.max.ms": Effect("15", log("rules.timestamp_before_max_ms"), 15),
    "message.timestamp.difference.max.ms": Effect("16", log("rules.timestamp_before_max_ms"), 16),
    "message.timestamp.type": Effect("LogAppendTime", log("rules.log_append_time"), True),
    "min.cleanable.dirty.ratio": Effect("0.25", of_topic("min.cleanable.dirty.ratio"), 0.25),
    "min.compaction.lag.ms": Effect("17", of_topic("min.compaction.lag.ms"), 17),
    "min.insync.replicas": Effect("2", of_topic("min.insync.replicas"), 2),
    "retention.bytes": Effect("18", log("retention_bytes"), 18),
    "retention.ms": Effect("19", log("retention_ms"), 19),
    "segment.bytes": Effect("2000000", log("segment_bytes"), 2_000_000),
    "segment.index.bytes": Effect("800", log("segment_index_bytes"), 800),
    "segment.jitter.ms": Effect("20", log("segment_jitter_ms"), 20),
    "segment.ms": Effect("21", log("segment_ms"), 21),
    "unclean.leader.election.enable": Effect("true", of_topic("unclean.leader.election.enable"), True),
}
# With inter.broker.protocol.version 2.8 the message format version applies.
OLD_FORMATS = {"message.format.version": Effect("0.10.2", log("rules.target_magic"), 1)}


def of_broker(name: str) -> Effect:
    """The same effect through the broker's synonym of a topic config."""
    effect = OF_TOPIC[name]
    synonyms = facts("topic")
    return effect._replace(with_it={synonyms[key].synonyms[0]: text for key, text in effect.with_it.items()})


def value(name: str) -> Callable[[Broker], Any]:
    return lambda broker: str(broker.state.config.of(1)[name]).lower()


DYNAMIC = {synonyms[0]: of_broker(name) for name in OF_TOPIC if (synonyms := facts("topic")[name].synonyms)} | {
    "producer.id.expiration.ms": Effect("22", log("producer_rules.expiration_ms"), 22),
    "group.consumer.assignment.interval.ms": Effect(
        "23", lambda broker: broker.state.groups.settings.consumer.assignment_interval_ms, 23
    ),
    "group.share.assignment.interval.ms": Effect(
        "24", lambda broker: broker.state.groups.settings.share.assignment_interval_ms, 24
    ),
    "group.streams.assignment.interval.ms": Effect(
        "25", lambda broker: broker.state.groups.settings.streams.assignment_interval_ms, 25
    ),
    **{name: Effect(text, value(name), text) for name, text in WHEN_NEEDED.items()},
}


def test_tables_cover_all_dynamic_configs() -> None:
    of_topics, of_brokers = facts("topic"), facts("broker")
    assert {name for name in of_topics if name in ACTED_ON} == set(OF_TOPIC) | set(OLD_FORMATS)
    changeable = {name for name, fact in of_brokers.items() if name in ACTED_ON and not fact.read_only}
    changeable -= BY_LISTENER
    assert changeable == set(DYNAMIC) | REFUSED | OF_ONE_BROKER, "the tables must have exactly the configs acted on"


async def check(broker: Broker, kind: int, resource: str, name: str, effect: Effect) -> None:
    """Sets the config, checks the effect, removes it, and checks the previous state."""
    client = await broker.client()
    before = effect.seen(broker)
    assert before != effect.expected, name
    configs = {**effect.with_it, name: effect.text}
    assert await change(client, kind, resource, *((key, SET, text) for key, text in configs.items())) == (0, None)
    assert effect.seen(broker) == effect.expected, name
    assert await change(client, kind, resource, *((key, DELETE, None) for key in configs)) == (0, None)
    assert effect.seen(broker) == before, name
    client.close()


async def test_topic_configs_apply_at_once(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        for name, effect in OF_TOPIC.items():
            await check(broker, TOPIC, "t", name, effect)


async def test_message_format_of_a_topic_applies_at_once(tmp_path: Path) -> None:
    async with running(tmp_path / "data", overrides={"inter.broker.protocol.version": "2.8"}) as broker:
        await broker.topic("t")
        for name, effect in OLD_FORMATS.items():
            await check(broker, TOPIC, "t", name, effect)


@pytest.mark.parametrize("resource", ["1", ""], ids=["one", "all"])
async def test_broker_configs_apply_at_once(resource: str, tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        for name, effect in DYNAMIC.items():
            await check(broker, BROKER, resource, name, effect)


def all_at_once(effects: dict[str, Effect]) -> dict[str, str]:
    """As many as are compatible: each codec has its own level, compaction would hide the age of a segment, and the
    internal size of segments (test_acted_on.py) the other one.
    """
    return {name: one.text for name, one in effects.items() if not (one.with_it or name.startswith("internal."))}


@pytest.mark.parametrize("resource", ["1", ""], ids=["one", "all"])
async def test_broker_configs_survive_a_restart(resource: str, tmp_path: Path) -> None:
    wanted = all_at_once(DYNAMIC)
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        assert await change(client, BROKER, resource, *((key, SET, text) for key, text in wanted.items())) == (0, None)
    source = 2 if resource else 3
    async with running(tmp_path / "data") as broker:
        for name in wanted:
            if "timestamp" not in name:  # one of these hides another
                assert DYNAMIC[name].seen(broker) == DYNAMIC[name].expected, name
        kept = await shown(await broker.client(), BROKER, resource, *wanted)
        assert {name: place for name, (_, place) in kept.items()} == dict.fromkeys(wanted, source)


async def test_topic_configs_survive_a_restart(tmp_path: Path) -> None:
    wanted = all_at_once(OF_TOPIC)
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        assert await change(client, TOPIC, "t", *((key, SET, text) for key, text in wanted.items())) == (0, None)
    async with running(tmp_path / "data") as broker:
        for name in wanted:
            if "timestamp" not in name:
                assert OF_TOPIC[name].seen(broker) == OF_TOPIC[name].expected, name
        kept = await shown(await broker.client(), TOPIC, "t", *wanted)
        assert kept == {name: (text, 1) for name, text in wanted.items()}


async def test_listeners_cannot_change(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        client = await broker.client()
        for name, text in (("listeners", "PLAINTEXT://:1"), ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT")):
            refused = (42, f"{name} cannot be changed while the broker runs")
            assert await change(client, BROKER, "1", (name, SET, text)) == refused
            same = broker.state.config.describe(name).value
            assert await change(client, BROKER, "1", (name, SET, same), dry=True) == (0, None)
