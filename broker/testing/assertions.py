"""Assertions about a running broker's records: now, or within a time.

Appends, commits and aborts end the wait at once, like a consumer's fetch. Other changes, such as the creation of a
topic or the deletion of records, are polled every LOOK_MS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..admin_api.views import NotFound, checked_text, whole
from ..replica.purgatory import bytes_waiter
from .decoders import Decode, Undecodable, decoded, decoder
from .record_comparison import Wanted, difference, expectations

if TYPE_CHECKING:
    from ..admin_api.operations import Operations

LOOK_MS = 50


async def produced(
    operations: Operations,
    topic: str,
    expected: Iterable[Any],
    ordered: bool = True,
    *,
    within_ms: int = 0,
    decode: Decode = None,
    decode_key: Decode = None,
) -> str | None:
    """Compares the topic's committed records with those expected. `assert_produced` raises AssertionError with the
    difference; this returns it, None if there is none.

    An expectation is a value, a (key, value) pair or a whole Record; only the fields that it names are compared.
    Records are compared by partition and offset, or in any order if `ordered` is False. Missing records, and a missing
    topic, are awaited for `within_ms` of real time. `decode` decodes values before they are compared and shown,
    `decode_key` keys: "json", or a function of the bytes.
    """
    checked_text("the name of a topic", topic)
    if whole("within_ms", within_ms) < 0:
        raise ValueError(f"within_ms is 0 or more, not {within_ms}")
    decoder(decode)
    decoder(decode_key)
    wanted = expectations(expected, decode is not None, decode_key is not None)
    judged = partial(_judged, topic, wanted, ordered, decode, decode_key)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_ms / 1000
    seen: object = None
    found: str | None = None
    while True:
        left_ms = int((deadline - loop.time()) * 1000)
        marks = _marks(operations, topic)
        if marks is not None and marks != seen:
            found, may_come = await asyncio.to_thread(judged, await operations.records(topic))
            if found is None or not may_come:
                return found
        if left_ms <= 0:
            if marks is None:
                await operations.topic(topic)  # raises NotFound
            return found
        seen = marks
        if _marks(operations, topic) == seen:
            await _changed(operations, topic, min(left_ms, LOOK_MS))


def _judged(
    topic: str, wanted: list[Wanted], ordered: bool, decode: Decode, decode_key: Decode, found: list[Any]
) -> tuple[str | None, bool]:
    """Returns the difference, and whether more records could remove it."""
    if decode is not None or decode_key is not None:
        try:
            found = decoded(found, decode, decode_key)
        except Undecodable as error:
            return str(error), False
    return difference(topic, found, wanted, ordered), True


def _marks(operations: Operations, topic: str) -> object:
    """Returns a value that changes whenever the topic's committed records may have changed; None without such a
    topic."""
    try:
        return operations.marks(topic)
    except NotFound:
        return None


async def _changed(operations: Operations, topic: str, ms: int) -> None:
    """Returns when a record was appended to the topic or committed in it, or after `ms`."""
    positions = operations.fetch_positions(topic)
    state = operations.running.state
    waiter = bytes_waiter(positions, 1, asyncio.get_running_loop(), committed=True)
    await waiter.wait(state.waits, state.waits.now_ms() + ms)


def raise_difference(found: str | None) -> None:
    """Raises AssertionError for the difference that `produced` returned, unless that is None."""
    __tracebackhide__ = True
    if found is not None:
        raise AssertionError(found)
