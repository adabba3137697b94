"""Docker or podman, whichever works here: builds the image, runs containers of it and inspects them.

    python tests/containers/engine.py build [TAG]    `make image`; needs no more than Python

Hides the differences between the two engines. podman without systemd runs no health check by itself: it is run by a
command.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "docker" / "Dockerfile"
SPARK_DOCKERFILE = ROOT / "docker" / "spark.Dockerfile"
BASE = "docker.io/library/python:3.11-slim"
IMAGE = "ottla:dev"
SPARK_IMAGE = "ottla-spark:dev"
PATIENCE_S = 60.0
HEALTHY_S = 30.0
PULL_S = 300.0

Done = subprocess.CompletedProcess[str]


class Gone(Exception):
    """A container did not reach the expected state; the text has the end of its log."""


class Engine:
    """One of the two programs, and the containers that were started with it."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.image = self.local(IMAGE)
        self._numbers = itertools.count(1)
        self._names: list[str] = []

    def call(self, *arguments: str, timeout_s: float = PATIENCE_S, check: bool = True) -> Done:
        """Runs the program; with `check` a failure raises Gone."""
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True, timeout=timeout_s)
        if check and done.returncode:
            raise Gone(f"{self.program} {' '.join(arguments)}: {done.stderr.strip()[-1500:]}")
        return done

    def out(self, *arguments: str) -> str:
        """Runs the program and returns its output."""
        return self.call(*arguments).stdout.strip()

    def build(self, tag: str, dockerfile: Path = DOCKERFILE) -> Done:
        """Builds the image from the checkout, and removes the one that had the tag before.

        podman does so without a copy of the base for each step, and in the format that has health checks.
        """
        before = self.call("image", "inspect", tag, "--format", "{{.Id}}", check=False).stdout.strip()
        flags = ["--layers=false", "--format=docker"] if self.program == "podman" else []
        command = [self.program, "build", *flags, "-f", str(dockerfile), "-t", tag, str(ROOT)]
        done = subprocess.run(command, capture_output=True, text=True)
        if not done.returncode and before and before != self.out("image", "inspect", tag, "--format", "{{.Id}}"):
            self.call("rmi", before, check=False)  # unless it has another name, or a container uses it
        return done

    def local(self, image: str) -> str:
        """Returns the name of an image that is here alone: by its API podman takes a short one for one of Docker
        Hub."""
        return f"localhost/{image}" if self.program == "podman" else image

    def size_bytes(self, image: str) -> int:
        """Returns the size of an image, which is fetched if only its layers are here, as docker leaves it after a
        build."""
        if self.call("image", "inspect", image, check=False).returncode:
            self.call("pull", image, timeout_s=PULL_S)
        return int(self.out("image", "inspect", image, "--format", "{{.Size}}"))

    # Containers

    def name(self) -> str:
        """Returns a name for a new container, which `remove_all` removes."""
        name = f"ottla-test-{os.getpid()}-{next(self._numbers)}"
        self._names.append(name)
        return name

    def run(
        self,
        image: str,
        *command: str,
        environ: Mapping[str, str] = {},
        publish: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> str:
        """Starts a container in the background; its name. `publish` is as in `-p`."""
        name = self.name()
        given = [flag for key, value in environ.items() for flag in ("-e", f"{key}={value}")]
        given += [flag for port in publish for flag in ("-p", port)]
        self.call("run", "-d", "--name", name, *given, *flags, image, *command)
        return name

    def log(self, name: str) -> str:
        """Returns everything that it has written so far."""
        done = self.call("logs", name, check=False)
        return done.stdout + done.stderr

    def inspect(self, name: str, path: str) -> str:
        return self.out("inspect", name, "--format", "{{" + path + "}}")

    def port(self, name: str, port: int) -> int:
        """Returns the host's port for one of a container."""
        return int(self.out("port", name, f"{port}/tcp").splitlines()[0].rpartition(":")[2])

    def is_healthy(self, name: str) -> bool:
        """Returns whether the health check passes now."""
        if self.program == "podman":
            return self.call("healthcheck", "run", name, check=False).returncode == 0
        return self.inspect(name, ".State.Health.Status") == "healthy"

    def await_healthy(self, *names: str) -> float:
        """Seconds until all of them are. Raises Gone."""
        return self.wait(lambda: all(self.is_healthy(name) for name in names), "healthy", *names)

    def await_log(self, name: str, pattern: str) -> float:
        """Seconds until a line of the log matches, as Testcontainers waits. Raises Gone."""
        wanted = re.compile(pattern)
        return self.wait(lambda: any(map(wanted.match, self.log(name).splitlines())), pattern, name)

    def wait(self, is_so: Callable[[], bool], what: str, *names: str) -> float:
        begun = time.monotonic()
        while not is_so():
            if time.monotonic() - begun > HEALTHY_S:
                logs = "\n".join(f"{name}: {self.log(name)[-2000:]}" for name in names)
                raise Gone(f"not {what} after {HEALTHY_S:g} s\n{logs}")
            time.sleep(0.02)
        return time.monotonic() - begun

    def stop(self, name: str) -> tuple[float, int]:
        """Stops a container by SIGTERM: (seconds it took, exit code)."""
        begun = time.monotonic()
        self.call("stop", "-t", "20", name)
        return time.monotonic() - begun, int(self.inspect(name, ".State.ExitCode"))

    def copy_into(self, name: str, text: str, path: str) -> None:
        """Copies an executable script into a running container, as Testcontainers does."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, Path(path).name)
            file.write_text(text)
            file.chmod(0o777)
            self.call("cp", str(file), f"{name}:{path}")

    def remove_all(self) -> None:
        """Removes every container that was started, with its volumes."""
        for name in self._names:
            self.call("rm", "-f", "-v", name, check=False)
        self._names.clear()

    # What stands beside it

    def compose(self) -> list[str] | None:
        """Returns the command for compose files, or None."""
        if self.program == "podman":
            found = shutil.which("podman-compose")
            return [found] if found else None
        return [self.program, "compose"] if self.call("compose", "version", check=False).returncode == 0 else None

    @contextlib.contextmanager
    def api(self) -> Iterator[dict[str, str]]:
        """Yields the environment for clients of Docker's API; podman serves it as long as it is needed."""
        plain = {**os.environ, "TESTCONTAINERS_RYUK_DISABLED": "true"}
        if self.program == "docker":
            yield plain
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "podman.sock")
            command = [self.program, "system", "service", "--time=0", f"unix://{path}"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as service:
                try:
                    self.wait(path.exists, "serving")
                    yield {
                        **plain,
                        "DOCKER_HOST": f"unix://{path}",
                        "TESTCONTAINERS_DOCKER_SOCKET_OVERRIDE": str(path),
                        # Where this is a container itself, they would look for the engine's network, which is here.
                        "TESTCONTAINERS_HOST_OVERRIDE": "localhost",
                        "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
                    }
                finally:
                    service.send_signal(signal.SIGTERM)


def find() -> Engine | None:
    """Returns the engine that works here: docker, else podman."""
    for program in ("docker", "podman"):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if subprocess.run([program, "info"], capture_output=True, timeout=PATIENCE_S).returncode == 0:
                return Engine(program)
    return None


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")


def main(arguments: Sequence[str]) -> int:
    """Runs `build [TAG]` and returns the exit code."""
    engine = find()
    if engine is None:
        print("image: not built, there is neither a working docker nor podman here", file=sys.stderr)
        return 1
    tag = arguments[1] if arguments[1:] else engine.image
    begun = time.monotonic()
    done = engine.build(tag)
    if done.returncode:
        print((done.stdout + done.stderr)[-4000:], file=sys.stderr)
        return 1
    over = (engine.size_bytes(tag) - engine.size_bytes(BASE)) / 1e6
    print(f"{tag}: built by {engine.program} in {time.monotonic() - begun:.0f} s, {over:.0f} MB over its base")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] != ["build"]:
        sys.exit("usage: engine.py build [TAG]")
    sys.exit(main(sys.argv[1:]))
