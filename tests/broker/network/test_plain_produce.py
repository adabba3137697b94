"""The short way of plain Produce requests beside the long way: equal responses, files and counters.

Two brokers get the same requests. One of them takes the long way with all.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.config.definitions import facts
from ottla.broker.faults.actions import WHEN, disconnect, error, truncate
from ottla.broker.faults.rule_set import Faults
from ottla.broker.faults.rules import Rule
from ottla.broker.metrics.counters import RequestMetrics, TopicCounters
from ottla.broker.network import plain_produce
from ottla.broker.network.connections import ClientConnection, Connections
from ottla.broker.network.plain_produce import PlainProduce
from ottla.broker.network.plain_turn import PlainTurn
from ottla.broker.releases.profiles import PROFILE_NAMES, RELEASES, profile
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api_key import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.limits import INT32_MAX
from ottla.protocol.messages.records.delete_records import DeleteRecordsRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.records.produce import ProduceRequest
from ottla.protocol.messages.security.create_acls import CreateAclsRequest
from ottla.protocol.records import batch
from ottla_testing.broker.delegating import SECURED, logged_in
from ottla_testing.broker.harness import (
    Broker,
    Client,
    Closed,
    fetch,
    frame,
    only,
    produce,
    read_response,
    records,
    running,
    values,
)
from ottla_testing.broker.permissions import AUTHORIZED, permission
from ottla_testing.protocol.batches import batch_of
from ottla_testing.storage.simulated_files import SimulatedFiles

TOPICS = ("t", "longer.name", "compacted")
LOG = "00000000000000000000.log"
NOW_MS = 1_700_000_000_000
BURSTS = 60  # of 12 requests on average: in `make soak` 11 million requests
PARTS = 8 if float(os.environ.get("OTTLA_TEST_SCALE", "1")) > 1 else 1
"""Tests among which the work is divided: in one, that of `make soak` would take two hours."""
NEWEST = {name: versions.last for name in PROFILE_NAMES if (versions := profile(name).apis[ApiKey.PRODUCE]).last >= 3}
"""The last version of Produce, by release; those before 0.11 have no batches of format v2."""
KEPT = ("ottla.", "listener.name.")
FOLDERS = ("t-", "longer.name-", "compacted-")
ENDINGS = (".log", ".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint")
SMALL = {"log.segment.bytes": "1500", "log.index.interval.bytes": "100"}
SMALL_TOPIC = {"internal.segment.bytes": "1500", "index.interval.bytes": "100"}  # from 4.0 on
CONFIGS: list[dict[str, str]] = [
    {},
    {"log.roll.ms": "50"},
    {"log.message.timestamp.type": "LogAppendTime"},
    {"compression.type": "gzip"},
    {"compression.type": "uncompressed", "log.message.timestamp.before.max.ms": "100"},
    {"message.max.bytes": "300", "log.message.timestamp.after.max.ms": "100"},
    {"log.flush.interval.messages": "7"},
    {"min.insync.replicas": "2"},
    {"ottla.validate.records": "false"},
    AUTHORIZED,
    SECURED,
    SECURED | AUTHORIZED,
]
"""Configs of which some send requests the long way."""
AUTHORIZERS = {"2.4": "kafka.security.auth.SimpleAclAuthorizer", "3.3": "kafka.security.authorizer.AclAuthorizer"}
"""The classes of authorizers before a release."""


def settings(draw: random.Random) -> tuple[str, dict[str, str]]:
    """Returns a release and configs that it has."""
    release, chosen = draw.choice((*NEWEST, *["ottla"] * 5)), draw.choice(CONFIGS)
    configs = (SMALL if draw.random() < 0.4 and release in RELEASES[: RELEASES.index("4.0.0")] else {}) | chosen
    if AUTHORIZED.items() <= configs.items() and release in RELEASES:
        for before, authorizer in reversed(AUTHORIZERS.items()):
            if RELEASES.index(release) < RELEASES.index(before):
                configs = configs | {"authorizer.class.name": authorizer}
    if NEWEST[release] < 5:  # without SASL in frames, which clients log in by
        configs = {name: text for name, text in configs.items() if name not in SECURED}
    known = facts("broker", release)
    return release, {name: text for name, text in configs.items() if name in known or name.startswith(KEPT)}


class LongWay(Connections):
    """Connections whose requests all take the long way."""

    @property
    def allows_short_way(self) -> bool:
        return False


class AlwaysWaiting(PlainTurn):
    """A turn in which each connection waits for others, whether there are any or not."""

    def waits(self) -> bool:
        return True


def always_waits(connections: Connections) -> None:
    connections.turn.__class__ = AlwaysWaiting


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[bool]]:
    """Counts the requests by whether they took the short way."""
    counted: Counter[bool] = Counter()
    take = PlainProduce.take

    def counting(*arguments: Any, **more: Any) -> bool:
        found = take(*arguments, **more)
        counted[found] += 1
        return found

    monkeypatch.setattr(PlainProduce, "take", counting)
    yield counted


class Pair:
    """One client of both brokers."""

    def __init__(self, brokers: tuple[Broker, Broker], ids: dict[bytes, str], *, has_sasl: bool) -> None:
        self.brokers, self._ids, self._has_sasl = brokers, ids, has_sasl
        self.clients: list[Client] = []
        self._numbers = 0

    async def connect(self) -> None:
        self.clients = [await self._client(broker) for broker in self.brokers]

    async def _client(self, broker: Broker) -> Client:
        return await logged_in(broker) if self._has_sasl else await broker.client()

    async def call(self, sent: list[tuple[Callable[[Broker], Any], int]]) -> list[bytes]:
        """Sends all requests at once to both brokers. Returns the responses, which must be equal."""
        numbers = range(self._numbers, self._numbers + len(sent))
        self._numbers += len(sent)
        found: list[list[bytes]] = []
        for index, broker in enumerate(self.brokers):
            client = self.clients[index]
            requests = [(make(broker), version) for make, version in sent]
            await client.send_bytes(
                b"".join(frame(one, version, n) for (one, version), n in zip(requests, numbers, strict=True))
            )
            responses: list[bytes] = []
            try:
                for _ in requests:
                    responses.append(self._named(await client.receive_bytes()))
            except Closed:  # as for a damaged length
                self.clients[index] = await self._client(broker)
            found.append(responses)
        assert found[0] == found[1]
        return found[0]

    def _named(self, response: bytes) -> bytes:
        for topic_id, name in self._ids.items():
            response = response.replace(topic_id, name.ljust(16).encode())
        return response


class Producers:
    """Draws batches of idempotent producers, in sequence mostly, and others."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._next: dict[tuple[int, str, int], tuple[int, int]] = {}
        self._last: list[bytes] = []

    def batch(self, topic: str, partition: int) -> bytes:
        draw = self._draw
        if self._last and draw.random() < 0.08:
            return draw.choice(self._last)
        count = draw.choice((1, 1, 1, 2, 5, 40))
        fields: dict[str, Any] = {}
        producer_id = draw.choice((-1, -1, 11, 12))
        if producer_id >= 0:
            key = producer_id, topic, partition
            epoch, sequence = self._next.get(key, (0, 0))
            if draw.random() < 0.05:
                epoch, sequence = epoch + 1, 0
            if draw.random() < 0.08:
                sequence += draw.choice((-2, 1, 3)) if sequence > 1 else 1
            self._next[key] = epoch, sequence + count
            fields = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        start = NOW_MS + draw.choice((0, 0, 0, 1, 40, -150, 150))
        entries = [
            batch.Record(
                n,
                start + draw.choice((0, 0, n, 3)),
                draw.choice((None, b"k", b"key" * 30)) if topic != "compacted" or draw.random() < 0.1 else b"key",
                draw.choice((None, b"", b"v" * draw.choice((1, 60, 200)))),
                draw.choice(((), (), (batch.Header("h", b"x"),))),
            )
            for n in range(count)
        ]
        found = bytearray(batch_of(entries, codec=draw.choice((0, 0, 0, 0, 1)), **fields))
        if draw.random() < 0.06:
            at = draw.randrange(len(found))
            found[at] ^= 1 << draw.randrange(8)
        self._last = [*self._last[-20:], bytes(found)]
        return bytes(found)


def drawn(draw: random.Random, producers: Producers, newest: int) -> tuple[Callable[[Broker], Any], int]:
    """One request and its version."""
    topic, partition = draw.choice(TOPICS), draw.choice((0, 0, 0, 1))
    chance = draw.random()
    if chance < 0.03:
        wanted = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(partition_index=partition, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[wanted])]
        )
        return lambda broker: request, min(newest, 2)
    if chance < 0.035:  # few: each waits for the disk
        to = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition(partition_index=partition, offset=-1)
        delete = DeleteRecordsRequest(
            topics=[DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[to])], timeout_ms=1000
        )
        return lambda broker: delete, 0
    if chance < 0.065:
        acls = permission(draw, TOPICS)
        return lambda broker: acls, min(newest // 4, 1)
    if chance < 0.085:
        return lambda broker: fetch((topic, partition, 0), max_wait_ms=0), 4 if newest < 8 else 11
    data = producers.batch(topic, partition)
    version = min(newest, draw.choice((7, 7, 7, newest, newest, draw.randint(3, newest))))
    acks = draw.choice((-1, -1, 1))
    if draw.random() < 0.02:
        partition = draw.choice((-1, 2, 5, INT32_MAX))

    def make(broker: Broker) -> Any:
        found = broker.state.topics.get(topic)
        assert found is not None
        if version >= 13:
            return produce(data, "", partition, acks=acks, topic_id=found.id)
        return produce(data, topic, partition, acks=acks)

    return make, version


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.parent.name.startswith(FOLDERS) and path.name.endswith(ENDINGS)
    }


def counters(broker: Broker) -> Any:
    metrics = broker.running.connections.metrics
    assert metrics is not None
    counted = metrics.apis[ApiKey.PRODUCE]
    names = TopicCounters.__annotations__
    topics = {topic: [getattr(found, name) for name in names] for topic, found in metrics.topics.by_name.items()}
    return counted.versions, counted.request_bytes, counted.response_bytes, counted.errors, topics


class Meddler:
    """Lets something see or disturb each request of one of the brokers or of both, for a time."""

    ACTIONS = (error("NOT_ENOUGH_REPLICAS"), error("KAFKA_STORAGE_ERROR"), truncate(9), *map(disconnect, WHEN))

    def __init__(self, draw: random.Random, brokers: tuple[Broker, Broker]) -> None:
        self._draw, self._brokers = draw, brokers
        self._undo: list[Callable[[], Any]] = []

    def step(self) -> None:
        """Sometimes begins something, or ends what it has begun."""
        if self._draw.random() > (0.3 if self._undo else 0.06):
            return
        if self._undo:
            for undo in self._undo:
                undo()
            self._undo = []
        elif self._draw.random() < 0.3:
            self._listen(self._draw.choice(self._brokers).running.connections)
        else:
            api, times = (
                self._draw.choice(("Produce", "Produce", ("Produce", "ListOffsets"))),
                self._draw.choice((None, 1, 5)),
            )
            rule = Rule(action=self._draw.choice(self.ACTIONS), api=api, times=times)
            for broker in self._brokers:
                faults = broker.state.faults
                assert faults is not None
                self._undo.append(partial(faults.remove, faults.add(rule)))

    def _listen(self, connections: Connections) -> None:
        class Sink:
            def __getattr__(self, name: str) -> Callable[..., None]:
                return lambda *arguments, **more: None

        sink: Any = Sink()
        connections.listen(sink)
        self._undo.append(partial(connections.unlisten, sink))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
async def test_both_ways_give_the_same(
    part: int, tmp_path: Path, taken: Counter[bool], scaled: Callable[[int], int]
) -> None:
    """Random requests, in bursts of up to 30 on one connection, in all releases, under settings and faults that send
    some of them the long way.
    """
    seed = random.randrange(1 << 32)
    for turn in range(part, max(PARTS, scaled(40)), PARTS):
        draw = random.Random(f"{seed}-{turn}")
        release, configs = settings(draw) if turn else ("ottla", {})
        folders = tmp_path / f"short-{turn}", tmp_path / f"long-{turn}"
        async with (
            running(folders[0], overrides=configs, release=release, faults=Faults()) as short,
            running(folders[1], overrides=configs, release=release, faults=Faults()) as long,
        ):
            long.running.connections.__class__ = LongWay
            if draw.random() < 0.5:
                always_waits(short.running.connections)
            brokers, ids = (short, long), {}
            for broker in brokers:
                for name in TOPICS:
                    more = {"cleanup.policy": "compact"} if name == "compacted" else {}
                    if turn % 2 and "internal.segment.bytes" in facts("topic", release):
                        more |= SMALL_TOPIC
                    ids[await broker.topic(name, 2, more)] = name
                broker.state.comparing_producers.note(11, True)
                if turn % 3:
                    broker.running.connections.observe(RequestMetrics())
            producers = Producers(draw)
            pairs = [Pair(brokers, ids, has_sasl=SECURED.items() <= configs.items()) for _ in range(2)]
            for pair in pairs:
                await pair.connect()
            meddler = Meddler(draw, brokers)
            for _ in range(max(12, scaled(BURSTS))):
                meddler.step()
                await draw.choice(pairs).call(
                    [drawn(draw, producers, NEWEST[release]) for _ in range(draw.choice((1, 5, 30)))]
                )
            if turn % 3:
                assert counters(short) == counters(long)
        assert files(folders[0]) == files(folders[1]), f"seed {seed}, turn {turn}"
        for folder in folders:
            shutil.rmtree(folder)
    print(f"seed {seed}: {sum(taken.values()):,} Produce requests, of which {taken[True]:,} took the short way")
    assert taken[True]


@pytest.mark.parametrize("order", [1, -1], ids=["remembered partition", "other partition"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
async def test_failed_write_is_the_error_of_each_request(
    tmp_path: Path, taken: Counter[bool], number: int, order: int
) -> None:
    """The responses are those of the long way; nothing is stored, and the producer starts again with the first one."""
    outcomes: list[Any] = []
    for kind in (Connections, LongWay):
        disk = SimulatedFiles()
        async with running(tmp_path / kind.__name__, files=disk) as broker:
            broker.running.connections.__class__ = kind
            await broker.topic("t", 2)
            client = await broker.client()
            batches = [records(b"%d" % n, producer_id=3, producer_epoch=0, base_sequence=n) for n in range(6)]
            first = [produce(batches[0]), produce(records(b"other"), partition=1)]
            sent = [produce(batches[1]), produce(records(b"more"), partition=1), *map(produce, batches[2:4])]
            for one in first[::order]:
                assert only(await client.call(one, 11)).error_code == 0
            disk.fail_with = number
            disk.failing = lambda operation, path: operation == "write" and path.endswith("t-0/" + LOG)
            await client.send_bytes(b"".join(frame(one, 11, n) for n, one in enumerate(sent)))
            found: list[tuple[int, Any]] = [
                read_response(await client.receive_bytes(), ProduceRequest, 11) for _ in sent
            ]
            disk.failing = lambda operation, path: False
            if number == errno.ENOSPC:
                again = [only(await client.call(produce(one), 11)).error_code for one in batches[2:0:-1]]
                assert broker.log("t").log_end_offset == 2
            else:
                again = []
            partitions = [broker.state.topics.partition("t", index) for index in range(2)]
            outcomes.append((found, again, [bool(one.offline) for one in partitions]))
    assert outcomes[0] == outcomes[1]
    assert taken[True] >= 4


async def test_reader_at_the_end_is_woken(tmp_path: Path, taken: Counter[bool]) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client, reader = await broker.client(), await broker.client()
        await client.call(produce(records(b"0")), 9)
        await reader.send(fetch(("t", 0, 1), max_wait_ms=60_000), 11)
        await broker.settle()
        await client.call(produce(records(b"1")), 9)
        assert taken[True] == 1
        _, response = await reader.receive()
        assert values(only(response).records) == [b"1"]


async def test_more_topics_than_are_remembered(
    tmp_path: Path, taken: Counter[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were first stay, instead of each in turn being remembered and forgotten; at some time others come."""
    monkeypatch.setattr(plain_produce, "KNOWN_MAX", 4)
    monkeypatch.setattr(plain_produce, "FORGOTTEN_AFTER", 12)
    async with running(tmp_path) as broker:
        for number in range(8):
            await broker.topic(f"t{number}")
        client = await broker.client()

        async def rounds(count: int, topics: range) -> int:
            before = taken[True]
            for _ in range(count):
                for number in topics:
                    assert not only(await client.call(produce(records(b"x"), f"t{number}"), 9)).error_code
            return taken[True] - before

        assert await rounds(3, range(8)) == 2 * 4
        assert await rounds(2, range(4, 8)) == 1 + 4, "the last request of before has made room"
        (connection,) = broker.running.connections.open
        assert connection._plain is not None and len(connection._plain._known) == 4


@pytest.mark.parametrize("version", [3, 9, 13])
async def test_partitions_of_a_topic_are_remembered_together(
    tmp_path: Path, taken: Counter[bool], version: int
) -> None:
    """Each takes the short way once it has a batch, and unknown ones are refused."""
    async with running(tmp_path) as broker:
        topic_id = await broker.topic("t", 100)
        named: dict[str, Any] = {"topic": "", "topic_id": topic_id} if version >= 13 else {"topic": "t"}
        client = await broker.client()

        async def call(index: int) -> tuple[int, int, int]:
            found = only(await client.call(produce(records(b"x"), partition=index, **named), version))
            return found.index, found.error_code, found.base_offset

        assert await call(7) == (7, 0, 0)
        for offset in range(2):
            for index in range(100):
                assert await call(index) == (index, 0, offset + (index == 7))
        assert taken[True] == 1 + 100
        for index in (-1, 100, INT32_MAX):
            assert await call(index) == (index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert taken[True] == 1 + 100
        (connection,) = broker.running.connections.open
        assert connection._plain is not None and len(connection._plain._known) == 1


async def test_deleted_topic_is_unknown(tmp_path: Path, taken: Counter[bool]) -> None:
    """Its name may belong to a new topic, which a remembered request must not miss."""
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        for _ in range(3):
            assert only(await client.call(produce(records(b"0")), 9)).error_code == 0
        topic = broker.state.topics.get("t")
        assert topic is not None
        broker.state.topics.delete(topic, broker.clock.now_ms())
        assert only(await client.call(produce(records(b"0")), 9)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await broker.topic("t")
        for offset in range(2):
            assert only(await client.call(produce(records(b"0")), 9)).base_offset == offset
        assert taken[True] == 3


@pytest.mark.parametrize("rest", [b"\x80\x00", b"\x00"])
async def test_length_in_a_long_form_takes_the_long_way(tmp_path: Path, taken: Counter[bool], rest: bytes) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        data = bytes(records(b"0" * 29))
        whole = bytearray(frame(produce(data), 9, 1))
        at = whole.index(data) - 1
        assert whole[at] < 128
        whole[at : at + 1] = bytes([whole[at] | 128]) + rest
        whole[:4] = struct.pack(">i", len(whole) - 4)
        for offset in range(3):
            await client.send_bytes(bytes(whole))
            _, response = read_response(await client.receive_bytes(), ProduceRequest, 9)
            assert only(response).base_offset == offset
        assert not taken[True]


@pytest.mark.parametrize("version", [7, 9])
async def test_cut_request_closes_the_connection_alone(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins like a remembered one, and ends anywhere after that."""
    unexpected: list[Exception] = []
    broke = ClientConnection.broke

    def noting(connection: ClientConnection, error: Exception) -> None:
        unexpected.append(error)
        broke(connection, error)

    monkeypatch.setattr(ClientConnection, "broke", noting)
    async with running(tmp_path) as broker:
        await broker.topic("t")
        whole = frame(produce(records(b"value")), version, 1)
        for size in range(len(whole) - 90, len(whole)):
            client = await broker.client()
            await client.send_bytes(whole)
            await client.receive_bytes()
            await client.send_bytes(struct.pack(">i", size - 4) + whole[4:size])
            with pytest.raises(Closed):
                await client.receive_bytes()
    assert not unexpected


async def test_first_batch_without_a_timestamp_takes_the_long_way(tmp_path: Path, taken: Counter[bool]) -> None:
    """Its segment then rolls by the time of its creation."""
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        for timestamp in (-1, 5, 5):
            assert only(await client.call(produce(records(b"0", timestamp=timestamp)), 9)).error_code == 0
        assert not taken[True]


async def test_session_that_is_over_takes_the_long_way(tmp_path: Path, taken: Counter[bool]) -> None:
    """Which closes the connection (KIP-368)."""
    async with running(tmp_path, overrides=SECURED | {"connections.max.reauth.ms": "60000"}) as broker:
        await broker.topic("t")
        client = await logged_in(broker)
        for _ in range(3):
            assert only(await client.call(produce(records(b"0")), 9)).error_code == 0
        assert taken[True] == 2
        broker.clock.advance(60_001)
        await client.send(produce(records(b"0")), 9)
        assert await client.is_closed()
        assert broker.log("t").log_end_offset == 3


async def test_permission_that_was_taken_away_refuses_the_next_request(tmp_path: Path, taken: Counter[bool]) -> None:
    """Also in the read event that takes it away."""
    async with running(tmp_path, overrides=AUTHORIZED) as broker:
        await broker.topic("t")
        client = await broker.client()
        made = CreateAclsRequest.AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name="t",
            resource_pattern_type=3,
            principal="User:ANONYMOUS",
            host="*",
            operation=AclOperation.WRITE,
            permission_type=2,
        )
        one = produce(records(b"0"))
        await client.call(one, 9)
        sent: list[tuple[Any, int]] = [(one, 9), (CreateAclsRequest(creations=[made]), 1), (one, 9)]
        await client.send_bytes(b"".join(frame(*request, 1) for request in sent))
        found = [read_response(await client.receive_bytes(), type(request), version)[1] for request, version in sent]
        assert only(found[0]).error_code == 0
        assert only(found[2]).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert taken[True] == 1
        assert broker.log("t").log_end_offset == 2
