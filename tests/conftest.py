"""What every test may use: sizes that scale, and Hypothesis set up so that a failure can be repeated.

OTTLA_TEST_SCALE (a number, default 1) multiplies sizes and the number of Hypothesis's examples. With OTTLA_SOAK_REPORT
set to a path, the session's outcome is written there as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "support"))
from old_environment import has_kafkajs
from run_guard import pytest_configure, pytest_sessionfinish, pytest_unconfigure

__all__ = ["pytest_configure", "pytest_sessionfinish", "pytest_unconfigure"]

collect_ignore = ["examples"]  # a project of its own; tests/clients/test_example_project.py runs it

SCALE = float(os.environ.get("OTTLA_TEST_SCALE", "1"))
STARTED = time.monotonic()

# Examples differ from run to run; a failure prints the blob that repeats it. No deadline: the machine may be busy.
settings.register_profile(
    "ottla",
    max_examples=max(1, int(60 * SCALE)),
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ottla")


@pytest.fixture(scope="session")
def scaled() -> Callable[[int], int]:
    """`scaled(n)` is n times OTTLA_TEST_SCALE, and at least 1."""
    return lambda n: max(1, int(n * SCALE))


def pytest_report_header() -> str:
    return f"OTTLA_TEST_SCALE={SCALE:g}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Says what could not run; writes the soak report: scale, seed, seconds, counts, and the names of what failed."""
    if shutil.which("kcat") is None and not hasattr(config, "workerinput"):
        # Its tests are not collected then: a run without it must not be taken for one with it.
        terminalreporter.write_line("kcat: not run (no kcat here; `make system-packages` installs it)")
    if not has_kafkajs() and not hasattr(config, "workerinput"):
        terminalreporter.write_line("kafkajs: not run (no node here, or `make kafkajs` was not run)")
    target = os.environ.get("OTTLA_SOAK_REPORT")
    if not target or hasattr(config, "workerinput"):
        return
    counts = {kind: len(reports) for kind, reports in terminalreporter.stats.items() if kind}
    report = {
        "scale": SCALE,
        "seed": config.getoption("randomly_seed", None),
        "seconds": round(time.monotonic() - STARTED, 1),
        "exit_status": int(exitstatus),
        "counts": counts,
        "failed": [getattr(failed, "nodeid", "") for failed in terminalreporter.stats.get("failed", [])],
    }
    path = Path(target)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
