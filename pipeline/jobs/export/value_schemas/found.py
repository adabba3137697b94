"""A schema with the schemas that it refers to, the sources of schemas by id, and Confluent's wire format."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from ..manifest import ExportError

SchemaType = Literal["AVRO", "PROTOBUF", "JSON"]
TYPES: tuple[SchemaType, ...] = ("AVRO", "PROTOBUF", "JSON")

ID_BYTES = 5
INDEXES_MAX = 32  # of a message in a Protobuf schema


class SourceError(ExportError):
    """Schemas cannot be read: ends the export, whatever the treatment of values that do not decode."""


class Schema(NamedTuple):
    """The text of a schema, and the schemas that it refers to, with the names that it has for them."""

    type: SchemaType
    text: str
    references: tuple[tuple[str, Schema], ...] = ()

    def all_references(self) -> dict[str, str]:
        """Returns the texts of all schemas that this one needs, by name."""
        found: dict[str, str] = {}
        for name, schema in self.references:
            found |= {**schema.all_references(), name: schema.text}
        return found


class SchemaSource(Protocol):
    """Schemas by their ids; picklable."""

    def by_id(self, schema_id: int) -> Schema | None:
        """Returns a schema, None if there is none with this id. Raises SourceError."""
        ...

    def latest(self, subject: str) -> Schema:
        """Returns the schema that the columns are made from. Raises SourceError."""
        ...


def schema_id(value: bytes) -> int:
    """Returns the schema id at the start of a value: a zero byte, and four bytes. Raises ValueError."""
    if len(value) < ID_BYTES or value[0]:
        raise ValueError("it does not begin with a schema id")
    return int.from_bytes(value[1:ID_BYTES], "big")


def message_indexes(value: bytes, position: int = ID_BYTES) -> tuple[tuple[int, ...], int]:
    """Returns the path to a message in its Protobuf schema, and the position after it: the number of indexes and the
    indexes as zigzag varints; none is the first message. Raises ValueError."""
    count, position = _zigzag(value, position)
    if not 0 <= count <= INDEXES_MAX:
        raise ValueError(f"it has {count} message indexes")
    indexes: list[int] = []
    for _ in range(count):
        index, position = _zigzag(value, position)
        indexes.append(index)
    return tuple(indexes) or (0,), position


def _zigzag(value: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if position >= len(value) or shift > 28:
            raise ValueError("its message indexes are cut short")
        byte = value[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
