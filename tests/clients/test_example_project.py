"""The example project, run as its user runs it: from Ottla's wheel in an environment of its own, with pytest-xdist.

Each run takes another share of its tests, all of them from OTTLA_TEST_SCALE 5 on; `ottla_testing.installed` by itself
runs all of them and prints their times.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla_testing.installed import build_wheel, install, run_tests

SHARE = 5  # at scale 1 every fifth test
TESTS = 200  # there are at least this many


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("example")


@pytest.fixture(scope="module")
def python(folder: Path) -> Path:
    """The python of an environment into which the wheel was installed."""
    return install(build_wheel(folder), folder)


def test_environment_imports_ottla_from_its_wheel(python: Path, folder: Path) -> None:
    program = (
        "import ottla.broker.testing.embedded as one, kafka as other; print(one.__file__, other.__file__, sep='\\n')"
    )
    outcome = subprocess.run([python, "-P", "-c", program], cwd=folder, capture_output=True, text=True)
    ours, theirs = map(Path, outcome.stdout.splitlines())
    assert ours.is_relative_to(folder / "environment")
    assert not theirs.is_relative_to(folder)


@pytest.mark.slow
def test_tests_of_the_shop_pass(python: Path, folder: Path, scaled: Callable[[int], int]) -> None:
    every = max(1, round(SHARE / (scaled(1000) / 1000)))
    report = run_tests(python, folder, every=every, first=random.randrange(every))
    assert not report.failed, report.output
    assert report.passed >= TESTS // every, report.output


def test_project_uses_only_the_fixtures_of_ottla() -> None:
    """What it shows, any project can do."""
    project = Path(__file__).resolve().parents[1] / "examples"
    for path in (*project.glob("shop/**/*.py"), *project.glob("tests/*.py")):
        lines = path.read_text().splitlines()
        assert not [line for line in lines if "import" in line and "ottla." in line], path
