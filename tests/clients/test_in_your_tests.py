"""The README's page for Python, run as it stands there, far from this checkout."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla_testing import ROOT
from ottla_testing.patience import PATIENCE_S

README = (ROOT / "README.md").read_text()


def programs() -> dict[str, str]:
    """pytest, unittest, asyncio or Embedded -> its program, from the part between the `in-your-tests` marks."""
    match = re.search(r"<!-- in-your-tests -->\n(.*?)<!-- /in-your-tests -->", README, re.DOTALL)
    assert match
    found = re.findall(r"^```python\n(.*?)^```$", match[1], re.DOTALL | re.MULTILINE)
    return dict(zip(("pytest", "unittest", "asyncio", "Embedded"), found, strict=True))


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    outcome = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome


def test_it_works_with_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(program := programs()["pytest"])
    outcome = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py")
    functions = [one for one in ast.parse(program).body if isinstance(one, ast.FunctionDef)]
    tests = [one for one in functions if one.name.startswith("test_")]
    assert f"{len(tests) + 1} passed" in outcome.stdout, outcome.stdout  # one of them has two cases


def test_it_works_with_pytest_asyncio(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(programs()["asyncio"])
    assert "2 passed" in run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py").stdout


@pytest.mark.parametrize("arguments", [["test_orders.py"], ["-m", "unittest", "test_orders"]])
def test_it_works_with_unittest(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "test_orders.py").write_text(programs()["unittest"])
    assert "Ran 1 test" in run(tmp_path, *arguments).stderr


def test_it_works_on_its_own(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(programs()["Embedded"])
    lines = run(tmp_path, "orders.py").stdout.splitlines()
    assert lines[0] == "bread"
    ((place, offset),) = ast.literal_eval(lines[1]).items()
    assert (place[1], offset) == (0, 1)
