"""How long a test waits for what has to happen: so long that a loaded machine is never the reason of a failure.

A test that passes does not wait that long. OTTLA_TEST_PATIENCE (seconds) is another bound. What must not happen has no
deadline: its test brings about an event that comes afterwards, or advances the clock that is injected.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

__all__ = ["PATIENCE_MS", "PATIENCE_S", "async_until", "patiently", "until"]

PATIENCE_S = int(os.environ.get("OTTLA_TEST_PATIENCE", "300"))
PATIENCE_MS = 1000 * PATIENCE_S
"""For clients whose settings are in milliseconds."""

PAUSE_S = 0.01

T = TypeVar("T")


def until(condition: Callable[[], T], complaint: object = "", *, pause_s: float = PAUSE_S) -> T:
    """Waits until the condition is true, and returns its value. Raises AssertionError after PATIENCE_S, with the
    complaint or its result."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, _text(complaint)
        time.sleep(pause_s)
    return found


async def async_until(
    condition: Callable[[], T | Awaitable[T]], complaint: object = "", *, pause_s: float = PAUSE_S
) -> T:
    """Like `until`, beside other tasks; the condition may be a coroutine function."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        made = condition()
        found = cast(T, await made if isinstance(made, Awaitable) else made)
        if found:
            return found
        assert time.monotonic() < deadline, _text(complaint)
        await asyncio.sleep(pause_s)


def patiently() -> asyncio.Timeout:
    """Returns a time limit for calls that may hang: `async with patiently(): ...`."""
    return asyncio.timeout(PATIENCE_S)


def _text(complaint: object) -> object:
    found = complaint() if callable(complaint) else complaint
    return found or f"it did not happen within {PATIENCE_S} seconds"
