"""The pieces under the control plane: schemas are checked as JSON Schema says, bytes and times are read as written."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.control import shapes, values
from ottla.broker.control.schemas import SCHEMAS
from ottla.protocol.text import duration_ms, time_ms
from ottla.tools.http_client import Client, Wrong

SCALARS = st.none() | st.booleans() | st.integers(-5, 300) | st.sampled_from(["", "a", "topic", "x" * 300])
NAMES = st.sampled_from(["a", "base64", "topic", "partition", "value", "records"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
LEAVES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(
        lambda least, most: {"type": "integer", "minimum": least, "maximum": most}, SMALL := st.integers(0, 9), SMALL
    ),
    st.builds(lambda least, most: {"type": "string", "minLength": least, "maxLength": most}, SMALL, SMALL),
    st.sampled_from([{"type": "boolean"}, {"type": ["null", "string"]}, {"enum": ["a", 1, True]}, {"const": 0}, {}]),
    st.just({"$ref": "#/components/schemas/Bytes"}),
)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda properties, others, required: {
            "type": "object",
            "properties": properties,
            "additionalProperties": others,
            "required": required,
            "maxProperties": 2,
        },
        st.dictionaries(NAMES, inner, max_size=3),
        st.booleans() | inner,
        st.lists(NAMES, max_size=1),
    )


SCHEMA = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        _objects(inner),
        st.builds(lambda items, most: {"type": "array", "items": items, "maxItems": most}, inner, SMALL),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)


def fits(value: Any, schema: shapes.Schema) -> bool:
    try:
        shapes.check(value, schema, SCHEMAS)
    except shapes.Misfit as misfit:
        assert str(misfit)
        return False
    return True


@given(VALUES, SCHEMA)
def test_a_value_fits_where_json_schema_says_so(value: Any, schema: dict[str, Any]) -> None:
    whole = {**schema, "components": {"schemas": SCHEMAS}}
    assert fits(value, schema) is jsonschema.Draft202012Validator(whole).is_valid(value)
    assert not list(shapes.unknown_keywords(schema))


def test_the_schemas_use_only_what_is_checked() -> None:
    for name, schema in SCHEMAS.items():
        jsonschema.Draft202012Validator.check_schema(dict(schema))
        assert not list(shapes.unknown_keywords(schema)), name
    nested = {"properties": {"a": {"items": {"anyOf": [{"pattern": "x"}]}}}, "additionalProperties": {"not": {}}}
    assert sorted(shapes.unknown_keywords(nested)) == ["not", "pattern"]


@pytest.mark.parametrize(
    ("value", "schema", "told"),
    [
        ({"a": 1}, {"properties": {"b": {}}, "additionalProperties": False}, "the body has 'a', which is none of: b"),
        ({}, {"required": ["b"]}, "the body lacks b"),
        ([1, "x"], {"items": {"type": "integer"}}, "the body[1] is 'x', not a whole number"),
        (True, {"type": "integer"}, "the body is true, not a whole number"),
        (2.0, {"type": "integer"}, "the body is 2.0, not a whole number"),
        (7, {"maximum": 6}, "the body is 7, more than 6"),
        ("abc", {"maxLength": 2}, "the body has 3 letters, more than 2"),
        (4, SCHEMAS["Bytes"], 'the body is 4, not a string or {"base64": ...} or null'),
        ({"base65": ""}, SCHEMAS["Bytes"], "the body lacks base64"),
        ("b", {"enum": ["a", "c"]}, "the body is 'b', none of a, c"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(value: Any, schema: shapes.Schema, told: str) -> None:
    with pytest.raises(shapes.Misfit) as caught:
        shapes.check(value, schema, SCHEMAS)
    assert str(caught.value) == told


@given(st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode))
def test_bytes_come_back_through_json(value: bytes | None) -> None:
    sent = json.loads(json.dumps(values.to_json(value)))
    assert fits(sent, SCHEMAS["Bytes"])
    assert values.from_json(sent) == value


@pytest.mark.parametrize("value", ["\ud800", {"base64": "a"}, {"base64": "é==="}, {"base64": "aa==\n"}])
def test_what_is_no_bytes_is_refused(value: Any) -> None:
    with pytest.raises(shapes.Misfit):
        values.from_json(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7d", 604_800_000),
        ("45s", 45_000),
        ("500ms", 500),
        ("1h30m", 5_400_000),
        ("2min", 120_000),
        ("1w", 604_800_000),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "7", "d", "7 d", "-1s", "1.5h", "7days", "\u0667d", "1" * 30 + "d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration, such as 7d"):
        duration_ms(text)


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)))
def test_times_are_read_to_the_millisecond(moment: datetime) -> None:
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    expected = round(moment.timestamp() * 1000)
    assert time_ms(moment.isoformat()) == expected
    assert time_ms(moment.isoformat().replace("+00:00", "")) == expected
    assert time_ms(str(expected)) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "2026-13-01"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is no time, such as 2026-01-31"):
        time_ms(text)


@pytest.mark.parametrize("address", ["", "http://", "ftp://a:1", "http://[::1", "a:70000", "a b:1", "http://a:1\n"])
def test_what_is_no_address_of_a_control_plane(address: str) -> None:
    with pytest.raises(Wrong, match="is no address of a control plane"):
        Client(address, 1)


@pytest.mark.parametrize("address", ["9644", ":9644", "127.0.0.1:9644", "http://127.0.0.1:9644"])
def test_port_alone_is_a_control_plane_on_this_machine(address: str) -> None:
    assert Client(address, 1.0).url == "http://127.0.0.1:9644"
