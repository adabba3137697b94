"""Fixtures and rules of all tests: sizes that scale, the tiers, and reports at the end of a run.

OTTLA_TEST_SCALE (a number, default 1) multiplies sizes and the number of Hypothesis's examples. Below 0.3, the scale of
`make test-all`, tests that stop at each step of some work take every sixth step. With OTTLA_SOAK_REPORT set to a path,
the session's outcome is written there as JSON.

`make test` runs the tests without the marks `process`, `slow`, `clients` and `spark`; `make test-all` runs those at
full scale, and again the tests with the mark `soak`. Marks that follow from a test's folder or fixtures are set here.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from ottla.broker.logs import get_logger
from ottla_testing.each import STRIDE
from ottla_testing.old_environment import has_kafkajs
from ottla_testing.run_guard import pytest_configure, pytest_sessionfinish, pytest_unconfigure

with warnings.catch_warnings():  # kafka-python causes one, attributed to the standard library
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record.default_records  # noqa: F401

    from ottla_testing.clients import kafka_python_sockets

kafka_python_sockets.install()
get_logger()  # otherwise the first broker within a test that captures its output would log to a closed stream

__all__ = ["pytest_configure", "pytest_sessionfinish", "pytest_unconfigure"]

collect_ignore = ["examples"]  # a project of its own; tests/clients/test_example_project.py runs it

SCALE = float(os.environ.get("OTTLA_TEST_SCALE", "1"))
STARTED = time.monotonic()
TESTS = Path(__file__).parent
HISTORIES = TESTS / "history"
MARK_OF_FOLDER = {f"{TESTS / 'clients'}/": "clients", f"{TESTS / 'pipeline' / 'spark'}/": "spark"}
MARKS_OF_PROCESSES = ("process", "smoke", "clients", "spark")
SIZED_FIXTURES = {"scaled", "stride"}

_running: pytest.Item | None = None

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


@pytest.fixture(scope="session")
def stride() -> int:
    """Returns the distance between the steps at which a test stops some work, `each.STRIDE`."""
    return STRIDE


def pytest_itemcollected(item: pytest.Item) -> None:
    """Sets the mark of the test's folder, and `soak` on a test whose size follows OTTLA_TEST_SCALE."""
    for folder, mark in MARK_OF_FOLDER.items():
        if str(item.path).startswith(folder):
            item.add_marker(mark)
    function = getattr(item, "obj", None)
    sized = SIZED_FIXTURES.intersection(getattr(item, "fixturenames", ()))
    if sized or getattr(function, "is_hypothesis_test", False):
        item.add_marker("soak")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the histories first, in their random order: the longest test, begun last, would end alone."""
    items.sort(key=lambda item: HISTORIES not in item.path.parents)


def pytest_collection_finish() -> None:
    """Exempts what was collected, half a million objects, from garbage collections: it lives as long as the run."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Stores the running test for the hook below."""
    global _running
    _running = item
    try:
        return (yield)
    finally:
        _running = None


def starts_a_broker(command: object) -> bool:
    """Returns whether a command line starts a broker process or another run of pytest."""
    words = [str(word) for word in command] if isinstance(command, list | tuple) else str(command).split()
    programs = {"ottla.tools", "ottla"} & {Path(word).name for word in words[:3]}
    return bool(programs and "serve" in words) or bool({"ottla.tools.image", "pytest"} & set(words[1:3]))


def _refuse_unmarked_processes(event: str, arguments: tuple[object, ...]) -> None:
    """An audit hook: fails a test that starts a broker process without the mark that excludes it from `make test`."""
    if event != "subprocess.Popen" or _running is None or not starts_a_broker(arguments[1]):
        return
    if not any(_running.get_closest_marker(mark) for mark in MARKS_OF_PROCESSES):
        raise RuntimeError("this test starts a broker or pytest as a process: mark it `process`")


sys.addaudithook(_refuse_unmarked_processes)


def pytest_report_header() -> str:
    return f"OTTLA_TEST_SCALE={SCALE:g}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    """Prints what could not run; writes the soak report: scale, seed, seconds, counts, names of failed tests."""
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
