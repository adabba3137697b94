"""Interrupted starts and stops of an embedded broker leave no thread, and no call that waits for ever."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.broker import Embedded
from ottla.broker.admin_api.operations import OperationError, Operations


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ottla-embedded"]


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 50, 500])
async def test_task_cancelled_during_the_start_leaves_no_broker(steps: int):
    before = own_threads()

    async def use() -> None:
        async with Embedded():
            await asyncio.Event().wait()

    task = asyncio.create_task(use())
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert own_threads() == before


async def test_broker_that_is_ready_when_its_task_is_cancelled_is_stopped():
    before = own_threads()
    broker = Embedded()

    async def use() -> None:
        async with broker:
            raise AssertionError("cancelled before")

    task = asyncio.create_task(use())
    while not broker.bootstrap:  # set in its thread, which wakes this loop in a later step
        await asyncio.sleep(0)
    while broker._thread.operations is None:
        pass
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert own_threads() == before
    with broker:  # as new
        broker.send("t", "x")


def test_interrupt_during_the_start_leaves_no_broker(monkeypatch: pytest.MonkeyPatch):
    before = own_threads()
    waited: list[bool] = []
    wait = concurrent.futures.Future.result

    def interrupted(self: concurrent.futures.Future[None], timeout: float | None = None) -> None:
        wait(self, timeout)
        if not waited:
            waited.append(True)
            raise KeyboardInterrupt

    broker = Embedded()
    monkeypatch.setattr(concurrent.futures.Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        broker.start()
    monkeypatch.undo()
    assert waited and own_threads() == before
    broker.stop()


@pytest.mark.parametrize("on_disk", [False, True])
def test_calls_after_the_stop_do_not_change_the_data(tmp_path: Path, on_disk: bool):
    """Operations that wait while the broker stops are refused."""
    folder = tmp_path / "data" if on_disk else None
    reported: list[str] = []
    with Embedded(data_dir=folder) as broker:
        broker.send("t", "kept")
        snapshot = broker.snapshot()
        broker.send("t", "later")

        async def after_stop(work: Callable[[], Awaitable[object]]) -> None:
            try:
                await work()
            except OperationError as error:
                reported.append(str(error))

        async def all_at_once(operations: Operations) -> None:
            works = [
                operations.stop,
                lambda: operations.restore(snapshot),
                operations.reset,
                operations.snapshot,
                lambda: operations.moving(lambda clock: clock.advance(1)),
            ]
            await asyncio.gather(*map(after_stop, works))
            await after_stop(lambda: operations.send("t", "never"))
            await after_stop(lambda: operations.records("t"))
            await after_stop(operations.topics)

        broker._thread.call(all_at_once)
    assert reported == ["the broker does not run"] * 7
    with broker if folder is None else Embedded(data_dir=folder) as again:
        again.assert_produced("t", ["kept", "later"])
