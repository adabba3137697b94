"""The transaction table: each cell, and EndTxn in both versions."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from ottla.broker.transactions.moves import STATES
from ottla.broker.transactions.state import (
    EVENTS,
    AddPartitions,
    Appended,
    AppendFailed,
    EndTxn,
    Event,
    Expire,
    InitProducerId,
    Loaded,
    MarkersWritten,
    Phase,
    Slot,
    TimeOut,
    TransactionState,
    VerifyPartitions,
    WriteMarkers,
)
from ottla.broker.transactions.table import TABLE
from ottla.protocol.errors import ErrorCode
from ottla_testing.broker.slots import (
    ABORT,
    C_ABORT,
    C_COMMIT,
    COMMIT,
    DEAD,
    EMPTY,
    HELD,
    NOW,
    ONGOING,
    P_ABORT,
    P_COMMIT,
    WRITES,
    feed,
    slot_in,
    transaction,
)
from ottla_testing.each import each

# --- each cell -------------------------------------------------------------------------------------------------------


def cell(state: TransactionState, kind: type) -> tuple[Slot, Event]:
    """The simplest event of its kind, by the owner; a client of version 2 commits."""
    slot = slot_in(state)
    if kind in (Appended, AppendFailed):
        slot = replace(slot, phase=Phase.WRITING, writing=WRITES[state])
    elif kind is MarkersWritten and state in (P_COMMIT, P_ABORT):
        slot = replace(slot, phase=Phase.MARKING)
    event = {
        InitProducerId: InitProducerId(9, 60_000, new_producer_id=8),
        AddPartitions: AddPartitions(9, 7, 4, (("t", 2),)),
        VerifyPartitions: VerifyPartitions(9, 7, 4, (("t", 1), ("t", 2))),
        EndTxn: EndTxn(9, 7, 4, True, 2),
        TimeOut: TimeOut(),
        Expire: Expire(),
        Loaded: Loaded(),
        Appended: Appended(WRITES[state]),
        AppendFailed: AppendFailed(WRITES[state], ErrorCode.COORDINATOR_NOT_AVAILABLE),
        MarkersWritten: MarkersWritten(WriteMarkers("tx", 7, 4, state is P_COMMIT, HELD)),
    }[kind]
    return slot, event


# (state, event) -> (state in the log afterwards, effects).
EXPECTED: dict[tuple[TransactionState, type], tuple[TransactionState, list[str]]] = {
    (DEAD, InitProducerId): (DEAD, ["write Empty 8/0"]),
    (EMPTY, InitProducerId): (EMPTY, ["write Empty 7/5"]),
    (ONGOING, InitProducerId): (ONGOING, ["write PrepareAbort 7/5"]),
    (P_COMMIT, InitProducerId): (P_COMMIT, ["response 51"]),
    (P_ABORT, InitProducerId): (P_ABORT, ["response 51"]),
    (C_COMMIT, InitProducerId): (C_COMMIT, ["write Empty 7/5"]),
    (C_ABORT, InitProducerId): (C_ABORT, ["write Empty 7/5"]),
    (DEAD, AddPartitions): (DEAD, ["response 49"]),
    (EMPTY, AddPartitions): (EMPTY, ["write Ongoing 7/4"]),
    (ONGOING, AddPartitions): (ONGOING, ["write Ongoing 7/4"]),
    (P_COMMIT, AddPartitions): (P_COMMIT, ["response 51"]),
    (P_ABORT, AddPartitions): (P_ABORT, ["response 51"]),
    (C_COMMIT, AddPartitions): (C_COMMIT, ["write Ongoing 7/4"]),
    (C_ABORT, AddPartitions): (C_ABORT, ["write Ongoing 7/4"]),
    (DEAD, VerifyPartitions): (DEAD, ["response 49"]),
    (EMPTY, VerifyPartitions): (EMPTY, ["response 0 -t1 -t2"]),
    (ONGOING, VerifyPartitions): (ONGOING, ["response 0 -t2"]),
    (P_COMMIT, VerifyPartitions): (P_COMMIT, ["response 51"]),
    (P_ABORT, VerifyPartitions): (P_ABORT, ["response 51"]),
    (C_COMMIT, VerifyPartitions): (C_COMMIT, ["response 0 -t1 -t2"]),
    (C_ABORT, VerifyPartitions): (C_ABORT, ["response 0 -t1 -t2"]),
    (DEAD, EndTxn): (DEAD, ["response 49"]),
    (EMPTY, EndTxn): (EMPTY, ["response 48"]),
    (ONGOING, EndTxn): (ONGOING, ["write PrepareCommit 7/5"]),
    (P_COMMIT, EndTxn): (P_COMMIT, ["response 90"]),
    (P_ABORT, EndTxn): (P_ABORT, ["response 90"]),
    (C_COMMIT, EndTxn): (C_COMMIT, ["response 48"]),
    (C_ABORT, EndTxn): (C_ABORT, ["response 48"]),
    (DEAD, TimeOut): (DEAD, []),
    (EMPTY, TimeOut): (EMPTY, []),
    (ONGOING, TimeOut): (ONGOING, ["write PrepareAbort 7/5"]),
    (P_COMMIT, TimeOut): (P_COMMIT, []),
    (P_ABORT, TimeOut): (P_ABORT, []),
    (C_COMMIT, TimeOut): (C_COMMIT, []),
    (C_ABORT, TimeOut): (C_ABORT, []),
    (DEAD, Expire): (DEAD, []),
    (EMPTY, Expire): (EMPTY, ["write tombstone"]),
    (ONGOING, Expire): (ONGOING, []),
    (P_COMMIT, Expire): (P_COMMIT, []),
    (P_ABORT, Expire): (P_ABORT, []),
    (C_COMMIT, Expire): (C_COMMIT, ["write tombstone"]),
    (C_ABORT, Expire): (C_ABORT, ["write tombstone"]),
    (DEAD, Loaded): (DEAD, []),
    (EMPTY, Loaded): (EMPTY, []),
    (ONGOING, Loaded): (ONGOING, []),
    (P_COMMIT, Loaded): (P_COMMIT, ["markers commit 7/4"]),
    (P_ABORT, Loaded): (P_ABORT, ["markers abort 7/4"]),
    (C_COMMIT, Loaded): (C_COMMIT, []),
    (C_ABORT, Loaded): (C_ABORT, []),
    (DEAD, Appended): (EMPTY, ["response 0 8/0"]),
    (EMPTY, Appended): (ONGOING, ["response 0"]),
    (ONGOING, Appended): (P_COMMIT, ["response 0 7/5", "markers commit 7/5"]),
    (P_COMMIT, Appended): (C_COMMIT, []),
    (P_ABORT, Appended): (C_ABORT, []),
    (C_COMMIT, Appended): (DEAD, ["forget"]),
    (C_ABORT, Appended): (EMPTY, ["response 0 7/5"]),
    (DEAD, AppendFailed): (DEAD, ["response 15", "forget"]),
    (EMPTY, AppendFailed): (EMPTY, ["response 15"]),
    (ONGOING, AppendFailed): (ONGOING, ["response 15"]),
    (P_COMMIT, AppendFailed): (P_COMMIT, []),
    (P_ABORT, AppendFailed): (P_ABORT, []),
    (C_COMMIT, AppendFailed): (C_COMMIT, []),
    (C_ABORT, AppendFailed): (C_ABORT, ["response 15"]),
    (DEAD, MarkersWritten): (DEAD, []),
    (EMPTY, MarkersWritten): (EMPTY, []),
    (ONGOING, MarkersWritten): (ONGOING, []),
    (P_COMMIT, MarkersWritten): (P_COMMIT, ["write CompleteCommit 7/4"]),
    (P_ABORT, MarkersWritten): (P_ABORT, ["write CompleteAbort 7/4"]),
    (C_COMMIT, MarkersWritten): (C_COMMIT, []),
    (C_ABORT, MarkersWritten): (C_ABORT, []),
}


def test_table_and_its_cases_cover_every_state_and_event() -> None:
    cells = set(product(STATES, EVENTS))
    assert set(TABLE) == cells
    assert set(EXPECTED) == cells


@each(("state", "kind"), EXPECTED)
def test_each_transition(state: TransactionState, kind: type) -> None:
    slot, event = cell(state, kind)
    after, done = feed(slot, event)
    assert (after.state, done) == EXPECTED[state, kind]
    assert (after.phase is Phase.WRITING) == (after.writing is not None) == any(s.startswith("write") for s in done)
    assert (after.phase is Phase.MARKING) == any(s.startswith("markers") for s in done)


# --- EndTxn ----------------------------------------------------------------------------------------------------------

PC, PA = "write PrepareCommit 7/4", "write PrepareAbort 7/4"

END_VERSION_1: dict[tuple[TransactionState, bool], str] = {
    (DEAD, COMMIT): "response 49",
    (DEAD, ABORT): "response 49",
    (EMPTY, COMMIT): "response 48",
    (EMPTY, ABORT): "response 48",
    (ONGOING, COMMIT): PC,
    (ONGOING, ABORT): PA,
    (P_COMMIT, COMMIT): "response 51",
    (P_COMMIT, ABORT): "response 48",
    (P_ABORT, COMMIT): "response 48",
    (P_ABORT, ABORT): "response 51",
    (C_COMMIT, COMMIT): "response 0",
    (C_COMMIT, ABORT): "response 48",
    (C_ABORT, COMMIT): "response 48",
    (C_ABORT, ABORT): "response 0",
}


@pytest.mark.parametrize(("state", "committed"), END_VERSION_1)
def test_end_version_1(state: TransactionState, committed: bool) -> None:
    _, done = feed(slot_in(state), EndTxn(9, 7, 4, committed))
    assert done == [END_VERSION_1[state, committed]]


@each(("state", "committed"), END_VERSION_1)
@each(("producer_id", "epoch", "code"), [(7, 3, 90), (7, 5, 90), (6, 4, 49)])
def test_end_version_1_by_another_producer(
    state: TransactionState, committed: bool, producer_id: int, epoch: int, code: int
) -> None:
    _, done = feed(slot_in(state), EndTxn(9, producer_id, epoch, committed))
    assert done == [f"response {49 if state is DEAD else code}"]


# (state, commit) -> the result at the current epoch 4, at 3 (a repeated request), at any other.
END_VERSION_2: dict[tuple[TransactionState, bool], tuple[str, str, str]] = {
    (DEAD, COMMIT): ("response 49", "response 49", "response 49"),
    (DEAD, ABORT): ("response 49", "response 49", "response 49"),
    (EMPTY, COMMIT): ("response 48", "response 90", "response 90"),
    (EMPTY, ABORT): ("write PrepareAbort 7/5", "response 90", "response 90"),
    (ONGOING, COMMIT): ("write PrepareCommit 7/5", "response 90", "response 90"),
    (ONGOING, ABORT): ("write PrepareAbort 7/5", "response 90", "response 90"),
    (P_COMMIT, COMMIT): ("response 90", "response 51", "response 90"),
    (P_COMMIT, ABORT): ("response 90", "response 48", "response 90"),
    (P_ABORT, COMMIT): ("response 90", "response 48", "response 90"),
    (P_ABORT, ABORT): ("response 90", "response 51", "response 90"),
    (C_COMMIT, COMMIT): ("response 48", "response 0 7/4", "response 90"),
    (C_COMMIT, ABORT): ("write PrepareAbort 7/5", "response 48", "response 90"),
    (C_ABORT, COMMIT): ("response 48", "response 48", "response 90"),
    (C_ABORT, ABORT): ("write PrepareAbort 7/5", "response 0 7/4", "response 90"),
}


@pytest.mark.parametrize(("state", "committed"), END_VERSION_2)
def test_end_version_2(state: TransactionState, committed: bool) -> None:
    present, repeated, other = END_VERSION_2[state, committed]
    for epoch, expected in ((4, present), (3, repeated), (2, other), (5, other)):
        assert feed(slot_in(state), EndTxn(9, 7, epoch, committed, 2))[1] == [expected], epoch
    assert feed(slot_in(state), EndTxn(9, 6, 4, committed, 2))[1] == ["response 49"]


# The epochs of producer 6 were exhausted: the owner has 7 now, at epoch 0. Results of its repeated last EndTxn.
END_OVERFLOW = {
    (EMPTY, COMMIT): "response 90",
    (EMPTY, ABORT): "response 90",
    (ONGOING, COMMIT): "response 90",
    (ONGOING, ABORT): "response 90",
    (C_COMMIT, COMMIT): "response 0 7/0",
    (C_COMMIT, ABORT): "response 48",
    (C_ABORT, COMMIT): "response 48",
    (C_ABORT, ABORT): "response 0 7/0",
}


@pytest.mark.parametrize(("state", "committed"), END_OVERFLOW)
def test_end_repeated_across_the_last_epoch(state: TransactionState, committed: bool) -> None:
    slot = slot_in(state, producer_epoch=0, previous_producer_id=6)
    assert feed(slot, EndTxn(9, 6, 32766, committed, 2))[1] == [END_OVERFLOW[state, committed]]
    assert feed(slot, EndTxn(9, 6, 32765, committed, 2))[1] == ["response 49"]
    assert feed(slot, EndTxn(9, 5, 32766, committed, 2))[1] == ["response 49"]


@pytest.mark.parametrize("state", [P_COMMIT, P_ABORT])
@pytest.mark.parametrize("committed", [COMMIT, ABORT])
def test_end_repeated_during_the_change_of_producer_id(state: TransactionState, committed: bool) -> None:
    slot = slot_in(state, producer_epoch=32767, next_producer_id=8)
    same = committed == (state is P_COMMIT)
    assert feed(slot, EndTxn(9, 7, 32766, committed, 2))[1] == ["response 51" if same else "response 48"]
    for version in (0, 2):
        assert feed(slot, EndTxn(9, 8, 0, committed, version))[1] == ["response 51"], "the owner continues already"
    assert feed(slot, AddPartitions(9, 8, 0, (("t", 2),), 2))[1] == ["response 51"]
    assert feed(slot, VerifyPartitions(9, 8, 0, (("t", 2),)))[1] == ["response 51"]
    assert feed(slot, AddPartitions(9, 8, 1, (("t", 2),), 2))[1] == ["response 49"]


def test_decision_record() -> None:
    for version, epoch, last in ((0, 4, 3), (2, 5, 4)):
        after, _ = feed(slot_in(ONGOING, previous_producer_id=6), EndTxn(9, 7, 4, COMMIT, version))
        assert after.writing is not None
        assert after.writing.written == transaction(
            P_COMMIT, producer_epoch=epoch, last_producer_epoch=last, last_update_ms=NOW, client_version=version
        )
        assert after.writing.token == 9


def test_abort_without_transaction_begins_and_ends_at_once() -> None:
    slot, done = feed(slot_in(C_COMMIT), EndTxn(9, 7, 4, ABORT, 2))
    assert slot.writing is not None and slot.writing.written is not None
    assert slot.writing.written.start_ms == NOW
    slot, done = feed(slot, Appended(slot.writing))
    assert done == ["response 0 7/5", "write CompleteAbort 7/5"], "without partitions there are no markers"
    assert slot.writing is not None
    slot, done = feed(slot, Appended(slot.writing))
    assert (slot.state, slot.pending, done) == (C_ABORT, False, [])
