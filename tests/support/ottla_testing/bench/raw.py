"""A client with one blocking socket, for what librdkafka does not support, such as pipelining or a parked fetch.
Owns connections, framing and the requests that the benchmark sends. Requests are built before the clock runs, in
versions that every peer supports.
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
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest, OffsetCommitResponse
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

# Supported by Ottla, librdkafka's mock cluster and Tansu. None is flexible: the mock's flexible Metadata response has
# one byte too many.
VERSIONS = {
    ApiVersionsRequest: 0,
    ProduceRequest: 8,
    FetchRequest: 11,
    ListOffsetsRequest: 5,
    MetadataRequest: 7,
    CreateTopicsRequest: 5,
    DeleteTopicsRequest: 3,
    FindCoordinatorRequest: 2,
    OffsetCommitRequest: 7,
}
TIMEOUT_SECONDS = 20.0
CLIENT_ID = b"ottla-bench"
FRAME_BYTES_MAX = 256 << 20
_SIZE = struct.Struct(">i")
_PREFIX = struct.Struct(">ihhih")  # size, key, version, correlation id, length of the client id
_CORRELATION_AT = 8


class BenchError(Exception):
    """A peer did not do what a measurement needs; the text is the reason."""


def frame(request: Any, correlation_id: int = 0, version: int | None = None) -> bytearray:
    """Returns a request with size, header and message; by default in the version that all peers support."""
    cls = type(request)
    version = VERSIONS[cls] if version is None else version
    flexible = version in spec(cls).flexible
    body = CLIENT_ID + (b"\0" if flexible else b"") + build(request, version)
    size = _PREFIX.size - 4 + len(body)
    return bytearray(_PREFIX.pack(size, spec(cls).api_key, version, correlation_id, len(CLIENT_ID)) + body)


def numbered(template: bytearray, count: int) -> bytes:
    """Returns `count` copies of a request, with correlation ids 0 to count - 1."""
    out = template * count
    for index in range(count):
        _SIZE.pack_into(out, index * len(template) + _CORRELATION_AT, index)
    return bytes(out)


def response_of(cls: type[T], request_cls: type, payload: bytes | memoryview) -> T:
    """Parses a response (without its size)."""
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
        """Returns the next response without its size."""
        (size,) = _SIZE.unpack(self._exactly(4))
        if not 4 <= size <= FRAME_BYTES_MAX:
            raise BenchError(f"a response of {size} bytes")
        return self._exactly(size)

    def _exactly(self, count: int) -> bytes:
        data = self.socket.recv(count, socket.MSG_WAITALL)
        while len(data) < count:
            more = self.socket.recv(count - len(data), socket.MSG_WAITALL)
            if not more:
                raise BenchError("the connection was closed")
            data += more
        return data

    def exchange(self, request: bytes | bytearray) -> bytes:
        """Sends one request and returns its response."""
        self.socket.sendall(request)
        return self.receive()

    def call(self, request: Any, response_cls: type[T]) -> T:
        """Sends a request message and returns the response message."""
        return response_of(response_cls, type(request), self.exchange(frame(request)))

    def pipeline(self, requests: bytes, count: int) -> tuple[float, list[memoryview]]:
        """Sends all requests as fast as possible while reading the responses: (seconds, responses in order)."""
        received = bytearray()
        whole, position = 0, 0  # number of whole responses, and the position of the next one
        out = memoryview(requests)
        self.socket.setblocking(False)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self.socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
                started = time.perf_counter()
                while whole < count:
                    if time.perf_counter() - started > TIMEOUT_SECONDS:
                        raise BenchError(f"only {whole} of {count} responses in {TIMEOUT_SECONDS:g} s")
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
                    whole, position = count_responses(received, whole, position)
                seconds = time.perf_counter() - started
        finally:
            self.socket.settimeout(TIMEOUT_SECONDS)
        return seconds, _split(received)


def count_responses(received: bytearray, whole: int, position: int) -> tuple[int, int]:
    """Counts responses by their size fields only; fast enough for the measured time, and equal for all peers."""
    unpack, end = _SIZE.unpack_from, len(received)
    while position + 4 <= end:
        following = position + 4 + unpack(received, position)[0]
        if following > end:
            break
        whole, position = whole + 1, following
    return whole, position


def _split(received: bytearray) -> list[memoryview]:
    view, position, responses = memoryview(received), 0, []
    while position + 4 <= len(view):
        (size,) = _SIZE.unpack_from(view, position)
        responses.append(view[position + 4 : position + 4 + size])
        position += 4 + size
    return responses


# The measured requests


def one_record(value: bytes = b"0123456789") -> bytes:
    """Returns a batch of one record."""
    return bytes(batch.build([batch.Record(0, int(time.time() * 1000), None, value, ())]))


def produce_request(topic: str, records: bytes, acks: int = 1) -> ProduceRequest:
    """Returns a Produce request for partition 0."""
    data = ProduceRequest.TopicProduceData
    partition = data.PartitionProduceData(index=0, records=memoryview(records))
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[data(name=topic, partition_data=[partition])])


def fetch_request(topic: str, offset: int, max_wait_ms: int, max_bytes: int = 1 << 20) -> FetchRequest:
    """Returns a Fetch request for one byte or more of partition 0, and at most `max_bytes`, without a session."""
    data = FetchRequest.FetchTopic
    partition = data.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [data(topic=topic, partitions=[partition])]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=50 << 20, topics=topics)


def commit_request(group: str, topic: str) -> OffsetCommitRequest:
    """Returns an OffsetCommit request for partition 0, of a group without members."""
    data = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = data.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    return OffsetCommitRequest(group_id=group, topics=[data(name=topic, partitions=[partition])])


def committed(payload: bytes) -> int:
    """Returns the error code of an OffsetCommit response for one partition."""
    return response_of(OffsetCommitResponse, OffsetCommitRequest, payload).topics[0].partitions[0].error_code


def await_coordinator(connection: Connection, group: str) -> None:
    """Waits until a group has a coordinator, whose topic the first request may create. Raises BenchError."""
    for _ in range(1000):
        if not connection.call(FindCoordinatorRequest(key=group), FindCoordinatorResponse).error_code:
            return
        time.sleep(0.01)
    raise BenchError("no coordinator after ten seconds")


def metadata_request(topic: str, create: bool = False) -> MetadataRequest:
    """Returns a Metadata request for one topic."""
    topics = [MetadataRequest.MetadataRequestTopic(name=topic)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


def produce_error(payload: bytes | memoryview) -> tuple[int, int]:
    """Returns (error code, base offset) of a response for one partition."""
    partition = response_of(ProduceResponse, ProduceRequest, payload).responses[0].partition_responses[0]
    return partition.error_code, partition.base_offset


def fetched(payload: bytes) -> tuple[int, int]:
    """Returns (error code, bytes of records) of a response for one partition."""
    response = response_of(FetchResponse, FetchRequest, payload)
    if response.error_code or not response.responses:
        return response.error_code, 0
    partition = response.responses[0].partitions[0]
    return partition.error_code, len(partition.records or b"")


# Other requests


def served(address: Address) -> dict[int, tuple[int, int]]:
    """Returns the supported versions by API key."""
    with Connection(address) as connection:
        response = connection.call(ApiVersionsRequest(), ApiVersionsResponse)
    return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}


def check_versions(address: Address, requests: Sequence[type]) -> None:
    """Raises BenchError if a peer does not support the versions that the benchmark sends."""
    ranges = served(address)
    for cls in requests:
        low, high = ranges.get(spec(cls).api_key, (0, -1))
        if not low <= VERSIONS[cls] <= high:
            raise BenchError(f"{cls.__name__} v{VERSIONS[cls]} is not supported")


def make_topic(address: Address, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
    """Creates a topic. If the peer has no CreateTopics (the mock), a Metadata request creates it with one partition."""
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
        for _ in range(1000):
            found = connection.call(metadata_request(topic, create=not explicit), MetadataResponse).topics
            if found and not found[0].error_code and found[0].partitions and found[0].partitions[0].leader_id >= 0:
                return
            time.sleep(0.01)
    raise BenchError(f"topic {topic} has no leader after ten seconds")


def drop_topic(address: Address, topic: str) -> None:
    """Deletes a topic. Raises BenchError."""
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=int(TIMEOUT_SECONDS * 1000))
    with Connection(address) as connection:
        (found,) = connection.call(request, DeleteTopicsResponse).responses
    if found.error_code:
        raise BenchError(f"topic {topic} could not be deleted: error {found.error_code}")


def end_offset(address: Address, topic: str) -> int:
    """Returns the offset after the last record of partition 0."""
    data = ListOffsetsRequest.ListOffsetsTopic
    topics = [data(name=topic, partitions=[data.ListOffsetsPartition(partition_index=0, timestamp=-1)])]
    with Connection(address) as connection:
        response = connection.call(ListOffsetsRequest(replica_id=-1, topics=topics), ListOffsetsResponse)
    partition = response.topics[0].partitions[0]
    if partition.error_code:
        raise BenchError(f"ListOffsets has error {partition.error_code}")
    return partition.offset
