"""Damage at every byte, hostile counts and lengths, and decompression bombs: errors match the plain decoder's, and
memory stays bounded."""

from __future__ import annotations

import dataclasses
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.pipeline.readers.columnar import Damage, Options, chunks, decode
from ottla.pipeline.readers.columnar.columns import ALL_COLUMNS
from ottla.protocol.records import batch, compression, formats, legacy
from ottla.protocol.records.batch import Header, Record
from ottla.protocol.records.errors import CorruptRecords, InvalidRecords
from ottla.protocol.records.layout import CRC_FROM, HEADER_BYTES
from ottla_testing.each import each
from ottla_testing.pipeline.columnar_samples import (
    FORMATS,
    INT64_MAX,
    NOW,
    REFUSED,
    Refused,
    both_ways,
    entries,
    in_columns,
    plainly,
    some_records,
    to_records,
)

SMALL = [
    Record(5, NOW, b"k", b"v" * 70, (Header("h", b"x"), Header("\u00fc", None))),
    Record(6, NOW - 3, None, None),
    Record(9, NOW + 2**33, b"", b"v" * 130),
]


@each(("magic", "codec"), FORMATS, strided=True)
def test_decode_flipped_bit_matches_plain_decoder(magic: int, codec: int, stride: int) -> None:
    """Flips bits; both decoders agree, with and without the CRC check."""
    sound = entries(SMALL, magic, codec)
    first_bytes = formats.read_header(sound).size_bytes
    every = -(-stride // 2)
    for position in range(random.randrange(every), len(sound), every):
        for bit in (0x01, 0x80):
            data = bytearray(sound)
            data[position] ^= bit
            assert (in_columns if codec else both_ways)(data) == plainly(data), (position, bit)
            # The offset, the size and (in v2) the leader epoch are not covered by the CRC.
            if (17 if magic == 2 else 12) <= position < first_bytes:
                assert in_columns(data, check_crc=True) is REFUSED, (position, bit)


def resealed(inner: bytes | bytearray, magic: int) -> bytes:
    """Returns a message set with corrected CRCs of its messages, as far as its sizes lead."""
    data = bytearray(inner)
    position = 0
    while position + 17 <= len(data):
        (size,) = struct.unpack_from(">i", data, position + 8)
        stop = position + 12 + size
        if size < 5 or stop > len(data):
            break
        struct.pack_into(">I", data, position + 12, zlib.crc32(data[position + 16 : stop]))
        position = stop
    return bytes(data)


def wrapped(inner: bytes, magic: int, codec: int, offset: int = 9) -> bytes:
    out = bytearray()
    packed = compression.compress(codec, inner, magic=magic)
    legacy.put_message(out, offset, magic, codec, NOW, None, packed)
    return bytes(out)


@pytest.mark.parametrize(("magic", "codec"), [(0, 1), (1, 2)])
def test_decode_flipped_bit_in_wrapper_matches_plain_decoder(magic: int, codec: int, stride: int) -> None:
    plain = bytes(legacy.build([item._replace(offset=item.offset - 5) for item in SMALL], magic=magic))
    assert in_columns(wrapped(plain, magic, codec)) == plainly(wrapped(plain, magic, codec)) != REFUSED
    refused = 0
    for position in range(random.randrange(stride), len(plain), stride):
        for bit in (0x01, 0x80):
            damaged = bytearray(plain)
            damaged[position] ^= bit
            for inner in (bytes(damaged), resealed(damaged, magic)):
                data = wrapped(inner, magic, codec)
                found = in_columns(data)
                assert found == plainly(data), (position, bit)
                refused += isinstance(found, Refused)
    assert 0 < refused < 6 * len(plain) // stride  # keys and values may change, sizes may not


@pytest.mark.parametrize("codec", [0, 3])
def test_decode_flipped_or_truncated_batch_matches_plain_decoder(codec: int, stride: int) -> None:
    built = batch.build(SMALL, base_offset=5)
    head = batch.read_header(built)
    payload = bytes(batch.payload(built, 0, head))
    for position in range(random.randrange(stride), len(payload), stride):
        variants = [payload[:position], payload[:position] + payload[position + 1 :]]
        variants += [payload[:position] + bytes([byte]) + payload[position + 1 :] for byte in (0, 1, 0xFF)]
        for variant in variants:
            data = bytes(batch.with_payload(head, variant, codec))
            assert (both_ways if codec else in_columns)(data) == plainly(data), (position, variant)


@st.composite
def hostile_payloads(draw: st.DrawFn) -> tuple[bytes, int]:
    """Bytes similar to records: sizes, counts and varints, most of them nearly valid."""
    varint = st.sampled_from([b"\x00", b"\x01", b"\x02", b"\x80\x00", b"\x81\x80\x80\x80\x00", b"\xff" * 4 + b"\x0f"])
    wild = varint | st.sampled_from([b"\xff" * 5, b"\xff" * 9 + b"\x01", b"\xff" * 10, b"\xff\xff\xff\xff\x10"])
    bodies = draw(st.lists(st.lists(wild | st.binary(max_size=3), min_size=3, max_size=9), min_size=1, max_size=6))
    out = b""
    for parts in bodies:
        body = b"\0" + b"".join(parts)
        off = draw(st.sampled_from([0, 0, 0, 0, -1, 1, 5]))
        length = draw(st.sampled_from([1, 1, 1, 2]))  # includes encodings that are not the shortest
        code = max(2 * (len(body) + off), 0)
        out += bytes([code]) if length == 1 and code < 128 else bytes([code & 127 | 128, code >> 7 & 127])
        out += body
    return out, len(bodies) + draw(st.sampled_from([0, 0, 0, 1, -1]))


@given(payload=hostile_payloads(), base=st.sampled_from([0, 7, INT64_MAX, INT64_MAX - 1]))
@example(payload=(b"\x0c\x00\x00\x00\x01\x01\x00", 1), base=INT64_MAX)
@example(payload=(b"\x8c\x00\x00\x00\x00\x01\x01\x00", 1), base=0)
@example(payload=(b"\x8a\x00\x00\x00\x00\x01\x01\x00", 1), base=0)
@example(payload=(b"\x0e\x00\x00\x00\x01\x01\x20" + b"\x00" * 33, 1), base=0)
def test_decode_hostile_payload_matches_plain_decoder(payload: tuple[bytes, int], base: int) -> None:
    data, count = payload
    head = batch.read_header(batch.build(SMALL, base_offset=5))._replace(
        base_offset=base, base_timestamp=base, record_count=count
    )
    built = bytes(batch.with_payload(head, data, 0))
    assert both_ways(built) == plainly(built)
    sound = entries(some_records(3, 1), 2, 0)
    assert (both_ways(sound + built) is REFUSED) == (plainly(built) is REFUSED)


@given(data=st.binary(max_size=200))
def test_decode_random_bytes_refused_or_decoded(data: bytes) -> None:
    assert in_columns(data) == plainly(data)


@given(data=st.binary(max_size=60), magic=st.sampled_from([0, 1]), codec=st.sampled_from([0, 1, 4, 7]))
def test_decode_random_old_message_refused_or_decoded(data: bytes, magic: int, codec: int) -> None:
    entry = struct.pack(">qiIbb", 3, len(data) + 6, 0, magic, codec) + data
    assert in_columns(entry) == plainly(entry)
    entry = resealed(entry, magic)
    assert in_columns(entry) == plainly(entry)


@pytest.mark.parametrize("columns", [(), ("offset",), ("key",), ("headers",), ("producer_id",)])
def test_decode_projection_raises_same_errors(columns: tuple[str, ...], stride: int) -> None:
    built = batch.build(SMALL, base_offset=5)
    head = batch.read_header(built)
    payload = bytes(batch.payload(built, 0, head))
    for position in range(random.randrange(stride), len(payload), stride):
        data = bytes(batch.with_payload(head, payload[:position] + b"\x83" + payload[position + 1 :], 0))
        if plainly(data) is REFUSED:
            with pytest.raises(InvalidRecords):
                list(decode(data, Options(columns=columns)))
        else:
            assert sum(rows.num_rows for rows in decode(data, Options(columns=columns))) == 3


# --- bounds


def peak_bytes(action: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [-1, 4, 2**31 - 1])
def test_decode_huge_record_count_allocates_nothing(count: int) -> None:
    built = batch.build(SMALL, base_offset=5)
    head = batch.read_header(built)._replace(record_count=count)
    data = bytes(batch.with_payload(head, batch.payload(built, 0, batch.read_header(built)), 0))
    in_columns(data)
    assert peak_bytes(lambda: in_columns(data)) < 1_000_000
    assert in_columns(data) is REFUSED


@pytest.mark.parametrize("headers", [1000, 2**31 - 1, -1])
def test_decode_huge_header_count_allocates_nothing(headers: int) -> None:
    code = (headers << 1) ^ (headers >> 63)
    number = b""
    while code > 127:
        number, code = number + bytes([code & 127 | 128]), code >> 7
    body = b"\0\0\0\x01\x01" + number + bytes([code])
    head = batch.read_header(batch.build(SMALL[:1], base_offset=5))
    data = bytes(batch.with_payload(head, bytes([2 * len(body)]) + body, 0))
    assert peak_bytes(lambda: in_columns(data)) < 1_000_000
    assert in_columns(data) is REFUSED
    assert plainly(data) is REFUSED


@each(("magic", "codec"), [form for form in FORMATS if form[1]], strided=True)
def test_decode_decompression_bomb_refused_early(magic: int, codec: int) -> None:
    data = entries([Record(0, NOW, None, bytes(8_000_000))], magic, codec)
    assert len(data) < 500_000
    assert peak_bytes(lambda: in_columns(data, max_batch_bytes=1_000_000)) < 3_000_000
    assert in_columns(data, max_batch_bytes=1_000_000) is REFUSED
    assert in_columns(data, max_batch_bytes=8_000_100) != REFUSED


def test_decode_record_with_many_headers_is_fast() -> None:
    many = tuple(Header("", None) for _ in range(50_000))
    data = entries([Record(0, NOW, None, None, many), Record(1, NOW, b"a", b"b", many[:3])], 2, 1)
    (rows,) = decode(data, Options(columns=("headers",)))
    assert [len(found) for found in rows.column(0)] == [50_000, 3]


def test_chunks_stay_below_32_bit_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "MAX_CHUNK_BYTES", 5000)
    parts = [entries([Record(index, NOW, b"", bytes(2000))], 2, 0) for index in range(5)]
    found = list(decode(b"".join(parts), Options(chunk_bytes=5000, max_batch_bytes=5000)))
    assert [rows.num_rows for rows in found] == [2, 2, 1]
    large = entries([Record(0, NOW, b"", bytes(6000))], 2, 0)
    with pytest.raises(InvalidRecords, match="more than a chunk can hold"):
        list(decode(large, Options(chunk_bytes=5000, max_batch_bytes=5000)))
    with pytest.raises(ValueError, match="from 1 to 5000"):
        decode(b"", Options())


def test_decode_offset_or_timestamp_overflow_refused() -> None:
    head = batch.read_header(batch.build(SMALL[:1], base_offset=5))
    payload = b"\x0c\x00\x02\x02\x01\x01\x00"  # both deltas are 1
    for fields in ({"base_offset": INT64_MAX}, {"base_timestamp": INT64_MAX}):
        data = bytes(batch.with_payload(head._replace(**fields), payload, 0))
        assert in_columns(data) is REFUSED
    inner = bytes(legacy.build([Record(-5, NOW, b"", b""), Record(-3, NOW, b"", b"")], magic=1))
    assert in_columns(wrapped(inner, 1, 1, offset=INT64_MAX)) is REFUSED
    inner = bytes(legacy.build([Record(9, NOW, b"", b""), Record(0, NOW, b"", b"")], magic=1))
    assert in_columns(wrapped(inner, 1, 1, offset=INT64_MAX)) is REFUSED


# --- damage with on_damage


@each("chunk_bytes", [1, 4 << 20])
@each(("magic", "codec"), FORMATS)
def test_on_damage_damaged_entries_reported_and_others_decoded(magic: int, codec: int, chunk_bytes: int) -> None:
    parts = [entries([item._replace(offset=10 * index) for item in SMALL[:1]], magic, codec) for index in range(4)]
    flipped = bytearray(parts[1])
    flipped[-1] ^= 1
    # Structural damage under a matching CRC.
    if magic == 2:
        broken = bytes(batch.with_payload(batch.read_header(parts[2]), b"\x0c\0\0\0\x01\x01\x02", codec))
    else:
        broken = wrapped(bytes(legacy.build(SMALL, magic=magic)) + b"\0", magic, 1)
    damage: list[Damage] = []
    data = parts[0] + bytes(flipped) + broken + parts[3]
    options = Options(columns=ALL_COLUMNS, on_damage=damage.append, chunk_bytes=chunk_bytes)
    found = [record.offset for rows in decode(data, options) for record in to_records(rows)]
    assert found == [0, 30]
    at = [len(parts[0]), len(parts[0] + bytes(flipped))]
    assert sorted((item.position, type(item.error)) for item in damage) == [
        (at[0], CorruptRecords),
        (at[1], InvalidRecords if magic == 2 else CorruptRecords),
    ]
    for item in damage:
        assert item.header is not None
        assert item.header.magic == magic


def test_on_damage_unrecognisable_entry_reported_once() -> None:
    sound = entries(SMALL, 2, 0)
    damage: list[Damage] = []
    found = list(decode(sound + bytes(100) + sound, Options(on_damage=damage.append)))
    assert [rows.num_rows for rows in found] == [3]
    assert [(item.position, item.header) for item in damage] == [(len(sound), None)]
    with pytest.raises(CorruptRecords):
        list(decode(sound + bytes(100) + sound))


def test_check_crc_off_wrong_crc_marked_in_column() -> None:
    data = bytearray(entries(SMALL, 2, 0) + entries(SMALL, 1, 0))
    data[17] ^= 1
    rows = [row for found in decode(data, Options(columns=("crc_ok",), check_crc=False)) for row in found.to_pylist()]
    assert [row["crc_ok"] for row in rows] == [False] * 3 + [True] * 3


@pytest.mark.parametrize("codec", [0, 3])
def test_without_crcs_only_the_layout_is_checked(codec: int) -> None:
    """A changed value is read as it is, a changed length is still an error."""
    records = [batch.Record(index, 1, None, b"value", ()) for index in range(20)]
    data = bytearray(batch.build(records, codec=codec))
    data[CRC_FROM - 1] ^= 1  # the stored CRC
    with pytest.raises(CorruptRecords, match="does not match its CRC"):
        list(decode(bytes(data)))
    options = Options(columns=("offset", "value", "value_size", "crc_ok"), crcs=False)
    for keep in (None, lambda position, header: True):
        (found,) = decode(bytes(data), dataclasses.replace(options, keep=keep))
        assert (
            found.column("value").to_pylist() == [b"value"] * 20 and found.column("value_size").to_pylist() == [5] * 20
        )
        assert found.column("crc_ok").to_pylist() == [True] * 20
    data[HEADER_BYTES + 1 if codec else HEADER_BYTES] ^= 0x55
    with pytest.raises((CorruptRecords, InvalidRecords)):
        list(decode(bytes(data), options))
