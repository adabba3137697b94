"""Options by Kafka's names, their bounds, the table of error codes, and the import time of the package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ottla.client
from ottla.client.net.errors import ConfigError, KafkaError, NoSuchTopic, is_retriable
from ottla.client.net.options import ClientOptions, parse_addresses, read_options
from ottla.protocol.errors import ErrorCode


def test_kafkas_names_and_python_names_are_equivalent() -> None:
    by_kafka = {"bootstrap.servers": "a:1,b:2", "client.id": "me", "metadata.max.age.ms": "7", "retry.backoff.ms": 5}
    by_us = {"bootstrap": ["a:1", "b:2"], "client_id": "me", "metadata_max_age_ms": 7, "retry_backoff_ms": 5}
    first, second = read_options(ClientOptions, by_kafka), read_options(ClientOptions, by_us)
    assert first.addresses() == second.addresses() == [("a", 1), ("b", 2)]
    assert (first.client_id, first.metadata_max_age_ms, first.retry_backoff_ms) == ("me", 7, 5)
    assert read_options(ClientOptions, {"allow.auto.create.topics": "FALSE"}).allow_auto_create_topics is False


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"metadata.max.agee.ms": 1}, r"unknown option metadata.max.agee.ms; did you mean metadata.max.age.ms\?"),
        ({"zzz": 1}, r"unknown option zzz$"),
        ({"client.id": "a", "client_id": "b"}, "client_id is given twice"),
        ({"retry.backoff.ms": "soon"}, "retry.backoff.ms: invalid value 'soon'"),
        ({"retry.backoff.ms": -1}, "retry.backoff.ms must be an integer from 0 to"),
        ({"request.timeout.ms": 0}, "request.timeout.ms must be"),
        ({"request.timeout.ms": True}, "request.timeout.ms must be"),
        ({"allow.auto.create.topics": "perhaps"}, "invalid value 'perhaps'"),
        ({"client.id": "x" * 32768}, "at most 32767 bytes"),
        ({"client.id": "\ud800"}, "client.id must be a text"),
        ({"bootstrap.servers": " , "}, "is empty: expected host:port"),
    ],
)
def test_invalid_option_raises_config_error(names: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        read_options(ClientOptions, names)


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("host", [("host", 9092)]),
        ("a:1, b:2 ,a:1", [("a", 1), ("b", 2)]),
        ("[::1]:9093,[fe80::1]", [("::1", 9093), ("fe80::1", 9092)]),
    ],
)
def test_bootstrap_addresses_are_parsed(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_addresses(text) == addresses


@pytest.mark.parametrize(
    "text", ["a:", ":1", "a:0", "a:65536", "a:x", "::1", "::1:9092", "[::1]x", "[]:1", "a:99999999"]
)
def test_invalid_address_raises_config_error(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_addresses(text)


def test_error_table_equals_that_of_kafka_python() -> None:
    """Except for one code: kafka-python does not retry CORRUPT_MESSAGE, Java's client does."""
    from kafka import errors as theirs

    other = {cls.errno: cls for cls in vars(theirs).values() if isinstance(cls, type) and hasattr(cls, "errno")}
    codes = [code for code in ErrorCode if code in other and code > 0]
    assert len(codes) > 80
    differ = {code.name for code in codes if bool(other[code].retriable) != is_retriable(code)}
    assert differ == {ErrorCode.CORRUPT_MESSAGE.name}
    assert all(is_retriable(code) for code in ErrorCode if KafkaError(code).stale_metadata)


def test_kinds_of_errors_equal_the_exception_classes_of_kafka() -> None:
    """The table is printed by ErrorKinds.java with the classes of Kafka 4.4.0."""
    table: dict[str, str] = json.loads((Path(__file__).parent / "error_kinds.json").read_text())
    assert len(table) > 130
    ours = {name: KafkaError(ErrorCode[name]).kind.value for name in table}
    assert ours == table


def test_broker_errors_have_their_code() -> None:
    error = KafkaError(6, "moved")
    assert (error.code, error.retriable, error.stale_metadata) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, True, True)
    assert str(error) == "NOT_LEADER_OR_FOLLOWER (6): moved"
    newer = KafkaError(9999)
    assert (newer.code, newer.number, newer.retriable) == (ErrorCode.UNKNOWN_SERVER_ERROR, 9999, False)
    assert str(newer) == "UNKNOWN (9999)"
    assert NoSuchTopic("t").code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_names_are_imported_on_first_use() -> None:
    program = (
        "import sys, ottla.client\n"
        "assert not [m for m in sys.modules if m.startswith('ottla.client.') or m in ('asyncio', 'construct')]\n"
        "assert ottla.client.KafkaError(3).retriable and 'ottla.client.net.errors' in sys.modules\n"
        "assert 'Producer' in dir(ottla.client)\n"
    )
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        ottla.client.Nothing  # noqa: B018
