"""What a test asserts of a running broker's records: now, or within a time.

Owns the wait, which appends, commits and aborts end at once (the same wait as a consumer's fetch); what they do not
show, such as a topic that is made or records that are deleted, is looked for every LOOK_MS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..admin_api.views import NewRecord, NotFound, Record, checked_text, whole
from ..replica.purgatory import FetchWaiter
from .decoders import Decode, Undecodable, decoded, decoder
from .record_comparison import difference, expectations

if TYPE_CHECKING:
    from ..admin_api.operations import Operations

LOOK_MS = 50
_ONE = (str, bytes, Mapping, Record, NewRecord)  # is one expectation, or none, and not a list of them


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
    """Raises AssertionError with the difference unless the topic's committed records are those expected.

    An expectation is a value, a (key, value) pair or a whole Record; what it does not name is not compared. They stand
    by partition and offset, unless `ordered` is False: then in any order. Records that are missing have `within_ms` of
    real time to come, and so has the topic. `decode` reads the values before they are compared and shown, `decode_key`
    the keys: "json", or a function of the bytes.
    """
    checked_text("the name of a topic", topic)
    if whole("within_ms", within_ms) < 0:
        raise ValueError(f"within_ms is 0 or more, not {within_ms}")
    decoder(decode)
    decoder(decode_key)
    wanted = list(expected) if isinstance(expected, Iterable) and not isinstance(expected, _ONE) else expected
    expectations(wanted, decode is not None, decode_key is not None)  # TypeError comes before any wait
    judged = partial(_judged, topic, wanted, ordered, decode, decode_key)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_ms / 1000
    seen: object = None
    told: str | None = None
    while True:
        left_ms = int((deadline - loop.time()) * 1000)
        marks = _marks(operations, topic)
        if marks is not None and marks != seen:
            told, may_come = await asyncio.to_thread(judged, await operations.records(topic))
            if told is None or not may_come:
                return told
        if left_ms <= 0:
            if marks is None:
                await operations.topic(topic)  # raises NotFound
            return told
        seen = marks
        if _marks(operations, topic) == seen:
            await _changed(operations, topic, min(left_ms, LOOK_MS))


def _judged(
    topic: str, expected: Any, ordered: bool, decode: Decode, decode_key: Decode, found: list[Any]
) -> tuple[str | None, bool]:
    """The difference, and whether more records could end it."""
    if decode is not None or decode_key is not None:
        try:
            found = decoded(found, decode, decode_key)
        except Undecodable as error:
            return str(error), False
    told = difference(topic, found, expected, ordered, decoded=decode is not None, key_decoded=decode_key is not None)
    return told, True


def _marks(operations: Operations, topic: str) -> object:
    """Another value whenever the topic's committed records may be others; None while there is no such topic."""
    try:
        return operations.marks(topic)
    except NotFound:
        return None


async def _changed(operations: Operations, topic: str, ms: int) -> None:
    """Returns when something was appended to the topic or committed in it, or after that time."""
    watched = operations.fetch_positions(topic)
    state = operations.running.state
    waiter = FetchWaiter(watched, 1, asyncio.get_running_loop(), committed=True)
    await waiter.wait(state.waits, state.waits.now_ms() + ms)


def raise_difference(told: str | None) -> None:
    """Raises AssertionError for what `produced` returns, where that is not None."""
    __tracebackhide__ = True
    if told is not None:
        raise AssertionError(told)
