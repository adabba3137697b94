"""Records of a topic as a file: JSON lines, or CSV for spreadsheets.

A file is sent in steps of STEP_BYTES. Each step is read, decoded and written before the next, so memory does not depend
on the size of the file or the speed of the client. Transaction markers are omitted; a batch that cannot be decoded is a
line with its `problem`.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ....protocol.limits import INT32_MAX
from ....protocol.named import NamedTuple
from ....protocol.narrowing import is_dict
from ....protocol.text import time_text
from ....storage.errors import StorageError
from ...admin_api.views import OperationError
from ...cooperative import in_thread
from ...json_bytes import to_json
from ..refusal import Refusal
from .page import PageRequest, Stream
from .records import SeenRecord, Wanted, check_partition, look, partition_of, topic_named

if TYPE_CHECKING:
    from ...record_schemas.schemas import TopicSchemas
    from ...replica.partition import Partition
    from ..plane import Plane

RECORDS_MAX = 100_000
BYTES_MAX = 256 * 1024 * 1024
STEP_BYTES = 1024 * 1024
STEP_RECORDS = 1000
TYPES = {"jsonl": "application/x-ndjson", "csv": "text/csv"}
FORMULA = tuple("=+-@\t\r\n＝＋－＠")
"""The first characters of formulas in spreadsheets."""
COLUMNS = (
    "topic", "partition", "offset", "timestamp_ms", "time", "key", "key_is", "value", "value_is", "headers",
    "transaction", "problem",
)  # fmt: skip
DECODED = ("key_decoded", "value_decoded")


class _Selection(NamedTuple):
    topic: str
    partitions: list[int]
    offset: int | None
    until: int | None
    time_ms: int | None
    contains: bytes
    limit: int


async def records(request: PageRequest) -> Stream:
    """Returns the requested file."""
    state, query = request.plane.operations.running.state, request.query
    topic = topic_named(state, request.path["topic"])
    kind = query.choice("format", tuple(TYPES))
    index = query.whole("partition", most=INT32_MAX)
    if index is not None:
        check_partition(topic, index)
    offset, until = query.whole("offset"), query.whole("until")
    if index is None and len(topic.partitions) > 1 and (offset is not None or until is not None):
        raise Refusal(400, "an offset needs a partition: choose one")
    selection = _Selection(
        topic.name,
        list(range(len(topic.partitions))) if index is None else [index],
        offset,
        until,
        query.moment("time"),
        query.text("contains").encode("utf-8", "surrogatepass"),
        query.whole("limit", RECORDS_MAX, 1, RECORDS_MAX) or RECORDS_MAX,
    )
    schemas = request.plane.schemas.get(topic.name) if query.flag("decode") else None
    written = partial(_csv if kind == "csv" else _json_lines, topic.name, schemas)
    place = "" if index is None else f"-{index}"
    head = _rows([[*COLUMNS, *(DECODED if schemas else ())]]) if kind == "csv" else b""
    steps = _steps(request.plane, selection, written, head)
    return Stream(steps, TYPES[kind], f"{topic.name}{place}.{kind}")


async def _steps(
    plane: Plane, selection: _Selection, written: Callable[[Sequence[SeenRecord | _Ended]], bytes], head: bytes
) -> AsyncGenerator[bytes, None]:
    yield head
    left, size = selection.limit, len(head)
    for index in selection.partitions:
        state = plane.operations.running.state
        partition = partition_of(state, selection.topic, index)
        bounds = _bounds(partition, selection)
        if bounds is None:
            continue
        offset, until = bounds
        while offset < until and left > 0:
            count = min(left, STEP_RECORDS)
            wanted = Wanted(offset, until, count, selection.contains, kept_bytes=None, most_bytes=STEP_BYTES)
            seen = await look(state, partition, wanted)
            found = [one for one in seen.records if not one.batch.header.is_control]
            left -= len(found)
            data = await state.scheduler.run(in_thread(partial(written, found))) if found else b""
            size += len(data)
            yield data
            if seen.next_offset <= offset:
                break
            offset = seen.next_offset
            if size >= BYTES_MAX:
                problem = f"the file ends here, at {BYTES_MAX} bytes: continue from this offset"
                yield written([_Ended(index, offset, problem)])
                return
            await asyncio.sleep(0)
        if left <= 0:
            return


def _bounds(partition: Partition, selection: _Selection) -> tuple[int, int] | None:
    """Returns the first offset and the one after the last; None if no record is as new as the requested time. Raises
    OperationError."""
    try:
        log = partition.log
        start, end = log.log_start_offset, log.high_watermark
        first = selection.offset
        if first is None and selection.time_ms is not None:
            by_time = log.find_timestamp(selection.time_ms)
            if by_time is None:
                return None
            first = by_time.offset
        return max(start, first or 0), end if selection.until is None else min(end, selection.until)
    except StorageError as error:
        raise OperationError(f"KAFKA_STORAGE_ERROR: {error}") from error


class _Ended(NamedTuple):
    """The last line of a file that has reached its maximum size."""

    partition: int
    offset: int
    problem: str


def _json_lines(topic: str, schemas: TopicSchemas | None, found: Sequence[SeenRecord | _Ended]) -> bytes:
    return b"".join(json.dumps(_object(topic, schemas, one)).encode() + b"\n" for one in found)


def _object(topic: str, schemas: TopicSchemas | None, one: SeenRecord | _Ended) -> dict[str, Any]:
    """Returns a record in the JSON form of the control plane, with its transaction and decoded parts."""
    place = {"topic": topic, "partition": one.partition, "offset": one.offset}
    if isinstance(one, _Ended) or one.problem is not None:
        return place | {"problem": one.problem}
    line: dict[str, Any] = place | {
        "timestamp_ms": one.timestamp_ms,
        "key": to_json(one.key.head),
        "value": to_json(one.value.head),
        "headers": [{"name": _name(name), "value": to_json(value)} for name, value in one.headers],
    }
    if one.batch.fate:
        line["transaction"] = one.batch.fate
    if schemas is not None:
        for name, part, data in zip(DECODED, ("key", "value"), (one.key.head, one.value.head), strict=True):
            line[name] = schemas[part].plain(data) if part in schemas else None
    return line


def _name(text: str) -> str:
    """Returns a header's name as valid UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def _csv(topic: str, schemas: TopicSchemas | None, found: Sequence[SeenRecord | _Ended]) -> bytes:
    return _rows([_cells(topic, schemas, one) for one in found])


def _rows(rows: list[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _cells(topic: str, schemas: TopicSchemas | None, one: SeenRecord | _Ended) -> list[Any]:
    line = _object(topic, schemas, one)
    cells: list[Any] = [_safe(topic), one.partition, one.offset]
    if "problem" in line:
        cells += [""] * (len(COLUMNS) - 4) + [_safe(line["problem"])]
        return cells + [""] * (len(DECODED) if schemas else 0)
    cells += [line["timestamp_ms"], time_text(line["timestamp_ms"]) or ""]
    for part in ("key", "value"):
        cells += _cell(line[part])
    cells += [json.dumps(line["headers"]) if line["headers"] else "", line.get("transaction", ""), ""]
    if schemas is not None:
        cells += ["" if line[name] is None else _safe(json.dumps(line[name])) for name in DECODED]
    return cells


def _cell(value: Any) -> tuple[str, str]:
    """Returns a key or a value, and its form: text, base64 or null."""
    if value is None:
        return "", "null"
    if is_dict(value):
        return _safe(value["base64"]), "base64"
    return _safe(value), "text"


def _safe(text: str) -> str:
    """Returns a text that spreadsheets do not take for a formula."""
    return f"'{text}" if text.startswith(FORMULA) else text
