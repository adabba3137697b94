"""The README's first use with each client, run as it stands there against a broker of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ottla_testing.clients.readme import ADDRESS, README
from ottla_testing.patience import PATIENCE_S


def examples() -> dict[str, str]:
    """Client -> its program, from the part of the README between the `clients` marks: Python, or shell for kcat."""
    match = re.search(r"<!-- clients -->\n(.*?)<!-- /clients -->", README, re.DOTALL)
    assert match
    found: dict[str, str] = {}
    for section in re.split(r"^(?=[a-z-]+:$)", match[1], flags=re.MULTILINE)[1:]:
        name, _, text = section.partition(":\n")
        code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
        found[name] = code[1] if code else "\n".join(re.findall(r"^    (.*)$", text, re.MULTILINE))
    return found


EXAMPLES = examples()
# kcat is a program of the system; `make test` installs it where it can and says so where it cannot.
RUNNABLE = [name for name in EXAMPLES if name != "kcat" or shutil.which("kcat")]


def test_there_is_one_for_each_client() -> None:
    assert list(EXAMPLES) == ["kafka-python", "confluent-kafka", "aiokafka", "kcat", "ottla"]
    assert all(ADDRESS in program for program in EXAMPLES.values())


@pytest.mark.slow
@pytest.mark.parametrize("client", RUNNABLE)
def test_the_first_use_works_as_written(client: str, readme_broker: str, tmp_path: Path) -> None:
    program = EXAMPLES[client].replace(ADDRESS, readme_broker)
    command = ["sh", "-ec", program] if client == "kcat" else [sys.executable, "-c", program]
    outcome = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert "hello" in outcome.stdout
