"""Every row of the table of producer rules, and wrapping sequences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records.batch import BatchHeader
from ottla.storage.producers.producer_state import (
    ACCEPT,
    CACHED_BATCHES,
    DAY_MS,
    SEQUENCE_SPACE,
    CachedBatch,
    Fenced,
    OutOfOrder,
    Producer,
    ProducerRules,
    RuleOutcome,
    advance,
    expires_ms,
    follow,
    forget_below,
    forget_expired,
    judge,
    remember,
)
from ottla_testing.each import each

MAX = SEQUENCE_SPACE - 1
CONTROL = 0x30
DUPLICATE = RuleOutcome.DUPLICATE_SEQUENCE


def header(
    first: int, count: int = 1, *, epoch: int = 5, offset: int = 0, pid: int = 7, attributes: int = 0
) -> BatchHeader:
    return BatchHeader(offset, 100, 0, 2, 0, attributes, count - 1, 0, 1000 + first, pid, epoch, first, count)


def producer(*runs: tuple[int, int], epoch: int = 5) -> Producer:
    """Returns a producer that wrote batches of (first sequence, count), from offset 100 on."""
    known, offset = None, 100
    for first, count in runs:
        known = remember(known, header(first, count, epoch=epoch), offset)
        offset += count
    assert known is not None
    return known


MARKER_ONLY = remember(None, header(-1, 1, attributes=CONTROL), 3)
# ten sequences each; the oldest is no longer cached
SIX = producer(*((10 * number, 10) for number in range(6)))


@each(
    ("known", "batch", "expected"),
    [
        pytest.param(SIX, header(60, epoch=4), Fenced(5), id="older epoch, next in sequence"),
        pytest.param(SIX, header(50, 10, epoch=4), Fenced(5), id="older epoch, same sequences"),
        pytest.param(None, header(0, 3), ACCEPT, id="unknown, begins with 0"),
        pytest.param(None, header(1), RuleOutcome.UNKNOWN, id="unknown, begins later"),
        pytest.param(SIX, header(0, epoch=6), ACCEPT, id="newer epoch, begins with 0"),
        pytest.param(SIX, header(60, epoch=6), OutOfOrder(0), id="newer epoch, sequence continues"),
        pytest.param(MARKER_ONLY, header(0), ACCEPT, id="marker only, begins with 0"),
        pytest.param(MARKER_ONLY, header(1), OutOfOrder(0), id="marker only, begins later"),
        pytest.param(MARKER_ONLY, header(0, epoch=4), Fenced(5), id="marker only, older epoch"),
        pytest.param(SIX, header(60, 4), ACCEPT, id="next in sequence"),
        pytest.param(SIX, header(50, 10), CachedBatch(50, 59, 150, 159, 1050), id="copy of the newest"),
        pytest.param(SIX, header(10, 10), CachedBatch(10, 19, 110, 119, 1010), id="copy of the oldest cached"),
        pytest.param(SIX, header(0, 10), DUPLICATE, id="below the cache"),
        pytest.param(SIX, header(10, 9), OutOfOrder(60), id="part of a cached batch"),
        pytest.param(SIX, header(55, 5), OutOfOrder(60), id="ends with the newest, begins inside"),
        pytest.param(SIX, header(59, 1), OutOfOrder(60), id="the last sequence alone"),
        pytest.param(SIX, header(59, 2), OutOfOrder(60), id="begins at the last, ends after it"),
        pytest.param(SIX, header(40, 30), OutOfOrder(60), id="begins below, ends above"),
        pytest.param(SIX, header(61), OutOfOrder(60), id="gap of one"),
        pytest.param(SIX, header(0, 100), OutOfOrder(60), id="from the start, ends above"),
        pytest.param(producer((MAX, 1)), header(0), ACCEPT, id="0 follows the largest"),
        pytest.param(producer((MAX, 1)), header(1), OutOfOrder(0), id="gap over the end of the circle"),
        pytest.param(producer((MAX - 1, 4)), header(2), ACCEPT, id="continues after a wrapped batch"),
        pytest.param(
            producer((MAX - 1, 4)),
            header(MAX - 1, 4),
            CachedBatch(MAX - 1, 1, 100, 103, 1000 + MAX - 1),
            id="copy of a wrapped batch",
        ),
        pytest.param(producer((MAX - 1, 4)), header(MAX), OutOfOrder(2), id="inside, across the end"),
        pytest.param(producer((MAX - 1, 4)), header(MAX, 4), OutOfOrder(2), id="overlaps across the end"),
        pytest.param(producer((0, 1)), header(2**30), OutOfOrder(1), id="half a circle ahead is a gap"),
        pytest.param(
            producer((0, 1)),
            header(2**30 + 2),
            DUPLICATE,
            id="half a circle plus one ahead is below",
        ),
    ],
)
def test_rules_of_ottlas_profile(known: Producer | None, batch: BatchHeader, expected: object):
    assert judge(known, batch) == expected


@pytest.mark.parametrize(
    ("rules", "known", "batch", "expected"),
    [
        (ProducerRules(unknown_producer=RuleOutcome.ACCEPT), None, header(9), ACCEPT),
        (ProducerRules(unknown_producer=RuleOutcome.OUT_OF_ORDER), None, header(9), OutOfOrder(0)),
        (ProducerRules(marker_only=RuleOutcome.UNKNOWN), MARKER_ONLY, header(9), RuleOutcome.UNKNOWN),
        (ProducerRules(below_cache=RuleOutcome.OUT_OF_ORDER), SIX, header(0, 10), OutOfOrder(60)),
        (
            ProducerRules(inside_cache=DUPLICATE),
            SIX,
            header(10, 9),
            DUPLICATE,
        ),
        # independent of the rules
        (ProducerRules(unknown_producer=RuleOutcome.ACCEPT), SIX, header(61), OutOfOrder(60)),
        (ProducerRules(below_cache=RuleOutcome.OUT_OF_ORDER), SIX, header(59, 2), OutOfOrder(60)),
    ],
)
def test_rules_of_other_releases(rules: ProducerRules, known: Producer | None, batch: BatchHeader, expected: object):
    assert judge(known, batch, rules) == expected


def test_new_epoch_clears_the_cached_batches():
    assert [cached.first_sequence for cached in remember(SIX, header(0, 2, epoch=6), 200).batches] == [0]
    marked = remember(SIX, header(-1, 1, epoch=6, attributes=CONTROL), 200)
    assert marked == Producer(6, (), 200, 999)
    kept = remember(SIX, header(-1, 1, epoch=5, attributes=CONTROL), 200)
    assert kept.batches == SIX.batches and kept.last_offset == SIX.last_offset == 159


def test_number_of_cached_batches_is_configurable():
    assert len(SIX.batches) == CACHED_BATCHES == 5
    assert len(remember(SIX, header(60), 160, ProducerRules(cached_batches=1)).batches) == 1


def test_producers_without_batches_in_the_log_are_removed():
    producers = {1: SIX, 2: producer((0, 1))}  # last offsets 159 and 100
    drops = ProducerRules(drop_below_log_start=True)
    forget_below(producers, 100, drops)
    assert set(producers) == {1, 2}
    forget_below(producers, 101, drops)
    assert set(producers) == {1}
    forget_below(producers, 1000)
    assert set(producers) == {1}
    forget_below(producers, 160, drops)
    assert producers == {}


def test_producers_below_the_log_start_are_removed_after_a_day_without_expiration():
    producers = {1: producer((0, 1))._replace(last_timestamp_ms=7), 2: SIX}  # last offsets 100 and 159
    assert expires_ms(producers, 100) is None and expires_ms(producers, 101) == 7 + DAY_MS
    assert forget_expired(producers, 1 << 60, 100) == 0
    assert forget_expired(producers, 6 + DAY_MS, 101) == 0
    assert forget_expired(producers, 7 + DAY_MS, 101) == 1 and set(producers) == {2}
    hour = ProducerRules(expiration_ms=3_600_000)
    assert expires_ms(producers, 1000, hour) == expires_ms(producers, 0, hour) == SIX.last_timestamp_ms + 3_600_000


def test_batches_below_the_log_start_are_skipped():
    # dropped at offset 10, the producer started again: its earlier batches must not count as duplicates
    headers = [header(0, 5, offset=0), header(5, 5, offset=5), header(0, 5, offset=10)]

    def replay(headers: list[BatchHeader], log_start_offset: int) -> dict[int, Producer]:
        producers: dict[int, Producer] = {}
        for batch in headers:
            advance(producers, batch, log_start_offset)
        return producers

    assert replay(headers, 10)[7].batches == (CachedBatch(0, 4, 10, 14, 1000),)
    assert judge(replay(headers, 10)[7], header(5, 5)) is ACCEPT
    assert len(replay(headers, 9)[7].batches) == 2  # a batch across the log start is there
    assert 7 not in replay(headers, 15)


@given(start=st.integers(0, MAX), counts=st.lists(st.integers(1, 2**20), min_size=1, max_size=12))
def test_any_batches_are_accepted_once_and_retries_of_the_last_five_detected(start: int, counts: list[int]):
    batches, sequence, offset = [], start, 0
    for count in counts:
        batches.append(header(sequence, count, offset=offset))
        sequence, offset = (sequence + count) % SEQUENCE_SPACE, offset + count
    known = remember(None, batches[0], 0)
    for batch in batches[1:]:
        assert judge(known, batch) is ACCEPT
        followed = follow(known, batch)
        known = remember(known, batch, batch.base_offset)
        assert followed == known  # the fast path has the same result
    for age, batch in enumerate(reversed(batches)):
        verdict = judge(known, batch)
        if age < CACHED_BATCHES:
            assert isinstance(verdict, CachedBatch) and verdict.base_offset == batch.base_offset
        else:
            assert verdict == DUPLICATE


@given(
    known=st.sampled_from([SIX, MARKER_ONLY, producer((MAX, 1)), producer((0, 3), (3, 4))]),
    first=st.sampled_from([0, 1, 3, 7, 10, 50, 59, 60, 61, MAX - 1, MAX]),
    count=st.integers(1, 12),
    epoch=st.integers(4, 6),
    attributes=st.sampled_from([0, 8, 0x10, 0x30]),
    cached_batches=st.integers(1, 6),
)
def test_quick_path_accepts_only_what_the_rules_accept(
    known: Producer, first: int, count: int, epoch: int, attributes: int, cached_batches: int
):
    rules = ProducerRules(cached_batches=cached_batches)
    batch = header(first, count, epoch=epoch, offset=300, attributes=attributes)
    followed = follow(known, batch, rules)
    if followed is not None:
        assert judge(known, batch, rules) is ACCEPT and epoch == known.epoch
        assert followed == remember(known, batch, 300, rules)
    elif not attributes & 0x30 and epoch == known.epoch and known.batches:
        assert judge(known, batch, rules) is not ACCEPT
