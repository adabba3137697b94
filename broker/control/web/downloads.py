"""Records of a topic as a file: JSON lines, or CSV for spreadsheets.

Owns the bounds and the two notations. A file comes in steps of STEP_BYTES, each read, opened and written down in turn,
so neither its size nor a slow client takes memory. Markers of transactions are left out; a batch that cannot be opened
is a line with its `problem`.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ....protocol.limits import INT32_MAX
from ....protocol.text import time_text
from ....storage.errors import StorageError
from ...admin_api.views import NotFound, OperationError
from ...cooperative import in_thread
from ...json_bytes import to_json
from ..refusal import Refusal
from .answer import Ask, Stream
from .records import SeenRecord, Wanted, look, partition_of
from .topics_view import topic_named

if TYPE_CHECKING:
    from ...broker_state import BrokerState
    from ...record_schemas.schemas import TopicSchemas
    from ...replica.partition import Partition
    from ..plane import Plane

RECORDS_MAX = 100_000
BYTES_MAX = 256 * 1024 * 1024
STEP_BYTES = 1024 * 1024
STEP_RECORDS = 1000
TYPES = {"jsonl": "application/x-ndjson", "csv": "text/csv"}
FORMULA = tuple("=+-@\t\r\n＝＋－＠")
"""What a spreadsheet takes for the beginning of a formula."""
COLUMNS = (
    "topic", "partition", "offset", "timestamp_ms", "time", "key", "key_is", "value", "value_is", "headers",
    "transaction", "problem",
)  # fmt: skip
DECODED = ("key_decoded", "value_decoded")


class _Asked(NamedTuple):
    topic: str
    partitions: list[int]
    offset: int | None
    until: int | None
    time_ms: int | None
    contains: bytes
    limit: int


async def records(ask: Ask) -> Stream:
    """The file that is asked for."""
    state, query = ask.plane.operations.running.state, ask.query
    topic = topic_named(state, ask.path["topic"])
    kind = query.choice("format", tuple(TYPES))
    index = query.whole("partition", most=INT32_MAX)
    if index is not None and index >= len(topic.partitions):
        raise NotFound(f"{topic.name} has no partition {index}, but {len(topic.partitions)}")
    offset, until = query.whole("offset"), query.whole("until")
    if index is None and len(topic.partitions) > 1 and (offset is not None or until is not None):
        raise Refusal(400, "an offset is one of a partition: choose which")
    asked = _Asked(
        topic.name,
        list(range(len(topic.partitions))) if index is None else [index],
        offset,
        until,
        query.moment("time"),
        query.text("contains").encode("utf-8", "surrogatepass"),
        query.whole("limit", RECORDS_MAX, 1, RECORDS_MAX) or RECORDS_MAX,
    )
    schemas = ask.plane.schemas.of(topic.name) if query.flag("decode") else None
    written = partial(_csv if kind == "csv" else _json_lines, topic.name, schemas)
    place = "" if index is None else f"-{index}"
    return Stream(_steps(ask.plane, asked, written, _head(kind, schemas)), TYPES[kind], f"{topic.name}{place}.{kind}")


def _head(kind: str, schemas: TopicSchemas | None) -> bytes:
    if kind != "csv":
        return b""
    return _rows([[*COLUMNS, *(DECODED if schemas else ())]])


async def _steps(
    plane: Plane, asked: _Asked, written: Callable[[Sequence[SeenRecord | _Ended]], bytes], head: bytes
) -> AsyncGenerator[bytes, None]:
    yield head
    left, size = asked.limit, len(head)
    for index in asked.partitions:
        state = plane.operations.running.state
        partition = partition_of(state, asked.topic, index)
        bounds = _bounds(partition, asked)
        if bounds is None:
            continue
        offset, until = bounds
        while offset < until and left > 0:
            count = min(left, STEP_RECORDS)
            wanted = Wanted(offset, until, count, asked.contains, kept_bytes=None, most_bytes=STEP_BYTES)
            seen = await look(state, partition, wanted)
            found = [one for one in seen.records if not one.batch.is_control]
            left -= len(found)
            data = await _in_thread(state, partial(written, found)) if found else b""
            size += len(data)
            yield data
            if seen.next_offset <= offset:
                break
            offset = seen.next_offset
            if size >= BYTES_MAX:
                yield written([_ended(index, offset)])
                return
            await asyncio.sleep(0)
        if left <= 0:
            return


async def _in_thread(state: BrokerState, work: Callable[[], bytes]) -> bytes:
    return await state.scheduler.run(in_thread(work))


def _bounds(partition: Partition, asked: _Asked) -> tuple[int, int] | None:
    """The first offset and the one after the last; None where no record is so new. Raises OperationError."""
    try:
        log = partition.log
        start, end = log.log_start_offset, log.high_watermark
        first = asked.offset
        if first is None and asked.time_ms is not None:
            by_time = log.find_timestamp(asked.time_ms)
            if by_time is None:
                return None
            first = by_time.offset
        return max(start, first or 0), end if asked.until is None else min(end, asked.until)
    except StorageError as error:
        raise OperationError(f"KAFKA_STORAGE_ERROR: {error}") from error


class _Ended(NamedTuple):
    """The last line of a file that has grown to its bound."""

    partition: int
    offset: int
    problem: str


def _ended(index: int, offset: int) -> _Ended:
    return _Ended(index, offset, f"the file ends here, at {BYTES_MAX} bytes: go on from this offset")


def _json_lines(topic: str, schemas: TopicSchemas | None, found: Sequence[SeenRecord | _Ended]) -> bytes:
    return b"".join(json.dumps(_object(topic, schemas, one)).encode() + b"\n" for one in found)


def _object(topic: str, schemas: TopicSchemas | None, one: SeenRecord | _Ended) -> dict[str, Any]:
    """A record as the control plane's API has it, with what is known beside."""
    place = {"topic": topic, "partition": one.partition, "offset": one.offset}
    if isinstance(one, _Ended) or one.problem is not None:
        return place | {"problem": one.problem}
    told: dict[str, Any] = place | {
        "timestamp_ms": one.timestamp_ms,
        "key": to_json(one.key.head),
        "value": to_json(one.value.head),
        "headers": [{"name": _name(name), "value": to_json(value)} for name, value in one.headers],
    }
    if one.batch.fate:
        told["transaction"] = one.batch.fate
    if schemas is not None:
        told |= dict(zip(DECODED, _decoded(schemas, one), strict=True))
    return told


def _name(text: str) -> str:
    """A header's name as text that every reader of JSON takes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _decoded(schemas: TopicSchemas, one: SeenRecord) -> tuple[Any, Any]:
    """What the schemas make of key and value; {"problem": ...} where they cannot."""
    return schemas.plain("key", one.key.head), schemas.plain("value", one.value.head)


def _csv(topic: str, schemas: TopicSchemas | None, found: Sequence[SeenRecord | _Ended]) -> bytes:
    return _rows([_cells(topic, schemas, one) for one in found])


def _rows(rows: list[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _cells(topic: str, schemas: TopicSchemas | None, one: SeenRecord | _Ended) -> list[Any]:
    told = _object(topic, schemas, one)
    cells: list[Any] = [_safe(topic), one.partition, one.offset]
    if "problem" in told:
        cells += [""] * (len(COLUMNS) - 4) + [_safe(told["problem"])]
        return cells + [""] * (len(DECODED) if schemas else 0)
    cells += [told["timestamp_ms"], time_text(told["timestamp_ms"]) or ""]
    for part in ("key", "value"):
        cells += _cell(told[part])
    cells += [json.dumps(told["headers"]) if told["headers"] else "", told.get("transaction", ""), ""]
    if schemas is not None:
        cells += ["" if told[name] is None else _safe(json.dumps(told[name])) for name in DECODED]
    return cells


def _cell(value: Any) -> tuple[str, str]:
    """A key or a value, and what it is: text, base64 or null."""
    if value is None:
        return "", "null"
    if isinstance(value, dict):
        return _safe(value["base64"]), "base64"
    return _safe(value), "text"


def _safe(text: str) -> str:
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text
