"""The tutorials, run from nothing as their reader runs them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ottla_testing.patience import PATIENCE_S
from ottla_testing.sessions import DOCS, TUTORIALS, tutorial_session


@pytest.mark.process
@pytest.mark.parametrize("tutorial", ["moving-to-kafka-4", "operating"])
def test_console_session_prints_what_the_tutorial_shows(tutorial: str, tmp_path: Path) -> None:
    tutorial_session(tmp_path, tutorial).run((TUTORIALS / tutorial / "session.console").read_text())


@pytest.mark.process
def test_python_suite_of_the_tutorial_passes(tmp_path: Path) -> None:
    outcome = run_suite(tmp_path)
    assert outcome.returncode == 0, outcome.stdout
    assert "4 passed" in outcome.stdout


@pytest.mark.process
def test_python_suite_without_idempotence_fails_as_documented(tmp_path: Path) -> None:
    outcome = run_suite(tmp_path, "enable_idempotence=False, ")
    assert "assert [b'1', b'2', b'2'] == [b'1', b'2']" in outcome.stdout
    assert "2 failed, 2 passed" in outcome.stdout  # also the test that asserts idempotence


def run_suite(folder: Path, setting: str = "") -> subprocess.CompletedProcess[str]:
    shutil.copytree(TUTORIALS / "python-tests", folder, dirs_exist_ok=True)
    program = folder / "orders.py"
    program.write_text(program.read_text().replace("**settings)", setting + "**settings)"))
    command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", "-p", "no:randomly"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S)


def test_every_file_of_a_tutorial_is_shown_on_its_page() -> None:
    for folder in sorted(TUTORIALS.iterdir()):
        page = (DOCS / "start" / f"{folder.name}.md").read_text()
        included = set(re.findall(r'--8<-- "([^":]*)', page))
        shown = {DOCS.parent / name for name in included}
        files = {path for path in folder.rglob("*") if path.is_file()}
        assert files <= shown, files - shown


def test_every_section_of_a_session_is_shown_on_its_page() -> None:
    for path in sorted(TUTORIALS.rglob("*")):
        if path.is_file():
            folder = path.relative_to(TUTORIALS).parts[0]
            page = (DOCS / "start" / f"{folder}.md").read_text()
            for section in re.findall(r"--8<-- \[start:(\w+)\]", path.read_text()):
                assert f"{path.name}:{section}" in page, (path, section)
