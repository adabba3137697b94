"""Verification guards: which batches may begin a transaction, until when, and with which sequence."""

from __future__ import annotations

import pytest

from ottla.protocol.records.batch import BatchHeader
from ottla.storage.errors import FencedProducer
from ottla.storage.producers.producer_state import (
    ACCEPT,
    CachedBatch,
    Fenced,
    Misplaced,
    OutOfOrder,
    Producer,
    RuleOutcome,
    Verdict,
)
from ottla.storage.producers.verification_guard import IN_TRANSACTION, KEPT_MS, Guard, Guards, judge_transaction
from ottla_testing.storage.batches import make, open_log
from ottla_testing.storage.simulated_files import SimulatedFiles

ID, TRANSACTIONAL, PLAIN = 7, 0x10, 0
COPY = CachedBatch(0, 0, 5, 5, 1000)
CACHED = (CachedBatch(3, 3, 8, 8, 1000),)


def header(first: int = 0, *, epoch: int = 1, attributes: int = TRANSACTIONAL) -> BatchHeader:
    return BatchHeader(9, 100, 0, 2, 0, attributes, 0, 0, 1000, ID, epoch, first, 1)


def known(*, epoch: int = 1, begun: int = -1, batches: tuple[CachedBatch, ...] = CACHED) -> Producer:
    return Producer(epoch, batches, 8, 1000, -1, begun)


def guard(*, lowest: int = 0, bumps: bool = False, void: bool = False) -> Guard:
    made = Guard(1, lowest, bumps, 0)
    made.is_void = void
    return made


class Anywhere:
    """Stands for a refusal because of the transaction, with any text."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Misplaced)


REFUSED = Anywhere()


@pytest.mark.parametrize(
    ("producer", "batch", "verdict", "given", "expected"),
    [
        # verdicts on sequences come first, whatever the transaction
        (None, header(), COPY, guard(void=True), COPY),
        (known(epoch=2), header(), Fenced(2), guard(void=True), Fenced(2)),
        # no transaction
        (known(), header(attributes=PLAIN), ACCEPT, None, ACCEPT),
        (known(begun=8), header(attributes=PLAIN), ACCEPT, None, REFUSED),
        (known(begun=8), header(attributes=PLAIN), OutOfOrder(4), None, OutOfOrder(4)),
        # an open one
        (known(begun=8), header(4), ACCEPT, IN_TRANSACTION, ACCEPT),
        (known(begun=8), header(4), ACCEPT, None, ACCEPT),
        (known(begun=8), header(6), OutOfOrder(4), IN_TRANSACTION, OutOfOrder(4)),
        (known(begun=8), header(0, epoch=2), ACCEPT, IN_TRANSACTION, REFUSED),  # in another epoch
        (known(begun=8), header(0, epoch=2), ACCEPT, guard(), ACCEPT),
        # one that begins
        (None, header(), ACCEPT, None, ACCEPT),
        (None, header(), ACCEPT, guard(), ACCEPT),
        (None, header(), ACCEPT, guard(void=True), REFUSED),
        (None, header(), ACCEPT, IN_TRANSACTION, REFUSED),
        (known(), header(9), OutOfOrder(4), IN_TRANSACTION, REFUSED),
        (known(), header(9), OutOfOrder(4), guard(), OutOfOrder(4)),
        (None, header(3), RuleOutcome.UNKNOWN, guard(lowest=3), RuleOutcome.UNKNOWN),
        # after one that may be retried
        (None, header(3), ACCEPT, guard(lowest=3), ACCEPT),
        (None, header(4), ACCEPT, guard(lowest=3), OutOfOrder(3)),
        (known(), header(4), ACCEPT, guard(lowest=4), ACCEPT),
        # with an epoch for each transaction
        (None, header(3), ACCEPT, guard(lowest=3, bumps=True), OutOfOrder(0)),
        (known(batches=()), header(3), ACCEPT, guard(lowest=3, bumps=True), OutOfOrder(0)),
        (known(), header(4), ACCEPT, guard(lowest=4, bumps=True), ACCEPT),
        (None, header(0), ACCEPT, guard(bumps=True), ACCEPT),
        # a marker from a coordinator
        (known(), header(-1, attributes=0x30), ACCEPT, IN_TRANSACTION, ACCEPT),
    ],
)
def test_verdict_on_a_transactional_batch(
    producer: Producer | None, batch: BatchHeader, verdict: Verdict, given: Guard | None, expected: Verdict
) -> None:
    assert expected == judge_transaction(producer, batch, verdict, given)


def test_producer_has_one_guard_until_a_marker() -> None:
    guards = Guards()
    first = guards.give(ID, 1, 5)
    assert guards.give(ID, 1, 3) is first and first.lowest_sequence == 3
    assert guards.give(ID, 1, 9).lowest_sequence == 3
    assert guards.give(ID, 0, 1).lowest_sequence == 3  # that of an older epoch does not count
    assert guards.give(ID, 2, 8, bumps_epoch=True) is first
    assert (first.producer_epoch, first.lowest_sequence, first.bumps_epoch) == (2, 8, True)
    other = guards.give(ID + 1, 0)
    guards.end(ID)
    assert first.is_void and not other.is_void and len(guards) == 1
    assert guards.give(ID, 2, 0) is not first
    guards.end(12345)


def test_refusal_of_an_older_epoch_keeps_the_guard_of_a_later_one() -> None:
    guards = Guards()
    later = guards.give(ID, 3)
    guards.refuse(ID, 2)
    guards.refuse(ID + 1, 2)
    assert not later.is_void
    guards.refuse(ID, 3)
    assert later.is_void and len(guards) == 0


def test_guards_expire_with_producers() -> None:
    log = open_log(SimulatedFiles())
    old, new = log.verify(ID, 0, now_ms=1000), log.verify(ID + 1, 0, now_ms=2000)
    log.expire_producers(1000 + KEPT_MS - 1)
    assert not old.is_void
    log.expire_producers(1000 + KEPT_MS)
    assert old.is_void and not new.is_void


def test_log_verifies_producers_with_an_open_transaction() -> None:
    log = open_log(SimulatedFiles())
    assert log.verify(ID, 0) is not IN_TRANSACTION
    log.append(make(b"v", producer_id=ID, producer_epoch=1, base_sequence=0, transactional=True), now_ms=1000)
    assert log.verify(ID, 1) is IN_TRANSACTION
    assert log.verify(ID, 2) is not IN_TRANSACTION
    with pytest.raises(FencedProducer):
        log.verify(ID, 0)
    given = log.verify(ID, 2)
    log.append_marker(ID, 2, committed=True, coordinator_epoch=0, now_ms=1000)
    assert given.is_void
