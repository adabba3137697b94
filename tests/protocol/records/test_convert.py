"""Conversion between message formats: every field, dropped records, agreement with other codecs.

Uncompressed results are compared byte for byte with the output of independent writers. Compressed bytes are not part of
the format: of compressed results the records inside are compared, and the fields around them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from kafka.record import default_records as kafka_python

from ottla.protocol.records import batch, convert, formats, legacy
from ottla.protocol.records.batch import BatchHeader, Header, Record
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ottla.protocol.records.steps import run
from ottla_testing.each import each
from ottla_testing.protocol.batches import batch_of
from ottla_testing.protocol.legacy_codecs import IN_PROCESS, KafkaPython2, LegacyCodec
from ottla_testing.protocol.message_sets import LOG_APPEND_TIME, NOW, made, message, plain, wrapper

OLD = [(magic, codec) for magic in (0, 1) for codec in range(4)]

# A record of every kind, with varints on both sides of a change of width, and falling timestamps.
RECORDS = [
    Record(0, NOW, b"key", b"value"),
    Record(1, NOW - 7, None, None),
    Record(2, NOW + 64, b"", b""),
    Record(3, NOW + 8191, b"k" * 63, b"v" * 64),
    Record(4, NOW + 8192, b"k" * 64, b"v" * 8191),
    Record(5, NOW + 2**31, None, b"v" * 8192),
    Record(6, NOW + 1, b"k" * 9000, None),
]
HEADERS = (Header("a", b"1"), Header("", None))
PRODUCER: dict[str, Any] = {"producer_id": 9, "producer_epoch": 3, "base_sequence": 5, "transactional": True}


@pytest.fixture(scope="module")
def kafka_python_2() -> Iterator[KafkaPython2]:
    codec = KafkaPython2()
    yield codec
    codec.close()


@pytest.fixture(
    params=[*(codec.name for codec in IN_PROCESS), pytest.param(KafkaPython2.name, marks=pytest.mark.clients)],
    scope="module",
)
def other(request: pytest.FixtureRequest) -> LegacyCodec:
    """Each independent codec."""
    known = {codec.name: codec for codec in IN_PROCESS}
    return known.get(request.param) or request.getfixturevalue("kafka_python_2")


def moved(records: Sequence[Record], base_offset: int) -> list[Record]:
    return [record._replace(offset=base_offset + record.offset) for record in records]


def shown(records: Sequence[Record], magic: int) -> list[Record]:
    """Returns the fields that the format can hold."""
    if magic == 2:
        return list(records)
    return [record._replace(headers=(), timestamp=record.timestamp if magic else -1) for record in records]


def read(data: bytes | bytearray) -> list[Record]:
    """Reads all records and checks every CRC."""
    found: list[Record] = []
    for position, header in formats.headers(data):
        assert formats.crc_matches(data, position, header)
        found += formats.records(data, position)
    return found


def the_batch(data: bytes | bytearray) -> BatchHeader:
    """Returns the header of the only v2 batch."""
    header = batch.read_header(data)
    assert header.size_bytes == len(data) and batch.crc_matches(data, 0, header)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert not (header.is_transactional or header.is_control or header.has_delete_horizon)
    return header


def kafka_pythons_batch(records: Sequence[Record]) -> bytes:
    """Returns an uncompressed v2 batch as kafka-python 3 writes it, with its leader epoch of 0."""
    writer = kafka_python.DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 30)
    for record in records:
        assert writer.append(record.offset, record.timestamp, record.key, record.value, [])
    return bytes(writer.build())


# --- up, at produce


@each(("magic", "codec"), OLD)
def test_up_conversion_of_another_writers_set_gives_one_batch(other: LegacyCodec, magic: int, codec: int) -> None:
    if not other.knows(magic, codec):
        return
    sent = other.write(RECORDS, magic, codec)
    expected = kafka_pythons_batch(shown(RECORDS, magic))
    uncompressed = run(convert.up_set(sent, 0))
    batch.assign(uncompressed, 0, base_offset=0, leader_epoch=0)
    assert uncompressed.hex() == expected.hex()
    built = run(convert.up_set(sent))
    header = the_batch(built)
    assert (header.codec, header.record_count, header.last_offset_delta) == (codec, 7, 6)
    assert (header.base_offset, header.partition_leader_epoch) == (0, -1)
    assert header.base_timestamp == (NOW if magic else -1)
    assert header.max_timestamp == (NOW + 2**31 if magic else -1)
    assert bytes(batch.payload(built, 0, header)) == expected[61:]
    assert not header.log_append_time


@each(("magic", "codec"), OLD)
@each("target", [None, *Codec])
def test_up_conversion_uses_the_given_codec_or_the_sets_own(magic: int, codec: int, target: int | None) -> None:
    built = run(convert.up_set(made(magic, codec, RECORDS), target))
    assert the_batch(built).codec == (codec if target is None else target)
    assert read(built) == shown(RECORDS, magic)


@pytest.mark.parametrize("magic", [0, 1])
def test_up_conversion_ignores_sent_offsets(magic: int) -> None:
    """Offsets are absolute inside a v0 wrapper, relative in v1, the old wrapper has 0, all the same number."""
    strange = [record._replace(offset=7) for record in RECORDS]
    sets = [
        plain(strange, magic),
        plain(moved(RECORDS, 500), magic),
        wrapper(plain(RECORDS, magic), magic=magic, offset=0),
        wrapper(plain(RECORDS, magic), magic=magic, offset=6),
        wrapper(plain(moved(RECORDS, 500), magic), magic=magic, offset=506),
        wrapper(plain(strange, magic), magic=magic, offset=7),
    ]
    for sent in sets:
        assert read(run(convert.up_set(sent))) == shown(RECORDS, magic)
    if magic:
        with pytest.raises(InvalidRecords, match="below 6"):
            run(convert.up_set(wrapper(plain(RECORDS), offset=5)))


def test_up_conversion_of_mixed_messages_and_wrappers() -> None:
    parts = [
        (0, made(0, 0, RECORDS[:2])),
        (1, made(1, 0, RECORDS[:3])),
        (0, made(0, 3, RECORDS)),
        (1, made(1, 2, RECORDS[:4])),
        (0, made(0, 0, RECORDS[3:5])),
    ]
    records = [
        r
        for (magic, _), found in zip(parts, (RECORDS[:2], RECORDS[:3], RECORDS, RECORDS[:4], RECORDS[3:5]), strict=True)
        for r in shown(found, magic)
    ]
    built = run(convert.up_set(b"".join(data for _, data in parts)))
    header = the_batch(built)
    assert (header.codec, header.base_offset, header.partition_leader_epoch) == (Codec.SNAPPY, 0, -1)
    assert read(built) == [record._replace(offset=index) for index, record in enumerate(records)]


@pytest.mark.parametrize(("magic", "codec"), OLD)
def test_up_conversion_keeps_record_times_under_log_append_time(magic: int, codec: int) -> None:
    built = run(convert.up_set(made(magic, codec, RECORDS), log_append_time_ms=NOW + 99))
    header = the_batch(built)
    assert header.log_append_time and header.max_timestamp == NOW + 99
    assert header.base_timestamp == (NOW if magic else -1)
    assert {record.timestamp for record in read(built)} == {NOW + 99}
    # The deltas in the batch are those of the producer's timestamps.
    batch.reseal(built, attributes=codec, max_timestamp=0)
    assert [record.timestamp for record in read(built)] == [record.timestamp for record in shown(RECORDS, magic)]


@pytest.mark.parametrize(("magic", "codec"), OLD)
def test_up_conversion_drops_an_incomplete_last_entry(magic: int, codec: int) -> None:
    good = made(magic, codec, RECORDS[:3])
    for end in range(len(message(magic=magic))):
        assert read(run(convert.up_set(good + message(magic=magic)[:end]))) == shown(RECORDS[:3], magic)


def test_up_conversion_of_empty_or_v2_sets_raises() -> None:
    for data in (b"", b"abc", message()[:-1]):
        with pytest.raises(InvalidRecords):
            run(convert.up_set(data))
    for data in (made(2, 0), message() + made(2, 0)):
        with pytest.raises(InvalidRecords, match="v2"):
            run(convert.up_set(data))
    with pytest.raises(CorruptRecords):
        run(convert.up_set(message() + message()[:16] + b"\x03" + message()[17:]))
    with pytest.raises(UnsupportedCodec):
        run(convert.up_set(message(), 5))


# --- up, one stored entry


@pytest.mark.parametrize(("magic", "codec"), OLD)
def test_up_conversion_of_an_entry_keeps_offsets_codec_and_times(magic: int, codec: int) -> None:
    records = [record._replace(offset=100 + 3 * record.offset) for record in RECORDS]
    data = legacy.build(records, magic=magic, codec=codec)
    built = []
    for position, header in formats.headers(data):
        entry = run(convert.up_entry(data, position, header))
        made_header = the_batch(entry)
        assert made_header.last_offset == header.last_offset and made_header.codec == codec
        assert made_header.partition_leader_epoch == -1
        assert made_header.max_timestamp == header.max_timestamp
        built.append(entry)
    assert len(built) == (1 if codec else 7)
    assert [record for entry in built for record in read(entry)] == shown(records, magic)
    if not codec:
        alone = [record._replace(offset=0) for record in shown(records, magic)]
        for entry, record in zip(built, alone, strict=True):
            batch.assign(entry, 0, base_offset=0, leader_epoch=0)
            assert entry.hex() == kafka_pythons_batch([record]).hex()


def test_up_conversion_takes_log_append_time_from_the_wrapper() -> None:
    inside = plain(RECORDS)
    data = wrapper(inside, offset=206, timestamp=NOW + 50, attributes=LOG_APPEND_TIME)
    data += message(207, timestamp=NOW + 60, attributes=LOG_APPEND_TIME)
    for (position, header), time, count in zip(formats.headers(data), (NOW + 50, NOW + 60), (7, 1), strict=True):
        built = run(convert.up_entry(data, position, header))
        made_header = the_batch(built)
        assert made_header.log_append_time
        assert (made_header.base_timestamp, made_header.max_timestamp) == (time, time)
        assert [record.timestamp for record in read(built)] == [time] * count
    # v0 has no log append time, whatever the attribute bits.
    data = message(3, magic=0, attributes=LOG_APPEND_TIME)
    header = the_batch(run(convert.up_entry(data, 0, formats.read_header(data))))
    assert (header.log_append_time, header.base_timestamp, header.max_timestamp) == (False, -1, -1)


def test_up_conversion_of_offsets_outside_a_batch_raises() -> None:
    first, second = RECORDS[:2]
    for offsets in ((5, 5), (5, 4), (0, 2**31)):
        records = [first._replace(offset=offsets[0]), second._replace(offset=offsets[1])]
        for magic in (0, 1):
            data = wrapper(plain(records, magic), magic=magic, offset=2**33)
            with pytest.raises(InvalidRecords):
                run(convert.up_entry(data, 0, formats.read_header(data)))
    for magic in (0, 1):
        data = wrapper(plain(moved(RECORDS, 50), magic), magic=magic, offset=55)
        with pytest.raises(InvalidRecords, match="below 56"):
            run(convert.up_entry(data, 0, formats.read_header(data)))


# --- down


@each(("source", "codec"), [*((1, codec) for codec in range(4)), *((2, c) for c in range(4))])
@each("target", [0, 1])
def test_down_conversion_equals_other_writers(other: LegacyCodec, source: int, codec: int, target: int) -> None:
    if target == source or not other.knows(target, codec):
        return
    records = [record._replace(offset=100 + 3 * record.offset) for record in RECORDS]
    if source == 2:
        with_headers = [record._replace(headers=HEADERS) for record in records]
        stored = batch_of(with_headers, base_offset=95, codec=codec, leader_epoch=8, last_offset_delta=40, **PRODUCER)
    else:
        stored = legacy.build(records, magic=1, codec=codec)
    result = run(convert.down(stored, target, 100))
    assert read(result) == shown(records, target)
    found: list[Record] = []
    for position, header in formats.headers(result):
        assert (header.magic, header.codec, header.partition_leader_epoch) == (target, codec, -1)
        found += other.read(result[position : position + header.size_bytes], target)
    assert found == shown(records, target)
    if not codec:
        assert result.hex() == other.write(records, target, 0).hex()
        return
    ((_, header),) = formats.headers(result)
    inner = [record._replace(offset=record.offset - 100) for record in records] if target else records
    assert legacy.inner(result, 0, header) == other.write(inner, target, 0)
    assert header.last_offset == records[-1].offset
    assert header.max_timestamp == (NOW + 2**31 if target else -1)


@pytest.mark.parametrize("codec", range(4))
@pytest.mark.parametrize("target", [0, 1])
def test_down_conversion_gives_every_message_the_log_append_time(codec: int, target: int) -> None:
    stored = batch.build(RECORDS, batch.BatchFields(log_append_time=True, max_timestamp=NOW + 5), codec=codec)
    result = run(convert.down(stored, target, 0))
    timed = [record._replace(timestamp=NOW + 5) for record in RECORDS]
    assert read(result) == shown(timed, target)
    assert bytes(result) == legacy.build(timed, magic=target, codec=codec, log_append_time=True)
    for _, header in formats.headers(result):
        assert header.log_append_time == bool(target)


@pytest.mark.parametrize(("magic", "codec"), OLD)
def test_down_conversion_copies_entries_of_old_formats(magic: int, codec: int) -> None:
    """Copied byte for byte, including offsets below the fetch's and undefined attributes."""
    stored = bytes(legacy.build(RECORDS, magic=magic, codec=codec)) + message(9, magic=magic, attributes=0x40)
    for target in range(magic, 2):
        assert run(convert.down(stored, target, 5)) == stored
        assert run(convert.down(memoryview(stored), target, 5)) == stored


@pytest.mark.parametrize("codec", range(4))
def test_down_conversion_drops_only_uncompressed_records_below_the_fetch_offset(codec: int) -> None:
    for stored in (
        batch.build(moved(RECORDS, 10), base_offset=10, codec=codec),
        legacy.build(moved(RECORDS, 10), magic=1, codec=codec),
    ):
        for offset in range(9, 19):
            kept = [r for r in moved(RECORDS, 10) if codec or r.offset >= offset]
            assert read(run(convert.down(stored, 0, offset))) == shown(kept, 0)


def test_down_conversion_drops_control_and_empty_batches_and_keeps_gaps() -> None:
    data = batch_of(RECORDS[:1], base_offset=0, **PRODUCER)
    marker = Record(1, NOW, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00")
    control = batch_of([marker], base_offset=1, control=True, **PRODUCER)
    empty = batch.build([], batch.BatchFields(last_offset_delta=7), base_offset=2, codec=0)
    data += control + empty
    data += batch_of([RECORDS[0]._replace(offset=20)], base_offset=12, **PRODUCER)
    for target in (0, 1):
        result = run(convert.down(data, target, 0))
        assert [record.offset for record in read(result)] == [0, 20]
        assert run(convert.down(control + empty, target, 0)) == b""
    assert run(convert.down(b"", 0, 0)) == b""


def test_down_conversion_does_not_use_a_delete_horizon_as_timestamp() -> None:
    stored = batch.build(RECORDS, batch.BatchFields(delete_horizon_ms=NOW + 86_400_000))
    assert read(run(convert.down(stored, 1, 0))) == RECORDS


def test_down_conversion_of_zstd_raises_if_first_and_ends_the_response_otherwise() -> None:
    zstd = batch.build(moved(RECORDS, 7), base_offset=7, codec=Codec.ZSTD)
    other = batch.build(moved(RECORDS, 14), base_offset=14)
    marker = batch_of(RECORDS[:1], control=True, **PRODUCER)
    for target in (0, 1):
        for before in (b"", bytes(marker)):
            with pytest.raises(UnsupportedCodec):
                run(convert.down(before + zstd + other, target, 0))
        for before in (batch.build(RECORDS), legacy.build(RECORDS, magic=target)):
            assert read(run(convert.down(before + zstd + other, target, 0))) == shown(RECORDS, target)


@pytest.mark.parametrize(("magic", "codec"), [*((1, codec) for codec in range(4)), *((2, c) for c in range(4))])
def test_down_conversion_of_damage_raises_if_first_and_ends_the_response_otherwise(magic: int, codec: int) -> None:
    good = made(magic, codec, RECORDS[:3] if codec or magic == 2 else RECORDS[:1])
    bad = bytearray(good)
    bad[-1] ^= 1
    with pytest.raises(CorruptRecords):
        run(convert.down(bad + good, 0, 0))
    before = legacy.build(RECORDS, magic=0)
    assert run(convert.down(before + bad + good, 0, 0)) == before
    # Plain messages are dropped one by one, even if they are read together.
    assert read(run(convert.down(made(1, 0, RECORDS[:3]) + bad + good, 0, 0))) == shown(RECORDS[:3], 0)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_down_conversion_drops_an_incomplete_last_entry(magic: int) -> None:
    stored, more = made(magic, 0, RECORDS), made(magic, 0, RECORDS[:1])
    for target in (0, 1):
        whole = run(convert.down(stored, target, 0))
        for end in range(len(more)):
            assert run(convert.down(stored + more[:end], target, 0)) == whole


def test_down_conversion_of_all_formats_in_one_response() -> None:
    data, records = bytearray(), []
    for magic, codec in (*OLD, *((2, c) for c in range(4))):
        found = moved(RECORDS, len(records))
        if magic == 2:
            data += batch.build(found, base_offset=len(records), codec=codec)
        else:
            data += legacy.build(found, magic=magic, codec=codec)
        records += shown(found, magic)
    for target in (0, 1):
        result = run(convert.down(data, target, 0))
        assert read(result) == shown(records, target)
        assert {header.magic for _, header in formats.headers(result)} == set(range(target + 1))
