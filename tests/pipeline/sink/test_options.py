"""The options of the sink: meaning, refusals, options without effect, and pickling."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

from ottla.pipeline.sink.errors import SinkError
from ottla.pipeline.sink.options import BATCH_BYTES, TRANSACTION_TIMEOUT_MS, SinkOptions

AT = {"kafka.bootstrap.servers": "a:1,b:2"}


def test_options_parsed() -> None:
    found = SinkOptions.read(
        AT
        | {
            "topic": " t ",
            "transactionalid": "q",
            "orderBy": "at, name",
            "kafka.batch.size": "1000",
            "kafka.compression.type": "ZSTD",
            "kafka.compression.zstd.level": "7",
            "kafka.compression.gzip.level": "1",
            "kafka.delivery.timeout.ms": "40000",
            "kafka.max.block.ms": "7",
            "kafka.max.in.flight.requests.per.connection": "3",
            "kafka.max.request.size": "5000",
            "kafka.socket.connection.setup.timeout.ms": "9",
            "kafka.transaction.timeout.ms": "8",
        }
    )
    assert (found.topic, found.transactional_id, found.order_by) == ("t", "q", ("at", "name"))
    assert (found.batch_bytes, found.codec.name, found.client.compression_level) == (1000, "ZSTD", 7)
    assert (found.client.delivery_timeout_ms, found.client.max_block_ms, found.in_flight) == (40000, 7, 3)
    assert (found.client.max_request_size, found.client.connect_timeout_ms) == (5000, 9)
    assert (found.client.transaction_timeout_ms, found.client.default_api_timeout_ms) == (8, 7)
    assert found.client.addresses() == [("a", 1), ("b", 2)]
    assert not found.client.allow_auto_create_topics
    assert pickle.loads(pickle.dumps(found)) == found


def test_defaults() -> None:
    found = SinkOptions.read(AT)
    assert (found.topic, found.transactional_id, found.order_by, found.codec.name) == (None, None, (), "NONE")
    assert (found.batch_bytes, found.in_flight) == (BATCH_BYTES, 5)
    assert found.client.transaction_timeout_ms == TRANSACTION_TIMEOUT_MS
    assert SinkOptions.read(AT | {"kafka.max.in.flight.requests.per.connection": "50"}).in_flight == 5
    assert SinkOptions.read(AT | {"kafka.batch.size": "0"}).batch_bytes == 1
    small = {"kafka.batch.size": "9999", "kafka.max.request.size": "500"}
    assert SinkOptions.read(AT | small).batch_bytes == 500


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers must be given"),
        ({"kafka.bootstrap.servers": "a:b"}, "'a:b' is not an address"),
        (
            {"kafka.security.protocol": "TLS"},
            "security.protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT",
        ),
        ({"kafka.security.protocol": "SASL_SSL"}, "sasl.mechanism must be one of PLAIN"),
        ({"kafka.acks": "1"}, "kafka.acks is 1, which does not allow exactly-once writing"),
        ({"kafka.enable.idempotence": "false"}, "kafka.enable.idempotence is false"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id is not supported: use the option transactionalId"),
        ({"kafka.key.serializer": "x"}, "kafka.key.serializer is not supported"),
        ({"kafka.compression.type": "brotli"}, "compression.type must be one of"),
        ({"kafka.batch.size": "much"}, "batch.size: invalid value 'much'"),
        ({"kafka.transaction.timeout.ms": "0"}, "transaction.timeout.ms must be an integer from 1"),
        ({"kafka.max.block.ms": "-1"}, "max.block.ms must be an integer from 0"),
        ({"kafka.delivery.timeout.ms": "5"}, "delivery.timeout.ms .5. must be at least"),
        ({"topc": "t"}, "the sink has no option topc; did you mean topic"),
        ({"startingOffsets": "t"}, "the sink has no option startingoffsets; use topic, transactionalId"),
        ({"topic": " "}, "topic is empty"),
        ({"orderBy": ","}, "orderBy must name at least one column"),
    ],
)
def test_options_refused(more: dict[str, str], message: str) -> None:
    with pytest.raises(SinkError, match=message) as refused:
        SinkOptions.read(AT | more)
    assert "\n" not in str(refused.value)


def test_options_without_effect_accepted_and_unknown_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    idle: dict[str, Any] = {
        "kafka.linger.ms": "5",
        "kafka.retries": "0",
        "kafka.acks": "all",
        "checkpointLocation": "x",
    }
    idle |= {"kafka.enable.idempotence": "true", "kafka.ssl.provider": "x", "kafka.buffer.memory": "1"}
    with caplog.at_level(logging.WARNING):
        assert SinkOptions.read(AT | idle).client == SinkOptions.read(AT).client
        assert not caplog.records
        for _ in range(2):
            SinkOptions.read(AT | {"kafka.no.such.option.of.a.producer": "1"})
    assert [record.getMessage() for record in caplog.records] == [
        "option kafka.no.such.option.of.a.producer is supplied but is not a known option of a Kafka producer"
    ]
