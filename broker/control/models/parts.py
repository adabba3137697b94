"""The building blocks of models: closed objects, bounded numbers and texts, common types of fields; and the models of
health, errors and log levels, and of bodies and responses that hold nothing or a count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from ....protocol.limits import INT16_MAX, INT32_MAX, INT64_MAX
from ...logs import Levels

NAME_MAX = 249  # characters of a topic's name
ID_MAX = 32_767  # characters of the id of a group or a client: the maximum of the protocol
CONFIGS_MAX = 1000  # in one request


T = TypeVar("T")


class Model(Struct, forbid_unknown_fields=True):
    """A JSON object that has no other fields than those of its class."""


def or_none(value: T | UnsetType) -> T | None:
    """Returns the value of an optional field, None if the request did not have it."""
    return None if value is UNSET else value


def doc(description: str, **schema: Any) -> Meta:
    """Describes a field; `schema` is added to its JSON schema."""
    return Meta(description=description, extra_json_schema=schema or None)


def whole(least: int, most: int, description: str | None = None, **schema: Any) -> Meta:
    """Bounds an integer, both ends allowed."""
    return Meta(ge=least, le=most, description=description, extra_json_schema=schema or None)


def text(most: int, description: str | None = None, least: int = 0) -> Meta:
    """Bounds the characters of a string."""
    return Meta(min_length=least, max_length=most, description=description)


def items(most: int, least: int | None = None, description: str | None = None) -> Meta:
    """Bounds the length of a list or an object."""
    return Meta(min_length=least, max_length=most, description=description)


TopicName = Annotated[str, text(NAME_MAX, "a topic's name", 1)]
PartitionIndex = Annotated[int, whole(0, INT32_MAX, "a partition")]
NodeId = Annotated[int, whole(0, INT32_MAX, "a node's id")]
LeaderId = Annotated[int, whole(-1, INT32_MAX, "the leader's node id, -1 for none")]
Epoch = Annotated[int, whole(-1, INT32_MAX)]
ProducerEpoch = Annotated[int, whole(-1, INT16_MAX)]
LogOffset = Annotated[int, whole(-1, INT64_MAX)]
TimeMs = Annotated[int, whole(-1, INT64_MAX, "milliseconds since 1970")]
Count = Annotated[int, whole(0, INT64_MAX)]
Port = Annotated[int, whole(0, 65_535)]
Number = Annotated[int, whole(1, INT64_MAX)]


class Base64(Model):
    """Bytes that are not UTF-8."""

    base64: str


Bytes = Annotated[
    str | Base64 | None, doc('a string for bytes that are UTF-8, {"base64": ...} for others, null for none')
]


# General models

if TYPE_CHECKING:
    LevelName: TypeAlias = str
else:
    LevelName = Literal[Levels.LEVELS]

OpenApi = Annotated[dict[str, Any], doc("this document")]


class Error(Model):
    error: str


class Nothing(Model):
    """An object without fields."""


class Removed(Model):
    """How many were removed."""

    removed: Count


class Health(Model):
    status: Literal["serving", "failed"]
    reason: Annotated[str | None, doc("why the broker has failed; a reset or a restore starts it again")]
    version: str
    release: Annotated[str, doc("the Kafka release whose behaviour the broker has")]
    cluster_id: str
    bootstrap: Annotated[str, doc("the listeners' addresses: HOST:PORT, joined by commas")]


class LogLevel(Model):
    logger: Annotated[str, text(NAME_MAX, "its name, with or without the prefix ottla.broker., or root", 1)]
    level: Annotated[LevelName | None, doc("null: the inherited level")]


class LogLevels(Model):
    """The level of each logger by its name."""

    levels: dict[str, LevelName]
