"""Rules of the transaction table that span several cells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.broker.transactions.moves import STATES
from ottla.broker.transactions.records import decode, transaction_record
from ottla.broker.transactions.settings import TransactionSettings
from ottla.broker.transactions.state import (
    NO_TIMEOUT_MS,
    AddPartitions,
    Append,
    Appended,
    AppendFailed,
    EndTxn,
    Expire,
    InitProducerId,
    Loaded,
    MarkersWritten,
    Phase,
    Response,
    Slot,
    TimeOut,
    Transaction,
    TransactionState,
    VerifyPartitions,
    WriteMarkers,
)
from ottla.protocol.errors import ErrorCode
from ottla_testing.broker.slots import (
    ABORT,
    C_ABORT,
    C_COMMIT,
    COMMIT,
    DEAD,
    EMPTY,
    HELD,
    IDLE,
    NOW,
    OLD_SERVER,
    ONGOING,
    P_ABORT,
    P_COMMIT,
    SETTINGS,
    WRITES,
    feed,
    slot_in,
    transaction,
)
from ottla_testing.each import each

# --- InitProducerId --------------------------------------------------------------------------------------------------


def test_init_refuses_invalid_requests() -> None:
    nameless = Slot("")
    for event in (
        InitProducerId(9, 60_000),
        AddPartitions(9, 7, 4, HELD),
        VerifyPartitions(9, 7, 4, HELD),
        EndTxn(9, 7, 4, COMMIT),
    ):
        assert feed(nameless, event) == (nameless, ["response 42"])
    for state in STATES:
        assert feed(slot_in(state), InitProducerId(9, 1, 7, -1))[1] == ["response 42"]
        assert feed(slot_in(state), InitProducerId(9, 1, -1, 4))[1] == ["response 42"]


def test_init_allocates_a_producer_id_only_if_needed() -> None:
    assert feed(slot_in(DEAD), InitProducerId(9, 900_000)) == (slot_in(DEAD), ["allocate"])
    assert feed(slot_in(EMPTY), InitProducerId(9, 900_000))[1] == ["write Empty 7/5"]


def test_init_of_a_new_id() -> None:
    for given in ((-1, -1), (3, 12)):
        slot, done = feed(slot_in(DEAD), InitProducerId(9, 30_000, *given, 8))
        assert done == ["write Empty 8/0"]
        assert slot.writing is not None
        fresh = Transaction("tx", 8, 0, 30_000, last_update_ms=NOW, previous_producer_id=8)
        assert slot.writing.written == fresh
        assert feed(slot, Appended(slot.writing)) == (Slot("tx", fresh), ["response 0 8/0"])


@pytest.mark.parametrize("state", IDLE)
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((-1, -1), "write Empty 7/5"),
        ((7, 4), "write Empty 7/5"),
        ((7, 3), "write Empty 7/4"),  # the response was lost
        ((7, 2), "response 90"),
        ((7, 5), "response 90"),
        ((6, 4), "response 90"),
        ((6, 32766), "response 90"),
    ],
)
def test_init_of_an_idle_id(state: TransactionState, given: tuple[int, int], expected: str) -> None:
    assert feed(slot_in(state), InitProducerId(9, 60_000, *given, 8))[1] == [expected]


@pytest.mark.parametrize("state", IDLE)
def test_init_by_another_owner_fences_the_previous_one_for_good(state: TransactionState) -> None:
    slot, _ = feed(slot_in(state), InitProducerId(9, 60_000))
    assert slot.writing is not None
    slot, _ = feed(slot, Appended(slot.writing))
    for epoch in (3, 4):
        assert feed(slot, InitProducerId(9, 60_000, 7, epoch))[1] == ["response 90"]
    assert feed(slot, InitProducerId(9, 60_000, 7, 5))[1] == ["write Empty 7/6"]


def test_start_time_of_the_last_transaction_stays_visible_before_4_0() -> None:
    for settings, start_ms in (SETTINGS, -1), (OLD_SERVER, 900_000):
        slot, _ = feed(slot_in(C_COMMIT), InitProducerId(9, 60_000), settings)
        assert slot.writing is not None and slot.writing.written is not None
        assert slot.writing.written.start_ms == start_ms
        read = decode(*transaction_record(slot.writing.written))
        assert read is not None and read.transaction is not None
        assert read.transaction.start_ms == -1


@pytest.mark.parametrize("state", IDLE)
@pytest.mark.parametrize("epoch", [32766, 32767])
def test_init_at_the_last_epoch_uses_a_new_producer_id(state: TransactionState, epoch: int) -> None:
    slot = slot_in(state, producer_epoch=epoch, last_producer_epoch=32765)
    assert feed(slot, InitProducerId(9, 60_000)) == (slot, ["allocate"])
    assert feed(slot, InitProducerId(9, 60_000, new_producer_id=8))[1] == ["write Empty 8/0"]
    assert feed(slot, InitProducerId(9, 60_000, 7, 32765))[1] == [f"write Empty 7/{epoch}"]
    assert feed(slot, InitProducerId(9, 60_000, 7, 32764))[1] == ["response 90"]
    slot, done = feed(slot, InitProducerId(9, 60_000, 7, epoch, 8))
    assert done == ["write Empty 8/0"]
    for repeated in (["write Empty 8/0"], ["response 90"]):  # its response may be lost once
        assert slot.writing is not None
        slot, done = feed(slot, Appended(slot.writing))
        assert done == ["response 0 8/0"]
        slot, done = feed(slot, InitProducerId(9, 60_000, 7, epoch))
        assert done == repeated


@pytest.mark.parametrize("state", IDLE)
def test_init_starts_with_no_transaction(state: TransactionState) -> None:
    slot, _ = feed(slot_in(state, client_version=2), InitProducerId(9, 30_000))
    assert slot.writing is not None
    assert slot.writing.written == transaction(
        EMPTY, producer_epoch=5, last_producer_epoch=-1, timeout_ms=30_000, last_update_ms=NOW, client_version=2
    )


@pytest.mark.parametrize(
    ("settings", "epoch", "fenced", "left", "taken"),
    [
        (OLD_SERVER, 4, 5, "7/5", "7/6"),
        (OLD_SERVER, 32766, 32767, "7/32767", "8/0"),
        (SETTINGS, 4, 5, "7/5", "7/6"),
        (SETTINGS, 32765, 32766, "7/32766", "9/0"),
        (SETTINGS, 32766, 32767, "8/0", "8/1"),
    ],
)
@pytest.mark.parametrize("how", [InitProducerId, TimeOut])
def test_init_fences_and_aborts_an_open_transaction(
    settings: TransactionSettings, epoch: int, fenced: int, left: str, taken: str, how: type
) -> None:
    """`left` is the resulting state of the previous owner, `taken` that of the next one."""
    slot = slot_in(ONGOING, producer_epoch=epoch, last_producer_epoch=-1)
    assert feed(slot, InitProducerId(9, 60_000, 6, 4), settings)[1] == ["response 90"]
    event = InitProducerId(9, 60_000) if how is InitProducerId else TimeOut()
    slot, done = feed(slot, event, settings)
    if left == "8/0":
        assert done == ["allocate"]
        slot, done = feed(slot, replace(event, new_producer_id=8), settings)
    assert done == [f"write PrepareAbort 7/{fenced}"]
    assert slot.writing is not None and slot.writing.written is not None
    assert slot.writing.written.partitions == HELD
    slot, done = feed(slot, Appended(slot.writing), settings)
    assert done == [*(["response 51"] if how is InitProducerId else []), f"markers abort 7/{fenced}"]
    slot, done = feed(slot, MarkersWritten(WriteMarkers("tx", 7, fenced, False, HELD)), settings)
    assert done == [f"write CompleteAbort {left}"]
    assert slot.writing is not None
    slot, done = feed(slot, Appended(slot.writing), settings)
    gone = "response 90" if left.startswith("7") else "response 49"
    for committed in (COMMIT, ABORT):
        assert feed(slot, EndTxn(9, 7, epoch, committed), settings)[1] == [gone], "a zombie"
    assert feed(slot, AddPartitions(9, 7, epoch, HELD), settings)[1] == [gone]
    new_producer_id = 8 if settings is OLD_SERVER else 9
    assert feed(slot, InitProducerId(9, 60_000, new_producer_id=new_producer_id), settings)[1] == [
        f"write Empty {taken}"
    ]
    recovers = InitProducerId(9, 60_000, 7, epoch)
    if settings is OLD_SERVER:
        assert feed(slot, recovers, settings)[1] == ["response 90"]
        return
    # The abort has happened; a repeated EndTxn gets its result while there is no new owner.
    assert feed(slot, EndTxn(9, 7, epoch, COMMIT, 2))[1] == ["response 48"]
    assert feed(slot, EndTxn(9, 7, epoch, ABORT, 2))[1] == [f"response 0 {left}"]
    assert feed(slot, recovers)[1] == [f"write Empty {left}"]


# --- AddPartitions, VerifyPartitions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [state for state in STATES if state is not DEAD])
def test_only_the_owner_adds_and_verifies(state: TransactionState) -> None:
    slot = slot_in(state)
    for producer_id, epoch, code in ((6, 4, 49), (7, 3, 90), (7, 5, 90)):
        for event in (
            AddPartitions(9, producer_id, epoch, HELD),
            AddPartitions(9, producer_id, epoch, HELD, 2),
            VerifyPartitions(9, producer_id, epoch, HELD),
        ):
            assert feed(slot, event) == (slot, [f"response {code}"])


def test_partition_in_the_transaction_is_not_added_again() -> None:
    slot = slot_in(ONGOING)
    assert feed(slot, AddPartitions(9, 7, 4, HELD[::-1])) == (slot, ["response 0"])
    assert feed(slot, AddPartitions(9, 7, 4, HELD[:1])) == (slot, ["response 0"])
    after, _ = feed(slot, AddPartitions(9, 7, 4, (("u", 0), HELD[0], ("u", 0)), 2))
    assert after.writing is not None
    assert after.writing.written == transaction(
        ONGOING, partitions=(*HELD, ("u", 0)), last_update_ms=NOW, client_version=2
    )


@pytest.mark.parametrize("state", IDLE)
def test_a_transaction_starts_with_its_first_partition(state: TransactionState) -> None:
    after, _ = feed(slot_in(state), AddPartitions(9, 7, 4, (("u", 0),)))
    assert after.writing is not None
    assert after.writing.written == transaction(ONGOING, partitions=(("u", 0),), start_ms=NOW, last_update_ms=NOW)


# --- pending changes -------------------------------------------------------------------------------------------------


@each("state", STATES)
@each("phase", [Phase.WRITING, Phase.MARKING, Phase.MARKED])
def test_requests_during_a_pending_change_are_refused(state: TransactionState, phase: Phase) -> None:
    if phase is not Phase.WRITING and state not in (P_COMMIT, P_ABORT):
        return
    writing = WRITES[state] if phase is Phase.WRITING else None
    slot = replace(slot_in(state, phase), writing=writing)
    if state is not DEAD:
        for event in (
            AddPartitions(9, 7, 4, (("t", 2),)),
            EndTxn(9, 7, 4, COMMIT),
            EndTxn(9, 7, 4, ABORT),
            # An epoch ahead of or after the settled one: whether it is fenced is known only after the change.
            *(AddPartitions(9, 7, epoch, (("t", 2),), version) for epoch in (3, 4, 5) for version in (0, 2)),
            *(AddPartitions(9, 6, epoch, (("t", 2),), version) for epoch in (3, 4, 5) for version in (0, 2)),
            *(EndTxn(9, 7, epoch, committed, 2) for epoch in (3, 4, 5) for committed in (COMMIT, ABORT)),
        ):
            assert feed(slot, event) == (slot, ["response 51"]), event
        assert feed(slot, EndTxn(9, 6, 4, COMMIT))[1] == ["response 49"]
        # Before 4.0 it is known at once.
        assert feed(slot, AddPartitions(9, 7, 3, (("t", 2),)), OLD_SERVER)[1] == ["response 90"]
        assert feed(slot, AddPartitions(9, 6, 4, (("t", 2),)), OLD_SERVER)[1] == ["response 49"]
        assert feed(slot, AddPartitions(9, 7, 4, (("t", 2),)), OLD_SERVER)[1] == ["response 51"]
    assert feed(slot, InitProducerId(9, 60_000, 6, 1)) == (slot, ["response 51"])
    for event in (Expire(), Loaded()):
        assert feed(slot, event) == (slot, [])
    if phase is not Phase.MARKED:
        assert feed(slot, TimeOut()) == (slot, [])


def test_outcome_of_another_write_is_ignored() -> None:
    other = Append("tx", transaction(EMPTY), 3, Response(ErrorCode.NONE))
    for state in STATES:
        slot = replace(slot_in(state, Phase.WRITING), writing=WRITES[state])
        assert feed(slot, Appended(other)) == (slot, [])
        assert feed(slot, AppendFailed(other, ErrorCode.NOT_COORDINATOR)) == (slot, [])
    for stale in (WriteMarkers("tx", 7, 3, True, HELD), WriteMarkers("tx", 6, 4, True, HELD)):
        slot = slot_in(P_COMMIT, Phase.MARKING)
        assert feed(slot, MarkersWritten(stale)) == (slot, [])
    assert feed(slot_in(P_COMMIT), MarkersWritten(WriteMarkers("tx", 7, 4, True, HELD)))[1] == []


@pytest.mark.parametrize("state", [P_COMMIT, P_ABORT])
def test_failed_completion_write_is_retried(state: TransactionState) -> None:
    slot = replace(slot_in(state, Phase.WRITING), writing=WRITES[state])
    slot, _ = feed(slot, AppendFailed(WRITES[state], ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert (slot.phase, slot.writing) == (Phase.MARKED, None)
    slot, done = feed(slot, TimeOut())
    assert done == [f"write {state.value.replace('Prepare', 'Complete')} 7/4"]


@pytest.mark.parametrize("settings", [OLD_SERVER, SETTINGS])
def test_failed_fence_write_still_fences(settings: TransactionSettings) -> None:
    slot, _ = feed(slot_in(ONGOING), InitProducerId(9, 60_000), settings)
    assert slot.writing is not None
    slot, done = feed(slot, AppendFailed(slot.writing, ErrorCode.NOT_COORDINATOR), settings)
    assert (slot.state, slot.pending, slot.fence_failed, done) == (ONGOING, False, True, ["response 16"])
    assert feed(slot, EndTxn(9, 7, 4, COMMIT), settings)[1] == ["response 90"]
    slot, done = feed(slot, TimeOut(), settings)
    assert done == ["write PrepareAbort 7/5"], "the epoch is bumped once"
    assert slot.writing is not None and slot.writing.written is not None
    assert slot.writing.written.last_producer_epoch == (4 if settings is SETTINGS else -1)
    slot, _ = feed(slot, Appended(slot.writing), settings)
    assert not slot.fence_failed


def test_end_txn_with_exhausted_epochs_uses_the_next_producer_id() -> None:
    for committed, prepared, completed in ((COMMIT, P_COMMIT, C_COMMIT), (ABORT, P_ABORT, C_ABORT)):
        slot = slot_in(ONGOING, producer_epoch=32766)
        assert feed(slot, EndTxn(9, 7, 32766, committed, 2)) == (slot, ["allocate"])
        slot, done = feed(slot, EndTxn(9, 7, 32766, committed, 2, 8))
        assert done == [f"write {prepared.value} 7/32767"]
        assert slot.writing is not None and slot.writing.written is not None
        assert slot.writing.written.next_producer_id == 8
        slot, done = feed(slot, Appended(slot.writing))
        assert done[0] == "response 0 8/0"
        slot, done = feed(slot, MarkersWritten(WriteMarkers("tx", 7, 32767, committed, HELD)))
        assert done == [f"write {completed.value} 8/0"]
        assert slot.writing is not None
        assert slot.writing.written == transaction(
            completed, producer_id=8, producer_epoch=0, last_producer_epoch=32766, last_update_ms=NOW, client_version=2
        )
    _, done = feed(slot_in(ONGOING, producer_epoch=32766), EndTxn(9, 7, 32766, COMMIT))
    assert done == ["write PrepareCommit 7/32766"], "without a bump no epoch is used"


# --- periodic checks -------------------------------------------------------------------------------------------------


def test_transaction_times_out_after_its_own_timeout() -> None:
    for start_ms, timeout_ms, due in (
        (NOW - 1000, 1000, False),
        (NOW - 1001, 1000, True),
        (0, NO_TIMEOUT_MS, False),
        (-(2**40), NO_TIMEOUT_MS, False),
    ):
        slot = slot_in(ONGOING, start_ms=start_ms, timeout_ms=timeout_ms)
        after, done = feed(slot, TimeOut())
        assert done == (["write PrepareAbort 7/5"] if due else [])
        if after.writing is not None:
            assert feed(after, Appended(after.writing))[1] == ["markers abort 7/5"], "no request waits for a response"


@pytest.mark.parametrize("state", IDLE)
def test_unused_id_expires(state: TransactionState) -> None:
    assert feed(slot_in(state, last_update_ms=NOW - 49_999), Expire())[1] == []
    slot, done = feed(slot_in(state, last_update_ms=NOW - 50_000), Expire())
    assert done == ["write tombstone"]
    assert slot.writing is not None
    kept, _ = feed(slot, AppendFailed(slot.writing, ErrorCode.NOT_COORDINATOR))
    assert (kept.state, kept.pending) == (state, False)
    assert feed(slot, Appended(slot.writing)) == (Slot("tx"), ["forget"])


def test_record_version_follows_the_transaction_version() -> None:
    assert [TransactionSettings(server_version=version).record_version for version in (0, 1, 2)] == [0, 1, 1]
