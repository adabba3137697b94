"""A client made of one blocking socket: what librdkafka does not offer, such as pipelining or a parked fetch.

Owns connections, framing and the requests that the benchmark sends. Requests are made before the clock runs, in
versions that every peer serves.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from ottla.protocol.compiler import build, parse
from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.records.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.messages.records.produce import ProduceRequest, ProduceResponse
from ottla.protocol.messages.topics.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.messages.topics.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.records import batch
from ottla.protocol.schema import spec

T = TypeVar("T")
Address = tuple[str, int]

# Served by Ottla, by librdkafka's mock cluster and by Tansu. None is flexible: the mock's flexible Metadata answer has
# a byte too many.
VERSIONS = {
    ApiVersionsRequest: 0,
    ProduceRequest: 8,
    FetchRequest: 11,
    ListOffsetsRequest: 5,
    MetadataRequest: 7,
    CreateTopicsRequest: 5,
    DeleteTopicsRequest: 3,
}
TIMEOUT_SECONDS = 20.0
CLIENT_ID = b"ottla-bench"
FRAME_BYTES_MAX = 256 << 20
_SIZE = struct.Struct(">i")
_PREFIX = struct.Struct(">ihhih")  # size, key, version, correlation id, length of the client id
_CORRELATION_AT = 8


class BenchError(Exception):
    """A peer did not do what a measurement needs; the text says what."""


def frame(request: Any, correlation_id: int = 0, version: int | None = None) -> bytearray:
    """A whole request: size, header, message; in the version that all peers serve unless told."""
    cls = type(request)
    version = VERSIONS[cls] if version is None else version
    flexible = version in spec(cls).flexible
    body = CLIENT_ID + (b"\0" if flexible else b"") + build(request, version)
    size = _PREFIX.size - 4 + len(body)
    return bytearray(_PREFIX.pack(size, spec(cls).api_key, version, correlation_id, len(CLIENT_ID)) + body)


def numbered(template: bytearray, count: int) -> bytes:
    """`count` copies of a request one after the other, with correlation ids 0 to count - 1."""
    out = template * count
    for index in range(count):
        _SIZE.pack_into(out, index * len(template) + _CORRELATION_AT, index)
    return bytes(out)


def answer(cls: type[T], request_cls: type, payload: bytes | memoryview) -> T:
    """A response's frame (without its size) as a message."""
    version = VERSIONS[request_cls]
    flexible = version in spec(request_cls).flexible and request_cls is not ApiVersionsRequest
    return parse(cls, version, payload, 5 if flexible else 4)


class Connection:
    """One connection. Raises OSError and BenchError."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address, timeout=TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def receive(self) -> bytes:
        """The next answer without its size."""
        (size,) = _SIZE.unpack(self._exactly(4))
        if not 4 <= size <= FRAME_BYTES_MAX:
            raise BenchError(f"an answer of {size} bytes")
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        data = self.socket.recv(count, socket.MSG_WAITALL)
        while len(data) < count:
            more = self.socket.recv(count - len(data), socket.MSG_WAITALL)
            if not more:
                raise BenchError("the connection was closed")
            data += more
        return data

    def ask(self, request: bytes | bytearray) -> bytes:
        """Sends one request and waits for its answer."""
        self.socket.sendall(request)
        return self.receive()

    def call(self, request: Any, response_cls: type[T]) -> T:
        """One request and its answer as messages."""
        return answer(response_cls, type(request), self.ask(frame(request)))

    def pipeline(self, requests: bytes, count: int) -> tuple[float, list[memoryview]]:
        """Sends all requests as fast as they are taken while reading the answers: (seconds, answers in order)."""
        received = bytearray()
        whole, position = 0, 0  # answers counted, and where the next one starts
        out = memoryview(requests)
        self.socket.setblocking(False)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self.socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
                started = time.perf_counter()
                while whole < count:
                    if time.perf_counter() - started > TIMEOUT_SECONDS:
                        raise BenchError(f"only {whole} of {count} answers in {TIMEOUT_SECONDS:g} s")
                    selector.select(1.0)
                    with contextlib.suppress(BlockingIOError):
                        data = self.socket.recv(1 << 20)
                        if not data:
                            raise BenchError("the connection was closed")
                        received += data
                    if out:
                        with contextlib.suppress(BlockingIOError):
                            out = out[self.socket.send(out[: 1 << 18]) :]
                        if not out:
                            selector.modify(self.socket, selectors.EVENT_READ)
                    whole, position = _count_answers(received, whole, position)
                seconds = time.perf_counter() - started
        finally:
            self.socket.settimeout(TIMEOUT_SECONDS)
        return seconds, _split(received)


def _count_answers(received: bytearray, whole: int, position: int) -> tuple[int, int]:
    """Counts further by size fields alone; cheap enough to stand inside the measured time, and equal for all."""
    unpack, end = _SIZE.unpack_from, len(received)
    while position + 4 <= end:
        following = position + 4 + unpack(received, position)[0]
        if following > end:
            break
        whole, position = whole + 1, following
    return whole, position


def _split(received: bytearray) -> list[memoryview]:
    view, position, answers = memoryview(received), 0, []
    while position + 4 <= len(view):
        (size,) = _SIZE.unpack_from(view, position)
        answers.append(view[position + 4 : position + 4 + size])
        position += 4 + size
    return answers


# The requests that are measured


def one_record(value: bytes = b"0123456789") -> bytes:
    """A batch of one record."""
    return bytes(batch.build([batch.Record(0, int(time.time() * 1000), None, value, ())]))


def produce_request(topic: str, records: bytes, acks: int = 1) -> ProduceRequest:
    """Records for partition 0."""
    data = ProduceRequest.TopicProduceData
    partition = data.PartitionProduceData(index=0, records=memoryview(records))
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data(name=topic, partition_data=[partition])])


def fetch_request(topic: str, offset: int, max_wait_ms: int) -> FetchRequest:
    """One byte or more of partition 0, without a session."""
    data = FetchRequest.FetchTopic
    partition = data.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [data(topic=topic, partitions=[partition])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=50 << 20, topics=topics)


def metadata_request(topic: str, create: bool = False) -> MetadataRequest:
    """Asks about one topic."""
    asked = [MetadataRequest.MetadataRequestTopic(name=topic)]
    return MetadataRequest(topics=asked, allow_auto_topic_creation=create)


def produce_error(payload: bytes | memoryview) -> tuple[int, int]:
    """(error code, base offset) of an answer for one partition."""
    partition = answer(ProduceResponse, ProduceRequest, payload).responses[0].partition_responses[0]
    return partition.error_code, partition.base_offset


def fetched(payload: bytes) -> tuple[int, int]:
    """(error code, bytes of records) of an answer for one partition."""
    response = answer(FetchResponse, FetchRequest, payload)
    if response.error_code or not response.responses:
        return response.error_code, 0
    partition = response.responses[0].partitions[0]
    return partition.error_code, len(partition.records or b"")


# What is asked around them


def served(address: Address) -> dict[int, tuple[int, int]]:
    """The served versions by API key."""
    with Connection(address) as connection:
        response = connection.call(ApiVersionsRequest(), ApiVersionsResponse)
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


def check_versions(address: Address, requests: Sequence[type]) -> None:
    """Raises BenchError when a peer does not serve the versions that the benchmark sends."""
    ranges = served(address)
    for cls in requests:
        low, high = ranges.get(spec(cls).api_key, (0, -1))
        if not low <= VERSIONS[cls] <= high:
            raise BenchError(f"{cls.__name__} v{VERSIONS[cls]} is not served")


def make_topic(address: Address, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
    """Creates a topic; with a peer that has no CreateTopics (the mock), by asking about it: then of one partition."""
    creatable = CreateTopicsRequest.CreatableTopic
    given = [creatable.CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()]
    wanted = creatable(name=topic, num_partitions=partitions, replication_factor=1, assignments=[], configs=given)
    explicit = spec(CreateTopicsRequest).api_key in served(address)
    with Connection(address) as connection:
        if explicit:
            connection.socket.settimeout(TIMEOUT_SECONDS + partitions / 100)
            request = CreateTopicsRequest(topics=[wanted], timeout_ms=60_000)
            created = connection.call(request, CreateTopicsResponse).topics[0]
            if created.error_code:
                raise BenchError(f"topic {topic} could not be created: error {created.error_code}")
        for _ in range(200):
            found = connection.call(metadata_request(topic, create=not explicit), MetadataResponse).topics
            if found and not found[0].error_code and found[0].partitions and found[0].partitions[0].leader_id >= 0:
                return
            time.sleep(0.01)
    raise BenchError(f"topic {topic} has no leader after two seconds")


def drop_topic(address: Address, topic: str) -> None:
    """Deletes a topic. Raises BenchError."""
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=int(TIMEOUT_SECONDS * 1000))
    with Connection(address) as connection:
        (found,) = connection.call(request, DeleteTopicsResponse).responses
    if found.error_code:
        raise BenchError(f"topic {topic} could not be deleted: error {found.error_code}")


def end_offset(address: Address, topic: str) -> int:
    """The offset after the last record of partition 0."""
    data = ListOffsetsRequest.ListOffsetsTopic
    topics = [data(name=topic, partitions=[data.ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    with Connection(address) as connection:
        response = connection.call(ListOffsetsRequest(replica_id=-1, topics=topics), ListOffsetsResponse)
    partition = response.topics[0].partitions[0]
    if partition.error_code:
        raise BenchError(f"ListOffsets answers error {partition.error_code}")
    return partition.offset
