"""Schemas in a folder, for logs without their registry: a file for each id, such as `12.avsc`.

The ends of names are .avsc (Avro), .proto (Protobuf) and .json (JSON Schema). References are not resolved, but a .proto
file may import the others of the folder by name.
"""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass

from .found import Schema, SchemaType, SourceError

BYTES_MAX = 4 << 20
IMPORTS_MAX = 100
SCHEMAS_KEPT = 1000
_ENDS: dict[str, SchemaType] = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}
_NAME = re.compile(r"([0-9]{1,10})(\.avsc|\.proto|\.json)")


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that the driver and the workers see at this path."""

    path: str

    def __str__(self) -> str:
        return self.path

    def by_id(self, schema_id: int) -> Schema | None:
        """Returns a schema, None if the folder has none with this id. Raises SourceError."""
        return _by_id(self, schema_id)

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
        if kind != "PROTOBUF":
            return Schema(kind, self._text(name))
        others = [one for one in sorted(os.listdir(self.path)) if one.endswith(".proto") and one != name]
        return Schema(
            kind, self._text(name), tuple((one, Schema(kind, self._text(one))) for one in others[:IMPORTS_MAX])
        )

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


@functools.lru_cache(maxsize=SCHEMAS_KEPT)
def _by_id(folder: Folder, schema_id: int) -> Schema | None:
    name = folder._names().get(schema_id)
    return None if name is None else folder._read(name)
