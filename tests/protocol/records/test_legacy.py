"""Message formats v0 and v1: the bytes, agreement with independent codecs both ways, refused input, damage.

Uncompressed sets are compared byte for byte with every writer. Compressed bytes are not part of the format: of
compressed sets the message set inside is compared byte for byte, and the fields of the wrapper around it.
"""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import batch, compression, formats, legacy
from ottla.protocol.records.batch import Record
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ottla_testing.each import each
from ottla_testing.protocol.legacy_codecs import IN_PROCESS, KafkaPython2, LegacyCodec
from ottla_testing.protocol.message_sets import LOG_APPEND_TIME, NOW, message, plain, sealed, wrapper

MIB = 1024 * 1024
OLD = [(magic, codec) for magic in (0, 1) for codec in range(4)]

RECORDS = [
    Record(0, NOW, b"key", b"value"),
    Record(1, NOW - 7, None, None),
    Record(2, NOW + 5, b"", b""),
    Record(3, NOW + 1, None, b"v" * 40_000),
    Record(4, NOW + 9, b"k" * 300, None),
]

# Offset 5: "k" -> "v"; offset 6: null -> null. In v1 at 1,700,000,000,000 and 7 ms later.
GOLDEN_V0 = bytes.fromhex(
    "0000000000000005 00000010 1fecd70a 00 00 00000001 6b 00000001 76"
    "0000000000000006 0000000e a7ec6803 00 00 ffffffff ffffffff"
)
GOLDEN_V1 = bytes.fromhex(
    "0000000000000005 00000018 39268c33 01 00 0000018bcfe56800 00000001 6b 00000001 76"
    "0000000000000006 00000016 c48063d2 01 00 0000018bcfe56807 ffffffff ffffffff"
)


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


def read(data: bytes | bytearray, produced: bool = False) -> list[Record]:
    found: list[Record] = []
    for position, header in formats.headers(data):
        assert legacy.crc_matches(data, position, header)
        found += legacy.records(data, position, produced=produced)
    return found


def shown(records: list[Record], magic: int) -> list[Record]:
    """Returns the fields that the format can hold."""
    return records if magic else [record._replace(timestamp=-1) for record in records]


def moved(records: list[Record], base_offset: int) -> list[Record]:
    return [record._replace(offset=base_offset + record.offset) for record in records]


# --- the bytes


@pytest.mark.parametrize(("magic", "golden"), [(0, GOLDEN_V0), (1, GOLDEN_V1)], ids=["v0", "v1"])
def test_golden_bytes(magic: int, golden: bytes) -> None:
    records = [Record(5, NOW, b"k", b"v"), Record(6, NOW + 7, None, None)]
    assert legacy.build(records, magic=magic).hex() == golden.hex()
    assert read(golden) == shown(records, magic)
    (first, head), (second, last) = formats.headers(golden)
    time = NOW if magic else -1
    (crc,) = struct.unpack_from(">I", golden, 12)
    assert head == (5, len(golden[:second]) - 12, -1, magic, crc, 0, 0, time, time, -1, -1, -1, 1)
    assert (first, head.size_bytes, head.codec, head.last_offset, head.next_offset) == (0, second, 0, 5, 6)
    assert not (head.has_producer or head.is_control or head.is_transactional or head.log_append_time)
    assert last.base_offset == 6 and second + last.size_bytes == len(golden)


@pytest.mark.parametrize(("magic", "codec"), OLD)
def test_wrapper_has_the_offset_of_its_last_message(magic: int, codec: int) -> None:
    records = moved(RECORDS, 100)
    data = legacy.build(records, magic=magic, codec=codec)
    assert read(memoryview(data).tobytes()) == shown(records, magic)
    if codec:
        ((_, head),) = formats.headers(data)
        assert (head.base_offset, head.last_offset, head.record_count, head.codec) == (104, 104, -1, codec)
        assert head.max_timestamp == (NOW + 9 if magic else -1)
        inside = legacy.inner(data, 0, head)
        assert [h.base_offset for _, h in formats.headers(inside)] == ([0, 1, 2, 3, 4] if magic else [*range(100, 105)])


def test_log_append_time_is_that_of_the_wrapper() -> None:
    data = wrapper(plain(RECORDS), Codec.GZIP, offset=4, timestamp=NOW + 1000, attributes=LOG_APPEND_TIME)
    assert {record.timestamp for record in read(data)} == {NOW + 1000}
    head = legacy.read_header(data)
    assert head.log_append_time and head.max_timestamp == NOW + 1000
    built = legacy.build([r._replace(timestamp=NOW) for r in RECORDS], magic=1, codec=1, log_append_time=True)
    assert legacy.read_header(built).log_append_time
    assert {record.timestamp for record in read(built)} == {NOW}
    # v0 has neither a timestamp nor the attribute bit.
    assert legacy.build(RECORDS, magic=0, log_append_time=True) == legacy.build(RECORDS, magic=0)
    assert not legacy.read_header(message(magic=0, attributes=LOG_APPEND_TIME)).log_append_time


def test_offset_gaps_in_a_wrapper_are_kept() -> None:
    records = [RECORDS[index]._replace(offset=offset) for index, offset in enumerate((50, 51, 60, 70, 99))]
    for magic in (0, 1):
        assert read(legacy.build(records, magic=magic, codec=2)) == shown(records, magic)


def test_unknown_attribute_bits_are_ignored() -> None:
    """Bits 4 and 5 mark transactional and control batches in v2; the old formats do not define them."""
    for magic in (0, 1):
        head = legacy.read_header(message(magic=magic, attributes=0x70))
        assert head.attributes == 0 and not head.is_control


def test_assigned_offset_does_not_change_the_crc() -> None:
    for magic, codec in OLD[1:]:
        data = legacy.build(RECORDS[:1] if not codec else RECORDS, magic=magic, codec=codec)
        legacy.assign(data, 0, offset=77)
        head = legacy.read_header(data)
        assert head.base_offset == 77 and legacy.crc_matches(data, 0, head)
        if magic:
            assert next(legacy.records(data)).offset == (73 if codec else 77)


def test_write_with_zstd_raises() -> None:
    for magic in (0, 1):
        with pytest.raises(UnsupportedCodec):
            legacy.build(RECORDS, magic=magic, codec=Codec.ZSTD)


# --- other writers and readers


@pytest.mark.parametrize("magic", [0, 1])
def test_uncompressed_messages_equal_other_writers_bytes(other: LegacyCodec, magic: int) -> None:
    assert legacy.build(RECORDS, magic=magic).hex() == other.write(RECORDS, magic, 0).hex()
    # The conversions use another writer.
    assert legacy.build(moved(RECORDS, 10), magic=magic) == plain(moved(RECORDS, 10), magic)


blob = st.none() | st.binary(max_size=200)
any_record = st.builds(Record, st.just(0), st.integers(-1, 2**50), blob, blob, st.just(()))
record_lists = st.lists(any_record, min_size=1, max_size=20).map(
    lambda found: [item._replace(offset=index) for index, item in enumerate(found)]
)


@given(records=record_lists, magic=st.sampled_from([0, 1]), codec=st.sampled_from(IN_PROCESS))
def test_any_messages_are_written_as_by_other_writers(records: list[Record], magic: int, codec: LegacyCodec) -> None:
    data = bytes(legacy.build(records, magic=magic))
    assert data.hex() == codec.write(records, magic, 0).hex()
    assert read(data) == shown(records, magic)


@each(("magic", "codec"), OLD)
def test_wrapper_of_other_writer_is_read(other: LegacyCodec, magic: int, codec: int) -> None:
    """With the offsets that producers write: from 0 in the set, and in the wrapper 0, as old librdkafka versions do."""
    if not other.knows(magic, codec):
        return
    data = other.write(RECORDS, magic, codec)
    head = legacy.read_header(data)
    assert (head.magic, head.codec, head.base_offset) == (magic, codec, 0)
    assert read(data, produced=True) == shown(RECORDS, magic)
    if codec and magic:
        with pytest.raises(InvalidRecords, match="below 4"):
            read(data)  # a stored wrapper never has an offset below its last message's


@each(("magic", "codec"), [pair for pair in OLD if pair[1]])
def test_stored_wrapper_of_other_writer_is_read(other: LegacyCodec, magic: int, codec: int) -> None:
    """v0 with absolute offsets inside, v1 with relative ones, the wrapper at its last message's offset."""
    if not other.knows(magic, codec):
        return
    inside = RECORDS if magic else moved(RECORDS, 100)
    data = bytearray(other.write(inside, magic, codec))
    legacy.assign(data, 0, offset=104)
    assert read(data) == shown(moved(RECORDS, 100), magic)
    assert other.read(bytes(data), magic) == shown(moved(RECORDS, 100), magic)


@each(("magic", "codec"), OLD)
def test_written_messages_are_read_by_other_readers(other: LegacyCodec, magic: int, codec: int) -> None:
    if not other.knows(magic, codec):
        return
    records = moved(RECORDS, 2**40)
    data = bytes(legacy.build(records, magic=magic, codec=codec))
    found: list[Record] = []
    for position, header in formats.headers(data):
        found += other.read(data[position : position + header.size_bytes], magic)
    assert found == shown(records, magic)


@each(("magic", "codec"), [pair for pair in OLD if pair[1]])
def test_wrappers_equal_other_writers_except_compressed_bytes(other: LegacyCodec, magic: int, codec: int) -> None:
    if not other.knows(magic, codec):
        return
    ours = bytes(legacy.build(RECORDS, magic=magic, codec=codec))
    theirs = other.write(RECORDS, magic, codec)
    our_head, their_head = legacy.read_header(ours), legacy.read_header(theirs)
    assert legacy.inner(ours, 0, our_head) == legacy.inner(theirs, 0, their_head) == plain(RECORDS, magic)
    # kafka-python and aiokafka leave the offset and timestamp of a wrapper to the broker.
    assert (our_head.base_offset, our_head.max_timestamp) == (4, NOW + 9 if magic else -1)
    assert (their_head.base_offset, their_head.max_timestamp) == (0, 0 if magic else -1)
    assert our_head.attributes == their_head.attributes == codec
    key_at = 26 if magic else 18
    assert ours[key_at : key_at + 4] == theirs[key_at : key_at + 4] == b"\xff" * 4


# --- what is refused


@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_with_invalid_contents_raises(magic: int) -> None:
    other_magic = 1 - magic
    inside = plain(RECORDS[:1], magic)
    cases: list[tuple[bytes, type[Exception] | tuple[type[Exception], ...]]] = [
        (wrapper(wrapper(inside, magic=magic), magic=magic), InvalidRecords),
        (wrapper(inside + wrapper(inside, magic=magic), magic=magic), InvalidRecords),
        (wrapper(plain(RECORDS[:1], other_magic), magic=magic), (InvalidRecords, CorruptRecords)),
        (wrapper(b"", magic=magic), InvalidRecords),
        (message(magic=magic, value=None, attributes=1), InvalidRecords),
        (wrapper(inside[:-1], magic=magic), CorruptRecords),
        (wrapper(inside + inside[:20], magic=magic), CorruptRecords),
        (wrapper(inside[:-1] + b"x", magic=magic), CorruptRecords),  # the CRC inside
        (message(magic=magic, value=compression.compress(4, inside), attributes=4), InvalidRecords),
        (message(magic=magic, value=b"abc", attributes=7), InvalidRecords),
        (message(magic=magic, value=b"abc", attributes=2), InvalidRecords),
    ]
    for data, error in cases:
        head = legacy.read_header(data)
        assert legacy.crc_matches(data, 0, head)
        with pytest.raises(error):
            list(legacy.records(data, produced=True))


def test_wrapper_offset_below_its_last_message_raises() -> None:
    inside = plain(RECORDS)
    with pytest.raises(InvalidRecords, match="below 4"):
        list(legacy.records(wrapper(inside, offset=3), produced=True))
    assert [r.offset for r in legacy.records(wrapper(inside, offset=4))] == [0, 1, 2, 3, 4]
    assert [r.offset for r in legacy.records(wrapper(inside, offset=0), produced=True)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("magic", [0, 1])
def test_wrong_lengths_raise(magic: int) -> None:
    head = struct.pack(">bbq", 1, 0, NOW) if magic else struct.pack(">bb", 0, 0)
    for key_bytes, value_bytes in ((100, 1), (1, 100), (1, 0), (2**31 - 1, 1), (1, 2**31 - 1), (2, 1), (0, 0)):
        body = head + struct.pack(">i", key_bytes) + b"k" + struct.pack(">i", value_bytes) + b"v"
        with pytest.raises(CorruptRecords):
            list(legacy.records(sealed(0, body)))
        with pytest.raises(CorruptRecords):
            list(legacy.records(wrapper(sealed(0, body), magic=magic), produced=True))
    # Any negative length is null, as in Java.
    body = head + struct.pack(">i", -5) + struct.pack(">i", -(2**31))
    assert next(legacy.records(sealed(3, body)))[2:4] == (None, None)


@pytest.mark.parametrize("magic", [0, 1])
def test_header_with_bad_size_or_magic_raises(magic: int) -> None:
    good = message(magic=magic)
    for size in (-(2**31), -1, 0, 13, 13 + 8 * magic, len(good), 2**31 - 1):
        with pytest.raises(CorruptRecords):
            legacy.read_header(good[:8] + struct.pack(">i", size) + good[12:])
    for end in range(len(good)):
        with pytest.raises(CorruptRecords):
            legacy.read_header(good[:end])
    assert legacy.read_header(good[: 26 if magic else 18], whole=False) == legacy.read_header(good)
    with pytest.raises(CorruptRecords):
        legacy.read_header(good, -1)
    with pytest.raises(CorruptRecords):
        legacy.read_header(bytes(batch.build(RECORDS)))


# --- damage and bombs


@given(data=st.data(), pair=st.sampled_from(OLD))
def test_damaged_message_raises_declared_errors_only(data: st.DataObject, pair: tuple[int, int]) -> None:
    entry = bytearray(legacy.build(moved(RECORDS[:3], 9), magic=pair[0], codec=pair[1]))
    for _ in range(data.draw(st.integers(1, 3))):
        entry[data.draw(st.integers(8, len(entry) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del entry[data.draw(st.integers(0, len(entry))) :]
    entry = bytes(entry)
    with suppress(CorruptRecords, InvalidRecords):
        for position, header in formats.headers(entry):
            if header.magic < 2:
                formats.crc_matches(entry, position, header)
                list(legacy.records(entry, position, max_bytes=MIB))


@pytest.mark.parametrize("magic", [0, 1])
def test_damaged_byte_fails_the_crc(magic: int) -> None:
    good = bytes(legacy.build(RECORDS[:1], magic=magic))
    for at in range(12, len(good)):
        bad = bytearray(good)
        bad[at] ^= 0x41
        if at == 16:  # the magic
            with pytest.raises(CorruptRecords):
                legacy.read_header(bad)
            continue
        assert not legacy.crc_matches(bad, 0, legacy.read_header(bad))


@pytest.mark.parametrize(("magic", "codec"), [pair for pair in OLD if pair[1]])
def test_wrapper_bomb_is_refused_in_bounded_memory(magic: int, codec: int) -> None:
    """A wrapper of many tiny messages, the same in another wrapper, and the first one within its bound."""
    tiny = plain([Record(0, NOW, None, None)], magic)
    inner = tiny * (4 * MIB // len(tiny))
    many = wrapper(inner, codec, magic=magic, offset=2**40)
    nested = wrapper(many, codec, magic=magic, offset=2**40)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecords):
            list(legacy.records(many, max_bytes=MIB))
        with pytest.raises(InvalidRecords):
            list(legacy.records(nested, max_bytes=MIB))
        _, peak = tracemalloc.get_traced_memory()
        assert peak < 3 * MIB  # the parts of gzip, joined
        tracemalloc.reset_peak()
        # Records are made one by one: only the decompressed set is held in memory.
        first = next(legacy.records(many, max_bytes=4 * MIB))
        _, peak = tracemalloc.get_traced_memory()
        assert peak < 13 * MIB
        assert first.value is None
    finally:
        tracemalloc.stop()


def test_crc_covers_magic_to_end() -> None:
    data = message(offset=9)
    assert legacy.read_header(data).crc == zlib.crc32(data[16:])
