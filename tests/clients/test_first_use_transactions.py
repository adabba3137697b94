"""The examples of transactions with each client library in the documentation, run as written with a broker process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla_testing.patience import PATIENCE_S
from ottla_testing.snippets import ADDRESS, SNIPPETS

EXAMPLES = {path.stem: path.read_text() for path in sorted((SNIPPETS / "clients").glob("transaction_*"))}


def test_each_client_library_with_transactions_has_an_example() -> None:
    assert list(EXAMPLES) == [
        f"transaction_{name}" for name in ("aiokafka", "confluent_kafka", "kafka_python", "ottla")
    ]
    assert all(ADDRESS in program for program in EXAMPLES.values())


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_example_of_transactions_works_as_written(example: str, example_broker: str, tmp_path: Path) -> None:
    program = EXAMPLES[example].replace(ADDRESS, example_broker)
    outcome = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "hello" in outcome.stdout and "never" not in outcome.stdout
