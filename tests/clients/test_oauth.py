"""Clients that log in with OAUTHBEARER: unsecured and signed tokens, an endpoint, and the end of tokens."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from ottla.protocol.security.oauthbearer import LOGIN_MODULE, unsecured_token
from ottla_testing.clients.running_broker import RunningBroker
from ottla_testing.each import each
from ottla_testing.patience import PATIENCE_S
from ottla_testing.protocol.tokens import Pages, Served, Signer, json_page, key_set, public, signer
from ottla_testing.snippets import SNIPPETS

PROTOCOL = "SASL_PLAINTEXT"
UNSECURED, SIGNED = "UNSECURED", "SIGNED"
PACKAGE = "org.apache.kafka.common.security.oauthbearer"
KEY = signer("RS256")


def configs(listener: str, **more: str) -> dict[str, str]:
    return {
        "listener_security_protocol_map": f"{listener}:{PROTOCOL}",
        "sasl_enabled_mechanisms": "OAUTHBEARER",
        f"listener_name_{listener.lower()}_oauthbearer_sasl_jaas_config": f"{LOGIN_MODULE} required;",
        **more,
    }


def claims(lifetime_s: float = 600) -> dict[str, Any]:
    now_s = time.time()
    return {"sub": "ann", "iat": int(now_s), "exp": now_s + lifetime_s, "aud": "kafka", "iss": "test"}


def unsecured(lifetime_s: float = 600) -> str:
    return unsecured_token(claims(lifetime_s))


def signed(lifetime_s: float = 600, by: Signer = KEY) -> str:
    found = claims(lifetime_s)
    return by.token({**found, "exp": int(found["exp"])})


def librdkafka(broker: RunningBroker, **more: Any) -> dict[str, Any]:
    common = {"security.protocol": PROTOCOL, "sasl.mechanism": "OAUTHBEARER", "log_level": 0}
    return {"bootstrap.servers": broker.address, **common, **more}


class Provider(AbstractTokenProvider):
    """kafka-python's provider."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make

    def token(self) -> str:
        return self.make()

    def extensions(self) -> dict[str, str]:
        return {"trace": "one"}


class AioProvider(AioTokenProvider):
    """aiokafka's provider."""

    def __init__(self, make: Any) -> None:
        self.make = make

    async def token(self) -> str:
        return self.make()

    def extensions(self) -> dict[str, str]:
        return {"trace": "one"}


def python(broker: RunningBroker, provider: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.address,
        "security_protocol": PROTOCOL,
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider,
    }


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunningBroker]]:
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_bytes(key_set(public(KEY)))
    prefix = f"listener_name_{SIGNED.lower()}_oauthbearer_sasl"
    validator = {
        f"{prefix}_server_callback_handler_class": f"{PACKAGE}.OAuthBearerValidatorCallbackHandler",
        f"{prefix}_oauthbearer_jwks_endpoint_url": f"file:{keys}",
        f"{prefix}_oauthbearer_expected_audience": "kafka",
        f"{prefix}_oauthbearer_expected_issuer": "test",
    }
    running = {
        UNSECURED: RunningBroker(tmp_path_factory.mktemp("one"), listener=UNSECURED, **configs(UNSECURED)),
        SIGNED: RunningBroker(tmp_path_factory.mktemp("two"), listener=SIGNED, **configs(SIGNED, **validator)),
    }
    yield running
    for broker in running.values():
        broker.close()


def by_librdkafka(settings: dict[str, Any], topic: str) -> list[bytes]:
    producer = Producer(settings)
    producer.produce(topic, b"librdkafka")
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = [message.value() or b"" for message in consumer.consume(1, PATIENCE_S)]
    consumer.close()
    return found


def by_confluent(broker: RunningBroker, make: Any, topic: str) -> list[bytes]:
    def token(config: str) -> Any:
        return make(), time.time() + 600

    return by_librdkafka(librdkafka(broker, oauth_cb=token), topic)


def by_kafka_python(broker: RunningBroker, make: Any, topic: str) -> list[bytes]:
    settings = python(broker, Provider(make))
    producer = KafkaProducer(**settings)
    producer.send(topic, b"kafka-python").get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
    found = [next(consumer).value]
    consumer.close()
    return found


def by_aiokafka(broker: RunningBroker, make: Any, topic: str) -> list[bytes]:
    async def main() -> list[bytes]:
        settings = python(broker, AioProvider(make))
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"aiokafka")
        async with AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings) as consumer:
            return [(await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value or b""]

    return asyncio.run(main())


@each(("kind", "make"), [(UNSECURED, unsecured), (SIGNED, signed)])
@each("client", [by_confluent, by_kafka_python, by_aiokafka])
def test_client_logs_in_produces_and_consumes(
    client: Any, kind: str, make: Any, brokers: dict[str, RunningBroker]
) -> None:
    assert len(client(brokers[kind], make, f"{kind}-{client.__name__}")) == 1


def test_librdkafka_makes_unsecured_tokens(brokers: dict[str, RunningBroker]) -> None:
    config = "principal=ann scope=a,b lifeSeconds=600 extension_trace=one"
    more = {"enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": config}
    assert by_librdkafka(librdkafka(brokers[UNSECURED], **more), "unsecured-by-librdkafka") == [b"librdkafka"]


def test_librdkafka_gets_tokens_of_an_endpoint(brokers: dict[str, RunningBroker]) -> None:
    """KIP-768: `sasl.oauthbearer.method=oidc`."""

    def page(served: Served) -> Any:
        assert served.method == "POST" and "grant_type=client_credentials" in served.body
        return json_page({"access_token": signed(), "token_type": "Bearer", "expires_in": 600})

    with Pages(page) as pages:
        more = {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "secret",
            "sasl.oauthbearer.token.endpoint.url": f"{pages.url}/token",
        }
        assert by_librdkafka(librdkafka(brokers[SIGNED], **more), "endpoint-by-librdkafka") == [b"librdkafka"]
        assert pages.requests


@each(
    ("kind", "make"),
    [
        (UNSECURED, lambda: unsecured(-5)),
        (SIGNED, lambda: signed(by=signer("RS256", 2))),
        (SIGNED, unsecured),
    ],
)
def test_token_that_is_not_valid_is_an_authentication_error(
    kind: str, make: Any, brokers: dict[str, RunningBroker]
) -> None:
    errors: list[str] = []
    more = {"oauth_cb": lambda config: (make(), time.time() + 600), "error_cb": lambda error: errors.append(str(error))}
    producer = Producer(librdkafka(brokers[kind], **more))
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=1)
    producer.poll(0)
    assert any("invalid_token" in error for error in errors), errors

    async def main() -> None:
        made = AIOKafkaProducer(**python(brokers[kind], AioProvider(make)))
        try:
            with pytest.raises(AioKafkaError):
                await made.start()
        finally:
            await made.stop()

    asyncio.run(main())


def test_sessions_are_renewed_with_new_tokens_while_records_are_sent(tmp_path: Path) -> None:
    """KIP-368. librdkafka checks the end of its token each second, so it gets an end long before that of the token."""
    broker = RunningBroker(tmp_path, listener=UNSECURED, connections_max_reauth_ms="1200", **configs(UNSECURED))
    given: list[str] = []
    errors: list[str] = []

    def token(config: str) -> Any:
        given.append(unsecured())
        return given[-1], time.time() + 1

    producer = Producer(librdkafka(broker, oauth_cb=token, error_cb=lambda error: errors.append(str(error))))
    end, count = time.monotonic() + 3.5, 0
    while time.monotonic() < end:
        producer.produce("t", b"x")
        assert producer.flush(PATIENCE_S) == 0
        count += 1
        time.sleep(0.02)
    assert sum(header.record_count for header in broker.stored("t")) == count and not errors
    assert len(set(given)) >= 2
    broker.close()


def test_guide_works_as_written(tmp_path: Path) -> None:
    """`docs/guides/oauth.md`, with free ports, and with keys of a server of this test."""
    found = {**claims(), "iss": "https://login.example/"}
    (tmp_path / "token.jwt").write_text(KEY.token({**found, "exp": int(found["exp"])}))
    with Pages(lambda served: (200, {}, key_set(public(KEY)))) as pages:
        text = (SNIPPETS / "clients" / "oauth.properties").read_text()
        text = text.replace("https://login.example/jwks", f"{pages.url}/jwks")
        file = tmp_path / "secured.properties"
        file.write_text(re.sub(r":909[23]", ":0", text))
        serving = [
            sys.executable,
            "-m",
            "ottla.tools",
            "serve",
            "--config",
            str(file),
            "--data-dir",
            f"{tmp_path}/data",
        ]
        with subprocess.Popen(serving, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as broker:
            assert broker.stdout is not None
            _, secured = (broker.stdout.readline().split()[-1] for _ in range(2))
            code = (SNIPPETS / "clients" / "login_oauth.py").read_text().replace("127.0.0.1:9093", secured)
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
            broker.terminate()
        assert done.stdout == "offset 0\n", done.stderr
        assert [request.path for request in pages.requests] == ["/jwks.json"]
