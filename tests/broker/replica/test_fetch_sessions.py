"""Incremental fetch sessions (KIP-227): over the wire, and the cache against a model made of rules."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from ottla.broker.errors import Refused
from ottla.broker.replica.fetch_sessions import EPOCH_MAX, EVICTABLE_AFTER_MS, FetchSessions
from ottla.protocol.messages.records.delete_records import DeleteRecordsRequest
from ottla.protocol.messages.records.fetch import FetchRequest, FetchResponse
from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.records import steps
from ottla_testing.broker.harness import Broker, Client, fetch, produce, records, running

PartitionData = FetchResponse.FetchableTopicResponse.PartitionData
NOT_FOUND, BAD_EPOCH, TOPIC_IDS = 70, 71, 106


def forgotten(*names: tuple[str | bytes, int]) -> dict[str, Any]:
    made = [
        FetchRequest.ForgottenTopic(topic=name, partitions=[index])
        if isinstance(name, str)
        else FetchRequest.ForgottenTopic(topic_id=name, partitions=[index])
        for name, index in names
    ]
    return {"forgotten_topics_data": made}


class Session:
    """A client's side of a session."""

    def __init__(self, client: Client, version: int = 11) -> None:
        self.client = client
        self.version = version
        self.id = 0
        self.epoch = 0

    async def fetch(self, *wanted: tuple[str | bytes, int, int], **more: Any) -> list[tuple[Any, int, int]]:
        """(topic, partition, bytes of records) of each partition in the response."""
        request = fetch(*wanted, session_id=self.id, session_epoch=self.epoch, **more)
        response = await self.client.call(request, self.version)
        assert response.error_code == 0
        assert self.id in (0, response.session_id) or not response.session_id
        self.id, self.epoch = response.session_id, self.epoch + 1
        return [
            (topic.topic or topic.topic_id, part.partition_index, len(part.records))
            for topic in response.responses
            for part in topic.partitions
        ]


async def append(broker: Broker, partition: int = 0, topic: str = "t", size: int = 10) -> int:
    data = records(b"v" * size)
    broker.state.topics.partition(topic, partition).append(data, broker.clock.now_ms(), 13)
    return len(data)


async def test_incremental_response_has_changed_partitions_only(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        topic_id = await broker.topic("t", 4)
        client = await broker.client()
        for session, name in ((Session(client), "t"), (Session(client, 13), topic_id)):
            end = broker.log("t").log_end_offset
            assert await session.fetch((name, 0, end), (name, 1, 0)) == [(name, 0, 0), (name, 1, 0)]
            assert session.id > 0
            assert await session.fetch() == []
            size = await append(broker)
            assert await session.fetch() == [(name, 0, size)]
            assert await session.fetch() == [(name, 0, size)]  # until the client sends another offset
            assert await session.fetch((name, 0, end + 1)) == []
            # A new partition is returned once, even if it is empty.
            assert await session.fetch((name, 2, 0)) == [(name, 2, 0)]
            assert await session.fetch() == []
            assert await session.fetch(**forgotten((name, 0), (name, 3))) == []
            await append(broker)
            assert await session.fetch() == []


async def test_new_log_start_is_in_an_incremental_response(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        await append(broker)
        session = Session(await broker.client())
        await session.fetch(("t", 0, 1))
        assert await session.fetch() == []
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        requested = topic(name="t", partitions=[topic.DeleteRecordsPartition(partition_index=0, offset=1)])
        await session.client.call(DeleteRecordsRequest(topics=[requested], timeout_ms=1), 1)
        assert await session.fetch() == [("t", 0, 0)]
        assert await session.fetch() == []


async def test_error_and_its_end_are_in_incremental_responses(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        session = Session(await broker.client())
        await session.fetch(("t", 0, 0))
        for _ in range(2):
            assert await session.fetch() == [("t", 0, 0)]
        await broker.topic("t")
        assert await session.fetch() == [("t", 0, 0)]
        assert await session.fetch() == []


async def test_partitions_with_records_move_to_the_end(tmp_path: Path) -> None:
    """With a small max_bytes, none of them is starved."""
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 3)
        for partition in range(3):
            size = await append(broker, partition)
        session = Session(await broker.client())
        first = await session.fetch(("t", 0, 0), ("t", 1, 0), ("t", 2, 0), max_bytes=1)
        assert first == [("t", 0, size), ("t", 1, 0), ("t", 2, 0)]
        # The first response of a session does not reorder it; later ones do, and empty ones are not sent.
        iterations = [await session.fetch(max_bytes=1) for _ in range(6)]
        assert iterations == [[("t", index, size)] for index in (0, 1, 2, 0, 1, 2)]


async def test_full_request_or_empty_session_ends_a_session(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client, other = await broker.client(), await broker.client()
        sessions = broker.state.fetch_sessions
        emptied = Session(client)
        await emptied.fetch(("t", 0, 0))
        assert await emptied.fetch(("t", 0, 0), **forgotten(("t", 0))) == []  # listed and forgotten: removed
        assert (emptied.id, len(sessions)) == (0, 0)
        for epoch in (0, -1):
            session = Session(client)
            await session.fetch(("t", 0, 0))
            # Any client may end it, with any earlier epoch (A.1): it belongs to no connection.
            response = await other.call(fetch(("t", 0, 0), session_id=session.id, session_epoch=epoch), 11)
            assert (response.error_code, bool(response.session_id)) == (0, epoch == 0)
            again = await client.call(fetch(session_id=session.id, session_epoch=1), 11)
            assert (again.error_code, again.session_id, again.responses) == (NOT_FOUND, 0, [])
            assert len(sessions) == (1 if epoch == 0 else 0)
            if epoch == 0:
                await other.call(fetch(session_id=response.session_id, session_epoch=-1), 11)
        ended = await client.call(fetch(session_id=12345, session_epoch=-1), 11)
        assert (ended.error_code, ended.session_id) == (0, 0)  # a session that does not exist may be ended


async def test_wrong_epoch_keeps_the_session(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        topic_id = await broker.topic("t")
        client, other = await broker.client(), await broker.client()
        session = Session(client)
        await session.fetch(("t", 0, 0))
        for epoch in (2, 5, EPOCH_MAX, -2):
            response = await client.call(fetch(session_id=session.id, session_epoch=epoch), 11)
            assert (response.error_code, response.session_id, response.responses) == (BAD_EPOCH, 0, [])
        response = await client.call(fetch((topic_id, 0, 0), session_id=session.id, session_epoch=1), 13)
        assert (response.error_code, response.responses) == (TOPIC_IDS, [])
        session.client = other
        assert await session.fetch() == []
        # The epoch advances when the request is accepted, and wraps from the last to 1.
        inside = broker.state.fetch_sessions._sessions[session.id]
        inside.epoch = EPOCH_MAX
        response = await client.call(fetch(session_id=session.id, session_epoch=EPOCH_MAX), 11)
        assert response.error_code == 0 and inside.epoch == 1


async def test_concurrent_requests_of_one_session(tmp_path: Path) -> None:
    """The waiting one finds a later epoch when it returns (A.3): 71 with the session's id."""
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client, other = await broker.client(), await broker.client()
        session = Session(client)
        await session.fetch(("t", 0, 0))
        await client.send(fetch(session_id=session.id, session_epoch=1, max_wait_ms=1000), 11)
        await broker.settle()
        response = await other.call(fetch(session_id=session.id, session_epoch=2), 11)
        assert response.error_code == 0
        broker.clock.advance(1000)
        _, response = await client.receive()
        assert (response.error_code, response.session_id, response.responses) == (BAD_EPOCH, session.id, [])


async def test_empty_full_request_creates_a_session_that_may_grow(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        session = Session(await broker.client())
        assert await session.fetch() == [] and session.id
        assert await session.fetch(("t", 0, 0)) == [("t", 0, 0)]


@pytest.mark.parametrize("version", [4, 5, 6])
async def test_versions_before_v7_have_no_sessions(version: int, tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t")
        client = await broker.client()
        for _ in range(3):
            response = await client.call(fetch(("t", 0, 0)), version)
            assert len(response.responses) == 1
        assert len(broker.state.fetch_sessions) == 0


async def test_recreated_topic_is_another_partition(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        old = await broker.topic("t")
        session = Session(await broker.client(), 13)
        await session.fetch((old, 0, 0))
        broker.state.topics.delete(broker.state.topics.named("t"), 0)
        new = await broker.topic("t")
        response = await session.client.call(
            fetch((new, 0, 0), session_id=session.id, session_epoch=session.epoch), session.version
        )
        codes = {topic.topic_id: topic.partitions[0].error_code for topic in response.responses}
        assert codes == {old: 100, new: 0}
        session.epoch += 1
        assert await session.fetch(**forgotten((old, 0))) == []


async def test_cache_without_slots_has_no_sessions(tmp_path: Path) -> None:
    async with running(tmp_path / "data", overrides={"max.incremental.fetch.session.cache.slots": "0"}) as broker:
        await broker.topic("t")
        session = Session(await broker.client())
        assert await session.fetch(("t", 0, 0)) == [("t", 0, 0)]
        assert session.id == 0


async def test_full_cache_returns_no_session(tmp_path: Path) -> None:
    async with running(tmp_path / "data", overrides={"max.incremental.fetch.session.cache.slots": "2"}) as broker:
        await broker.topic("t", 3)
        client = await broker.client()
        small, large = Session(client), Session(client)
        await small.fetch(("t", 0, 0))
        await large.fetch(("t", 0, 0), ("t", 1, 0))
        third = Session(client)
        assert len(await third.fetch(("t", 0, 0), ("t", 1, 0), ("t", 2, 0))) == 3
        assert third.id == 0
        broker.clock.advance(EVICTABLE_AFTER_MS + 1)
        await small.fetch()
        await large.fetch()
        third = Session(client)
        await third.fetch(("t", 0, 0), ("t", 1, 0))
        assert third.id  # replaced the smaller one
        response = await client.call(fetch(session_id=small.id, session_epoch=small.epoch), 11)
        assert response.error_code == NOT_FOUND
        await large.fetch()


async def test_least_recently_used_session_is_evicted_first(tmp_path: Path) -> None:
    async with running(tmp_path / "data", overrides={"max.incremental.fetch.session.cache.slots": "2"}) as broker:
        await broker.topic("t", 3)
        client = await broker.client()
        used, idle, new = Session(client), Session(client), Session(client)
        await used.fetch(("t", 0, 0))
        await idle.fetch(("t", 0, 0), ("t", 1, 0))
        broker.clock.advance(EVICTABLE_AFTER_MS - 1000)
        await used.fetch()
        broker.clock.advance(1001)
        await new.fetch(("t", 0, 0))
        assert new.id
        response = await client.call(fetch(session_id=idle.id, session_epoch=1), 11)
        assert response.error_code == NOT_FOUND
        await used.fetch()


# The cache against a model


class Modelled:
    def __init__(self, names: list[int], now_ms: int) -> None:
        self.order = list(names)
        self.reported: dict[int, tuple[int, int]] = {}  # partition -> (high watermark, log start) of the last response
        self.epoch = 1
        self.created_ms = self.used_ms = now_ms


def asking(partitions: list[int], id: int, epoch: int, forget: list[int] | None = None) -> FetchRequest:
    more = forgotten(*[("t", index) for index in forget or ()])
    topic = FetchRequest.FetchTopic
    requested = [topic.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=9) for index in partitions]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[topic(topic="t", partitions=requested)],
        session_id=id,
        session_epoch=epoch,
        **more,
    )


class SessionMachine(RuleBasedStateMachine):
    """Random clients of a cache with three slots."""

    def __init__(self) -> None:
        super().__init__()
        ids = itertools.count(1)
        self.cache = FetchSessions(lambda: next(ids), slots=3)
        self.model: dict[int, Modelled] = {}
        self.now_ms = 0
        self.watermarks = dict.fromkeys(range(5), 0)

    def results(self, order: list[int], having: set[int]) -> list[tuple[Any, PartitionData]]:
        from ottla.broker.replica.fetch_sessions import PartitionKey

        return [
            (
                PartitionKey("t", ZERO_UUID, index),
                PartitionData(
                    partition_index=index,
                    error_code=3 if self.watermarks[index] < 0 else 0,
                    high_watermark=self.watermarks[index],
                    log_start_offset=0,
                    records=b"r" if index in having and self.watermarks[index] >= 0 else b"",
                ),
            )
            for index in order
        ]

    def evicts(self, size: int) -> int | None:
        """The id that is evicted for a new session, or None if there is no room."""
        stale = min(self.model, key=lambda id: self.model[id].used_ms)
        if self.now_ms - self.model[stale].used_ms > EVICTABLE_AFTER_MS:
            return stale
        old = [id for id in self.model if self.now_ms - self.model[id].created_ms > EVICTABLE_AFTER_MS]
        if not old:
            return None
        smallest = min(old, key=lambda id: (len(self.model[id].order), id))
        # The new session is compared with id 0: of equal size, the existing one stays.
        return smallest if size > len(self.model[smallest].order) else None

    @rule(ms=st.sampled_from([1, 1000, *range(EVICTABLE_AFTER_MS - 3, EVICTABLE_AFTER_MS + 2)]))
    def passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(index=st.integers(0, 4), to=st.integers(-1, 3))
    def moves(self, index: int, to: int) -> None:
        self.watermarks[index] = to

    @rule(partitions=st.lists(st.integers(0, 4), unique=True), epoch=st.sampled_from([0, -1]), data=st.data())
    def full(self, partitions: list[int], epoch: int, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from([0, 999, *self.model]))
        self.now_ms += 1
        plan = steps.run(self.cache.planning(asking(partitions, id, epoch), False, self.now_ms))
        self.model.pop(id, None)
        assert [key.partition for key in plan.partitions] == partitions
        given = self.results(partitions, set())
        session_id, sent = steps.run(self.cache.concluding(plan, given, False, self.now_ms))
        assert sent == given  # a full response has everything
        room = epoch == 0
        if room and len(self.model) == 3:
            evicted = self.evicts(len(partitions))
            room = evicted is not None
            self.model.pop(evicted, None)  # type: ignore[arg-type]
        assert bool(session_id) == room
        if room:
            made = self.model[session_id] = Modelled(partitions, self.now_ms)
            made.reported = {index: (max(-1, self.watermarks[index]), 0) for index in partitions}

    @precondition(lambda self: self.model)
    @rule(
        add=st.lists(st.integers(0, 4), unique=True, max_size=2),
        forget=st.lists(st.integers(0, 4), unique=True, max_size=2),
        having=st.sets(st.integers(0, 4)),
        off=st.sampled_from([0, 0, 0, 1, -1]),
        data=st.data(),
    )
    def incremental(self, add: list[int], forget: list[int], having: set[int], off: int, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(list(self.model)))
        modelled = self.model[id]
        epoch = modelled.epoch + off
        if epoch <= 0:
            return
        self.now_ms += 1
        try:
            plan = steps.run(self.cache.planning(asking(add, id, epoch, forget), False, self.now_ms))
        except Refused as refused:
            assert off and refused.code == BAD_EPOCH
            return
        assert not off
        modelled.order += [index for index in add if index not in modelled.order]
        modelled.order = [index for index in modelled.order if index not in forget]
        for index in forget:
            modelled.reported.pop(index, None)
        assert [key.partition for key in plan.partitions] == modelled.order
        if not modelled.order:
            del self.model[id]
            assert steps.run(self.cache.concluding(plan, [], False, self.now_ms)) == (0, [])
            return
        modelled.epoch += 1
        modelled.used_ms = self.now_ms
        given = self.results(modelled.order, having)
        expected = []
        for index in list(modelled.order):
            watermark = self.watermarks[index]
            news = watermark < 0 or index in having or modelled.reported.get(index) != (watermark, 0)
            modelled.reported[index] = (watermark, 0)
            if news:
                expected.append(index)
            if index in having and watermark >= 0:
                modelled.order.remove(index)
                modelled.order.append(index)
        assert steps.run(self.cache.concluding(plan, given, False, self.now_ms)) == (
            id,
            [pair for pair in given if pair[0].partition in expected],
        )

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert len(self.cache) == len(self.model) <= 3
        for id, modelled in self.model.items():
            session = self.cache._sessions[id]
            assert [key.partition for key in session.partitions] == modelled.order
            assert session.epoch == modelled.epoch


@pytest.mark.parametrize(("size", "has_room"), [(1, False), (2, True)])
def test_old_used_session_is_evicted_for_a_larger_one_only(size: int, has_room: bool) -> None:
    cache = FetchSessions(lambda: 7 if not len(cache) else 8, slots=1)

    def begin(partitions: list[int], now_ms: int) -> int:
        plan = steps.run(cache.planning(asking(partitions, 0, 0), False, now_ms))
        results = [
            (key, PartitionData(partition_index=0, error_code=0, high_watermark=0, records=b""))
            for key in plan.partitions
        ]
        return steps.run(cache.concluding(plan, results, False, now_ms))[0]

    assert begin([0], 0) == 7
    later = EVICTABLE_AFTER_MS + 1
    steps.run(cache.planning(asking([], 7, 1), False, later - 1))
    assert bool(begin(list(range(size)), later)) == has_room


def test_random_sessions_match_the_model() -> None:
    run_state_machine_as_test(SessionMachine)


async def test_append_wakes_a_fetch_of_a_session(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as broker:
        await broker.topic("t", 2)
        session = Session(await broker.client())
        await session.fetch(("t", 0, 0), ("t", 1, 0))
        await session.client.send(fetch(session_id=session.id, session_epoch=1, max_wait_ms=60_000), 11)
        await broker.settle()
        await (await broker.client()).call(produce(records(b"v"), partition=1), 9)
        _, response = await session.client.receive()
        (topic,) = response.responses
        assert [part.partition_index for part in topic.partitions] == [1]
