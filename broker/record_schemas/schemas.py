"""The schemas of topics' keys and values, as `--schema TOPIC[:key|value]=FILE[#MESSAGE]` gives them.

Files are read and checked at the start. FILE is an Avro schema (.avsc, .json), a descriptor set of Protocol Buffers
(.desc, .pb, .binpb) or their source (.proto).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .avro import AvroDecoder
from .decoder import DecodeError, Decoder, SchemaError
from .protobuf import ProtobufDecoder, compiled

FILE_BYTES_MAX = 4 << 20
PARTS = ("value", "key")
SHOWN_BYTES = 600  # of a key or a value in a list
DECODED_IN_LIST = 4096  # of one that has a schema
AVRO, DESCRIPTORS, SOURCE = (".avsc", ".json"), (".desc", ".pb", ".binpb"), ".proto"


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """One schema and the name of the file that it came from."""

    decoder: Decoder
    file: str

    @property
    def title(self) -> str:
        """What it is, for people."""
        return f"{self.decoder.kind} {self.decoder.name}".strip()


@dataclass(frozen=True, slots=True)
class TopicSchemas:
    """The schemas of one topic, by "key" and "value"."""

    parts: Mapping[str, TopicSchema]

    def plain(self, part: str, data: bytes | None) -> Any:
        """What its schema makes of a key or a value, as JSON has it; {"problem": why} where it is no such value. None
        without a schema or without data."""
        schema = self.parts.get(part)
        if schema is None or data is None:
            return None
        try:
            return schema.decoder.decode(data).value
        except DecodeError as error:
            return {"problem": str(error)}


@dataclass(frozen=True, slots=True)
class Schemas:
    """All schemas, by topic."""

    topics: Mapping[str, TopicSchemas] = field(default_factory=dict[str, TopicSchemas])

    def of(self, topic: str) -> TopicSchemas | None:
        """Those of a topic; None where it has none."""
        return self.topics.get(topic)

    def kept_bytes(self, topic: str) -> int:
        """How many bytes of a key or a value a list needs: what is cut cannot be decoded."""
        return DECODED_IN_LIST if topic in self.topics else SHOWN_BYTES

    @classmethod
    def load(cls, given: Iterable[tuple[str, str | os.PathLike[str]]]) -> Schemas:
        """From pairs of TOPIC[:key|value] and FILE[#MESSAGE]. Raises SchemaError, which names the file."""
        found: dict[str, dict[str, TopicSchema]] = {}
        for where, file in given:
            topic, colon, part = where.partition(":")
            if not topic or (colon and part not in PARTS):
                raise SchemaError(f"{where!r} is no topic: TOPIC, TOPIC:key or TOPIC:value is expected")
            parts = found.setdefault(topic, {})
            if (part or PARTS[0]) in parts:
                raise SchemaError(f"{where} has two schemas")
            parts[part or PARTS[0]] = _loaded(os.fspath(file))
        return cls({topic: TopicSchemas(parts) for topic, parts in found.items()})


def pair_of(text: str) -> tuple[str, str]:
    """The value of `--schema`. Raises SchemaError."""
    where, equals, file = text.partition("=")
    if not equals or not where or not file:
        raise SchemaError(f"{text!r} is not TOPIC[:key|value]=FILE")
    return where, file


def _loaded(text: str) -> TopicSchema:
    name, _, message = text.partition("#")
    path = Path(name)
    ending = path.suffix.lower()
    try:
        if ending not in (*AVRO, *DESCRIPTORS, SOURCE):
            known = ", ".join((*AVRO, *DESCRIPTORS, SOURCE))
            raise SchemaError(f"a schema's file ends with {known}")
        data = _read(path)
        if ending in AVRO:
            if message:
                raise SchemaError("an Avro schema has no messages to choose from")
            return TopicSchema(AvroDecoder(data.decode()), path.name)
        return TopicSchema(
            ProtobufDecoder(compiled(path.resolve()) if ending == SOURCE else data, message or None), name
        )
    except OSError as error:
        raise SchemaError(f"{name}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SchemaError(f"{name}: it is no text") from error
    except SchemaError as error:
        raise SchemaError(f"{name}: {error}") from error


def _read(path: Path) -> bytes:
    with path.open("rb") as source:
        data = source.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise SchemaError(f"it is larger than {FILE_BYTES_MAX} bytes")
    return data
