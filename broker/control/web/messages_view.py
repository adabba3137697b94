"""Messages: of a partition from an offset or a time, the newest of a topic, and single records with all their facts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ....protocol.errors import MalformedMessage
from ....protocol.limits import INT32_MAX, INT64_MAX
from ....protocol.text import plural
from ....storage.errors import StorageError
from ...admin_api.views import NotFound, OperationError
from ...cooperative import in_thread
from ...metadata import record_values
from ...metadata.record_values import Part
from ...trace.tracer import Stopped, Tracer, Window
from ..refusal import Refusal
from .downloads import BYTES_MAX, RECORDS_MAX
from .page import Download, Page, PageRequest, url
from .records import KEPT_BYTES, LOOK_RECORDS, SeenRecord, Wanted, cut, look, look_back, partition_of, topic_named
from .values import AUTO, WAYS, Budget, Shown, Whole, in_line, shown, whole

if TYPE_CHECKING:
    from ...broker_state import BrokerState
    from ...metadata.topics import Topic
    from ...record_schemas.schemas import TopicSchemas
    from ...replica.partition import Partition
    from ..plane import Plane

LIMITS = ("25", "10", "50", "100", "250")
ALONE_BYTES = 64 * 1024  # of a value on a page of its own
HEADER_BYTES = 2048  # of a header's value there
SHOWN_HEADERS = 200
PARTITIONS_AT_ONCE = 50  # in a list of a whole topic
TOPICS_OFFERED = 500
PREVIEW_LETTERS = 240
DECODED_IN_LIST = 4096  # of a key or value with a schema: truncated ones cannot be decoded
INNER_BYTES = 32 * 1024  # of a record of an internal topic that is decoded into its fields


@dataclass(frozen=True, slots=True)
class Row:
    """A record in a list, with its key and value as text."""

    record: SeenRecord
    key: Shown | None
    value: Shown | None


async def messages(request: PageRequest) -> Page:
    """Shows the selected records; without a topic only the form."""
    state = request.plane.operations.running.state
    name = request.path.get("topic") or request.query.text("topic") or request.given.get("topic", "")
    values: dict[str, Any] = {
        "names": sorted(topic.name for topic in state.topics)[:TOPICS_OFFERED],
        "topic": name,
        "query": request.query,
        "limits": sorted(LIMITS, key=int),
        "ways": WAYS,
        "way": WAYS[0],
        "limit": LIMITS[0],
        "rows": None,
        "partitions": 0,
        "is_internal": False,
        "window": None,
        "links": {},
        "wrong": None,
        "status": "",
    }
    values |= {"schemas": request.plane.schemas.get(name), "download_records": RECORDS_MAX, "download_bytes": BYTES_MAX}
    page = Page("messages.html", f"Messages of {name}" if name else "Messages", "messages", values)
    if not name:
        return page
    found = topic_named(state, name)
    values |= {"partitions": len(found.partitions), "is_internal": found.is_internal}
    try:
        values |= {"way": request.query.choice("view", WAYS), "limit": request.query.choice("limit", LIMITS)}
        shown = await _rows(state, found, request)
        rows = await rows_of(request.plane, name, shown["records"], values["way"])
        values |= shown | {"rows": rows}
    except (Refusal, OperationError) as error:
        if isinstance(error, NotFound):
            raise
        values["wrong"] = str(error)
    return page


async def _rows(state: BrokerState, topic: Topic, request: PageRequest) -> dict[str, Any]:
    query = request.query
    index = query.whole("partition", -1 if len(topic.partitions) > 1 else 0, least=-1, most=INT32_MAX)
    offset, before, moment = query.whole("offset"), query.whole("before"), query.moment("time")
    count, kept = int(query.choice("limit", LIMITS)), kept_bytes(request, topic.name)
    contains = query.text("contains").encode("utf-8", "surrogatepass")
    if index is None or index < 0:
        if offset is not None or before is not None:
            raise Refusal(400, "an offset needs a partition: choose one")
        return await _of_all(state, topic, moment, Wanted(0, 0, count, contains, kept_bytes=kept))
    partition = partition_of(state, topic.name, index)
    try:
        log = partition.log
        start, end = log.log_start_offset, log.high_watermark
        if moment is not None and offset is None:
            by_time = log.find_timestamp(moment)
            if by_time is None:
                return _none_since(partition, start, end, query)
            offset = by_time.offset
    except StorageError as error:
        raise OperationError(f"KAFKA_STORAGE_ERROR: {error}") from error
    if offset is None:
        below = end if before is None else min(before, end)
        seen = await look_back(state, partition, below, Wanted(below, below, count, contains, kept_bytes=kept))
    else:
        seen = await look(state, partition, Wanted(offset, end, count, contains, kept_bytes=kept))
    first = seen.records[0].offset if seen.records else seen.next_offset
    links: dict[str, str | None] = {"oldest": query.link(offset=start, time=None, before=None)}
    links["newest"] = query.link(offset=None, time=None, before=None)
    links["previous"] = query.link(before=first, offset=None, time=None) if first > start else None
    links["next"] = query.link(offset=seen.next_offset, time=None, before=None) if seen.next_offset < end else None
    status = _status(len(seen.records), seen.looked, seen.is_whole, contains, seen.next_offset, end)
    if offset is not None and offset < start:
        status = f"Records below offset {start} were deleted; the list begins there. {status}"
    return {
        "records": seen.records,
        "window": (start, end),
        "links": links,
        "status": status,
        "partition": index,
    }


def _none_since(partition: Partition, start: int, end: int, query: Any) -> dict[str, Any]:
    newest = partition.log.max_timestamp()
    links = {"newest": query.link(offset=None, time=None, before=None)} if newest is not None else {}
    status = "No record has this time or a later one."
    return {"records": [], "window": (start, end), "links": links, "status": status, "newest": newest}


def _status(found: int, looked: int, is_whole: bool, contains: bytes, next_offset: int, end: int) -> str:
    """Returns a sentence about the records in the list."""
    text = plural(found, "record")
    if contains:
        text += f" of {looked} that were searched"
    if not is_whole:
        text += f"; searched up to offset {next_offset}"
    elif next_offset >= end:
        text += ", up to the end"
    return text + "."


async def _of_all(state: BrokerState, topic: Topic, moment: int | None, wanted: Wanted) -> dict[str, Any]:
    """Returns the newest records of all partitions together, newest first; with a time the first since then of each,
    oldest first."""
    found: list[SeenRecord] = []
    refused: list[str] = []
    chosen = topic.partitions[:PARTITIONS_AT_ONCE]
    looked = seen_partitions = 0
    for partition in chosen:
        if looked >= LOOK_RECORDS:
            break
        seen_partitions += 1
        try:
            log = partition.log
            end = log.high_watermark
            if moment is None:
                seen = await look_back(state, partition, end, wanted)
            else:
                by_time = log.find_timestamp(moment)
                if by_time is None:
                    continue
                seen = await look(state, partition, replace(wanted, offset=by_time.offset, until=end))
            found += seen.records
            looked += seen.looked
        except (StorageError, OperationError) as error:
            refused.append(f"{topic.name}-{partition.index}: {error}")
        found.sort(key=lambda one: (one.timestamp_ms, one.offset), reverse=moment is None)
        del found[wanted.count :]
        await asyncio.sleep(0)
    what = "newest records" if moment is None else "first records since then"
    status = f"The {len(found)} {what} of all partitions"
    if len(topic.partitions) > seen_partitions:
        status = f"The {len(found)} {what} of the first {seen_partitions} partitions"
    if refused:
        status += f" except {len(refused)} that cannot be read"
    return {"records": found, "status": status + "."}


def kept_bytes(request: PageRequest, topic: str) -> int:
    """Returns how many bytes of a key or a value a list of this topic needs."""
    is_decoded = topic in request.plane.schemas and request.query.choice("view", WAYS) == AUTO
    return DECODED_IN_LIST if is_decoded else KEPT_BYTES


async def rows_of(plane: Plane, topic: str, records: Sequence[SeenRecord], way: str) -> list[Row]:
    """Returns the rows of a list; decoded if their topic has schemas and the view is AUTO."""
    schemas = plane.schemas.get(topic)
    rows = [_row(topic, record, way) for record in records]
    if schemas is None or way != AUTO or not rows:
        return rows
    work = partial(_decoded_rows, schemas, rows)
    return await plane.operations.running.state.scheduler.run(in_thread(work))


def _decoded_rows(schemas: TopicSchemas, rows: list[Row]) -> list[Row]:
    budget = Budget()
    found: list[Row] = []
    for row in rows:
        one = row.record
        if one.batch.header.is_control or one.problem is not None:
            found.append(row)
            continue
        key = in_line(schemas.get("key"), one.key.head, one.key.is_cut, row.key, budget)
        value = in_line(schemas.get("value"), one.value.head, one.value.is_cut, row.value, budget)
        found.append(Row(one, key, value))
    return found


def _row(topic: str, record: SeenRecord, way: str) -> Row:
    if record.batch.header.is_control:
        return Row(record, None, Shown(f"marker: {record.marker}", "text"))
    key, value = record.key, record.value
    kafkas = _part_text(topic, key.head, value.head) if way == "auto" and not (key.is_cut or value.is_cut) else None
    if kafkas is not None:
        return Row(record, *kafkas)
    in_list = "text" if way == "auto" else way
    return Row(
        record,
        _short(shown(key.head, in_list, is_cut=key.is_cut), way),
        _short(shown(value.head, in_list, is_cut=value.is_cut), way),
    )


def _short(value: Shown | None, way: str) -> Shown | None:
    """Returns one line for a list, unless the view is JSON or hex."""
    if value is None or way in ("json", "hex"):
        return value
    if value.way == "hex":
        line = " ".join(line[10:58].strip() for line in value.text.split("\n")[:2])
        return Shown(line, "hex")
    text = value.text.replace("\n", " ⏎ ").replace("\t", " ")
    return Shown(text[:PREVIEW_LETTERS], value.way)


# Records of internal topics


class _Lines(Tracer):
    """A tracer that keeps its lines, without positions."""

    def __init__(self) -> None:
        super().__init__(lambda text: None, 1)
        self.lines: list[str] = []

    def line(self, position: str, depth: int, text: str) -> None:
        self.lines.append("  " * depth + text)


def _fields(part: Part | None, data: bytes | None) -> str | None:
    """Returns the fields of a key or value of an internal topic; None for other data."""
    if part is None or data is None or len(data) > INNER_BYTES:
        return None
    lines, window = _Lines(), Window(data)
    try:
        for layout in part.layouts:
            lines.struct(layout, window, 1)
    except (Stopped, MalformedMessage) as error:
        lines.lines.append(f"  ({error})")
    return "\n".join((part.title, *lines.lines))


def _inner_fields(topic: str, key: bytes | None, value: bytes | None) -> tuple[str | None, str | None]:
    """Returns the fields of key and value of a record of an internal topic; None for other data."""
    key_fields = None if key is None else _fields(record_values.key_part(topic, key), key)
    if key is None or key_fields is None:
        return None, None
    return key_fields, _fields(None if value is None else record_values.value_part(topic, key, value), value)


def _part_text(topic: str, key: bytes | None, value: bytes | None) -> tuple[Shown | None, Shown | None] | None:
    """Returns key and value of a record of an internal topic, in one line each."""
    key_text, value_text = _inner_fields(topic, key, value)
    if key_text is None:
        return None
    shown_value = None if value is None else shown(value, "text") if value_text is None else _one_line(value_text)
    return _one_line(key_text), _short(shown_value, "auto")


def _one_line(text: str) -> Shown:
    title, _, rest = text.partition("\n")
    line = f"{title}: " + ", ".join(line.strip() for line in rest.split("\n"))
    return Shown(line[:PREVIEW_LETTERS], "fields")


# One record


async def message(request: PageRequest) -> Page:
    """Shows one record with key, value and headers, and the facts of its batch."""
    state = request.plane.operations.running.state
    topic, partition, record = await _found(state, request)
    way = request.query.choice("view", WAYS)
    log = partition.log
    offset = record.offset
    key, value = record.key, record.value
    key_start, value_start = cut(key.head, ALONE_BYTES), cut(value.head, ALONE_BYTES)
    index = partition.index
    links = {
        "previous": url("messages", topic, index, offset - 1) + "?step=back" if offset > log.log_start_offset else None,
        "next": url("messages", topic, index, offset + 1) if offset + 1 < log.high_watermark else None,
        "around": url("messages", topic) + f"?partition={index}&offset={max(log.log_start_offset, offset - 12)}",
    }
    has_parts = not record.batch.header.is_control and record.problem is None
    fields = _inner_fields(topic, key.head, value.head) if has_parts else (None, None)
    schemas = request.plane.schemas.get(topic)
    decoded: dict[str, Whole | None] = {"key": None, "value": None}
    if schemas is not None and way == AUTO and has_parts:
        for part, of in (("key", key), ("value", value)):
            decoded[part] = await state.scheduler.run(in_thread(partial(whole, schemas.get(part), of.head)))
    values = {
        "topic": topic,
        "record": record,
        "decoded": decoded,
        "requested": int(request.path["offset"]),
        "way": way,
        "ways": WAYS,
        "query": request.query,
        "key": shown(key_start.head, way, is_cut=key_start.is_cut),
        "value": shown(value_start.head, way, is_cut=value_start.is_cut),
        "key_fields": fields[0],
        "value_fields": fields[1],
        "key_is_cut": key_start.is_cut,
        "value_is_cut": value_start.is_cut,
        "kept_bytes": ALONE_BYTES,
        "headers": [_header(header, way) for header in record.headers[:SHOWN_HEADERS]],
        "links": links,
        "stable_offset": log.last_stable_offset,
    }
    return Page("message.html", f"{topic}-{index} @ {offset}", "messages", values)


def _header(header: tuple[str, bytes | None], way: str) -> tuple[str, Shown | None, int, bool]:
    """Returns a header's name, its value as text, its size, and whether the value is cut."""
    name, value = header[0], cut(header[1], HEADER_BYTES)
    return name, shown(value.head, "text" if way == "auto" else way, is_cut=value.is_cut), value.size, value.is_cut


async def _found(state: BrokerState, request: PageRequest) -> tuple[str, Partition, SeenRecord]:
    """Returns the record at an offset, or the next one; with `step=back` the one before. Raises NotFound."""
    name = request.path["topic"]
    partition = partition_of(state, name, _small(request.path["partition"]))
    offset = _small(request.path["offset"], 19)
    if request.query.text("step") == "back":
        seen = await look_back(state, partition, offset + 1, Wanted(offset + 1, offset + 1, 1, kept_bytes=None))
    else:
        seen = await look(state, partition, Wanted(offset, INT64_MAX, 1, kept_bytes=None))
    if not seen.records:
        raise NotFound(f"{name}-{partition.index} has no record at or after offset {offset}")
    return name, partition, seen.records[0]


def _small(text: str, digits: int = 10) -> int:
    if len(text) > digits or int(text) > INT64_MAX:
        raise NotFound(f"there is no {text[:20]}")
    return int(text)


async def download(request: PageRequest) -> Download:
    """Returns the bytes of a record's key, value, or numbered header."""
    state = request.plane.operations.running.state
    name, partition, record = await _found(state, request)
    what, offset = request.path["what"], int(request.path["offset"])
    if record.offset != offset or record.problem is not None:
        raise NotFound(f"{name}-{partition.index} has no record at offset {offset}")
    data: bytes | None = None
    if what in ("key", "value"):
        data = (record.key if what == "key" else record.value).head
    elif what.startswith("header-") and what[7:].isascii() and what[7:].isdigit() and len(what) < 13:
        number = int(what[7:])
        data = record.headers[number][1] if number < len(record.headers) else None
    else:
        raise NotFound(f"a record has key, value and header-N, not {what[:40]}")
    if data is None:
        raise NotFound(f"the record at offset {offset} has no {what}, or it is null")
    return Download(data, f"{name}-{partition.index}-{offset}.{what}")
