"""The transaction coordinator: starts, periodic checks, many transactions at once, exhausted epochs, and listing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.broker.transactions import coordinator, records
from ottla.broker.transactions.coordinator import RETRY_MS
from ottla.broker.transactions.settings import TransactionSettings
from ottla.broker.transactions.state import Transaction, TransactionState
from ottla.protocol.errors import ErrorCode
from ottla_testing.broker.coordinating import NONE, TIMEOUT_MS, World, now

A, B = ("t", 0), ("t", 1)
DAY_MS = 86_400_000


# --- starts


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_start_completes_decided_transactions(committed: bool, version: int) -> None:
    world = World()
    owner = world.init()
    world.add(owner, A, B, version=version)
    world.disk.fails["t"] = ErrorCode.KAFKA_STORAGE_ERROR
    world.end(owner, committed, version=version)
    assert world.disk.markers == {}
    world.disk.fails.clear()
    world.restart()
    epoch = owner[1] + (version == 2)
    assert world.disk.markers == {one: [(owner[0], epoch, committed)] for one in (A, B)}
    assert world.state() == ("CompleteCommit" if committed else "CompleteAbort")


def test_start_rewrites_markers_of_unknown_outcome() -> None:
    world = World()
    owner = world.init()
    world.add(owner, A)
    world.end(owner)
    (index,) = world.disk.log
    world.disk.log[index].pop()  # the record of completion was lost
    world.restart()
    assert len(world.disk.markers[A]) == 2
    assert world.state() == "CompleteCommit"


def test_open_transaction_survives_a_restart() -> None:
    world = World()
    owner = world.init()
    world.add(owner, A)
    world.restart()
    assert world.state() == "Ongoing"
    world.add(owner, B)
    world.end(owner)
    assert set(world.disk.markers) == {A, B}


def test_timeout_includes_the_time_before_a_restart() -> None:
    world = World()
    owner = world.init()
    world.add(owner, A)
    world.clock.advance(TIMEOUT_MS - 5000)
    world.restart()
    world.clock.advance(10_000)
    assert world.state() == "CompleteAbort"
    assert world.coordinator.verify("tx", *owner, [A]).error is ErrorCode.PRODUCER_FENCED


def test_markers_that_fail_at_start_are_retried() -> None:
    world = World()
    owner = world.init()
    world.add(owner, A)
    world.disk.fails["t"] = ErrorCode.KAFKA_STORAGE_ERROR
    world.end(owner)
    world.restart()
    world.disk.fails.clear()
    world.clock.advance(RETRY_MS)
    assert world.state() == "CompleteCommit"
    assert len(world.disk.markers[A]) == 1


def test_ids_are_unavailable_during_and_after_failed_loading() -> None:
    world = World()
    owner = world.init()
    index = world.coordinator.partition_of("tx")
    world.coordinator.begin_loading(index)
    assert world.coordinator.verify("tx", *owner, [A]).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.coordinator.list() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], [])
    assert world.coordinator.load(index, [(b"\x00\x00\x00", b"")]) is not NONE
    response = now(world.coordinator.init_producer_id("tx", timeout_ms=TIMEOUT_MS))
    assert response.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.coordinator.load(index, world.disk.log[index]) is NONE
    assert world.state() == "Empty"


def test_loading_ignores_unknown_keys_and_applies_tombstones() -> None:
    world = World()
    here = Transaction("here", 7, 3, TIMEOUT_MS, TransactionState.COMPLETE_COMMIT, start_ms=5, last_update_ms=6)
    log = [
        (b"\x00\x09whatever", b"\x00\x00"),
        records.transaction_record(replace(here, transactional_id="gone")),
        records.transaction_record(here, 0),
        records.transaction_tombstone("gone"),
    ]
    assert world.coordinator.load(1, log) is NONE
    assert world.transaction("here") == here
    assert world.coordinator.describe("gone")[0] is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_id_keeps_its_log_partition_when_partitions_are_added() -> None:
    world = World(partitions=1)
    names = [f"tx{n}" for n in range(20)]
    owners = {name: world.init(name) for name in names}
    world.partitions = 7
    world.restart()
    for name in names:
        assert world.coordinator.partition_of(name) == 0
        assert world.init(name) == (owners[name][0], owners[name][1] + 1)
    assert set(world.disk.log) == {0}
    world.init("another")
    assert set(world.disk.log) == {0, world.coordinator.partition_of("another")}


# --- periodic checks


def test_transaction_is_aborted_at_its_timeout() -> None:
    world = World()
    owner = world.init()
    world.add(owner, A)
    world.clock.advance(TIMEOUT_MS)
    assert world.state() == "Ongoing"
    world.clock.advance(world.settings.time_out_interval_ms)
    assert world.disk.markers == {A: [(owner[0], owner[1] + 1, False)]}
    assert world.state() == "CompleteAbort"
    response = now(world.coordinator.end("tx", *owner, committed=True, client_version=2))
    assert response.error is ErrorCode.INVALID_TXN_STATE
    response = now(world.coordinator.end("tx", *owner, committed=True, client_version=0))
    assert response.error is ErrorCode.PRODUCER_FENCED
    assert world.init() == (owner[0], owner[1] + 2)


def test_failed_write_of_a_timeout_is_retried() -> None:
    world = World()
    owner = world.init()
    world.add(owner, A)
    world.disk.fails["log"] = ErrorCode.KAFKA_STORAGE_ERROR
    world.clock.advance(TIMEOUT_MS + 5 * world.settings.time_out_interval_ms)
    assert world.state() == "Ongoing"
    response = now(world.coordinator.end("tx", *owner, committed=True, client_version=2))
    assert response.error is ErrorCode.PRODUCER_FENCED  # the fencing record may be in the log
    world.disk.fails.clear()
    world.clock.advance(world.settings.time_out_interval_ms)
    assert world.disk.markers == {A: [(owner[0], owner[1] + 1, False)]}


def test_empty_transaction_never_times_out() -> None:
    world = World()
    world.init()
    world.clock.advance(10 * TIMEOUT_MS)
    assert world.disk.order == ["Empty"]


def test_unused_id_expires() -> None:
    world = World()
    owner = world.init("idle")
    world.add(owner, A, name="idle")
    world.end(owner, name="idle")
    running = world.init("running", timeout_ms=900_000)
    world.clock.leap(6 * DAY_MS)
    world.init("used")
    world.add(running, B, name="running")
    assert world.state("idle") == "CompleteCommit"
    world.clock.leap(DAY_MS)
    world.clock.advance(world.settings.expiration_interval_ms)
    assert world.coordinator.describe("idle")[0] is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert world.state("used") == "Empty"
    assert world.state("running") == "CompleteAbort"  # by its timeout, just now
    world.restart()
    assert world.coordinator.describe("idle")[0] is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    fresh = world.init("idle")
    assert fresh != owner
    assert fresh[1] == 0


def test_failed_tombstone_write_keeps_the_id() -> None:
    world = World()
    owner = world.init()
    world.disk.fails["log"] = ErrorCode.KAFKA_STORAGE_ERROR
    world.clock.leap(8 * DAY_MS)
    assert world.transaction().producer_id == owner[0]
    world.disk.fails.clear()
    world.clock.advance(world.settings.expiration_interval_ms)
    assert world.coordinator.describe("tx")[0] is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_check_of_many_ids_yields_to_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(partitions=1)
    monkeypatch.setattr(coordinator, "SWEEP_SIZE", 5)
    count = 3 * 5 - 1
    for n in range(count):
        world.init(f"tx{n}")
    world.clock.leap(7 * DAY_MS - 1)
    assert len(world.coordinator.list()[2]) == count
    world.clock._now_ms += DAY_MS  # before the next check
    world.coordinator.expire()
    assert len(world.coordinator.list()[2]) == count - 5
    world.init(f"tx{count - 1}")
    world.clock.advance(0)
    assert [one.transactional_id for one in world.coordinator.list()[2]] == [f"tx{count - 1}"]


def test_failed_check_runs_again() -> None:
    world = World()
    owner = world.init()
    world.add(owner, A)
    entries, world.coordinator._entries = world.coordinator._entries, None  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        world.clock.advance(world.settings.time_out_interval_ms)
    world.coordinator._entries = entries
    world.clock.advance(TIMEOUT_MS + world.settings.time_out_interval_ms)
    assert world.state() == "CompleteAbort"


# --- many transactions, and exhausted epochs


def test_two_hundred_transactions_at_once() -> None:
    """All begin before the first ends; half of them commit; a restart in between changes nothing."""
    world = World(partitions=50)
    names = [f"tx{n}" for n in range(200)]
    owners = {name: world.init(name) for name in names}
    assert len({producer_id for producer_id, _ in owners.values()}) == 200
    for step in range(3):
        for n, name in enumerate(names):
            world.add(owners[name], ("t", (n + step) % 40), name=name)
    for n, name in enumerate(names[:100]):
        world.end(owners[name], n % 2 == 0, name=name)
    world.restart()
    for n, name in enumerate(names[100:]):
        world.end(owners[name], n % 2 == 0, name=name)
    for n, name in enumerate(names):
        marker = owners[name][0], owners[name][1] + 1, n % 2 == 0
        held = {("t", (n + step) % 40) for step in range(3)}
        assert {one for one, markers in world.disk.markers.items() if marker in markers} == held
        assert world.state(name) == ("CompleteCommit" if n % 2 == 0 else "CompleteAbort")
    assert sum(map(len, world.disk.markers.values())) == 600


async def test_two_hundred_transactions_at_once_that_wait_for_syncs() -> None:
    world = World(partitions=50)
    names = [f"tx{n}" for n in range(200)]
    owners = {name: world.init(name) for name in names}
    for n, name in enumerate(names):
        world.add(owners[name], ("t", n % 7), ("u", n % 5), name=name)
    world.disk.slow = {"log", "t", "u"}
    responses = [world.coordinator.end(name, *owners[name], committed=True, client_version=2) for name in names]
    while world.disk.syncs:
        await world.disk.sync()
    assert {(await response).error for response in responses if not isinstance(response, tuple)} == {NONE}
    assert {world.state(name) for name in names} == {"CompleteCommit"}
    assert sum(map(len, world.disk.markers.values())) == 400


def at_epoch(world: World, epoch: int, state: TransactionState = TransactionState.EMPTY) -> tuple[int, int]:
    held = (A,) if state is TransactionState.ONGOING else ()
    now_ms = world.clock.now_ms()
    there = Transaction("tx", 7, epoch, TIMEOUT_MS, state, held, start_ms=now_ms if held else -1, last_update_ms=now_ms)
    record = records.transaction_record(there)
    world.disk.log.setdefault(world.coordinator.partition_of("tx"), []).append(record)
    world.restart()
    return 7, epoch


def test_last_epoch_is_followed_by_a_new_producer_id() -> None:
    world = World()
    at_epoch(world, 32765)
    assert world.init() == (7, 32766)
    assert world.init() == (1000, 0)
    world.restart()
    assert world.init() == (1000, 1)


def test_end_txn_at_the_last_epoch_returns_a_new_producer_id() -> None:
    world = World()
    owner = at_epoch(world, 32766, TransactionState.ONGOING)
    response = world.end(owner)
    assert response == (NONE, 1000, 0, ())
    assert world.disk.markers == {A: [(7, 32767, True)]}
    assert world.end(owner) == response  # the repeated request
    world.add((1000, 0), B)
    world.end((1000, 0))
    assert world.disk.markers[B] == [(1000, 1, True)]


def test_restart_during_end_txn_at_the_last_epoch() -> None:
    world = World()
    owner = at_epoch(world, 32766, TransactionState.ONGOING)
    world.disk.fails["t"] = ErrorCode.KAFKA_STORAGE_ERROR
    assert world.end(owner) == (NONE, 1000, 0, ())
    world.disk.fails.clear()
    world.restart()
    assert world.disk.markers == {A: [(7, 32767, True)]}
    assert world.transaction().producer_id == 1000
    world.add((1000, 0), B)


def test_end_txn_at_the_last_epoch_without_a_producer_id() -> None:
    world = World()
    owner = at_epoch(world, 32766, TransactionState.ONGOING)
    world.no_ids = ErrorCode.KAFKA_STORAGE_ERROR
    response = now(world.coordinator.end("tx", *owner, committed=True, client_version=2))
    assert response.error is ErrorCode.NOT_COORDINATOR
    assert world.state() == "Ongoing"
    world.no_ids = None
    assert world.end(owner) == (NONE, 1000, 0, ())


def test_open_transaction_is_fenced_at_the_last_epoch() -> None:
    world = World()
    at_epoch(world, 32766, TransactionState.ONGOING)
    response = now(world.coordinator.init_producer_id("tx", timeout_ms=TIMEOUT_MS))
    assert response.error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.disk.markers == {A: [(7, 32767, False)]}
    assert world.init() == (1000, 1)


def test_timeout_at_the_last_epoch_waits_for_a_producer_id() -> None:
    world = World()
    at_epoch(world, 32766, TransactionState.ONGOING)
    world.no_ids = ErrorCode.KAFKA_STORAGE_ERROR
    world.clock.advance(TIMEOUT_MS + 2 * world.settings.time_out_interval_ms)
    assert world.state() == "Ongoing"
    world.no_ids = None
    world.clock.advance(world.settings.time_out_interval_ms)
    assert world.disk.markers == {A: [(7, 32767, False)]}
    assert (world.transaction().producer_id, world.state()) == (1000, "CompleteAbort")


def test_old_transaction_version_writes_old_records_and_keeps_the_epoch() -> None:
    world = World(TransactionSettings(server_version=0))
    owner = world.init()
    world.add(owner, A, version=0)
    assert world.end(owner, version=0)[1:3] == (-1, -1)
    (log,) = world.disk.log.values()
    assert {value[:2] for _, value in log if value} == {b"\x00\x00"}
    assert world.disk.markers == {A: [(*owner, True)]}


# --- listing


def test_transactions_are_listed_by_filters() -> None:
    world = World()
    first = world.init("a1")
    world.add(first, A, name="a1")
    world.clock.advance(5000)
    second = world.init("a2")
    world.add(second, B, name="a2")
    world.init("b")

    def names(**filters: object) -> list[str]:
        error, unknown, found = world.coordinator.list(**filters)  # type: ignore[arg-type]
        assert error is NONE
        assert unknown == []
        return sorted(one.transactional_id for one in found)

    assert names() == ["a1", "a2", "b"]
    assert names(states=["Ongoing"]) == ["a1", "a2"]
    assert names(states=["Ongoing", "Empty"], producer_ids=[second[0]]) == ["a2"]
    assert names(duration_ms=4999, states=["Ongoing"]) == ["a1"]
    assert names(duration_ms=5000, states=["Ongoing"]) == []
    assert names(pattern="a.") == ["a1", "a2"]
    assert names(pattern="a") == []
    assert names(pattern="") == ["a1", "a2", "b"]
    assert names(states=["PrepareEpochFence"]) == []


def test_unknown_states_are_returned_and_match_nothing() -> None:
    world = World()
    world.init()
    assert world.coordinator.list(states=["empty", "Ongoing"]) == (NONE, ["empty"], [])
    assert world.coordinator.list(states=["Nothing"]) == (NONE, ["Nothing"], [])


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", "(a)\\1", "(?<!a)b", "[", "a" * 2000, "a{99999999999}"])
def test_invalid_pattern_is_refused(pattern: str) -> None:
    world = World()
    world.init()
    assert world.coordinator.list(pattern=pattern) == (ErrorCode.INVALID_REGULAR_EXPRESSION, [], [])


def test_another_node_refuses_two_phase_commit_before_it_looks_for_the_coordinator() -> None:
    elsewhere = World().coordinator.at_node(lambda index: False)
    refused = now(elsewhere.init_producer_id("tx", timeout_ms=1000, two_phase=True))
    assert refused.error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert now(elsewhere.init_producer_id("tx", timeout_ms=1000)).error is ErrorCode.NOT_COORDINATOR
    assert now(elsewhere.init_producer_id("", timeout_ms=1000)).error is ErrorCode.INVALID_REQUEST
