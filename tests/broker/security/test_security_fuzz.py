"""Random and damaged logins and handshakes: none gets in, other clients are served, and nothing is kept.

Each run uses another seed and prints it on failure; OTTLA_FUZZ_SEED repeats one.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
import resource
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages.cluster.api_versions import ApiVersionsRequest
from ottla.protocol.messages.security.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.security.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla_testing.broker.harness import Broker, Client, frame, running
from ottla_testing.certificates import Authority, pem_configs

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
BEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
CONFIGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_ann="one";',
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{BEARER_MODULE} required;",
    "connection.failed.authentication.delay.ms": "0",
}
VERSIONS = ApiVersionsRequest(client_software_name="n", client_software_version="1")
METADATA = MetadataRequest(topics=None, allow_auto_topic_creation=False)
METADATA_ID = 77
FRAMES_EACH = 12  # frames of one connection


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("OTTLA_FUZZ_SEED", random.randrange(1 << 32)))
    print(f"OTTLA_FUZZ_SEED={chosen}")
    return chosen


def bearer(header: str, claims: str, signature: str = "") -> bytes:
    parts = [base64.urlsafe_b64encode(part.encode()).rstrip(b"=").decode() for part in (header, claims)]
    return f"n,,\x01auth=Bearer {'.'.join([*parts, signature])}\x01\x01".encode()


def token(chooser: random.Random) -> bytes:
    """Returns a token that is refused: one of a wrong password, a damaged one, or random bytes."""
    made = chooser.choice(
        [
            b"\0ann\0two",
            b"\0\0one",
            b"ann\0bob\0one",
            b"n,,n=ann,r=nonce",
            b"n,a=bob,n=ann,r=nonce",
            b"n,,n=ann,r=nonce,tokenauth=true",
            b"c=biws,r=nonce,p=AAAA",
            bearer('{"alg":"none"}', '{"sub":"ann","exp":1}'),
            bearer('{"alg":"none"}', '{"exp":99999999999}'),
            bearer('{"alg":"HS256"}', '{"sub":"ann","exp":99999999999}', "AAAA"),
            bearer("[]", '"x"'),
            chooser.randbytes(chooser.randrange(60)),
            b"\x01" * chooser.randrange(3),
        ]
    )
    if chooser.random() < 0.4 and made:
        out = bytearray(made)
        at = chooser.randrange(len(out))
        out[at : at + chooser.randrange(3)] = chooser.randbytes(chooser.randrange(4))
        # A damaged token must not become a right one.
        made = bytes(out) if bytes(out) != b"\0ann\0one" else b""
    return made


def request(chooser: random.Random) -> bytes:
    """Returns a frame: of a login, of something else, or none at all."""
    kind = chooser.random()
    if kind < 0.3:
        mechanism = chooser.choice([*MECHANISMS, "GSSAPI", "plain", ""])
        return frame(SaslHandshakeRequest(mechanism=mechanism), chooser.randrange(2), 1)
    if kind < 0.7:
        return frame(SaslAuthenticateRequest(auth_bytes=token(chooser)), chooser.randrange(3), 2)
    if kind < 0.8:
        data = token(chooser)
        return struct.pack(">i", len(data)) + data
    if kind < 0.9:
        return frame(VERSIONS, 3, 3)
    if kind < 0.95:
        return frame(METADATA, 9, METADATA_ID)
    data = chooser.randbytes(chooser.randrange(30))
    return struct.pack(">i", chooser.choice([len(data), len(data), -1, 1 << 30])) + data


async def is_served(broker: Broker, client: Client) -> None:
    assert (await client.call(VERSIONS, 3)).error_code == 0


async def is_over(broker: Broker) -> bool:
    """Returns whether no secured connection is left, after the time in which one with TLS ends."""
    for _ in range(500):
        await broker.settle()
        if all(one.listener == "PLAINTEXT" for one in broker.running.connections.open):
            return True
        await asyncio.sleep(0.01)
    return False


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def responses(data: bytes) -> set[int]:
    """Returns the correlation ids of responses. Bare tokens among them count as one, too."""
    found: set[int] = set()
    at = 0
    while at + 8 <= len(data):
        size, correlation_id = struct.unpack_from(">ii", data, at)
        found.add(correlation_id)
        at += 4 + max(0, size)
    return found


@pytest.mark.soak
async def test_random_logins_are_refused(tmp_path: Path, seed: int, scaled: Callable[[int], int]) -> None:
    """1,000,000 frames at the size of a soak."""
    chooser = random.Random(seed)
    async with running(tmp_path, overrides=CONFIGS) as broker:
        other = await broker.client()
        before = 0
        rounds = scaled(50_000) // FRAMES_EACH
        for number in range(rounds):
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports[1])
            frames = [request(chooser) for _ in range(FRAMES_EACH)]
            writer.write(b"".join(frames))
            writer.write_eof()
            received = b""
            try:
                async with asyncio.timeout(10):
                    while piece := await reader.read(1 << 16):
                        received += piece
            except ConnectionError:
                pass
            writer.close()
            assert METADATA_ID not in responses(received), (seed, frames)
            if number % 100 == 0:
                await is_served(broker, other)
            if number == rounds // 2:
                before = resident_bytes()
        assert await is_over(broker), seed
        assert resident_bytes() - before < 32 << 20


@pytest.mark.soak
async def test_damaged_handshakes_close_their_connection(
    tmp_path: Path, seed: int, scaled: Callable[[int], int]
) -> None:
    """Handshakes that are cut, damaged, or followed by damaged records."""
    chooser = random.Random(seed)
    authority = Authority(tmp_path / "authority")
    more = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", **pem_configs(authority.issue("server"))}
    trusting = ssl.create_default_context(cafile=str(authority.trusted))
    async with running(tmp_path / "data", overrides=more) as broker:
        other = await broker.client()
        for number in range(scaled(1500)):
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = trusting.wrap_bio(incoming, outgoing, server_hostname="localhost")
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports[1])
            honest_flights = chooser.randrange(3)
            for flight in range(4):
                try:
                    client.do_handshake()
                    client.write(frame(VERSIONS, 3, 1))
                except (ssl.SSLWantReadError, ssl.SSLError):
                    pass
                sent = bytearray(outgoing.read())
                if flight >= honest_flights and sent:
                    sent[chooser.randrange(len(sent))] ^= 1 << chooser.randrange(8)
                    del sent[chooser.choice([len(sent), chooser.randrange(len(sent))]) :]
                writer.write(bytes(sent))
                if flight >= honest_flights:
                    break
                if not (piece := await reader.read(1 << 16)):
                    break
                incoming.write(piece)
            writer.write_eof()
            try:
                async with asyncio.timeout(10):
                    while await reader.read(1 << 16):
                        pass
            except ConnectionError:
                pass
            writer.close()
            if number % 50 == 0:
                await is_served(broker, other)
        assert await is_over(broker), seed


@pytest.mark.soak
async def test_half_open_handshakes_leave_others_served(tmp_path: Path, scaled: Callable[[int], int]) -> None:
    """5,000 clients that connect and send nothing, or a part of a handshake, at the size of a soak."""
    authority = Authority(tmp_path / "authority")
    more = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "connections.max.idle.ms": "600000",
        **pem_configs(authority.issue("server")),
    }
    hello = hello_of(ssl.create_default_context(cafile=str(authority.trusted)))
    async with running(tmp_path / "data", overrides=more) as broker:
        waiting: list[asyncio.StreamWriter] = []
        before = resident_bytes()
        count = min(scaled(250), (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200) // 2)
        for number in range(count):
            _, writer = await asyncio.open_connection("127.0.0.1", broker.ports[1])
            writer.write(hello[: number % len(hello)])
            waiting.append(writer)
        context = ssl.create_default_context(cafile=str(authority.trusted))
        streams = await asyncio.open_connection("127.0.0.1", broker.ports[1], ssl=context, server_hostname="localhost")
        await is_served(broker, Client(*streams))
        assert len(broker.running.connections.open) == count + 1
        assert (resident_bytes() - before) / count < 400_000  # both ends are in this process
        broker.clock.advance(600_000)
        await broker.settle()
        assert not [one for one in broker.running.connections.open if one.listener == "SSL"]
        for writer in waiting:
            writer.close()


def hello_of(context: ssl.SSLContext) -> bytes:
    """Returns the first bytes of a client."""
    outgoing = ssl.MemoryBIO()
    client: Any = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


async def test_a_slow_handshake_is_completed(tmp_path: Path) -> None:
    """The bytes of the client come one by one."""
    authority = Authority(tmp_path / "authority")
    more = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0", **pem_configs(authority.issue("server"))}
    async with running(tmp_path / "data", overrides=more) as broker:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=str(authority.trusted))
        client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.ports[1])
        other = await broker.client()
        received = b""
        while not received:
            try:
                client.do_handshake()
                client.write(frame(VERSIONS, 3, 1))
                received = client.read(1 << 16)
            except ssl.SSLWantReadError:
                pass
            for byte in outgoing.read():
                writer.write(bytes([byte]))
                await is_served(broker, other)
            if not received:
                incoming.write(await reader.read(1 << 16))
        assert struct.unpack_from(">i", received, 4) == (1,)
        writer.close()
