"""Key sets in files and of URLs: when they are read again, and the effect of a bad file or server."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.clock import ManualClock
from ottla.broker.config.security.oauthbearer import SignedSettings
from ottla.broker.security.sasl import key_sets
from ottla.broker.security.sasl.key_sets import (
    LEAST_BETWEEN_MS,
    SET_BYTES_MAX,
    UNKNOWN_ID_CHARS,
    UNKNOWN_ID_MS,
    KeyFile,
    KeyUrl,
    fetched,
    shown,
    source_of,
)
from ottla_testing.certificates import STORE_PASSWORD, Authority
from ottla_testing.each import each
from ottla_testing.protocol.tokens import Pages, key_set, public, signer

RSA = "RS256"
URL = "http://keys.example/jwks"


def keys(*ids: str) -> bytes:
    return key_set(*(public(signer(RSA), one) for one in ids))


def settings(**changed: Any) -> SignedSettings:
    values: dict[str, Any] = {
        "keys_url": URL,
        "refresh_ms": 3_600_000,
        "retry_backoff_ms": 100,
        "retry_backoff_max_ms": 1000,
        "clock_skew_s": 0,
        "audiences": (),
        "issuer": None,
        "scope_claim": "scope",
        "sub_claim": "sub",
    }
    return SignedSettings(**values | changed)


# Files


async def test_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "a b.json"
    path.write_bytes(keys("one"))
    source = source_of(settings(keys_url=f"file:{str(path).replace(' ', '%20')}"))
    await source.load()
    assert source.find("one", RSA) and not source.find("two", RSA)
    path.write_bytes(keys("two", "three"))
    assert source.find("two", RSA) and not source.find("one", RSA)


async def test_file_that_was_damaged_keeps_the_earlier_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(keys("one"))
    source = KeyFile(str(path))
    await source.load()
    path.write_bytes(b'{"keys": [')
    assert source.find("one", RSA)
    path.unlink()
    assert source.find("one", RSA)
    path.write_bytes(keys("two", "three", "four"))
    assert source.find("two", RSA)


@each("kind", ["missing", "folder", "fifo", "large", "malformed"])
async def test_file_that_is_no_key_set_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind != "missing":
        path.write_bytes(b" " * (SET_BYTES_MAX + 1) if kind == "large" else b"x")
    with pytest.raises(ValueError, match=r"keys|key set") as raised:
        await KeyFile(str(path)).load()
    assert "\n" not in str(raised.value)


# URLs


class Server:
    """A server whose responses are in the hand of the test."""

    def __init__(self, *responses: bytes | str) -> None:
        self.responses = list(responses)
        self.fetches = 0

    async def __call__(self, url: str) -> bytes:
        assert url == URL
        self.fetches += 1
        await asyncio.sleep(0)
        response = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        if isinstance(response, str):
            raise ValueError(response)
        return response


async def started(server: Server, **changed: Any) -> tuple[KeyUrl, ManualClock]:
    clock = ManualClock()
    source = KeyUrl(settings(**changed), server)
    await source.load()
    source.attach(clock)
    return source, clock


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_keys_are_fetched_at_each_interval() -> None:
    server = Server(keys("one"), keys("two"))
    source, clock = await started(server)
    clock.advance(3_599_999)
    await settle()
    assert source.find("one", RSA) and server.fetches == 1
    clock.advance(1)
    await settle()
    assert server.fetches == 2 and source.find("two", RSA)
    source.attach(None)
    clock.advance(10_000_000)
    await settle()
    assert server.fetches == 2


async def test_unknown_key_id_fetches_once() -> None:
    server = Server(keys("one"), keys("one", "two"))
    source, clock = await started(server)
    assert source.find("two", RSA) is None
    await settle()
    assert server.fetches == 2 and source.find("two", RSA)
    assert source.find("three", RSA) is None
    await settle()
    assert server.fetches == 2, "sooner than LEAST_BETWEEN_MS"
    clock.advance(LEAST_BETWEEN_MS)
    source.find("three", RSA)
    await settle()
    assert server.fetches == 3
    clock.advance(UNKNOWN_ID_MS - 1)
    source.find("three", RSA)
    await settle()
    assert server.fetches == 3
    clock.advance(1)
    source.find("three", RSA)
    await settle()
    assert server.fetches == 4


@each("key_id", [None, "x" * (UNKNOWN_ID_CHARS + 1)])
async def test_missing_or_long_key_id_fetches_nothing(key_id: str | None) -> None:
    server = Server(keys("one"))
    source, _ = await started(server)
    assert source.find(key_id, "ES256") is None
    await settle()
    assert server.fetches == 1


async def test_flood_of_key_ids_costs_one_fetch_in_a_second() -> None:
    server = Server(keys("one"))
    source, clock = await started(server)
    for number in range(1000):
        source.find(f"id {number}", RSA)
        await settle()
        clock.advance(10)
    assert server.fetches == 1 + 10_000 // LEAST_BETWEEN_MS
    assert len(source._unknown) <= key_sets.UNKNOWN_IDS_MAX  # pyright: ignore[reportPrivateUsage]


async def test_failed_fetches_are_repeated_with_growing_pauses() -> None:
    server = Server(keys("one"), "no", "no", b"{", "no", keys("two"))
    source, clock = await started(server, retry_backoff_max_ms=10_000)
    source.find("two", RSA)
    pauses: list[int] = []
    for _ in range(5):
        before, begun = server.fetches, clock.now_ms()
        while server.fetches == before:
            clock.advance(50)
            await settle()
        pauses.append(clock.now_ms() - begun)
        assert source.find("one", RSA) or pauses == [50, 100, 200, 400, 800]
    assert pauses == [50, 100, 200, 400, 800] and source.find("two", RSA)


async def test_fetches_end_after_the_longest_backoff() -> None:
    server = Server(keys("one"), "no")
    source, clock = await started(server)
    clock.advance(3_600_000)
    for _ in range(100):
        await settle()
        clock.advance(100)
    assert server.fetches == 1 + 5, "after 0, 100, 300, 700 and 1000 ms"
    assert source.find("one", RSA)
    source.find("two", RSA)
    await settle()
    assert server.fetches == 7, "a later refresh begins again"


# The network


async def test_set_is_fetched_over_http() -> None:
    with Pages(lambda served: (200, {}, keys("one"))) as pages:
        assert await fetched(f"{pages.url}/a?b=c") == keys("one")
    assert [(one.method, one.path) for one in pages.requests] == [("GET", "/a?b=c")]


@each(
    ("status", "headers", "data", "problem"),
    [
        (404, {}, b"secret", "HTTP status 404"),
        (500, {}, b"secret", "HTTP status 500"),
        (302, {"Location": "/elsewhere"}, b"", "HTTP status 302"),
        (200, {}, b" " * (SET_BYTES_MAX + 1), "more than"),
        (200, {"Content-Length": "1000"}, b"short", "cut off"),
    ],
)
async def test_response_that_is_no_set_is_one_line(
    status: int, headers: dict[str, str], data: bytes, problem: str
) -> None:
    with Pages(lambda served: (status, headers, data)) as pages, pytest.raises(ValueError, match=problem) as raised:
        key_sets.KeySet(await fetched(pages.url))
    assert "\n" not in str(raised.value) and "secret" not in str(raised.value)
    assert len(pages.requests) == 1


@each("trusted", ["file", "store", "text", "other", ""])
async def test_certificate_of_an_https_server_must_be_trusted(trusted: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    other = Authority(tmp_path / "other")
    trust = {
        "file": {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.trusted)},
        "store": {
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(authority.trusted_pkcs12()),
            "ssl.truststore.password": STORE_PASSWORD,
        },
        "text": {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority.trusted.read_text()},
        "other": {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(other.trusted)},
        "": {},
    }[trusted]
    with Pages(lambda served: (200, {}, keys("one")), authority.issue("server")) as pages:
        source = KeyUrl(settings(keys_url=pages.url, trust=tuple(trust.items())))
        if trusted in ("other", ""):
            with pytest.raises(ValueError, match=r"cannot fetch the key set: .*certificate verify failed"):
                await source.load()
        else:
            await source.load()
            assert source.find("one", RSA)


async def test_server_that_is_gone_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(ValueError, match=r"cannot fetch the key set: .*refused"):
        await fetched(f"http://127.0.0.1:{port}/")


async def test_silent_server_does_not_hold_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_sets, "FETCH_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        task = asyncio.create_task(fetched(f"http://127.0.0.1:{port}/"))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not task.done() and threading.active_count() > 1
        with pytest.raises(ValueError, match="cannot fetch the key set"):
            await task


def test_shown_url_has_no_secrets() -> None:
    assert shown("https://user:secret@host:1/path?token=secret#x") == "https://host:1/path"
