"""The README's transactions with each client, run as they stand there against a broker of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla_testing.clients.readme import ADDRESS, README
from ottla_testing.patience import PATIENCE_S


def examples() -> dict[str, str]:
    """Client -> its program, from the part of the README between the `transactions` marks."""
    match = re.search(r"<!-- transactions -->\n(.*?)<!-- /transactions -->", README, re.DOTALL)
    assert match
    return dict(re.findall(r"^([a-z-]+)[:,].*?```python\n(.*?)```", match[1], re.DOTALL | re.MULTILINE))


EXAMPLES = examples()


def test_there_is_one_for_each_client_that_has_transactions() -> None:
    assert list(EXAMPLES) == ["kafka-python", "confluent-kafka", "aiokafka", "ottla"]
    assert all(ADDRESS in program for program in EXAMPLES.values())


@pytest.mark.slow
@pytest.mark.parametrize("client", EXAMPLES)
def test_transactions_work_as_written(client: str, readme_broker: str, tmp_path: Path) -> None:
    program = EXAMPLES[client].replace(ADDRESS, readme_broker)
    outcome = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "hello" in outcome.stdout and "never" not in outcome.stdout
