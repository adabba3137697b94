"""Transactions under `flush.messages`: no response reports a state that a power loss could take back, and none builds
on it.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.metadata.topics import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.broker.transactions.state import Response
from ottla.protocol.errors import ErrorCode
from ottla_testing.broker.harness import Broker
from ottla_testing.broker.held_syncs import Syncs, begun, holding, still_waits
from ottla_testing.broker.transacting import IMPLICIT_PRODUCE, Owner, committed, described, read_committed
from ottla_testing.patience import PATIENCE_S

OVERRIDES = {
    "log.flush.interval.messages": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
T0 = ("t", 0)
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


async def started(broker: Broker, syncs: Syncs, held: str) -> tuple[Owner, Owner]:
    """The owner of id x, and a twin with the same producer; the syncs of a topic wait from here on."""
    await broker.topic("t")
    for topic in (GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
        broker.state.internal_topic(topic, broker.clock.now_ms())
    syncs.prefix = "nothing"
    owner, twin = Owner(await broker.client()), Owner(await broker.client())
    assert await owner.init() == 0
    twin.take(*owner.identity)
    syncs.prefix = held
    return owner, twin


async def until(broker: Broker, fetch: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    """Returns when the broker responds with this code; other syncs than the held ones continue."""
    async with asyncio.timeout(PATIENCE_S):
        while await fetch() != wanted:
            await broker.settle()


async def test_changes_of_a_transactional_id_wait_for_the_sync(tmp_path: Path) -> None:
    async with holding(tmp_path, overrides=OVERRIDES) as (broker, syncs):
        owner, twin = await started(broker, syncs, TRANSACTION_STATE_TOPIC)
        allowed = 0

        async def waits(call: Any, response: Any, meanwhile: tuple[int, str, Any], more: int = 0) -> None:
            """Checks that the response arrives after the sync and not before; other requests get a retriable error.
            `more` syncs follow.
            """
            nonlocal allowed
            task = begun(call)
            await syncs.until(allowed + 1)
            await still_waits(broker, task)
            assert await twin.add(T0) == {T0: CONCURRENT}
            assert await twin.init() == CONCURRENT
            assert await described(twin.client) == meanwhile
            syncs.let()
            assert await task == response
            for number in range(more):
                await syncs.until(allowed + 2 + number)
                syncs.let()
            allowed += 1 + more

        offsets = {"t": [0], GROUP_OFFSETS_TOPIC: [0]}
        await waits(owner.add(T0), {T0: 0}, (0, "Empty", {}))
        await waits(owner.add_offsets(), 0, (0, "Ongoing", {"t": [0]}))
        assert await owner.send(b"a") == 0
        assert await owner.commit_offset(5) == 0
        await waits(owner.end(True), 0, (0, "Ongoing", offsets), more=1)
        await until(broker, lambda: described(twin.client), (0, "CompleteCommit", {}))
        await waits(owner.init(), 0, (0, "CompleteCommit", {}))
        twin.take(*owner.identity)
        await waits(owner.send(b"b", version=IMPLICIT_PRODUCE), 0, (0, "Empty", {}))
        await waits(owner.commit_offset(6, version=5), 0, (0, "Ongoing", {"t": [0]}))
        assert await read_committed(twin.client) == [b"a"]
        assert await committed(twin.client) == (0, 5)


async def test_acknowledged_change_is_known_to_the_next_coordinator(tmp_path: Path) -> None:
    """It is in the log when that one loads it, but held back from consumers until the sync ends."""
    async with holding(tmp_path, overrides=OVERRIDES, brokers=2) as (broker, syncs):
        await broker.topic("t")
        broker.state.internal_topic(TRANSACTION_STATE_TOPIC, broker.clock.now_ms())
        old = broker.state.topics.leader(TRANSACTION_STATE_TOPIC, 0)
        owner, successor = Owner(await broker.client(old - 1)), await broker.client(2 - old)
        syncs.prefix = "nothing"
        assert await owner.init() == 0
        syncs.prefix = TRANSACTION_STATE_TOPIC
        adding = begun(owner.add(T0))
        await syncs.until(1)
        await still_waits(broker, adding)
        broker.state.topology.move_leader(TRANSACTION_STATE_TOPIC, 0, 3 - old)
        syncs.let_all()
        assert await adding in ({T0: 0}, {T0: ErrorCode.NOT_COORDINATOR})
        assert await described(successor) == (0, "Ongoing", {"t": [0]})


@pytest.mark.parametrize("topic", ["t", GROUP_OFFSETS_TOPIC])
async def test_transaction_completes_after_its_markers_are_durable(topic: str, tmp_path: Path) -> None:
    async with holding(tmp_path, overrides=OVERRIDES) as (broker, syncs):
        owner, twin = await started(broker, syncs, "nothing")
        assert await owner.send(b"a", version=IMPLICIT_PRODUCE) == 0
        assert await owner.commit_offset(5, version=5) == 0
        syncs.prefix = topic
        assert await owner.end(True, 5) == 0  # the decision is made
        await syncs.until(1)
        assert (await described(twin.client))[1] == "PrepareCommit"
        assert await owner.add(T0) == {T0: CONCURRENT}
        if topic == "t":
            await until(broker, lambda: committed(twin.client, stable=True), (0, 5))
            assert await read_committed(twin.client) == []
        else:
            await until(broker, lambda: read_committed(twin.client), [b"a"])
            assert broker.state.groups.offsets("g") == {}
        assert (await described(twin.client))[1] == "PrepareCommit"
        syncs.let_all()
        await until(broker, lambda: described(twin.client), (0, "CompleteCommit", {}))
        assert await read_committed(twin.client) == [b"a"]
        assert await committed(twin.client, stable=True) == (0, 5)
        assert await owner.add(T0) == {T0: 0}


async def test_transactional_offsets_wait_for_their_sync(tmp_path: Path) -> None:
    async with holding(tmp_path, overrides=OVERRIDES) as (broker, syncs):
        owner, _ = await started(broker, syncs, GROUP_OFFSETS_TOPIC)
        assert await owner.add_offsets() == 0
        call = begun(owner.commit_offset(5))
        await syncs.until(1)
        await still_waits(broker, call)
        syncs.let_all()
        assert await call == 0


async def test_offsets_are_not_written_after_their_transaction_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a wait for the coordinator's sync, another request may have ended the transaction."""
    async with holding(tmp_path, overrides=OVERRIDES) as (broker, syncs):
        owner, _ = await started(broker, syncs, TRANSACTION_STATE_TOPIC)
        call = begun(owner.commit_offset(5, version=5))
        await syncs.until(1)
        await still_waits(broker, call)
        monkeypatch.setattr(broker.state.transactions, "verify", lambda *requested: Response(ErrorCode.PRODUCER_FENCED))
        syncs.let_all()
        assert await call == ErrorCode.INVALID_PRODUCER_EPOCH
        log = broker.state.topics.partition(GROUP_OFFSETS_TOPIC, 0).log
        assert log.log_end_offset == 0


async def test_offsets_of_a_topic_deleted_meanwhile_are_not_committed(tmp_path: Path) -> None:
    """Another topic of that name would be read from there on."""
    async with holding(tmp_path, overrides=OVERRIDES) as (broker, syncs):
        owner, _ = await started(broker, syncs, TRANSACTION_STATE_TOPIC)
        call = begun(owner.commit_offset(5, version=5))
        await syncs.until(1)
        await still_waits(broker, call)
        topics = broker.state.topics
        topics.delete(topics.named("t"), broker.clock.now_ms())
        broker.state.groups.forget_topic("t")
        syncs.let_all()
        assert await call == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await broker.topic("t")
        assert await owner.end(True, 5) == 0
        await until(broker, lambda: described(owner.client), (0, "CompleteCommit", {}))
        assert await committed(owner.client) == (0, -1)


async def test_failed_sync_returns_coordinator_not_available(tmp_path: Path) -> None:
    async with holding(tmp_path, overrides=OVERRIDES) as (broker, syncs):
        owner, _ = await started(broker, syncs, TRANSACTION_STATE_TOPIC)
        syncs.code = errno.EMFILE
        call = begun(owner.add(T0))
        await syncs.until(1)
        await still_waits(broker, call)
        syncs.let_all()
        assert await call == {T0: ErrorCode.NOT_COORDINATOR}
        syncs.code = 0
