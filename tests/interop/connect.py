"""Kafka Connect on a broker of ours: a worker that copies a file into a topic, and the topic into another file.

It keeps its configs, offsets and states in compacted topics (distributed mode), and is killed and started again
half-way: the second file is the first, each line at least once and in order.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from apache_kafka import free_port
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from java_transactions import running

from ottla_testing.interop.checks import OUT, Check, Failed, jars, program

VERSION = "4.3.1"
ARTIFACTS = [f"org.apache.kafka:connect-{part}:{VERSION}" for part in ("runtime", "file", "json")]
RELEASES = ("3.9", "4.3", "ottla")
LINES = 2000
PATIENCE_SECONDS = 90
TOPICS = {"config": "compact", "offset": "compact", "status": "compact"}
STRING = "org.apache.kafka.connect.storage.StringConverter"


class Worker:
    """A process of Connect in distributed mode, with its own REST port."""

    def __init__(self, address: str, folder: Path) -> None:
        self.port = free_port()
        settings = {
            "bootstrap.servers": address,
            "group.id": "connect",
            "key.converter": STRING,
            "value.converter": STRING,
            "listeners": f"http://127.0.0.1:{self.port}",
            "offset.flush.interval.ms": "500",
            "plugin.discovery": "service_load",
            "offset.storage.partitions": "2",
            "status.storage.partitions": "2",
        }
        for kind in TOPICS:
            settings |= {f"{kind}.storage.topic": f"connect-{kind}", f"{kind}.storage.replication.factor": "1"}
        self.properties = folder / "connect.properties"
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.start()

    def start(self) -> None:
        classes = jars(f"connect-{VERSION}", ARTIFACTS)
        command = [
            program("java"),
            "-Xmx400m",
            "-cp",
            f"{classes}/*",
            "org.apache.kafka.connect.cli.ConnectDistributed",
        ]
        with (OUT / "connect.log").open("a") as log:
            self.process = subprocess.Popen([*command, str(self.properties)], stdout=log, stderr=log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def send_request(self, path: str, body: Any = None) -> Any:
        """Returns the response of the REST interface; repeats the request until the worker is there. Raises Failed."""
        end = time.monotonic() + PATIENCE_SECONDS
        data = None if body is None else json.dumps(body).encode()
        while True:
            request = urllib.request.Request(
                f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=20) as response:
                    return json.load(response)
            except OSError as error:
                if time.monotonic() > end or self.process.poll() is not None:
                    reason = error.read() if isinstance(error, urllib.error.HTTPError) else error
                    raise Failed(f"no response from Connect {path}: {reason!r}; see {OUT / 'connect.log'}") from None
                time.sleep(0.3)


def connectors(source: Path, sink: Path) -> list[dict[str, Any]]:
    """Copies a file to the topic `lines`, and the topic to another file."""
    name = "org.apache.kafka.connect.file.FileStream"
    return [
        {"name": "in", "config": {"connector.class": f"{name}SourceConnector", "file": str(source), "topic": "lines"}},
        {"name": "out", "config": {"connector.class": f"{name}SinkConnector", "file": str(sink), "topics": "lines"}},
    ]


def wait(what: str, is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > end:
            raise Failed(f"{what}: not in {PATIENCE_SECONDS} s; see {OUT / 'connect.log'}")
        time.sleep(0.2)


def read(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def copied(release: str) -> str:
    lines = [f"line {number}" for number in range(LINES)]
    with running(release) as broker, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, sink = folder / "source", folder / "sink"
        source.write_text("".join(f"{line}\n" for line in lines[: LINES // 2]))
        worker = Worker(broker.address, folder)
        try:
            for connector in connectors(source, sink):
                worker.send_request("/connectors", connector)
            wait("the first half", lambda: len(read(sink)) >= LINES // 2)
            worker.kill()
            with source.open("a") as file:
                file.writelines(f"{line}\n" for line in lines[LINES // 2 :])
            worker.start()
            wait("all lines", lambda: set(read(sink)) >= set(lines))
            states = [worker.send_request(f"/connectors/{one}/status")["connector"]["state"] for one in ("in", "out")]
        finally:
            worker.kill()
        found = read(sink)
        firsts = list(dict.fromkeys(found))
        if firsts != lines or states != ["RUNNING", "RUNNING"]:
            raise Failed(f"{len(found)} lines, not in order or not all; connectors {states}")
        policies = _policies(broker.address)
    if policies != TOPICS:
        raise Failed(f"Connect's topics have cleanup.policy {policies}")
    return f"{LINES} lines through a file source and a file sink, killed half-way; {len(found) - LINES} came twice"


def _policies(address: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": address})
    resources = [ConfigResource(ResourceType.TOPIC, f"connect-{kind}") for kind in TOPICS]
    described = admin.describe_configs(resources)
    return {
        kind: described[one].result(20)["cleanup.policy"].value for kind, one in zip(TOPICS, resources, strict=True)
    }


CHECKS = [
    Check(f"Kafka Connect {VERSION}, file source and sink, on Ottla as {release}", partial(copied, release))
    for release in RELEASES
]
