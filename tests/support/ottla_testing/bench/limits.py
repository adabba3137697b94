"""The cost of one request of up to 1 MB for other clients: the longest time that it blocks the event loop, and its
memory.
Sends the worst requests of `limit_requests.py` for the newest and oldest version of each API, each to a broker whose
resident memory is as low as after its start. Prints a table, and marks the values above the limits.
    python -m ottla_testing.bench.limits [API ...]
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ottla.protocol.compiler import build
from ottla.protocol.headers import request_header
from ottla.protocol.messages.configs.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.records.fetch import FetchRequest
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.messages.security.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.messages.security.create_acls import CreateAclsRequest
from ottla.protocol.messages.security.delete_acls import DeleteAclsRequest
from ottla.protocol.messages.topics.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.topics.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.records import batch
from ottla.protocol.records.compression import Codec
from ottla_testing.bench import limit_requests, peers
from ottla_testing.bench.limit_requests import GROUPS, TOPICS, WIDE, WIDE_PARTITIONS, Shape
from ottla_testing.bench.raw import BenchError, Connection, frame
from ottla_testing.broker.routes import ROUTES

NAMES = ("limits",)
LOOP_MS_MAX = 50
MEMORY_FREE, MEMORY_FACTOR = 16 << 20, 20
TIMEOUT_SECONDS = 90.0
PARTITIONS, SESSION_PARTITIONS = 5_000, 50_000
DECOMPRESSED_BYTES = 60 << 20
CHANGES = 10_000  # Apache Kafka's limit of metadata records in one request
LEFT_BYTES_MAX = 8 << 20  # memory that a case may not free; with more, the next case gets a new broker
HERE = Path(__file__).resolve().parent
MEMORY = Path("/dev/shm")

ABOUT = f"""\
limits       each API, newest and oldest version, with the worst requests of up to 1 MB, made from its schema: the
             longest time for which one blocks the event loop (processor time; at most {LOOP_MS_MAX} ms; of gc: the
             garbage collector's part), and how far memory grows (at most 16 MB and 20 times the request)"""


class Taken(NamedTuple):
    """The cost of one request."""

    api: str
    version: int
    what: str
    request_bytes: int
    entries: int
    response_bytes: int
    loop_ms: float
    collecting_ms: float
    grown: int
    seconds: float
    error: str

    @property
    def allowed(self) -> int:
        """The allowed growth of memory in bytes."""
        return MEMORY_FREE + MEMORY_FACTOR * self.request_bytes

    @property
    def is_kept(self) -> bool:
        """Whether the cost is within the limits."""
        return self.loop_ms <= LOOP_MS_MAX and self.grown <= self.allowed and self.error in ("", "closed")

    def __str__(self) -> str:
        marks = " LOOP" * (self.loop_ms > LOOP_MS_MAX) + " MEMORY" * (self.grown > self.allowed)
        name = f"{self.api} v{self.version}"
        return (
            f"{name:34} {self.what:44} {self.request_bytes:9,} {self.entries:7,} {self.response_bytes:11,} "
            f"{self.loop_ms:8.1f} {self.collecting_ms:7.1f} {self.grown / (1 << 20):7.1f} {self.seconds:6.2f} "
            f"{self.error}{marks}"
        )


HEAD = (
    f"{'API':34} {'the array that is filled, entries':44} {'request':>9} {'entries':>7} {'response':>11} "
    f"{'loop ms':>8} {'of gc':>7} {'MiB':>7} {'s':>6}"
)


class Limited(peers.Peer):
    """A broker that is measured."""

    def __init__(self, process: subprocess.Popen[bytes], address: Any, data: Path) -> None:
        super().__init__("ottla", process, address, data)
        self.at_start = int(self._line().split()[1])

    def _line(self) -> bytes:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise BenchError("the broker has ended")
        return line

    def command(self, word: bytes) -> bytes:
        """Sends a command and returns the response line."""
        assert self.process.stdin
        self.process.stdin.write(word + b"\n")
        self.process.stdin.flush()
        return self._line()


def started(template: Path | None) -> Limited:
    """Returns a broker on a copy of a folder."""
    data = Path(tempfile.mkdtemp(prefix="ottla-bench-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    if template is not None:
        shutil.copytree(template, data, dirs_exist_ok=True)
    port = peers.free_port()
    command = [sys.executable, str(HERE / "limited_broker.py"), str(data), str(port)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return Limited(process, ("127.0.0.1", port), data)


@contextlib.contextmanager
def prepared() -> Iterator[Path]:
    """Yields a folder with the topics and groups that the requests name."""
    peer = started(None)
    try:
        with Connection(peer.address) as connection:
            topic = CreateTopicsRequest.CreatableTopic
            names = [(f"t{index}", 1) for index in range(TOPICS)] + [(WIDE, WIDE_PARTITIONS)]
            topics = [
                topic(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[])
                for name, count in names
            ]
            connection.call(CreateTopicsRequest(topics=topics, timeout_ms=60_000), CreateTopicsResponse)
            commit = OffsetCommitRequest.OffsetCommitRequestTopic
            partitions = [
                commit.OffsetCommitRequestPartition(partition_index=index, committed_offset=0, committed_metadata="")
                for index in range(WIDE_PARTITIONS)
            ]
            for index in range(GROUPS):
                committed = [commit(name=WIDE, partitions=partitions)]
                request = OffsetCommitRequest(
                    group_id=f"g{index}", generation_id_or_member_epoch=-1, member_id="", topics=committed
                )
                connection.exchange(frame(request, version=2))
        assert peer.process.stdin
        peer.process.stdin.close()
        peer.process.wait(60)
        assert peer.data
        yield peer.data
    finally:
        peer.stop()


def exchanged(peer: Limited, requests: Sequence[bytes], session: bytes = b"") -> tuple[int, str, bytes]:
    """Sends requests one by one. Returns the bytes of the responses, the error if there was one, and the id of the
    fetch
    session. The session of a response is used in the next request.
    """
    received = 0
    with socket.create_connection(peer.address, timeout=TIMEOUT_SECONDS) as connection:
        try:
            for request in requests:
                if session:
                    request = request.replace(struct.pack(">i", limit_requests.SESSION), session)
                connection.sendall(struct.pack(">i", len(request)) + request)
                (left,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL) or b"\xff\xff\xff\xff")
                if left < 0:
                    return received, "closed", b""
                received += left
                head = b""
                while left:
                    data = connection.recv(min(left, 1 << 20))
                    if not data:
                        return received, "closed", b""
                    head = head or data[:64]
                    left -= len(data)
                session = head[11:15]  # in Fetch: after correlation id, tags, throttle time and error
        except TimeoutError:
            return received, f"no response in {TIMEOUT_SECONDS:g} s", b""
        except ConnectionError:
            return received, "closed", b""
    return received, "", session


class Limits:
    """One run over many requests; `take` measures one."""

    def __init__(self, template: Path) -> None:
        self._template = template
        self._peer: Limited | None = None
        self.taken: list[Taken] = []

    def renew(self) -> None:
        """The next request gets a new broker."""
        if self._peer is not None:
            self._peer.stop()
            self._peer = None

    def take(
        self, api: str, version: int, what: str, request: bytes, entries: int, before: Sequence[bytes] = ()
    ) -> Taken:
        """Measures a request. The requests in `before` are sent first and not measured."""
        if self._peer is None:
            self._peer = started(self._template)
        peer = self._peer
        session = exchanged(peer, before)[2] if before else b""
        peer.command(b"begin")
        begun = time.monotonic()
        received, error, _ = exchanged(peer, [request], session)
        seconds = time.monotonic() - begun
        figures = json.loads(peer.command(b"end"))
        grown = figures["peak"] - (figures["before"] if before else peer.at_start)
        made = Taken(
            *(api, version, what, len(request), entries, received),
            *(figures["longest_s"] * 1000, figures["collecting_s"] * 1000, grown, seconds, error),
        )
        self.taken.append(made)
        if error.startswith("no") or peer.resident_kib() * 1024 - peer.at_start > LEFT_BYTES_MAX or before:
            self.renew()
        return made


def cases(names: Sequence[str]) -> Iterator[tuple[int, int, Shape]]:
    """Yields (API key, version, shape) of these APIs, or of all."""
    for key, route in ROUTES.items():
        if names and route.name not in names:
            continue
        for version in sorted({route.versions.last, route.versions.first}, reverse=True):
            kinds = limit_requests.KINDS if version == route.versions.last else limit_requests.SLOWEST
            for shape in limit_requests.shapes(key, version, kinds):
                yield key, version, shape


def _named(key: int, version: int, request: Any) -> bytes:
    head = request_header(key, version, 1, b"limits", version in ROUTES[key].flexible)
    return head + build(request, version)


def _changes() -> Iterator[tuple[str, int, str, bytes, list[bytes]]]:
    """Yields requests, as `scenarios` does, that change as much metadata as one request may."""
    users = [f"u{index}" for index in range(CHANGES)]
    part = AlterClientQuotasRequest.EntryData
    quotas = [
        part(
            entity=[part.EntityData(entity_type="user", entity_name=user)],
            ops=[part.OpData(key="producer_byte_rate", value=1000.0, remove=False)],
        )
        for user in users
    ]
    quota = _named(49, 1, AlterClientQuotasRequest(entries=quotas, validate_only=False))
    yield "AlterClientQuotas", 1, f"quotas of {CHANGES:,} users", quota, []
    credential = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    upsertions = [
        credential(name=user, mechanism=1, iterations=4096, salt=bytes(16), salted_password=bytes(32)) for user in users
    ]
    scram = _named(51, 0, AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions))
    yield "AlterUserScramCredentials", 0, f"credentials of {CHANGES:,} users", scram, []
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    change = resource.AlterableConfig(name="retention.ms", config_operation=0, value="1000000")
    resources = [
        resource(resource_type=2, resource_name=f"t{index}", configs=[change]) for index in range(limit_requests.TOPICS)
    ]
    configs = _named(44, 1, IncrementalAlterConfigsRequest(resources=resources, validate_only=False))
    yield "IncrementalAlterConfigs", 1, f"configs of {limit_requests.TOPICS} topics", configs, []
    entry = CreateAclsRequest.AclCreation
    creations = [
        entry(
            resource_type=2,
            resource_name=user,
            resource_pattern_type=3,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=3,
        )
        for user in users
    ]
    acls = _named(30, 3, CreateAclsRequest(creations=creations))
    yield "CreateAcls", 3, f"{CHANGES:,} entries", acls, []
    every = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    yield "DeleteAcls", 3, f"{CHANGES:,} entries", _named(31, 3, DeleteAclsRequest(filters=[every])), [acls]


def _compressed() -> Iterator[tuple[str, int, str, bytes, list[bytes]]]:
    """Yields requests, as `scenarios` does, whose records are a thousand times as large when decompressed."""
    data = ProduceRequest.TopicProduceData
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        size = DECOMPRESSED_BYTES if codec is not Codec.SNAPPY else DECOMPRESSED_BYTES // 3  # to fit into 1 MB
        records = [batch.Record(index, 1000, None, bytes(size // 60), ()) for index in range(60)]
        partition = data.PartitionProduceData(index=0, records=batch.build(records, codec=codec))
        topic = data(name="t0", partition_data=[partition])
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=[topic])
        yield "Produce", 9, f"{size >> 20} MiB, {codec.name.lower()}", _named(0, 9, request), []


def scenarios(names: Sequence[str]) -> Iterator[tuple[str, int, str, bytes, list[bytes]]]:
    """Yields (API, version, what, request, requests before it) of small requests that cause much work."""
    wide = CreateTopicsRequest.CreatableTopic(
        name="wider", num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
    )
    create = _named(19, 7, CreateTopicsRequest(topics=[wide], timeout_ms=60_000))
    delete = _named(20, 5, DeleteTopicsRequest(topic_names=["wider"], timeout_ms=60_000))
    more = CreatePartitionsRequest.CreatePartitionsTopic(name="t0", count=PARTITIONS, assignments=None)
    grow = _named(37, 3, CreatePartitionsRequest(topics=[more], timeout_ms=60_000, validate_only=False))
    topic = FetchRequest.FetchTopic
    partitions = [
        topic.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1)
        for index in range(SESSION_PARTITIONS)
    ]
    begin = FetchRequest(
        max_wait_ms=0, min_bytes=0, session_epoch=0, topics=[topic(topic=limit_requests.WIDE, partitions=partitions)]
    )
    session = limit_requests.SESSION
    go_on = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session, session_epoch=1, topics=[])
    for api, version, what, request, before in (
        ("CreateTopics", 7, f"a topic of {PARTITIONS:,} partitions", create, []),
        ("DeleteTopics", 5, f"a topic of {PARTITIONS:,} partitions", delete, [create]),
        ("CreatePartitions", 3, f"to {PARTITIONS:,} partitions", grow, []),
        (
            "Metadata",
            12,
            f"a topic of {PARTITIONS:,} partitions",
            _named(3, 12, MetadataRequest(topics=None)),
            [create],
        ),
        ("Fetch", 12, f"a session of {SESSION_PARTITIONS:,} partitions", _named(1, 12, go_on), [_named(1, 12, begin)]),
        *_changes(),
        *_compressed(),
    ):
        if not names or api in names:
            yield api, version, what, request, before


def take_all(names: Sequence[str], on_line: Any) -> list[Taken]:
    """Measures all requests of these APIs, or of all; calls `on_line` with each line."""
    with prepared() as template:
        limits = Limits(template)
        before = None
        try:
            for key, version, shape in cases(names):
                if before != (key, version):
                    limits.renew()
                    before = key, version
                request, entries = limit_requests.frame(key, version, shape)
                on_line(str(limits.take(ROUTES[key].name, version, str(shape), request, entries)))
            for api, version, what, request, sent_before in scenarios(names):
                limits.renew()
                on_line(str(limits.take(api, version, what, request, 0, sent_before)))
        finally:
            limits.renew()
        return limits.taken


def table(taken: Sequence[Taken]) -> str:
    """Returns a table with the two requests of each API and version that block the loop longest and use the most
    memory."""
    lines = [HEAD]
    groups: dict[tuple[str, int], list[Taken]] = {}
    for one in taken:
        groups.setdefault((one.api, one.version), []).append(one)
    for ones in groups.values():
        slowest = max(ones, key=lambda one: one.loop_ms)
        largest = max(ones, key=lambda one: one.grown - one.allowed)
        lines += [str(one) for one in dict.fromkeys([slowest, largest, *(one for one in ones if not one.is_kept)])]
    above = sum(not one.is_kept for one in taken)
    return "\n".join([*lines, f"{len(taken)} requests; above the limits: {above}"])


def main() -> int:
    """Prints each line and the table."""
    print(HEAD)
    taken = take_all(sys.argv[1:], lambda line: print(line, flush=True))
    print("\n" + table(taken))
    return 1 if any(not one.is_kept for one in taken) else 0


if __name__ == "__main__":
    sys.exit(main())
