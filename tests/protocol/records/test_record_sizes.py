"""The limit on each record of compressed entries of a log, in each format."""

from __future__ import annotations

import pytest

from ottla.protocol.limits import INT32_MAX
from ottla.protocol.records import formats, record_sizes
from ottla.protocol.records.compression import Codec
from ottla.protocol.records.errors import InvalidRecords
from ottla_testing.each import each
from ottla_testing.storage.compacting import data, old

KEY, LONG = b"k", bytes(100)
SIZE = {0: 6 + 4 + 1 + 4 + 100, 1: 6 + 8 + 4 + 1 + 4 + 100, 2: 3 + 1 + 1 + 2 + 100 + 1}
"""Bytes of the longest record after its size: CRC, magic and attributes, timestamp, key and value with their sizes."""


@each("magic", [0, 1, 2])
@each("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
def test_longest_record_decides(magic: int, codec: int) -> None:
    pairs = (KEY, b""), (KEY, LONG), (KEY, b"")
    entry = data(5, *pairs, codec=codec) if magic == 2 else old(magic, codec, 5, *pairs)
    header = formats.read_header(entry)
    for most in (INT32_MAX, INT32_MAX - 8, SIZE[magic]):
        record_sizes.check_entry(entry, header, most)
    if not codec:
        record_sizes.check_entry(entry, header, 0)
        return
    for most in (SIZE[magic] - 1, 0):
        with pytest.raises(InvalidRecords, match=r"Invalid record size: \d+ exceeds the configured maximum"):
            record_sizes.check_entry(entry, header, most)


@each("magic", [1, 2])
def test_damaged_entries_are_left_to_later_checks(magic: int) -> None:
    for cut in range(60):
        record_sizes.check(bytes([255]) * cut, magic, 10)
