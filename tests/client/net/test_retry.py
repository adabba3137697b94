"""`retry`, on a loop whose time is simulated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.net.errors import ClientClosed, ClientError, ConnectionLost, KafkaError, RequestTimedOut
from ottla.client.net.retry import retry
from ottla.protocol.errors import ErrorCode
from ottla_testing.client.simulated_loop import STARTED_AT_S, SimulatedLoop

MOVED = KafkaError(ErrorCode.NOT_COORDINATOR)
REFUSED = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)


class Script:
    """Attempts with given outcomes: an error to raise, or a result to return, each after `takes_s` seconds. `began_s`
    has the time at which each attempt began."""

    def __init__(self, *outcomes: object, takes_s: float = 0.0) -> None:
        self._outcomes = list(outcomes)
        self._takes_s = takes_s
        self.began_s: list[float] = []

    async def attempt(self) -> object:
        self.began_s.append(round(asyncio.get_running_loop().time() - STARTED_AT_S, 6))
        await asyncio.sleep(self._takes_s)
        outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def run(self, *args: Any, backoff_s: Callable[[int], float] = lambda count: 0.1 * count, **options: Any) -> object:
        return SimulatedLoop().run(retry(self.attempt, backoff_s, *args, **options))


def test_retry_returns_the_first_result_after_growing_backoffs() -> None:
    script = Script(MOVED, ConnectionLost("gone"), "done")
    assert script.run(10.0) == "done"
    assert script.began_s == [0.0, 0.1, 0.3]


def test_retry_raises_an_error_that_is_not_retriable_at_once() -> None:
    failures: list[ClientError] = []
    for error in (REFUSED, ClientClosed("closed"), ValueError("no ClientError")):
        script = Script(error)
        with pytest.raises(type(error)) as raised:
            script.run(10.0, on_failure=failures.append)
        assert raised.value is error and script.began_s == [0.0]
    assert failures == []


def test_retry_raises_the_last_error_when_the_next_attempt_would_be_late() -> None:
    script = Script(ConnectionLost("first"), MOVED)
    failures: list[ClientError] = []
    with pytest.raises(KafkaError) as raised:
        script.run(0.6, on_failure=failures.append)
    assert raised.value is MOVED
    assert script.began_s == [0.0, 0.1, 0.3]  # the next one would begin at 0.6
    assert [type(error) for error in failures] == [ConnectionLost, KafkaError, KafkaError]


def test_retry_raises_the_last_error_after_its_attempts() -> None:
    script = Script(MOVED)
    with pytest.raises(KafkaError):
        script.run(attempts=4)
    assert len(script.began_s) == 4


def test_retry_without_an_end_continues_until_a_result() -> None:
    script = Script(*[MOVED] * 50, "done")
    assert script.run(backoff_s=lambda count: 1.0) == "done"
    assert script.began_s == [float(second) for second in range(51)]


def test_retry_cancels_an_attempt_at_the_deadline_and_raises_late() -> None:
    late = RequestTimedOut("no response")
    for script in (Script("never", takes_s=1e6), Script(MOVED, "never", takes_s=2.0)):
        with pytest.raises(RequestTimedOut) as raised:
            script.run(3.0, late=lambda: late)
        assert raised.value is late


def test_retry_without_late_lets_an_attempt_pass_the_deadline() -> None:
    assert Script("done", takes_s=5.0).run(3.0) == "done"


def test_retry_without_late_raises_the_timeout_of_an_attempt() -> None:
    with pytest.raises(TimeoutError):
        Script(TimeoutError(), "done").run(3.0)


def test_retry_that_is_cancelled_makes_no_further_attempt() -> None:
    script = Script(MOVED)

    async def cancelled() -> None:
        task = asyncio.ensure_future(retry(script.attempt, lambda count: 1.0, 100.0))
        await asyncio.sleep(2.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(10)

    SimulatedLoop().run(cancelled())
    assert script.began_s == [0.0, 1.0, 2.0]
