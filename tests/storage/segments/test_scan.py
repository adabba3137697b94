"""Reading a log entry by entry: independent of the pieces, and never past its end."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import formats
from ottla.protocol.records.errors import CorruptRecords
from ottla.storage.segments import scan
from ottla.storage.segments.scan import entries
from ottla_testing.storage.old_messages import piece
from ottla_testing.storage.simulated_files import SimulatedFiles

PATH = "/data/log"
PIECES = [
    piece(2, 0, 0, (1, 1), (5,)), piece(0, 0, 3, (1,), (0,)), piece(1, 1, 5, (1, 1), (7,)), piece(1, 0, 8, (), (9,)),
    piece(0, 0, 9, (), (0,)), piece(2, 1, 10, (1,) * 20, (1,)), piece(0, 0, 31, (), (0,)),
]  # fmt: skip
WHOLE = b"".join(part.data for part in PIECES)


def laid(content: bytes) -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_directory("/data")
    files.open(PATH, create=True).write(0, content)
    return files


@given(st.integers(1, 400), st.integers(0, 9))
def test_scan_with_any_chunk_size_gives_the_same_entries(piece_bytes: int, trailing: int) -> None:
    files, read = laid(WHOLE + bytes(trailing)), list[int]()
    with mock.patch.object(scan, "_PIECE_BYTES", piece_bytes):
        found = [(bytes(data), header) for data, header in entries(files, PATH, len(WHOLE), read.append)]
    wanted = [(WHOLE[at : at + header.size_bytes], header) for at, header in formats.headers(WHOLE)]
    assert found == wanted and len(found) == 8
    assert sum(read) == len(WHOLE) and max(read) <= piece_bytes


@given(st.integers(1, len(WHOLE) - 1), st.integers(1, 400))
def test_truncated_entry_raises_after_those_before_it(size: int, piece_bytes: int) -> None:
    ends = [at + header.size_bytes for at, header in formats.headers(WHOLE)]
    found: list[int] = []
    with mock.patch.object(scan, "_PIECE_BYTES", piece_bytes):
        if size in ends:
            assert sum(len(data) for data, _ in entries(laid(WHOLE), PATH, size)) == size
            return
        with pytest.raises(CorruptRecords):
            for data, _ in entries(laid(WHOLE), PATH, size):
                found.append(len(data))
    assert sum(found) == max([end for end in ends if end < size], default=0)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        found = [bytes(data) for data, _ in entries(laid(content), PATH, len(content))]
    except CorruptRecords:
        return
    assert b"".join(found) == content


def test_declared_size_beyond_the_end_is_not_read() -> None:
    claimed = bytearray(WHOLE)
    claimed[8:12] = (2**31 - 1).to_bytes(4, "big")
    read: list[int] = []
    with pytest.raises(CorruptRecords, match="are left"):
        list(entries(laid(bytes(claimed)), PATH, len(claimed), read.append))
    for size in (-1, 0, 13, -(2**31)):
        claimed[8:12] = size.to_bytes(4, "big", signed=True)
        with pytest.raises(CorruptRecords):
            list(entries(laid(bytes(claimed)), PATH, len(claimed)))


def test_empty_log_needs_no_file_and_a_short_file_is_a_disk_error() -> None:
    assert list(entries(SimulatedFiles(), PATH, 0)) == []
    with pytest.raises(OSError, match="ends early"):
        list(entries(laid(WHOLE), PATH, len(WHOLE) + 1))
    with pytest.raises(FileNotFoundError):
        list(entries(SimulatedFiles(), PATH, 1))
