"""The results of each family of releases for the same bytes: the rows of Kafka's LogValidator and its log append, as
data.

The rules of a family are written here as the broker makes them from its table of behaviours; a test at the end compares
the two.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import pytest

from ottla.broker.releases.profiles import profile
from ottla.protocol.records import batch
from ottla.protocol.records.batch import CorruptRecords, Record
from ottla.protocol.records.errors import InvalidRecords, InvalidTimestamps
from ottla.protocol.records.rules import Rules
from ottla.protocol.records.validate import place, prepare
from ottla_testing.each import each
from ottla_testing.protocol.batches import batch_of
from ottla_testing.protocol.message_sets import (
    HOUR,
    LOG_APPEND_TIME,
    NOW,
    SAMPLE,
    made,
    message,
    plain,
    read,
    sealed,
    wrapper,
)

# The differences between families; `target_magic` is the format of a topic with default configs.
FAMILIES: dict[str, Rules] = {
    "0.9": Rules(
        counted_record_errors=False,
        sizes_overflow=False,
        target_magic=0,
        one_magic=False,
        record_errors="none",
        append_time_bit_allowed=False,
        unnumbered_fail=False,
        zstd_allowed=False,
        max_message_bytes=1000012,
    ),
    "0.10.2": Rules(
        counted_record_errors=False,
        sizes_overflow=False,
        target_magic=1,
        one_magic=False,
        record_errors="none",
        append_time_bit_allowed=False,
        unnumbered_fail=False,
        zstd_allowed=False,
        max_message_bytes=1000012,
    ),
    "1.1": Rules(
        counted_record_errors=False,
        one_magic=False,
        record_errors="none",
        append_time_bit_allowed=False,
        unnumbered_fail=False,
        zstd_allowed=False,
    ),
    "2.3": Rules(
        counted_record_errors=False,
        one_magic=False,
        record_errors="none",
        append_time_bit_allowed=False,
        unnumbered_fail=False,
    ),
    "2.4": Rules(
        counted_record_errors=False,
        record_errors="first",
        refuse_unnumbered=True,
        append_time_bit_allowed=False,
        unnumbered_fail=False,
    ),
    "2.5": Rules(counted_record_errors=False, append_time_bit_allowed=False, unnumbered_fail=False),
    "2.8": Rules(counted_record_errors=False, append_time_bit_allowed=False),
    "3.5": Rules(append_time_bit_allowed=False),
    "3.9": Rules(),
    "4.3": Rules(old_formats=False, timestamp_after_max_ms=HOUR),
    "ottla": Rules(),
}
OLD_MAGIC = ("0.9", "0.10.2")
MERGING = ("0.9", "0.10.2", "1.1", "2.3")
ONE_BY_ONE = (*MERGING, "2.4")
BIT_REFUSED = (*ONE_BY_ONE, "2.5", "2.8", "3.5")
WITH_OLD = tuple(name for name in FAMILIES if name != "4.3")

CORRUPT, INVALID, TIMES = "CorruptRecords", "InvalidRecords", "InvalidTimestamps"
LARGE, CODEC, FORMAT, UNWRITABLE = "MessageTooLarge", "UnsupportedCodec", "UnsupportedForFormat", "Unwritable"
WRONG = "WrongBatches"
NOTHING, KEPT, REBUILT = "nothing", "in place", "rebuilt"


def outcome(data: bytes | bytearray, rules: Rules, version: int = 2) -> str:
    """Returns the error, or whether the set is stored in its own bytes."""
    buffer = bytearray(data)
    try:
        ready = prepare(buffer, rules, NOW, version, 100)
    except Exception as error:
        assert bytes(buffer) == bytes(data)
        return CORRUPT if isinstance(error, CorruptRecords) else type(error).__name__
    read(ready)
    if not ready.headers:
        return NOTHING
    own = ready.buffer if isinstance(ready.buffer, bytearray) else ready.buffer.obj
    return KEPT if own is buffer else REBUILT


def family(name: str, **changes: Any) -> Rules:
    return dataclasses.replace(FAMILIES[name], **changes)


def indexes(data: bytes | bytearray, rules: Rules, version: int = 2) -> tuple[str, list[int]]:
    """Returns the error's name and the refused records."""
    try:
        prepare(bytearray(data), rules, NOW, version)
    except Exception as error:
        return type(error).__name__, [item.batch_index for item in getattr(error, "record_errors", [])]
    return "accepted", []


def header_changed(at: int, form: str, value: int, built: bytearray | None = None) -> bytearray:
    """Returns a v2 batch with a field replaced and its CRC corrected."""
    data = bytearray(built or batch.build(SAMPLE))
    struct.pack_into(form, data, at, value)
    head = batch.read_header(data)
    batch.reseal(data, attributes=head.attributes, max_timestamp=head.max_timestamp)
    return data


def broken(data: bytes, at: int = -1) -> bytes:
    damaged = bytearray(data)
    damaged[at] ^= 1
    return bytes(damaged)


# --- 2.1, splitting: the same in all releases

V0, V1, V2 = message(magic=0), message(magic=1), bytes(batch.build(SAMPLE[:1]))

SPLITTING: list[tuple[str, bytes, str]] = [
    ("nothing at all", b"", NOTHING),
    ("no room for offset and size", bytes(11), NOTHING),
    ("a size of 13", struct.pack(">qi", 0, 13) + bytes(40), CORRUPT),
    ("a size below 0", struct.pack(">qi", 0, -1) + bytes(40), CORRUPT),
    ("a size of 13, cut", struct.pack(">qi", 0, 13), CORRUPT),
    ("the magic is not there", struct.pack(">qi", 0, 14) + bytes(4), NOTHING),
    ("magic 3", V1[:16] + b"\x03" + V1[17:], CORRUPT),
    ("magic -1", V1[:16] + b"\xff" + V1[17:], CORRUPT),
    ("magic 3 of a cut entry", V1[:16] + b"\x03", CORRUPT),
    ("a cut v0 message", V0[:-1], NOTHING),
    ("a cut v1 message", V1[:-1], NOTHING),
    ("a cut v2 batch", V2[:-1], NOTHING),
    ("a v2 batch of 60 bytes", struct.pack(">qiib", 0, 48, 0, 2) + bytes(43), CORRUPT),
    ("v0, wrong CRC", broken(V0), CORRUPT),
    ("v1, wrong CRC", broken(V1), CORRUPT),
    ("v2, wrong CRC", broken(V2), CORRUPT),
    ("v0 wrapper, wrong CRC", broken(made(0, 1)), CORRUPT),
    ("v1 wrapper, wrong CRC", broken(made(1, 1)), CORRUPT),
    ("the second message has a wrong CRC", V1 + broken(V1), CORRUPT),
]


@each("release", FAMILIES)
@each(("why", "data", "result"), SPLITTING)
def test_batches_of_a_set_are_split_as_by_each_release(release: str, why: str, data: bytes, result: str) -> None:
    assert outcome(data, FAMILIES[release]) == result


# --- 2.2, limits


@each("release", WITH_OLD)
@each("magic", [0, 1, 2])
@each("codec", [0, 1])
def test_size_limits_of_each_release(release: str, magic: int, codec: int) -> None:
    data = made(magic, codec)
    largest = len(data) if codec or magic == 2 else max(len(plain([record], magic)) for record in SAMPLE)
    target = family(release, target_magic=magic)
    assert outcome(data, dataclasses.replace(target, max_message_bytes=largest - 1)) == LARGE
    assert outcome(broken(data), dataclasses.replace(target, max_message_bytes=10)) == LARGE  # before the CRC
    if codec and magic:
        assert outcome(data, dataclasses.replace(target, max_message_bytes=largest)) == KEPT
    other = dataclasses.replace(target, max_message_bytes=largest + 5, compression=0)
    assert (
        outcome(wrapper(plain([Record(0, NOW, b"k", bytes(999))])), dataclasses.replace(other, max_message_bytes=200))
        == LARGE
    )


# --- 2.3, the version of the request


@each("release", FAMILIES)
@each("version", range(14))
def test_formats_by_request_version_of_each_release(release: str, version: int) -> None:
    rules = FAMILIES[release]
    old = INVALID if release == "4.3" else None
    stored = {name: outcome(data, rules, version) for name, data in {"v0": V0, "v1": V1, "v2": V2}.items()}
    if version >= 3:
        assert (stored["v0"], stored["v1"]) == (WRONG, WRONG)
        assert outcome(b"", rules, version) == outcome(V2[:-1], rules, version) == WRONG
        assert outcome(V2 + V2, rules, version) == outcome(V2 + V1, rules, version) == WRONG
        assert outcome(V2 + V2[:-1], rules, version) == stored["v2"]
    else:
        assert (stored["v0"], stored["v1"]) == (
            old or (KEPT if rules.target_magic == 0 else REBUILT),
            old or (KEPT if rules.target_magic == 1 else REBUILT),
        )
        assert outcome(b"", rules, version) == NOTHING
        assert outcome(V1 + V1, rules, version) == stored["v1"]
        assert outcome(V2 + V2, rules, version) == (REBUILT if release in MERGING else INVALID)
    assert stored["v2"] == (KEPT if rules.target_magic == 2 else REBUILT)


@each("release", FAMILIES)
@each("version", range(14))
def test_zstd_by_request_version_of_each_release(release: str, version: int) -> None:
    rules = FAMILIES[release]
    refused = not rules.zstd_allowed or 3 <= version < 7
    assert outcome(made(2, 4), rules, version) == (CODEC if refused else KEPT)
    # A topic that stores zstd, whatever the producer's codec.
    to_zstd = CODEC if not rules.zstd_allowed else REBUILT
    assert outcome(made(2, 1), dataclasses.replace(rules, compression=4), version) == to_zstd


# --- 2.4, each batch

FIRST_PRODUCER = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0}

BATCHES: list[tuple[str, bytes | bytearray]] = [
    ("base offset", header_changed(0, ">q", 1)),
    ("offsets that end before they begin", header_changed(23, ">i", -2)),
    ("no records", header_changed(57, ">i", 0)),
    ("a count below 0", header_changed(57, ">i", -1)),
    ("a count that the offsets belie", header_changed(57, ">i", 2)),
    ("a control batch", batch.build(SAMPLE, batch.BatchFields(control=True))),
    ("no sequence with a producer", header_changed(43, ">q", 9)),
    ("more records than declared", header_changed(57, ">i", 2, header_changed(23, ">i", 1))),
    ("fewer records than declared", header_changed(57, ">i", 4, header_changed(23, ">i", 3))),
    (
        "more compressed records than declared",
        header_changed(57, ">i", 2, header_changed(23, ">i", 1, batch.build(SAMPLE, codec=1))),
    ),
    (
        "bytes after the last record",
        header_changed(8, ">i", len(batch.build(SAMPLE)) - 11, batch.build(SAMPLE) + b"\0"),
    ),
    ("a varint of six bytes", header_changed(61, ">q", -1)),
]


@pytest.mark.parametrize("release", FAMILIES)
def test_unknown_codec_is_refused(release: str) -> None:
    assert outcome(header_changed(21, ">h", 5), FAMILIES[release], 13) == "Undecodable"


@each("version", [2, 3, 13])
@each("release", FAMILIES)
@each(("why", "data"), BATCHES)
def test_batch_rules_of_each_release(release: str, why: str, data: bytes, version: int) -> None:
    assert outcome(data, FAMILIES[release], version) == INVALID


@pytest.mark.parametrize("release", WITH_OLD)
def test_mixed_formats_of_each_release(release: str) -> None:
    """Rows 1 and 2: refused from 2.4 on; in earlier releases the entries become one set."""
    rules = FAMILIES[release]
    merged = REBUILT if release in MERGING else INVALID
    packed, packed_v0 = made(1, 1), made(0, 1)
    for data in (V0 + V1, V1 + V0, V1 + V2, V2 + V1, packed + packed, packed + V1, V1 + packed, packed_v0 + packed_v0):
        assert outcome(data, rules) == merged
        assert outcome(data, dataclasses.replace(rules, compression=3)) == merged
    if merged == REBUILT:
        ready = place(prepare(packed + V1 + packed_v0, rules, NOW, 2), 7, 0)
        assert [(record.offset, record.key) for record in read(ready)] == [
            (7 + index, key) for index, key in enumerate([b"a", b"", b"c", b"k", b"a", b"", b"c"])
        ]
        assert (len(ready.headers), ready.header.codec) == (1, 1)


@each("release", FAMILIES)
@each("target", [0, 1, 2])
def test_producer_ids_require_v2(release: str, target: int) -> None:
    rules = family(release, target_magic=target)
    for fields in (FIRST_PRODUCER, {"transactional": True}):
        for codec in (0, 1):
            data = batch_of(SAMPLE, codec=codec, **fields)  # pyright: ignore[reportArgumentType]
            assert outcome(data, rules, 13) == (KEPT if target == 2 else FORMAT)


@each("release", FAMILIES)
@each("data", [V0, V1, made(0, 1), made(1, 2)])
def test_old_format_rules_of_each_release(release: str, data: bytes) -> None:
    assert (outcome(data, FAMILIES[release]) == INVALID) == (release == "4.3")


# --- 2.5, each record


def named(release: str, rows: list[int]) -> list[int]:
    """Returns the refused records that a release names."""
    mode = FAMILIES[release].record_errors
    return [] if mode == "none" else rows[:1] if mode == "first" else rows


@each("release", FAMILIES)
@each("codec", [0, 1])
def test_records_without_a_key_in_each_release(release: str, codec: int) -> None:
    keys = [b"k", None, b"k", None]
    data = batch.build([Record(index, NOW, key, b"v") for index, key in enumerate(keys)], codec=codec)
    rules = family(release, compacted=True)
    assert indexes(data, rules, 13) == (INVALID, named(release, [1, 3]))
    times = [Record(0, NOW, None, b"v"), Record(1, NOW + 2 * HOUR, b"k", b"v"), Record(2, NOW, None, b"v")]
    data = batch.build(times, codec=codec)
    late = family(release, compacted=True, timestamp_after_max_ms=HOUR)
    # If all are named, any invalid timestamp decides the code; otherwise the first refused record does.
    assert indexes(data, late, 13) == (INVALID if release in ONE_BY_ONE else TIMES, named(release, [0, 1, 2]))
    assert indexes(data, family(release, timestamp_after_max_ms=HOUR), 13) == (TIMES, named(release, [1]))


@each("release", WITH_OLD)
@each("magic", [0, 1])
def test_bad_records_of_old_sets_in_each_release(release: str, magic: int) -> None:
    rules = family(release, compacted=True)
    keyless = plain([Record(index, NOW, None if index else b"k", b"v") for index in range(3)], magic)
    assert indexes(keyless, rules) == (INVALID, named(release, [0]))  # each message is a batch of its own
    assert indexes(wrapper(keyless, magic=magic, offset=2), rules) == (INVALID, named(release, [1, 2]))
    other = message(0, magic=magic) + message(1, magic=1 - magic)
    assert indexes(wrapper(other, magic=magic, offset=1), rules) == (INVALID, named(release, [1]))
    nested = message(0, magic=magic) + message(1, b"k", b"v", magic=magic, attributes=1)
    assert indexes(wrapper(nested, magic=magic, offset=1), rules) == (INVALID, [])
    wrong_crc = message(0, None, magic=magic) + broken(message(1, magic=magic))
    first = (CORRUPT, []) if FAMILIES[release].record_errors == "all" else (INVALID, named(release, [0]))
    assert indexes(wrapper(wrong_crc, magic=magic, offset=1), rules) == first
    assert indexes(wrapper(wrong_crc, magic=magic, offset=1), FAMILIES[release]) == (CORRUPT, [])


# --- 2.6, timestamps

WINDOW: list[tuple[str, int, bool]] = [
    ("now", NOW, True),
    ("none", -1, True),
    ("the newest", NOW + 10, True),
    ("too new", NOW + 11, False),
    ("the oldest", NOW - 10, True),
    ("too old", NOW - 11, False),
    ("far too new", 2**62, False),
    ("the year 1970", 0, False),
]


@each("release", FAMILIES)
@each(("why", "timestamp", "good"), WINDOW)
def test_timestamp_rules_of_each_release(release: str, why: str, timestamp: int, good: bool) -> None:
    limits: dict[str, Any] = {"timestamp_before_max_ms": 10, "timestamp_after_max_ms": 10}
    record = [Record(0, timestamp, b"k", b"v")]
    for append_time in (False, True):
        fine = good or append_time
        rules = family(release, log_append_time=append_time, **limits)
        for codec in (0, 1):
            assert (outcome(made(2, codec, record), rules, 13) == TIMES) == (not fine)
            if release != "4.3":
                assert (outcome(made(1, codec, record), rules) == TIMES) == (not fine)
                assert outcome(made(0, codec, record), rules) in (KEPT, REBUILT)  # v0 has no timestamps


@pytest.mark.parametrize("release", FAMILIES)
def test_timestamp_limit_from_4_0_is_one_hour_ahead(release: str) -> None:
    late = made(2, 0, [Record(0, NOW + HOUR + 1, b"k", b"v")])
    assert outcome(late, family(release, target_magic=2), 13) == (TIMES if release == "4.3" else KEPT)


MARKED: list[tuple[str, bytes | bytearray, bool]] = [
    ("v2", batch.build(SAMPLE, batch.BatchFields(log_append_time=True)), True),
    ("v2 gzip", batch.build(SAMPLE, batch.BatchFields(log_append_time=True), codec=1), True),
    ("v2 without a time", batch.build([Record(0, -1, b"k", b"v")], batch.BatchFields(log_append_time=True)), False),
    ("v1", message(attributes=LOG_APPEND_TIME), True),
    ("v1 without a time", message(timestamp=-1, attributes=LOG_APPEND_TIME), False),
    ("v1 gzip", wrapper(plain(), offset=2, attributes=LOG_APPEND_TIME), True),
]


@each("release", FAMILIES)
@each(("why", "data", "timed"), MARKED)
def test_sets_with_log_append_time_set_by_the_client(release: str, why: str, data: bytes, timed: bool) -> None:
    if why.startswith("v1") and release == "4.3":
        assert outcome(data, FAMILIES[release]) == INVALID
        return
    accepted = timed and release not in BIT_REFUSED
    assert (outcome(data, FAMILIES[release]) == TIMES) == (not accepted)
    assert outcome(data, family(release, log_append_time=True)) == TIMES
    if accepted:
        assert not prepare(bytes(data), FAMILIES[release], NOW, 2).header.log_append_time


# --- 2.7, in place or rebuilt

PATHS: list[tuple[int, int, int | None, int, str]] = [
    # magic, codec, compression.type, target magic, path
    *((magic, 0, codec, magic, KEPT) for magic in (0, 1, 2) for codec in (None, 0)),
    *((magic, 0, 0, target, REBUILT) for magic in (0, 1, 2) for target in (0, 1, 2) if magic != target),
    *((magic, codec, target, magic, KEPT) for magic in (1, 2) for codec in (1, 2, 3) for target in (None, codec)),
    *((0, codec, None, 0, REBUILT) for codec in (1, 2, 3)),
    *((magic, 1, None, target, REBUILT) for magic in (0, 1, 2) for target in (0, 1, 2) if magic != target),
    *((magic, 1, codec, target, REBUILT) for magic in (0, 1, 2) for codec in (0, 2, 3) for target in (0, 1, 2)),
    *((magic, 0, codec, target, REBUILT) for magic in (0, 1, 2) for codec in (1, 2, 3) for target in (0, 1, 2)),
    (2, 4, None, 2, KEPT),
    (2, 4, 4, 2, KEPT),
    *((2, 4, None, target, UNWRITABLE) for target in (0, 1)),
    *((magic, 0, 4, target, UNWRITABLE) for magic in (0, 1, 2) for target in (0, 1)),
]


@pytest.mark.parametrize("release", WITH_OLD)
def test_set_is_kept_in_place_or_rebuilt(release: str) -> None:
    for magic, codec, compression, target, path in PATHS:
        rules = family(release, target_magic=target, compression=compression, zstd_allowed=True)
        assert outcome(made(magic, codec), rules) == path, (magic, codec, compression, target)


@pytest.mark.parametrize("release", FAMILIES)
def test_compressed_records_not_numbered_from_0(release: str) -> None:
    """Kafka up to 2.3, and 2.5, rewrites the batch. 2.4 refuses it and names its first record. 2.6 and later fail."""
    gappy = [record._replace(offset=record.offset * 2) for record in SAMPLE]
    data = header_changed(23, ">i", 2, batch.build(gappy, codec=1))
    rules = family(release, target_magic=2)
    if release in (*MERGING, "2.5"):
        assert outcome(data, rules, 13) == REBUILT
    else:
        assert indexes(data, rules, 13) == ((INVALID, [1]) if release == "2.4" else (UNWRITABLE, []))
    uncompressed = header_changed(23, ">i", 2, batch.build(gappy))
    assert prepare(uncompressed, rules, NOW, 13).buffer is uncompressed  # not checked
    if release != "4.3":
        old = family(release, target_magic=1)
        assert outcome(wrapper(plain(gappy), offset=4), old) == (INVALID if release == "2.4" else REBUILT)
        assert outcome(plain(gappy), old) == KEPT
        assert outcome(wrapper(plain(gappy, 0), magic=0, offset=4), family(release, target_magic=0)) == REBUILT


@pytest.mark.parametrize("release", WITH_OLD)
def test_wrappers_that_every_release_refuses(release: str) -> None:
    cases: list[tuple[bytes, str]] = [
        (wrapper(plain(), offset=1), INVALID),  # below its last message
        (wrapper(plain(), offset=0), "taken"),  # of old librdkafka versions
        (wrapper(wrapper(plain(), offset=2)), INVALID),
        (message(0, None, None, attributes=1), INVALID),
        (wrapper(b""), INVALID),
        (sealed(0, struct.pack(">bbqii", 1, 4, NOW, -1, 0)), INVALID),  # zstd
    ]
    for target in (0, 1, 2):
        for data, result in cases:
            rules = family(release, target_magic=target, zstd_allowed=True)
            found = outcome(data, rules)
            assert (found in (KEPT, REBUILT)) if result == "taken" else found == result


@pytest.mark.parametrize("release", FAMILIES)
def test_sets_that_cannot_be_rewritten(release: str) -> None:
    early = [Record(0, -2, b"k", b"v")]
    headers = [SAMPLE[0]._replace(headers=(batch.Header("h", b"x"),))]
    for target in (0, 1, 2):
        rules = family(release, target_magic=target)
        kept = KEPT if target == 2 else UNWRITABLE
        assert outcome(made(2, 0, early), rules, 13) == outcome(made(2, 0, headers), rules, 13) == kept
        packed = dataclasses.replace(rules, compression=1)
        assert outcome(made(2, 0, early), packed, 13) == UNWRITABLE
        assert outcome(made(2, 0, headers), packed, 13) == (REBUILT if target == 2 else UNWRITABLE)


# --- sizes, and the messages of refusals


@pytest.mark.parametrize("release", WITH_OLD)
def test_sizes_near_2_to_the_31(release: str) -> None:
    """Adding the 12 bytes of the prefix overflows from 0.11 on; in earlier releases such an entry exceeds the set."""
    rules = family(release)
    fails = "OverflowingSize" if rules.sizes_overflow else NOTHING
    for data in (V1, V2) if rules.sizes_overflow else (V1,):
        for length, result in ((2**31 - 1, fails), (2**31 - 12, fails), (2**31 - 13, NOTHING)):
            sized = data[:8] + struct.pack(">i", length) + data[12:]
            assert outcome(sized, rules) == outcome(sized[:17], rules) == result
            assert outcome(sized[:16], rules) == NOTHING


TEXTS = {
    "2.3": "Compacted topic cannot accept message without key in topic partition {partition}",
    "2.4": "Compacted topic cannot accept message without key in topic partition {partition}",
    "2.8": "One or more records have been rejected",
    "3.9": "One or more records have been rejected due to 2 record errors in total, and only showing the first three",
}


@pytest.mark.parametrize("release", TEXTS)
def test_error_texts_of_refused_records(release: str) -> None:
    keyless = batch.build([record._replace(key=None) for record in SAMPLE[:2]])
    with pytest.raises(InvalidRecords) as raised:
        prepare(bytearray(keyless), family(release, compacted=True), NOW, 8)
    assert raised.value.message.startswith(TEXTS[release])
    assert len(raised.value.message) == len(TEXTS[release]) or release == "3.9"
    texts = [error.message for error in raised.value.record_errors]
    assert texts == {"2.3": [], "2.4": [None]}.get(release, [TEXTS["2.4"]] * 2)


@pytest.mark.parametrize(
    ("codec", "target", "shown"),
    [(0, None, "DefaultRecord"), (1, None, "PartialDefaultRecord"), (1, 2, "DefaultRecord"), (0, 1, "DefaultRecord")],
)
def test_refusal_of_the_log_append_time_bit_shows_the_record(codec: int, target: int | None, shown: str) -> None:
    """Observed with Apache Kafka 4.3.1, which reads no keys and values of a compressed batch that it keeps."""
    fields = batch.BatchFields(log_append_time=True, max_timestamp=NOW)
    records = [batch.Record(0, NOW, b"key", b"value"), batch.Record(1, NOW, None, None)]
    rules = family("4.3", log_append_time=True, compression=target)
    with pytest.raises(InvalidTimestamps) as raised:
        prepare(batch.build(records, fields, codec=codec), rules, NOW, 9)
    absent = -1 if shown.startswith("Partial") else 0
    assert [error.message for error in raised.value.record_errors] == [
        f"Invalid timestamp type in message {shown}(offset={index}, timestamp={NOW}, key={key} bytes, value={value} "
        "bytes). Producer should not set timestamp type to LogAppendTime."
        for index, key, value in ((0, 3, 5), (1, absent, absent))
    ]


@pytest.mark.parametrize("codec", [0, 1])
def test_up_to_2_4_compressed_batch_is_fully_read_before_records_are_checked(codec: int) -> None:
    """An error in the last record is then reported before the missing key of the first."""
    records = [SAMPLE[0]._replace(offset=index, key=None) for index in range(3)]
    payload = bytearray(batch.payload(batch.build(records), 0, batch.read_header(batch.build(records))))
    payload[-1] = 1  # a negative number of headers
    data = batch.with_payload(batch.read_header(batch.build(records)), payload, codec, None)
    for release in ("2.3", "2.4", "3.9"):
        with pytest.raises(InvalidRecords) as raised:
            prepare(bytearray(data), family(release, compacted=True), NOW, 7)
        assert ("without key" in str(raised.value)) == (release != "3.9" and not codec), release


# --- the table of releases has the same rules


@pytest.mark.parametrize("release", FAMILIES)
def test_profiles_have_the_rules_of_their_release(release: str) -> None:
    behaviour, rules = profile(release).behaviour, FAMILIES[release]
    names = "one_magic record_errors counted_record_errors refuse_unnumbered unnumbered_fail append_time_bit_allowed"
    for name in (*names.split(), "old_formats"):
        assert getattr(behaviour, name) == getattr(rules, name), name
    assert behaviour.newest_magic == rules.target_magic
    assert rules.sizes_overflow == (behaviour.newest_magic == 2)
