"""A schema with the schemas that it refers to, Confluent's wire format, and the sources of schemas by id: registries,
and `Folder` for logs without their registry.
"""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from .....protocol.records.errors import InvalidRecords
from .....protocol.records.walk import varint
from ..manifest import ExportError

SchemaType = Literal["AVRO", "PROTOBUF", "JSON"]
TYPES: tuple[SchemaType, ...] = ("AVRO", "PROTOBUF", "JSON")

BYTES_MAX = 4 << 20  # of a schema
SCHEMAS_KEPT = 1000
ID_BYTES = 5
INDEXES_MAX = 32  # of a message in a Protobuf schema
IMPORTS_MAX = 100
_ENDS: dict[str, SchemaType] = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}
_NAME = re.compile(r"([0-9]{1,10})(\.avsc|\.proto|\.json)")


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


@functools.lru_cache(maxsize=SCHEMAS_KEPT)
def schema_of(source: SchemaSource, schema_id: int) -> Schema | None:
    """Returns `source.by_id(schema_id)`, which a process calls once: an id never gets another schema."""
    return source.by_id(schema_id)


def schema_id(value: bytes) -> int:
    """Returns the schema id at the start of a value: a zero byte, and four bytes. Raises ValueError."""
    if len(value) < ID_BYTES or value[0]:
        raise ValueError("it does not begin with a schema id")
    return int.from_bytes(value[1:ID_BYTES], "big")


def message_indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Returns the path to a message in its Protobuf schema, and the position after it: after the schema id the number
    of indexes and the indexes as zigzag varints; none is the first message. Raises ValueError."""
    try:
        count, position = varint(value, ID_BYTES)
        if not 0 <= count <= INDEXES_MAX:
            raise ValueError(f"it has {count} message indexes")
        indexes: list[int] = []
        for _ in range(count):
            index, position = varint(value, position)
            indexes.append(index)
    except (IndexError, InvalidRecords):
        raise ValueError("its message indexes are cut short") from None
    return tuple(indexes) or (0,), position


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that the driver and the workers see at this path, with a file for each id, such as `12.avsc`.

    The ends of names are .avsc (Avro), .proto (Protobuf) and .json (JSON Schema). References are not resolved, but a
    .proto file may import the others of the folder by name.
    """

    path: str

    def __str__(self) -> str:
        return self.path

    def by_id(self, schema_id: int) -> Schema | None:
        name = self._names().get(schema_id)
        return None if name is None else self._read(name)

    def latest(self, subject: str) -> Schema:
        """Returns the schema with the highest id. Raises SourceError."""
        names = self._names()
        if not names:
            raise SourceError(f"{self.path} has no schema: the names must be like 12.avsc, 12.proto or 12.json")
        return self._read(names[max(names)])

    def _names(self) -> dict[int, str]:
        try:
            names = os.listdir(self.path)
        except OSError as error:
            raise SourceError(f"cannot read {self.path}: {error.strerror}") from error
        return {int(match[1]): name for name in sorted(names) if (match := _NAME.fullmatch(name))}

    def _read(self, name: str) -> Schema:
        kind = _ENDS[os.path.splitext(name)[1]]
        names = sorted(os.listdir(self.path)) if kind == "PROTOBUF" else ()
        others = [one for one in names if one.endswith(".proto") and one != name][:IMPORTS_MAX]
        return Schema(kind, self._text(name), tuple((one, Schema(kind, self._text(one))) for one in others))

    def _text(self, name: str) -> str:
        path = os.path.join(self.path, name)
        try:
            with open(path, "rb") as file:
                data = file.read(BYTES_MAX + 1)
            if len(data) > BYTES_MAX:
                raise SourceError(f"{path} is larger than {BYTES_MAX} bytes")
            return data.decode()
        except UnicodeDecodeError:
            raise SourceError(f"{path} is not UTF-8 text") from None
        except OSError as error:
            raise SourceError(f"cannot read {path}: {error.strerror}") from error
