"""Whoever starts an embedded broker may be interrupted: nothing of it is left then, and nobody waits for ever."""

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


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 50, 500])
async def test_a_task_that_is_cancelled_while_the_broker_starts_leaves_none(turns: int):
    before = own_threads()

    async def use() -> None:
        async with Embedded():
            await asyncio.Event().wait()

    task = asyncio.create_task(use())
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert own_threads() == before


async def test_one_that_is_ready_when_its_task_is_cancelled_is_stopped():
    before = own_threads()
    broker = Embedded()

    async def use() -> None:
        async with broker:
            raise AssertionError("cancelled before")

    task = asyncio.create_task(use())
    while not broker.bootstrap:  # set in its thread, which tells it to this loop for a later turn
        await asyncio.sleep(0)
    while broker._thread.operations is None:
        pass
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert own_threads() == before
    with broker:  # as new
        broker.send("t", "x")


def test_an_interrupt_while_the_broker_starts_leaves_none(monkeypatch: pytest.MonkeyPatch):
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
def test_what_comes_behind_the_stop_is_not_done_to_the_data(tmp_path: Path, on_disk: bool):
    """Two things at once: whichever has its turn behind the stop is told that there is no broker any more."""
    folder = tmp_path / "data" if on_disk else None
    told: list[str] = []
    with Embedded(data_dir=folder) as broker:
        broker.send("t", "kept")
        snapshot = broker.snapshot()
        broker.send("t", "later")

        async def behind(work: Callable[[], Awaitable[object]]) -> None:
            try:
                await work()
            except OperationError as error:
                told.append(str(error))

        async def all_at_once(operations: Operations) -> None:
            works = [
                operations.stop,
                lambda: operations.restore(snapshot),
                operations.reset,
                operations.snapshot,
                lambda: operations.moving(lambda clock: clock.advance(1)),
            ]
            await asyncio.gather(*map(behind, works))
            await behind(lambda: operations.send("t", "never"))
            await behind(lambda: operations.records("t"))
            await behind(operations.topics)

        broker._thread.call(all_at_once)
    assert told == ["the broker does not run"] * 7
    with broker if folder is None else Embedded(data_dir=folder) as again:
        again.assert_produced("t", ["kept", "later"])
