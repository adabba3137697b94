"""A broker's storage as clients see it: over the loopback, with a sync for each response, with many partitions.
Owns these workloads. The other column is the machine: its loopback with the same sizes, or a plain file.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from ottla.protocol.records import batch
from ottla_testing.bench import raw
from ottla_testing.bench.loopback import COMMAND
from ottla_testing.bench.peers import HERE, Peer, start_ottla, start_ottla_on
from ottla_testing.bench.raw import BenchError, Connection
from ottla_testing.bench.storage_logs import FILE, OTTLA, Figures, Folders, made_batch

LOOPBACK = "loopback"
WIRE_LABEL = "loopback 64 KiB"
WIRE_BATCH = (64, 1000)
FETCH_BYTES = 1 << 20
PRODUCERS = (1, 8, 64)
SYNCED_MS = 0.3  # a disk with slower syncs is a slow disk; faster ones gain less from grouping
SLOW_DISK = "fsync gain of 64, slow disk"
PARTITIONS = (1, 100, 10_000)
CLEAN_PARTITIONS = 1000
WIDE = 1000  # partitions per topic


@contextlib.contextmanager
def running(*more: str) -> Iterator[Peer]:
    peer = start_ottla(*more)
    try:
        yield peer
    finally:
        peer.stop()


# -- bytes over the loopback


@contextlib.contextmanager
def far_end(first: int, second: int) -> Iterator[socket.socket]:
    """A connection to loopback.py, with the command sent."""
    process = subprocess.Popen([sys.executable, str(HERE / "loopback.py")], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        with socket.create_connection(("127.0.0.1", int(process.stdout.readline())), timeout=60) as connection:
            connection.sendall(COMMAND.pack(first, second))
            yield connection
    finally:
        process.kill()
        process.communicate()


def over_the_loopback(size_bytes: int) -> Figures:
    """Produces and fetches batches over one connection, with as many requests in flight as the socket takes."""
    data = made_batch(*WIRE_BATCH)
    count = max(8, size_bytes // len(data))
    with running() as peer:
        raw.make_topic(peer.address, "wire")
        template = raw.frame(raw.produce_request("wire", data))
        requests = raw.numbered(template, count)
        with Connection(peer.address) as connection:
            seconds, responses = connection.pipeline(requests, count)
            if (last := raw.produce_error(responses[-1])) != (0, (count - 1) * WIRE_BATCH[0]):
                raise BenchError(f"the last produce has (error, offset) {last}")
            reading = _fetched_in(connection, count, len(data))
    with far_end(len(requests), 0) as connection:
        started = time.perf_counter()
        connection.sendall(requests)
        connection.recv(1)
        sending = time.perf_counter() - started
    frames = count * len(data) // FETCH_BYTES
    with far_end(frames, FETCH_BYTES) as connection:
        buffer = bytearray(FETCH_BYTES + 4)
        started = time.perf_counter()
        for _ in range(frames):
            _fill(connection, memoryview(buffer))
        taking = time.perf_counter() - started
    size = count * len(data) / 1e6
    return {
        f"append {WIRE_LABEL}": {OTTLA: size / seconds, LOOPBACK: size / sending},
        f"read {WIRE_LABEL}": {OTTLA: size / reading, LOOPBACK: frames * FETCH_BYTES / 1e6 / taking},
    }


def _fill(connection: socket.socket, view: memoryview) -> None:
    while view:
        got = connection.recv_into(view)
        if not got:
            raise BenchError("the connection was closed")
        view = view[got:]


def _fetched_in(connection: Connection, count: int, batch_bytes: int) -> float:
    """Returns the seconds to fetch all batches, as many as fit into FETCH_BYTES at a time, two requests in flight."""
    each = FETCH_BYTES // batch_bytes
    offsets = range(0, count * WIRE_BATCH[0], each * WIRE_BATCH[0])
    # With a higher limit, a response ends with a part of the next batch, which is fetched twice.
    most = each * batch_bytes
    requests = [bytes(raw.frame(raw.fetch_request("wire", offset, 0, most))) for offset in offsets]
    buffer = bytearray(FETCH_BYTES + (1 << 16))
    view, taken = memoryview(buffer), 0
    started = time.perf_counter()
    connection.socket.sendall(requests[0])
    for following in (*requests[1:], b""):
        connection.socket.sendall(following)
        _fill(connection.socket, view[:4])
        size = int.from_bytes(buffer[:4], "big")
        if size > len(buffer):
            raise BenchError(f"a response of {size} bytes")
        _fill(connection.socket, view[:size])
        taken += size
    seconds = time.perf_counter() - started
    if not count * batch_bytes <= taken < count * batch_bytes + 200 * len(requests):
        raise BenchError(f"{taken} bytes were fetched of {count * batch_bytes}")
    return seconds


# -- a sync for each response


def synced(seconds: float) -> Figures:
    """Returns thousands of responses per second with flush.messages=1, by producers that wait for each response.
    Plain syncs are measured before each of these, since their time depends on other use of the disk.
    """
    found: Figures = {}
    bare: list[float] = []
    with running() as peer:
        for producers in PRODUCERS:
            bare += _bare_syncs(seconds / len(PRODUCERS))
            topic = f"synced-{producers}"
            raw.make_topic(peer.address, topic, configs={"flush.messages": "1"})
            found[f"fsync {producers}"] = {OTTLA: _acknowledged(peer, topic, producers, seconds)}
    raw_ms = statistics.median(bare) * 1e3
    found["fsync raw"] = {FILE: raw_ms}
    found["fsync 1"][FILE] = len(bare) / sum(bare) / 1e3
    gain = {OTTLA: found["fsync 64"][OTTLA] / found["fsync 1"][OTTLA]}
    found["fsync gain of 64"] = gain
    if raw_ms >= SYNCED_MS:
        found[SLOW_DISK] = gain
    return found


def slow_disk_missing(samples: Mapping[str, object]) -> str:
    """Returns why the gain on a slow disk was not measured, or "" if it was, or if no syncs were."""
    if "fsync raw" not in samples or SLOW_DISK in samples:
        return ""
    return f"{SLOW_DISK}: by design, an fsync of a plain file took less than {SYNCED_MS} ms here"


def _bare_syncs(seconds: float) -> list[float]:
    """Returns the seconds of each small write with its sync, one after the other."""
    data = raw.one_record()
    taken: list[float] = []
    fd, path = tempfile.mkstemp(prefix="ottla-bench-")
    try:
        began = time.perf_counter()
        while (now := time.perf_counter()) < began + seconds:
            os.pwrite(fd, data, len(taken) * len(data))
            os.fsync(fd)
            taken.append(time.perf_counter() - now)
    finally:
        os.close(fd)
        os.remove(path)
    return taken


def _acknowledged(peer: Peer, topic: str, producers: int, seconds: float) -> float:
    request = bytes(raw.frame(raw.produce_request(topic, raw.one_record(), acks=-1)))
    count = 0
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(producers):
            connection = stack.enter_context(Connection(peer.address))
            connection.exchange(request)  # the first request also initializes the partition
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        began = time.perf_counter()
        for key in list(selector.get_map().values()):
            key.data.socket.sendall(request)
        response = b""
        while time.perf_counter() < began + seconds:
            for key, _ in selector.select(1.0):
                response = key.data.receive()
                key.data.socket.sendall(request)
                count += 1
        taken = time.perf_counter() - began
    error, offset = raw.produce_error(response)
    if error or offset < count:
        raise BenchError(f"the last of {count} responses has error {error}, offset {offset}")
    return count / taken / 1e3


# -- many partitions


def clean_starts(folders: Folders) -> Figures:
    """Returns the milliseconds from exec to the first response, with an empty folder and with 1,000 partitions with
    data."""
    folder = folders.made("partitions", _fill_partitions)
    started = time.perf_counter()
    with running():
        empty_ms = (time.perf_counter() - started) * 1e3
    started = time.perf_counter()
    peer = start_ottla_on(folder)
    full_ms = (time.perf_counter() - started) * 1e3
    peer.stop_cleanly()
    return {
        "clean start empty": {OTTLA: empty_ms},
        "clean start 1,000": {OTTLA: full_ms},
        "clean start more": {OTTLA: full_ms - empty_ms},
    }


def _fill_partitions(folder: Path) -> None:
    peer = start_ottla_on(folder)
    _make_wide(peer, CLEAN_PARTITIONS)
    _write_wide(peer, CLEAN_PARTITIONS)
    peer.stop_cleanly()


def stop_ms(folders: Folders, partitions: int, *, written: bool) -> float:
    """Returns the milliseconds from SIGTERM to the end of a broker with this many new partitions, with or without
    data."""
    peer = start_ottla_on(folders.fresh())
    _make_wide(peer, partitions)
    if written:
        _write_wide(peer, partitions)
    started = time.perf_counter()
    peer.stop_cleanly()
    return (time.perf_counter() - started) * 1e3


def _make_wide(peer: Peer, partitions: int) -> None:
    """Creates topics of a thousand partitions each: a larger one would exceed the request's timeout."""
    for first in range(0, partitions, WIDE):
        raw.make_topic(peer.address, f"wide{first}", min(WIDE, partitions - first))


def _write_wide(peer: Peer, partitions: int) -> None:
    """Writes a batch of a hundred records to each partition."""
    data = raw.ProduceRequest.TopicProduceData
    records = [batch.Record(n, int(time.time() * 1000), b"key", bytes(100), ()) for n in range(100)]
    made = bytes(batch.build(records))
    with Connection(peer.address) as connection:
        for first in range(0, partitions, 100):
            indexes = range(first % WIDE, min(first % WIDE + 100, partitions))
            sent = [data.PartitionProduceData(index=index, records=memoryview(made)) for index in indexes]
            topics = [data(name=f"wide{first - first % WIDE}", partition_data=sent)]
            response = connection.exchange(raw.frame(raw.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)))
            if error := raw.produce_error(response)[0]:
                raise BenchError(f"produce has error {error}")


def requests(partitions: int, count: int) -> Figures:
    """Returns the microseconds of a pipelined request to one partition, in a broker with this many."""
    found: Figures = {}
    with running() as peer:
        raw.make_topic(peer.address, "wide", partitions)
        produce = raw.produce_request("wide", raw.one_record())
        with Connection(peer.address) as connection:
            connection.exchange(raw.frame(produce))
        # Fetches come first, of one record each like the produce requests.
        requests_by_name = {"fetch": raw.fetch_request("wide", 0, 0), "produce": produce}
        for name, request in requests_by_name.items():
            template = raw.frame(request)
            with Connection(peer.address) as connection:
                connection.pipeline(raw.numbered(template, 100), 100)
                data = raw.numbered(template, count)
                seconds, responses = connection.pipeline(data, count)
            error, offset = raw.produce_error(responses[-1]) if name == "produce" else raw.fetched(bytes(responses[-1]))
            if error or not offset:
                raise BenchError(f"the last {name} has error {error}")
            found[f"request {name} {partitions:,}"] = {OTTLA: seconds / count * 1e6}
    return found
