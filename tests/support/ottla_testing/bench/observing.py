"""The cost of observation: the same broker within a minute, with and without it.
Owns these measures and their aims. A feature is switched on and off between samples, so that other load on the machine
affects both equally. Besides the client's time, the broker's processor time is measured, which other processes disturb
less. Measured is a broker that has been observed for a moment, without the start of the observation. The data are in
memory where possible, so that disk writes have no effect. The memory is used just before: getting back pages that a
virtual machine has returned to its host costs more than all that is measured here. Recordings are in memory, too: new
pages of a disk's cache are such pages.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla_testing.bench import measures, peers, raw
from ottla_testing.bench.peers import Peer
from ottla_testing.bench.raw import BenchError, Connection
from ottla_testing.bench.stats import OTTLA, Aim, Measure

NAMES = ("observing",)
PEERS = (OTTLA,)
HERE = Path(__file__).resolve().parent
SIZE = 1024
ADDRESS = "127.0.0.1"
FEATURES = ("metrics", "ring", "jsonl", "pcapng", "bare")  # of observed_broker.py
RECORDED = FEATURES[2:]
BATCH_BYTES = 1_000_000  # of librdkafka
MEMORY = Path("/dev/shm")
AGAIN = 4  # samples after each switch
FIRST = 2  # more samples that do not count: they allocate the memory
REST_S = 0.6
NOTES = 200_000

ABOUT = """\
observing    what a feature adds to the time of produce at 1 KiB (confluent-kafka, acks=all), switched on and off in the
             same broker: the client's time, and the processor time of the broker (cpu); the same of pipelined requests
             of one record of 10 bytes (small). metrics, ring: as with a control plane. jsonl, pcapng: all requests are
             recorded in this format, bare: as JSON lines without contents; decoding in pauses is not measured.
             long: bursts of 200 MB, much of which is not written yet when the next one begins; lost: the share of
             their requests that are missing in the recording. note: the processor time of counting one Produce
             request, in process"""


class Sizes(NamedTuple):
    """The amount of work: `pairs` of AGAIN samples, with and without, each with this many messages and small
    requests."""

    rounds: int
    pairs: int
    messages: int
    requests: int
    long: int


FULL = Sizes(rounds=1, pairs=6, messages=60_000, requests=20_000, long=200_000)
QUICK = Sizes(rounds=1, pairs=2, messages=40_000, requests=5_000, long=200_000)

MEASURES = (
    *(
        Measure(f"observing {feature}{how}", "%", False)
        for feature in FEATURES
        for how in ("", " cpu", " small", " small cpu")
    ),
    *(Measure(f"observing {kind}{how}", "%", False) for kind in RECORDED for how in (" long", " long cpu", " lost")),
    Measure("observing note", "us", False),
)
AIMS = (
    Aim("observing metrics", None, 3, False),
    Aim("observing metrics cpu", None, 3, False),
    Aim("observing ring", None, 5, False),
    *(Aim(f"observing {kind}{how}", None, 10, False) for kind in RECORDED for how in ("", " long")),
    Aim("observing note", None, 3, False),
)

Figures = dict[str, dict[str, float]]
Take = Callable[[], Figures]


def takes(names: Sequence[str], sizes: Sizes) -> list[tuple[str, str, Take]]:
    """Returns (measure, peer, function that takes one sample) of the selected measures."""
    if NAMES[0] not in names:
        return []
    found: list[tuple[str, str, Take]] = [
        (f"observing {feature}", OTTLA, lambda feature=feature: added(feature, sizes)) for feature in FEATURES
    ]
    return [*found, ("observing note", OTTLA, noting)]


class Observed(Peer):
    """The broker whose features can be switched."""

    def switch(self, feature: str, to: str) -> int:
        """Switches a feature "on", "off", or waits for "rest". Returns the number of requests that a recording has
        dropped."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{feature} {to}\n".encode())
        self.process.stdin.flush()
        done, _, dropped = self.process.stdout.readline().partition(b" ")
        if done != b"done":
            raise BenchError(f"{feature} cannot be switched {to}")
        return int(dropped)


@contextlib.contextmanager
def observed() -> Iterator[Observed]:
    """Yields such a broker, and stops it at the end. Raises BenchError."""
    port = peers.free_port()
    memory = MEMORY if os.access(MEMORY, os.W_OK) else None
    data = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=memory))
    with tempfile.TemporaryDirectory(prefix="ottla-bench-", dir=memory) as recordings:
        command = [sys.executable, str(HERE / "observed_broker.py"), str(data), str(port), recordings]
        errors = Path(recordings, "stderr")
        with errors.open("wb") as stderr:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)
        peer = Observed(OTTLA, process, (ADDRESS, port), data)
        try:
            assert process.stdout
            if process.stdout.readline() != b"ready\n":
                reason = errors.read_text().strip().rpartition("\n")[2]
                raise BenchError(f"the broker does not start: {reason}")
            yield peer
        finally:
            peer.stop()


def added(feature: str, sizes: Sizes) -> Figures:
    """Returns the percentage that a feature adds to the median of all samples without it."""
    with observed() as peer:
        topic = measures.fresh_topic(peer)
        template = raw.frame(raw.produce_request(topic, raw.one_record()))
        small = raw.numbered(template, sizes.requests)

        def produce(messages: int = sizes.messages) -> float:
            topic = measures.fresh_topic(peer)
            try:
                return messages / measures.produced(peer, topic, SIZE, messages)[0]
            finally:
                raw.drop_topic(peer.address, topic)

        def requests() -> float:
            measures.touch_memory(measures.USED_BYTES)
            with Connection(peer.address) as connection:
                return connection.pipeline(small, sizes.requests)[0]

        kinds: list[tuple[str, Callable[[], float]]] = [("", produce), (" small", requests)]
        if feature in RECORDED:
            kinds.append((" long", lambda: produce(sizes.long)))
        found: dict[str, float] = {}
        for how, work in kinds:
            work()  # the first run is slower
            times: dict[bool, list[float]] = {True: [], False: []}
            cpus: dict[bool, list[float]] = {True: [], False: []}
            dropped = 0
            for pair in range(sizes.pairs):
                for on in (pair % 2 == 0, pair % 2 == 1):
                    taken, lost = _sampled(peer, feature, on, work, rests=how != " long")
                    dropped += lost
                    times[on] += [time for time, _ in taken]
                    cpus[on] += [cpu for _, cpu in taken]
            for name, by in ((how, times), (f"{how} cpu", cpus)):
                ratio = statistics.median(by[True]) / statistics.median(by[False])
                found[f"observing {feature}{name}"] = (ratio - 1) * 100
            if how == " long":
                requested = sizes.pairs * AGAIN * sizes.long * SIZE / BATCH_BYTES
                found[f"observing {feature} lost"] = dropped / requested * 100
    return {measure: {OTTLA: value} for measure, value in found.items()}


def _sampled(
    peer: Observed, feature: str, on: bool, work: Callable[[], float], *, rests: bool
) -> tuple[list[tuple[float, float]], int]:
    """Takes AGAIN samples: returns the times of some work, the broker's processor time for it, and the number of
    requests that a recording dropped. Pauses between samples and, with `rests`, waits until everything is written.
    """
    if on:
        peer.switch(feature, "on")
    taken: list[tuple[float, float]] = []
    before = 0
    for index in range(FIRST + AGAIN):
        if rests or index == FIRST:
            so_far = peer.switch(feature, "rest")
            before = so_far if index == FIRST else before
        time.sleep(REST_S)  # the same pause with and without: work after a pause is slower
        began = peer.cpu_seconds()
        taken.append((work(), peer.cpu_seconds() - began))
    dropped = peer.switch(feature, "rest")
    if on:
        peer.switch(feature, "off")
    return taken[FIRST:], dropped - before


def noting() -> Figures:
    """Returns the microseconds of counting one request with one partition, as a connection and its handler do."""
    from types import SimpleNamespace

    from ottla.broker.metrics.counters import RequestMetrics
    from ottla.broker.network.request_log import note_request
    from ottla.protocol.messages.records.produce import ProduceResponse
    from ottla.storage.log.results import Appended
    from ottla_testing.broker.routes import ROUTES

    topic = ProduceResponse.TopicProduceResponse
    partitions = [topic.PartitionProduceResponse(index=0, error_code=0, base_offset=1)]
    response = ProduceResponse(responses=[topic(name="t", partition_responses=partitions)])
    metrics, records = RequestMetrics(), raw.one_record(b"x" * SIZE)
    shared = SimpleNamespace(metrics=metrics, timer=metrics.timer, levels=SimpleNamespace(logs_requests=False))
    runner = SimpleNamespace(route=ROUTES[0], context=SimpleNamespace(api_version=9), response=response)
    rules = SimpleNamespace(target_magic=2, compression=None)
    partition = SimpleNamespace(topic="t", log=SimpleNamespace(config=SimpleNamespace(rules=rules)))
    parts, appended = [b"x" * 4, b"x" * 50], Appended(0, 0, -1, 0, False)
    began = time.process_time()
    for _ in range(NOTES):
        begun_ns = shared.timer()
        metrics.topics.appended(partition, records, appended)  # type: ignore[arg-type]
        note_request(shared, runner, SIZE, begun_ns, parts)  # type: ignore[arg-type]
    taken = (time.process_time() - began) / NOTES * 1e6
    if metrics.apis[0].time.buckets and sum(metrics.apis[0].time.buckets) != NOTES:
        raise BenchError("requests were not counted")
    return {"observing note": {OTTLA: taken}}
