"""The transaction coordinator around the table: its writes, their order, and its responses."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode
from ottla_testing.broker.coordinating import NONE, TIMEOUT_MS, World, now

A, B = ("t", 0), ("t", 1)


def test_end_txn_response_follows_completion() -> None:
    """If no sync is awaited, the client's next transaction does not overlap the last one."""
    world = World()
    owner = world.init()
    world.add(owner, A)
    world.add(owner, B)
    response = world.end(owner)
    assert world.disk.order == [
        "Empty", "Ongoing", "Ongoing", "PrepareCommit", "commit t-0", "commit t-1", "CompleteCommit",
    ]  # fmt: skip
    assert (response.producer_id, response.producer_epoch) == (owner[0], owner[1] + 1)
    assert world.disk.markers == {A: [(*response[1:3], True)], B: [(*response[1:3], True)]}
    assert world.ended == [(A, owner[0], True), (B, owner[0], True)]
    assert world.state() == "CompleteCommit"


def test_markers_of_version_0_have_the_epoch_of_the_records() -> None:
    world = World()
    owner = world.init()
    world.add(owner, A, version=0)
    assert world.end(owner, False, version=0)[1:3] == (-1, -1)
    assert world.disk.markers == {A: [(*owner, False)]}
    assert world.state() == "CompleteAbort"


def test_aborted_empty_transaction_has_no_markers() -> None:
    world = World()
    owner = world.init()
    response = world.end(owner, False)
    assert response.producer_epoch == owner[1] + 1
    assert world.disk.order == ["Empty", "PrepareAbort", "CompleteAbort"]
    assert world.disk.markers == {}


def test_add_offsets_adds_the_partition_of_the_group() -> None:
    world = World()
    owner = world.init()
    assert now(world.coordinator.add_offsets("tx", *owner, "group", client_version=2)).error is NONE
    assert world.transaction().partitions == (("__consumer_offsets", 5),)
    world.end(owner)
    assert world.ended == [(("__consumer_offsets", 5), owner[0], True)]


def test_verification_returns_missing_partitions() -> None:
    world = World()
    owner = world.init()
    world.add(owner, A)
    assert world.coordinator.verify("tx", *owner, [A, B]) == (NONE, -1, -1, (B,))
    assert world.coordinator.verify("tx", owner[0], owner[1] + 1, [A]).error is ErrorCode.PRODUCER_FENCED
    assert world.coordinator.verify("other", *owner, [A]).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_refused_requests_create_no_id() -> None:
    world = World()
    for n in range(100):
        name = f"stranger{n}"
        response = now(world.coordinator.add_partitions(name, 7, 0, [A], client_version=2))
        assert response.error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        response = now(world.coordinator.end(name, 7, 0, committed=True, client_version=2))
        assert response.error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        response = now(world.coordinator.init_producer_id(name, timeout_ms=TIMEOUT_MS, producer_id=7))
        assert response.error is ErrorCode.INVALID_REQUEST
    assert world.coordinator._entries == {}
    assert not world.coordinator._responses


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
def test_init_producer_id_with_an_invalid_timeout_is_refused_by_any_coordinator(timeout_ms: int) -> None:
    coordinator = World().coordinator
    assert now(coordinator.init_producer_id("x", timeout_ms=timeout_ms)).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    coordinator.resign(coordinator.partition_of("x"))
    assert now(coordinator.init_producer_id("x", timeout_ms=timeout_ms)).error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert now(coordinator.init_producer_id("x", timeout_ms=900_000)).error is ErrorCode.NOT_COORDINATOR


def test_empty_transactional_id_is_refused() -> None:
    world = World()
    assert now(world.coordinator.init_producer_id("", timeout_ms=TIMEOUT_MS)).error is ErrorCode.INVALID_REQUEST
    assert world.coordinator.describe("") == (ErrorCode.INVALID_REQUEST, None)
    assert world.coordinator.describe("x") == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, None)
