"""The GitHub Action and the GitLab template: their own commands, run by a shell, start a broker that responds."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from ottla_testing import ROOT
from ottla_testing.patience import PATIENCE_S

ACTION = ROOT / ".github" / "actions" / "ottla" / "action.yml"
TEMPLATE = ROOT / ".gitlab" / "ottla.yml"


def parsed(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text())


def installed(folder: Path) -> None:
    """An environment as the installation step leaves it, with the `ottla` of this interpreter."""
    scripts = folder / "bin"
    scripts.mkdir(parents=True)
    (scripts / "ottla").symlink_to(Path(sys.executable).parent / "ottla")


@contextmanager
def shell(script: str, folder: Path, environment: Mapping[str, str]) -> Iterator[subprocess.CompletedProcess[str]]:
    """Runs a script as the CI service does. At the end, the broker that it may have started is stopped."""
    bash = shutil.which("bash")
    assert bash is not None
    command = [bash, "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", f"{script}\necho pid=$!"]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=PATIENCE_S
    )
    try:
        yield done
    finally:
        found = re.search(r"^pid=(\d+)$", done.stdout, re.MULTILINE)
        if found:
            os.kill(int(found[1]), signal.SIGTERM)


def produce_one(address: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    producer.produce("greetings", b"hello")
    assert producer.flush(PATIENCE_S) == 0


def action_step(name: str) -> str:
    return next(step["run"] for step in parsed(ACTION)["runs"]["steps"] if step["name"] == name)


def test_action_passes_every_input_to_a_step() -> None:
    action = parsed(ACTION)
    steps = action["runs"]["steps"]
    passed = " ".join(value for step in steps for value in step["env"].values())
    assert all(f"inputs.{name}" in passed for name in action["inputs"])
    assert all(f"${name}" in step["run"] for step in steps for name in step["env"])


@pytest.mark.process
def test_action_starts_a_broker_for_later_steps(tmp_path: Path) -> None:
    installed(tmp_path / "ottla")
    outputs, environment = tmp_path / "outputs", tmp_path / "environment"
    given = {
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_OUTPUT": str(outputs),
        "GITHUB_ENV": str(environment),
        "PORT": "0",
        "RELEASE": "3.9",
        "CONFIGS": "num.partitions=3\nlog.retention.ms=1000\n",
    }
    with shell(action_step("Start Ottla"), tmp_path, given) as done:
        assert done.returncode == 0, done.stderr
        found = re.fullmatch(r"bootstrap-servers=(127\.0\.0\.1:\d+)\n", outputs.read_text())
        assert found is not None
        produce_one(found[1])
        names = dict(line.split("=", 1) for line in environment.read_text().splitlines())
        assert names["OTTLA_BOOTSTRAP_SERVERS"] == found[1]
        assert "ottla ready on" in Path(names["OTTLA_LOG"]).read_text()


@pytest.mark.process
def test_action_fails_with_the_log_of_a_broker_that_does_not_start(tmp_path: Path) -> None:
    installed(tmp_path / "ottla")
    given = {"RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": os.devnull, "GITHUB_ENV": os.devnull}
    given |= {"PORT": "0", "RELEASE": "", "CONFIGS": "num.partitions=many"}
    with shell(action_step("Start Ottla"), tmp_path, given) as done:
        assert done.returncode == 1 and "num.partitions" in done.stderr


@pytest.mark.process
def test_template_starts_a_broker_before_the_script(tmp_path: Path) -> None:
    installed(tmp_path / "ottla")
    job = parsed(TEMPLATE)[".ottla"]
    start = job["before_script"][-1] + "\necho at=$OTTLA_BOOTSTRAP_SERVERS"
    given = job["variables"] | {"CI_BUILDS_DIR": str(tmp_path), "OTTLA_PORT": "0", "OTTLA_RELEASE": "4.3"}
    with shell(start, tmp_path, given) as done:
        assert done.returncode == 0, done.stderr
        found = re.search(r"^at=(127\.0\.0\.1:\d+)$", done.stdout, re.MULTILINE)
        assert found is not None
        produce_one(found[1])
