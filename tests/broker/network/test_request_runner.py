"""Running handlers without tasks: the private behaviour of asyncio that it relies on, and the contract of runners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop

from ottla.broker.context import RequestContext
from ottla.broker.network.large_requests import LargeRequestRunner, LargeResponseRunner
from ottla.broker.network.metered_runner import MeteredRunner
from ottla.broker.network.request_runner import HandlerRunner, Recipient, RequestRunner, WrappingRunner
from ottla.protocol.errors import ProtocolViolation
from ottla.protocol.messages.cluster.api_versions import ApiVersionsResponse
from ottla_testing.broker.routes import ROUTES

ROUTE = ROUTES[18]
HEADER = b"\0\0\0\7"
Handling = Coroutine[Any, Any, Any]


class NoRecipient:
    """A recipient for runners that delay no response."""

    def is_wanted(self) -> bool:
        raise AssertionError

    def abort(self) -> None:
        raise AssertionError


class CountingMeter:
    """A meter that charges nothing and counts the steps; with `late` the response waits for that future."""

    def __init__(self, late: asyncio.Future[None] | None = None) -> None:
        self.steps: list[str] = []
        self.late = late
        self.throttle_ms = 0
        self.mutes = ()
        self.cancelled = False

    def begin_step(self) -> None:
        self.steps.append("begin")

    def end_step(self) -> None:
        if self.steps[-1] == "begin":
            self.steps.append("end")

    def charge(self) -> None:
        self.steps.append("charge")

    def hold_back(self) -> Any:
        return None if self.late is None else (self.late, self)

    def cancel(self) -> None:
        self.cancelled = True

    def timer(self) -> int:
        return 0

    def add_time(self, ns: int) -> None:
        self.steps.append("build")


def context() -> RequestContext:
    """A context of API version 0."""
    made = RequestContext(cast(Any, None), 0, 7, "client", cast(Any, None))
    return made


def plain(handling: Handling) -> RequestRunner:
    return HandlerRunner(handling, ROUTE, HEADER, context())


def wrapped(handling: Handling) -> RequestRunner:
    return WrappingRunner(plain(handling))


def metered(handling: Handling) -> RequestRunner:
    return MeteredRunner(plain(handling), cast(Any, CountingMeter()))


def read_in_steps(handling: Handling) -> RequestRunner:
    """A large request whose reading never waits."""

    async def reading() -> RequestRunner:
        return metered(handling)

    return LargeRequestRunner(reading(), ROUTE, HEADER, context())


RUNNERS: tuple[Callable[[Handling], RequestRunner], ...] = (plain, wrapped, metered, read_in_steps)
RECIPIENT: Recipient = NoRecipient()


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    made = request.param()
    yield made
    made.run_until_complete(made.shutdown_default_executor())
    made.close()


@pytest.fixture(params=RUNNERS, ids=lambda make: make.__name__)
def make(request: pytest.FixtureRequest) -> Callable[[Handling], RequestRunner]:
    return request.param


async def waits_for(future: asyncio.Future[Any]) -> Any:
    return await future


def response() -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=0, api_keys=[])


# Behaviour of asyncio


def test_awaited_future_yields_itself_marked_as_blocking(loop: asyncio.AbstractEventLoop) -> None:
    async def nothing() -> None: ...

    futures = [
        loop.create_future(),
        asyncio.Future(loop=loop),
        loop.create_task(nothing()),
        loop.run_in_executor(None, lambda: None),
        asyncio.shield(loop.create_future()),
        asyncio.gather(loop.create_future()),
    ]
    for future in cast("list[asyncio.Future[Any]]", futures):
        assert future._asyncio_future_blocking is False
        handling = waits_for(future)
        assert handling.send(None) is future
        assert future._asyncio_future_blocking is True
        future._asyncio_future_blocking = False
        handling.close()
    loop.run_until_complete(asyncio.wait([cast(Any, one) for one in futures[2:4]]))


def test_future_that_is_done_is_not_yielded(loop: asyncio.AbstractEventLoop) -> None:
    future = loop.create_future()
    future.set_result(5)
    with pytest.raises(StopIteration) as stopped:
        waits_for(future).send(None)
    assert stopped.value.value == 5


def test_task_and_runner_wait_for_one_future_both_resume(loop: asyncio.AbstractEventLoop) -> None:
    future = loop.create_future()
    runner = plain(waits_for(future))
    assert runner.start(RECIPIENT) is future
    task = loop.create_task(waits_for(future))
    loop.call_soon(loop.call_soon, future.set_result, "done")
    assert loop.run_until_complete(task) == "done"
    assert runner.resume() is None and runner.response == "done"


def test_handler_that_yields_no_future_is_refused() -> None:
    """`asyncio.sleep(0)` yields None to its task: a handler yields to the loop by `RequestContext.next_step`."""

    async def sleeps() -> None:
        await asyncio.sleep(0)

    runner = plain(sleeps())
    with pytest.raises(AttributeError, match="_asyncio_future_blocking"):
        runner.start(RECIPIENT)
    runner.close()


# Behaviour of all runners


def test_handler_that_never_waits_returns_at_start(make: Callable[[Handling], RequestRunner]) -> None:
    async def handler() -> Any:
        return response()

    runner = make(handler())
    assert (runner.route, runner.header, runner.client_id, runner.response) == (ROUTE, HEADER, "client", None)
    assert runner.start(RECIPIENT) is None
    assert runner.response == response() and not runner.is_large
    assert (runner.throttle_ms, list(runner.mutes), runner.fault, runner.is_held, runner.last_bytes) == (
        0,
        [],
        None,
        False,
        b"",
    )
    assert b"".join(runner.parts()).startswith(HEADER)


def test_handler_that_waits_resumes_with_the_result(
    make: Callable[[Handling], RequestRunner], loop: asyncio.AbstractEventLoop
) -> None:
    first, second = loop.create_future(), loop.create_future()

    async def handler() -> Any:
        return [await first, await second]

    runner = make(handler())
    assert runner.start(RECIPIENT) is first
    first.set_result(1)
    assert runner.resume() is second and runner.response is None
    assert not first._asyncio_future_blocking and not second._asyncio_future_blocking
    second.set_result(2)
    assert runner.resume() is None and runner.response == [1, 2]


@pytest.mark.parametrize(
    "error", [ProtocolViolation("closed"), KeyError("defect")], ids=lambda error: type(error).__name__
)
def test_error_of_an_awaited_future_is_raised_by_resume(
    make: Callable[[Handling], RequestRunner], loop: asyncio.AbstractEventLoop, error: Exception
) -> None:
    future = loop.create_future()
    runner = make(waits_for(future))
    runner.start(RECIPIENT)
    future.set_exception(error)
    with pytest.raises(type(error)) as raised:
        runner.resume()
    assert raised.value is error and runner.response is None


def test_error_of_a_handler_that_never_waits_is_raised_by_start(make: Callable[[Handling], RequestRunner]) -> None:
    async def handler() -> Any:
        raise KeyError("defect")

    with pytest.raises(KeyError):
        make(handler()).start(RECIPIENT)


def test_close_ends_a_handler_that_waits(
    make: Callable[[Handling], RequestRunner], loop: asyncio.AbstractEventLoop
) -> None:
    ended: list[BaseException] = []

    async def handler() -> None:
        try:
            await loop.create_future()
        except BaseException as error:
            ended.append(error)
            raise

    runner = make(handler())
    runner.start(RECIPIENT)
    runner.close()
    assert [type(error) for error in ended] == [GeneratorExit]


def test_request_without_a_response_has_no_parts(make: Callable[[Handling], RequestRunner]) -> None:
    async def handler() -> None: ...

    runner = make(handler())
    assert runner.start(RECIPIENT) is None
    assert runner.parts() == []


# Single runners


def test_metered_request_is_charged_once_after_its_last_step(loop: asyncio.AbstractEventLoop) -> None:
    future, meter = loop.create_future(), CountingMeter()
    runner = MeteredRunner(plain(waits_for(future)), cast(Any, meter))
    runner.start(RECIPIENT)
    assert meter.steps == ["begin", "end"]
    future.set_result(response())
    runner.resume()
    runner.parts()
    assert meter.steps[2:] == ["begin", "end", "charge", "build"]


def test_metered_request_that_is_refused_is_charged_and_one_that_violates_is_not() -> None:
    async def raises(error: Exception) -> None:
        raise error

    for error, steps in ((KeyError("defect"), ["begin", "end", "charge"]), (ProtocolViolation(""), ["begin", "end"])):
        meter = CountingMeter()
        with pytest.raises(type(error)):
            MeteredRunner(plain(raises(error)), cast(Any, meter)).start(RECIPIENT)
        assert meter.steps == steps


def test_late_response_waits_once_and_close_cancels_its_wait(loop: asyncio.AbstractEventLoop) -> None:
    async def handler() -> Any:
        return response()

    meter = CountingMeter(loop.create_future())
    runner = MeteredRunner(plain(handler()), cast(Any, meter))
    assert runner.start(RECIPIENT) is meter.late
    assert runner.resume() is None and runner.response == response()
    runner.close()
    assert meter.late is not None and meter.late.cancelled() and meter.cancelled


def test_late_error_is_raised_after_its_wait(loop: asyncio.AbstractEventLoop) -> None:
    async def handler() -> Any:
        raise KeyError("defect")

    meter = CountingMeter(loop.create_future())
    runner = MeteredRunner(plain(handler()), cast(Any, meter))
    assert runner.start(RECIPIENT) is meter.late
    with pytest.raises(KeyError):
        runner.resume()
    assert meter.steps == ["begin", "end", "charge"]


def test_large_response_is_built_after_the_handler_and_keeps_its_mutes(loop: asyncio.AbstractEventLoop) -> None:
    step = loop.create_future()

    async def run(steps: Any) -> Any:
        await step
        return [b"built"]

    async def handler() -> Any:
        return response()

    inner = plain(handler())
    inner.context.broker = cast(Any, SimpleNamespace(scheduler=SimpleNamespace(run=run)))
    inner.context.begin_steps()
    assert inner.start(RECIPIENT) is None and inner.is_large
    runner = LargeResponseRunner(inner)
    assert runner.start(RECIPIENT) is step and not runner.is_large
    step.set_result(None)
    assert runner.resume() is None
    assert (runner.parts(), runner.response) == ([HEADER, b"built"], response())
