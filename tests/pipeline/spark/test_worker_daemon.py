"""The start of Spark's Python processes: the end of a JVM is no error of theirs, and modules are no garbage."""

from __future__ import annotations

import gc
import socket
import sys
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


def test_process_whose_jvm_is_gone_ends_without_a_traceback(
    peer: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def worker(sock: socket.socket, authenticated: bool) -> int:
        sock.sendall(b"the rest of a result")
        return 0

    monkeypatch.setattr(worker_daemon, "_worker", worker)
    with peer:
        assert worker_daemon.worker(peer, True) == 1


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
def test_process_in_which_spark_plans_ends_likewise(
    name: str | None, *, is_planner: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its daemon is that of PySpark, which calls `worker` by this name for each work."""
    main = ModuleType("__main__")
    main.__spec__ = name and ModuleSpec(name, None)  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "__main__", main)
    quiet_planner()
    assert getattr(main, "worker", None) is (worker_daemon.worker if is_planner else None)
