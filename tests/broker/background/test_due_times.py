"""Due times of periodic checks: never late, and not early where they can be computed."""

from __future__ import annotations

import copy
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from ottla.broker.groups.classic.state import Group, GroupState
from ottla.broker.groups.offsets import CommittedOffset, Offsets
from ottla.broker.groups.registry import expiry
from ottla.broker.transactions.settings import TransactionSettings
from ottla.broker.transactions.state import NO_TIMEOUT_MS, Expire, Phase, Slot, TimeOut, Transaction, TransactionState
from ottla.broker.transactions.table import advance, due_ms
from ottla.storage.compaction.compaction import SegmentFacts, dirtiness, next_change_ms
from ottla.storage.producers.producer_state import OWN_RULES, Producer, expires_ms, forget_expired
from ottla.storage.producers.verification_guard import KEPT_MS, Guards
from ottla_testing.each import each

SETTINGS = TransactionSettings(expiration_ms=50_000)
NOW = 1_000_000
times = st.integers(NOW - 1000, NOW + 1000)


@each("kind", [TimeOut, Expire])
@each("state", TransactionState)
@each("phase", Phase)
@each("timeout_ms", [60_000, NO_TIMEOUT_MS])
def test_transactional_id_changes_first_at_its_due_time(
    state: TransactionState, kind: type, phase: Phase, timeout_ms: int
) -> None:
    if state in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE):
        slot = Slot("tx", None, phase)
    else:
        known = Transaction("tx", 7, 4, timeout_ms, state, (("t", 0),), start_ms=NOW - 100, last_update_ms=NOW - 50)
        slot = Slot("tx", known, phase)

    def moves(now_ms: int) -> bool:
        return advance(slot, kind(), now_ms=now_ms, settings=SETTINGS) != (slot, ())

    due = due_ms(slot, kind, SETTINGS)
    if due is None:
        assert not moves(NOW * 10**6)
    elif due > 0:
        assert not moves(due - 1) and moves(due)
    else:
        assert moves(0)


@given(
    st.sampled_from(GroupState),
    st.sampled_from([None, "consumer", "connect"]),
    st.lists(st.tuples(times, st.none() | times), max_size=4),
    st.booleans(),
    st.just(-1) | times,
)
def test_offsets_expire_first_at_their_due_time(
    state: GroupState,
    protocol_type: str | None,
    commits: list[tuple[int, int | None]],
    pending: bool,
    emptied_ms: int,
) -> None:
    offsets = Offsets()
    for number, (committed_ms, expires) in enumerate(commits):
        offsets.put(("t", number), CommittedOffset(1, -1, "", committed_ms, expires), number)
    if pending:
        offsets.put_pending(7, ("t", 0), CommittedOffset(1), 9)
    group = Group("g", state, protocol_type=protocol_type, state_changed_ms=emptied_ms)
    due = offsets.due_ms(expiry(group), 500)
    if due is None:
        assert not offsets.expired(expiry(group), NOW * 2, 500)
    else:
        assert offsets.expired(expiry(group), due, 500) and not offsets.expired(expiry(group), due - 1, 500)


@given(
    st.lists(st.tuples(st.integers(1, 50), st.just(-1) | times, st.just(-1) | times), min_size=2, max_size=5),
    st.sampled_from([0, 70, 600]),
    st.sampled_from([0, 90, 800, 2**63 - 1]),
    st.sampled_from([0.0, 0.5, 1.0]),
    times,
    st.integers(0, 1000),
    st.integers(0, 50),
)
def test_log_becomes_cleanable_first_at_its_due_time(
    facts: list[tuple[int, int, int]], min_lag: int, max_lag: int, ratio: float, now: int, later: int, cleaned: int
) -> None:
    segments = [
        SegmentFacts(10 * n, size, 10 * n + 10, (NOW - 500) * 1_000_000, largest, first)
        for n, (size, largest, first) in enumerate(facts)
    ]

    def is_due(now_ms: int) -> bool:
        return dirtiness(
            segments,
            cleaner_offset=cleaned,
            log_start_offset=0,
            last_stable_offset=10 * len(segments),
            now_ms=now_ms,
            min_lag_ms=min_lag,
            max_lag_ms=max_lag,
        ).is_due(ratio)

    assume(not is_due(now))
    change = next_change_ms(segments, now, min_lag, max_lag)
    if change is None:
        assert not is_due(now + later) and not is_due(now * 2)
    else:
        assert not is_due(min(now + later, change - 1))


@given(st.lists(st.tuples(times, st.booleans()), max_size=5), st.sampled_from([None, 0, 300]), st.sampled_from([9, 10]))
def test_producers_expire_first_at_their_due_time(
    known: list[tuple[int, bool]], expiration_ms: int | None, log_start: int
) -> None:
    producers = {
        number: Producer(0, (), 9, last_ms, transaction_first_offset=5 if is_open else -1)
        for number, (last_ms, is_open) in enumerate(known)
    }
    rules = replace(OWN_RULES, expiration_ms=expiration_ms)
    due = expires_ms(producers, log_start, rules)
    if due is None:
        assert forget_expired(copy.copy(producers), NOW * 2, log_start, rules) == 0
    else:
        assert forget_expired(copy.copy(producers), due - 1, log_start, rules) == 0
        assert forget_expired(producers, due, log_start, rules) > 0


@given(st.lists(times, max_size=5), st.sampled_from([None, 0, 300]))
def test_guards_expire_first_at_their_due_time(made: list[int], expiration_ms: int | None) -> None:
    guards = Guards()
    for number, made_ms in enumerate(made):
        guards.give(number, 0, now_ms=made_ms)
    due = guards.due_ms(expiration_ms)
    if due is None:
        assert not made
        return
    assert due == min(made) + (KEPT_MS if expiration_ms is None else expiration_ms)
    guards.expire(due - 1, expiration_ms)
    assert len(guards) == len(made)
    guards.expire(due, expiration_ms)
    assert len(guards) < len(made)
