"""Independent codecs with one small interface, to compare Ottla's bytes with.

kafka-python 3 reads Apache's definitions (its own copy) and interprets them; the same package contains the hand-written
classes of its second generation (`kafka.protocol.old`); kafka-python 2.0.2, older and hand-written too, runs as a
process in an environment of its own, `.venv-old`.

A value passes between codecs in a neutral form: a struct is a list of its fields in wire order; in a flexible version a
dict {tag: value} of the tagged fields that differ from their default ends it. Fields are compared by position, not by
name.
"""

from __future__ import annotations

import importlib
import inspect
import io
import json
import pkgutil
import subprocess
import uuid
import warnings
from pathlib import Path
from typing import Any, Protocol

from ottla.protocol import schema
from ottla.protocol.primitives import Array, Nullable
from ottla_testing.old_environment import old_python

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its definitions in a deprecated way
    importlib.import_module("kafka")


class Codec(Protocol):
    """One independent codec. `read` returns (value, its bytes written again)."""

    versions: dict[str, set[int]]
    flat: bool  # an array of structs of one field is to it an array of that field

    def read(self, name: str, version: int, raw: bytes) -> tuple[Any, bytes]:
        """Reads bytes with the other codec."""
        ...

    def write(self, name: str, version: int, value: Any) -> bytes:
        """Writes a neutral value with the other codec."""
        ...


def neutral(codec: Any, value: Any, flat: bool) -> Any:
    """Returns one of Ottla's values in the neutral form; `flat` as in `Codec`."""
    if isinstance(codec, Array):
        item = codec.item
        if value is not None and flat and isinstance(item, schema.Group) and len(item.plan) == 1 and item.tags is None:
            ((name, inner),) = item.plan
            return [neutral(inner, getattr(one, name), flat) for one in value]
        return None if value is None else [neutral(item, one, flat) for one in value]
    if isinstance(codec, Nullable):
        return None if value is None else neutral(codec.inner, value, flat)
    if not isinstance(codec, schema.Group):
        return bytes(value) if isinstance(value, memoryview) else value
    out = [neutral(item, getattr(value, name), flat) for name, item in codec.plan]
    if codec.tags is not None:
        tags = {}
        for tag, (name, item) in codec.tags.items():
            if (field := getattr(value, name)) != schema.default_of(codec.cls, name):
                tags[tag] = neutral(item, field, flat)
        out.append(tags)
    return out


class KafkaPython3:
    """kafka-python 3: the versions that its definitions call valid."""

    flat = False

    def __init__(self) -> None:
        api_message: Any = importlib.import_module("kafka.protocol.api_message")
        self.classes: dict[str, Any] = {}
        for part in ("admin", "consumer", "metadata", "producer", "sasl"):
            for name, cls in vars(importlib.import_module("kafka.protocol." + part)).items():
                if (
                    inspect.isclass(cls)
                    and issubclass(cls, api_message.ApiMessage)
                    and cls is not api_message.ApiMessage
                ):
                    self.classes[name] = cls
        self.versions = {}
        for name, cls in self.classes.items():
            if cls.valid_versions is not None:
                self.versions[name] = set(range(cls.valid_versions[0], cls.valid_versions[1] + 1))

    def read(self, name: str, version: int, raw: bytes) -> tuple[Any, bytes]:
        cls = self.classes[name]
        flexible = cls.flexible_version_q(version)
        decode = cls._struct.compiled_decode_from(version, compact=flexible, tagged=flexible, data_class=cls)
        value, position = decode(memoryview(raw), 0)
        assert position == len(raw), f"{len(raw) - position} bytes left over"
        value._header = None
        return self.out(cls._struct, value, version, flexible), value.encode(version=version)

    def write(self, name: str, version: int, value: Any) -> bytes:
        cls = self.classes[name]
        fields = self.fields(cls._struct, value, version, cls.flexible_version_q(version))
        return cls(version=version, **fields).encode(version=version)

    def out(self, struct: Any, value: Any, version: int, tagged: bool | None) -> Any:
        """Returns their struct in the neutral form. `tagged` None: inside a tagged field, which they write without
        tags."""
        fields = [self.one(f, getattr(value, f.name), version, tagged) for f in struct.untagged_fields(version)]
        if tagged is None:
            fields.append({})
        elif tagged:
            tags = {}
            for tag, field in sorted(struct.tagged_fields(version)._tags.items()):
                if (found := getattr(value, field.name)) != field.default:
                    tags[tag] = self.one(field, found, version, None)
            fields.append(tags)
        return fields

    def one(self, field: Any, value: Any, version: int, tagged: bool | None) -> Any:
        kind = field._type_str.removeprefix("[]")
        if field.is_struct_array():
            return None if value is None else [self.out(field.array_of, item, version, tagged) for item in value]
        if field.is_struct():
            return None if value is None else self.out(field, value, version, tagged)
        if field.is_array():
            return None if value is None else [simple(kind, item) for item in value]
        return simple(kind, value)

    def fields(self, struct: Any, values: list[Any], version: int, tagged: bool | None) -> dict[str, Any]:
        out = {}
        for field, value in zip(struct.untagged_fields(version), values, strict=False):
            out[field.name] = self.given(field, value, version, tagged)
        if tagged:
            known = struct.tagged_fields(version)._tags
            out |= {known[t].name: self.given(known[t], value, version, None) for t, value in values[-1].items()}
        return out

    def given(self, field: Any, value: Any, version: int, tagged: bool | None) -> Any:
        kind = field._type_str.removeprefix("[]")
        if value is None:
            return None
        if field.is_struct_array():
            inner = field.array_of
            return [inner(version=version, **self.fields(inner, item, version, tagged)) for item in value]
        if field.is_struct():
            return field(version=version, **self.fields(field, value, version, tagged))
        if field.is_array():
            return [unsimple(kind, item) for item in value]
        return unsimple(kind, value)


def simple(kind: str, value: Any) -> Any:
    """Returns their value of a leaf as Ottla's: uuids are bytes, bit fields (sets of bits, None for 1 << 31) are
    int32."""
    if kind == "uuid":
        return bytes(16) if value is None else value.bytes
    if kind == "bitfield":
        bits = sum(1 << bit for bit in ({31} if value is None else value))
        return bits - (1 << 32) if bits >> 31 else bits
    return bytes(value) if isinstance(value, memoryview) else value


def unsimple(kind: str, value: Any) -> Any:
    if kind == "uuid":
        return uuid.UUID(bytes=value)
    if kind == "bitfield":
        return {bit for bit in range(32) if value & 0xFFFFFFFF & 1 << bit}
    return value


class KafkaPythonOld:
    """The hand-written classes in kafka-python 3, for versions without tagged fields."""

    flat = True

    def __init__(self) -> None:
        old: Any = importlib.import_module("kafka.protocol.old")
        self.versions: dict[str, set[int]] = {}
        self.schemas: dict[tuple[str, int], Any] = {}
        for found in pkgutil.iter_modules(old.__path__):
            module = importlib.import_module("kafka.protocol.old." + found.name)
            for name, cls in vars(module).items():
                stem, mark, version = name.rpartition("_v")
                if mark and version.isdigit() and hasattr(cls, "SCHEMA"):
                    self.schemas[stem, int(version)] = cls.SCHEMA
                    self.versions.setdefault(stem, set()).add(int(version))

    def read(self, name: str, version: int, raw: bytes) -> tuple[Any, bytes]:
        stream = io.BytesIO(raw)
        value = self.schemas[name, version].decode(stream)
        assert not stream.read(), "bytes left over"
        return lists(value), self.schemas[name, version].encode(value)

    def write(self, name: str, version: int, value: Any) -> bytes:
        return self.schemas[name, version].encode(value)


def lists(value: Any) -> Any:
    return [lists(item) for item in value] if isinstance(value, list | tuple) else value


class KafkaPython2:
    """kafka-python 2.0.2 in its own process; `close()` ends it."""

    flat = True

    def __init__(self) -> None:
        python = old_python()
        worker = Path(__file__).with_name("kafka_python_2.py")
        self.process = subprocess.Popen(
            [python, "-W", "ignore", str(worker)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
        )
        self.versions = {name: set(found) for name, found in self.call({})["classes"].items()}

    def call(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        response = json.loads(self.process.stdout.readline())
        assert "error" not in response, (question, response)
        return response

    def read(self, name: str, version: int, raw: bytes) -> tuple[Any, bytes]:
        response = self.call({"name": name, "version": version, "hex": raw.hex()})
        assert response["left"] == 0, "bytes left over"
        return rich(response["value"]), bytes.fromhex(response["hex"])

    def write(self, name: str, version: int, value: Any) -> bytes:
        return bytes.fromhex(self.call({"name": name, "version": version, "value": plain(value)})["hex"])

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(item) for item in value]
    return {"bytes": value.hex()} if isinstance(value, bytes) else value


def rich(value: Any) -> Any:
    if isinstance(value, list):
        return [rich(item) for item in value]
    return bytes.fromhex(value["bytes"]) if isinstance(value, dict) else value


CODECS: dict[str, Any] = {"kafka-python 3": KafkaPython3, "kafka-python 3, old": KafkaPythonOld, "2.0.2": KafkaPython2}
"""The names in the table of coverage, and the constructor of each codec."""
