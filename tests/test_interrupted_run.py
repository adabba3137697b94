"""A run of the tests that is interrupted, terminated or killed leaves no processes and no folder."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla_testing import run_guard
from ottla_testing.patience import PATIENCE_S, until

pytestmark = pytest.mark.process

TESTS = Path(__file__).parent
ROOT = TESTS.parent

CONFTEST = """
from ottla_testing.run_guard import pytest_configure, pytest_sessionfinish, pytest_unconfigure
"""

SAMPLE = """
import json, os, subprocess, sys, tempfile, time
from pathlib import Path
from ottla.broker.testing.embedded import Embedded
from ottla_testing.clients.running_broker import RunningBroker

def test_it(tmp_path):
    broker = RunningBroker(tmp_path)
    in_a_session_of_its_own = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(mounted)]
    may_mount = subprocess.run(mount, capture_output=True).returncode == 0
    with Embedded(data_dir=tempfile.mkdtemp()):
        found = {"pid": os.getpid(), "folder": os.environ["TMPDIR"], "files": str(tmp_path)}
        found |= {"children": [broker.process.pid, in_a_session_of_its_own.pid]}
        Path(os.environ["READY"] + ".new").write_text(json.dumps(found))
        Path(os.environ["READY"] + ".new").rename(os.environ["READY"])
        assert os.environ["WHAT"] != "fail"
        while os.environ["WHAT"] == "wait":
            time.sleep(0.1)
    broker.close()
    in_a_session_of_its_own.kill()
    in_a_session_of_its_own.wait()
    if may_mount:
        subprocess.run(["umount", str(mounted)], check=True)
"""


def _takes_interrupts() -> None:
    """Children of a run in the background, as under nohup, are born ignoring SIGINT."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Run:
    """A small run of pytest with the project's fixtures, with a worker of pytest-xdist or without."""

    def __init__(self, folder: Path, what: str, workers: int, *, by_make: bool = False) -> None:
        self.folder, self.ready, self.values_file = folder, folder / "ready", folder / "said"
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "test_sample.py").write_text(SAMPLE)
        command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(folder)]
        command += ["-p", "no:randomly", "-p", "no:cacheprovider", "-n", str(workers), str(folder)]
        if by_make:
            given = [f"PYTEST={' '.join(command)}", f"TESTS_IN={self.temporary}", "SPARK_TESTS=", "IN_TWO="]
            command = ["make", "-C", str(ROOT), "-o", ".venv/installed", "test-spark", *given]
        environment = os.environ | {"TMPDIR": str(self.temporary), "READY": str(self.ready), "WHAT": what}
        with self.values_file.open("wb") as file:
            self.process = subprocess.Popen(
                command,
                stdout=file,
                stderr=file,
                cwd=folder,
                env=environment,
                start_new_session=True,
                preexec_fn=_takes_interrupts,
            )

    def found(self) -> dict[str, Any]:
        """The values that the test prints as soon as it runs."""

        def there() -> bool:
            assert self.process.poll() is None or self.ready.exists(), self.values_file.read_text()
            return self.ready.exists()

        until(there, self.values_file.read_text)
        return json.loads(self.ready.read_text())

    def left(self) -> list[int]:
        """The processes of the run that are alive."""
        return list(run_guard.left_over(Path(json.loads(self.ready.read_text())["folder"]).name))

    def await_nothing(self) -> None:
        """Returns when the run has left nothing."""
        self.process.wait(PATIENCE_S)
        until(lambda: not self.left(), lambda: (self.left(), self.values_file.read_text()))
        until(lambda: not list(self.temporary.iterdir()), lambda: list(self.temporary.iterdir()))


@pytest.mark.parametrize(
    ("how", "workers"),
    [(signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGKILL, 1), (signal.SIGKILL, 0)],
    ids=["SIGINT", "SIGTERM", "SIGKILL", "SIGKILL without workers"],
)
def test_run_that_is_ended_by_a_signal_leaves_no_process_and_no_folder(
    tmp_path: Path, how: signal.Signals, workers: int
) -> None:
    run = Run(tmp_path, "wait", workers)
    found = run.found()
    assert set(found["children"]) <= set(run.left())
    assert found["files"].startswith(found["folder"]) and Path(found["folder"]).parent == run.temporary
    if how is signal.SIGINT:
        os.killpg(run.process.pid, how)  # as a terminal does
    else:
        run.process.send_signal(how)
    run.await_nothing()


def test_make_that_is_terminated_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    run = Run(tmp_path, "wait", 0, by_make=True)
    assert set(run.found()["children"]) <= set(run.left())
    run.process.terminate()
    run.await_nothing()


def test_make_installs_no_system_package_by_default() -> None:
    goals = ["check", "test", "clients", "interop", "bench", "soak", "demo"]
    command = ["make", "--dry-run", "-C", str(ROOT), "-o", ".venv/installed", "-o", ".venv-old/installed"]
    for goal in goals:
        by_default = subprocess.run([*command, goal], capture_output=True, text=True, check=True).stdout
        assert by_default and not re.search(r"\bapt|\bdnf|\byum|\bapk\b|\bbrew", by_default), goal
    explicit = subprocess.run([*command, "system-packages"], capture_output=True, text=True, check=True).stdout
    assert "apt-get install" in explicit


def test_worker_that_is_killed_leaves_no_process_and_a_run_that_fails_names_its_folder(tmp_path: Path) -> None:
    run = Run(tmp_path, "wait", 1)
    found = run.found()
    assert found["pid"] != run.process.pid
    run.ready.unlink()
    os.kill(found["pid"], signal.SIGKILL)
    alive = set(found["children"])
    until(lambda: not any(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in alive if Path(f"/proc/{pid}").exists()))
    run.process.wait(PATIENCE_S)
    assert run.process.returncode == 1, run.values_file.read_text()
    kept = re.search(r"^the files of this run are kept in (.*)$", run.values_file.read_text(), re.M)
    assert kept is not None and kept[1] == found["folder"] and Path(kept[1]).is_dir()


def test_run_that_passes_leaves_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, "pass", 0)
    run.process.wait(PATIENCE_S)
    assert run.process.returncode == 0, run.values_file.read_text()
    assert not run.left() and not list(run.temporary.iterdir())
