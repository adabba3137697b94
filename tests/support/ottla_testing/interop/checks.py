"""A check of interoperability: a name and a function that returns one line about its comparisons, or raises.

Also fetches jars from Maven Central into `out/interop`, and starts a broker for checks that need one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ottla_testing import ROOT

OUT = ROOT / "out" / "interop"


POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>ottla</groupId><artifactId>interop</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""
DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"
ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
SLF4J = ["org.slf4j:slf4j-api:1.7.36", "org.slf4j:slf4j-nop:1.7.36"]  # Apache's classes log; silently here


class Missing(Exception):
    """This machine lacks a program or a service: the check did not run; the text names what is missing."""


class Failed(Exception):
    """The comparison found a difference."""


class Check(NamedTuple):
    """`run` returns one line about its comparisons; raises Missing or Failed."""

    name: str
    run: Callable[[], str]


def program(name: str) -> str:
    """Returns the path of a program. Raises Missing."""
    found = shutil.which(name)
    if found is None:
        raise Missing(f"no program {name} here")
    return found


def jars(name: str, artifacts: list[str], *, alone: bool = False) -> Path:
    """Returns a folder with the jars of `group:artifact:version[:classifier]` and, unless `alone`, all that they
    need."""
    folder = OUT / name
    stamp = folder / "fetched"
    wanted = " ".join(artifacts)
    if stamp.exists() and stamp.read_text() == wanted:
        return folder
    maven = program("mvn")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    parts: list[str] = []
    for artifact in [*artifacts, *SLF4J]:
        group, own, version, *classifier = artifact.split(":")
        more = f"<classifier>{classifier[0]}</classifier>" if classifier else ""
        parts.append(DEPENDENCY.format(group, own, version, more + (ALONE if alone else "")))
    (folder / "pom.xml").write_text(POM.format("".join(parts)))
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    done = subprocess.run([maven, "-q", "-B", "-f", str(folder / "pom.xml"), *goal], capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"{wanted}: Maven could not fetch it: {done.stdout[-500:]}")
    stamp.write_text(wanted)
    return folder


def java(folder: Path, source: Path, *arguments: str) -> list[str]:
    """Returns the command that runs a Java source file (compiled at start) against the jars of a folder."""
    return [program("java"), "-cp", f"{folder}/*", str(source), *arguments]


@contextmanager
def broker(*more: str) -> Iterator[str]:
    """Runs `ottla serve` with an empty data directory and further arguments; yields HOST:PORT."""
    with tempfile.TemporaryDirectory() as data, (OUT / "broker.log").open("w") as log:
        command = [sys.executable, "-m", "ottla.tools", "serve", "--listen", "127.0.0.1:0", "--data-dir", data, *more]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            words = process.stdout.readline().split()
            if words[:3] != ["ottla", "ready", "on"]:
                raise Failed(f"the broker did not start: {words}; see {log.name}")
            yield words[3]
        finally:
            process.terminate()
            process.wait(20)
