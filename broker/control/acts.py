"""The control plane's routes for topics, records, groups and producers, and the JSON form of their results."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from msgspec import UNSET

from ..admin_api.views import Group, NewRecord, Record
from ..json_bytes import from_json, to_json
from .models import topics as models
from .models.parts import Base64, Removed, or_none
from .plane import Plane
from .refusal import Refusal
from .route import Call, RouteTable

MAX_RESPONSE_BYTES = 16 * 1024 * 1024  # of keys and values in one response, plus one record
routes = RouteTable()


@routes.add("GET", "/topics", models.Topics)
async def list_topics(plane: Plane, call: Call) -> Any:
    """All topics, including internal ones."""
    return {"topics": await plane.operations.topics()}


@routes.add("POST", "/topics", models.Topic, status=201, body=models.NewTopic)
async def create_topic(plane: Plane, call: Call) -> Any:
    """Create a topic."""
    body: models.NewTopic = call.body
    name = await plane.operations.create_topic(or_none(body.name), body.partitions, or_none(body.configs) or {})
    return await plane.operations.topic(name)


@routes.add("GET", "/topics/{topic}", models.Topic)
async def get_topic(plane: Plane, call: Call) -> Any:
    """One topic."""
    return await plane.operations.topic(call.path["topic"])


@routes.add("DELETE", "/topics/{topic}", Removed)
async def delete_topic(plane: Plane, call: Call) -> Any:
    """Delete a topic."""
    await plane.operations.delete_topic(call.path["topic"])
    return {"removed": 1}


@routes.add("GET", "/topics/{topic}/records", models.Records, query=models.RecordsQuery)
async def list_records(plane: Plane, call: Call) -> Any:
    """Committed records, by partition and offset.

    The response ends at a number of records and of bytes.
    """
    query: models.RecordsQuery = call.query
    found: list[dict[str, Any]] = []
    size = 0
    async for some in plane.operations.slices(call.path["topic"], or_none(query.partition), query.offset):
        for record in some:
            if len(found) == query.limit or size > MAX_RESPONSE_BYTES:
                return {"records": found, "more": True}
            found.append(_record(record))
            size += len(record.key or b"") + len(record.value or b"") + sum(len(h[1] or b"") for h in record.headers)
    return {"records": found, "more": False}


@routes.add("POST", "/topics/{topic}/records", models.Offsets, status=201, body=models.NewRecords, needs_body=True)
async def send_records(plane: Plane, call: Call) -> Any:
    """Append records."""
    body: models.NewRecords = call.body
    records = [_new_record(given, f"the body.records[{index}]") for index, given in enumerate(body.records)]
    return {"offsets": await plane.operations.send_many(call.path["topic"], records)}


@routes.add("GET", "/groups", models.Groups)
async def list_groups(plane: Plane, call: Call) -> Any:
    """All groups."""
    return {"groups": [_group(group) for group in await plane.operations.groups()]}


@routes.add("GET", "/groups/{group}", models.Group)
async def get_group(plane: Plane, call: Call) -> Any:
    """One group."""
    group = await plane.operations.group(call.path["group"])
    if group.state == "Dead":
        raise Refusal(404, f"there is no group {group.id}")
    return _group(group)


@routes.add("GET", "/groups/{group}/records", models.ShareRecordsInFlight, query=models.ShareRecordsQuery)
async def list_share_records(plane: Plane, call: Call) -> Any:
    """The records in flight of a share partition."""
    query: models.ShareRecordsQuery = call.query
    return asdict(await plane.operations.share_records(call.path["group"], query.topic, query.partition))


@routes.add("GET", "/producers", models.Producers, query=models.ProducersQuery, refusals=(404, 409))
async def list_producers(plane: Plane, call: Call) -> Any:
    """The producer state entries of partitions."""
    query: models.ProducersQuery = call.query
    return {"producers": await plane.operations.producers(or_none(query.topic))}


def _new_record(given: models.NewRecord, where: str) -> NewRecord:
    return NewRecord(
        _bytes(given.value, f"{where}.value"),
        None if given.key is UNSET else _bytes(given.key, f"{where}.key"),
        tuple(
            (header.name, _bytes(header.value, f"{where}.headers[{index}].value"))
            for index, header in enumerate(or_none(given.headers) or ())
        ),
        or_none(given.partition),
        or_none(given.timestamp_ms),
    )


def _bytes(given: str | Base64 | None, where: str) -> bytes | None:
    """Returns the bytes of a key or value. Raises Refusal (400) for malformed base64."""
    try:
        return from_json({"base64": given.base64} if isinstance(given, Base64) else given, where)
    except ValueError as error:
        raise Refusal(400, error) from error


def _record(record: Record) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": to_json(record.key),
        "value": to_json(record.value),
        "headers": [{"name": name, "value": to_json(value)} for name, value in record.headers],
    }


def _group(group: Group) -> dict[str, Any]:
    def places(some: tuple[tuple[str, int], ...]) -> list[dict[str, Any]]:
        return [{"topic": topic, "partition": index} for topic, index in some]

    members = [
        asdict(member)
        | {
            "assignment": places(member.assignment),
            "target": None if member.target is None else places(member.target),
        }
        for member in group.members
    ]
    return asdict(group) | {"members": members, "lag": group.lag}
