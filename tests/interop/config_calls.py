"""Calls about configs, sent to a broker one after another: valid ones, invalid ones, and descriptions of the result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.protocol.messages.configs.describe_configs import DescribeConfigsRequest
from ottla.protocol.messages.configs.list_config_resources import ListConfigResourcesRequest
from ottla_testing.broker.configuring import (
    APPEND,
    BROKER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    LOGGER,
    SET,
    SUBTRACT,
    TOPIC,
    changing,
    replacing,
)


class Call(NamedTuple):
    """One call: what it is called in a report, the request and its version."""

    label: str
    request: Any
    version: int


def described(kind: int, name: str, *keys: str) -> Call:
    requested = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[requested], include_synonyms=True, include_documentation=True)
    return Call(f"describe {kind} {name!r} {' '.join(keys)}", request, 4)


def changed(kind: int, name: str, *changes: tuple[str, int, str | None], dry: bool = False) -> Call:
    label = f"change {kind} {name!r} {list(changes)}{' dry' if dry else ''}"
    return Call(label, changing((kind, name, list(changes)), dry=dry), 1)


def replaced(kind: int, name: str, dry: bool = False, **configs: str | None) -> Call:
    made = {key.replace("_", "."): value for key, value in configs.items()}
    return Call(f"replace {kind} {name!r} {made}{' dry' if dry else ''}", replacing(kind, name, made, dry=dry), 2)


def listed(*kinds: int) -> Call:
    return Call(f"list {kinds}", ListConfigResourcesRequest(resource_types=list(kinds)), 1)


# Config -> values to set it to; it is looked at, and removed again.
OF_TOPIC: dict[str, list[str | None]] = {
    "retention.ms": ["x", "-2", "", " 7 ", None],
    "nope": ["1"],
    "": ["1"],
    "cleanup.policy": ["x", "", "delete,delete", "delete, compact"],
    "compression.type": ["brotli", "zstd"],
    "compression.gzip.level": ["0", "10"],
    "compression.zstd.level": ["23"],
    "compression.lz4.level": ["18"],
    "min.cleanable.dirty.ratio": ["2", "x", "0.50", "1e-5"],
    "preallocate": ["maybe", "TRUE"],
    "message.timestamp.type": ["x"],
    "segment.bytes": ["1", "14", "99999999999"],
    "segment.ms": ["0"],
    "max.message.bytes": ["-1", "+5"],
    "leader.replication.throttled.replicas": ["x", "*", "0:1,1:1"],
    "min.insync.replicas": ["0"],
    "remote.storage.enable": ["true"],
    "local.retention.ms": ["-3"],
    "message.downconversion.enable": ["false"],
    "log.retention.ms": ["1"],
    "unclean.leader.election.enable": ["x"],
    "index.interval.bytes": ["-1"],
    "message.timestamp.difference.max.ms": ["5"],
}
OF_BROKER: dict[str, list[str | None]] = {
    "log.retention.ms": ["0", "-2", "x", "5", None],
    "log.segment.bytes": ["1", "2000000"],
    "log.roll.ms": ["0", "5"],
    "node.id": ["2"],
    "broker.id": ["2"],
    "log.dirs": ["/x"],
    "log.retention.hours": ["3"],
    "my.custom": ["secret"],
    "": ["1"],
    "num.io.threads": ["0", "x", "100", "2", "9"],
    "num.network.threads": ["4"],
    "background.threads": ["11"],
    "log.cleaner.threads": ["50", "2"],
    "log.cleaner.dedupe.buffer.size": ["1"],
    "log.cleaner.io.buffer.size": ["-1"],
    "log.cleaner.io.buffer.load.factor": ["x", "0.50"],
    "log.cleaner.backoff.ms": ["-1"],
    "log.cleaner.io.max.bytes.per.second": ["x", "12345678"],
    "max.connections": ["10", "-1"],
    "max.connections.per.ip": ["5"],
    "max.connections.per.ip.overrides": ["a", "h:x"],
    "max.connection.creation.rate": ["5", "-1"],
    "listener.name.plaintext.max.connections": ["4"],
    "ssl.keystore.location": ["/x"],
    "ssl.key.password": ["pw"],
    "metric.reporters": [""],
    "message.max.bytes": ["-1", "1000"],
    "compression.type": ["x", "gzip"],
    "unclean.leader.election.enable": ["x", "true"],
    "log.cleanup.policy": ["", "x", "compact"],
    "log.message.timestamp.type": ["x"],
    "min.insync.replicas": ["0", "2"],
    "auto.create.topics.enable": ["false"],
    "leader.replication.throttled.rate": ["5", "-1", "x"],
    "log.flush.interval.messages": ["0"],
    "retention.ms": ["4"],
    "log.preallocate": ["x"],
    "log.index.size.max.bytes": ["1"],
    "quota.window.num": ["5"],
    "log.cleaner.max.compaction.lag.ms": ["0"],
}
OF_GROUP: dict[str, list[str | None]] = {
    "consumer.session.timeout.ms": ["46000", "1", "0", "70000", "x"],
    "consumer.heartbeat.interval.ms": ["1", "50000", "6000"],
    "share.auto.offset.reset": ["earliest", "x", "by_duration:PT1H", "by_duration:x", "by_duration:-PT1H"],
    "share.isolation.level": ["x", "read_committed", "READ_COMMITTED"],
    "share.record.lock.duration.ms": ["1000", "999", "99999999"],
    "share.heartbeat.interval.ms": ["1", "20000"],
    "share.session.timeout.ms": ["1000", "100000"],
    "streams.session.timeout.ms": ["1", "100000"],
    "streams.num.standby.replicas": ["-1", "9", "1"],
    "share.delivery.count.limit": ["1", "11"],
    "share.partition.max.record.locks": ["1", "100000"],
    "consumer.assignment.interval.ms": ["-1", "99999"],
    "nope": ["1"],
}
OF_CLIENT_METRICS: dict[str, list[str | None]] = {
    "interval.ms": ["100", "99", "3600001", "x"],
    "metrics": ["a,b", "", "*"],
    "match": ["client_id=a.*", "client_id=[a", "nope=a", "client_id", "client_id=a=b", "client_id = b"],
    "nope": ["1"],
}


def each(kind: int, name: str, values: dict[str, list[str | None]]) -> Iterator[Call]:
    """Yields calls that set, describe and delete each value."""
    for key, texts in values.items():
        for text in texts:
            yield changed(kind, name, (key, SET, text))
            yield described(kind, name, key)
            yield changed(kind, name, (key, DELETE, None))


def edits(kind: int, name: str, policy: str, number: str) -> Iterator[Call]:
    """Yields calls that append to a list and subtract from it, and invalid ones."""
    for operation, text in (
        (APPEND, "compact"),
        (APPEND, "x"),
        (SUBTRACT, "x"),
        (SUBTRACT, "delete"),
        (SUBTRACT, "compact"),
        (APPEND, None),
        (DELETE, "y"),
    ):
        yield changed(kind, name, (policy, operation, text))
        yield described(kind, name, policy)
    for operation in (APPEND, SUBTRACT):
        yield changed(kind, name, (number, operation, "1"))
    yield changed(kind, name, (number, SET, "1"), (number, SET, "2"))
    yield changed(kind, name, (number, SET, None), (policy, SET, None))
    yield changed(kind, name, (number, SET, "9"), dry=True)
    yield described(kind, name, number)


def of_topics() -> Iterator[Call]:
    for name in ("t", "nope"):
        yield changed(TOPIC, name, ("retention.ms", SET, "5"))
        yield changed(TOPIC, name)
        yield replaced(TOPIC, name, retention_ms="6", segment_ms="7")
        yield described(TOPIC, name, "retention.ms", "segment.ms", "segment.bytes", "nope")
        yield replaced(TOPIC, name, segment_ms="8")
        yield described(TOPIC, name, "retention.ms", "segment.ms")
        yield replaced(TOPIC, name, segment_ms="x")
        yield replaced(TOPIC, name, dry=True)
        yield replaced(TOPIC, name)
    for name in ("", "a b", ".", "__cluster_metadata"):
        yield described(TOPIC, name)
    yield from each(TOPIC, "t", OF_TOPIC)
    yield from edits(TOPIC, "t", "cleanup.policy", "retention.ms")
    yield changed(TOPIC, "t", ("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5"))


def of_brokers() -> Iterator[Call]:
    for name in ("2", "x", "-1", "01", "+1", " 1", "99999999999"):
        yield described(BROKER, name, "broker.id")
        yield changed(BROKER, name)
        yield replaced(BROKER, name)
    for name in ("1", ""):
        yield from each(BROKER, name, OF_BROKER)
        yield from edits(BROKER, name, "log.cleanup.policy", "log.retention.ms")
        yield changed(BROKER, name, ("log.retention.ms", SET, "77"), ("log.segment.bytes", SET, "2000000"))
        for looked_at in ("1", ""):
            yield described(BROKER, looked_at, "log.retention.ms", "log.retention.hours", "log.segment.bytes")
        yield described(TOPIC, "t", "retention.ms", "segment.bytes", "segment.ms")
        yield replaced(BROKER, name, node_id="88")
        yield replaced(BROKER, name, my_custom="88")
        yield described(BROKER, name, "log.retention.ms", "my.custom")
        yield changed(BROKER, name, ("my.custom", DELETE, None))
    for kind in (0, 1, 3, 64, -1):
        yield changed(kind, "x", ("a", SET, "b"))
        yield replaced(kind, "x", a="b")
        yield described(kind, "x")


def of_others() -> Iterator[Call]:
    for name in ("", "1", "2", "x"):
        yield described(LOGGER, name, "root")
        for change in (("ROOT", SET, "INFO"), ("root", SET, "LOUD"), ("root", DELETE, None), ("root", APPEND, "INFO")):
            yield changed(LOGGER, name, change)
    for kind, values in ((CLIENT_METRICS, OF_CLIENT_METRICS), (GROUP, OF_GROUP)):
        for name in ("", "g"):
            yield described(kind, name)
            yield from each(kind, name, values)
            for key in values:
                yield changed(kind, name, (key, APPEND, "1"))
            yield described(kind, name)
        yield replaced(kind, "g")


def of_lists() -> Iterator[Call]:
    for kinds in ((), (TOPIC,), (BROKER,), (LOGGER,), (CLIENT_METRICS,), (0,), (99,), (TOPIC, 99), (TOPIC, TOPIC)):
        yield listed(*kinds)
