"""The live tail of a topic: its newest records, and new ones while the page is open.

The page has the newest records; its script then reads events (Server-Sent Events). A stream checks the high watermarks
every POLL_SECONDS, and reads records only when one has risen; without a stream there is no work. An event has at most
ROWS_MAX records, cut as in every list. If there are more, the newest are sent and the others counted as skipped. An
event's id has the next offset of each partition, so a stream resumes there after a lost connection.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from ....protocol.limits import INT32_MAX
from ....storage.errors import StorageError
from ...admin_api.views import NotFound, OperationError
from ..refusal import Refusal
from .messages_view import kept_bytes, rows_of
from .page import Page, PageRequest, Stream
from .records import SeenRecord, Wanted, check_partition, look, look_back, partition_of, topic_named
from .site import fragment, load
from .values import WAYS

if TYPE_CHECKING:
    from ...broker_state import BrokerState
    from ...metadata.topics import Topic
    from ..plane import Plane

NEWEST = 25  # records that the page begins with
ROWS_MAX = 50  # records of one event
SHOWN_MAX = 500  # rows that the page keeps
SPAN_MAX = 2000  # offsets of a partition that one event searches for a text
PARTITIONS_MAX = 50  # of a topic without a chosen partition
POLL_SECONDS = 0.5
QUIET_POLLS = 30  # polls without an event before a comment is sent: proxies close silent connections
CURSOR = re.compile(r"[0-9]{1,10}:[0-9]{1,19}(?:,[0-9]{1,10}:[0-9]{1,19}){0,99}")
TEMPLATE = "tail_rows.html"

Cursor = dict[int, int]
"""The offset of the next record of each partition."""


def _chosen(topic: Topic, request: PageRequest) -> list[int]:
    """Returns the selected partitions. Raises Refusal, NotFound."""
    index = request.query.whole("partition", most=INT32_MAX)
    if index is None:
        return list(range(min(len(topic.partitions), PARTITIONS_MAX)))
    check_partition(topic, index)
    return [index]


def _end(state: BrokerState, topic: str, index: int) -> int:
    """Returns the high watermark; 0 if the partition cannot be read now."""
    try:
        return partition_of(state, topic, index).log.high_watermark
    except StorageError:
        return 0


async def tail(request: PageRequest) -> Page:
    """Shows the newest records of a topic, newest first."""
    state = request.plane.operations.running.state
    topic = topic_named(state, request.path["topic"])
    chosen, way = _chosen(topic, request), request.query.choice("view", WAYS)
    contains = request.query.text("contains").encode("utf-8", "surrogatepass")
    found: list[SeenRecord] = []
    cursor: Cursor = {}
    kept = kept_bytes(request, topic.name)
    for index in chosen:
        cursor[index] = end = _end(state, topic.name, index)
        try:
            wanted = Wanted(end, end, NEWEST, contains, kept_bytes=kept)
            found += (await look_back(state, partition_of(state, topic.name, index), end, wanted)).records
        except OperationError:
            continue
        found = sorted(found, key=_age, reverse=True)[:NEWEST]
        await asyncio.sleep(0)
    values = {
        "topic": topic.name,
        "rows": await rows_of(request.plane, topic.name, found, way),
        "query": request.query,
        "ways": WAYS,
        "way": way,
        "after": _text(cursor),
        "most": SHOWN_MAX,
        "shown_partitions": len(chosen),
        "partitions": len(topic.partitions),
    }
    return Page("tail.html", f"Live tail of {topic.name}", "messages", values)


def _age(record: SeenRecord) -> tuple[int, int, int]:
    return record.timestamp_ms, record.offset, record.partition


def _text(cursor: Cursor) -> str:
    return ",".join(f"{index}:{offset}" for index, offset in cursor.items())


async def events(request: PageRequest) -> Stream:
    """Returns the stream of new records, from now on or from the end of an earlier stream on."""
    state = request.plane.operations.running.state
    topic = topic_named(state, request.path["topic"])
    chosen, way = _chosen(topic, request), request.query.choice("view", WAYS)
    contains = request.query.text("contains").encode("utf-8", "surrogatepass")
    after = request.last_event or request.query.text("after")
    if after and not CURSOR.fullmatch(after):
        raise Refusal(400, "after is not an event id of a live tail")
    known = {int(index): int(offset) for index, _, offset in (one.partition(":") for one in after.split(",") if one)}
    cursor = {index: known.get(index, _end(state, topic.name, index)) for index in chosen}
    await load(TEMPLATE)
    follower = _Follower(request.plane, topic.name, cursor, contains, way, kept_bytes(request, topic.name))
    return Stream(follower.steps(), "text/event-stream")


class _Follower:
    """One stream: its position, and its next event."""

    def __init__(self, plane: Plane, topic: str, cursor: Cursor, contains: bytes, way: str, kept: int) -> None:
        self._plane = plane
        self._topic = topic
        self._cursor = cursor
        self._contains = contains
        self._way = way
        self._kept = kept
        self._skipped = 0

    async def steps(self) -> AsyncGenerator[bytes, None]:
        """Yields events, and an empty step for each poll without new records."""
        yield b"retry: 2000\n\n"
        quiet = 0
        while not self._plane.ended.is_set():
            try:
                found = await self._new()
            except NotFound as error:
                yield _event("end", {"why": f"The tail has ended: {error}."})
                return
            quiet = 0 if found else quiet + 1
            if found or self._skipped:
                yield await self._event(found)
            else:
                yield b": idle\n\n" if quiet % QUIET_POLLS == 0 else b""
            await _pause(self._plane.ended)

    async def _event(self, found: list[SeenRecord]) -> bytes:
        rows = await rows_of(self._plane, self._topic, found, self._way)
        skipped, self._skipped = self._skipped, 0
        values: dict[str, object] = {"topic": self._topic, "rows": rows}
        event: dict[str, object] = {"rows": fragment(TEMPLATE, values), "count": len(rows), "skipped": skipped}
        return _event("rows", event, _text(self._cursor))

    async def _new(self) -> list[SeenRecord]:
        """Returns the records since the last poll, newest first. Raises NotFound if the topic was deleted."""
        state = self._plane.operations.running.state
        ends: Cursor = {}
        for index, offset in self._cursor.items():
            end = _end(state, self._topic, index)
            if end > offset:
                ends[index] = end
            elif end < offset:  # the topic was created again, or the broker was reset or restored
                self._cursor[index] = end
        found: list[SeenRecord] = []
        most = max(1, ROWS_MAX // len(ends)) if ends else 0
        for index, end in ends.items():
            found += await self._of(state, index, end, most)
            await asyncio.sleep(0)
        found.sort(key=_age, reverse=True)
        self._skipped += max(0, len(found) - ROWS_MAX)
        return found[:ROWS_MAX]

    async def _of(self, state: BrokerState, index: int, end: int, most: int) -> list[SeenRecord]:
        first = max(self._cursor[index], end - (SPAN_MAX if self._contains else most))
        self._skipped += first - self._cursor[index]
        self._cursor[index] = end
        wanted = Wanted(first, end, most, self._contains, newest=True, kept_bytes=self._kept)
        try:
            seen = await look(state, partition_of(state, self._topic, index), wanted)
        except NotFound:
            raise
        except OperationError:  # deleted meanwhile, or offline: later records are sent
            return []
        if not seen.is_whole:
            self._skipped += max(0, end - seen.next_offset)
        return seen.records


async def _pause(ended: asyncio.Event, until: Callable[[float], asyncio.Timeout] = asyncio.timeout) -> None:
    """Waits for the next poll, or for the end."""
    try:
        async with until(POLL_SECONDS):
            await ended.wait()
    except TimeoutError:
        pass


def _event(name: str, value: dict[str, object], id: str = "") -> bytes:
    """Returns an event. JSON has no line breaks, which would end its data."""
    lines = [f"event: {name}", *([f"id: {id}"] if id else []), f"data: {json.dumps(value)}"]
    return ("\n".join(lines) + "\n\n").encode()
