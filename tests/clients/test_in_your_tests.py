"""The Python tests in the documentation, run as written, in a folder outside of this checkout."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from ottla_testing.patience import PATIENCE_S
from ottla_testing.snippets import snippet


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    outcome = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome


def test_example_for_pytest_works(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(program := snippet("testing/test_orders.py"))
    outcome = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py")
    functions = [one for one in ast.parse(program).body if isinstance(one, ast.FunctionDef)]
    tests = [one for one in functions if one.name.startswith("test_")]
    assert f"{len(tests) + 1} passed" in outcome.stdout, outcome.stdout  # one of them has two cases


@pytest.mark.parametrize(
    ("name", "tests"),
    [("test_first", 2), ("test_faults", 4), ("test_requests", 3), ("test_security", 2), ("test_tokens", 2)],
)
def test_tests_of_a_page_pass_with_pytest(name: str, tests: int, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").write_text(snippet(f"testing/{name}.py"))
    assert f"{tests} passed" in run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{name}.py").stdout


def test_example_for_pytest_asyncio_works(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(snippet("testing/test_orders_asyncio.py"))
    assert "2 passed" in run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py").stdout


@pytest.mark.parametrize("arguments", [["test_orders.py"], ["-m", "unittest", "test_orders"]])
def test_example_for_unittest_works(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "test_orders.py").write_text(snippet("testing/test_orders_unittest.py"))
    assert "Ran 1 test" in run(tmp_path, *arguments).stderr


def test_example_without_a_framework_works(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(snippet("testing/orders_embedded.py"))
    lines = run(tmp_path, "orders.py").stdout.splitlines()
    assert lines[0] == "bread"
    ((place, offset),) = ast.literal_eval(lines[1]).items()
    assert (place[1], offset) == (0, 1)
