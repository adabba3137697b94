"""The arguments of an export that choose how values are decoded, and where their schemas are.

The columns are those of `--schema`; else of the earlier export into the folder, so that a new version of a schema does
not end an export that continues; else of the latest version in the registry.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ...extras import require
from ..command import UsageError

if TYPE_CHECKING:
    from .value_columns import Decoding
    from .value_schemas.found import Schema, SchemaSource

KINDS = (
    "json",
    "json-confluent",
    "avro",
    "avro-confluent",
    "avro-single",
    "protobuf",
    "protobuf-confluent",
)
_SOURCES = ("schema_registry", "schemas")
_TYPES = {"json": "JSON", "avro": "AVRO", "protobuf": "PROTOBUF"}


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("--decode", choices=KINDS, help="decode values into the column `decoded`")
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
    parser.add_argument(
        "--undecodable",
        choices=("null", "fail", "dead-letter"),
        default="null",
        help="treatment of values that do not decode; dead-letter: also in the column `deadLetter`, with the error",
    )
    parser.add_argument(
        "--add-columns", action="store_true", help="the table gets the new fields of the schema, which it lacks"
    )


def check(parsed: argparse.Namespace) -> None:
    """Checks what goes together. Raises UsageError, MissingExtra."""
    kind = parsed.decode
    given = [name for name in ("schema", *_SOURCES, "subject", "message") if getattr(parsed, name) is not None]
    if kind is None and (given or parsed.undecodable == "dead-letter"):
        raise UsageError(f"{_flag(given[0]) if given else '--undecodable dead-letter'} needs --decode")
    if kind is None:
        return
    family, is_framed = kind.partition("-")[0], kind.endswith("-confluent")
    sources = [name for name in _SOURCES if name in given]
    if len(sources) == 2:
        raise UsageError("give either --schema-registry or --schemas, not both")
    if sources and not is_framed:
        raise UsageError(f"{_flag(sources[0])} needs --decode json-confluent, avro-confluent or protobuf-confluent")
    if parsed.schema_registry_config is not None and not parsed.schema_registry:
        raise UsageError("--schema-registry-config needs --schema-registry")
    if parsed.subject is not None and not parsed.schema_registry:
        raise UsageError("--subject needs --schema-registry")
    if parsed.message is not None and family != "protobuf":
        raise UsageError("--message needs --decode protobuf or protobuf-confluent")
    if family != "json" and parsed.schema is None and not sources:
        more = ", --schema-registry or --schemas" if is_framed else ""
        raise UsageError(f"--decode {kind} needs --schema{more}")
    if family == "avro":
        require("fastavro", f"--decode {kind}")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def decoding(parsed: argparse.Namespace) -> Decoding | None:
    """Returns how values are decoded, None without `--decode` and for a schema in Spark's form, which needs Spark.
    Raises UsageError, ExportError."""
    from .value_columns import Decoding

    if parsed.decode is None or (parsed.schema is not None and is_ddl(parsed)):
        return None
    kind, writers = parsed.decode, source(parsed)
    if parsed.schema is None and writers is None:
        return Decoding.json(kind=kind)
    if parsed.schema is None:
        assert writers is not None
        return _of_source(parsed, writers)
    return _made(kind, parsed.schema, parsed.message, writers)


def is_ddl(parsed: argparse.Namespace) -> bool:
    """Returns whether `--schema` is columns in Spark's form."""
    return parsed.decode.startswith("json") and not parsed.schema.lstrip().startswith("{")


def _made(kind: str, schema: str | Schema, message: str | None, writers: SchemaSource | None) -> Decoding:
    from .value_columns import Decoding

    if kind.startswith("avro"):
        return Decoding.avro(schema, kind, writers)  # type: ignore[arg-type]
    if kind.startswith("protobuf"):
        return Decoding.protobuf(schema, message, kind, writers)  # type: ignore[arg-type]
    return Decoding.json_schema(schema, kind, writers)  # type: ignore[arg-type]


def _of_source(parsed: argparse.Namespace, writers: SchemaSource) -> Decoding:
    """Returns the decoding to the columns of the folder's earlier export, else of the source's latest schema."""
    from . import arguments
    from .commit import stored
    from .value_columns import of_identity

    place = arguments.objects(parsed.to, dict(parsed.store_conf), parsed.file_bytes or 0, parsed.paths)
    before = stored(parsed.to, None if place is None else place.files())
    own = before.decoding if before is not None and not parsed.add_columns else None
    if own is not None and own.get("kind") == parsed.decode and (text := own.get("schema")) is not None:
        return of_identity(parsed.decode, text, writers)
    subject = ""
    if parsed.schema_registry:
        subject = parsed.subject or (f"{parsed.topic[0]}-value" if parsed.topic and len(parsed.topic) == 1 else "")
        if not subject:
            raise UsageError("--schema-registry needs --subject, or one --topic: all values get the same columns")
    found, wanted = writers.latest(subject), _TYPES[parsed.decode.partition("-")[0]]
    if found.type != wanted:
        raise UsageError(f"the schema in {writers} is of the type {found.type}, not {wanted} as --decode requires")
    return _made(parsed.decode, found, parsed.message, writers)


def source(parsed: argparse.Namespace) -> SchemaSource | None:
    """Returns where the schemas of ids are. Raises UsageError, ExportError."""
    from .value_schemas.folder import Folder
    from .value_schemas.registry import Registry

    if parsed.schemas is not None:
        from .arguments import folder

        return Folder(folder(parsed.schemas))
    if parsed.schema_registry is None:
        return None
    return Registry.of(parsed.schema_registry, _configs(parsed.schema_registry_config))


def _configs(path: str | None) -> dict[str, str]:
    """Returns the settings in a file of the registry's login."""
    from ....protocol.properties import parse_properties

    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            return parse_properties(file.read())
    except (OSError, ValueError) as error:
        raise UsageError(f"--schema-registry-config: cannot read {path}: {error}") from error
