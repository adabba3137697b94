"""Protocol Buffers decoder, from a descriptor set made by protoc, or from a .proto file if a compiler is installed.

The library limits nesting (100 levels), and lengths to the available bytes.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .decoder import PREFIX_BYTES, Decoded, DecodeError, SchemaError, check_size, schema_id_of, varint

NEEDS = "a Protobuf schema needs protobuf: pip install 'ottla[protobuf]'"
COMPILE_SECONDS = 60
INDEXES_MAX = 32  # of a nested message, in Confluent's wire format


class ProtobufDecoder:
    """Decodes with a descriptor set: the given message, or the message that Confluent's wire format specifies, or the
    first message of the last file.
    """

    kind = "Protobuf"

    def __init__(self, descriptor_set: bytes, message: str | None = None) -> None:
        """Parses a descriptor set. Raises SchemaError."""
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
        except ImportError as error:
            raise SchemaError(NEEDS) from error
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set).file
        except Exception as error:  # the library's DecodeError, whose module differs by version
            raise SchemaError(f"not a descriptor set: {error}") from error
        if not files or not any(one.message_type for one in files):
            raise SchemaError(
                "not a descriptor set with messages: create one with protoc --include_imports --descriptor_set_out=FILE"
            )
        self._pool = descriptor_pool.DescriptorPool()
        try:
            for one in files:
                self._pool.AddSerializedFile(one.SerializeToString())
        except Exception as error:  # TypeError or KeyError, depending on the library's implementation
            raise SchemaError(
                f"imports are missing: create the descriptor set with --include_imports: {error}"
            ) from error
        self._class_of = message_factory.GetMessageClass
        self._file = next(one for one in reversed(files) if one.message_type)
        self._is_named = message is not None
        self.name = message or self._named([0])
        try:
            self._class = self._class_of(self._pool.FindMessageTypeByName(self.name))
        except KeyError as error:
            known = ", ".join(self._named([n]) for n in range(len(self._file.message_type)))
            raise SchemaError(f"no message {self.name}: the messages are {known}") from error

    def _named(self, indexes: list[int]) -> str:
        """Returns the full name of a message by its indexes in the last file. Raises DecodeError."""
        level, names = self._file.message_type, [self._file.package] if self._file.package else []
        for index in indexes:
            if not 0 <= index < len(level):
                raise DecodeError(f"the schema has no message with the indexes {indexes}")
            names.append(level[index].name)
            level = level[index].nested_type
        return ".".join(names)

    def decode(self, data: bytes) -> Decoded:
        """Decodes a message, with or without the prefix of Confluent's wire format. Raises DecodeError."""
        check_size(data)
        schema_id = schema_id_of(data)
        if schema_id is None:  # no message begins with a 0: that would be field number 0
            return self._decoded(self._class, data, [])
        indexes, position = _indexes(data, PREFIX_BYTES)
        kind = self._class
        if not self._is_named:
            kind = self._class_of(self._pool.FindMessageTypeByName(self._named(indexes)))
        return self._decoded(kind, data[position:], [f"schema id {schema_id}"])

    def _decoded(self, kind: Any, data: bytes, notes: list[str]) -> Decoded:
        from google.protobuf import json_format, message, text_format
        from google.protobuf.unknown_fields import UnknownFieldSet

        one = kind()
        try:
            one.ParseFromString(data)
        except message.DecodeError as error:
            raise DecodeError(f"not a {kind.DESCRIPTOR.full_name}: {error}") from error
        unknown = len(UnknownFieldSet(one))
        if kind.DESCRIPTOR.full_name != self.name:
            notes.append(kind.DESCRIPTOR.full_name)
        if unknown:
            notes.append(f"{unknown} unknown field{'' if unknown == 1 else 's'}")
        try:
            value = json_format.MessageToDict(one, preserving_proto_field_name=True, descriptor_pool=self._pool)
        except Exception:  # for example an Any of an unknown type or an invalid time: JSON has no form for them
            value = text_format.MessageToString(one, descriptor_pool=self._pool)
            notes.append("in Protobuf's text format: it has no JSON form")
        return Decoded(value, ", ".join(notes))


def _indexes(data: bytes, position: int) -> tuple[list[int], int]:
    """Returns the message indexes of Confluent's wire format, [0] if there are none, and the position after them."""
    count, position = varint(data, position)
    if not 0 <= count <= INDEXES_MAX:
        raise DecodeError(f"{count} message indexes exceed the limit of {INDEXES_MAX}")
    found: list[int] = []
    for _ in range(count):
        index, position = varint(data, position)
        found.append(index)
    return found or [0], position


def compiled(path: Path) -> bytes:
    """Compiles a .proto file to a descriptor set, with grpcio-tools or a protoc on the PATH. Raises SchemaError."""
    program = shutil.which("protoc")
    if importlib.util.find_spec("grpc_tools") is not None:
        command = [sys.executable, "-m", "grpc_tools.protoc"]
    elif program is not None:
        command = [program]
    else:
        raise SchemaError(
            "a .proto file needs a compiler: pip install grpcio-tools, or install protoc, or give the file that protoc "
            "--include_imports --descriptor_set_out=FILE.desc makes"
        )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set.desc"
        flags = ["--include_imports", f"--descriptor_set_out={out}", f"--proto_path={path.parent}", path.name]
        try:
            done = subprocess.run(
                [*command, *flags], capture_output=True, text=True, timeout=COMPILE_SECONDS, cwd=path.parent
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SchemaError(f"compilation failed: {error}") from error
        if done.returncode:
            raise SchemaError(f"compilation failed: {' '.join(done.stderr.split())[:300]}")
        return out.read_bytes()
