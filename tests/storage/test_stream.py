"""Reading a segment entry by entry: the same as reading it whole, in bounded memory."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.protocol.records import batch, formats, legacy
from ottla.protocol.records.errors import CorruptRecords
from ottla.storage import stream
from ottla.storage.files import DiskFiles


def made(size: int, offset: int) -> bytes:
    """An entry of about that size, of any format."""
    record = batch.Record(offset, 1, b"key", bytes(size), ())
    if size % 3:
        return bytes(legacy.build([record], magic=size % 3 - 1))
    found = batch.build([record])
    batch.assign(found, 0, base_offset=offset, leader_epoch=0)
    return bytes(found)


@pytest.mark.parametrize("mapped_bytes", [200_000, 16 * 1024 * 1024])
def test_entries_are_those_of_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped_bytes: int, scaled: Callable[[int], int]
) -> None:
    """Small ones, some around the size of a piece, some above the size from which they are mapped."""
    monkeypatch.setattr(stream, "_MAPPED_BYTES", mapped_bytes)
    path = str(tmp_path / "log")
    for seed in range(scaled(20)):
        chooser = random.Random(seed)
        sizes = [chooser.choice((10, 400, 30_000, 61_300, 70_000, 250_000)) + chooser.randrange(200) for _ in range(30)]
        data = b"".join(made(size, offset) for offset, size in enumerate(sizes))
        Path(path).write_bytes(data + b"behind")
        told: list[int] = []
        found = list(stream.entries(DiskFiles(), path, len(data), told.append))
        assert [header for _, header in found] == [header for _, header in formats.headers(data)]
        assert b"".join(entry for entry, _ in found) == data
        assert sum(told) == len(data)


def test_a_damaged_size_takes_no_memory(tmp_path: Path) -> None:
    """It says that one batch fills a large file: that is looked at where it lies."""
    first = made(300, 0)
    size = 40 * 1024 * 1024
    damaged = bytearray(made(300, 1))
    damaged[8:12] = (size - len(first) - 12).to_bytes(4, "big")
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(first + damaged)
        file.truncate(size)
    tracemalloc.start()
    try:
        found = [batch.crc_matches(data, 0, header) for data, header in stream.entries(DiskFiles(), str(path), size)]
        assert found == [True, False]
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()


def test_a_size_behind_the_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(made(300, 0)[:-1])
    with pytest.raises(CorruptRecords):
        list(stream.entries(DiskFiles(), str(path), path.stat().st_size))
