"""The check of plain batches accepts only what the general rules accept, with the same result."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from ottla.protocol.records import batch
from ottla.protocol.records.batch import Header, Record
from ottla.protocol.records.errors import CorruptRecords, InvalidRecords, MessageTooLarge
from ottla.protocol.records.plain import plain_header
from ottla.protocol.records.rules import Prepared, Rules
from ottla.protocol.records.steps import run
from ottla.protocol.records.validate import Decision, slow_path_steps
from ottla.protocol.records.walk import RECORDS_AT_ONCE
from ottla_testing.protocol.batches import batch_of

NOW_MS = 1_700_000_000_000
RULES = (
    Rules(),
    Rules(compacted=True),
    Rules(walk_records=False),
    Rules(max_message_bytes=200),
    Rules(timestamp_before_max_ms=100, timestamp_after_max_ms=100),
    Rules(timestamp_before_max_ms=100),
    Rules(log_append_time=True),
    Rules(compression=0),
    Rules(compression=1),
    Rules(target_magic=1),
    Rules(record_errors="none", refuse_unnumbered=True, unnumbered_fail=False),
)


def drawn(draw: random.Random) -> bytearray:
    """A batch, plain or nearly so."""
    count = draw.choice((1, 1, 2, 9, 40))
    start = NOW_MS + draw.choice((0, 0, -90, -101, 90, 101))
    records = [
        Record(
            n,
            start + draw.choice((0, 1, n, -1)),
            draw.choice((None, b"", b"key", b"k" * 70)),
            draw.choice((None, b"", b"value", b"v" * 130)),
            draw.choice(((), (), (Header("h", b"x"), Header("h", None)))),
        )
        for n in range(count)
    ]
    producer = draw.choice(({}, {"producer_id": 5, "producer_epoch": 0, "base_sequence": draw.choice((0, 7, -1))}))
    kind = draw.choice(({}, {}, {}, {}, {"codec": 1}, {"transactional": True}, {"base_offset": 3}, {"control": True}))
    return batch_of(records, **producer, **kind)


def damaged(draw: random.Random, whole: bytearray) -> bytearray:
    """One bit of another value; mostly with the right CRC, so that more than the CRC finds it."""
    found = bytearray(whole)
    at = draw.randrange(len(found))
    found[at] ^= 1 << draw.randrange(8)
    if draw.random() < 0.8:
        header = batch.BatchHeader._make(batch.HEADER.unpack_from(found))
        batch.reseal(found, attributes=header.attributes, max_timestamp=header.max_timestamp)
    return found


def general(records: bytearray, rules: Rules) -> Prepared | None:
    """The result of the general rules, None for a refusal."""
    steps = slow_path_steps(bytearray(records), Decision(None), rules, NOW_MS, 9, 0)
    try:
        return run(steps)
    except (CorruptRecords, InvalidRecords, MessageTooLarge):
        return None


@pytest.mark.soak
def test_plain_batches_pass_the_general_rules_unchanged(scaled: Callable[[int], int]) -> None:
    draw = random.Random(seed := random.randrange(1 << 32))
    accepted = 0
    for _ in range(scaled(3000)):
        records = drawn(draw)
        for one in (records, damaged(draw, records), records[: draw.randrange(61, len(records))]):
            rules = draw.choice(RULES)
            header = plain_header(one, rules, NOW_MS)
            if header is not None:
                accepted += 1
                expected = Prepared(one, header, -1, 0, (header,), None)
                assert general(one, rules) == expected, (seed, one.hex(), rules)
    assert accepted


@pytest.mark.parametrize(
    "rules", [Rules(), Rules(compression=0), Rules(max_message_bytes=200), Rules(walk_records=False)]
)
def test_what_producers_send_most_is_plain(rules: Rules) -> None:
    for count in (1, 3, 10):
        records = [Record(n, NOW_MS + n, b"k", b"value") for n in range(count)]
        sent = batch_of(records, producer_id=1, producer_epoch=0, base_sequence=4)
        assert plain_header(sent, rules, NOW_MS) == batch.read_header(sent)
        assert plain_header(bytes(sent), rules, NOW_MS) == batch.read_header(sent)
        assert plain_header(memoryview(sent), replace(rules, max_message_bytes=len(sent) - 1), NOW_MS) is None


def test_batch_of_more_than_one_step_is_not_plain() -> None:
    for count in (RECORDS_AT_ONCE, RECORDS_AT_ONCE + 1):
        sent = batch_of([Record(n, NOW_MS, None, b"") for n in range(count)])
        assert (plain_header(sent, Rules(), NOW_MS) is None) is (count > RECORDS_AT_ONCE)
