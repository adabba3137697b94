"""Kafka's rules for produced records, one by one in their order, and the stored bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import batch, formats, walk
from ottla.protocol.records.batch import Header, Record
from ottla.protocol.records.errors import (
    CorruptRecords,
    DecompressedTooLarge,
    InvalidRecords,
    InvalidTimestamps,
    MessageTooLarge,
    RecordError,
    Undecodable,
    UnknownBatches,
    UnsupportedCodec,
    Unwritable,
    WrongBatches,
)
from ottla.protocol.records.steps import STEP_BYTES, STEP_RECORDS
from ottla.protocol.records.validate import Rules, place, prepare, preparing
from ottla_testing.each import each

NOW = 1_700_000_000_000
HOUR = 3_600_000
SAMPLE = [
    Record(0, NOW, b"a", b"1", (Header("h", b"x"),)),
    Record(1, NOW + 20, b"b", b"2" * 200),
    Record(2, NOW + 10, b"c", None),
]
PLAIN = Rules()


def patched(buffer: bytearray, **fields: int) -> bytearray:
    """Returns the batch with header fields replaced and its CRC corrected."""
    places = {
        "base_offset": (">q", 0),
        "batch_length": (">i", 8),
        "magic": (">b", 16),
        "attributes": (">h", 21),
        "last_offset_delta": (">i", 23),
        "base_timestamp": (">q", 27),
        "max_timestamp": (">q", 35),
        "producer_id": (">q", 43),
        "base_sequence": (">i", 53),
        "record_count": (">i", 57),
    }
    result = bytearray(buffer)
    for name, value in fields.items():
        form, at = places[name]
        struct.pack_into(form, result, at, value)
    if "batch_length" not in fields and "magic" not in fields:
        head = batch.read_header(result)
        batch.reseal(result, attributes=head.attributes, max_timestamp=head.max_timestamp)
    return result


def refused(kind: type[Exception], buffer: bytes | bytearray, rules: Rules = PLAIN, version: int = 13) -> Any:
    before = bytes(buffer)
    with pytest.raises(kind) as caught:
        prepare(bytearray(buffer), rules, NOW, version)
    assert type(caught.value) is kind
    assert bytes(buffer) == before
    return caught.value


def stored(buffer: bytes | bytearray, rules: Rules = PLAIN) -> tuple[batch.BatchHeader, list[Record]]:
    ready = prepare(bytearray(buffer), rules, NOW, 13)
    assert ready.header == batch.read_header(ready.buffer)
    assert ready.header.size_bytes == len(ready.buffer)
    assert ready.header.base_offset == 0
    assert batch.crc_matches(ready.buffer, 0, ready.header)
    batch.assign(ready.buffer, 0, base_offset=0, leader_epoch=0)  # writable
    return ready.header, list(batch.records(ready.buffer))


# --- in place


def test_valid_batch_is_not_copied() -> None:
    built = batch.build(SAMPLE)
    before = bytes(built)
    ready = prepare(built, PLAIN, NOW, 13)
    assert ready.buffer is built
    assert bytes(built) == before
    assert ready.log_append_time_ms == -1
    assert ready.header == batch.read_header(built)

    view = memoryview(built)
    assert prepare(view, PLAIN, NOW, 13).buffer is view

    batch.assign(prepare(memoryview(built), PLAIN, NOW, 13).buffer, 0, base_offset=77, leader_epoch=1)
    assert batch.read_header(built).base_offset == 77


@pytest.mark.parametrize("wrap", [bytes, lambda data: memoryview(bytes(data))], ids=["bytes", "view"])
def test_read_only_bytes_are_copied_once(wrap: Callable[[Any], Any]) -> None:
    built = batch.build(SAMPLE)
    given_bytes = wrap(built)
    ready = prepare(given_bytes, Rules(log_append_time=True), NOW + 5, 13)
    assert isinstance(ready.buffer, bytearray)
    assert ready.header.max_timestamp == NOW + 5
    assert bytes(given_bytes) == built


def test_truncated_second_batch_is_ignored() -> None:
    built = batch.build(SAMPLE)
    for extra in (built[:5], built[:16], built[:17], built[:-1]):
        ready = prepare(built + extra, PLAIN, NOW, 13)
        assert bytes(ready.buffer) == built


# --- one batch of magic 2


def test_no_batch_or_two_batches_are_refused() -> None:
    built = batch.build(SAMPLE)
    for end in (0, 5, 12, 16, 17, len(built) - 1):
        refused(WrongBatches, built[:end])
    refused(WrongBatches, built + built)
    legacy = bytes(8) + struct.pack(">i", 14) + bytes(14)
    refused(WrongBatches, legacy)
    refused(WrongBatches, built + legacy)
    refused(UnknownBatches, built + bytes(20))


def test_bad_magic_or_size_is_refused() -> None:
    built = batch.build(SAMPLE)
    for magic, kind in ((0, WrongBatches), (1, WrongBatches), (3, UnknownBatches), (-1, UnknownBatches)):
        refused(kind, patched(built, magic=magic))
    for length in (-1, 0, 13):
        refused(UnknownBatches, patched(built, batch_length=length))
    for length in (14, 48):
        with pytest.raises(CorruptRecords):
            prepare(patched(built, batch_length=length), PLAIN, NOW, 13)
        refused(UnsupportedCodec, patched(batch.build(SAMPLE, codec=4), batch_length=length), version=6)


def test_zstd_below_produce_v7_is_refused() -> None:
    built = batch.build(SAMPLE, codec=4)
    refused(UnsupportedCodec, built, version=6)
    with pytest.raises(UnsupportedCodec):
        prepare(built, Rules(produce_version=3), NOW)
    assert prepare(built, PLAIN, NOW, 7).buffer is built
    assert prepare(built, PLAIN, NOW).buffer is built


def test_size_is_checked_after_the_base_offset_and_before_the_crc() -> None:
    built = batch.build(SAMPLE)
    exact = Rules(max_message_bytes=len(built))
    tight = Rules(max_message_bytes=len(built) - 1)
    prepare(bytearray(built), exact, NOW, 13)
    refused(MessageTooLarge, built, tight)
    built[70] ^= 1
    refused(CorruptRecords, built, exact)
    refused(MessageTooLarge, built, tight)
    built[7] = 1
    refused(InvalidRecords, built, tight)


@pytest.mark.parametrize(
    "fields",
    [
        {"base_offset": 1},
        {"last_offset_delta": 3},
        {"last_offset_delta": -1},
        {"record_count": 2},
        {"record_count": 0, "last_offset_delta": -1},
        {"record_count": -1, "last_offset_delta": -2},
        {"record_count": 4, "last_offset_delta": 3},
        {"record_count": 2, "last_offset_delta": 1},
        {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
        {"attributes": 0x20},
        {"producer_id": 4},
    ],
    ids=str,
)
def test_invalid_header_is_refused(fields: dict[str, int]) -> None:
    refused(InvalidRecords, patched(batch.build(SAMPLE), **fields))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_refused(codec: int) -> None:
    refused(Undecodable, patched(batch.build(SAMPLE), attributes=codec))


def test_tiny_batch_with_many_declared_records_is_refused() -> None:
    header_only = batch.build([], batch.BatchFields(last_offset_delta=0))
    assert len(header_only) == 61
    refused(InvalidRecords, patched(header_only, record_count=2**31 - 1, last_offset_delta=2**31 - 2))


def test_producer_fields_are_stored() -> None:
    built = batch.build(SAMPLE, batch.BatchFields(producer_id=4, producer_epoch=0, base_sequence=0, transactional=True))
    head, records = stored(built)
    assert (head.producer_id, head.base_sequence, head.is_transactional) == (4, 0, True)
    assert records == SAMPLE


# --- timestamps


@pytest.mark.parametrize("codec", [0, 1])
def test_stored_max_timestamp_is_that_of_the_records(codec: int) -> None:
    built = batch.build(SAMPLE, codec=codec)
    for lie in (-1, NOW, NOW + 10**9, 2**63 - 1):
        assert stored(patched(built, max_timestamp=lie))[0].max_timestamp == NOW + 20
    # Without the walk the header is trusted.
    trusting = Rules(walk_records=False)
    assert stored(patched(built, max_timestamp=NOW + 99), trusting)[0].max_timestamp == NOW + 99


@pytest.mark.parametrize("codec", [0, 3])
@pytest.mark.parametrize("max_timestamp", [NOW, NOW + 2 * HOUR], ids=["lying", "honest"])
def test_timestamps_out_of_range_are_listed_in_the_error(codec: int, max_timestamp: int) -> None:
    times = [NOW, NOW + HOUR, NOW + HOUR + 1, -1, NOW - HOUR, NOW - HOUR - 1, NOW + 2 * HOUR]
    records = [Record(index, time, b"k", b"v") for index, time in enumerate(times)]
    built = batch.build(records, batch.BatchFields(max_timestamp=max_timestamp), codec=codec)
    after = refused(InvalidTimestamps, built, Rules(timestamp_after_max_ms=HOUR))
    assert [error.batch_index for error in after.record_errors] == [2, 6]
    before = refused(InvalidTimestamps, built, Rules(timestamp_before_max_ms=HOUR))
    assert [error.batch_index for error in before.record_errors] == [5]
    both = refused(InvalidTimestamps, built, Rules(timestamp_before_max_ms=HOUR, timestamp_after_max_ms=HOUR))
    assert [error.batch_index for error in both.record_errors] == [2, 5, 6]
    assert all(isinstance(error, RecordError) and error.message for error in both.record_errors)
    assert both.message
    stored(built, Rules(timestamp_before_max_ms=HOUR + 1, timestamp_after_max_ms=2 * HOUR))
    stored(built, Rules(timestamp_before_max_ms=0, timestamp_after_max_ms=0, log_append_time=True))


def test_base_timestamp_of_no_record_is_accepted() -> None:
    # The base is far in the past; the only delta brings the record to now.
    built = batch.build([Record(0, NOW, b"k", b"v")], batch.BatchFields(delete_horizon_ms=NOW - 10 * HOUR))
    plain = patched(built, attributes=0)
    head, records = stored(plain, Rules(timestamp_before_max_ms=HOUR))
    assert records[0].timestamp == NOW and head.max_timestamp == NOW


def test_header_timestamps_are_used_without_the_walk() -> None:
    rules = Rules(walk_records=False, timestamp_after_max_ms=HOUR)
    built = batch.build([Record(0, NOW, b"k", b"v"), Record(1, NOW + 2 * HOUR, b"k", b"v")])
    error = refused(InvalidTimestamps, built, rules)
    assert [item.batch_index for item in error.record_errors] == [1]


def test_missing_timestamps_are_accepted_and_kept() -> None:
    records = [Record(index, -1, b"k", b"v") for index in range(3)]
    rules = Rules(timestamp_before_max_ms=0, timestamp_after_max_ms=0)
    head, found = stored(batch.build(records), rules)
    assert (head.base_timestamp, head.max_timestamp) == (-1, -1)
    assert found == records


def test_timestamps_beyond_64_bits_are_refused() -> None:
    """Java wraps them, other clients do not."""
    built = patched(batch.build(SAMPLE), base_timestamp=2**63 - 5)
    error = refused(InvalidTimestamps, built)
    assert [item.batch_index for item in error.record_errors] == [1, 2]
    low = batch.build([Record(0, 5, b"k", b"v"), Record(1, 0, b"k", b"v")])
    refused(InvalidTimestamps, patched(low, base_timestamp=-(2**63)))


def test_timestamp_whose_distance_from_now_overflows_is_refused() -> None:
    """Like in Kafka, which subtracts it from now in 64 bits."""
    first = NOW - (2**63 - 1)
    for timestamp, is_stored in ((-(2**63), False), (first - 1, False), (first, True), (-2, True)):
        built = batch.build([Record(0, timestamp, b"k", b"v")])
        stored(built)
        if is_stored:
            stored(built, Rules(timestamp_after_max_ms=HOUR))
        else:
            refused(InvalidTimestamps, built, Rules(timestamp_after_max_ms=HOUR))


@pytest.mark.parametrize("codec", [0, 2])
def test_log_append_time_replaces_timestamps(codec: int) -> None:
    built = batch.build(SAMPLE, codec=codec)
    ready = prepare(built, Rules(log_append_time=True), NOW + 123, 13)
    assert ready.buffer is built
    assert ready.log_append_time_ms == NOW + 123
    assert ready.header.log_append_time
    assert (ready.header.base_timestamp, ready.header.max_timestamp) == (NOW, NOW + 123)
    assert batch.crc_matches(built, 0, ready.header)
    assert {record.timestamp for record in batch.records(built)} == {NOW + 123}
    # The deltas are those of the producer.
    batch.reseal(built, attributes=codec, max_timestamp=NOW + 20)
    assert bytes(built) == bytes(batch.build(SAMPLE, codec=codec))


@pytest.mark.parametrize("codec", [0, 4])
def test_batch_with_log_append_time_set_by_the_client(codec: int) -> None:
    built = batch.build(SAMPLE, batch.BatchFields(log_append_time=True), codec=codec)
    head, records = stored(built, Rules(timestamp_after_max_ms=HOUR))
    assert not head.log_append_time and head.max_timestamp == NOW + 20
    assert records == SAMPLE
    for rules in (Rules(log_append_time=True), Rules(append_time_bit_allowed=False)):
        error = refused(InvalidTimestamps, built, rules)
        assert [item.batch_index for item in error.record_errors] == [0, 1, 2]
    refused(InvalidTimestamps, patched(built, max_timestamp=-1))
    # All records have the batch's timestamp.
    refused(InvalidTimestamps, patched(built, max_timestamp=NOW + HOUR + 1), Rules(timestamp_after_max_ms=HOUR))


# --- keys


@pytest.mark.parametrize("codec", [0, 1])
def test_records_without_key_in_compacted_topic_are_refused(codec: int) -> None:
    rules = Rules(compacted=True, timestamp_after_max_ms=HOUR)
    assert stored(batch.build(SAMPLE, codec=codec), rules)[1] == SAMPLE
    keys = [b"", None, b"k", None]
    records = [Record(index, NOW, key, b"v") for index, key in enumerate(keys)]
    error = refused(InvalidRecords, batch.build(records, codec=codec), rules)
    assert [item.batch_index for item in error.record_errors] == [1, 3]
    # One error per record, that of the key first; any invalid timestamp decides the code.
    records[1] = records[1]._replace(timestamp=NOW + 2 * HOUR)
    assert type(refused(InvalidRecords, batch.build(records, codec=codec), rules)) is InvalidRecords
    records[2] = records[2]._replace(timestamp=NOW + 2 * HOUR)
    error = refused(InvalidTimestamps, batch.build(records, codec=codec), rules)
    assert [item.batch_index for item in error.record_errors] == [1, 2, 3]


def test_number_of_record_errors_is_bounded() -> None:
    records = [Record(index, NOW, None, None) for index in range(10_050)]
    error = refused(InvalidRecords, batch.build(records), Rules(compacted=True))
    assert len(error.record_errors) == 10_000
    assert "10050" in error.message


# --- codecs


@each("source", range(5))
@each("target", range(5))
def test_batch_is_stored_with_the_topics_codec(source: int, target: int) -> None:
    built = batch.build(
        SAMPLE, batch.BatchFields(producer_id=4, producer_epoch=3, base_sequence=9, transactional=True), codec=source
    )
    ready = prepare(built, Rules(compression=target), NOW, 13)
    assert (ready.buffer is built) == (source == target)
    head, records = stored(built, Rules(compression=target))
    assert head.codec == target
    assert (head.producer_id, head.producer_epoch, head.base_sequence, head.is_transactional) == (4, 3, 9, True)
    assert (head.base_timestamp, head.max_timestamp, head.last_offset_delta) == (NOW, NOW + 20, 2)
    assert records == SAMPLE


def test_batch_is_compressed_with_the_topics_level() -> None:
    records = [Record(0, NOW, b"k", bytes(index * index % 251 for index in range(50_000)) * 2)]
    built = batch.build(records)
    sizes = [stored(built, Rules(compression=1, compression_level=level))[0].size_bytes for level in (1, 9)]
    assert sizes[1] < sizes[0]


def test_recompressed_batch_has_the_brokers_time() -> None:
    head, records = stored(batch.build(SAMPLE, codec=1), Rules(compression=0, log_append_time=True))
    assert head.log_append_time and head.max_timestamp == NOW and head.base_timestamp == NOW
    assert [record.value for record in records] == [record.value for record in SAMPLE]


@pytest.mark.parametrize("target", [None, 1, 3])
def test_records_with_offset_gaps_are_renumbered(target: int | None) -> None:
    gappy = [record._replace(offset=record.offset * 2) for record in SAMPLE]
    built = patched(batch.build(gappy, codec=1), last_offset_delta=2)
    if target != 3:  # up to 2.4
        refused(Unwritable, built, Rules(compression=target))
    head, records = stored(built, Rules(compression=target, unnumbered_fail=False))
    assert head.codec == (1 if target is None else target)
    assert records == SAMPLE


def test_rebuilt_batch_begins_at_the_first_record() -> None:
    built = patched(batch.build(SAMPLE, batch.BatchFields(delete_horizon_ms=NOW - 1000)), attributes=0)
    head, records = stored(built, Rules(compression=4))
    assert head.base_timestamp == NOW
    assert records == SAMPLE
    # With the log-append-time bit every record gets the batch's timestamp when it is written again.
    marked = batch.build(SAMPLE, batch.BatchFields(log_append_time=True))
    head, records = stored(marked, Rules(compression=2))
    assert not head.log_append_time
    assert {record.timestamp for record in records} == {NOW + 20}


def test_rebuilt_batch_above_the_limit_is_refused() -> None:
    built = batch.build([Record(0, NOW, b"k", bytes(5000))], codec=1)
    assert len(built) < 1000
    refused(MessageTooLarge, built, Rules(max_message_bytes=1000, compression=0))
    prepare(built, Rules(max_message_bytes=1000), NOW, 13)


def test_decompression_above_the_bound_is_refused() -> None:
    built = batch.build([Record(0, NOW, b"k", bytes(100_000))], codec=4)
    refused(DecompressedTooLarge, built, Rules(max_decompressed_bytes=100_000))
    prepare(built, Rules(max_decompressed_bytes=101_000), NOW, 13)


def test_records_of_a_compressed_batch_are_checked() -> None:
    built = batch.build(SAMPLE, codec=1)
    refused(InvalidRecords, patched(built, record_count=2, last_offset_delta=1))
    refused(InvalidRecords, patched(built, record_count=4, last_offset_delta=3))
    refused(Undecodable, patched(built, attributes=2))
    prepare(patched(built, attributes=2), Rules(walk_records=False), NOW, 13)


# --- arbitrary input

rule_sets = st.builds(
    Rules,
    max_message_bytes=st.sampled_from([100, 1048588]),
    log_append_time=st.booleans(),
    timestamp_before_max_ms=st.sampled_from([HOUR, 2**63 - 1]),
    timestamp_after_max_ms=st.sampled_from([HOUR, 2**63 - 1]),
    compacted=st.booleans(),
    compression=st.sampled_from([None, 0, 1, 2, 3, 4]),
    walk_records=st.booleans(),
)


@given(data=st.data(), rules=rule_sets, codec=st.sampled_from(range(5)), sealed=st.booleans())
def test_damaged_batch_is_refused_with_declared_errors(
    data: st.DataObject, rules: Rules, codec: int, sealed: bool
) -> None:
    damaged = batch.build(SAMPLE, codec=codec)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(17, 60) | st.integers(0, len(damaged) - 1))
        damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    if sealed:
        try:
            head = batch.read_header(damaged)
            batch.reseal(damaged, attributes=head.attributes, max_timestamp=head.max_timestamp)
        except CorruptRecords:
            pass
    end = data.draw(st.just(len(damaged)) | st.integers(0, len(damaged)))
    try:
        ready = prepare(damaged[:end], rules, NOW, 13)
    except (CorruptRecords, InvalidRecords, MessageTooLarge, UnsupportedCodec, Unwritable):
        return
    assert batch.crc_matches(ready.buffer, 0, ready.header)
    if rules.walk_records:
        assert len(list(formats.headers(ready.buffer))) == 1
        assert ready.header.record_count == ready.header.last_offset_delta + 1
        assert len(list(batch.records(ready.buffer))) == ready.header.record_count


# --- written again, moved, in steps


@pytest.mark.parametrize("rules", [Rules(compression=1), Rules(compression=0)])
def test_timestamp_below_minus_one_cannot_be_rewritten(rules: Rules) -> None:
    records = [Record(0, NOW, b"k", b"v"), Record(1, -2, b"k", b"v")]
    refused(Unwritable, batch.build(records, codec=3), rules)
    assert stored(batch.build(records, codec=3))[1] == records


def test_renumbered_records_keep_everything_else() -> None:
    headers = (Header("h", b"x"), Header("", None))
    gappy = [Record(3 * index, NOW - index, b"k" * 70, None, headers) for index in range(200)]
    built = patched(batch.build(gappy, codec=1), last_offset_delta=199)
    head, records = stored(built, Rules(unnumbered_fail=False))
    assert records == [record._replace(offset=index) for index, record in enumerate(gappy)]
    assert (head.base_timestamp, head.max_timestamp) == (NOW, NOW)
    error = refused(InvalidRecords, built, Rules(refuse_unnumbered=True))
    assert [item.batch_index for item in error.record_errors] == list(range(1, 200))
    prepare(batch.build(gappy[:1], codec=1), Rules(refuse_unnumbered=True), NOW, 13)


def test_batch_gets_its_offset_without_a_copy() -> None:
    built = batch.build(SAMPLE)
    ready = prepare(built, PLAIN, NOW, 13, 30)
    assert (ready.base_offset, ready.header.base_offset, ready.next_offset) == (0, 0, 3)
    for base_offset in (77, 5):
        ready = place(ready, base_offset, 4)
        assert ready.buffer is built
        assert ready.headers == (ready.header,) == (batch.read_header(built),)
        assert (ready.base_offset, ready.header.partition_leader_epoch, ready.next_offset) == (
            base_offset,
            4,
            base_offset + 3,
        )
        assert batch.crc_matches(built, 0, ready.header)


@each("count", [2 * walk.RECORDS_AT_ONCE, 2 * walk.RECORDS_AT_ONCE + 1, 4 * walk.RECORDS_AT_ONCE], strided=True)
@each("codec", [0, 1])
@each(
    "rules",
    [
        PLAIN,
        Rules(compacted=True),
        Rules(compression=1),
        Rules(compression=0),
        Rules(log_append_time=True),
        Rules(timestamp_after_max_ms=1),
        Rules(target_magic=1),
    ],
)
def test_batch_of_many_records_is_prepared_in_steps(count: int, codec: int, rules: Rules) -> None:
    records = [Record(index, NOW - index, b"k", b"") for index in range(count)]
    built = batch.build(records, codec=codec)
    yields, ready = 0, None
    steps = preparing(built, rules, NOW, 13)
    try:
        call = next(steps)
        while True:
            yields += call is None
            call = steps.send(call() if call else None)
    except StopIteration as done:
        ready = done.value
    assert yields >= (count - 1) // STEP_RECORDS
    assert ready == prepare(batch.build(records, codec=codec), rules, NOW, 13)
    kept = [(record.offset, record.key) for header in ready.headers[:1] for record in formats.records(ready.buffer)]
    assert kept == [(index, b"k") for index in range(count)][: len(kept)]


def test_record_of_many_headers_is_checked_in_steps() -> None:
    headers = tuple(Header("", None) for _ in range(5 * STEP_RECORDS))
    built = batch.build([Record(0, NOW, b"k", b"v", headers)])
    assert len(list(preparing(built, Rules(compacted=True), NOW, 13))) >= 4
    for wrong in (5 * STEP_RECORDS - 1, 5 * STEP_RECORDS + 1):
        damaged = bytearray(built)
        at = bytes(built).index(b"v", 62) + 1
        damaged[at : at + 3] = walk.zigzag(wrong)
        batch.reseal(damaged, attributes=0, max_timestamp=NOW)
        refused(InvalidRecords, damaged, Rules(compacted=True))


def test_large_batch_is_checked_and_decompressed_in_a_thread() -> None:
    value = bytes(STEP_BYTES)
    inflated = batch.build([Record(0, NOW, b"k", value)], codec=1)
    assert [call is not None for call in driven(preparing(inflated, PLAIN, NOW, 13))] == [True]
    recompressed = driven(preparing(inflated, Rules(compression=3), NOW, 13))
    assert [call is not None for call in recompressed] == [True, True]
    wide = Rules(max_message_bytes=1 << 30)
    summed = batch.build([Record(0, NOW, b"k", value * 17)])
    assert [call is not None for call in driven(preparing(summed, wide, NOW, 13))] == [True, True]
    summed[-1] ^= 1
    refused(CorruptRecords, summed, wide)


def driven(steps: Any) -> list[Any]:
    """Returns what is yielded on the way to the result."""
    yielded: list[Any] = []
    result = None
    try:
        while True:
            yielded.append(steps.send(result))
            result = yielded[-1]() if yielded[-1] else None
    except StopIteration:
        return yielded
