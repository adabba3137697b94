"""A broker in the test's own event loop with a clock that stands still, a broker as a process, and a client of raw
frames.

The client uses the codecs only: it sends any value in any version, or any bytes, and returns the received frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from ottla.broker.clock import ManualClock
from ottla.broker.config.serve_options import serve_options
from ottla.broker.config.values import Config
from ottla.broker.faults.rule_set import Faults
from ottla.broker.metadata.topology import NOTHING_NOTED, TopologyNote
from ottla.broker.network import server
from ottla.broker.recording.ring import Ring
from ottla.broker.releases.profiles import profile
from ottla.protocol.api_key import ApiKey
from ottla.protocol.compiler import build, parse
from ottla.protocol.messages.records.fetch import FetchRequest
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.messages.topics.create_topics import CreateTopicsRequest
from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.records import batch, formats
from ottla.protocol.schema import spec
from ottla.storage.io.files import Files
from ottla_testing.patience import PATIENCE_S
from ottla_testing.protocol.batches import batch_of

COMMAND = [sys.executable, "-m", "ottla.tools", "serve"]


class Closed(Exception):
    """The broker closed the connection without a response."""


def frame(request: Any, version: int, correlation_id: int, client_id: str | None = "test") -> bytes:
    """A whole request with its size."""
    declared = spec(type(request))
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id.encode())) + client_id.encode()
    tags = b"\0" if version in declared.flexible else b""
    head = struct.pack(">hhi", declared.api_key, version, correlation_id) + name + tags
    body = head + build(request, version)
    return struct.pack(">i", len(body)) + body


def response_class(request_class: type) -> type:
    name = request_class.__name__.removesuffix("Request") + "Response"
    return getattr(sys.modules[request_class.__module__], name)


def read_response(result: bytes, request_class: type, version: int) -> tuple[int, Any]:
    """Returns (correlation id, response) of a frame without its size; every byte must be consumed."""
    declared = spec(request_class)
    (correlation_id,) = struct.unpack_from(">i", result)
    position = 4
    if version in declared.flexible and declared.api_key != ApiKey.API_VERSIONS:
        assert result[4] == 0, "a response header with tagged fields"
        position = 5
    return correlation_id, parse(response_class(request_class), version, result, position)


class Client:
    """One client connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.left_over = b""
        """Bytes to send after each request, counted in its size."""
        self._ids = itertools.count(1)
        self._sent: dict[int, tuple[type, int]] = {}

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1") -> Self:
        return cls(*await asyncio.open_connection(host, port, limit=1 << 26))

    async def call(self, request: Any, version: int, client_id: str | None = "test") -> Any:
        """Sends a request and returns its response, which must be the next frame of the connection."""
        sent = await self.send(request, version, client_id)
        correlation_id, response = await self.receive()
        assert correlation_id == sent
        return response

    async def send(self, request: Any, version: int, client_id: str | None = "test") -> int:
        """Sends a request and returns its correlation id."""
        correlation_id = next(self._ids)
        self._sent[correlation_id] = type(request), version
        whole = frame(request, version, correlation_id, client_id)
        if self.left_over:
            whole = struct.pack(">i", len(whole) - 4 + len(self.left_over)) + whole[4:] + self.left_over
        await self.send_bytes(whole)
        return correlation_id

    async def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self) -> tuple[int, Any]:
        """Returns (correlation id, response) of the next frame."""
        result = await self.receive_bytes()
        (correlation_id,) = struct.unpack_from(">i", result)
        request_class, version = self._sent.pop(correlation_id)
        return read_response(result, request_class, version)

    async def receive_bytes(self) -> bytes:
        """The next frame without its size. Raises Closed."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                (size,) = struct.unpack(">i", await self.reader.readexactly(4))
                return await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Closed from error

    async def is_closed(self) -> bool:
        """Waits until the broker closes the connection; fails at a response."""
        try:
            result = await self.receive_bytes()
        except Closed:
            return True
        raise AssertionError(f"received {result!r}")

    def close(self) -> None:
        self.writer.close()


class Broker:
    """A broker that runs in this loop."""

    def __init__(self, running: server.Running, clock: ManualClock) -> None:
        self.running = running
        self.state = running.state
        self.clock = clock
        self.ports: list[int] = [sock.getsockname()[1] for sock in running.sockets]
        self._clients: list[Client] = []

    async def client(self, listener: int = 0, host: str = "127.0.0.1") -> Client:
        client = await Client.connect(self.ports[listener], host)
        self._clients.append(client)
        return client

    async def settle(self) -> None:
        """Lets the broker handle everything that was sent so far."""
        client = await self.client()
        for _ in range(3):
            await client.call(ping(), 0)
        client.close()

    async def topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> bytes:
        """Creates a topic without a request; returns its id."""
        return self.state.topics.create(name, partitions, configs or {}, self.clock.now_ms()).id

    def log(self, topic: str, partition: int = 0) -> Any:
        return self.state.topics.partition(topic, partition).log

    async def stop(self) -> None:
        for client in self._clients:
            client.close()
        await self.running.stop()
        for client in self._clients:
            with contextlib.suppress(OSError):
                await client.writer.wait_closed()


def options(
    folders: Sequence[Path],
    overrides: Mapping[str, str] | None = None,
    release: str = "ottla",
    brokers: int | Sequence[int] = 1,
) -> Any:
    configs = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": ",".join(map(str, folders)),
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "4",
        "ottla.behaviour.coordinator_awaits_topic": "false",  # most tests use a coordinator without looking it up first
        "ottla.behaviour.created_topic": "ready",
        "connections.max.idle.ms": "-1",  # tests that move the clock keep their clients
        **(overrides or {}),
    }
    config = Config.load(overrides=configs, profile=profile(release))
    return (
        serve_options(config, brokers=brokers) if isinstance(brokers, int) else serve_options(config, node_ids=brokers)
    )


@contextlib.asynccontextmanager
async def running(
    *folders: Path,
    overrides: Mapping[str, str] | None = None,
    clock: ManualClock | None = None,
    release: str = "ottla",
    files: Files | None = None,
    brokers: int | Sequence[int] = 1,
    note: TopologyNote = NOTHING_NOTED,
    faults: Faults | None = None,
    ring: Ring | None = None,
) -> AsyncIterator[Broker]:
    """A broker over data directories, of one node or several, stopped at the end."""
    clock = clock or ManualClock()
    loop = asyncio.get_running_loop()
    requested = options(folders, overrides, release, brokers)
    started = await server.start(requested, loop, clock, files=files, note=note, faults=faults, ring=ring)
    broker = Broker(started, clock)
    try:
        yield broker
    finally:
        await broker.stop()


class Process:
    """`ottla serve` as a process."""

    def __init__(self, process: subprocess.Popen[str], ports: list[int], stderr: Path) -> None:
        self.process = process
        self.ports = ports
        self._stderr = stderr

    @property
    def error(self) -> str:
        """Its stderr so far."""
        return self._stderr.read_text()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Sends SIGTERM and waits; returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE_S)

    def rss_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE")


@contextlib.contextmanager
def process(
    folder: Path,
    *arguments: str,
    listeners: int = 1,
    environ: Mapping[str, str] = {},
    command: str | None = None,
) -> Iterator[Process]:
    """A broker process over `folder`/data, killed at the end unless it has ended. `command` is Python code to run
    it.
    """
    flags = arguments if "--listen" in arguments else ("--listen", "127.0.0.1:0", *arguments)
    stderr = folder / "stderr.txt"
    with (
        stderr.open("a") as sink,
        subprocess.Popen(
            [
                *(COMMAND if command is None else [sys.executable, "-c", command, "serve"]),
                "--data-dir",
                str(folder / "data"),
                *flags,
            ],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            env={**os.environ, **environ},
        ) as started,
    ):
        guard = threading.Timer(3600, started.kill)  # the test runner ends a hanging test long before
        guard.start()
        try:
            assert started.stdout
            lines = [started.stdout.readline() for _ in range(listeners)]
            if not lines[-1]:
                raise AssertionError(stderr.read_text())
            yield Process(started, [int(line.rpartition(":")[2]) for line in lines], stderr)
        finally:
            guard.cancel()
            started.kill()


# Requests


def ping() -> Any:
    from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest

    return ApiVersionsRequest()


def records(*values: bytes, timestamp: int = 1_700_000_000_000, key: bytes | None = None, **fields: Any) -> bytearray:
    """A batch as a producer sends it."""
    return batch_of([batch.Record(n, timestamp, key, value, ()) for n, value in enumerate(values)], **fields)


def produce(
    data: Any, topic: str = "t", partition: int = 0, *, acks: int = -1, topic_id: bytes = ZERO_UUID, **more: Any
) -> ProduceRequest:
    """A request with one batch."""
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic,
                topic_id=topic_id,
                partition_data=[
                    ProduceRequest.TopicProduceData.PartitionProduceData(
                        index=partition, records=None if data is None else bytes(data)
                    )
                ],
            )
        ],
        **more,
    )


def fetch(
    *wanted: tuple[str | bytes, int, int],
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    partition_max_bytes: int = 1 << 20,
    partition_fields: Mapping[str, Any] | None = None,
    **more: Any,
) -> FetchRequest:
    """A request for (topic name or id, partition, offset)s, in that order."""
    topics = []
    for topic, partition, offset in wanted:
        requested = FetchRequest.FetchTopic.FetchPartition(
            partition=partition,
            fetch_offset=offset,
            partition_max_bytes=partition_max_bytes,
            **(partition_fields or {}),
        )
        name, topic_id = (topic, ZERO_UUID) if isinstance(topic, str) else ("", topic)
        topics.append(FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=[requested]))
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=topics, **more)


def create_topics(*names: str, partitions: int = 1, **more: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[new_topic(name, partitions) for name in names], **more)


def new_topic(name: str, partitions: int = 1, replication: int = 1, **more: Any) -> Any:
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        **{"assignments": [], "configs": [], **more},
    )


def only(response: Any) -> Any:
    """The response for the one partition in a Produce, Fetch or other response by topics and partitions."""
    (topic,) = response.responses if "responses" in response._fields else response.topics
    (result,) = topic.partition_responses if "partition_responses" in topic._fields else topic.partitions
    return result


def values(data: Any) -> list[bytes | None]:
    """The values of all records in fetched bytes."""
    found = []
    for position, _ in formats.headers(data):
        found += [record.value for record in formats.records(data, position)]
    return found
