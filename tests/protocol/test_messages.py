"""Every message in every version: as Apache defines it, through both codecs, and damaged."""

from __future__ import annotations

import functools
import io
import json
import random
import time
import typing
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol import schema
from ottla.protocol.compiler import build, parse
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.layouts import Group, struct_of
from ottla_testing.each import each
from ottla_testing.protocol.apache import compare
from ottla_testing.protocol.messages import KEY_TYPES, MESSAGES
from ottla_testing.protocol.values import random_value

APACHE: dict[str, list[dict[str, Any]]] = json.loads(Path(__file__).with_name("versions.json").read_text())


NAMES = sorted(MESSAGES)


def layouts(name: str) -> list[tuple[int, Group]]:
    return [(v, struct_of(MESSAGES[name], v)) for v in schema.spec(MESSAGES[name]).versions.range()]


def definition(name: str, version: int) -> dict[str, Any]:
    return next(d for d in APACHE[name] if version in schema.Versions.of(d["versions"]))


def test_all_messages_and_versions_of_apache_kafka_are_declared() -> None:
    assert set(MESSAGES) == set(APACHE), "add it to APIS in apache_definitions.py, and run add_release.py"
    for name, definitions in APACHE.items():
        declared = schema.spec(MESSAGES[name])
        ranges = [schema.Versions.of(d["versions"]) for d in definitions]
        of_request = APACHE[name.removesuffix("Response") + "Request"] if name.endswith("Response") else definitions
        if len(ranges) > 1 and of_request[1]["unstable"] and ranges[1].first == ranges[1].last:
            del ranges[1]  # a first version that was unstable, and is gone now: no release serves it
        assert declared.versions == (min(r.first for r in ranges), ranges[0].last), name
        assert declared.flexible == schema.Versions.of(definitions[0]["flexible"]), name
        if definitions[0]["key"] is not None:
            assert KEY_TYPES.get(name, declared.api_key) == definitions[0]["key"], name


@each("name", NAMES)
def test_message_version_equals_apache_kafkas_definition(name: str) -> None:
    for version, layout in layouts(name):
        apache = definition(name, version)
        compare(
            layout, apache["fields"], version, version in schema.Versions.of(apache["flexible"]), f"{name} v{version}"
        )


@each("name", NAMES)
def test_both_codecs_give_the_same_bytes_and_values(name: str, scaled: Any) -> None:
    for version, layout in layouts(name):
        source = random.Random(f"{name} {version}")
        for _ in range(scaled(6)):
            value = random_value(layout, source)
            stream = io.BytesIO()
            layout._build(value, stream, None, name)
            raw = stream.getvalue()
            assert build(value, version) == raw, version
            assert parse(MESSAGES[name], version, raw) == value, version
            assert parse(MESSAGES[name], version, memoryview(b"head" + raw), 4) == value, version
            assert layout._parse(io.BytesIO(raw), None, name) == value, version


@each("name", NAMES)
def test_damaged_bytes_raise_one_error_quickly(name: str, scaled: Any) -> None:
    for version, layout in layouts(name):
        source = random.Random(f"damage {name} {version}")
        for _ in range(scaled(3)):
            raw = build(random_value(layout, source), version)
            for _ in range(8):
                data = bytearray(raw)
                for _ in range(source.randint(1, 4)):
                    if data:
                        data[source.randrange(len(data))] = source.randrange(256)
                if source.random() < 0.4:
                    del data[source.randrange(len(data) + 1) :]
                if source.random() < 0.2:
                    data += source.randbytes(3)
                begun = time.process_time()
                fast: Any = outcome(functools.partial(parse, MESSAGES[name], version, data))
                assert time.process_time() - begun < 1, version
                slow: Any = outcome(functools.partial(whole, layout, data))
                assert (fast is None) == (slow is None), (version, data.hex())
                if fast is not None:
                    assert same(fast, slow), (version, data.hex())


def outcome(read: Any) -> Any:
    try:
        return read()
    except MalformedMessage as error:
        assert str(error)
        return None


def whole(layout: Group, data: bytes | bytearray) -> Any:
    stream = io.BytesIO(bytes(data))
    value = layout._parse(stream, None, "message")
    if stream.read(1):
        raise MalformedMessage("left over")
    return value


def same(one: Any, other: Any) -> bool:
    """Compares values; NaN equals itself, and a bytearray its bytes."""
    return one == other or repr(one).replace("bytearray(b", "(b") == repr(other).replace("bytearray(b", "(b")


def test_types_of_a_class_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error response needs them for each of its entries, and evaluating annotations compiles source."""
    evaluated: list[type] = []
    original = typing.get_type_hints

    def counted(of: type, **more: Any) -> dict[str, Any]:
        evaluated.append(of)
        return original(of, **more)

    monkeypatch.setattr(typing, "get_type_hints", counted)
    schema.types_of.cache_clear()
    for _ in range(3):
        assert schema.empty_value(MESSAGES["FetchResponse"]).responses == []
    assert evaluated == [MESSAGES["FetchResponse"]]


@each("name", NAMES)
def test_field_missing_in_the_version_is_refused_unless_ignorable(name: str) -> None:
    cls = MESSAGES[name]
    for version, layout in layouts(name):
        value = random_value(layout, random.Random(1))
        for field in layout.absent:
            default = schema.default_of(cls, field)
            setattr(value, field, [1] if default == [] else "x" if default in ("", None) else 77)
            with pytest.raises(MalformedMessage, match=field):
                build(value, version)
            setattr(value, field, default)
        build(value, version)
