"""Pipelined requests get the same responses as requests that are sent one by one.

Every API, in its newest version and with the request of its case in `test_apis.py`, is followed by every other on one
connection: once in one write, once one by one, on two brokers with equal state. Responses are equal byte for byte, also
after requests that wait: for a sync, for a conversion, for the check of a large batch, for the scan below the cached
batches, and in purgatory.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import struct
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.broker import broker_state
from ottla.broker.groups import coordinator
from ottla.protocol.messages.cluster.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.groups.join_group import JoinGroupRequest
from ottla.protocol.records import batch, legacy
from ottla.protocol.schema import spec
from ottla.storage.io import random_ids
from ottla_testing.broker import core_cases
from ottla_testing.broker.api_cases import CASES, World
from ottla_testing.broker.harness import Broker, Client, fetch, frame, produce, read_response, records, running
from ottla_testing.each import taken
from ottla_testing.patience import PATIENCE_S

WAIT_MS = 500
CLOCKED = {"Fetch", "JoinGroup"}
"""The APIs that wait for the clock, WAIT_MS at most."""
MANY = 2000  # records: enough for a conversion or a check in several steps
EVERY_API = {"ottla.client.telemetry": "true", "unstable.api.versions.enable": "true"}
DELAYED_CONFIGS = {"group.initial.rebalance.delay.ms": str(WAIT_MS), **EVERY_API}


class Sent(NamedTuple):
    """One request of a case, with the name that a failure prints."""

    name: str
    request: Any
    version: int

    def frame(self, correlation_id: int) -> bytes:
        return frame(self.request, self.version, correlation_id)


class Capturing(Client):
    """A client that keeps the requests that it sends."""

    captured: list[Sent]

    async def send(self, request: Any, version: int, client_id: str | None = "test") -> int:
        self.captured.append(Sent(type(request).__name__.removesuffix("Request"), request, version))
        return await super().send(request, version, client_id)


class _Counted:
    """Ids instead of random ones, equal in each broker that is started after `restart`."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._numbers = itertools.count(1)

    def __call__(self) -> uuid.UUID:
        return uuid.UUID(int=next(self._numbers) << 64 | 1 << 76)


@pytest.fixture
def ids(monkeypatch: pytest.MonkeyPatch) -> _Counted:
    counted = _Counted()
    monkeypatch.setattr(random_ids, "uuid4", lambda: counted().bytes)
    monkeypatch.setattr(coordinator, "uuid4", counted)
    monkeypatch.setattr(broker_state.random, "SystemRandom", lambda: random.Random(0))
    return counted


@contextlib.asynccontextmanager
async def world(folder: Path, ids: _Counted) -> AsyncIterator[tuple[Broker, Client]]:
    """A broker with the topics of the cases, and topics with slow appends."""
    ids.restart()
    async with running(folder, overrides=DELAYED_CONFIGS) as broker:
        await _restore(broker)
        await broker.topic("synced", 1, {"flush.messages": "1"})
        await broker.topic("old", 1)
        await broker.topic("written-anew", 1, {"compression.type": "lz4"})
        yield broker, await broker.client()


async def _restore(broker: Broker) -> bytes:
    """Creates topic t or its records again if a request has deleted them."""
    topic = broker.state.topics.get("t")
    topic_id = await broker.topic("t", 2) if topic is None else topic.id
    log = broker.log("t")
    if log.log_end_offset - log.log_start_offset < 3:
        log.append(records(b"a", b"b", b"c"), now_ms=broker.clock.now_ms())
    return topic_id


async def captured(folder: Path, ids: _Counted) -> list[Sent]:
    """The requests of all cases: the last one of each API, which is its case."""
    found = []
    for number, (request_class, case) in enumerate(CASES.items()):
        version = spec(request_class).versions.last
        ids.restart()
        async with running(folder / str(number) / "data", overrides=EVERY_API) as broker:
            topic_id = await _restore(broker)
            client = await Capturing.connect(broker.ports[0])
            client.captured = []
            with contextlib.closing(client):
                await case(World(broker, client, topic_id), version)
        found.append([sent for sent in client.captured if isinstance(sent.request, request_class)][-1])
    return found


def waiting() -> list[Sent]:
    """Requests whose response is delayed."""
    large = bytes(batch.build([batch.Record(n, 1_700_000_000_000, None, b"v" * 90) for n in range(MANY)], codec=1))
    old = legacy.build([batch.Record(n, 1_700_000_000_000, None, b"v") for n in range(MANY)], magic=1)
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    member = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer"}
    join = JoinGroupRequest(group_id="new", member_id="", protocols=[protocol], **member)
    return [
        Sent("Produce that waits for a sync", produce(records(b"s"), "synced"), 9),
        Sent("Produce that is converted", produce(old, "old"), 2),
        Sent("Produce that is rebuilt", produce(large, "written-anew"), 9),
        Sent("Fetch that waits", fetch(("t", 1, 0), max_wait_ms=WAIT_MS, min_bytes=1 << 20), 12),
        Sent("JoinGroup that waits", join, 3),
    ]


async def receive(broker: Broker, client: Client) -> bytes:
    """The next response; the clock moves while its request waits for that."""
    reading = asyncio.ensure_future(client.receive_bytes())
    async with asyncio.timeout(PATIENCE_S):
        while not reading.done():
            await asyncio.sleep(0)
            if any(connection.waiting in CLOCKED for connection in broker.running.connections.open):
                broker.clock.advance(WAIT_MS)
    return reading.result()


def normalised(sent: Sent, payload: bytes, broker: Broker, folder: Path) -> bytes:
    """A response without the parts that differ between brokers: port, folder, free space."""
    if isinstance(sent.request, DescribeLogDirsRequest):
        _, response = read_response(payload, DescribeLogDirsRequest, sent.version)
        for directory in response.results:
            directory.usable_bytes, directory.log_dir = 0, ""
        return repr(response).encode()
    port = broker.ports[0]
    for own in (struct.pack(">i", port), b"127.0.0.1" + struct.pack(">H", port), str(folder).encode()):
        payload = payload.replace(own, b"")
    return payload


def shown(pair: tuple[Sent, Sent], responses: list[bytes], expected: list[bytes]) -> str:
    lines = [f"{first.name} v{first.version}" for first in pair]
    return f"{' and then '.join(lines)}:\n  pipelined {responses}\n  one by one {expected}"


async def compared(pairs: list[tuple[Sent, Sent]], folder: Path, ids: _Counted) -> list[str]:
    """Sends all pairs, pipelined to one broker and one by one to another; returns the differences."""
    outcomes: list[list[list[bytes]]] = []
    for pipelined in (True, False):
        got = []
        own = folder / ("pipelined" if pipelined else "one-by-one")
        async with world(own, ids) as (broker, client):
            for pair in pairs:
                await _restore(broker)
                frames = [sent.frame(number) for number, sent in enumerate(pair)]
                responses = []
                if pipelined:
                    await client.send_bytes(b"".join(frames))
                for data in frames:
                    if not pipelined:
                        await client.send_bytes(data)
                    responses.append(await receive(broker, client))
                assert [struct.unpack_from(">i", payload)[0] for payload in responses] == [0, 1]
                got.append(
                    [normalised(sent, payload, broker, own) for sent, payload in zip(pair, responses, strict=True)]
                )
        outcomes.append(got)
    compared = zip(pairs, *outcomes, strict=True)
    return [shown(pair, responses, expected) for pair, responses, expected in compared if responses != expected]


async def test_every_pair_of_pipelined_requests_has_the_responses_of_single_ones(
    tmp_path: Path, ids: _Counted, scaled: Callable[[int], int], stride: int
) -> None:
    """Pairs whose first request waits, all of them except in a small run; a sample of the others, which has all of them
    from a scale of 6 on.
    """
    letters = await captured(tmp_path / "cases", ids)
    assert len(letters) == len(core_cases.ADVERTISED)
    pairs = list(itertools.product(letters, letters))
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chosen = random.Random(seed).sample(pairs, min(len(pairs), scaled(600)))
    chosen += taken([*itertools.product(waiting(), [*letters, *waiting()])], stride)
    differences = await compared(chosen, tmp_path / "pairs", ids)
    assert not differences, "\n".join(differences[:5])
