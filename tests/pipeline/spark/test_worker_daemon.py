"""The start of Spark's Python processes: the end of a JVM is no error of theirs, and modules are no garbage."""

from __future__ import annotations

import gc
import socket
import sys
import traceback
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from ottla.pipeline import worker_daemon
from ottla.pipeline.sources.source import quiet_planner


@pytest.fixture
def peer() -> socket.socket:
    left, right = socket.socketpair()
    right.close()
    return left


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A `__main__` in the place of PySpark's daemon, whose functions look these names up when they need them."""
    module = ModuleType("__main__")
    module.__spec__ = ModuleSpec("pyspark.daemon", None)
    vars(module)["traceback"] = traceback
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


def test_process_whose_jvm_is_gone_ends_without_a_traceback(
    peer: socket.socket, main: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    with peer:
        try:
            quiet_planner()  # in the middle of the work
            peer.sendall(b"the rest of a result")
        except BrokenPipeError:
            vars(main)["traceback"].print_exc()
    assert capfd.readouterr() == ("", "")
    try:
        raise ValueError("wrong")
    except ValueError:
        vars(main)["traceback"].print_exc()
    assert capfd.readouterr().err.endswith("ValueError: wrong\n")


def test_objects_of_the_first_task_are_not_looked_at_again(
    peer: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_daemon, "_worker", lambda sock, authenticated: 0)
    with peer:
        try:
            assert worker_daemon.worker(peer, True) == 0
            frozen = gc.get_freeze_count()
            assert frozen > 0
            assert worker_daemon.worker(peer, True) == 0
            assert gc.get_freeze_count() <= frozen
        finally:
            gc.unfreeze()


@pytest.mark.parametrize(("name", "is_planner"), [("pyspark.daemon", True), (None, False), ("pytest.__main__", False)])
def test_process_in_which_spark_plans_works_likewise(name: str | None, *, is_planner: bool, main: ModuleType) -> None:
    main.__spec__ = name and ModuleSpec(name, None)  # type: ignore[assignment]
    quiet_planner()
    assert getattr(main, "worker", None) is (worker_daemon.worker if is_planner else None)
    assert (vars(main)["traceback"] is traceback) is not is_planner
