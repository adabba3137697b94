"""A recording played to other brokers: what is mapped, the order, and the reported differences."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.broker.recording.decoding import request_value, response_value
from ottla.broker.recording.exchange import Ending, Exchange
from ottla.protocol.api_key import ApiKey
from ottla.protocol.compiler import build
from ottla.protocol.messages.groups.join_group import JoinGroupRequest
from ottla.protocol.messages.groups.sync_group import SyncGroupRequest
from ottla.protocol.messages.records.list_offsets import ListOffsetsRequest
from ottla.protocol.messages.topics.metadata import MetadataRequest
from ottla.protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.protocol.records import batch
from ottla.tools.replay.comparison import Why
from ottla.tools.replay.player import node_map
from ottla.tools.replay.subjects import changes
from ottla.tools.replay.target import Unreachable
from ottla_testing.broker import harness
from ottla_testing.broker.frame_recordings import in_front_of, played, recorded, unexplained
from ottla_testing.broker.harness import Broker, fetch, only, produce, records
from ottla_testing.patience import PATIENCE_S

PRODUCE, FETCH, METADATA, JOIN_GROUP, SYNC_GROUP = 0, 1, 3, 11, 14
LATEST = -1
LIST_OFFSETS_TOPIC = ListOffsetsRequest.ListOffsetsTopic
INIT = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)


def numbered(producer: Any, sequence: int, *values: bytes) -> bytes:
    """Returns a batch of an idempotent producer."""
    ids = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    return bytes(records(*values, base_sequence=sequence, **ids))


async def writes_and_reads(broker: Broker) -> None:
    """Runs an idempotent producer by topic id, and a consumer with a fetch session."""
    client = await broker.client()
    result = await client.call(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 12)
    topic_id = bytes(result.topics[0].topic_id)
    producer = await client.call(INIT, 4)
    for sequence in range(3):
        await client.call(produce(numbered(producer, sequence, b"%d" % sequence), topic="", topic_id=topic_id), 13)
    request = LIST_OFFSETS_TOPIC.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    await client.call(ListOffsetsRequest(replica_id=-1, topics=[LIST_OFFSETS_TOPIC(name="t", partitions=[request])]), 5)
    reader = await broker.client()
    first = await reader.call(fetch((topic_id, 0, 0), session_epoch=0), 13)
    assert first.session_id
    await client.call(produce(numbered(producer, 3, b"last"), topic="", topic_id=topic_id), 13)
    session = {"session_id": first.session_id, "session_epoch": 1}
    second = await reader.call(fetch((topic_id, 0, 3), max_wait_ms=100, **session), 13)
    assert harness.values(only(second).records) == [b"last"]


async def with_other_records(broker: Broker) -> None:
    """Makes ids, epochs and offsets differ from those of a new broker."""
    client = await broker.client()
    await broker.topic("before")
    await broker.topic("t", 2)
    producers = [await client.call(INIT, 4) for _ in range(5)]
    await client.call(produce(numbered(producers[-1], 0, b"a", b"b"), "t"), 9)


async def test_ids_epochs_sessions_and_offsets_are_mapped(tmp_path: Path) -> None:
    exchanges = await recorded(tmp_path / "one", writes_and_reads)
    async with harness.running(tmp_path / "two") as broker:
        await with_other_records(broker)
        done, found = await played(exchanges, broker.ports[0])
        log = broker.log("t")
        assert log.log_end_offset == 6
    assert not found.counts, found.findings
    assert found.compared == len(exchanges) and not found.not_sent
    assert done.notes() == ["offsets of t-0 are 2 higher: the partition had other records before"]
    of_producers = [step for step in done.steps if step.exchange.api_key == PRODUCE]
    for step in of_producers:
        assert step.played is not None and step.played.request != step.exchange.request
        sent, was = (only_batch(one) for one in (step.played, step.exchange))
        header = batch.read_header(sent)
        assert batch.crc_matches(sent, 0, header) and header.producer_id != batch.read_header(was).producer_id


def only_batch(exchange: Exchange) -> bytes:
    request: Any = request_value(exchange)
    return bytes(request.topic_data[0].partition_data[0].records)


async def test_without_fetch_sessions_all_partitions_are_requested(tmp_path: Path) -> None:
    exchanges = await recorded(tmp_path / "one", writes_and_reads)
    overrides = {"max.incremental.fetch.session.cache.slots": "0"}
    async with harness.running(tmp_path / "two", overrides=overrides) as broker:
        await broker.topic("t", 2)
        done, found = await played(exchanges, broker.ports[0])
    assert not found.counts, found.findings
    fetches: list[Any] = [
        request_value(step.played) for step in done.steps if step.exchange.api_key == FETCH and step.played
    ]
    assert [one.session_id for one in fetches] == [0, 0] and fetches[1].session_epoch == -1


@pytest.mark.parametrize(
    ("configs", "path", "values"),
    [
        ({"compression.type": "gzip"}, ".records[0].codec", (0, 1)),
        ({"message.timestamp.type": "LogAppendTime"}, ".records[0].timestamp_type", (None, "LogAppendTime")),
    ],
)
async def test_records_are_compared_decoded(
    tmp_path: Path, configs: dict[str, str], path: str, values: tuple[Any, Any]
) -> None:
    exchanges = await recorded(tmp_path / "one", writes_and_reads)
    async with harness.running(tmp_path / "two") as broker:
        await broker.topic("t", 2, configs)
        _, found = await played(exchanges, broker.ports[0])
    result = [(one.api, one.path, one.left, one.right) for one in found.findings]
    assert ("Fetch", f".responses[t].partitions[0]{path}", *values) in result
    assert unexplained(found), "the first of all that follow"


async def test_records_read_by_one_side_only_are_reported(tmp_path: Path) -> None:
    exchanges = await recorded(tmp_path / "one", writes_and_reads)
    async with harness.running(tmp_path / "two") as broker:
        await broker.topic("t", 2)
        fewer = [one for one in exchanges if one.api_key != FETCH or one is exchanges[-1]]
        _, found = await played([*fewer[:-2], fewer[-1]], broker.ports[0])  # the last Produce is missing
    # The session is unknown, and there is nothing to read.
    assert {one[:2] for one in unexplained(found)} == {("Fetch", ".error_code")}


def assigned(exchange: Exchange) -> bytes:
    response: Any = response_value(exchange)
    return bytes(response.assignment)


def join(member_id: str, metadata: bytes) -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=60000,
        rebalance_timeout_ms=10000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )


async def two_members(broker: Broker) -> None:
    """Two members: both get their ids first; the first to join leads and assigns."""
    clients = [await broker.client(), await broker.client()]
    named = [await client.call(join("", b"%d" % n), 7) for n, client in enumerate(clients)]
    for client, result, n in zip(clients, named, (0, 1), strict=True):
        await client.send(join(result.member_id, b"%d" % n), 7)
        await asyncio.sleep(0.02)  # so that the first one is certain
    clock = asyncio.create_task(moving(broker))  # past the initial rebalance delay
    joined = [(await client.receive())[1] for client in clients]
    clock.cancel()
    assert joined[0].leader == joined[0].member_id
    kind = SyncGroupRequest.SyncGroupRequestAssignment
    assignments = [kind(member_id=one.member_id, assignment=one.member_id[-4:].encode()) for one in joined]
    for client, result in list(zip(clients, joined, strict=True))[::-1]:
        is_leader = result.member_id == result.leader
        await client.send(
            SyncGroupRequest(
                group_id="g",
                generation_id=result.generation_id,
                member_id=result.member_id,
                assignments=assignments if is_leader else [],
            ),
            3,
        )
    for client in clients:
        await client.receive()


async def test_members_and_their_leader_are_mapped(tmp_path: Path) -> None:
    exchanges = await recorded(tmp_path / "one", two_members)
    async with harness.running(tmp_path / "two") as broker:
        clock = asyncio.create_task(moving(broker))
        done, found = await played(exchanges, broker.ports[0])
        clock.cancel()
    assert not found.counts, found.findings
    assert not done.notes() and found.compared == len(exchanges)


async def test_another_leader_sends_the_recorded_assignment(tmp_path: Path) -> None:
    exchanges = await recorded(tmp_path / "one", two_members)
    joins = [one for one in exchanges if one.api_key == JOIN_GROUP][2:]
    joins[0].begun_ns, joins[1].begun_ns = joins[1].begun_ns, joins[0].begun_ns
    async with harness.running(tmp_path / "two") as broker:
        clock = asyncio.create_task(moving(broker))
        done, found = await played(exchanges, broker.ports[0])
        clock.cancel()
    assert done.notes() == ["group g had another leader"]
    assignments = [
        assigned(step.played)
        for step in sorted(done.steps, key=lambda step: step.exchange.number)
        if step.exchange.api_key == SYNC_GROUP and step.played
    ]
    recorded_ones = [assigned(one) for one in exchanges if one.api_key == SYNC_GROUP]
    assert assignments == recorded_ones and all(assignments)
    assert {one[0] for one in unexplained(found)} <= {"JoinGroup"}, "only JoinGroup lists the members"


async def moving(broker: Broker) -> None:
    """Advances the clock, for requests that wait for it."""
    while True:
        await asyncio.sleep(0.05)
        broker.clock.advance(1000)


async def one_after_the_other(broker: Broker) -> None:
    """Two connections: one writes, and the other reads after the response; a third request waits meanwhile."""
    one, other, waiting = [await broker.client() for _ in range(3)]
    await waiting.send(fetch(("t", 1, 0), max_wait_ms=5000), 5)
    await asyncio.sleep(0.02)
    for number in range(5):
        await one.call(produce(records(b"%d" % number), "t"), 7)
        read = await other.call(fetch(("t", 0, number)), 5)
        assert len(harness.values(only(read).records)) == 1
    await one.call(produce(records(b"awaited"), "t", 1), 7)
    await waiting.receive()


async def test_order_of_responses_before_requests_is_kept(tmp_path: Path) -> None:
    """Also if the target delays the response to a Produce."""
    exchanges = await recorded(tmp_path / "one", one_after_the_other)

    async def slow(api_key: int, response: bytes) -> bytes:
        if api_key == PRODUCE:
            await asyncio.sleep(0.02)
        return response

    async with harness.running(tmp_path / "two") as broker, in_front_of(broker.ports[0], slow) as port:
        await broker.topic("t", 2)
        _, found = await played(exchanges, port)
    assert not found.counts, found.findings
    assert found.compared == len(exchanges)


async def test_millisecond_times_are_precise_enough(tmp_path: Path) -> None:
    """A recording with times in whole milliseconds, like old JSON lines."""
    exchanges = await recorded(tmp_path / "one", one_after_the_other)
    for one in exchanges:
        one.begun_ns -= one.begun_ns % 1_000_000
    async with harness.running(tmp_path / "two") as broker:
        await broker.topic("t", 2)
        _, found = await played(exchanges, broker.ports[0])
    assert not found.counts, found.findings


async def test_missing_responses_are_reported_and_time_out(tmp_path: Path) -> None:
    exchanges = await recorded(tmp_path / "one", one_after_the_other)

    async def silent(api_key: int, response: bytes) -> bytes:
        if api_key == FETCH:
            await asyncio.sleep(3600)
        return response

    async with harness.running(tmp_path / "two") as broker, in_front_of(broker.ports[0], silent) as port:
        await broker.topic("t", 2)
        async with asyncio.timeout(PATIENCE_S):
            _, found = await played(exchanges, port, patience_s=0.1)
    assert {one[0] for one in unexplained(found)} == {"Fetch"}
    assert any("no response within 0.1 s" in str(one[3]) for one in unexplained(found))


async def test_closed_connections_are_reported(tmp_path: Path) -> None:
    """A version that a release advertises and does not serve: the own profile serves it."""

    async def use(broker: Broker) -> None:
        client = await broker.client()
        await client.send(produce(None), 2)
        assert await client.is_closed()
        again = await broker.client()
        await again.call(harness.ping(), 0)

    exchanges = await recorded(tmp_path / "one", use, release="4.3")
    assert exchanges[0].ending is Ending.CLOSED
    for release, expected in (("4.3", "closed"), ("ottla", "responded")):
        async with harness.running(tmp_path / release, release=release) as broker:
            await broker.topic("t")
            done, found = await played(exchanges, broker.ports[0])
        assert done.steps[0].played is not None and done.steps[0].played.ending.value == expected
        assert bool(unexplained(found)) == (expected == "responded")
    assert any(one[2].startswith("closed: Produce v2 is not served") for one in unexplained(found))


async def test_malformed_response_of_the_target_is_reported(tmp_path: Path) -> None:
    exchanges = await recorded(tmp_path / "one", writes_and_reads)
    for kind in ("other id", "cut", "bits", "gone"):
        random = Random(kind)

        async def nonsense(api_key: int, response: bytes, kind: str = kind, random: Random = random) -> bytes | None:
            if api_key not in (PRODUCE, FETCH):
                return response
            if kind == "bits":
                changed = bytearray(response)
                changed[random.randrange(4, len(changed))] ^= 1 << random.randrange(8)
                return bytes(changed)
            return {"other id": b"\0" * 4 + response[4:], "cut": response[:-3], "gone": None}[kind]

        async with harness.running(tmp_path / kind) as broker, in_front_of(broker.ports[0], nonsense) as port:
            await broker.topic("t", 2)
            _, found = await played(exchanges, port, patience_s=0.3)
        assert unexplained(found), kind


async def test_refused_connection_raises_connection_lost() -> None:
    with pytest.raises(Unreachable, match="cannot connect to"):
        await played([], 1)


async def test_hostile_recordings_are_played_completely(tmp_path: Path, scaled: Any) -> None:
    """Any bytes as requests and responses: nothing is raised, and nothing hangs."""
    exchanges = await recorded(tmp_path / "one", writes_and_reads)
    exchanges += await recorded(tmp_path / "more", two_members)
    async with harness.running(tmp_path / "two") as broker:
        await broker.topic("t", 2)
        for seed in range(scaled(5)):
            random = Random(seed)
            hostile = [mutated(one, random) for one in exchanges if random.random() < 0.9]
            async with asyncio.timeout(PATIENCE_S):
                _, found = await played(hostile, broker.ports[0], patience_s=0.05, translate=bool(seed & 1))
            assert found.exchanges == len(hostile), f"seed {seed}"


def mutated(one: Exchange, random: Random) -> Exchange:
    def changed(frame: bytes | None) -> bytes | None:
        kind = random.random()
        if frame is None or kind < 0.5:
            return frame
        if kind < 0.6:
            return None
        if kind < 0.7:
            return frame[: random.randrange(len(frame))]
        data = bytearray(frame)
        for _ in range(random.choice((1, 1, 4))):
            data[random.randrange(8 if len(data) > 8 else 0, len(data))] = random.randrange(256)
        return bytes(data)

    ending = random.choice([one.ending] * 5 + [Ending.PENDING, Ending.CLOSED, Ending.SILENT])
    times = {"begun_ns": one.begun_ns + random.randrange(-1000, 1000), "duration_ns": random.choice([-1, 0, 10, 10**6])}
    return replace(one, request=changed(one.request), response=changed(one.response), ending=ending, **times)


async def test_request_with_a_retriable_error_is_not_played_twice(tmp_path: Path) -> None:
    """A recorded response NOT_LEADER_OR_FOLLOWER: nothing was written, and the client retried."""

    async def writes(broker: Broker) -> None:
        client = await broker.client()
        for _ in range(2):
            await client.call(produce(records(b"x"), "t"), 7)

    exchanges = await recorded(tmp_path / "one", writes)
    result = response_value(exchanges[0])
    only(result).error_code, only(result).base_offset = 6, -1
    exchanges[0].response = bytes(4) + build(result, 7)
    only(again := response_value(exchanges[1])).base_offset = 0
    exchanges[1].response = bytes(4) + build(again, 7)
    async with harness.running(tmp_path / "two") as broker:
        await broker.topic("t", 2)
        _, found = await played(exchanges, broker.ports[0])
        assert broker.log("t").log_end_offset == 1
    assert not found.counts
    assert dict(found.not_sent) == {"the response was NOT_LEADER_OR_FOLLOWER, and the client retried": 1}


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.STREAMS_GROUP_DESCRIBE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.LIST_GROUPS,
    ],
)
def test_requests_that_describe_or_list_change_nothing(key: ApiKey) -> None:
    assert not changes(object(), key)
    assert changes(object(), ApiKey.CONSUMER_GROUP_HEARTBEAT)


def test_nodes_are_mapped_by_their_ids() -> None:
    assert node_map([1, 2, 3], [1, 2, 3]) == {1: 1, 2: 2, 3: 3}
    assert node_map([1, 2, 3], [2, 101]) == {1: 101, 2: 2, 3: 2}
    assert node_map([0], [1, 2]) == {0: 1}
    assert node_map([0, 5], []) == {}


async def test_nodes_and_leaders_of_a_cluster_are_mapped(tmp_path: Path) -> None:
    """Each connection goes to the node with its id."""

    async def use(broker: Broker) -> None:
        for node in range(3):
            client = await broker.client(node)
            topics = [MetadataRequest.MetadataRequestTopic(name="t")]
            result = await client.call(MetadataRequest(topics=topics), 8)
            leads = [one.partition_index for one in result.topics[0].partitions if one.leader_id == node + 1]
            for partition in range(2):
                response = await client.call(produce(records(b"x"), "t", partition), 7)
                assert (only(response).error_code == 0) == (partition in leads)

    exchanges = await recorded(tmp_path / "one", use, brokers=3)
    assert {one.peer.node_id for one in exchanges} == {1, 2, 3}
    async with harness.running(tmp_path / "two", brokers=3) as broker:
        await broker.topic("t", 2)
        _, found = await played(exchanges, broker.ports[0])
    assert not found.counts, found.findings
    assert sum(one.ending is Ending.RESPONDED for one in exchanges) == 9 and not found.counts[Why.UNEXPLAINED]
