"""Ottla's producer compared with aiokafka's, the same over a slow connection, and the cost of sequence numbers in the
broker.
Owns the workloads and names of these measures. The broker is always Ottla; the other column is another client.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from aiokafka import AIOKafkaProducer

from ottla.client import Producer
from ottla.protocol.records import batch
from ottla_testing.bench import raw
from ottla_testing.bench.peers import HERE, Peer, free_port, start_ottla
from ottla_testing.bench.raw import BenchError, Connection

AIOKAFKA = "aiokafka"
CLIENT_SIZES = {"client 100 B": 100, "client 1 KiB": 1024}
FLIGHTS = (1, 5, 20)
FLIGHT_LABELS = tuple(f"flight {count}" for count in FLIGHTS)
GAIN_LABELS = tuple(f"flight {count} over 1" for count in FLIGHTS[1:])
NUMBERED = {"numbered 1 x 100 B": (1, 100), "numbered 16 x 1 KB": (16, 1000)}  # records of a request, bytes of each
DELAY_MS = 2.5  # each way
LINGER_MS = 5
BATCH_BYTES = 16384
PAIRS = 8  # short runs, alternating: the difference is smaller than the noise of one run

_producer_ids = itertools.count(1_000_000)


async def _ours(address: str, topic: str, value: bytes, count: int) -> float:
    async with Producer(
        address, enable_idempotence="required", linger_ms=LINGER_MS, batch_size=BATCH_BYTES
    ) as producer:
        await producer.send_and_wait(topic, value, partition=0)
        started = time.perf_counter()
        sent = [await producer.send(topic, value, partition=0) for _ in range(count)]
        await producer.flush()
        seconds = time.perf_counter() - started
        last = max([metadata.offset for metadata in await asyncio.gather(*sent)])
    if last != count:
        raise BenchError(f"the last record has offset {last}, not {count}")
    return seconds


async def _aiokafkas(address: str, topic: str, value: bytes, count: int) -> float:
    producer = AIOKafkaProducer(
        bootstrap_servers=address, enable_idempotence=True, linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES
    )
    await producer.start()
    try:
        await producer.send_and_wait(topic, value, partition=0)
        started = time.perf_counter()
        sent = [await producer.send(topic, value, partition=0) for _ in range(count)]
        await producer.flush()
        seconds = time.perf_counter() - started
        last = max([metadata.offset for metadata in await asyncio.gather(*sent)])
    finally:
        await producer.stop()
    if last != count:
        raise BenchError(f"the last record has offset {last}, not {count}")
    return seconds


def sent_by_each(peer: Peer, label: str, topics: Sequence[str], count: int) -> dict[str, float]:
    """Returns thousands of records per second, from the first send to the last response, by client. Each has a
    topic."""
    value = bytes(CLIENT_SIZES[label])
    found: dict[str, float] = {}
    for (name, send), topic in zip((("ottla", _ours), (AIOKAFKA, _aiokafkas)), topics, strict=True):
        found[name] = count / asyncio.run(send(peer.bootstrap, topic, value, count)) / 1e3
    return found


async def _in_flight(address: str, topic: str, flight: int, count: int) -> float:
    """Sends one record per batch, so that only requests in flight hide the latency."""
    async with Producer(
        address, enable_idempotence="required", max_in_flight_requests_per_connection=flight, batch_size=1
    ) as producer:
        await producer.send_and_wait(topic, b"0123456789", partition=0)
        started = time.perf_counter()
        sent = [await producer.send(topic, b"0123456789", partition=0) for _ in range(count)]
        await asyncio.gather(*sent)
        return time.perf_counter() - started


def over_slow_connection(seconds: float) -> dict[str, float]:
    """Returns thousands of records per second with 5 ms latency by requests in flight, and the factor compared with
    one."""
    port = free_port()
    peer = start_ottla("--advertise", f"127.0.0.1:{port}")
    command = [sys.executable, str(HERE / "delay.py"), str(port), str(peer.address[1]), str(DELAY_MS)]
    proxy = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    found: dict[str, float] = {}
    try:
        assert proxy.stdout is not None
        if not proxy.stdout.readline():
            raise BenchError("the delaying proxy did not start")
        raw.make_topic(peer.address, "slow")
        for flight, label in zip(FLIGHTS, FLIGHT_LABELS, strict=True):
            count = max(50, int(seconds / (2 * DELAY_MS / 1e3) * flight))
            found[label] = count / asyncio.run(_in_flight(f"127.0.0.1:{port}", "slow", flight, count)) / 1e3
    finally:
        proxy.kill()
        proxy.communicate()
        peer.stop()
    for label, flight_label in zip(GAIN_LABELS, FLIGHT_LABELS[1:], strict=True):
        found[label] = found[flight_label] / found[FLIGHT_LABELS[0]]
    return found


def _requests(topic: str, count: int, records: int, size: int, producer_id: int) -> bytes:
    made = [batch.Record(n, int(time.time() * 1000), None, bytes(size), ()) for n in range(records)]
    plain = raw.frame(raw.produce_request(topic, bytes(batch.build(made))))
    if producer_id < 0:
        return raw.numbered(plain, count)
    frames = []
    for number in range(count):
        data = batch.build(
            made, batch.BatchFields(producer_id=producer_id, producer_epoch=0, base_sequence=number * records)
        )
        frames.append(raw.frame(raw.produce_request(topic, bytes(data)), number))
    return b"".join(frames)


def cost_of_numbers(peer: Peer, label: str, topic: str, count: int) -> float:
    """Returns the additional time in percent of the same requests with producer id and sequences: the median of pairs
    of
    short runs.
    """
    records, size = NUMBERED[label]
    end = 0
    costs: list[float] = []
    with Connection(peer.address) as connection:
        for pair in range(PAIRS):
            taken: dict[bool, float] = {}
            for numbered in (False, True) if pair % 2 else (True, False):
                data = _requests(topic, count, records, size, next(_producer_ids) if numbered else -1)
                taken[numbered], responses = connection.pipeline(data, count)
                end += count * records
                if (last := raw.produce_error(responses[-1])) != (0, end - records):
                    raise BenchError(f"the last response has (error, offset) {last}, not (0, {end - records})")
            costs.append(100 * (taken[True] / taken[False] - 1))
    return statistics.median(costs)
