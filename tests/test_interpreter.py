"""The Python that `make` chooses for .venv, and its message."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla_testing import ROOT, interpreter

CHOOSE = ROOT / "tests" / "choose_python.sh"


def chosen(folder: Path, **ranks: str) -> str:
    """What the script prints where PATH has only interpreters whose names and `--rank` lines are given."""
    for name, line in ranks.items():
        program = folder / name.replace("_", ".")
        program.write_text(f"#!/bin/sh\n{f'echo {line}' if line else 'exit 1'}\n")
        program.chmod(0o755)
    for name in ("dirname", "sort", "head", "cut"):
        (folder / name).symlink_to(f"/usr/bin/{name}")
    environment = {"PATH": str(folder)}
    done = subprocess.run(["/bin/sh", CHOOSE], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_choose_python_with_an_optimised_build_prefers_it_to_a_newer_one(tmp_path: Path) -> None:
    assert chosen(tmp_path, python3="1 3.13 /a", python3_11="2 3.11 /b", python3_12="1 3.12 /c") == "/b"


def test_choose_python_among_equal_builds_takes_the_newest(tmp_path: Path) -> None:
    assert chosen(tmp_path, python3="1 3.9 /a", python3_12="1 3.12 /b", python3_11="1 3.11 /c") == "/b"


def test_choose_python_takes_an_untried_release_only_where_there_is_no_other(tmp_path: Path) -> None:
    assert chosen(tmp_path, python3_15="0 3.15 /a", python3_11="1 3.11 /b c") == "/b c"


def test_choose_python_without_a_usable_interpreter_prints_nothing(tmp_path: Path) -> None:
    assert chosen(tmp_path, python3="") == ""


def test_rank_of_the_running_python_matches_its_build(monkeypatch: pytest.MonkeyPatch) -> None:
    assert interpreter.rank() in (0, 1 + interpreter.optimised())
    command = [sys.executable, str(ROOT / "tests" / "support" / "ottla_testing" / "interpreter.py"), "--rank"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.split()[:2] == [str(interpreter.rank()), "{}.{}".format(*sys.version_info)]
    monkeypatch.setattr(sys, "version_info", (3, 10, 1))
    assert interpreter.rank() == -1
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))
    assert interpreter.rank() == 0
