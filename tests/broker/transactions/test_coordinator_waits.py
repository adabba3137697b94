"""Delayed syncs and failed writes of the transaction coordinator."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from ottla.broker.errors import Refused
from ottla.broker.transactions.coordinator import RETRY_MS
from ottla.broker.transactions.state import Response
from ottla.protocol.errors import ErrorCode
from ottla.storage.errors import FencedProducer, StorageError
from ottla_testing.broker.coordinating import NONE, TIMEOUT_MS, World, now

A, B = ("t", 0), ("u", 1)
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS


def begun(world: World, *partitions: tuple[str, int], version: int = 2) -> tuple[int, int]:
    owner = world.init()
    world.add(owner, *partitions, version=version)
    world.disk.order.clear()
    return owner


async def test_response_waits_for_the_sync_of_its_record() -> None:
    world = World()
    world.disk.slow = {"log"}
    first = world.coordinator.init_producer_id("tx", timeout_ms=TIMEOUT_MS)
    assert isinstance(first, asyncio.Future)
    assert now(world.coordinator.init_producer_id("tx", timeout_ms=TIMEOUT_MS)).error is BUSY
    assert world.coordinator.describe("tx") == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, None)
    assert not first.done()
    await world.disk.sync()
    assert await first == (NONE, 1000, 0, ())
    second = world.coordinator.add_partitions("tx", 1000, 0, [A], client_version=2)
    assert isinstance(second, asyncio.Future)
    assert world.state() == "Empty"
    assert now(world.coordinator.end("tx", 1000, 0, committed=True, client_version=2)).error is BUSY
    await world.disk.sync()
    assert (await second).error is NONE
    assert world.state() == "Ongoing"


async def test_each_step_of_end_txn_waits_for_the_previous_sync() -> None:
    world = World()
    owner = begun(world, A, B)
    world.disk.slow = {"log", "t", "u"}
    end = world.coordinator.end("tx", *owner, committed=True, client_version=2)
    assert isinstance(end, asyncio.Future)
    assert world.disk.order == ["PrepareCommit"]
    await world.disk.sync()
    assert await end == (NONE, owner[0], owner[1] + 1, ())
    assert world.disk.order[1:] == ["commit t-0", "commit u-1"]
    assert await world.disk.sync() == "t"
    assert world.ended == [(A, owner[0], True)]
    assert world.disk.order[3:] == []
    assert now(world.coordinator.init_producer_id("tx", timeout_ms=TIMEOUT_MS)).error is BUSY
    assert await world.disk.sync() == "u"
    assert world.disk.order[3:] == ["CompleteCommit"]
    assert world.state() == "PrepareCommit"
    await world.disk.sync()
    assert world.state() == "CompleteCommit"
    assert world.disk.syncs == []


async def test_disconnected_client_does_not_block_its_id() -> None:
    world = World()
    world.disk.slow = {"log"}
    response = world.coordinator.init_producer_id("tx", timeout_ms=TIMEOUT_MS)
    assert isinstance(response, asyncio.Future)
    response.cancel()
    await world.disk.sync()
    assert world.state() == "Empty"
    assert not world.coordinator._responses


STORAGE = StorageError("the disk")


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("step", ["init", "add", "add offsets", "commit", "abort"])
async def test_failed_append_is_reported_and_can_be_retried(step: str, later: bool) -> None:
    world = World()
    owner = begun(world, A) if step != "init" else (-1, -1)
    before = world.state() if step != "init" else ""
    coordinator = world.coordinator

    def send() -> Response | asyncio.Future[Response]:
        if step == "init":
            return coordinator.init_producer_id("tx", timeout_ms=TIMEOUT_MS)
        if step == "add":
            return coordinator.add_partitions("tx", *owner, [B], client_version=2)
        if step == "add offsets":
            return coordinator.add_offsets("tx", *owner, "g", client_version=2)
        return coordinator.end("tx", *owner, committed=step == "commit", client_version=2)

    if later:
        world.disk.slow = {"log"}
        response = send()
        await world.disk.sync(STORAGE)
        assert isinstance(response, asyncio.Future)
        response = await response
    else:
        world.disk.fails["log"] = ErrorCode.KAFKA_STORAGE_ERROR
        response = now(send())
    assert response == (ErrorCode.NOT_COORDINATOR, -1, -1, ())
    assert world.disk.markers == {}
    if step == "init":
        assert coordinator._entries == {}
    else:
        assert world.state() == before
    world.disk.fails.clear()
    world.disk.slow.clear()
    assert now(send()).error is NONE


@pytest.mark.parametrize(
    ("code", "reported"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_log_errors_are_mapped_to_retriable_codes(code: ErrorCode, reported: ErrorCode) -> None:
    world = World()
    world.disk.fails["log"] = code
    assert now(world.coordinator.init_producer_id("tx", timeout_ms=TIMEOUT_MS)).error is reported


def test_init_producer_id_fails_without_a_producer_id() -> None:
    world = World()
    world.no_ids = ErrorCode.KAFKA_STORAGE_ERROR
    response = now(world.coordinator.init_producer_id("tx", timeout_ms=TIMEOUT_MS))
    assert response.error is ErrorCode.NOT_COORDINATOR
    assert world.coordinator._entries == {}
    world.no_ids = None
    assert world.init() == (1000, 0)


def test_failed_completion_write_is_retried_by_the_check() -> None:
    world = World()
    owner = begun(world, A)
    markers = world.coordinator._markers

    def then_fail(*reported: Any) -> object:
        world.disk.fails["log"] = ErrorCode.KAFKA_STORAGE_ERROR
        return markers.write(*reported)

    world.coordinator._markers = replace(markers, write=then_fail)
    world.end(owner)
    world.coordinator._markers = markers
    assert world.state() == "PrepareCommit"
    assert now(world.coordinator.init_producer_id("tx", timeout_ms=TIMEOUT_MS)).error is BUSY
    world.disk.fails.clear()
    world.clock.advance(world.settings.time_out_interval_ms)
    assert world.state() == "CompleteCommit"
    assert len(world.disk.markers[A]) == 1
    assert world.init() == (owner[0], owner[1] + 2)


def test_failed_marker_is_retried() -> None:
    """The marker is retried until the disk works; markers of other partitions are not written twice."""
    world = World()
    owner = begun(world, A, B)
    world.disk.fails["u"] = ErrorCode.KAFKA_STORAGE_ERROR
    world.end(owner)
    assert world.disk.order == ["PrepareCommit", "commit t-0"]
    world.clock.advance(10 * RETRY_MS)
    assert world.disk.order == ["PrepareCommit", "commit t-0"]
    assert world.transaction().partitions == (B,)
    assert now(world.coordinator.init_producer_id("tx", timeout_ms=TIMEOUT_MS)).error is BUSY
    world.disk.fails.clear()
    world.clock.advance(RETRY_MS - 1)
    assert world.state() == "PrepareCommit"
    world.clock.advance(1)
    assert world.disk.order[2:] == ["commit u-1", "CompleteCommit"]
    assert world.ended == [(A, owner[0], True), (B, owner[0], True)]
    world.clock.advance(10 * RETRY_MS)
    assert world.disk.order[4:] == []


def test_timeout_check_retries_markers() -> None:
    world = World()
    owner = begun(world, B)
    world.disk.fails["u"] = ErrorCode.KAFKA_STORAGE_ERROR
    world.end(owner)
    world.disk.fails.clear()
    world.coordinator.time_out()
    assert world.state() == "CompleteCommit"
    world.clock.advance(2 * RETRY_MS)
    assert len(world.disk.markers[B]) == 1


async def test_marker_with_a_failed_sync_is_rewritten() -> None:
    world = World()
    owner = begun(world, A, B)
    world.disk.slow = {"t", "u"}
    world.end(owner, False)
    await world.disk.sync(STORAGE)
    await world.disk.sync()
    assert world.ended == [(B, owner[0], False)]
    assert world.state() == "PrepareAbort"
    world.disk.slow.clear()
    world.clock.advance(RETRY_MS)
    assert world.state() == "CompleteAbort"
    assert [len(world.disk.markers[one]) for one in (A, B)] == [2, 1]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ],
)
def test_partition_without_marker_support_counts_as_done(code: ErrorCode) -> None:
    """The partition is deleted, or another coordinator or producer ended the transaction there."""
    world = World()
    owner = begun(world, A, B)
    world.disk.fails["u"] = code
    world.end(owner)
    assert world.disk.order == ["PrepareCommit", "commit t-0", "CompleteCommit"]
    is_gone = code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    assert world.ended == [(one, owner[0], True) for one in ((A, B) if is_gone else (A,))]


async def test_partition_deleted_during_its_marker_counts_as_done() -> None:
    world = World()
    owner = begun(world, A, B)
    world.disk.slow = {"u"}
    world.end(owner)
    await world.disk.sync(Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert world.state() == "CompleteCommit"


async def test_fenced_marker_counts_as_done() -> None:
    world = World()
    owner = begun(world, A)
    world.disk.slow = {"t"}
    world.end(owner)
    await world.disk.sync(FencedProducer("newer"))
    assert world.state() == "CompleteCommit"


async def test_close_responds_to_delayed_requests() -> None:
    for ends, code in (("close", ErrorCode.COORDINATOR_NOT_AVAILABLE), ("resign", ErrorCode.NOT_COORDINATOR)):
        world = World()
        owner = begun(world, A)
        world.disk.slow = {"log"}
        response = world.coordinator.end("tx", *owner, committed=True, client_version=2)
        assert isinstance(response, asyncio.Future)
        if ends == "close":
            world.coordinator.close()
        else:
            world.coordinator.resign(world.coordinator.partition_of("tx"))
            assert world.coordinator.has_resigned("tx")
        assert (await response).error is code
        assert now(world.coordinator.init_producer_id("tx", timeout_ms=TIMEOUT_MS)).error is code
        assert world.coordinator.verify("tx", *owner, [A]).error is code
        assert world.coordinator.describe("tx") == (code, None)
        await world.disk.sync()  # the coordinator is closed when the outcome arrives
        assert world.disk.markers == {}
        world.clock.advance(10 * world.settings.time_out_interval_ms)
        assert world.disk.markers == {}


async def test_what_follows_a_request_to_one_node_has_the_newest_settings() -> None:
    """A change of transaction.version comes while the record of EndTxn waits for its sync."""
    world = World()
    owner = begun(world, A)
    world.disk.slow = {"log"}
    one_node = world.coordinator.at_node(lambda index: True)
    response = one_node.end("tx", *owner, committed=True, client_version=2)
    assert isinstance(response, asyncio.Future)
    world.coordinator.settings = replace(world.settings, server_version=0)
    await world.disk.sync()
    await world.disk.sync()
    assert world.state() == "CompleteCommit"
    log = world.disk.log[world.coordinator.partition_of("tx")]
    assert [value[:2] for _, value in log[-2:] if value is not None] == [b"\0\1", b"\0\0"]


async def test_outcome_of_a_removed_entry_is_ignored() -> None:
    world = World()
    owner = begun(world, A)
    world.disk.slow = {"log"}
    index = world.coordinator.partition_of("tx")
    assert isinstance(world.coordinator.end("tx", *owner, committed=True, client_version=2), asyncio.Future)
    world.disk.slow.clear()
    log = world.disk.log[index][:-1]  # the record was lost
    assert world.coordinator.load(index, log) is NONE
    await world.disk.sync()
    assert world.disk.markers == {}
    assert world.state() == "Ongoing"
    world.end(owner, False)
    assert world.disk.markers == {A: [(owner[0], owner[1] + 1, False)]}


async def test_marker_completed_after_close_reaches_the_groups() -> None:
    """The transaction log is offline, the log of the groups is not: the commits apply when the marker is durable."""
    world = World()
    owner = begun(world, A)
    world.disk.slow = {"t"}
    world.end(owner)
    world.coordinator.resign(world.coordinator.partition_of("tx"))
    assert world.ended == []
    await world.disk.sync()
    assert world.ended == [(A, owner[0], True)]
