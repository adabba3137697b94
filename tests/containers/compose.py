"""docker/compose.yml for real: all services healthy, each record read by one member of the group, nothing left at the
end.

Also its Spark job, which reads each record over the wire and from the broker's files.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from engine import BASE, ROOT, SPARK_DOCKERFILE, SPARK_IMAGE, Engine
from image_checks import Figures, free_port

from ottla_testing.interop.checks import Check, Failed, Missing

FILE = ROOT / "docker" / "compose.yml"
SERVICES = ("broker", "producer", "consumer-1", "consumer-2")
RECORDS = 3000
STOP_S = 5.0  # of what may be busy with its start; the broker's own aim is measured alone
JOB_S = 300.0
PROJECT = "ottlatest"
CONSUMED = re.compile(r"consumed (\d+) sum (\d+) of partitions ([\d,]*)")


class Project:
    """The services of the file, in a project of its own name."""

    def __init__(self, engine: Engine, command: list[str]) -> None:
        self.engine = engine
        self.port = free_port()
        self._command = [*command, "-p", PROJECT, "-f", str(FILE)]
        self._environ = {
            **os.environ,
            "OTTLA_IMAGE": engine.image,
            "OTTLA_SPARK_IMAGE": engine.local(SPARK_IMAGE),
            "OTTLA_PORT": str(self.port),
            "RECORDS": str(RECORDS),
        }

    def call(self, *arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        command = [*self._command, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=self._environ, timeout=timeout_s)

    def containers(self) -> list[str]:
        """Returns the names of all containers."""
        return [name for name in self.engine.out("ps", "-a", "--format", "{{.Names}}").split() if PROJECT in name]

    def container(self, service: str) -> str:
        """Returns the name of a container: docker and podman use different separators."""
        names = self.containers()
        found = [name for name in names if re.fullmatch(rf"{PROJECT}[-_]{service}[-_]1", name)]
        if not found:
            raise Failed(f"no container of {service}: {names}")
        return found[0]

    def read(self, service: str) -> tuple[int, int, set[str]]:
        """Returns (records, their sum, partitions at last) of a member."""
        result = CONSUMED.findall(self.engine.log(self.container(service)))
        return (int(result[-1][0]), int(result[-1][1]), set(result[-1][2].split(","))) if result else (0, 0, set())


@contextmanager
def up(engine: Engine) -> Iterator[Project]:
    command = engine.compose()
    if command is None:
        raise Missing("no compose command: docker compose or podman-compose")
    project = Project(engine, command)
    try:
        done = project.call("up", "-d")
        if done.returncode:
            raise Failed(done.stderr[-2000:])
        yield project
    finally:
        # podman-compose would leave the volumes without a name.
        for name in project.containers():
            engine.call("rm", "-f", "-v", name, check=False)
        project.call("down", "-v")


def works(engine: Engine, figures: Figures) -> str:
    begun = time.monotonic()
    with up(engine) as project:
        names = [project.container(service) for service in SERVICES]
        engine.await_healthy(*names)
        figures.compose_healthy_s = round(time.monotonic() - begun, 1)
        engine.await_log(names[1], rf"produced {RECORDS} .*")
        engine.wait(lambda: sum(project.read(name)[0] for name in SERVICES[2:]) >= RECORDS, "all read", *names)
        first, second = (project.read(name) for name in SERVICES[2:])
        if (first[0] + second[0], first[1] + second[1]) != (RECORDS, sum(range(RECORDS))):
            raise Failed(f"the members read {first} and {second} of {RECORDS} records")
        if not first[0] or not second[0] or first[2] & second[2]:
            raise Failed(f"the members did not share the partitions: {first}, {second}")
        stops = {service: engine.stop(name) for service, name in zip(SERVICES[::-1], names[::-1], strict=True)}
        late = {service: stop for service, stop in stops.items() if stop[0] > STOP_S or stop[1]}
        if late:
            raise Failed(f"(seconds, exit code) of stops: {late}")
    if left := project.containers():
        raise Failed(f"left over: {left}")
    slowest = max(seconds for seconds, _ in stops.values())
    return (
        f"{RECORDS} records, read by two members ({first[0]} and {second[0]}); each stopped in {slowest:.1f} s at most"
    )


def spark_reads(engine: Engine) -> str:
    built = engine.build(engine.local(SPARK_IMAGE), SPARK_DOCKERFILE)
    if built.returncode:
        raise Failed((built.stdout + built.stderr)[-2000:])
    megabytes = (engine.size_bytes(engine.local(SPARK_IMAGE)) - engine.size_bytes(BASE)) / 1e6
    begun = time.monotonic()
    with up(engine) as project:
        done = project.call("--profile", "spark", "run", "--rm", "-T", "spark", timeout_s=JOB_S)
        result = f"spark read {RECORDS} sum {sum(range(RECORDS))} over the wire and from the files"
        if done.returncode or result not in done.stdout:
            raise Failed(f"exit code {done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
    if left := project.containers():
        raise Failed(f"left over: {left}")
    seconds = time.monotonic() - begun
    return f"{RECORDS} records over the wire and from the files in {seconds:.0f} s, {megabytes:.0f} MB over its base"


def checks(engine: Engine, figures: Figures) -> list[Check]:
    """Returns the checks of this module, after the image is built."""
    return [
        Check("compose: broker, producer, group", lambda: works(engine, figures)),
        Check("compose: Spark over the wire and the files", lambda: spark_reads(engine)),
    ]
