"""The machine of a share partition, cell by cell: each state of an offset with each event, and the rules of
acquisition. Expected values are Kafka 4.3's, read from `SharePartition`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ottla.broker.errors import Refused
from ottla.broker.share.share_partition import Acquisition, Fetched, SharePartition, ShareRules
from ottla.broker.share.values import (
    Acknowledgement,
    Acquired,
    DeadLetters,
    FetchedBatch,
    RecordState,
    StateBatch,
    StoredState,
)
from ottla.protocol.errors import ErrorCode
from ottla_testing.each import each

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
LOCK_MS = 30_000


class Partition:
    """A share partition with short calls; all state is stored at once unless `stores` is off."""

    def __init__(self, start: int = 0, stored: Sequence[tuple[int, int, int, int]] = (), **rules: Any) -> None:
        self.rules = ShareRules(**rules)
        self.dead_letters: list[tuple[int, ...]] = []
        batches = [StateBatch(*batch) for batch in stored]
        self.machine = SharePartition(StoredState(0, start, batches), lambda: self.rules)

    def fetch(
        self,
        *batches: tuple[int, int] | FetchedBatch,
        member: str = "a",
        most: int = 500,
        size: int = 500,
        strict: bool = False,
        now_ms: int = 0,
        at: int | None = None,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> list[tuple[int, ...]]:
        read = [batch if isinstance(batch, FetchedBatch) else plain(*batch) for batch in batches]
        wanted = Acquisition(member, strict, size)
        offset = self.machine.next_fetch_offset() if at is None else at
        return [tuple(one) for one in self.machine.acquire(wanted, most, offset, Fetched(read, aborted), now_ms)]

    def acknowledge(
        self, first: int, last: int, *types: int, member: str = "a", now_ms: int = 0, committed: bool = True
    ) -> list[tuple[int, ...]]:
        transition = self.machine.acknowledge(member, [Acknowledgement(first, last, types)], now_ms)
        self.machine.finish(transition, committed=committed, now_ms=now_ms)
        self.dead_letters += transition.dead_letters
        return [tuple(batch) for batch in transition.batches]

    def release(self, member: str = "a") -> list[tuple[int, ...]]:
        transition = self.machine.release(member)
        self.machine.finish(transition, committed=True, now_ms=0)
        self.dead_letters += transition.dead_letters
        return [tuple(batch) for batch in transition.batches]

    def expire(self, now_ms: int) -> list[tuple[int, ...]]:
        changed = self.machine.expire(now_ms)
        self.machine.advance()
        return [tuple(batch) for batch in changed]

    @property
    def states(self) -> str:
        """The states of the offsets in flight, each with its delivery count: `-` available, `a` acquired, `k`
        acknowledged, `d` on its way to the dead-letter queue, `x` archived.
        """
        letters = {AVAILABLE: "-", ACQUIRED: "a", ACKNOWLEDGED: "k", ARCHIVING: "d", ARCHIVED: "x"}
        return " ".join(
            letters[RecordState(batch.state)] + str(batch.delivery_count)
            for batch in self.machine.batches
            for _ in range(batch.first, batch.last + 1)
        )

    @property
    def ends(self) -> tuple[int, int]:
        return self.machine.start_offset, self.machine.end_offset


def plain(first: int, last: int) -> FetchedBatch:
    return FetchedBatch(first, last, -1, False, False, False)


def of_producer(first: int, last: int, producer_id: int, *, aborts: bool = False) -> FetchedBatch:
    return FetchedBatch(first, last, producer_id, True, aborts, aborts)


def refused(code: ErrorCode, partition: Partition, *arguments: Any, **more: Any) -> str:
    before = partition.states, partition.ends
    with pytest.raises(Refused) as caught:
        partition.acknowledge(*arguments, **more)
    assert caught.value.code is code
    assert (partition.states, partition.ends) == before
    return str(caught.value)


# --- acquisition


def test_first_fetch_acquires_whole_batches() -> None:
    partition = Partition()
    assert partition.machine.next_fetch_offset() == 0
    assert partition.fetch((0, 4), (5, 9)) == [(0, 9, 1)]
    assert partition.ends == (0, 9) and partition.machine.next_fetch_offset() == 10
    assert partition.states == " ".join(["a1"] * 10)


def test_max_records_is_exceeded_up_to_the_end_of_a_batch() -> None:
    assert Partition().fetch((0, 4), (5, 9), (10, 14), most=7) == [(0, 9, 1)]
    assert Partition().fetch((0, 99), most=1) == [(0, 99, 1)]


def test_record_limit_acquires_no_more_and_the_rest_stays_available() -> None:
    partition = Partition()
    assert partition.fetch((0, 9), most=4, strict=True) == [(0, 3, 1)]
    assert partition.states == "a1 a1 a1 a1 -0 -0 -0 -0 -0 -0"
    assert partition.machine.next_fetch_offset() == 4
    assert partition.fetch((0, 9), most=4, strict=True, member="b") == [(4, 7, 1)]
    assert partition.fetch((0, 9), (10, 19), most=4, strict=True) == [(8, 9, 1), (10, 11, 1)]
    assert partition.ends == (0, 19)


def test_batch_size_splits_at_batches_of_the_log() -> None:
    batches = [(0, 4), (5, 9), (10, 14), (15, 19)]
    assert Partition().fetch(*batches, size=5) == [(0, 4, 1), (5, 9, 1), (10, 14, 1), (15, 19, 1)]
    assert Partition().fetch(*batches, size=7) == [(0, 9, 1), (10, 19, 1)]
    assert Partition().fetch(*batches, size=0) == [(0, 4, 1), (5, 9, 1), (10, 14, 1), (15, 19, 1)]
    assert Partition().fetch((0, 99), size=10) == [(0, 99, 1)]


def test_batch_that_begins_below_the_start_offset_is_acquired_from_there() -> None:
    partition = Partition(5)
    assert partition.fetch((0, 9)) == [(5, 9, 1)]
    assert partition.ends == (5, 9)


def test_batches_below_the_start_offset_are_not_acquired() -> None:
    assert Partition(5).fetch((0, 4)) == []


def test_nothing_is_acquired_from_nothing() -> None:
    partition = Partition()
    assert partition.fetch() == [] and partition.fetch((0, 4), most=0) == []


def test_in_flight_limit_ends_acquisition_but_not_redelivery() -> None:
    partition = Partition(max_in_flight=10)
    assert partition.fetch((0, 5), (6, 11)) == [(0, 11, 1)], "the limit is exceeded up to the end of a batch"
    assert not partition.machine.can_acquire()
    assert partition.fetch((12, 14)) == []
    partition.acknowledge(4, 5, RELEASE)
    assert partition.machine.can_acquire() and partition.machine.next_fetch_offset() == 4
    assert partition.fetch((0, 5), (6, 11), (12, 14), member="b") == [(4, 5, 2)]


def test_released_records_are_fetched_again_before_new_ones() -> None:
    partition = Partition()
    partition.fetch((0, 4))
    partition.fetch((5, 9), member="b")
    partition.acknowledge(0, 4, RELEASE)
    assert partition.machine.next_fetch_offset() == 0
    assert partition.fetch((0, 4), (5, 9), (10, 14), member="c") == [(0, 4, 2), (10, 14, 1)]


def test_fetch_of_a_part_of_a_batch_acquires_that_part() -> None:
    partition = Partition()
    partition.fetch((0, 9))
    partition.acknowledge(0, 9, *[RELEASE, ACCEPT] * 5)
    assert partition.states == "-1 k1 -1 k1 -1 k1 -1 k1 -1 k1"
    assert partition.fetch((0, 9)) == [(0, 0, 2), (2, 2, 2), (4, 4, 2), (6, 6, 2), (8, 8, 2)]


def test_offsets_that_left_the_log_are_archived() -> None:
    partition = Partition()
    partition.fetch((0, 9))
    partition.release()
    assert partition.fetch((6, 9), (10, 12), at=0) == [(6, 9, 2), (10, 12, 1)]
    assert partition.ends == (6, 12), "archived offsets at the head are done"


# --- acknowledgement


@each(
    ("kind", "after", "stored"),
    [
        (GAP, "x1", ARCHIVED),
        (ACCEPT, "k1", ACKNOWLEDGED),
        (RELEASE, "-1", AVAILABLE),
        (REJECT, "x1", ARCHIVED),
    ],
)
def test_acknowledgement_of_acquired_offsets(kind: int, after: str, stored: int) -> None:
    partition = Partition()
    partition.fetch((0, 9))
    assert partition.acknowledge(2, 3, kind) == [(2, 2, stored, 1), (3, 3, stored, 1)]
    assert partition.states == f"a1 a1 {after} {after} a1 a1 a1 a1 a1 a1"
    whole = Partition()
    whole.fetch((0, 4))
    whole.fetch((5, 9))
    assert whole.acknowledge(5, 9, kind) == [(5, 9, stored, 1)]
    assert whole.states == " ".join(["a1"] * 5 + [after] * 5)


def test_one_type_for_each_offset() -> None:
    partition = Partition()
    partition.fetch((0, 4))
    partition.acknowledge(0, 4, RELEASE, ACCEPT, REJECT, GAP, ACCEPT)
    assert partition.states == "-1 k1 x1 x1 k1"
    assert partition.machine.delivery_complete_count == 4


@each("kind", [GAP, ACCEPT, RELEASE, REJECT, RENEW])
def test_acknowledgement_of_offsets_that_are_not_acquired_is_refused(kind: int) -> None:
    for settle in (ACCEPT, RELEASE, REJECT):
        for whole in (True, False):
            partition = Partition()
            partition.fetch((0, 4))
            partition.fetch((5, 9))
            partition.acknowledge(*((5, 9) if whole else (6, 7)), settle)
            refused(ErrorCode.INVALID_RECORD_STATE, partition, 6, 7, kind)
            refused(ErrorCode.INVALID_RECORD_STATE, partition, 5, 9, kind)
            refused(ErrorCode.INVALID_RECORD_STATE, partition, 4, 7, kind)


@each("kind", [GAP, ACCEPT, RELEASE, REJECT, RENEW])
def test_acknowledgement_by_another_member_is_refused(kind: int) -> None:
    partition = Partition()
    partition.fetch((0, 4))
    refused(ErrorCode.INVALID_RECORD_STATE, partition, 0, 4, kind, member="b")
    refused(ErrorCode.INVALID_RECORD_STATE, partition, 1, 2, kind, member="b")
    partition.acknowledge(0, 0, RELEASE)
    refused(ErrorCode.INVALID_RECORD_STATE, partition, 1, 4, kind, member="b")


def test_acknowledgement_outside_of_what_was_fetched_is_refused() -> None:
    partition = Partition(5)
    refused(ErrorCode.INVALID_RECORD_STATE, partition, 5, 9, ACCEPT)
    partition.fetch((5, 9))
    refused(ErrorCode.INVALID_REQUEST, partition, 8, 10, ACCEPT)
    refused(ErrorCode.INVALID_REQUEST, partition, 10, 12, ACCEPT)


def test_unknown_type_is_refused() -> None:
    partition = Partition()
    partition.fetch((0, 4))
    refused(ErrorCode.INVALID_REQUEST, partition, 0, 4, 5)
    refused(ErrorCode.INVALID_REQUEST, partition, 0, 1, ACCEPT, -1)


def test_offsets_below_the_start_offset_are_ignored() -> None:
    partition = Partition(5)
    partition.fetch((5, 9))
    assert partition.acknowledge(0, 4, ACCEPT) == []
    assert partition.acknowledge(3, 9, ACCEPT) == [(5, 9, ACKNOWLEDGED, 1)]
    assert partition.ends == (10, 10)


def test_all_acknowledgements_or_none() -> None:
    partition = Partition()
    partition.fetch((0, 4))
    with pytest.raises(Refused):
        partition.machine.acknowledge("a", [Acknowledgement(0, 1, [ACCEPT]), Acknowledgement(3, 7, [ACCEPT])], 0)
    assert partition.states == "a1 a1 a1 a1 a1"
    assert partition.acknowledge(0, 4, ACCEPT) != []


def test_failed_write_takes_the_acknowledgement_back() -> None:
    partition = Partition()
    partition.fetch((0, 4))
    assert partition.acknowledge(0, 1, ACCEPT, committed=False)
    assert partition.states == "a1 a1 a1 a1 a1" and partition.machine.delivery_complete_count == 0
    assert partition.expire(LOCK_MS) == [(offset, offset, AVAILABLE, 1) for offset in range(5)]


def test_failed_write_after_the_lock_expired_ends_it() -> None:
    partition = Partition(delivery_limit=2)
    partition.fetch((0, 4))
    transition = partition.machine.acknowledge("a", [Acknowledgement(0, 4, [ACCEPT])], 0)
    assert partition.expire(LOCK_MS) == [], "a lock does not expire during a transition"
    partition.machine.finish(transition, committed=False, now_ms=LOCK_MS)
    assert partition.states == "-1 -1 -1 -1 -1"
    partition.fetch((0, 4))
    transition = partition.machine.acknowledge("a", [Acknowledgement(0, 4, [ACCEPT])], 0)
    partition.machine.finish(transition, committed=False, now_ms=2 * LOCK_MS)
    assert partition.ends == (5, 5), "archived after its last delivery"


def test_offsets_of_a_transition_are_neither_acquired_nor_acknowledged() -> None:
    partition = Partition()
    partition.fetch((0, 4))
    transition = partition.machine.acknowledge("a", [Acknowledgement(0, 4, [RELEASE])], 0)
    assert partition.fetch((0, 4), at=0) == [] and partition.machine.next_fetch_offset() == 5
    refused(ErrorCode.INVALID_RECORD_STATE, partition, 0, 4, ACCEPT)
    refused(ErrorCode.INVALID_RECORD_STATE, partition, 1, 2, ACCEPT)
    partition.machine.finish(transition, committed=True, now_ms=0)
    assert partition.machine.next_fetch_offset() == 0


# --- delivery counts and locks


@each("way", ["release", "expire", "close"])
def test_record_is_archived_after_its_last_delivery(way: str) -> None:
    partition = Partition(delivery_limit=2, shrinks=False)
    for count in (1, 2):
        assert partition.fetch((0, 4)) == [(0, 4, count)]
        if way == "release":
            partition.acknowledge(0, 4, RELEASE)
        elif way == "close":
            partition.release()
        else:
            partition.expire(LOCK_MS)
    assert partition.ends == (5, 5)


def test_lock_expires_at_its_time() -> None:
    partition = Partition(lock_ms=1000)
    partition.fetch((0, 4), now_ms=10)
    partition.fetch((5, 9), now_ms=20)
    assert partition.machine.due_ms() == 1010
    assert partition.expire(1009) == []
    assert partition.expire(1010) == [(0, 4, AVAILABLE, 1)]
    assert partition.machine.due_ms() == 1020 and partition.machine.next_fetch_offset() == 0
    assert partition.expire(1020) == [(5, 9, AVAILABLE, 1)] and partition.machine.due_ms() is None


def test_lock_of_a_split_batch_keeps_its_time() -> None:
    partition = Partition(lock_ms=1000)
    partition.fetch((0, 4), now_ms=10)
    partition.acknowledge(0, 0, ACCEPT, now_ms=500)
    assert partition.expire(1010) == [(offset, offset, AVAILABLE, 1) for offset in range(1, 5)]


def test_renewed_lock_starts_again() -> None:
    partition = Partition(lock_ms=1000)
    partition.fetch((0, 4))
    assert partition.acknowledge(0, 4, RENEW, now_ms=900) == []
    assert partition.machine.due_ms() == 1900
    assert partition.acknowledge(1, 1, RENEW, now_ms=1200) == []
    assert [first for first, *_ in partition.expire(1900)] == [0, 2, 3, 4]
    assert partition.expire(2200) == [(1, 1, AVAILABLE, 1)]


def test_renewing_may_be_disabled() -> None:
    partition = Partition(renews=False)
    partition.fetch((0, 4))
    assert "not enabled" in refused(ErrorCode.INVALID_RECORD_STATE, partition, 0, 4, RENEW)
    refused(ErrorCode.INVALID_RECORD_STATE, partition, 1, 1, RENEW)


def test_release_of_a_member_leaves_others() -> None:
    partition = Partition()
    partition.fetch((0, 4))
    partition.fetch((5, 9), member="b")
    partition.fetch((10, 14))
    partition.acknowledge(10, 11, ACCEPT)
    assert partition.release() == [(0, 4, AVAILABLE, 1)] + [(o, o, AVAILABLE, 1) for o in (12, 13, 14)]
    assert partition.states.split() == ["-1"] * 5 + ["a1"] * 5 + ["k1"] * 2 + ["-1"] * 3
    assert partition.release("c") == []


def test_deliveries_shrink_from_half_of_the_limit_on() -> None:
    """With 8 records and a limit of 5: at count 3 half of the batch, at count 4 (the last delivery) one record."""
    partition = Partition(delivery_limit=5)
    for count in (1, 2, 3):
        assert partition.fetch((0, 7), (8, 9), size=8) == [(0, 7, count), (8, 9, count)]
        partition.release()
    assert partition.fetch((0, 7), (8, 9)) == [(0, 3, 4)]
    assert partition.fetch((0, 7), (8, 9)) == [(4, 7, 4)], "delivered without the batch after it"
    partition.release()
    assert partition.fetch((0, 7), (8, 9)) == [(0, 0, 5)]
    assert partition.fetch((0, 7), (8, 9)) == [(1, 1, 5)]


def test_shrinking_batch_is_not_delivered_after_others() -> None:
    partition = Partition(delivery_limit=4)
    partition.fetch((0, 3))
    partition.fetch((4, 7))
    partition.acknowledge(4, 7, RELEASE)
    assert partition.fetch((4, 7)) == [(4, 7, 2)]
    partition.acknowledge(0, 3, RELEASE)
    partition.acknowledge(4, 7, RELEASE)
    assert partition.fetch((0, 3), (4, 7), (8, 9)) == [(0, 3, 2)]
    assert partition.fetch((4, 7), (8, 9)) == [(4, 5, 3)]


def test_deliveries_do_not_shrink_in_old_releases() -> None:
    partition = Partition(delivery_limit=5, shrinks=False)
    for count in (1, 2, 3, 4, 5):
        assert partition.fetch((0, 7)) == [(0, 7, count)]
        partition.release()
    assert partition.ends == (8, 8)


# --- the start offset


def test_start_offset_moves_past_settled_records() -> None:
    partition = Partition()
    partition.fetch((0, 4), (5, 9), size=5)
    partition.acknowledge(3, 7, ACCEPT)
    assert partition.ends == (0, 9)
    partition.acknowledge(0, 1, REJECT)
    assert partition.ends == (2, 9)
    partition.acknowledge(2, 2, GAP)
    assert partition.ends == (8, 9) and partition.states == "k1 k1 k1 a1 a1"
    partition.acknowledge(8, 9, ACCEPT)
    assert partition.ends == (10, 10) and partition.states == ""
    assert partition.machine.next_fetch_offset() == 10


def test_start_offset_waits_for_a_transition() -> None:
    partition = Partition()
    partition.fetch((0, 4))
    partition.fetch((5, 9))
    first = partition.machine.acknowledge("a", [Acknowledgement(0, 4, [ACCEPT])], 0)
    partition.acknowledge(5, 9, ACCEPT)
    assert partition.ends == (0, 9)
    partition.machine.finish(first, committed=True, now_ms=0)
    assert partition.ends == (10, 10)


def test_log_start_moves_the_start_offset() -> None:
    partition = Partition()
    partition.machine.log_start_moved(3)
    assert partition.ends == (3, 3)
    partition.fetch((3, 6), (7, 9), size=1)
    partition.acknowledge(3, 4, RELEASE)
    partition.machine.log_start_moved(5)
    assert partition.ends == (5, 9) and partition.states == "x1 x1 a1 a1 a1 a1 a1"
    partition.machine.log_start_moved(4)
    assert partition.ends == (5, 9), "it never moves back"
    assert partition.acknowledge(3, 9, ACCEPT) == [
        (5, 5, ACKNOWLEDGED, 1), (6, 6, ACKNOWLEDGED, 1), (7, 9, ACKNOWLEDGED, 1)
    ]  # fmt: skip
    assert partition.ends == (10, 10)


@each("way", ["expire", "close"])
def test_acquired_records_below_the_log_start_are_archived(way: str) -> None:
    partition = Partition()
    partition.fetch((0, 4))
    partition.fetch((5, 9))
    partition.machine.log_start_moved(7)
    changed = partition.expire(LOCK_MS) if way == "expire" else partition.release()
    assert changed[0] == (0, 4, ARCHIVED, 1)
    assert changed[1:] == [(o, o, ARCHIVED if o < 7 else AVAILABLE, 1) for o in range(5, 10)]
    assert partition.machine.next_fetch_offset() == 7 and partition.ends == (7, 9)


def test_log_start_above_everything_in_flight() -> None:
    partition = Partition()
    partition.fetch((0, 4))
    partition.machine.log_start_moved(20)
    assert partition.ends == (20, 20) and partition.machine.next_fetch_offset() == 20
    partition.release()
    assert partition.ends == (20, 20)
    assert partition.fetch((20, 24)) == [(20, 24, 1)] and partition.ends == (20, 24)


# --- isolation


def test_aborted_records_are_archived_and_left_out() -> None:
    partition = Partition()
    batches = [plain(0, 1), of_producer(2, 3, 7), of_producer(4, 5, 8), of_producer(6, 6, 7, aborts=True), plain(7, 8)]
    assert partition.fetch(*batches, aborted=[(7, 2)]) == [(0, 1, 1), (4, 8, 1)]
    assert partition.states == "a1 a1 x1 x1 a1 a1 a1 a1 a1"
    later = Partition()
    batches = [of_producer(0, 3, 7), of_producer(4, 4, 7, aborts=True), of_producer(5, 6, 7)]
    assert later.fetch(*batches, aborted=[(7, 0)]) == [(4, 6, 1)], "the abort marker ends the transaction"
    assert later.ends == (4, 6), "archived records at the head are done"


def test_aborted_batch_below_the_start_offset() -> None:
    partition = Partition(2)
    assert partition.fetch(of_producer(0, 4, 7), plain(5, 9), aborted=[(7, 0)]) == [(5, 9, 1)]
    assert partition.ends == (5, 9)


def test_aborted_records_do_not_fill_the_limit_for_good() -> None:
    partition = Partition(max_in_flight=10)
    for first in range(0, 100, 10):
        assert partition.machine.can_acquire()
        assert partition.fetch(of_producer(first, first + 9, 7), aborted=[(7, 0)]) == []
    assert partition.ends == (100, 100)


# --- stored state


def test_stored_state_is_continued() -> None:
    partition = Partition(3, [(3, 4, ACKNOWLEDGED, 1), (5, 6, AVAILABLE, 2), (7, 9, ARCHIVED, 1)])
    assert partition.ends == (5, 9) and partition.machine.delivery_complete_count == 3
    assert partition.machine.next_fetch_offset() == 5
    assert partition.fetch((0, 9), (10, 14)) == [(5, 6, 3), (10, 14, 1)]


def test_stored_state_that_is_settled_is_done() -> None:
    partition = Partition(3, [(3, 4, ACKNOWLEDGED, 1), (5, 9, ARCHIVED, 1)])
    assert partition.ends == (10, 10) and partition.machine.batches == []


def test_gaps_of_stored_state_are_delivered_again() -> None:
    """Offsets that were acquired at the crash are not stored."""
    stored = [(5, 6, ACKNOWLEDGED, 1), (9, 10, AVAILABLE, 1), (13, 14, ARCHIVED, 1)]
    partition = Partition(0, stored)
    assert partition.ends == (0, 14) and partition.machine.next_fetch_offset() == 0
    assert partition.fetch((0, 7), (8, 15)) == [(0, 4, 1), (7, 8, 1), (9, 10, 2), (11, 12, 1), (15, 15, 1)]
    assert partition.machine.next_fetch_offset() == 16


def test_gaps_are_delivered_in_several_fetches() -> None:
    partition = Partition(0, [(5, 6, ACKNOWLEDGED, 1), (13, 14, ACKNOWLEDGED, 1)])
    assert partition.fetch((0, 2), (3, 7), (8, 15), most=2) == [(0, 2, 1)]
    assert partition.machine.next_fetch_offset() == 3
    partition.acknowledge(0, 2, ACCEPT)
    assert partition.ends == (3, 14)
    assert partition.fetch((3, 7), (8, 15), most=3) == [(3, 4, 1), (7, 7, 1)]
    assert partition.machine.next_fetch_offset() == 8
    assert partition.fetch((8, 15)) == [(8, 12, 1), (15, 15, 1)]
    partition.acknowledge(3, 4, ACCEPT)
    partition.acknowledge(7, 12, ACCEPT)
    assert partition.ends == (15, 15)


def test_gap_at_the_start_is_not_skipped() -> None:
    partition = Partition(0, [(5, 9, ACKNOWLEDGED, 1)])
    assert partition.ends == (0, 9)
    assert partition.fetch((0, 9)) == [(0, 4, 1)]
    partition.acknowledge(0, 4, ACCEPT)
    assert partition.ends == (5, 9), "there may be more gaps"
    assert partition.machine.next_fetch_offset() == 10 and partition.ends == (10, 10)


@each("stored", [[(0, 4, 0, 1)], [(5, 4, 0, 1)], [(5, 7, 0, 1), (7, 9, 2, 1)]])
def test_damaged_stored_state_is_refused(stored: list[tuple[int, int, int, int]]) -> None:
    with pytest.raises(ValueError, match="stored state"):
        Partition(3, stored)


def test_acquired_is_a_plain_range() -> None:
    assert Acquired(0, 4, 1) == (0, 4, 1)


# --- dead letters


def test_rejected_records_are_archived_after_the_dead_letter_queue_has_them() -> None:
    partition = Partition(has_dead_letters=True)
    partition.fetch((0, 5))
    assert partition.acknowledge(0, 5, REJECT, REJECT, ACCEPT, GAP, RELEASE, REJECT) == [
        *((0, 0, ARCHIVING, 1), (1, 1, ARCHIVING, 1), (2, 2, ACKNOWLEDGED, 1)),
        *((3, 3, ARCHIVED, 1), (4, 4, AVAILABLE, 1), (5, 5, ARCHIVING, 1)),
    ]
    assert partition.dead_letters == [(0, 0, 1, True), (1, 1, 1, True), (5, 5, 1, True)]
    assert partition.states == "d1 d1 k1 x1 -1 d1" and partition.ends == (0, 5)
    assert partition.machine.delivery_complete_count == 2
    assert partition.fetch((0, 5), member="b") == [(4, 4, 2)]
    assert refused(ErrorCode.INVALID_RECORD_STATE, partition, 0, 0, ACCEPT)
    assert partition.machine.archive_dead_letters(DeadLetters(0, 1, 1, is_rejected=True)) == (0, 1, ARCHIVED, 1)
    partition.machine.advance()
    assert partition.ends == (4, 5) and partition.machine.delivery_complete_count == 0
    partition.acknowledge(4, 4, ACCEPT, member="b")
    partition.machine.archive_dead_letters(DeadLetters(5, 5, 1, is_rejected=True))
    partition.machine.advance()
    assert partition.ends == (6, 6) and partition.states == ""


@each("way", ["release", "close", "expire"])
def test_records_after_the_last_delivery_go_to_the_dead_letter_queue(way: str) -> None:
    partition = Partition(has_dead_letters=True, delivery_limit=2, shrinks=False)
    for now_ms in (0, LOCK_MS):
        assert partition.fetch((0, 2), now_ms=now_ms)
        if way == "release":
            changed = partition.acknowledge(0, 2, RELEASE)
        else:
            changed = partition.release() if way == "close" else partition.expire(now_ms + LOCK_MS)
        assert changed == [(0, 2, ARCHIVING if now_ms else AVAILABLE, 2 if now_ms else 1)]
    assert partition.dead_letters == ([] if way == "expire" else [(0, 2, 2, False)])
    assert partition.states == "d2 d2 d2" and partition.fetch((0, 2)) == []


def test_whole_batch_is_rejected_at_once() -> None:
    partition = Partition(has_dead_letters=True)
    partition.fetch((0, 2))
    assert partition.acknowledge(0, 2, REJECT) == [(0, 2, ARCHIVING, 1)]
    assert partition.dead_letters == [(0, 2, 1, True)]


def test_failed_rejection_leaves_records_acquired() -> None:
    partition = Partition(has_dead_letters=True)
    partition.fetch((0, 1))
    partition.acknowledge(0, 1, REJECT, committed=False)
    assert partition.states == "a1 a1"
    assert partition.acknowledge(0, 1, ACCEPT) == [(0, 1, ACKNOWLEDGED, 1)]


@each("way", ["close", "expire"])
def test_records_below_the_start_offset_do_not_go_to_the_dead_letter_queue(way: str) -> None:
    partition = Partition(has_dead_letters=True, delivery_limit=1)
    partition.fetch((0, 3))
    partition.machine.log_start_moved(2)
    changed = partition.release() if way == "close" else partition.expire(LOCK_MS)
    assert changed == [(0, 0, ARCHIVED, 1), (1, 1, ARCHIVED, 1), (2, 2, ARCHIVING, 1), (3, 3, ARCHIVING, 1)]


def test_dead_letters_of_stored_state_are_written_again() -> None:
    stored = [(3, 4, ARCHIVING, 1), (5, 5, ACKNOWLEDGED, 1), (6, 6, ARCHIVING, 2)]
    partition = Partition(3, stored, delivery_limit=2)
    assert partition.machine.unwritten == [(3, 4, 1, True), (6, 6, 2, False)]
    assert partition.states == "d1 d1 k1 d2" and partition.ends == (3, 6)
    assert partition.fetch((3, 6), (7, 7)) == [(7, 7, 1)]


def test_groups_without_a_queue_archive_rejected_records_at_once() -> None:
    partition = Partition()
    partition.fetch((0, 1))
    partition.acknowledge(1, 1, REJECT)
    assert partition.states == "a1 x1" and partition.dead_letters == []
