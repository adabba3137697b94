"""How the cost of a request grows with what a broker holds: its processor time from 1 to 10,000 partitions,
connections, groups and members of a group, and the time to create topics.
Each figure has a broker of its own. Prints a table and writes a picture. Processor time is that of all of the broker's
threads, so that other load on the machine changes it little.
    python -m ottla_testing.bench.growth [PICTURE]
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ottla.protocol.compiler import parse
from ottla.protocol.messages.groups.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla_testing import ROOT
from ottla_testing.bench import peers, raw
from ottla_testing.bench.peers import Peer
from ottla_testing.bench.raw import BenchError, Connection, frame

NAMES = ("growth",)
COUNTS = (1, 10, 100, 1_000, 10_000)
REQUESTS = 10_000
WINDOW = 16
"""Requests that are sent before their responses are read."""
CREATED_PARTITIONS = 1_000
GROWN_MAX = 2.0
"""The cost at the largest number over that of 10, which is marked if it is larger: one alone is served by shorter
ways."""
OFFSET_COMMIT, HEARTBEAT = 2, 0
EPOCH_MEMBER_JOINS = 0
PICTURE = ROOT / "out" / "growth.svg"

ABOUT = f"""\
growth       the broker's processor time of a request with 1 to 10,000 partitions, connections, groups or members of a
             group, sent to each in turn; marked if it is more than {GROWN_MAX:g} times that with 10; and the seconds in
             which a topic of {CREATED_PARTITIONS:,} partitions is created"""

Sent = Iterator[tuple[Connection, bytes]]
Connect = Callable[[], Connection]
"""Opens a connection, which is closed when the figure is taken."""


class Grown(NamedTuple):
    """The cost of a request with `count` of something."""

    what: str
    count: int
    us: float
    seconds: float
    """Of the preparation: topics, connections, groups or members."""


def in_turn(peer: Peer, requests: Sent) -> float:
    """Sends requests, WINDOW at a time, and returns the microseconds of processor time of each."""
    count = 0
    before = peer.cpu_seconds()
    while window := list(itertools.islice(requests, WINDOW)):
        for connection, request in window:
            connection.socket.sendall(request)
        for connection, _ in window:
            connection.receive()
        count += len(window)
    return (peer.cpu_seconds() - before) / count * 1e6


def repeated(requests: Sequence[tuple[Connection, bytes]]) -> Sent:
    """Yields the requests in turn until there are REQUESTS."""
    return itertools.islice(itertools.cycle(requests), max(REQUESTS, len(requests)))


def partitions(peer: Peer, count: int, connect: Connect) -> Callable[[], float]:
    """Produce to the partitions of one topic."""
    raw.make_topic(peer.address, "many", count)
    connection = connect()
    records = memoryview(raw.one_record())
    data = ProduceRequest.TopicProduceData
    requests = []
    for index in range(count):
        topic = data(name="many", partition_data=[data.PartitionProduceData(index=index, records=records)])
        requests.append((connection, bytes(frame(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[topic])))))
    error, _ = raw.produce_error(connection.exchange(requests[-1][1]))
    if error:
        raise BenchError(f"produce has error {error}")
    in_turn(peer, iter(requests))  # the first record of a partition opens its segment
    return lambda: in_turn(peer, repeated(requests))


def connections(peer: Peer, count: int, connect: Connect) -> Callable[[], float]:
    """Produce to one partition over connections."""
    raw.make_topic(peer.address, "one")
    request = bytes(frame(raw.produce_request("one", raw.one_record())))
    requests: list[tuple[Connection, bytes]] = []
    while len(requests) < count:  # not faster than they are accepted, or the kernel drops them for a second
        requests.append((connect(), request))
        requests[-1][0].exchange(request)
    in_turn(peer, iter(requests))
    return lambda: in_turn(peer, repeated(requests))


def groups(peer: Peer, count: int, connect: Connect) -> Callable[[], float]:
    """OffsetCommit of groups."""
    raw.make_topic(peer.address, "one")
    connection = connect()
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    requests = []
    for index in range(count):
        request = OffsetCommitRequest(
            group_id=f"g{index}",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[topic(name="one", partitions=[partition])],
        )
        requests.append((connection, bytes(frame(request, version=OFFSET_COMMIT))))
    raw.await_coordinator(connection, "g")
    error = int.from_bytes(connection.exchange(requests[0][1])[-2:], "big")
    if error:
        raise BenchError(f"a commit has error {error}")
    in_turn(peer, iter(requests))
    return lambda: in_turn(peer, repeated(requests))


def members(peer: Peer, count: int, connect: Connect) -> Callable[[], float]:
    """ConsumerGroupHeartbeat of the members of one group, each of which has read its newest epoch."""
    raw.make_topic(peer.address, "one", 100)
    connection = connect()
    raw.await_coordinator(connection, "g")
    epochs = dict.fromkeys((f"m{index}" for index in range(count)), EPOCH_MEMBER_JOINS)
    _beat(connection, epochs, joins=True)
    for _ in range(20):
        before = dict(epochs)
        _beat(connection, epochs)
        if before == epochs:
            requests = [(connection, _heartbeat(member, epoch)) for member, epoch in epochs.items()]
            return lambda: in_turn(peer, repeated(requests))
    raise BenchError("the group does not settle")


def _beat(connection: Connection, epochs: dict[str, int], *, joins: bool = False) -> None:
    """Sends a heartbeat of each member, and keeps the epoch of the response."""
    for member, epoch in epochs.items():
        payload = connection.exchange(_heartbeat(member, epoch, joins=joins))
        found: Any = parse(ConsumerGroupHeartbeatResponse, HEARTBEAT, payload, 5)
        if found.error_code:
            raise BenchError(f"a heartbeat has error {found.error_code}: {found.error_message}")
        epochs[member] = found.member_epoch


def _heartbeat(member: str, epoch: int, *, joins: bool = False) -> bytes:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=300_000 if joins else -1,
        subscribed_topic_names=["one"] if joins else None,
        topic_partitions=[] if joins else None,
    )
    return bytes(frame(request, version=HEARTBEAT))


WHAT: dict[str, Callable[[Peer, int, Connect], Callable[[], float]]] = {
    "partitions": partitions,
    "connections": connections,
    "groups": groups,
    "members": members,
}


def taken(what: str, count: int) -> Grown:
    """Takes one figure with a broker of its own. Raises BenchError, OSError."""
    peer = peers.start_ottla("--release", "4.3")
    try:
        with contextlib.ExitStack() as opened:
            begun = time.monotonic()
            measure = WHAT[what](peer, count, lambda: opened.enter_context(Connection(peer.address)))
            seconds = time.monotonic() - begun
            return Grown(what, count, measure(), seconds)
    finally:
        peer.stop()


def created() -> float:
    """Returns the seconds in which a topic is created."""
    peer = peers.start_ottla()
    try:
        begun = time.monotonic()
        raw.make_topic(peer.address, "created", CREATED_PARTITIONS)
        return time.monotonic() - begun
    finally:
        peer.stop()


def take_all(log: Callable[[str], None], counts: Sequence[int] = COUNTS) -> tuple[list[Grown], float]:
    """Returns all figures, and the seconds of `created`. Raises BenchError, OSError."""
    found = []
    for what in WHAT:
        for count in counts:
            log(f"growth: {count:,} {what}")
            found.append(taken(what, count))
    return found, created()


def is_flat(figures: Iterable[Grown]) -> bool:
    """Whether the cost with the largest number is at most GROWN_MAX times that with 10."""
    by_count = {one.count: one.us for one in figures}
    return len(by_count) < 3 or by_count[max(by_count)] <= GROWN_MAX * by_count[COUNTS[1]]


def table(figures: Sequence[Grown], created_s: float) -> str:
    """Returns a line for each kind, with the microseconds at each number."""
    counts = sorted({one.count for one in figures})
    lines = [f"{'us a request with':20}" + "".join(f"{count:>10,}" for count in counts)]
    for what in dict.fromkeys(one.what for one in figures):
        ones = [one for one in figures if one.what == what]
        mark = "" if is_flat(ones) else "  GROWS"
        lines.append(f"{what:20}" + "".join(f"{one.us:10.1f}" for one in ones) + mark)
    return "\n".join([*lines, f"a topic of {CREATED_PARTITIONS:,} partitions is created in {created_s:.2f} s"])


def draw(figures: Sequence[Grown], path: Path) -> None:
    """Writes a picture of the figures. Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for what in dict.fromkeys(one.what for one in figures):
        ones = [one for one in figures if one.what == what]
        axes.plot([one.count for one in ones], [one.us for one in ones], marker="o", label=what)
    axes.set(xscale="log", xlabel="partitions, connections, groups or members", ylabel="us a request", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main(arguments: Sequence[str]) -> None:
    """Takes all figures, and prints them."""
    peers.allow_open_files()
    figures, created_s = take_all(lambda line: print(line, file=sys.stderr, flush=True))
    print(table(figures, created_s))
    draw(figures, Path(arguments[0]) if arguments else PICTURE)


if __name__ == "__main__":
    main(sys.argv[1:])
