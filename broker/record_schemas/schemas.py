"""Schemas of topics' keys and values, from `--schema TOPIC[:key|value]=FILE[#MESSAGE]`.

Files are read and checked at startup. FILE is an Avro schema (.avsc, .json), a descriptor set of Protocol Buffers
(.desc, .pb, .binpb) or their source (.proto).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...protocol.frozen import frozen
from .avro import AvroDecoder
from .decoder import DecodeError, SchemaError
from .protobuf import ProtobufDecoder, compiled

FILE_BYTES_MAX = 4 << 20
PARTS = ("value", "key")
AVRO, DESCRIPTORS, SOURCE = (".avsc", ".json"), (".desc", ".pb", ".binpb"), ".proto"


@frozen
class TopicSchema:
    """A schema, and the name of its file."""

    decoder: AvroDecoder | ProtobufDecoder
    file: str

    @property
    def title(self) -> str:
        """The kind and name of the schema, for display."""
        return f"{self.decoder.kind} {self.decoder.name}".strip()

    def plain(self, data: bytes | None) -> Any:
        """Returns a key or value in JSON types, {"problem": reason} if it is not of the schema, None without data."""
        if data is None:
            return None
        try:
            return self.decoder.decode(data).value
        except DecodeError as error:
            return {"problem": str(error)}


TopicSchemas = Mapping[str, TopicSchema]
"""The schemas of one topic, by "key" and "value"."""
Schemas = Mapping[str, TopicSchemas]
"""All schemas by topic."""


def load(given: Iterable[tuple[str, str | os.PathLike[str]]]) -> Schemas:
    """Loads pairs of TOPIC[:key|value] and FILE[#MESSAGE]. Raises SchemaError with the file name."""
    found: dict[str, dict[str, TopicSchema]] = {}
    for where, file in given:
        topic, colon, part = where.partition(":")
        if not topic or (colon and part not in PARTS):
            raise SchemaError(f"{where!r} is not a valid target: expected TOPIC, TOPIC:key or TOPIC:value")
        parts = found.setdefault(topic, {})
        if (part or PARTS[0]) in parts:
            raise SchemaError(f"{where} has two schemas")
        parts[part or PARTS[0]] = _loaded(os.fspath(file))
    return found


def pair_of(text: str) -> tuple[str, str]:
    """Parses the value of `--schema`. Raises SchemaError."""
    where, equals, file = text.partition("=")
    if not equals or not where or not file:
        raise SchemaError(f"{text!r} is not a valid schema: expected TOPIC[:key|value]=FILE")
    return where, file


def _loaded(text: str) -> TopicSchema:
    name, _, message = text.partition("#")
    path = Path(name)
    ending = path.suffix.lower()
    try:
        if ending not in (*AVRO, *DESCRIPTORS, SOURCE):
            known = ", ".join((*AVRO, *DESCRIPTORS, SOURCE))
            raise SchemaError(f"unknown kind of schema file: expected a name that ends with one of {known}")
        data = _read(path)
        if ending in AVRO:
            if message:
                raise SchemaError("#MESSAGE is only possible with Protobuf, not with an Avro schema")
            return TopicSchema(AvroDecoder(data.decode()), path.name)
        return TopicSchema(
            ProtobufDecoder(compiled(path.resolve()) if ending == SOURCE else data, message or None), name
        )
    except OSError as error:
        raise SchemaError(f"{name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SchemaError(f"{name}: not a UTF-8 text file") from error
    except SchemaError as error:
        raise SchemaError(f"{name}: {error}") from error


def _read(path: Path) -> bytes:
    with path.open("rb") as source:
        data = source.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise SchemaError(f"larger than the limit of {FILE_BYTES_MAX} bytes")
    return data
