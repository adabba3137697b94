"""Faults for tests: one method for each kind, each with a handle that removes its rule at the end of a block.

The rules are the broker's. A broker in another thread passes `call`, which runs a function there and returns its
result; counters are read directly.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from ..admin_api.seen_requests import attribute
from ..faults import actions
from ..faults.actions import Action
from ..faults.rule_set import Faults, UnknownFault
from ..faults.rules import Rule, StandingRule

R = TypeVar("R")
H = TypeVar("H")
Runner = Callable[[Callable[[], Any]], Any]
Apis = str | int | Sequence[str | int] | None


def _at_once(function: Callable[[], R]) -> R:
    return function()


class _AddedRule:
    """The values of a rule that was added."""

    def __init__(self, standing: StandingRule) -> None:
        self._standing = standing

    id: int = attribute("_standing.id")
    """The rule's id."""
    rule: Rule = attribute("_standing.rule")
    """The rule itself."""
    matched: int = attribute("_standing.matched")
    """How many requests (or disk operations) have matched the rule so far."""
    fired: int = attribute("_standing.fired")
    """How often the rule has fired so far."""

    def _await_fired(self, times: int, seconds: float) -> None:
        if not self._standing.wait_fired(times, seconds):
            raise TimeoutError(f"the fault fired {self.fired} times in {seconds:g} s, not {times}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._standing.to_json()})"


class FaultHandle(_AddedRule):
    """A rule that was added; as a context manager it is in force within the block."""

    def __init__(self, view: FaultsView, standing: StandingRule) -> None:
        super().__init__(standing)
        self._view = view

    def wait_fired(self, times: int = 1, seconds: float = 30.0) -> None:
        """Waits until the rule has fired `times` times. Raises TimeoutError. Not for the broker's own thread."""
        self._await_fired(times, seconds)

    def remove(self) -> None:
        """Removes the rule; does nothing if it was removed already."""
        self._view.discard(self.id)

    def __enter__(self) -> FaultHandle:
        return self

    def __exit__(self, *raised: object) -> None:
        self.remove()


class _FaultKinds(ABC, Generic[H]):
    """One method for each kind of fault. `**where` are the conditions of a `Rule`: topic, partition, client_id,
    listener, node, nth, times, after, probability, seed. Invalid ones raise ValueError."""

    def __init__(self, faults: Faults, call: Runner = _at_once) -> None:
        self._faults = faults
        self._call = call

    @abstractmethod
    def add(self, rule: Rule) -> H:
        """Adds a rule."""

    def _put(self, rule: Rule) -> StandingRule:
        return self._faults.get(self._faults.add(rule))

    def _drop(self, id: int) -> None:
        with contextlib.suppress(UnknownFault):
            self._faults.remove(id)

    def _added(self, action: Action, **where: Any) -> H:
        try:
            rule = Rule(action=action, **where)
        except TypeError as error:
            raise ValueError(str(error).rpartition("__init__() ")[2]) from None
        return self.add(rule)

    def error(self, api: Apis, code: str | int, **where: Any) -> H:
        """Responds with an error code instead of running the request."""
        return self._added(actions.error(code), api=api, **where)

    def delay(self, api: Apis, ms: int, when: str = "before", **where: Any) -> H:
        """Delays the request before it runs, or with "after" its response. Real time."""
        return self._added(actions.delay(ms, when), api=api, **where)

    def disconnect(self, api: Apis, when: str = "before", **where: Any) -> H:
        """Closes the connection before the request runs, or with "after" between its end and the response."""
        return self._added(actions.disconnect(when), api=api, **where)

    def truncate(self, api: Apis, bytes: int, **where: Any) -> H:
        """Sends only the first bytes of the response, and closes the connection."""
        return self._added(actions.truncate(bytes), api=api, **where)

    def garble(self, api: Apis, seed: int | None = None, **where: Any) -> H:
        """Flips bits of the response after its header."""
        return self._added(actions.garble(), api=api, seed=seed, **where)

    def wrong_crc(self, api: Apis = "Fetch", **where: Any) -> H:
        """Flips a bit in the records of Fetch responses; the log is unchanged."""
        return self._added(actions.wrong_crc(), api=api, **where)

    def throttle(self, api: Apis, ms: int, **where: Any) -> H:
        """Responds with a throttle time, and reads no request of the connection for that long. Real time."""
        return self._added(actions.throttle(ms), api=api, **where)

    def stall(self, api: Apis, **where: Any) -> H:
        """Holds responses back until the rule is removed."""
        return self._added(actions.stall(), api=api, **where)

    def refuse(self, listener: str | None = None, node: int | None = None) -> H:
        """Refuses new connections, by listener and node, until the rule is removed."""
        return self._added(actions.refuse(), listener=listener, node=node)

    def bad_certificate(self, certificate: str, **where: Any) -> H:
        """Shows new connections a certificate that is "expired", for a "wrong_host" or of an "untrusted" authority; by
        listener and node. For brokers with the security ssl, mtls, sasl_ssl or oauth_ssl."""
        return self._added(actions.bad_certificate(certificate), **where)

    def disk_error(self, on: str = "both", path: str | None = None, **where: Any) -> H:
        """Fails reads, writes or both of the disk with EIO, which takes a log directory offline."""
        return self._added(actions.disk_error(on, path), **where)

    def disk_full(self, path: str | None = None, **where: Any) -> H:
        """Fails disk operations that need space with ENOSPC."""
        return self._added(actions.disk_full(path), **where)


class FaultsView(_FaultKinds[FaultHandle]):
    """The faults of a broker; each method returns when its effect is complete."""

    def add(self, rule: Rule) -> FaultHandle:
        """Adds a rule."""
        return FaultHandle(self, self._call(partial(self._put, rule)))

    def discard(self, id: int) -> None:
        """Removes a rule; does nothing if it was removed already."""
        self._call(partial(self._drop, id))

    def clear(self) -> None:
        """Removes all rules."""
        self._call(self._faults.clear)

    def list(self) -> list[FaultHandle]:
        """Returns the rules in force, oldest first."""
        return [FaultHandle(self, standing) for standing in self._call(self._faults.list)]


class AsyncFaultHandle(_AddedRule):
    """A rule that was added through `AsyncFaultsView`; as a context manager it is in force within the block."""

    def __init__(self, view: AsyncFaultsView, standing: StandingRule) -> None:
        super().__init__(standing)
        self._view = view

    async def wait_fired(self, times: int = 1, seconds: float = 30.0) -> None:
        """Waits until the rule has fired `times` times. Raises TimeoutError."""
        await asyncio.to_thread(self._await_fired, times, seconds)

    async def remove(self) -> None:
        """Removes the rule; does nothing if it was removed already."""
        await self._view.discard(self.id)

    async def __aenter__(self) -> AsyncFaultHandle:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.remove()


class AddedFault:
    """A rule that is added when this is awaited, or for a block: `async with broker.faults.stall("Fetch"):`."""

    def __init__(self, adding: Callable[[], Awaitable[AsyncFaultHandle]]) -> None:
        self._adding = adding

    def __await__(self) -> Generator[Any, Any, AsyncFaultHandle]:
        return self._adding().__await__()

    async def __aenter__(self) -> AsyncFaultHandle:
        self._handle = await self._adding()
        return self._handle

    async def __aexit__(self, *raised: object) -> None:
        await self._handle.remove()


class AsyncFaultsView(_FaultKinds[AddedFault]):
    """`FaultsView` for coroutines of another loop: each method is awaited, or used with `async with`."""

    def add(self, rule: Rule) -> AddedFault:
        """Adds a rule."""

        async def adding() -> AsyncFaultHandle:
            return AsyncFaultHandle(self, await self._call(partial(self._put, rule)))

        return AddedFault(adding)

    async def discard(self, id: int) -> None:
        """Removes a rule; does nothing if it was removed already."""
        await self._call(partial(self._drop, id))

    async def clear(self) -> None:
        """Removes all rules."""
        await self._call(self._faults.clear)

    async def list(self) -> list[AsyncFaultHandle]:
        """Returns the rules in force, oldest first."""
        return [AsyncFaultHandle(self, standing) for standing in await self._call(self._faults.list)]
