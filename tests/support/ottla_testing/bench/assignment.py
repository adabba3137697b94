"""The target assignment of a large consumer group (KIP-848): how long a member waits for the response with which it
joins. Kafka computes the assignment before it, too: offloading it to another thread is disabled.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from ottla.protocol.compiler import parse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.groups.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla_testing.bench import peers, raw
from ottla_testing.bench.peers import Peer
from ottla_testing.bench.raw import BenchError, Connection, frame
from ottla_testing.bench.stats import OTTLA, Aim, Measure

KAFKA = "kafka"
PEERS = (OTTLA, KAFKA)
NAMES = ("assignment",)
ASSIGNORS = ("uniform", "range")
MEASURES = tuple(Measure(f"assignment {name}", "ms", False) for name in ASSIGNORS)
AIMS = tuple(Aim(measure.name, KAFKA, 1.0, False) for measure in MEASURES)
TOPICS, PARTITIONS, MEMBERS, JOINS = 100, 100, 1_000, 100
ROUNDS = 2
VERSION = 0
SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",  # each join computes an assignment
    "group.consumer.session.timeout.ms": "300000",
    "group.consumer.max.session.timeout.ms": "300000",
}
KAFKA_ONLY = {"group.consumer.assignor.offload.enable": "false"}
LOADING = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)

ABOUT = f"""\
assignment   a member joins a consumer group of {MEMBERS:,} members that subscribe to {TOPICS} topics of {PARTITIONS}
             partitions, by each assignor: milliseconds until its response, the median of {JOINS} members"""

Figures = dict[str, dict[str, float]]
Take = Callable[[], Figures]


def takes(names: Sequence[str]) -> list[tuple[str, str, Take]]:
    """Returns (measure, peer, function that takes one sample) if they are selected."""
    if NAMES[0] not in names:
        return []
    overrides = [word for name, value in SETTINGS.items() for word in ("--override", f"{name}={value}")]
    return [
        ("assignment", OTTLA, lambda: joined(OTTLA, peers.start_ottla(*overrides))),
        ("assignment", KAFKA, lambda: joined(KAFKA, peers.start_kafka("2g", SETTINGS | KAFKA_ONLY))),
    ]


def joined(name: str, peer: Peer) -> Figures:
    """Returns the figures of a broker, and stops it. Raises BenchError, OSError."""
    try:
        topics = [f"t{number}" for number in range(TOPICS)]
        for topic in topics:
            raw.make_topic(peer.address, topic, PARTITIONS)
        with Connection(peer.address) as connection:
            return {f"assignment {one}": {name: _joins(connection, topics, one)} for one in ASSIGNORS}
    finally:
        peer.stop()


def _joins(connection: Connection, topics: Sequence[str], assignor: str) -> float:
    raw.await_coordinator(connection, f"group-{assignor}")
    for number in range(MEMBERS):
        _join(connection, topics, assignor, number)
    return statistics.median(_join(connection, topics, assignor, MEMBERS + number) for number in range(JOINS))


def _join(connection: Connection, topics: Sequence[str], assignor: str, number: int) -> float:
    """Returns the milliseconds until the response."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=f"group-{assignor}",
        member_id=f"m{number}",
        member_epoch=0,
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=list(topics),
        server_assignor=assignor,
        topic_partitions=[],
    )
    sent = bytes(frame(request, version=VERSION))
    for _ in range(300):
        began = time.perf_counter()
        payload = connection.exchange(sent)
        passed = time.perf_counter() - began
        found: Any = parse(ConsumerGroupHeartbeatResponse, VERSION, payload, 5)
        if found.error_code not in LOADING:
            break
        time.sleep(0.1)
    if found.error_code:
        raise BenchError(f"member {number} has error {found.error_code}: {found.error_message}")
    return passed * 1e3
