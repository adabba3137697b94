"""An asyncio event loop without a clock, a thread or a socket: its time jumps to the next timer when nothing is ready.

Everything in it runs identically each time, if its own randomness is seeded, and takes only its computing time.
Connections are made by a simulated network (`simulated_network.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
STARTED_AT_S = 1000.0


class Network(Protocol):
    """The network to which `create_connection` is delegated."""

    async def connect(self, protocol: asyncio.BaseProtocol, host: str, port: int) -> asyncio.Transport: ...


class NothingLeft(Exception):
    """Nothing is ready, and no timer is set: the code waits for something that cannot happen."""


class _Waiting:
    """Takes the place of a selector: a wait advances the time."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise NothingLeft
        self._loop.now_s += timeout
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    """See the module. `errors` has the exceptions of callbacks and abandoned tasks; a test checks that it is empty."""

    def __init__(self, network: Network | None = None) -> None:
        super().__init__()
        self.now_s = STARTED_AT_S
        self.network = network
        self.errors: list[dict[str, Any]] = []
        self._selector = _Waiting(self)
        self._clock_resolution = 1e-9
        self.set_exception_handler(lambda loop, context: self.errors.append(context))

    def time(self) -> float:
        return self.now_s

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """No other thread uses the loop."""

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str | None = None, port: int | None = None, **options: Any
    ) -> tuple[asyncio.Transport, Any]:
        """Connects over the simulated network; socket options are ignored."""
        assert self.network is not None and host is not None and port is not None
        protocol = protocol_factory()
        return await self.network.connect(protocol, host, port), protocol

    def run(self, main: Coroutine[Any, Any, T] | Awaitable[T]) -> T:
        """Runs to the end, cancels remaining tasks, and closes the loop."""
        try:
            return self.run_until_complete(main)
        finally:
            left = asyncio.all_tasks(self)
            for task in left:
                task.cancel()
            if left:
                self.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self.close()
