"""`ottla serve` as a process of its own, which a test may stop, kill and restart on the same port and data."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

from ottla.broker.config.definitions import facts
from ottla.broker.releases.profiles import OWN
from ottla.protocol.records import batch, formats
from ottla_testing.patience import PATIENCE_S

# Kafka has an initial rebalance delay of three seconds and minimum times of sessions and locks: they only cost time.
OVERRIDES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    **{
        f"group.{kind}.min.{time}.ms": "1"
        for kind in ("consumer", "share", "streams")
        for time in ("session.timeout", "heartbeat.interval")
    },
}


def free_ports(count: int) -> int:
    """Returns the first of some consecutive ports that are free."""
    while True:
        first = random.randrange(10_000, 32_000)  # the system gives higher ports to outgoing connections
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


class RunningBroker:
    """A broker that listens on `address` (host:port, kept over restarts) and keeps its data in `data_dir`. With several
    nodes that is the first one's address; the others have the next ports.

    `release` and `overrides` (config names with _ in place of dots) may be changed between a stop and the next start.
    """

    def __init__(
        self,
        folder: Path,
        release: str | None = None,
        nodes: int = 1,
        /,
        *,
        control: str = "",
        listener: str = "",
        security: str = "",
        **overrides: str,
    ) -> None:
        """`control` is the address of a control plane; none without one. `listener` is the name of the listener,
        `security` the word of `--security`."""
        self.release = release
        self.nodes = nodes
        self.listener = listener
        self.control = control
        self.security = security
        self.data_dir = folder / "data"
        self.log = folder / "broker.log"
        self.overrides = {name.replace("_", "."): value for name, value in overrides.items()}
        self.address = f"127.0.0.1:{free_ports(nodes) if nodes > 1 else 0}"
        self.process: subprocess.Popen[str] | None = None
        self.start()

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def start(self) -> None:
        """Returns when the broker accepts connections."""
        self.launch()
        assert self.process and self.process.stdout
        with DefaultSelector() as selector:
            selector.register(self.process.stdout, EVENT_READ)
            ready = selector.select(PATIENCE_S)
        line = self.process.stdout.readline() if ready else ""
        if not line.startswith("ottla ready on "):
            self.kill()
            raise AssertionError(f"the broker did not start: {line!r}\n{self.log.read_text()[-4000:]}")
        for _ in range(1, self.nodes):
            self.process.stdout.readline()
        self.address = line.split()[-1]

    def launch(self) -> None:
        """Starts the process without waiting."""
        listen = f"{self.listener}://{self.address}" if self.listener else self.address
        command = [sys.executable, "-m", "ottla.tools", "serve", "--listen", listen]
        command += ["--data-dir", str(self.data_dir)]
        command += ["--release", self.release] if self.release else []
        command += ["--brokers", str(self.nodes)] if self.nodes > 1 else []
        command += ["--control", self.control] if self.control else []
        command += ["--security", self.security] if self.security else []
        known = facts("broker", self.release or OWN)
        defaults = {name: value for name, value in OVERRIDES.items() if name in known}  # old releases refuse later ones
        for name, value in (defaults | self.overrides).items():
            command += ["--override", f"{name}={value}"]
        with self.log.open("a") as log:
            # Unbuffered: select must see all bytes that are left.
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)

    def stop(self) -> int:
        """Stops cleanly with SIGTERM; returns the exit code."""
        assert self.process
        self.process.terminate()
        return self._gone()

    def kill(self) -> None:
        """Kills the process (-9): nothing is flushed or closed."""
        assert self.process
        self.process.kill()
        self._gone()

    def restart(self, how: str = "stop") -> None:
        """`how` is "stop" for a clean one or "kill" for kill -9."""
        if how == "kill":
            self.kill()
        else:
            assert self.stop() == 0, self.log.read_text()[-4000:]
        self.start()

    def close(self) -> None:
        """Stops cleanly, and fails if the broker logged an internal error."""
        code = self.stop() if self.process and self.process.poll() is None else 0
        text = self.log.read_text()
        assert code == 0, text[-4000:]
        assert "Traceback" not in text, text[-4000:]

    def _gone(self) -> int:
        assert self.process and self.process.stdout
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE_S)
            code = -signal.SIGKILL
        self.process.stdout.close()
        return code

    def stored(self, topic: str, partition: int = 0) -> Iterator[batch.BatchHeader]:
        """Returns the headers of a partition's batches, of any format, from its segment files."""
        for segment in sorted((self.data_dir / f"{topic}-{partition}").glob("*.log")):
            yield from (header for _, header in formats.headers(segment.read_bytes()))
