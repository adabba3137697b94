"""Real clients with quotas: they get throttle times, pause for them, and lose nothing."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from ottla.broker import Embedded
from ottla.broker.network.connections import ClientConnection
from ottla.client import Admin, Producer
from ottla_testing.clients.quick_clients import consuming, producing

pytestmark = pytest.mark.usefixtures("close_what_kafka_python_leaves_open")

SLACK_MS = 15  # clocks of two threads, and a client's rounding
RATE = 100_000  # bytes a second: above a million in ten seconds each byte costs 10 us
FIRST, SECOND = bytes(1_015_000), bytes(1000)


@contextmanager
def quotas(embedded: Embedded, client_id: str, values: Mapping[str, float]) -> Iterator[None]:
    """Sets quotas for one client id until the end of the block."""
    entity = (("client-id", client_id),)

    async def alter(changes: Mapping[str, float | None]) -> None:
        async with Admin(embedded.bootstrap) as admin:
            responses = await admin.alter_client_quotas({entity: changes})
            assert list(responses.values()) == [None], responses

    asyncio.run(alter(values))
    try:
        yield
    finally:
        asyncio.run(alter(dict.fromkeys(values)))


class Heard:
    """When each connection was muted, the throttle time sent for that, and when bytes arrived on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.muted: list[tuple[int, float]] = []
        self.came: list[tuple[int, float]] = []
        mute, updated = ClientConnection._mute, ClientConnection.buffer_updated
        lock = threading.Lock()

        def noted_mute(connection: ClientConnection, mutes: Any) -> None:
            with lock:
                self.muted.append((id(connection), time.monotonic()))
            mute(connection, mutes)

        def noted_updated(connection: ClientConnection, nbytes: int) -> None:
            with lock:
                self.came.append((id(connection), time.monotonic()))
            updated(connection, nbytes)

        monkeypatch.setattr(ClientConnection, "_mute", noted_mute)
        monkeypatch.setattr(ClientConnection, "buffer_updated", noted_updated)

    def pause_ms(self) -> float:
        """Returns the time from the one mute to the next bytes on its connection."""
        ((connection, at),) = self.muted[:1]
        return 1000 * (min(when for one, when in self.came if one == connection and when > at) - at)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    return Heard(monkeypatch)


def test_kafka_python_sends_nothing_during_the_throttle_time(
    embedded: Embedded, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    topic = embedded.create_topic()
    settings: Mapping[str, Any] = {"client_id": "py", "max_request_size": 4 << 20}
    with (
        quotas(embedded, "py", {"producer_byte_rate": RATE}),
        caplog.at_level(logging.WARNING, "kafka"),
        producing("kafka-python", embedded.bootstrap, **settings) as producer,
    ):
        assert [producer.send(topic, value) for value in (FIRST, SECOND)] == [0, 1]
    throttled_ms = [int(ms) for ms in re.findall(r"ProduceResponse throttled by broker \((\d+) ms\)", caplog.text)]
    assert 100 < throttled_ms[0] < 400 and len(heard.muted) == len(throttled_ms)
    assert heard.pause_ms() > throttled_ms[0] - SLACK_MS


def test_ottla_sends_nothing_during_the_throttle_time(embedded: Embedded, heard: Heard) -> None:
    topic = embedded.create_topic()

    async def send() -> None:
        async with Producer(embedded.bootstrap, client_id="own", max_request_size=4 << 20) as producer:
            for value in (FIRST, SECOND):
                await (await producer.send(topic, value))

    with quotas(embedded, "own", {"producer_byte_rate": RATE}):
        asyncio.run(send())
    assert heard.pause_ms() > 150 - SLACK_MS


def test_librdkafka_reports_the_throttle_time_and_is_muted_meanwhile(embedded: Embedded, heard: Heard) -> None:
    """`throttle_cb` is called; the broker does not read what it still sends."""
    topic, reported_ms = embedded.create_topic(), []
    settings: Mapping[str, Any] = {"client_id": "rd", "message_max_bytes": 4 << 20, "throttle_cb": reported_ms.append}
    with (
        quotas(embedded, "rd", {"producer_byte_rate": RATE}),
        producing("confluent-kafka", embedded.bootstrap, **settings) as producer,
    ):
        assert producer.send(topic, FIRST) == 0
        begun = time.monotonic()
        assert producer.send(topic, SECOND) == 1
        took_ms = 1000 * (time.monotonic() - begun)
    throttled_ms = [round(1000 * event.throttle_time) for event in reported_ms if event.throttle_time]
    assert throttled_ms and 100 < throttled_ms[0] < 400
    assert took_ms > throttled_ms[0] - 4 * SLACK_MS


@pytest.mark.parametrize("client", ["kafka-python", "confluent-kafka", "aiokafka"])
def test_consumers_get_all_records_despite_empty_responses(client: str, heard: Heard) -> None:
    """A throttled response is empty, and the records come later. Windows of one second keep the test short."""
    values = [b"%d" % number + bytes(20_000) for number in range(12)]
    with Embedded(configs={"quota.window.num": 2}) as embedded:
        topic = embedded.create_topic()
        with producing(client, embedded.bootstrap) as producer:
            for value in values:
                producer.send(topic, value)
        settings = {"client_id": "reader", **small_fetches(client)}
        with (
            quotas(embedded, "reader", {"consumer_byte_rate": RATE}),
            consuming(client, embedded.bootstrap, topic, **settings) as consumer,
        ):
            found = consumer.read(len(values))
    assert [read.value for read in found] == values
    assert heard.muted


def small_fetches(client: str) -> Mapping[str, Any]:
    if client == "confluent-kafka":
        return {"fetch_message_max_bytes": 41_000}
    return {"max_partition_fetch_bytes": 41_000}
