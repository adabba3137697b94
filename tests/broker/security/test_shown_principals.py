"""Where principals are shown: requests in the buffer, recordings, clients of the overview, metrics,
log lines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from ottla.broker import Embedded, logs
from ottla.broker.logs import get_logger
from ottla.broker.recording.files import read_recording
from ottla.client import Producer
from ottla.protocol.api_key import ApiKey
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.controlling import controlled
from ottla_testing.broker.delegating import SECURED, logged_in
from ottla_testing.broker.harness import running
from ottla_testing.broker.metering import scraped
from ottla_testing.each import each

ANONYMOUS = "User:ANONYMOUS"


@pytest.fixture
def events() -> Iterator[list[Any]]:
    get_logger()
    processors = structlog.get_config()["processors"]
    before, captured = list(processors), structlog.testing.LogCapture()
    processors[:] = [logs._with_request, captured]
    try:
        yield captured.entries
    finally:
        processors[:] = before


@each("suffix", [".jsonl", ".pcapng"])
def test_requests_and_recordings_have_the_principal(suffix: str, tmp_path: Path) -> None:
    """A request has the principal of its connection at that time: those of the login itself have none yet."""
    path = tmp_path / f"recording{suffix}"

    async def send(broker: Embedded, user: str) -> None:
        async with Producer.from_config(broker.client_settings("ottla", user=user)) as producer:
            await producer.send_and_wait("t", b"x")

    with Embedded(security="sasl_plaintext", record=path) as broker:
        for user in ("admin", "user"):
            asyncio.run(send(broker, user))
        seen = broker.requests()
        assert {one.principal for one in seen if one.api == "Produce"} == {"User:admin", "User:user"}
        assert {one.principal for one in seen if one.api.startswith("Sasl")} == {ANONYMOUS}
        broker.assert_requests(api="Produce", principal="User:admin", count=1)
        assert {one.principal for one in broker.requests(principal="User:*r")} == {"User:user"}
        with pytest.raises(AssertionError, match="as other principals: User:admin"):
            broker.assert_requests(api="Produce", principal="User:eve")
    recorded = read_recording(path).exchanges
    assert {one.principal for one in recorded if one.api_key == ApiKey.PRODUCE} == {"User:admin", "User:user"}
    assert {one.principal for one in recorded if one.api_key == ApiKey.SASL_HANDSHAKE} == {ANONYMOUS}
    if suffix == ".jsonl":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert {one.get("principal") for one in lines if one.get("api") == "Produce"} == {"User:admin", "User:user"}


async def test_log_lines_have_the_principal_once_there_is_one(tmp_path: Path, events: list[Any]) -> None:
    async with running(tmp_path, overrides=SECURED) as broker:
        client = await logged_in(broker)
        anonymous = await broker.client()
        for one in (client, anonymous):
            await one.send_bytes(b"\0\0\0\x0a" + b"\x7f" * 10)
            assert await one.is_closed()
    closed = [one for one in events if one["event"] == "connection closed"]
    assert [one.get("principal") for one in closed] == ["User:ann", None]


async def test_overview_and_metrics_have_the_principals_of_clients(tmp_path: Path) -> None:
    async with controlled(tmp_path, overrides=SECURED) as (broker, api):
        clients = [await logged_in(broker, user) for user in ("ann", "bob")] + [await broker.client()]
        for client in clients:
            await client.call(MetadataRequest(topics=[]), 9)

        scrape = await scraped(api.url)
        for listener, principal in (("PLAINTEXT", ANONYMOUS), ("SECURED", "User:ann"), ("SECURED", "User:bob")):
            assert scrape.value("ottla_principal_connections", listener=listener, principal=principal) == 1
        found = (await api.call("GET", "/overview"))["clients"]
        assert [name for one in found for name in one["principals"]] == [ANONYMOUS, "User:ann", "User:bob"]
