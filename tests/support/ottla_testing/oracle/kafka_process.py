"""Apache Kafka itself, with ZooKeeper or KRaft, and a proxy that records Produce requests.

Used by the scripts that make `golden/`, and by `make interop`. Clients reach the broker with ZooKeeper through the
proxy (it is the advertised listener), so that the record sets are recorded exactly as each client wrote them.
"""

from __future__ import annotations

import base64
import socket
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ottla.protocol import headers, schema
from ottla.protocol.compiler import build, parse
from ottla.protocol.messages.records.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla_testing.interop.checks import jars, program

HERE = Path(__file__).parent
SETTINGS = {
    "broker.id": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "200",
    "log.message.timestamp.difference.max.ms": str(2**63 - 1),
}
KRAFT = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
}
START_SECONDS = 60


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def receive(connection: socket.socket, count: int) -> bytes:
    """Reads exactly `count` bytes, or none at the end."""
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            return b""
        found += part
    return found


def with_dots(settings: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def write_properties(folder: Path, settings: Mapping[str, str]) -> Path:
    """Writes the server.properties of a folder."""
    path = folder / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def wait_for_port(process: subprocess.Popen[bytes], port: int, what: str, log: Path | None = None) -> None:
    """Returns when the port accepts connections. Raises RuntimeError if the process ended before, or takes too long,
    with the first error of its log."""
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                process.wait()
                lines = log.read_text().splitlines() if log is not None else []
                error = next(
                    (number for number, line in enumerate(lines) if "ERROR" in line or "Exception" in line), -5
                )
                raise RuntimeError("\n".join([f"{what} did not start", *lines[error:][:5]])) from None
            time.sleep(0.1)


def fetch(port: int, version: int, topic: str, offset: int, max_bytes: int, committed: bool = False) -> Any:
    """Returns the response of a broker to one Fetch request, of a version up to 11, for partition 0."""
    places = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=[places])]
    request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=topics, isolation_level=committed)
    frame = struct.pack(">hhih", 1, version, 1, -1) + build(request, version)
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        body = receive(connection, struct.unpack(">i", receive(connection, 4))[0])
    response: Any = parse(FetchResponse, version, body, 4)
    return response.responses[0].partitions[0]


class ProduceProxy:
    """Forwards connections to a port and keeps the Produce requests: (client id, version, topic, record set)."""

    def __init__(self, port: int) -> None:
        self.broker_port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.seen: list[tuple[str, int, str, bytes]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def taken(self) -> list[tuple[str, int, str, bytes]]:
        """Returns the Produce requests since the last call."""
        found, self.seen = self.seen, []
        return found

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)  # after a mere close the thread would keep waiting
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self.broker_port))
            except OSError:  # not ready yet
                client.close()
                continue
            threading.Thread(target=self._pump, args=(client, broker, self._keep), daemon=True).start()
            threading.Thread(target=self._pump, args=(broker, client, lambda _: None), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, keep: Any) -> None:
        try:
            while size := receive(source, 4):
                frame = receive(source, struct.unpack(">i", size)[0])
                keep(frame)
                target.sendall(size + frame)
        except OSError:
            pass
        finally:
            source.close()
            target.close()

    def _keep(self, frame: bytes) -> None:
        prefix = headers.read_prefix(frame)
        if prefix.api_key:
            return
        flexible = prefix.api_version in schema.spec(ProduceRequest).flexible
        client, position = headers.read_rest(frame, prefix, flexible)
        request: Any = parse(ProduceRequest, prefix.api_version, frame, position)
        for topic in request.topic_data:
            for partition in topic.partition_data:
                self.seen.append((client, prefix.api_version, topic.name, bytes(partition.records or b"")))


class Kafka:
    """A running broker with its ZooKeeper; `address` is that of the proxy. `settings` are names of configs with _ for
    the dots. `stop()` ends it cleanly, `kill()` at once. Raises RuntimeError if it does not start."""

    def __init__(self, release: str, folder: Path, **settings: str) -> None:
        self.release = release
        self.folder = folder
        self.port = free_port()
        self.proxy = ProduceProxy(self.port)
        self.address = f"127.0.0.1:{self.proxy.port}"
        self.process = self._start(folder, with_dots(settings))
        wait_for_port(self.process, self.port, f"Kafka {release}")

    @property
    def logs(self) -> Path:
        """Its only data directory."""
        return self.folder / "logs"

    def _start(self, folder: Path, settings: Mapping[str, str]) -> subprocess.Popen[bytes]:
        keeper = free_port()
        listeners = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
        }
        # ZooKeeper would otherwise keep the session of the broker, and refuse another one, for this long.
        patience = {"zookeeper.session.timeout.ms": "6000"}
        places = {"zookeeper.connect": f"127.0.0.1:{keeper}", "log.dirs": str(self.logs), **patience}
        properties = write_properties(folder, {**SETTINGS, **listeners, **places, **settings})
        classes = jars(f"kafka-{self.release}", [f"org.apache.kafka:kafka_2.13:{self.release}"])
        options = ["-Xmx512m", "-Dzookeeper.admin.enableServer=false", "-cp", f"{classes}/*"]
        return subprocess.Popen(
            [program("java"), *options, HERE / "Server.java", folder, str(keeper), properties],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        """Sends kill -9: nothing is closed."""
        self.process.kill()
        self.process.wait(60)
        self.proxy.close()

    def stop(self) -> None:
        """Stops it cleanly; a second call does nothing."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
            self.proxy.close()

    def fetch(self, version: int, topic: str, offset: int, max_bytes: int) -> Any:
        """Returns the partition's response to one Fetch request, mainly for its `records`."""
        return fetch(self.port, version, topic, offset, max_bytes)


class Kraft:
    """A running broker and controller in one process, without ZooKeeper, in a folder that is formatted if it is new.

    Like Kafka above; its output is in `log`.
    """

    def __init__(self, release: str, folder: Path, **settings: str) -> None:
        self.release = release
        self.folder = folder
        self.log = folder / "server.log"
        self.port, controller = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        places = {
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self.logs),
        }
        shared = {name: value for name, value in SETTINGS.items() if name != "broker.id"}
        if not release.startswith("3."):
            del shared["log.message.timestamp.difference.max.ms"]  # removed in 4.0
        properties = write_properties(folder, {**shared, **KRAFT, **places, **with_dots(settings)})
        classes = jars(f"kafka-{release}", [f"org.apache.kafka:kafka_2.13:{release}"])
        command = [program("java"), "-Xmx512m", "-cp", f"{classes}/*"]
        if not (self.logs / "meta.properties").exists():
            # An id that begins with a dash would be taken for an option.
            cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
            formatting = [*command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
            done = subprocess.run(formatting, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"Kafka {release} does not format its folder: {(done.stdout + done.stderr)[-800:]}")
        with self.log.open("a") as log:
            self.process = subprocess.Popen([*command, "kafka.Kafka", properties], stdout=log, stderr=log)
        wait_for_port(self.process, self.port, f"Kafka {release}", self.log)

    @property
    def logs(self) -> Path:
        """Its only data directory."""
        return self.folder / "logs"

    def stop(self) -> None:
        """Stops it cleanly; a second call does nothing."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)

    def kill(self) -> None:
        """Sends kill -9: nothing is closed."""
        self.process.kill()
        self.process.wait(60)
