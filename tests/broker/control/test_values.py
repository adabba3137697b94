"""Values of the control plane: bodies are checked by their JSON Schema, bytes and times are parsed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.broker import json_bytes
from ottla.broker.control.app import encoded
from ottla.broker.control.decoding import decode
from ottla.broker.control.models.parts import LogLevel
from ottla.broker.control.models.topics import NewRecords, NewTopic
from ottla.broker.control.openapi import document
from ottla.broker.control.refusal import Refusal
from ottla.broker.control.route import BASE, Route
from ottla.broker.control.routes import ROUTES
from ottla.protocol.text import duration_ms, time_ms
from ottla.tools.http_client import Client, Wrong

DOCUMENT = document(ROUTES)
BODIES = [route for route in ROUTES if route.body is not None]
SCALARS = st.none() | st.booleans() | st.integers(-5, 300) | st.sampled_from(["", "a", "stall", "x" * 300])
NAMES = st.sampled_from(["base64", "topic", "partition", "value", "records", "name", "key", "action", "api", "ms"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)


def accepts(raw: bytes, kind: Any) -> bool:
    try:
        decode(raw, kind)
    except Refusal as refusal:
        assert refusal.status == 400 and str(refusal)
        return False
    return True


@given(st.sampled_from(BODIES), VALUES)
@example(next(route for route in BODIES if route.name == "addFault"), {"action": "stall", "api": ["Fetch", 3]})
@example(next(route for route in BODIES if route.name == "sendRecords"), {"records": [{"value": {"base64": ""}}]})
def test_body_is_accepted_where_the_document_allows_it(route: Route, value: Any) -> None:
    operation = DOCUMENT["paths"][BASE + route.path][route.method.lower()]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    validator = jsonschema.Draft202012Validator({**schema, "components": DOCUMENT["components"]})
    assert accepts(json.dumps(value).encode(), route.body) is validator.is_valid(value)


def test_schemas_of_the_document_are_json_schemas() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (
            {"nome": 1},
            NewTopic,
            "the body: Object contains unknown field `nome`; accepted are name, partitions, configs",
        ),
        ({}, NewRecords, "the body: Object missing required field `records`"),
        ({"partitions": True}, NewTopic, "the body.partitions is true: Expected `int`, got `bool`"),
        ({"partitions": 2.0}, NewTopic, "the body.partitions is 2.0: Expected `int`, got `float`"),
        ({"partitions": 1001}, NewTopic, "the body.partitions is 1001: Expected `int` <= 1000"),
        (
            {"partitions": 10**30},
            NewTopic,
            "the body.partitions is 1000000000000000000000000000000: Expected `int` <= 1000",
        ),
        ({"configs": {"a": 1}}, NewTopic, "the body.configs[...]: Expected `str`, got `int`"),
        (
            {"records": [{"value": "a"}, {"value": 4}]},
            NewRecords,
            "the body.records[1].value is 4: Expected `str | object | null`, got `int`",
        ),
        (
            {"records": [{"value": {"base65": ""}}]},
            NewRecords,
            "the body.records[0].value: Object contains unknown field `base65`; accepted are base64",
        ),
        (
            {"logger": "root", "level": "WARNING"},
            LogLevel,
            "the body.level is 'WARNING': Invalid enum value 'WARNING'; "
            "accepted are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
    ],
)
def test_refusal_names_the_place_the_value_and_what_is_accepted(value: Any, kind: Any, message: str) -> None:
    with pytest.raises(Refusal) as caught:
        decode(json.dumps(value).encode(), kind)
    assert str(caught.value) == message


def test_response_with_a_surrogate_is_written_as_an_escape() -> None:
    assert encoded({"a": [1, "é"]}) == '{"a": [1, "é"]}\n'.encode()
    assert encoded({"a": "\udcff"}) == b'{"a": "\\udcff"}\n'


@given(st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode))
def test_bytes_round_trip_through_json(value: bytes | None) -> None:
    sent = {"records": [{"value": json_bytes.to_json(value)}]}
    assert accepts(json.dumps(sent).encode(), NewRecords)
    assert json_bytes.from_json(sent["records"][0]["value"]) == value


@pytest.mark.parametrize("value", ["\ud800", {"base64": "a"}, {"base64": "é==="}, {"base64": "aa==\n"}])
def test_invalid_bytes_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="a value"):
        json_bytes.from_json(value)


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
def test_durations_are_parsed_and_formatted(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "7", "d", "7 d", "-1s", "1.5h", "7days", "\u0667d", "1" * 30 + "d"])
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration, such as 7d"):
        duration_ms(text)


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)))
def test_times_are_read_to_the_millisecond(moment: datetime) -> None:
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    expected = round(moment.timestamp() * 1000)
    assert time_ms(moment.isoformat()) == expected
    assert time_ms(moment.isoformat().replace("+00:00", "")) == expected
    assert time_ms(str(expected)) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "2026-13-01"])
def test_invalid_times_of_day_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time, such as 2026-01-31"):
        time_ms(text)


@pytest.mark.parametrize("address", ["", "http://", "ftp://a:1", "http://[::1", "a:70000", "a b:1", "http://a:1\n"])
def test_invalid_control_urls_are_refused(address: str) -> None:
    with pytest.raises(Wrong, match="is no control plane's address"):
        Client(address, 1)


@pytest.mark.parametrize("address", ["9644", ":9644", "127.0.0.1:9644", "http://127.0.0.1:9644"])
def test_port_alone_is_a_control_plane_on_this_machine(address: str) -> None:
    assert Client(address, 1.0).url == "http://127.0.0.1:9644"
