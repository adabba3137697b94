"""The arguments of an export that choose how values and keys are decoded, and where their schemas are.

The columns are those of `--schema`; else of the earlier export into the folder, so that a new version of a schema does
not end an export that continues; else of the latest version in the registry.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ....protocol.properties import parse_properties
from ...cluster import context_of
from ...extras import require
from ..command import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .commit import Settings
    from .value_columns import Decoding
    from .value_schemas.sources import SchemaSource


class Part(NamedTuple):
    """A part of a record, and its flags."""

    word: str
    decode: str
    schema: str
    subject: str
    message: str

    def given(self, parsed: argparse.Namespace, flag: str) -> Any:
        """Returns the value of a flag of this part, None without."""
        return getattr(parsed, flag[2:].replace("-", "_"))

    def is_ddl(self, parsed: argparse.Namespace) -> bool:
        """Returns whether the schema is columns in Spark's form."""
        kind, schema = self.given(parsed, self.decode), self.given(parsed, self.schema)
        return schema is not None and kind.startswith("json") and not schema.lstrip().startswith("{")


VALUE = Part("value", "--decode", "--schema", "--subject", "--message")
KEY = Part("key", "--decode-key", "--key-schema", "--key-subject", "--key-message")
PARTS = (VALUE, KEY)

KINDS = ("json", "json-confluent", "avro", "avro-confluent", "avro-single", "protobuf", "protobuf-confluent")
_SOURCES = ("schema_registry", "schemas")


def add(parser: argparse.ArgumentParser, *, to: str) -> None:
    """Adds the arguments of values and keys. `to` are the words for what values are decoded for."""
    parser.add_argument("--decode", choices=KINDS, help=f"decode values {to}")
    parser.add_argument(
        "--schema",
        metavar="TEXT|@FILE",
        help="of JSON as in Spark (id BIGINT, name STRING) or a JSON Schema; of Avro its JSON; of Protobuf its source",
    )
    parser.add_argument("--schema-registry", metavar="URL", help="where the schemas are whose ids are in the values")
    parser.add_argument(
        "--schema-registry-config",
        metavar="FILE",
        help="a properties file: basic.auth.user.info, bearer.auth.token, ssl.truststore.location",
    )
    parser.add_argument("--schemas", metavar="FOLDER", help="the same, as files: 12.avsc, 12.proto, 12.json")
    parser.add_argument("--subject", metavar="NAME", help="whose latest schema has the columns; default TOPIC-value")
    parser.add_argument("--message", metavar="NAME", help="the Protobuf message of the columns; default the first one")
    parser.add_argument("--decode-key", choices=KINDS, help="the same for keys, with the same registry or folder")
    parser.add_argument("--key-schema", metavar="TEXT|@FILE", help="as --schema, of keys")
    parser.add_argument("--key-subject", metavar="NAME", help="as --subject; default TOPIC-key")
    parser.add_argument("--key-message", metavar="NAME", help="as --message, of keys")


def check(parsed: argparse.Namespace) -> None:
    """Checks what goes together, and reads the schemas that are files. Raises UsageError, MissingExtra."""
    kinds = [part.given(parsed, part.decode) for part in PARTS]
    sources = [name for name in _SOURCES if getattr(parsed, name) is not None]
    if len(sources) == 2:
        raise UsageError("give either --schema-registry or --schemas, not both")
    if sources and not any(kind is not None and kind.endswith("-confluent") for kind in kinds):
        wanted = "json-confluent, avro-confluent or protobuf-confluent" if any(kinds) else ""
        raise UsageError(f"--{sources[0].replace('_', '-')} needs --decode {wanted}".rstrip())
    if parsed.schema_registry_config is not None and not parsed.schema_registry:
        raise UsageError("--schema-registry-config needs --schema-registry")
    for part in PARTS:
        _check(parsed, part, has_source=bool(sources))
        schema = part.given(parsed, part.schema)
        if schema is not None and schema.startswith("@"):
            try:
                setattr(parsed, part.schema[2:].replace("-", "_"), Path(schema[1:]).read_text())
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"cannot read the schema in {schema[1:]}: {error}") from error


def _check(parsed: argparse.Namespace, part: Part, *, has_source: bool) -> None:
    kind = part.given(parsed, part.decode)
    given = [flag for flag in (part.schema, part.subject, part.message) if part.given(parsed, flag) is not None]
    if kind is None:
        if given:
            raise UsageError(f"{given[0]} needs {part.decode}")
        return
    family, is_framed = kind.partition("-")[0], kind.endswith("-confluent")
    if part.subject in given and not parsed.schema_registry:
        raise UsageError(f"{part.subject} needs --schema-registry")
    if part.message in given and family != "protobuf":
        raise UsageError(f"{part.message} needs {part.decode} protobuf or protobuf-confluent")
    if family != "json" and part.schema not in given and not (has_source and is_framed):
        more = ", --schema-registry or --schemas" if is_framed else ""
        raise UsageError(f"{part.decode} {kind} needs {part.schema}{more}")
    if family == "avro":
        require("fastavro", f"{part.decode} {kind}")


def decoding(
    parsed: argparse.Namespace, part: Part, before: Callable[[], Settings | None] = lambda: None
) -> Decoding | None:
    """Returns how a part of the records is decoded, None if it is not and for a schema in Spark's form, which needs
    Spark. `before` returns the settings of the earlier export into the folder. Raises UsageError, ExportError."""
    from .value_columns import Decoding

    kind, schema = part.given(parsed, part.decode), part.given(parsed, part.schema)
    if kind is None or part.is_ddl(parsed):
        return None
    writers = source(parsed) if kind.endswith("-confluent") else None
    if schema is not None:
        return Decoding.of(kind, schema, part.given(parsed, part.message), writers)
    return Decoding.json(kind=kind) if writers is None else _of_source(parsed, part, writers, before())


def needs_spark(parsed: argparse.Namespace) -> bool:
    """Returns whether a schema is in Spark's form."""
    return any(part.is_ddl(parsed) for part in PARTS)


def of_spark(
    spark: SparkSession, parsed: argparse.Namespace, others: Iterable[Decoding | None]
) -> list[Decoding | None]:
    """Returns the decodings of the parts: by schemas in Spark's form, else those in `others`. Raises ExportError."""
    if not needs_spark(parsed):
        return list(others)
    from .job import json_schema

    context_of(spark)  # Spark parses the schema, so it must have started
    return [
        json_schema(part.given(parsed, part.schema), part.given(parsed, part.decode)) if part.is_ddl(parsed) else other
        for part, other in zip(PARTS, others, strict=True)
    ]


def _of_source(parsed: argparse.Namespace, part: Part, writers: SchemaSource, before: Settings | None) -> Decoding:
    """Returns the decoding to the columns of the folder's earlier export, else of the source's latest schema."""
    from .value_columns import Decoding, of_identity

    kind = part.given(parsed, part.decode)
    own = None if before is None else before.decoding if part is VALUE else before.key_decoding
    if own is not None and own.get("kind") == kind and (text := own.get("schema")) is not None:
        return of_identity(kind, text, writers)
    subject = ""
    if parsed.schema_registry:
        topic = parsed.topics[0] if parsed.topics and len(parsed.topics) == 1 else None
        subject = part.given(parsed, part.subject) or (f"{topic}-{part.word}" if topic else "")
        if not subject:
            raise UsageError(
                f"--schema-registry needs {part.subject}, or one --topic: all {part.word}s get the same columns"
            )
    found, wanted = writers.latest(subject), kind.partition("-")[0].upper()
    if found.type != wanted:
        raise UsageError(f"the schema in {writers} is of the type {found.type}, not {wanted} as {part.decode} requires")
    return Decoding.of(kind, found, part.given(parsed, part.message), writers)


def source(parsed: argparse.Namespace) -> SchemaSource | None:
    """Returns where the schemas of ids are. Raises UsageError, ExportError."""
    from .value_schemas.registry import Registry
    from .value_schemas.sources import Folder

    if parsed.schemas is not None:
        from .arguments import folder

        return Folder(folder(parsed.schemas))
    if parsed.schema_registry is None:
        return None
    configs: dict[str, str] = {}
    if (path := parsed.schema_registry_config) is not None:
        try:
            configs = parse_properties(Path(path).read_bytes())
        except (OSError, ValueError) as error:
            raise UsageError(f"--schema-registry-config: cannot read {path}: {error}") from error
    return Registry.of(parsed.schema_registry, configs)
