"""The documentation's tests in Java, Go and JavaScript, run as written against one `ottla serve --control`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla_testing.interop.checks import OUT, Check, Failed, Missing, jars, java, program
from ottla_testing.old_environment import NODE_MODULES, install_kafkajs
from ottla_testing.snippets import SNIPPETS

PAGES = SNIPPETS / "languages"
TUTORIAL = SNIPPETS / "tutorials" / "other-languages"
FRANZ = Path(__file__).parent / "franz"  # its go.mod and go.sum serve this program, too
FOLDER = OUT / "pages"
CLIENTS = "4.3.1"
PATIENCE_SECONDS = 120


@contextmanager
def controlled() -> Iterator[dict[str, str]]:
    """Runs a broker with its control plane; yields the environment with both addresses."""
    serve = [sys.executable, "-m", "ottla.tools", "serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0"]
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as data, (OUT / "pages.log").open("w") as log:
        command = [*serve, "--data-dir", data]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            while not {"ready", "control"} <= set(found):
                words = process.stdout.readline().split()
                if words[:1] != ["ottla"]:
                    raise Failed(f"the broker did not start: {words}; see {log.name}")
                found[words[1]] = words[3]
            yield {**os.environ, "OTTLA_BOOTSTRAP": found["ready"], "OTTLA_CONTROL": found["control"]}
        finally:
            process.terminate()
            process.wait(20)


def in_java() -> tuple[list[str], Path]:
    folder = jars(f"kafka-clients-{CLIENTS}", [f"org.apache.kafka:kafka-clients:{CLIENTS}"])
    return java(folder, PAGES / "OrdersTest.java"), FOLDER


def in_go(source: Path = PAGES / "orders_test.go") -> tuple[list[str], Path]:
    folder = FOLDER / f"go-{source.parent.name}"
    folder.mkdir(parents=True, exist_ok=True)
    for file in (FRANZ / "go.mod", FRANZ / "go.sum", source):
        shutil.copyfile(file, folder / file.name)
    command = [program("go"), "test", "-count=1", "."]
    fetched = subprocess.run([program("go"), "vet", "."], cwd=folder, capture_output=True, text=True)
    if fetched.returncode:
        raise Missing(f"franz-go: {fetched.stderr.strip()[-300:]}")
    return command, folder


def in_javascript(source: Path = PAGES / "orders.test.mjs") -> tuple[list[str], Path]:
    if missing := install_kafkajs():
        raise Missing(f"kafkajs: {missing}")
    folder = FOLDER / "node"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, folder / "orders.test.mjs")
    link = folder / "node_modules"
    link.unlink(missing_ok=True)
    link.symlink_to(NODE_MODULES)
    return [program("node"), "--test", "orders.test.mjs"], folder


def run(language: str) -> str:
    FOLDER.mkdir(parents=True, exist_ok=True)
    command, folder = LANGUAGES[language]()
    with controlled() as environ:
        environ["KAFKAJS_NO_PARTITIONER_WARNING"] = "1"
        requested = {"cwd": folder, "env": environ, "capture_output": True, "text": True, "timeout": PATIENCE_SECONDS}
        done = subprocess.run(command, **requested)
        if done.returncode:
            raise Failed(f"{done.stdout[-1500:]} {done.stderr[-1500:]}")
    return "passed, as the documentation has it"


LANGUAGES: dict[str, Callable[[], tuple[list[str], Path]]] = {
    "examples in Java": in_java,
    "examples in Go": in_go,
    "examples in JavaScript": in_javascript,
    "tutorial in Go": lambda: in_go(TUTORIAL / "go" / "orders_test.go"),
    "tutorial in JavaScript": lambda: in_javascript(TUTORIAL / "node" / "orders.test.mjs"),
}
CHECKS = [Check(language, lambda language=language: run(language)) for language in LANGUAGES]
