"""Apache Kafka itself, of a release that still has ZooKeeper, and a door before it that keeps what clients send.

Used by `make_golden.py` alone. Clients reach the broker through the door (it is the advertised listener), so that the
record sets are on file exactly as each client wrote them.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "interop"))

from checks import jars, program  # type: ignore[import-not-found]

from ottla.protocol import headers, schema
from ottla.protocol.compiler import build, parse
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.produce import ProduceRequest

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
START_SECONDS = 60


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def receive(connection: socket.socket, count: int) -> bytes:
    """Exactly `count` bytes, or none at the end."""
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            return b""
        found += part
    return found


class Door:
    """Forwards connections to a port and keeps the Produce requests: (client id, version, topic, record set)."""

    def __init__(self, port: int) -> None:
        self.behind = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.seen: list[tuple[str, int, str, bytes]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def taken(self) -> list[tuple[str, int, str, bytes]]:
        """What was produced since the last call."""
        found, self.seen = self.seen, []
        return found

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)  # a mere close would leave the thread waiting
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self.behind))
            except OSError:  # not up yet
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
    """A running broker; `address` leads through the door. `stop()` ends it cleanly."""

    def __init__(self, release: str, folder: Path) -> None:
        self.release = release
        self.port, keeper = free_port(), free_port()
        self.door = Door(self.port)
        self.address = f"127.0.0.1:{self.door.port}"
        listeners = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
        }
        places = {"zookeeper.connect": f"127.0.0.1:{keeper}", "log.dirs": str(folder / "logs")}
        properties = folder / "server.properties"
        properties.write_text("".join(f"{k}={v}\n" for k, v in {**SETTINGS, **listeners, **places}.items()))
        classes = jars(f"kafka-{release}", [f"org.apache.kafka:kafka_2.13:{release}"])
        options = ["-Xmx512m", "-Dzookeeper.admin.enableServer=false", "-cp", f"{classes}/*"]
        self.process = subprocess.Popen(
            [program("java"), *options, HERE / "Server.java", folder, str(keeper), properties],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    self.process.kill()
                    raise RuntimeError(f"Kafka {release} did not start") from None
                time.sleep(0.1)

    def stop(self) -> None:
        """Ends it cleanly; a second call does nothing."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
            self.door.close()

    def fetch(self, version: int, topic: str, offset: int, max_bytes: int) -> Any:
        """The partition's answer to one Fetch request; `records` is what counts."""
        places = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
        topics = [FetchRequest.FetchTopic(topic=topic, partitions=[places])]
        request = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=topics)
        frame = struct.pack(">hhih", 1, version, 1, -1) + build(request, version)
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            answer = receive(connection, struct.unpack(">i", receive(connection, 4))[0])
        response: Any = parse(FetchResponse, version, answer, 4)
        return response.responses[0].partitions[0]
