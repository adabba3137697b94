"""The time of a small request while the broker converts a large set of records for another connection.
Owns the requests and the connection that causes conversions, which a thread drives: it waits in the kernel most of the
time. Measures only Ottla: the other brokers do not convert.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from ottla.protocol.compiler import parse
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.records.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.records.produce import ProduceResponse
from ottla.protocol.records import batch, legacy
from ottla.protocol.records.batch import Record
from ottla_testing.bench import raw
from ottla_testing.bench.raw import Address, BenchError, Connection

LABELS = ("alone", "beside up", "beside down")
OLD_PRODUCE, OLD_FETCH = 2, 2  # the newest versions with format v1
RECORDS = 80_000
VALUE = b"0123456789" * 10
STORED_BATCHES = 16  # one request each, below max.message.bytes
GZIP = 1
HEADER_BYTES = 4  # of a response: the correlation id


def all_taken(address: Address, up_topic: str, down_topic: str, seconds: float) -> dict[str, list[float]]:
    """Returns the milliseconds of each ping by label, each label for `seconds`. Raises BenchError."""
    _fill(address, down_topic)
    produce = raw.frame(raw.produce_request(up_topic, _old_set()), version=OLD_PRODUCE)
    fetch = raw.frame(_old_fetch(down_topic), version=OLD_FETCH)
    taken = {LABELS[0]: _pings(address, seconds)}
    for label, request, check in ((LABELS[1], produce, _check_produced), (LABELS[2], fetch, _check_fetched)):
        with _converting(address, request, check):
            taken[label] = _pings(address, seconds)
    return taken


def _records(first: int, count: int) -> list[Record]:
    now_ms = int(time.time() * 1000)
    return [Record(first + n, now_ms, None, VALUE, ()) for n in range(count)]


def _old_set() -> bytes:
    """Returns one gzip wrapper of format v1 with 8 MB."""
    return bytes(legacy.build(_records(0, RECORDS), magic=1, codec=GZIP))


def _fill(address: Address, topic: str) -> None:
    """Stores 8 MB of v2 batches."""
    data = bytes(batch.build(_records(0, RECORDS // STORED_BATCHES)))
    request = raw.frame(raw.produce_request(topic, data))
    with Connection(address) as connection:
        for _ in range(STORED_BATCHES):
            error, _ = raw.produce_error(connection.exchange(request))
            if error:
                raise BenchError(f"produce has error {error}")


def _old_fetch(topic: str) -> FetchRequest:
    request = raw.fetch_request(topic, 0, 0)
    request.topics[0].partitions[0].partition_max_bytes = 16 << 20
    return request


def _check_produced(response: bytes) -> None:
    partition = parse(ProduceResponse, OLD_PRODUCE, response, HEADER_BYTES).responses[0].partition_responses[0]
    if partition.error_code:
        raise BenchError(f"Produce v{OLD_PRODUCE} has error {partition.error_code}")


def _check_fetched(response: bytes) -> None:
    partition = parse(FetchResponse, OLD_FETCH, response, HEADER_BYTES).responses[0].partitions[0]
    size = len(partition.records or b"")
    if partition.error_code or size < RECORDS * len(VALUE):
        raise BenchError(f"Fetch v{OLD_FETCH} has error {partition.error_code} and {size} bytes")
    magic = (partition.records or b"")[16]
    if magic != 1:
        raise BenchError(f"Fetch v{OLD_FETCH} has format v{magic}")


@contextlib.contextmanager
def _converting(address: Address, request: bytes | bytearray, check: Callable[[bytes], None]) -> Iterator[None]:
    """Meanwhile another connection sends the request repeatedly. Raises BenchError at the end if a response was
    wrong."""
    ended = threading.Event()
    failures: list[Exception] = []
    counted = 0

    def convert() -> None:
        nonlocal counted
        try:
            while not ended.is_set():
                check(connection.exchange(request))
                counted += 1
        except Exception as error:  # raised again where the figure would be used
            failures.append(error)

    with Connection(address) as connection:
        check(connection.exchange(request))
        thread = threading.Thread(target=convert)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(raw.TIMEOUT_SECONDS)
    if failures:
        raise BenchError(f"the conversions during the pings failed: {failures[0]}")
    if not counted:
        raise BenchError("no conversion was done during the pings")


def _pings(address: Address, seconds: float) -> list[float]:
    request = raw.frame(ApiVersionsRequest())
    taken: list[float] = []
    clock = time.perf_counter
    with Connection(address) as connection:
        for _ in range(20):
            connection.exchange(request)
        until = clock() + seconds
        while (started := clock()) < until:
            connection.exchange(request)
            taken.append((clock() - started) * 1e3)
            time.sleep(0.0005)  # a client without pauses would slow the conversion
    return taken
