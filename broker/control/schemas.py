"""The JSON schemas of what the control plane takes and answers, by name: the `components` of its OpenAPI document.

Only keywords that `shapes.check` knows. Every object is closed: a name that is not listed is a mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .shapes import Schema

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
MAX_NAME = 249  # letters of a topic's name
MAX_ID = 32_767  # letters of a group's or a client's id, as long as the protocol has room for
MAX_RECORDS = 10_000  # in one request or one answer
MAX_PARTITIONS = 10_000
MAX_NODES = 100
MAX_MOVE_MS = 100 * 366 * 86_400_000  # of the clock, at once: a hundred years
LATEST_MS = 253_402_300_799_999  # the end of the year 9999


def _whole(least: int, most: int, text: str = "", **more: Any) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most} | ({"description": text} if text else {}) | more


def _text(most: int, text: str = "", least: int = 0) -> Schema:
    return {"type": "string", "minLength": least, "maxLength": most} | ({"description": text} if text else {})


def _list(of: str | Schema, most: int | None = None) -> Schema:
    return {"type": "array", "items": ref(of) if isinstance(of, str) else of} | ({"maxItems": most} if most else {})


def _object(properties: Mapping[str, Any], optional: tuple[str, ...] | None = (), text: str = "") -> Schema:
    """A closed object; `optional` None: all of it."""
    required = [name for name in properties if optional is not None and name not in optional]
    found: dict[str, Any] = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return found | ({"required": required} if required else {}) | ({"description": text} if text else {})


def ref(name: str) -> Schema:
    """A reference to one of SCHEMAS."""
    return {"$ref": f"#/components/schemas/{name}"}


TOPIC = _text(MAX_NAME, "a topic's name", 1)
PARTITION = _whole(0, INT32_MAX, "a partition")
NODE = _whole(1, MAX_NODES, "a node's id")
OFFSET = _whole(-1, INT64_MAX)
TIME_MS = _whole(-1, INT64_MAX, "milliseconds since 1970")
COUNT = _whole(0, INT64_MAX)
FLAG: Schema = {"type": "boolean"}
TEXT: Schema = {"type": "string"}
CONFIGS: Schema = {
    "type": "object",
    "additionalProperties": {"type": "string"},
    "maxProperties": 1000,
    "description": "configs by Kafka's names",
}
PARAMETER_ID = _text(MAX_ID, least=1)
SNAPSHOT_NAME = _text(100, "what the snapshot is called", 1)

PATH_PARAMETERS: Mapping[str, Schema] = {
    "fault": PARAMETER_ID,
    "group": PARAMETER_ID,
    "node": NODE,
    "snapshot": SNAPSHOT_NAME,
    "topic": TOPIC,
}

SCHEMAS: dict[str, Schema] = {
    "Error": _object({"error": TEXT}),
    "Bytes": {
        "description": "bytes: a string where they are UTF-8, base64 where they are not, null for none",
        "anyOf": [
            {"type": "string", "title": "a string"},
            {**_object({"base64": TEXT}), "title": '{"base64": ...}'},
            {"type": "null", "title": "null"},
        ],
    },
    "Nothing": _object({}, None, "an empty object: there is nothing to tell, or to ask"),
    "Removed": _object({"removed": COUNT}, text="how many are gone"),
    "OpenApi": {"type": "object", "description": "this document"},
    "Health": _object(
        {
            "status": {"const": "serving"},
            "version": TEXT,
            "release": {"type": "string", "description": "the release of Kafka whose ways it has"},
            "cluster_id": TEXT,
            "bootstrap": {"type": "string", "description": "where clients connect: host:port, joined by commas"},
        }
    ),
}
