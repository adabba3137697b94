"""Long work in turns: others get theirs in between, few works run at once, and a client that goes frees its place."""

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


async def test_others_get_a_turn_at_each_step() -> None:
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


async def test_a_long_call_runs_in_another_thread_and_its_result_comes_back() -> None:
    def work() -> Steps[list[Any]]:
        here = yield threading.get_ident
        try:
            yield lambda: 1 // 0
        except ZeroDivisionError as error:
            return [here, str(error)]
        raise AssertionError

    other, text = await CooperativeScheduler(asyncio.get_running_loop()).run(work())
    assert other != threading.get_ident() and text


async def test_errors_and_empty_work() -> None:
    def failing() -> Steps[None]:
        yield None
        raise ValueError("why")

    scheduler = CooperativeScheduler(asyncio.get_running_loop(), at_once=1)
    for _ in range(3):  # a failure gives its place back
        with pytest.raises(ValueError, match="why"):
            await scheduler.run(failing())
    assert await scheduler.run(counting(0, [])) == 0


async def test_few_works_run_at_once_and_the_first_come_first() -> None:
    seen: list[int] = []
    scheduler = CooperativeScheduler(asyncio.get_running_loop())
    works = [scheduler.run(counting(10, seen, name)) for name in range(3 * AT_ONCE)]
    await asyncio.gather(*works)
    for start in range(0, len(seen), 10 * AT_ONCE):
        assert len(set(seen[start : start + 10 * AT_ONCE])) == AT_ONCE
    assert list(dict.fromkeys(seen)) == list(range(3 * AT_ONCE))


def begin(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a connection does with a handler: runs it up to the future it waits for."""
    return coroutine.send(None)


@pytest.mark.parametrize("when", ["waiting", "called", "running", "in a thread"])
async def test_abandoned_work_gives_its_place_back(when: str) -> None:
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
            first.close()  # the place goes to the second, which is gone before it takes it
            second.close()
        assert closed == ["first"]
    seen: list[int] = []
    assert await scheduler.run(counting(2, seen)) == 2
