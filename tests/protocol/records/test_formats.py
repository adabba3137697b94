"""Headers, sizes and CRCs of entries of any magic, one after another."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import batch, formats, legacy
from ottla.protocol.records.batch import Record
from ottla.protocol.records.errors import CorruptRecords, InvalidRecords
from ottla_testing.protocol.message_sets import NOW, made

MADE = [(magic, codec) for magic in (0, 1) for codec in range(4)] + [(2, codec) for codec in range(5)]


def records_of(magic: int, base_offset: int) -> list[Record]:
    times = (NOW, NOW + 3) if magic else (-1, -1)
    return [
        Record(base_offset, times[0], b"key", b"value"),
        Record(base_offset + 1, times[1], None, b"x" * 50),
    ]


def mixed() -> tuple[bytes, list[Record]]:
    """Returns a log with every format and codec."""
    data, records = bytearray(), []
    for index, (magic, codec) in enumerate(MADE):
        found = records_of(magic, 2 * index)
        records += found
        if magic == 2:
            data += batch.build(found, base_offset=2 * index, codec=codec, leader_epoch=3)
        else:
            data += legacy.build(found, magic=magic, codec=codec)
    return bytes(data), records


def test_log_of_all_formats_is_read_entry_by_entry() -> None:
    data, records = mixed()
    found: list[Record] = []
    position = 0
    for at, header in formats.headers(data):
        assert at == position
        assert formats.read_header(data, at) == header
        assert formats.crc_matches(data, at, header)
        entry = list(formats.records(data, at))
        assert entry[-1].offset == header.last_offset
        found += entry
        position += header.size_bytes
    assert position == len(data)
    assert found == records
    seen = {(header.magic, header.codec) for _, header in formats.headers(data)}
    assert seen == set(MADE)
    assert list(formats.headers(memoryview(data))) == list(formats.headers(data))


@pytest.mark.parametrize(("magic", "codec"), MADE)
def test_entry_of_each_format_is_read_by_its_reader(magic: int, codec: int) -> None:
    data = made(magic, codec, records_of(magic, 0))
    module = batch if magic == 2 else legacy
    header = formats.read_header(data)
    assert header == module.read_header(data)
    assert (header.magic, header.codec) == (magic, codec)
    shifted = b"xyz" + data
    assert formats.read_header(shifted, 3) == header
    assert list(formats.records(shifted, 3)) == list(module.records(data))
    damaged = bytearray(data)
    damaged[-1] ^= 1
    last = [position for position, _ in formats.headers(data)][-1]
    assert not formats.crc_matches(damaged, last, formats.read_header(damaged, last))


@pytest.mark.parametrize(("magic", "codec"), MADE)
def test_truncated_last_entry_ends_the_set(magic: int, codec: int) -> None:
    data = made(magic, codec, records_of(magic, 0)[:1])
    for end in range(len(data)):
        assert [at for at, _ in formats.headers(data + data[:end])] == [0]
        with pytest.raises(CorruptRecords):
            formats.read_header(data[:end])
        with pytest.raises(CorruptRecords):
            next(formats.records(data[:end]))
    fixed = {0: 18, 1: 26, 2: 61}[magic]
    assert formats.read_header(data[:fixed], whole=False) == formats.read_header(data)
    with pytest.raises(CorruptRecords):
        formats.read_header(data[: fixed - 1], whole=False)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_entry_with_bad_size_or_magic_raises(magic: int) -> None:
    data = made(magic, 0, records_of(magic, 0)[:1])
    smallest = {0: 14, 1: 22, 2: 49}[magic]
    for size in (-(2**31), -1, 0, 13, smallest - 1):
        with pytest.raises(CorruptRecords):
            list(formats.headers(data + data[:8] + struct.pack(">i", size) + data[12:]))
    for wrong in (3, 127, 128, 255):
        bad = data[:16] + bytes([wrong]) + data[17:]
        with pytest.raises(CorruptRecords):
            list(formats.headers(data + bad))
        with pytest.raises(CorruptRecords):
            formats.read_header(bad)
    with pytest.raises(CorruptRecords):
        formats.read_header(data, -1)
    with pytest.raises(CorruptRecords):
        formats.read_header(data, -len(data))
    assert list(formats.headers(b"")) == []


@given(data=st.data())
def test_damaged_set_raises_declared_errors_only(data: st.DataObject) -> None:
    log = bytearray(mixed()[0])
    for _ in range(data.draw(st.integers(1, 5))):
        log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    with suppress(CorruptRecords):
        for position, header in formats.headers(log):
            formats.crc_matches(log, position, header)
            with suppress(CorruptRecords, InvalidRecords):
                list(formats.records(log, position, max_bytes=1 << 20))
