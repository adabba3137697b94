"""Reading and writing at a listener with a login: each part that connects logs in, and no text has the password."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla.broker.testing.embedded import Embedded
from ottla.pipeline.backend import OffsetRange, ReadError, Selection, TopicPartition
from ottla.pipeline.jobs.import_.produce import ensure
from ottla.pipeline.options import parse
from ottla.pipeline.readers.wire import WireBackend, commit_offsets
from ottla.pipeline.readers.wire.config import client_options
from ottla.pipeline.sink.errors import SinkError
from ottla.pipeline.sink.options import SinkOptions
from ottla.pipeline.sink.task_writer import send
from ottla.pipeline.sink.transaction import SinkTransaction
from ottla_testing.certificates import Authority
from ottla_testing.clients.securing import LISTENER, PASSWORD, client_settings, encrypted
from ottla_testing.each import each
from ottla_testing.pipeline import sink_world
from ottla_testing.pipeline.wire_world import wanted

SECRETS = (PASSWORD, PASSWORD.replace('"', r"\""), "guess", "sasl-secret", "store-secret", "key-secret")
HIDDEN = {"sasl.password": "sasl-secret", "ssl.truststore.password": "store-secret", "ssl.keystore.key": "key-secret"}


class Secured(NamedTuple):
    """A broker whose listener has TLS and a login, with the options of its clients."""

    bootstrap: str
    settings: dict[str, str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    configs, settings = encrypted(Authority(tmp_path_factory.mktemp("authority")))
    with Embedded(listeners=LISTENER, configs=configs) as broker:
        yield Secured(broker.bootstrap, settings)


def kafka(broker: Secured, **more: str) -> dict[str, str]:
    settings = broker.settings | (client_settings("SASL_SSL", **more) if more else {})
    return {"bootstrap.servers": broker.bootstrap, **settings}


def prefixed(names: dict[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in names.items()}


def has_no_secret(*texts: object) -> bool:
    return not any(secret in str(text) or secret in repr(text) for text in texts for secret in SECRETS)


def test_source_and_sink_log_in(broker: Secured) -> None:
    given = SinkOptions.read(prefixed(kafka(broker)))
    assert ensure(given, {"t": 1}) == {"t": 1}
    with SinkTransaction(given, "writer") as transaction:
        grant = transaction.begin()
        transaction.add([("t", 0)])
        send(pickle.loads(pickle.dumps(given)), grant, ("t", 0), sink_world.rows([b"a", b"b"]))
        transaction.commit(0)
    with WireBackend(kafka(broker)) as backend:
        assert backend.partitions(Selection(topics=("t",))) == [TopicPartition("t", 0)]
        (work,) = backend.pieces([OffsetRange("t", 0, 0, 2)], wanted(), at_least=None)
    found = [value for batch in pickle.loads(pickle.dumps(work)).read() for value in batch["value"].to_pylist()]
    assert found == [b"a", b"b"]
    commit_offsets(kafka(broker), "g", {TopicPartition("t", 0): 2})
    assert has_no_secret(given, work)


def test_wrong_password_is_one_error_at_once(broker: Secured) -> None:
    with WireBackend(kafka(broker, password="guess")) as backend, pytest.raises(ReadError) as refused:
        backend.partitions(Selection())
    assert "SASL_AUTHENTICATION_FAILED (58): Authentication failed: Invalid username or password" in str(refused.value)
    assert has_no_secret(refused.value, refused.value.__cause__)


def test_untrusted_certificate_is_one_error_at_once(broker: Secured, tmp_path: Path) -> None:
    other = {"ssl.ca.location": str(Authority(tmp_path).trusted)}
    with WireBackend(kafka(broker) | other) as backend, pytest.raises(ReadError, match="is not trusted: unable to get"):
        backend.partitions(Selection())
    options = SinkOptions.read(prefixed(kafka(broker) | other))
    with SinkTransaction(options, "other") as transaction, pytest.raises(SinkError, match="is not trusted: unable to"):
        transaction.begin()


def test_store_that_a_worker_lacks_is_named(broker: Secured) -> None:
    options = {"bootstrap.servers": broker.bootstrap, "security.protocol": "SSL", "ssl.ca.location": "/none/ca.pem"}
    with WireBackend(options) as backend, pytest.raises(ReadError, match=r"/none/ca\.pem: No such file or directory"):
        backend.partitions(Selection())


@each("more", [HIDDEN, {name: value for name, value in client_settings(password="guess").items()}])
def test_options_show_no_password(more: dict[str, str]) -> None:
    names = {"bootstrap.servers": "a:1", **more}
    source = parse(prefixed(names), "ottla", None)
    sink = SinkOptions.read(prefixed(names))
    assert has_no_secret(source, sink, WireBackend(names).__dict__, client_options(names))
    assert dict(source.kafka) == dict(sink.kafka) == names
