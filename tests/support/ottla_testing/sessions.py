"""Console sessions of the documentation: runs the commands of a file and compares what they print.

A session is a text file. A line `$ COMMAND` runs (a `\\` at its end continues it in the next line), the lines after it
are the expected output, in which `...` stands for anything and runs of blanks are equal. `ottla serve` runs until `^C`.
All other commands share a shell. Lines with marks of pymdownx.snippets are left out.
"""

from __future__ import annotations

import doctest
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ottla_testing import ROOT
from ottla_testing.patience import PATIENCE_S

DOCS = ROOT / "docs"
TUTORIALS = DOCS / "snippets" / "tutorials"
ADDRESS, CONTROL = "127.0.0.1:9092", "127.0.0.1:9080"  # of the documentation
CHECKOUT = "../ottla"  # what the tutorials call the checkout
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
STOP = "^C"
END = "end of the output"


@dataclass
class Exchange:
    """A command with the output that the documentation shows."""

    command: str
    output: list[str] = field(default_factory=list[str])


def parse(text: str) -> list[Exchange]:
    """The exchanges of a session, in order; a `^C` is a command of its own."""
    found: list[Exchange] = []
    lines = iter(line for line in text.splitlines() if "--8<--" not in line)
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command = command[:-1] + next(lines).strip()
            found.append(Exchange(command))
        elif line == STOP:
            found.append(Exchange(STOP))
        elif found:
            found[-1].output.append(line)
    return found


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are free now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Session:
    """Runs a session in a folder, in one shell. `replaced` maps documented texts to their values in this run."""

    def __init__(self, folder: Path, replaced: Mapping[str, str]) -> None:
        self.folder = folder
        self.replaced = {CHECKOUT: str(ROOT), **replaced}
        self._environ = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": "160",
            "TZ": "UTC",
        }
        self._log = folder / "serve.log"
        self._server: subprocess.Popen[str] | None = None

    def run(self, text: str) -> None:
        """Runs all of it. Raises AssertionError for the first output that differs."""
        shell = self._start(["bash"], stdin=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            for exchange in parse(text):
                if exchange.command == STOP:
                    self._stop()
                elif exchange.command.startswith("ottla serve"):
                    self._compare(exchange, self._serve(exchange))
                else:
                    self._compare(exchange, self._call(shell, exchange.command))
        finally:
            shell.communicate(timeout=PATIENCE_S)
            self._stop()

    def _start(self, command: list[str], **streams: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, cwd=self.folder, env=self._environ, stdout=subprocess.PIPE, text=True, **streams
        )

    def _real(self, text: str) -> str:
        for shown, real in self.replaced.items():
            text = text.replace(shown, real)
        return text

    def _shown(self, text: str) -> str:
        for shown, real in self.replaced.items():
            text = text.replace(real, shown)
        return text

    def _compare(self, exchange: Exchange, printed: str) -> None:
        wanted = "\n".join(exchange.output).strip() + "\n"
        got = self._shown(printed).strip() + "\n"
        assert doctest.OutputChecker().check_output(wanted, got, FLAGS), (
            f"$ {exchange.command}\n-- documented:\n{wanted}-- printed:\n{got}"
        )

    def _call(self, shell: subprocess.Popen[str], command: str) -> str:
        """What the shell prints for a command, which reads nothing; its variables and its exit code stay."""
        assert shell.stdin is not None
        assert shell.stdout is not None
        shell.stdin.write(f"{{ {self._real(command)}\n}} </dev/null\n")
        shell.stdin.write(f"_code=$?; printf '\\n{END}\\n'; (exit $_code)\n")
        shell.stdin.flush()
        lines: list[str] = []
        while (line := shell.stdout.readline()) != END + "\n":
            assert line, f"the shell ended: {lines}"
            lines.append(line)
        return "".join(lines)

    def _serve(self, exchange: Exchange) -> str:
        """Starts a broker; what it has printed on stdout when it is ready."""
        assert self._server is None, "a broker runs already"
        with self._log.open("a") as log:
            self._server = self._start(["bash", "-c", f"exec {self._real(exchange.command)}"], stderr=log)
        assert self._server.stdout is not None
        lines = [self._server.stdout.readline() for _ in exchange.output]
        assert all(lines), self._log.read_text()[-3000:]
        return "".join(lines)

    def _stop(self) -> None:
        if self._server is None:
            return
        server, self._server = self._server, None
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=PATIENCE_S)
        assert server.returncode == 0, self._log.read_text()[-3000:]


def tutorial_session(folder: Path, tutorial: str) -> Session:
    """A session of a tutorial in a folder that has its other files, with free ports in place of the usual ones."""
    broker, control = (f"127.0.0.1:{port}" for port in free_ports(2))
    for path in (TUTORIALS / tutorial).iterdir():
        if path.suffix != ".console":
            (folder / path.name).write_text(path.read_text().replace(ADDRESS, broker).replace(CONTROL, control))
    return Session(folder, {ADDRESS: broker, CONTROL: control})
