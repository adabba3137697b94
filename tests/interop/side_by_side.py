"""An Apache Kafka and an Ottla of the same release and settings beside each other, and a client of raw frames for both.

Owns how both are started and stopped: up to 2.8 with a ZooKeeper in its own process, later
ones with their controller.
"""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apache_kafka

from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.security.create_acls import CreateAclsRequest
from ottla.protocol.messages.security.delete_acls import DeleteAclsRequest
from ottla.protocol.messages.security.describe_acls import DescribeAclsRequest
from ottla_testing.broker.harness import frame, read_response
from ottla_testing.interop.checks import OUT, ROOT, Failed, jars, java

RELEASES = {"2.8": "2.8.2", "3.9": "3.9.1", "4.3": "4.3.1", "4.4": "4.4.0"}
OLDER = {"2.1": "2.1.1", "2.3": "2.3.1", "2.4": "2.4.1", "2.5": "2.5.1", "2.7": "2.7.2"}  # for checks that name them
VERSIONS = RELEASES | OLDER
WITH_ZOOKEEPER = ("2.8", *OLDER)
BEFORE_SCALA_2_13 = ("2.1", "2.3")
# Their own ZooKeeper, 3.4, does not resolve addresses on today's Java.
ZOOKEEPER = "org.apache.zookeeper:zookeeper:3.5.9"
PATIENCE_SECONDS = 20
# Of both: few partitions of internal topics, and nothing that happens by itself.
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
}
# With an authorizer: all clients here are super users, and requests about ACLs are served.
AUTHORIZERS = {"2.8": "kafka.security.authorizer.AclAuthorizer"}
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def authorizing(release: str) -> dict[str, str]:
    """Returns the settings that enable access control, with every client of ours a super user."""
    return {
        "authorizer.class.name": AUTHORIZERS.get(release, STANDARD_AUTHORIZER),
        "super.users": "User:ANONYMOUS",
    }


FENCE_NAME = "the fence"
FENCE = {
    "resource_type": 3,
    "resource_name": FENCE_NAME,
    "resource_pattern_type": 3,
    "principal": "User:fence",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
FENCE_FILTER = {
    "resource_type_filter": 3,
    "resource_name_filter": FENCE_NAME,
    "pattern_type_filter": 3,
    "principal_filter": "User:fence",
    "host_filter": "*",
    "operation": 3,
    "permission_type": 3,
}


class RawClient:
    """One connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._socket: socket.socket | None = None
        self._ids = 0

    def call(self, request: Any, version: int) -> Any:
        """Returns the response. Raises ConnectionError if the broker closes the connection instead, TimeoutError
        without a response; the next call reconnects."""
        self._ids += 1
        try:
            self._connect()
            assert self._socket is not None
            self._socket.sendall(frame(request, version, self._ids))
            (size,) = struct.unpack(">i", self._take(4))
            reply = self._take(size)
        except OSError:
            self.close()
            raise
        found, response = read_response(reply, type(request), version)
        assert found == self._ids
        return response

    def calls(self, requests: Sequence[tuple[Any, int]]) -> Iterator[Any]:
        """Yields the responses to (request, version)s sent without waiting; None, and nothing after it, if the broker
        closes the connection."""
        self._connect()
        assert self._socket is not None
        first = self._ids + 1
        self._ids += len(requests)
        frames = [frame(request, version, first + at) for at, (request, version) in enumerate(requests)]
        try:
            self._socket.sendall(b"".join(frames))
            for at, (request, version) in enumerate(requests):
                (size,) = struct.unpack(">i", self._take(4))
                found, response = read_response(self._take(size), type(request), version)
                assert found == first + at
                yield response
        except ConnectionError:
            self.close()
            yield None

    def _connect(self) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _take(self, count: int) -> bytes:
        assert self._socket is not None
        parts = []
        while count:
            part = self._socket.recv(min(count, 1 << 20))
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class KafkaWithZooKeeper:
    """A running Kafka of before KRaft and its ZooKeeper, in one process."""

    def __init__(self, release: str, settings: Mapping[str, str]) -> None:
        version = VERSIONS[release]
        artifacts = [f"org.apache.kafka:kafka_2.13:{version}"]
        if release in BEFORE_SCALA_2_13:
            artifacts = [f"org.apache.kafka:kafka_2.12:{version}", ZOOKEEPER]
        classes = jars(f"kafka-{version}", artifacts)
        self.folder = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
        (self.folder / "keeper").mkdir()
        self.log_dirs = [self.folder / "logs"]
        self.port, keeper = apache_kafka.free_port(), apache_kafka.free_port()
        self.address = f"127.0.0.1:{self.port}"
        places = {
            "broker.id": "1",
            "zookeeper.connect": f"127.0.0.1:{keeper}",
            "listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self.log_dirs[0]),
        }
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in {**settings, **places}.items()))
        program, *rest = java(
            classes,
            ROOT / "tests/interop/WithZooKeeper.java",
            str(keeper),
            str(self.folder / "keeper"),
            str(properties),
        )
        self.log = OUT / f"kafka-{version}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen([program, "-Xmx400m", *rest], stdout=log, stderr=log)

    def stop(self) -> None:
        """Ends it, and takes its data away."""
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Side(NamedTuple):
    """One of the two."""

    name: str
    address: str
    folder: Path  # of its data
    client: RawClient


class Pair(NamedTuple):
    """Both, and which release they are."""

    release: str
    theirs: Side
    ours: Side


@contextmanager
def apache(release: str, settings: Mapping[str, str]) -> Iterator[Side]:
    """Runs an Apache Kafka that serves the requests to controllers. Raises Missing, Failed."""
    if release in WITH_ZOOKEEPER:
        running: Any = KafkaWithZooKeeper(release, settings)
    else:
        running = apache_kafka.Kafka(release, None, 1, **settings)
    client = RawClient(running.port)
    try:
        _wait_until_ready(running, client)
        yield Side(f"Apache Kafka {VERSIONS[release]}", running.address, running.log_dirs[0], client)
    finally:
        client.close()
        running.stop()


def _wait_until_ready(running: Any, client: RawClient) -> None:
    end = time.monotonic() + apache_kafka.START_SECONDS
    while True:
        try:
            client.call(ApiVersionsRequest(), 0)
            return
        except OSError:
            if running.process.poll() is not None or time.monotonic() > end:
                raise Failed(f"Kafka did not start, see {running.log}") from None
            time.sleep(0.1)


@contextmanager
def ottla(release: str, settings: Mapping[str, str]) -> Iterator[Side]:
    """Yields a running `ottla serve --release`."""
    with tempfile.TemporaryDirectory(prefix="ottla-beside-") as data, (OUT / "beside.log").open("w") as log:
        command = [sys.executable, "-m", "ottla.tools", "serve", "--listen", "127.0.0.1:0", "--data-dir", data]
        command += ["--release", release]
        for name, value in settings.items():
            command += ["--override", f"{name}={value}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            words = process.stdout.readline().split()
            if words[:3] != ["ottla", "ready", "on"]:
                raise Failed(f"the broker did not start: {words}; see {log.name}")
            client = RawClient(int(words[3].rpartition(":")[2]))
            yield Side(f"Ottla as {release}", words[3], Path(data), client)
            client.close()
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


@contextmanager
def both(release: str, *, authorizer: bool = True, **settings: str) -> Iterator[Pair]:
    """Runs Apache Kafka and Ottla of one release with the same settings. Raises Missing, Failed."""
    used = {**SETTINGS, **(authorizing(release) if authorizer else {}), **settings}
    with ottla(release, used) as ours, apache(release, used) as theirs:
        yield Pair(release, theirs, ours)


class Fence:
    """Waits until a broker has applied everything that its controller did before, if the two are separate (KRaft).

    A broker applies the controller's records in order and its ACLs last: a visible ACL entry proves that all earlier
    records are applied.
    """

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self._is_there = False

    def wait(self) -> None:
        """Waits; raises Failed if that takes too long."""
        if self._is_there:
            requested: Any = DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**FENCE_FILTER)])
            (result,) = self._client.call(requested, 1).filter_results
        else:
            requested = CreateAclsRequest(creations=[CreateAclsRequest.AclCreation(**FENCE)])
            (result,) = self._client.call(requested, 1).results
        if result.error_code:
            raise Failed(f"no fence: {result}")
        self._is_there = not self._is_there
        end = time.monotonic() + PATIENCE_SECONDS
        while bool(self._client.call(DescribeAclsRequest(**FENCE_FILTER), 1).resources) != self._is_there:
            if time.monotonic() > end:
                raise Failed("the broker does not take in what its controller did")
            time.sleep(0.001)
