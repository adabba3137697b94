"""The kafka.* options over the wire: accepted, refused, or without effect."""

from __future__ import annotations

import logging

import pytest

from ottla.pipeline.backend import ReadError
from ottla.pipeline.readers.wire import WireBackend
from ottla.pipeline.readers.wire.config import MAX_PARTITION_FETCH_BYTES, client_options

AT = {"bootstrap.servers": "a:1,b:2"}


def test_client_options_taken() -> None:
    options = client_options(
        AT
        | {
            "client.id": "me",
            "isolation.level": "read_committed",
            "fetch.max.bytes": " 1000000000 ",
            "fetch.min.bytes": "7",
            "fetch.max.wait.ms": "8",
            "max.partition.fetch.bytes": "9",
            "request.timeout.ms": "10",
            "default.api.timeout.ms": "11",
            "socket.connection.setup.timeout.ms": "12",
            "check.crcs": "false",
        }
    )
    assert options.addresses() == [("a", 1), ("b", 2)]
    assert (options.client_id, options.isolation, options.check_crcs) == ("me", "read_committed", False)
    assert (options.fetch_max_bytes, options.fetch_min_bytes, options.fetch_max_wait_ms) == (10**9, 7, 8)
    assert (options.max_partition_fetch_bytes, options.request_timeout_ms) == (9, 10)
    assert (options.default_api_timeout_ms, options.connect_timeout_ms) == (11, 12)
    assert options.response_bytes_max > 10**9
    assert not options.allow_auto_create_topics
    assert client_options(AT).max_partition_fetch_bytes == MAX_PARTITION_FETCH_BYTES


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"bootstrap.servers": ""}, "bootstrap.servers must be given"),
        ({"bootstrap.servers": "a:b"}, "'a:b' is not an address"),
        ({"security.protocol": "TLS"}, "security.protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism must be one of PLAIN"),
        ({"fetch.max.bytes": "many"}, "fetch.max.bytes: invalid value 'many'"),
        ({"request.timeout.ms": "0"}, "request.timeout.ms must be an integer from 1"),
        ({"isolation.level": "none"}, "isolation must be one of"),
    ],
)
def test_client_options_refused(more: dict[str, str], message: str) -> None:
    with pytest.raises(ReadError, match=message) as refused:
        WireBackend(AT | more)
    assert "\n" not in str(refused.value)


def test_options_without_effect_accepted_and_unknown_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    idle = {"group.id": "g", "max.poll.records": "5", "ssl.provider": "x", "sasl.login.refresh.window.jitter": "0.05"}
    with caplog.at_level(logging.WARNING):
        assert client_options(AT | idle | {"security.protocol": ""}) == client_options(AT)
        assert not caplog.records
        for _ in range(2):
            client_options(AT | {"no.such.option.of.kafka": "1"})
    assert [record.getMessage() for record in caplog.records] == [
        "option kafka.no.such.option.of.kafka is supplied but is not a known option of a Kafka consumer"
    ]
