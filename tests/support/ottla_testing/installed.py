"""Runs the shop's tests as a user has them: Ottla's wheel, built and installed into a new environment, far from here.

    python -m ottla_testing.installed [--workers N] [--every N] [ARGUMENTS OF PYTEST ...]

prints how long the tests took, and one line of JSON with it. The clients come from the environment that this runs in.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ottla_testing import ROOT, TESTS

EXAMPLES = TESTS / "examples"
NOT_BUILT = shutil.ignore_patterns(
    ".*", "build", "dist", "*.egg-info", "__pycache__", "data", "out", "tests", "node_modules"
)
WORKERS = 2
RUN_SECONDS = 600  # a bound

# Takes every n-th test from a given one on, before other plugins reorder them.
SAMPLE = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    config.hook.pytest_deselected(items=[item for n, item in enumerate(items) if n % {every} != {first}])
    items[:] = items[{first}::{every}]
"""


@dataclass(frozen=True, slots=True)
class Report:
    """How a run went; `seconds` are those of pytest from its start to its end."""

    passed: int
    failed: int
    seconds: float
    workers: int
    output: str


def build_wheel(folder: Path) -> Path:
    """Ottla's wheel, built from a copy of the checkout. Raises CalledProcessError."""
    source = shutil.copytree(ROOT, folder / "source", ignore=NOT_BUILT)
    program = "import sys\nfrom setuptools.build_meta import build_wheel\nbuild_wheel(sys.argv[1])\n"
    command = [sys.executable, "-c", program, str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("ottla-*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """Makes a new environment with the wheel in it, and this environment's other packages on its path; returns its
    python.

    Ottla itself is not on the path twice: `.pth` files of a folder that a `.pth` file adds are not read.
    """
    place = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True, capture_output=True)
    python = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True, capture_output=True, text=True)
    (site,) = place.glob("lib/python*/site-packages")
    (site / "clients.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def run_tests(
    python: Path, folder: Path, workers: int = WORKERS, every: int = 1, first: int = 0, arguments: Sequence[str] = ()
) -> Report:
    """Runs the shop's tests, or every n-th of them, in a copy of its folder."""
    shop = shutil.copytree(EXAMPLES, folder / "shop", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    command = [str(python), "-m", "pytest", "-q", "-n", str(workers), "-p", "no:cacheprovider", *arguments]
    if every > 1:
        (shop / "sample.py").write_text(SAMPLE.format(every=every, first=first))
        command += ["-p", "sample"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
    environment["PYTHONPATH"] = str(shop)
    started = time.monotonic()
    outcome = subprocess.run(command, cwd=shop, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS)
    seconds = time.monotonic() - started
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", outcome.stdout)}
    failed = counts.get("failed", 0) + counts.get("error", 0) or int(outcome.returncode != 0)
    return Report(counts.get("passed", 0), failed, round(seconds, 2), workers, outcome.stdout + outcome.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description="the shop's tests, with Ottla installed from its wheel")
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--every", type=int, default=1, help="only each n-th test")
    options, arguments = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = install(build_wheel(folder), folder)
        report = run_tests(python, folder, options.workers, options.every, arguments=arguments)
    result = asdict(report)
    print(result.pop("output"))
    print(json.dumps(result))
    return int(report.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
