"""The examples of first use with each client library in the documentation, run as written with a broker process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ottla_testing.patience import PATIENCE_S
from ottla_testing.snippets import ADDRESS, SNIPPETS, snippet

EXAMPLES = {path.stem: path.read_text() for path in sorted((SNIPPETS / "clients").glob("hello_*"))}
# kcat is a program of the system; `make test` installs it if possible and reports otherwise.
RUNNABLE = [name for name in EXAMPLES if name != "hello_kcat" or shutil.which("kcat")]


def test_each_client_library_has_an_example() -> None:
    names = ("aiokafka", "confluent_kafka", "kafka_python", "kcat", "ottla")
    assert list(EXAMPLES) == [f"hello_{name}" for name in names]
    assert all(ADDRESS in program for program in EXAMPLES.values())


@pytest.mark.slow
@pytest.mark.parametrize("example", RUNNABLE)
def test_example_of_first_use_works_as_written(example: str, example_broker: str, tmp_path: Path) -> None:
    program = EXAMPLES[example].replace(ADDRESS, example_broker)
    command = ["sh", "-ec", program] if example == "hello_kcat" else [sys.executable, "-c", program]
    outcome = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert "hello" in outcome.stdout


@pytest.mark.slow
def test_example_of_an_idempotent_producer_works_as_written(example_broker: str, tmp_path: Path) -> None:
    program = snippet("clients/idempotent_ottla.py").replace(ADDRESS, example_broker)
    outcome = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert sorted(outcome.stdout.split()) == ["0", "0", "0", "1"]
