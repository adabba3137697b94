"""What the control plane does for topics, records, groups and producers, and how their views stand in JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..admin_api.overview import DEFAULT_LIMIT, Asked
from ..admin_api.views import Group, NewRecord, Record
from . import values
from .plane import Plane
from .refusal import Refusal
from .route import Call
from .schemas import MAX_RECORDS

MAX_ANSWER_BYTES = 16 * 1024 * 1024  # of keys and values in one answer, and one record more


async def create_topic(plane: Plane, call: Call) -> Any:
    """Makes a topic; answers with it."""
    body = call.body
    name = await plane.operations.create_topic(body.get("name"), body.get("partitions", 1), body.get("configs", {}))
    return asdict(await plane.operations.topic(name))


async def list_topics(plane: Plane, call: Call) -> Any:
    """All topics."""
    return {"topics": [asdict(topic) for topic in await plane.operations.topics()]}


async def get_topic(plane: Plane, call: Call) -> Any:
    """One topic."""
    return asdict(await plane.operations.topic(call.path["topic"]))


async def delete_topic(plane: Plane, call: Call) -> Any:
    """Deletes a topic with its records."""
    await plane.operations.delete_topic(call.path["topic"])
    return {"removed": 1}


async def send_records(plane: Plane, call: Call) -> Any:
    """Appends records."""
    records = [_new_record(given, f"the body.records[{index}]") for index, given in enumerate(call.body["records"])]
    return {"offsets": await plane.operations.send_many(call.path["topic"], records)}


async def list_records(plane: Plane, call: Call) -> Any:
    """Committed records, those from an offset on in each partition: at most so many, and of so many bytes."""
    limit = call.query.get("limit", MAX_RECORDS)
    found: list[dict[str, Any]] = []
    size = 0
    async for some in plane.operations.slices(
        call.path["topic"], call.query.get("partition"), call.query.get("offset", 0)
    ):
        for record in some:
            if len(found) == limit or size > MAX_ANSWER_BYTES:
                return {"records": found, "more": True}
            found.append(_record(record))
            size += len(record.key or b"") + len(record.value or b"") + sum(len(h[1] or b"") for h in record.headers)
    return {"records": found, "more": False}


async def list_groups(plane: Plane, call: Call) -> Any:
    """All groups."""
    return {"groups": [_group(group) for group in await plane.operations.groups()]}


async def get_group(plane: Plane, call: Call) -> Any:
    """One group."""
    group = await plane.operations.group(call.path["group"])
    if group.state == "Dead":
        raise Refusal(404, f"there is no group {group.id}")
    return _group(group)


async def list_producers(plane: Plane, call: Call) -> Any:
    """What partitions know of producers."""
    return {"producers": [asdict(one) for one in await plane.operations.producers(call.query.get("topic"))]}


async def get_overview(plane: Plane, call: Call) -> Any:
    """What is going on."""
    asked = Asked(call.query.get("limit", DEFAULT_LIMIT), call.query.get("contains", ""))
    return await plane.overviews.taken(asked)


def _new_record(given: dict[str, Any], where: str) -> NewRecord:
    return NewRecord(
        values.from_json(given["value"], f"{where}.value"),
        values.from_json(given.get("key"), f"{where}.key"),
        tuple(
            (header["name"], values.from_json(header["value"], f"{where}.headers[{index}].value"))
            for index, header in enumerate(given.get("headers", ()))
        ),
        given.get("partition"),
        given.get("timestamp_ms"),
    )


def _record(record: Record) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": values.to_json(record.key),
        "value": values.to_json(record.value),
        "headers": [{"name": name, "value": values.to_json(value)} for name, value in record.headers],
    }


def _group(group: Group) -> dict[str, Any]:
    members = [
        asdict(member) | {"assignment": [{"topic": topic, "partition": index} for topic, index in member.assignment]}
        for member in group.members
    ]
    return asdict(group) | {"members": members, "lag": group.lag}
