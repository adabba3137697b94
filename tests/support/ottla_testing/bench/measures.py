"""What is measured, and how: each function takes one sample of one peer. `ABOUT` describes the figures.
Owns the workloads, their sizes and the aims. A function raises BenchError if the peer's responses are wrong: a figure
that was not verified is not reported.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import mmap
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ottla_testing.bench import conversion, in_flight, own_client, pings, raw, transactions, validation
from ottla_testing.bench.peers import STARTERS, Peer
from ottla_testing.bench.raw import BenchError, Connection
from ottla_testing.bench.stats import Aim, Measure, percentile

ABOUT = """\
produce      confluent-kafka, acks=all, defaults, one partition: first produce() to the end of flush(); cpu: MB per
             second of the broker's processor time; idempotent: with enable.idempotence
produce many the same with produce_batch(), which costs the client less
consume      the same data by confluent-kafka, assigned from the start: first to last message; cpu as above, of all
             fetches
pipelined    one raw connection, all requests sent as fast as possible, same bytes for each peer
in-flight    small requests like those of latency, so many at a time on so many connections; one at a time Fetch of one
             record and OffsetCommit (fetch, commit); cpu: the broker's processor time of each
latency      one raw connection, acks=1, one record of 10 bytes, one request at a time
parked fetch a fetch waits on one connection, produce on another: from sending the record to the fetch's response
transactions confluent-kafka, then (own) Ottla's producer: transactions of this many records per second, one after the
             other, one partition; and their records per second divided by those of plain idempotent writing, which
             waits for acknowledgements where a transaction commits (share), or never (stream)
convert      one set of 256 KiB in memory, v1 to v2 (up) or v2 to v1 (down), MB of keys and values per second of CPU
             time; kafka-python reads the same set with its consumer's code and writes it with its producer's
ping         ApiVersions, one at a time, while another connection sends nothing (alone), Produce v2 of 8 MB in one gzip
             message (beside up), or Fetch v2 of 8 MB of v2 batches (beside down)
client       Ottla's producer and aiokafka's, idempotent, acks=all, linger 5 ms, batches of 16 KiB: thousands of records
             per second, from the first send() to the end of flush()
flight       Ottla's producer, one record per batch, with this many requests in flight and 5 ms round trip
numbered     the time in percent that a producer id and sequences add to pipelined requests: the cost of idempotence
start        exec to the first ApiVersions response
memory       VmRSS after the first response, and its growth per idle connection after one ApiVersions request"""


class Sizes(NamedTuple):
    """The amount of work of one sample. Rates come from counts, so a larger size only makes them more stable."""

    produce: tuple[tuple[str, int, int], ...]  # label, bytes of a value, messages
    pipelined_requests: int
    in_flight: int
    latency_requests: int
    parked_fetches: int
    ping_seconds: float
    starts: int
    connections: int
    client_records: int
    flight_seconds: float
    numbered_requests: int
    transactions_seconds: float


WARMING = 40_000  # requests and messages; a broker in Java or Python is slower before
# Small enough that the kernel does not write the logs back within a round, which would slow only Ottla.
FULL = Sizes(
    (("100 B", 100, 300_000), ("1 KiB", 1024, 100_000), ("100 KiB", 102_400, 2_000)),
    40_000,
    20_000,
    5_000,
    500,
    2.0,
    2,
    2000,
    100_000,
    1.0,
    4_000,
    0.15,
)
QUICK = Sizes(
    (("100 B", 100, 150_000), ("1 KiB", 1024, 80_000), ("100 KiB", 102_400, 1_500)),
    15_000,
    8_000,
    2_000,
    200,
    1.0,
    2,
    2000,
    40_000,
    0.5,
    1_500,
    0.05,
)

# The first words of measures; those before "convert" apply to all brokers.
NAMES = (
    "produce",
    "consume",
    "pipelined",
    "in-flight",
    "latency",
    "parked",
    "transactions",
    "convert",
    "validate",
    "ping",
    "client",
    "flight",
    "numbered",
    "start",
    "memory",
)
LABELS = tuple(label for label, _, _ in FULL.produce)
MANY_LABEL = "1 KiB"
IDEMPOTENT_LABEL = "100 B"
MEASURES = (
    *(Measure(f"produce {label}", "MB/s") for label in LABELS),
    Measure(f"produce many {MANY_LABEL}", "MB/s"),
    Measure(f"produce idempotent {IDEMPOTENT_LABEL}", "MB/s"),
    *(Measure(f"consume {label}", "MB/s") for label in LABELS),
    *(Measure(f"{what} {label} cpu", "MB/s") for what in ("produce", "consume") for label in LABELS),
    Measure("pipelined produce", "k/s"),
    Measure("pipelined metadata", "k/s"),
    *in_flight.MEASURES,
    Measure("latency p50", "us", False),
    Measure("latency p99", "us", False),
    Measure("parked fetch p50", "ms", False),
    Measure("parked fetch p99", "ms", False),
    *(Measure(label, "/s") for label in (*transactions.LABELS, *transactions.OWN_LABELS)),
    *(Measure(label, "x") for label in (*transactions.SHARES, *transactions.OWN_SHARES)),
    *(Measure(label, "x") for label in (*transactions.STREAMS, *transactions.OWN_STREAMS)),
    *(Measure(label, "MB/s") for label in conversion.LABELS),
    *(Measure(label, "k/s") for label in validation.LABELS),
    *(Measure(f"ping {label} p99", "ms", False) for label in pings.LABELS),
    *(Measure(label, "k/s") for label in own_client.CLIENT_SIZES),
    *(Measure(label, "k/s") for label in own_client.FLIGHT_LABELS),
    *(Measure(label, "x") for label in own_client.GAIN_LABELS),
    *(Measure(label, "%", False) for label in own_client.NUMBERED),
    Measure("start", "ms", False),
    Measure("memory idle", "MB", False),
    Measure("memory per connection", "KB", False),
)
AIMS = (
    *(Aim(f"produce {label}", "mock", bound, True) for label, bound in zip(LABELS, (1.1, 0.98, 0.76), strict=True)),
    *(Aim(f"produce {label}", "tansu", bound, True) for label, bound in zip(LABELS, (1.0, 2.2, 4.2), strict=True)),
    *(Aim(f"produce {label}", "kafka", 1.0, True) for label in LABELS),
    Aim(f"produce idempotent {IDEMPOTENT_LABEL}", "mock", 1.0, True),
    Aim(f"produce idempotent {IDEMPOTENT_LABEL}", "kafka", 1.0, True),
    *(
        Aim(f"consume {label}", peer, bound, True)
        for peer in ("tansu", "kafka")
        for label, bound in zip(LABELS, (1.1, 2.5, 4.0), strict=True)
    ),
    Aim("pipelined produce", "mock", 1.5, True),
    Aim("pipelined metadata", "mock", 1.5, True),
    Aim("in-flight 64 on 1", "mock", 1.5, True),
    Aim("in-flight 2 on 32", "mock", 1.0, True),
    Aim("in-flight 2 on 32", "kafka", 1.0, True),
    Aim("latency p50", "mock", 1.1, False),
    Aim("latency p99", "mock", 1.1, False),
    Aim("parked fetch p99", None, 1.0, False),
    *(Aim(label, None, 0.7, True) for label in transactions.SHARES),
    *(Aim(label, None, 0.8, True) for label in transactions.OWN_SHARES),
    *(Aim(label, conversion.KAFKA_PYTHON, 5.0, True) for label in conversion.LABELS),
    *(Aim(f"ping {label} p99", None, 20, False) for label in pings.LABELS),
    *(Aim(label, own_client.AIOKAFKA, 2.0, True) for label in own_client.CLIENT_SIZES),
    *(Aim(label, None, 5, False) for label in own_client.NUMBERED),
    Aim("start", None, 100, False),
    Aim("memory idle", None, 45, False),
    Aim("memory per connection", None, 2, False),
)

CLIENT_SECONDS = 60.0  # time limit of a sample
WARM_UP = 10
USED_BYTES = 64 << 20  # of memory, by everything in a sample except the log
MOCK, TANSU = "mock", "tansu"
Sample = dict[str, float]
_topics = itertools.count(1)


def fresh_topic(peer: Peer) -> str:
    """Returns a new topic of one partition."""
    topic = f"bench-{next(_topics)}"
    raw.make_topic(peer.address, topic)
    return topic


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Disables the client's garbage collection while the clock runs."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def touch_memory(size_bytes: int) -> None:
    """Writes to this much memory and frees it. A virtual machine may have to get memory from its host first, at a
    tenth of the speed of a copy: that would slow only the brokers that write files, and a recording.
    """
    with mmap.mmap(-1, size_bytes) as memory:
        page = bytes(1 << 20)
        for position in range(0, size_bytes - len(page), len(page)):
            memory[position : position + len(page)] = page


# confluent-kafka


def _client_config(peer: Peer, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": peer.bootstrap, "log_level": 0, **more}


def _one_by_one(producer: Producer, topic: str, value: bytes, count: int) -> None:
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.001)


def _many(producer: Producer, topic: str, value: bytes, count: int) -> None:
    messages = [{"value": value}] * 1000
    while count > 0:
        queued = producer.produce_batch(topic, messages[:count], partition=0)
        count -= queued
        if queued < len(messages):
            producer.poll(0.001)


def produced(
    peer: Peer,
    topic: str,
    size: int,
    count: int,
    send: Callable[[Producer, str, bytes, int], None] = _one_by_one,
    *,
    idempotent: bool = False,
) -> tuple[float, float]:
    """Produces `count` values of `size` bytes; returns MB per second, and per second of the broker's processor time."""
    failed: list[str] = []
    config = {
        "acks": "all",
        "enable.idempotence": idempotent,
        "delivery.report.only.error": True,
        "on_delivery": lambda error, _: failed.append(str(error)),
    }
    producer = Producer(_client_config(peer, **config))
    value = bytes(range(256)) * (size // 256) + bytes(size % 256)
    _one_by_one(producer, topic, value, WARM_UP)
    producer.flush(CLIENT_SECONDS)
    touch_memory(2 * size * count + USED_BYTES)
    with undisturbed():
        used, started = peer.cpu_seconds(), time.perf_counter()
        send(producer, topic, value, count)
        left = producer.flush(CLIENT_SECONDS)
        seconds, used = time.perf_counter() - started, peer.cpu_seconds() - used
    if failed or left:
        raise BenchError(f"{left} messages not sent, {len(failed)} failed {failed[:1]}")
    # Tansu's ListOffsets lacks a part of the last batch; there, consuming everything is the check.
    if peer.name != TANSU and (end := raw.end_offset(peer.address, topic)) != count + WARM_UP:
        raise BenchError(f"the partition ends at {end} after {count + WARM_UP} messages")
    return size * count / seconds / 1e6, size * count / used / 1e6


def consumed(peer: Peer, topic: str, size: int, count: int) -> tuple[float, float]:
    """Consumes the whole topic; returns MB per second, and per second of the broker's processor time."""
    # By default the client stops fetching for a second when its queue is full, which would favour slow peers.
    more = {"group.id": "bench", "enable.auto.commit": False, "fetch.queue.backoff.ms": 1}
    consumer = Consumer(_client_config(peer, **more))
    used = peer.cpu_seconds()  # the client fetches more than the first message before it returns that
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        first = consumer.poll(CLIENT_SECONDS)
        if first is None or first.error():
            raise BenchError(f"no first message: {first.error() if first else 'time-out'}")
        wanted, got, read = count + WARM_UP - 1, 0, 0
        with undisturbed():
            started = time.perf_counter()
            while got < wanted:
                messages = consumer.consume(min(1000, wanted - got), CLIENT_SECONDS)
                if not messages or time.perf_counter() - started > CLIENT_SECONDS:
                    raise BenchError(f"only {got} of {wanted} messages in {CLIENT_SECONDS:g} s")
                got += len(messages)
                read += len(messages[-1])
            seconds, used = time.perf_counter() - started, peer.cpu_seconds() - used
        last = messages[-1]
        if (error := last.error()) is not None and error.code() != KafkaError.NO_ERROR:
            raise BenchError(f"consume: {error}")
        if last.offset() != count + WARM_UP - 1 or not read:
            raise BenchError(f"the last message has offset {last.offset()}, not {count + WARM_UP - 1}")
    finally:
        consumer.close()
    return size * wanted / seconds / 1e6, size * wanted / used / 1e6


def warm(peer: Peer) -> None:
    """Lets a broker that was just started do what it will be measured in. Raises BenchError, KafkaException."""
    topic = fresh_topic(peer)
    produced(peer, topic, 1024, WARMING)
    if peer.name != MOCK:
        consumed(peer, topic, 1024, WARMING)
    in_flight.taken(peer, fresh_topic(peer), in_flight.LOADS[-1], WARMING)


def throughput(peer: Peer, sizes: Sizes, label: str, wanted: Callable[[str], bool]) -> Sample:
    """Produces and consumes values of one size."""
    size, count = next((size, count) for name, size, count in sizes.produce if name == label)
    sample: Sample = {}
    try:
        topic = fresh_topic(peer)
        sample[f"produce {label}"], sample[f"produce {label} cpu"] = produced(peer, topic, size, count)
        if label == MANY_LABEL and wanted("produce") and hasattr(Producer, "produce_batch"):
            sample[f"produce many {label}"], _ = produced(peer, fresh_topic(peer), size, count, _many)
        if peer.name != MOCK and wanted("consume"):  # the mock keeps only the newest 5 MB of a partition
            sample[f"consume {label}"], sample[f"consume {label} cpu"] = consumed(peer, topic, size, count)
    except KafkaException as error:
        raise BenchError(str(error)) from error
    return sample


def idempotent(peer: Peer, sizes: Sizes) -> Sample:
    """Produces values of one size with sequence numbers."""
    size, count = next((size, count) for name, size, count in sizes.produce if name == IDEMPOTENT_LABEL)
    try:
        rate, _ = produced(peer, fresh_topic(peer), size, count, idempotent=True)
    except KafkaException as error:
        raise BenchError(str(error)) from error
    return {f"produce idempotent {IDEMPOTENT_LABEL}": rate}


# The raw client


def pipelined(peer: Peer, sizes: Sizes) -> Sample:
    """Returns thousands of requests per second."""
    count = sizes.pipelined_requests
    sample: Sample = {}
    topic = fresh_topic(peer)
    requests = {
        "produce": raw.produce_request(topic, raw.one_record()),
        "metadata": raw.metadata_request(topic),
    }
    for name, request in requests.items():
        template = raw.frame(request)
        with Connection(peer.address) as connection:
            connection.pipeline(raw.numbered(template, 100), 100)
            data = raw.numbered(template, count)
            with undisturbed():
                seconds, responses = connection.pipeline(data, count)
        for index, response in enumerate(responses):
            if int.from_bytes(response[:4], "big") != index:
                raise BenchError(f"response {index} of the pipeline belongs to another request")
        if name == "produce" and (last := raw.produce_error(responses[-1])) != (0, count + 99):
            raise BenchError(f"the last pipelined produce has (error, offset) {last}, not (0, {count + 99})")
        sample[f"pipelined {name}"] = count / seconds / 1e3
    return sample


def many_in_flight(peer: Peer, sizes: Sizes) -> Sample:
    """Returns thousands of requests per second, and the broker's microseconds for each."""
    sample: Sample = {}
    for load in in_flight.LOADS:
        topic = fresh_topic(peer)
        with undisturbed():
            sample |= in_flight.taken(peer, topic, load, sizes.in_flight)
    return sample


def others_in_flight(peer: Peer, sizes: Sizes) -> Sample:
    """The same of Fetch and OffsetCommit."""
    topic = fresh_topic(peer)
    with undisturbed():
        return in_flight.others_taken(peer, topic, sizes.latency_requests)


def latency(peer: Peer, sizes: Sizes) -> Sample:
    """Returns the microseconds of one small Produce request at a time."""
    request = raw.frame(raw.produce_request(fresh_topic(peer), raw.one_record()))
    taken: list[float] = []
    with Connection(peer.address) as connection:
        for _ in range(100):
            response = connection.exchange(request)
        if raw.produce_error(response)[0]:
            raise BenchError(f"produce has error {raw.produce_error(response)[0]}")
        clock = time.perf_counter
        with undisturbed():
            for _ in range(sizes.latency_requests):
                started = clock()
                connection.exchange(request)
                taken.append((clock() - started) * 1e6)
    return {"latency p50": percentile(taken, 50), "latency p99": percentile(taken, 99)}


def parked_fetch(peer: Peer, sizes: Sizes) -> Sample:
    """Returns the milliseconds from sending a record to the response of the fetch that waits for it."""
    topic = fresh_topic(peer)
    request = raw.frame(raw.produce_request(topic, raw.one_record()))
    taken: list[float] = []
    with Connection(peer.address) as reader, Connection(peer.address) as writer:
        # A broker that checks for new records only at the end of the wait would respond after max_wait_ms.
        if _woken(reader, writer, topic, request, 600) > 0.4:
            raise BenchError("a parked fetch gets a response only when its max_wait_ms is over")
        with undisturbed():
            for _ in range(sizes.parked_fetches):
                taken.append(_woken(reader, writer, topic, request, 5000) * 1e3)
                if sum(taken) > 3_000:
                    break  # it only polls, which needs no more samples
    return {"parked fetch p50": percentile(taken, 50), "parked fetch p99": percentile(taken, 99)}


def _woken(reader: Connection, writer: Connection, topic: str, request: bytearray, max_wait_ms: int) -> float:
    """Returns seconds. The first record's offset is known, so the fetch always waits at the end."""
    error, offset = raw.produce_error(writer.exchange(request))
    if error:
        raise BenchError(f"produce has error {error}")
    reader.socket.sendall(raw.frame(raw.fetch_request(topic, offset + 1, max_wait_ms)))
    time.sleep(0.003)  # time to park the fetch
    started = time.perf_counter()
    writer.socket.sendall(request)
    response = reader.receive()
    seconds = time.perf_counter() - started
    writer.receive()
    error, size = raw.fetched(response)
    if error or (not size and seconds < max_wait_ms / 2000):
        raise BenchError(f"the parked fetch got error {error} and {size} bytes")
    return seconds


def transacted(peer: Peer, sizes: Sizes) -> Sample:
    """Returns transactions per second, and their rate in relation to plain writing."""
    with undisturbed():
        return transactions.by_confluent(peer, lambda: fresh_topic(peer), sizes.transactions_seconds)


def transacted_by_our_own(peer: Peer, sizes: Sizes) -> Sample:
    """The same by Ottla's client."""
    with undisturbed():
        return transactions.by_our_own(peer, lambda: fresh_topic(peer), sizes.transactions_seconds)


# Conversions


def converted(label: str) -> dict[str, float]:
    """Returns the rates of Ottla and kafka-python."""
    with undisturbed():
        return conversion.rates(label)


def validated(label: str) -> dict[str, float]:
    """Returns the rates of Ottla and kafka-python."""
    with undisturbed():
        return validation.rates(label)


def ping(peer: Peer, sizes: Sizes) -> Sample:
    """Returns the milliseconds of a small request, alone and while another connection causes conversions."""
    topics = fresh_topic(peer), fresh_topic(peer)
    with undisturbed():
        taken = pings.all_taken(peer.address, *topics, sizes.ping_seconds)
    return {f"ping {label} p99": percentile(milliseconds, 99) for label, milliseconds in taken.items()}


# Ottla's client, and the cost of sequence numbers


def own_client_rates(peer: Peer, label: str, sizes: Sizes) -> dict[str, float]:
    """Returns the rates of Ottla's producer and aiokafka's."""
    with undisturbed():
        return own_client.sent_by_each(peer, label, [fresh_topic(peer), fresh_topic(peer)], sizes.client_records)


def flight(_peer: Peer, sizes: Sizes) -> Sample:
    """Uses a broker of its own, which must advertise the address of the slow connection."""
    with undisturbed():
        return own_client.over_slow_connection(sizes.flight_seconds)


def numbered(peer: Peer, sizes: Sizes) -> Sample:
    """Returns the additional cost of sequences by size."""
    with undisturbed():
        return {
            label: own_client.cost_of_numbers(peer, label, fresh_topic(peer), sizes.numbered_requests)
            for label in own_client.NUMBERED
        }


# Processes


def start_time(name: str) -> Sample:
    """Returns the milliseconds from exec to the first ApiVersions response."""
    started = time.perf_counter()
    peer = STARTERS[name]()
    seconds = time.perf_counter() - started
    peer.stop()
    return {"start": seconds * 1e3}


def memory(name: str, sizes: Sizes) -> Sample:
    """Returns the resident megabytes of an idle broker without data, and the kilobytes of each idle connection."""
    peer = STARTERS[name]()
    connections: list[Connection] = []
    request = raw.frame(raw.ApiVersionsRequest())
    try:
        with Connection(peer.address) as connection:  # the first connection also initializes the broker
            connection.exchange(request)
        time.sleep(2)  # what a broker loads after its start belongs to no connection
        idle_kib = peer.resident_kib()
        for _ in range(sizes.connections):
            connections.append(Connection(peer.address))
            connections[-1].exchange(request)
        time.sleep(0.3)
        each = (peer.resident_kib() - idle_kib) * 1.024 / sizes.connections
    finally:
        for connection in connections:
            connection.socket.close()
        peer.stop()
    return {"memory idle": idle_kib * 1024 / 1e6, "memory per connection": each}
