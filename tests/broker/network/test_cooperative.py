"""Long work in steps: other events are served in between, few jobs run at once, and a cancelled job frees its place."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest

from ottla.broker.cooperative import AT_ONCE, CooperativeScheduler
from ottla.protocol.records.steps import Steps


def counting(steps: int, seen: list[int], name: int = 0) -> Steps[int]:
    for _ in range(steps):
        seen.append(name)
        yield None
    return steps


async def test_job_yields_to_the_loop_at_each_step() -> None:
    loop = asyncio.get_running_loop()
    scheduler = 0

    def count() -> None:
        nonlocal scheduler
        scheduler += 1
        loop.call_soon(count)

    seen: list[int] = []
    loop.call_soon(count)
    assert await CooperativeScheduler(loop).run(counting(50, seen)) == 50
    assert scheduler >= 50


async def test_blocking_call_runs_in_a_thread_and_returns_its_result() -> None:
    def work() -> Steps[list[Any]]:
        here = yield threading.get_ident
        try:
            yield lambda: 1 // 0
        except ZeroDivisionError as error:
            return [here, str(error)]
        raise AssertionError

    other, text = await CooperativeScheduler(asyncio.get_running_loop()).run(work())
    assert other != threading.get_ident() and text


async def test_failing_and_empty_jobs_free_their_place() -> None:
    def failing() -> Steps[None]:
        yield None
        raise ValueError("why")

    scheduler = CooperativeScheduler(asyncio.get_running_loop(), at_once=1)
    for _ in range(3):  # a failed job frees its place
        with pytest.raises(ValueError, match="why"):
            await scheduler.run(failing())
    assert await scheduler.run(counting(0, [])) == 0


async def test_few_jobs_run_at_once_in_order() -> None:
    seen: list[int] = []
    scheduler = CooperativeScheduler(asyncio.get_running_loop())
    works = [scheduler.run(counting(10, seen, name)) for name in range(3 * AT_ONCE)]
    await asyncio.gather(*works)
    for start in range(0, len(seen), 10 * AT_ONCE):
        assert len(set(seen[start : start + 10 * AT_ONCE])) == AT_ONCE
    assert list(dict.fromkeys(seen)) == list(range(3 * AT_ONCE))


def begin(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Starts a job as a connection starts a handler: runs it up to the future it waits for."""
    return coroutine.send(None)


@pytest.mark.parametrize("when", ["waiting", "called", "running", "in a thread"])
async def test_cancelled_job_frees_its_place(when: str) -> None:
    loop = asyncio.get_running_loop()
    scheduler = CooperativeScheduler(loop, at_once=1)
    closed: list[str] = []
    release = threading.Event()

    def work(name: str, step: Callable[[], Any] | None) -> Generator[Callable[[], Any] | None, Any, None]:
        try:
            yield step
            yield None
        finally:
            closed.append(name)

    first = scheduler.run(work("first", release.wait if when == "in a thread" else None))
    begin(first)
    if when in ("running", "in a thread"):
        first.close()
        release.set()
        assert closed == ["first"]
    else:
        second = scheduler.run(work("second", None))
        begin(second)
        if when == "waiting":
            second.close()
            first.close()
        else:
            first.close()  # the place goes to the second, which is cancelled before it starts
            second.close()
        assert closed == ["first"]
    seen: list[int] = []
    assert await scheduler.run(counting(2, seen)) == 2
