"""Clients of each library connect with `client_settings` to brokers of each security, and are refused without."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer

from ottla.broker import Embedded
from ottla.broker.config.security.words import PROTOCOLS
from ottla.broker.testing.client_settings import client_settings
from ottla.broker.testing.security import STATE, made
from ottla.client import Consumer as OttlaConsumer
from ottla.client import Producer as OttlaProducer
from ottla.client.net.errors import KafkaError
from ottla.storage.format.file_names import SECURITY_FILES
from ottla.tools.ctl.command import ctl
from ottla_testing.broker.serving import serving
from ottla_testing.clients.four_clients import READERS, run_kcat
from ottla_testing.each import each
from ottla_testing.patience import PATIENCE_S

WORDS = list(PROTOCOLS)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def brokers() -> Iterator[dict[str, Embedded]]:
    found = {word: Embedded(security=word, brokers=2).start() for word in WORDS}
    yield found
    for broker in found.values():
        broker.stop()


def by_confluent(broker: Embedded, topic: str, **more: Any) -> bytes:
    settings = broker.client_settings("confluent-kafka", **more)
    producer = Producer(settings)
    producer.produce(topic, b"confluent")
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    (message,) = consumer.consume(1, PATIENCE_S)
    consumer.close()
    return message.value() or b""


def by_kafka_python(broker: Embedded, topic: str, **more: Any) -> bytes:
    settings = broker.client_settings("kafka-python", **more)
    producer = KafkaProducer(**settings)
    producer.send(topic, b"kafka_python").get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
    value = next(consumer).value
    consumer.close()
    return value


def by_aiokafka(broker: Embedded, topic: str, **more: Any) -> bytes:
    async def main() -> bytes:
        settings = broker.client_settings("aiokafka", **more)
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"aiokafka")
        async with AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings) as consumer:
            return (await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value or b""

    return asyncio.run(main())


def by_ottla(broker: Embedded, topic: str, **more: Any) -> bytes:
    async def main() -> bytes:
        settings = broker.client_settings("ottla", **more)
        async with OttlaProducer.from_config(settings) as producer:
            await producer.send_and_wait(topic, b"ottla")
        reading = {**settings, "group.id": topic, "auto.offset.reset": "earliest"}
        async with OttlaConsumer.from_config(reading, topics=[topic]) as consumer:
            return (await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value or b""

    return asyncio.run(main())


CLIENTS = [by_confluent, by_kafka_python, by_aiokafka, by_ottla]


@each("word", WORDS)
@each("client", CLIENTS)
def test_settings_are_all_that_a_client_needs(client: Any, word: str, brokers: dict[str, Embedded], name: str) -> None:
    value = client(brokers[word], f"{name}-{word}-{client.__name__}")
    assert client.__name__ == f"by_{value.decode()}"


@each("mechanism", MECHANISMS)
@each("client", CLIENTS)
def test_users_log_in_with_each_mechanism(client: Any, mechanism: str, brokers: dict[str, Embedded], name: str) -> None:
    for word in ("sasl_plaintext", "sasl_ssl"):
        topic = f"{name}-{word}-{mechanism}-{client.__name__}"
        assert client(brokers[word], topic, user="user", mechanism=mechanism)


LIFETIME_S = 5  # less than the session timeout of members
SENT = [str(number).encode() for number in range(9)]


def tokens_expire(broker: Embedded, number: int) -> int | None:
    """Moves the clock beyond the end of all tokens before some of the records. Returns the mark of that time."""
    if number not in (3, 6):
        return None
    mark = broker.requests.mark()
    broker.clock.advance(LIFETIME_S * 1000 + 1)
    return mark


def logged_in_since(broker: Embedded, mark: int | None) -> bool:
    """Whether a client has logged in after `mark`, if there is one."""
    return mark is None or any(
        one.errors == () and (one.response or {}).get("session_lifetime_ms")
        for one in broker.requests(api="SaslAuthenticate", since=mark)
    )


def stream_by_confluent(broker: Embedded, topic: str) -> list[bytes]:
    settings = broker.client_settings("confluent-kafka", token_lifetime_s=LIFETIME_S) | {"log_level": 0}
    producer = Producer(settings | {"enable.idempotence": True})
    consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    for number, value in enumerate(SENT):
        mark = tokens_expire(broker, number)
        producer.produce(topic, value)
        assert producer.flush(PATIENCE_S) == 0
        found += [message.value() or b"" for message in consumer.consume(1, PATIENCE_S)]
        consumer.commit(asynchronous=False)
        assert logged_in_since(broker, mark)
    consumer.close()
    return found


def stream_by_kafka_python(broker: Embedded, topic: str) -> list[bytes]:
    settings = broker.client_settings("kafka-python", token_lifetime_s=LIFETIME_S)
    producer = KafkaProducer(**settings)
    consumer = KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
    found: list[bytes] = []
    for number, value in enumerate(SENT):
        mark = tokens_expire(broker, number)
        producer.send(topic, value).get(PATIENCE_S)
        found.append(next(consumer).value)
        consumer.commit()
        assert logged_in_since(broker, mark)
    producer.close()
    consumer.close()
    return found


def stream_by_aiokafka(broker: Embedded, topic: str) -> list[bytes]:
    async def main() -> list[bytes]:
        settings = broker.client_settings("aiokafka", token_lifetime_s=LIFETIME_S)
        found: list[bytes] = []
        async with (
            AIOKafkaProducer(enable_idempotence=True, **settings) as producer,
            AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings) as consumer,
        ):
            for number, value in enumerate(SENT):
                mark = await asyncio.to_thread(tokens_expire, broker, number)
                await producer.send_and_wait(topic, value)
                found.append((await asyncio.wait_for(consumer.getone(), PATIENCE_S)).value or b"")
                await asyncio.wait_for(consumer.commit(), PATIENCE_S)
                assert logged_in_since(broker, mark)
        return found

    return asyncio.run(main())


@each("word", ["oauth_plaintext", "oauth_ssl"])
@each("stream", [stream_by_confluent, stream_by_kafka_python, stream_by_aiokafka])
def test_clients_continue_with_new_tokens_when_theirs_expire(stream: Any, word: str, name: str) -> None:
    """The broker ends the sessions in mid-stream, by its moved clock, and refuses the old tokens."""
    with Embedded(security=word) as broker:
        topic = broker.create_topic(name)
        assert stream(broker, topic) == SENT
        assert broker.group(name).lag == 0
        broker.assert_produced(topic, SENT)


def refused(settings: dict[str, Any], **more: Any) -> list[str]:
    """Returns the errors of a client that finds no broker."""
    errors: list[str] = []
    producer = Producer({**settings, **more, "log_level": 0, "error_cb": lambda error: errors.append(str(error))})
    deadline = time.monotonic() + PATIENCE_S
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=0.1)
    return errors


TEXTS = {"PLAIN": "Invalid username or password", "OAUTHBEARER": "invalid_token"}


def wrong(broker: Embedded, library: str, mechanism: str) -> dict[str, Any]:
    """Returns the settings of a library with a wrong password, or with a token that has expired."""
    settings = broker.client_settings(library, mechanism=mechanism)
    if mechanism != "OAUTHBEARER":
        name = {"confluent-kafka": "sasl.password", "ottla": "sasl.password"}.get(library, "sasl_plain_password")
        return {**settings, name: "guess"}
    token = broker.oauth_token("admin", lifetime_s=-60)

    async def later() -> str:
        return token

    if library == "confluent-kafka":
        return {**settings, "oauth_cb": lambda config: (token, time.time() + 600)}
    if library == "ottla":
        return {**settings, "sasl.oauth.token.provider": lambda: (token, 0)}
    settings["sasl_oauth_token_provider"].token = later if library == "aiokafka" else lambda: token
    return settings


def refused_by_aiokafka(settings: dict[str, Any]) -> str:
    async def main() -> str:
        producer = AIOKafkaProducer(**settings)
        try:
            with pytest.raises(AioKafkaError) as raised:
                await producer.start()
        finally:
            await producer.stop()
        return str(raised.value)

    return asyncio.run(main())


def refused_by_kafka_python(settings: dict[str, Any]) -> str:
    """In a process of its own: a producer that finds no broker leaves its sockets open."""
    provider = settings.pop("sasl_oauth_token_provider", None)
    if provider is not None:
        settings |= {"token": provider.token()}
    done = subprocess.run([sys.executable, "-c", KAFKA_PYTHON, json.dumps(settings)], capture_output=True, text=True)
    assert done.returncode == 1
    return done.stderr


KAFKA_PYTHON = """
import json, sys
import kafka
from kafka.net.sasl.oauth import AbstractTokenProvider

settings = json.loads(sys.argv[1])
token = settings.pop("token", None)
if token is not None:
    Provider = type("Provider", (AbstractTokenProvider,), {"token": lambda self: token})
    settings["sasl_oauth_token_provider"] = Provider()
kafka.KafkaProducer(bootstrap_timeout_ms=1000, **settings)
"""


def refused_by_ottla(settings: dict[str, Any]) -> str:
    async def main() -> str:
        with pytest.raises(KafkaError) as raised:
            async with OttlaProducer.from_config(settings) as producer:
                await producer.send_and_wait("t", b"x")
        return str(raised.value)

    return asyncio.run(main())


def refused_by_confluent(settings: dict[str, Any]) -> str:
    return " ".join(refused(settings))


REFUSED = {
    "confluent-kafka": refused_by_confluent,
    "kafka-python": refused_by_kafka_python,
    "aiokafka": refused_by_aiokafka,
    "ottla": refused_by_ottla,
}


def test_wrong_passwords_and_tokens_are_authentication_errors(brokers: dict[str, Embedded]) -> None:
    """Of each library, with each mechanism over each protocol. kafka-python and aiokafka only find no broker."""
    ways = [
        (word, library, mechanism)
        for word in ("sasl_plaintext", "sasl_ssl", "oauth_plaintext", "oauth_ssl")
        for library in REFUSED
        for mechanism in (MECHANISMS if word.startswith("sasl") else ("OAUTHBEARER",))
    ]

    def errors(way: tuple[str, str, str]) -> str:
        word, library, mechanism = way
        return REFUSED[library](wrong(brokers[word], library, mechanism))

    marks = {word: broker.requests.mark() for word, broker in brokers.items()}
    with concurrent.futures.ThreadPoolExecutor(len(ways)) as pool:
        found = dict(zip(ways, pool.map(errors, ways), strict=True))
    for (word, library, mechanism), text in found.items():
        if library == "kafka-python":
            assert "Unable to bootstrap" in text
        if library in ("confluent-kafka", "ottla"):
            assert TEXTS.get(mechanism, "due to invalid credentials") in text, (word, library, mechanism, text)
        logins = brokers[word].requests(api="SaslAuthenticate", since=marks[word])
        assert logins and any("SASL_AUTHENTICATION_FAILED" in one.errors for one in logins)


def test_clients_without_the_settings_are_refused(brokers: dict[str, Embedded]) -> None:
    def settings(word: str, **more: Any) -> dict[str, Any]:
        return brokers[word].client_settings("confluent-kafka", **more)

    assert "SASL authentication error" in refused(settings("sasl_ssl"), **{"sasl.password": "guess"})[0]
    foreign = settings("ssl")["ssl.ca.location"]
    assert "certificate verify failed" in refused(settings("sasl_ssl"), **{"ssl.ca.location": foreign})[0]
    unencrypted = {"bootstrap.servers": brokers["ssl"].bootstrap}
    assert refused(unencrypted)
    without = {
        name: value for name, value in settings("mtls").items() if name.split(".")[1] not in ("certificate", "key")
    }
    assert refused(without)
    stranger = brokers["ssl"]
    assert stranger.client_settings("values").get("user") is None


def test_certificate_names_the_user(brokers: dict[str, Embedded]) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    for word in ("mtls", "sasl_ssl", "oauth_ssl"):
        with Embedded(security=word, configs={"authorizer.class.name": authorizer}) as broker:
            broker.create_topic("orders")
            admin = Producer(broker.client_settings("confluent-kafka"))
            admin.produce("orders", b"bread")
            assert admin.flush(PATIENCE_S) == 0
            errors: list[str] = []

            def report(error: Any, message: Any, errors: list[str] = errors) -> None:
                errors.append(error.name())

            user = Producer(broker.client_settings("confluent-kafka", user="user"))
            user.produce("orders", b"milk", on_delivery=report)
            user.flush(PATIENCE_S)
            assert errors == ["TOPIC_AUTHORIZATION_FAILED"]
            broker.assert_produced("orders", [b"bread"])


if "kcat" in READERS:

    @each("word", WORDS)
    def test_kcat_takes_the_settings_as_arguments(word: str, brokers: dict[str, Embedded]) -> None:
        broker = brokers[word]
        output = run_kcat("-L", *broker.client_settings("kcat")).stdout.decode()
        assert broker.bootstrap.partition(",")[0] in output


@each("word", WORDS)
def test_files_live_as_long_as_the_broker(word: str) -> None:
    broker = Embedded(security=word)
    folders = set[Path]()
    for _ in range(2):
        with broker:
            values = broker.client_settings("values")
            if "ca_file" in values:
                folder = Path(values["ca_file"]).parent
                assert stat.S_IMODE(folder.stat().st_mode) == 0o700
                assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
                folders.add(folder)
        assert not any(folder.exists() for folder in folders)
    assert len(folders) == (2 if "ssl" in word or word == "mtls" else 0)


def test_folder_is_removed_where_the_broker_is_never_stopped() -> None:
    code = (
        "from ottla.broker import Embedded\n"
        "broker = Embedded(security='ssl').start()\n"
        "print(broker.client_settings('values')['ca_file'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout and not Path(done.stdout.strip()).parent.exists(), done.stderr


# ottla serve

FLAGS = ("--listen", "127.0.0.1:0", "--data-dir", "data")


def topics(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla.tools", "topics", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=PATIENCE_S)


@pytest.mark.process
@pytest.mark.parametrize("word", [word for word in WORDS if word != "plaintext"])
def test_serve_writes_what_clients_need_and_keeps_it(word: str, tmp_path: Path) -> None:
    kept: dict[str, Any] = {}
    for turn in range(2):
        with serving(tmp_path, *FLAGS, "--security", word, listeners=2) as (process, lines):
            address = lines[0].removeprefix("ottla ready on ")
            file = Path(lines[1].rpartition(" ")[2])
            assert file == tmp_path / "data" / "client.properties"
            assert f"bootstrap.servers={address}\n" in file.read_text()
            files = [one for one in file.parent.iterdir() if one.name.startswith(("security", "client.properties"))]
            assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
            state = json.loads((tmp_path / "data" / STATE).read_text())
            assert not kept or kept == state
            kept = state
            security = made(word, (tmp_path / "data" / STATE).read_bytes())
            security.folder = str(file.parent)
            for user in security.known or (None,):
                mechanism = security.mechanisms[-1] if security.mechanisms else None
                settings = client_settings("confluent-kafka", address, security, user, mechanism)
                producer = Producer(settings)
                producer.produce(f"t{turn}", b"bread")
                assert producer.flush(PATIENCE_S) == 0
            command = ("--bootstrap-server", address, "--command-config", str(file), "--list")
            listed = topics(tmp_path, *command)
            assert listed.stdout.split() == [f"t{number}" for number in range(turn + 1)], listed.stderr
            process.send_signal(signal.SIGTERM)
            _, error = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0
            assert all(password not in error for password in state["users"].values())


@pytest.mark.process
def test_files_and_users_stay_over_a_reset_and_a_restore(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--security", "sasl_ssl", "--control", "127.0.0.1:0")
    with serving(tmp_path, *FLAGS, *flags, listeners=3) as (_, lines):
        address, control = (line.rpartition(" ")[2] for line in lines[:2])
        folder = tmp_path / "data"
        names = [name for name in SECURITY_FILES if (folder / name).exists()]
        before = {name: (folder / name).read_bytes() for name in names}
        assert {"client.properties", "security-user.properties", STATE} <= before.keys()
        security = made("sasl_ssl", before[STATE])
        security.folder = str(folder)
        settings = client_settings("confluent-kafka", address, security, "user", "SCRAM-SHA-512")
        assert ctl(["--control", control, "snapshots", "take", "one"]) == 0
        for words in (["state", "reset"], ["snapshots", "restore", "one"]):
            assert ctl(["--control", control, *words]) == 0, capsys.readouterr()
            assert {name: (folder / name).read_bytes() for name in names} == before
            producer = Producer(settings)
            producer.produce("t", b"bread")
            assert producer.flush(PATIENCE_S) == 0
