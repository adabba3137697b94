"""Entries by their headers: the next fetch offset, truncated entries, aborted batches."""

from __future__ import annotations

import functools
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.consumer.records import Chunk
from ottla.pipeline.backend import OffsetRange, ReadError, Wanted
from ottla.pipeline.readers.wire.decoding import Decoder
from ottla.pipeline.readers.wire.entries import aborted_positions, begins_damaged, extent
from ottla.pipeline.readers.wire.fetch import Fetched
from ottla.protocol.records import formats
from ottla_testing.pipeline.columnar_samples import FORMATS, entries, some_records
from ottla_testing.pipeline.wire_world import marker, transactional


@functools.cache
def log(magic: int, codec: int, seed: int = 1) -> bytes:
    return b"".join(entries(some_records(7, seed + n, first=1000 * n), magic, codec) for n in range(4))


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
def test_extent_stops_at_last_whole_entry(magic: int, codec: int) -> None:
    data = log(magic, codec)
    headers = list(formats.headers(data))
    starts = [position for position, _ in headers] + [len(data)]
    for cut in sorted({*range(0, len(data), 97), *starts, *(start + 12 for start in starts), len(data)}):
        whole = [header for position, header in headers if position + header.size_bytes <= cut]
        found = extent(memoryview(data)[:cut], 0, 2**60)
        assert found.stop == sum(header.size_bytes for header in whole)
        assert found.next_offset == (whole[-1].next_offset if whole else 0)
        assert not found.is_broken
        if min(cut, len(data)) - found.stop >= 12:
            assert found.needed_bytes == headers[len(whole)][1].size_bytes
        else:
            assert found.needed_bytes == 0


@given(st.sampled_from(FORMATS), st.integers(0, 4000), st.integers(0, 100))
def test_extent_stops_before_entries_after_end(form: tuple[int, int], end: int, seed: int) -> None:
    data = log(*form, seed=seed)
    found = extent(data, 0, end)
    offsets = [
        [record.offset for record in formats.records(data, position)]
        for position, _ in formats.headers(data[: found.stop])
    ]
    everything = [record.offset for position, _ in formats.headers(data) for record in formats.records(data, position)]
    # All offsets below the end are included, and no entry after it.
    assert [offset for some in offsets for offset in some if offset < end] == [o for o in everything if o < end]
    # Where a wrapper begins is known only from its contents.
    known = offsets[:-1] if form[0] < 2 and form[1] else offsets
    assert all(any(offset < end for offset in some) for some in known)
    assert found.next_offset >= min(end, everything[-1] + 1)


@pytest.mark.parametrize("size", [-1, 0, 13])
def test_extent_invalid_size_is_broken(size: int) -> None:
    good = entries(some_records(3, 1), 2, 0)
    bad = struct.pack(">qiib", 9, size, 0, 2) + bytes(80)
    assert extent(bad, 0, 100) == (0, 0, 0, True)
    found = extent(good + bad, 0, 2**60)
    assert found.stop == len(good) and found.is_broken


def test_extent_too_short_v2_batch_is_broken() -> None:
    assert extent(struct.pack(">qiib", 9, 40, 0, 2) + bytes(80), 0, 100).is_broken


writes = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.integers(5, 8)),
        st.tuples(st.sampled_from(["abort", "commit"]), st.integers(5, 8)),
    ),
    min_size=1,
    max_size=25,
)


@given(writes)
def test_aborted_positions_match_consumer(writes: list[tuple[str, int]]) -> None:
    data, opened, aborted = b"", {}, []
    for offset, (kind, producer_id) in enumerate(writes):
        if kind == "data":
            data += transactional(offset, producer_id)
            opened.setdefault(producer_id, offset)
        else:
            data += marker(offset, producer_id, commit=kind == "commit")
            first = opened.pop(producer_id, None)
            if kind == "abort" and first is not None:
                aborted.append((producer_id, first))
    left_out = aborted_positions(data, aborted)
    kept = [
        header.base_offset
        for position, header in formats.headers(data)
        if position not in left_out and not header.is_control
    ]
    chunk, seen = Chunk("t", 0, data, 0, committed_only=True, aborted=aborted), []
    while some := chunk.read():
        seen += [record.offset for record in some]
    assert kept == seen


@given(st.binary(max_size=300), st.sampled_from(FORMATS), st.integers(0, 3000), st.integers(0, 255))
def test_extent_random_bytes_never_fail(junk: bytes, form: tuple[int, int], place: int, byte: int) -> None:
    data = bytearray(log(*form) + junk)
    data[place % len(data)] = byte
    for distrust_headers in (False, True):
        found = extent(data, 5, 2**40, distrust_headers=distrust_headers)
        assert found.next_offset >= 5 and 0 <= found.stop <= len(data) and found.needed_bytes >= 0
    begins_damaged(data)


@given(
    st.sampled_from(FORMATS),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
    st.sampled_from(["fail", "skip", "emit"]),
    st.booleans(),
)
def test_aborted_positions_damage_raises_corrupt_records_or_nothing(
    form: tuple[int, int], flips: list[tuple[int, int]], policy: Any, aborted: bool
) -> None:
    data = bytearray(log(*form))
    for place, byte in flips:
        data[place % len(data)] = byte
    wanted = Wanted(("offset", "value", "headers", "crcOk"), on_corrupt=policy, max_batch_bytes=1 << 20)
    decoder = Decoder(wanted, OffsetRange("t", 0, 3, 3002))
    stop = extent(data, 3, 3002, distrust_headers=policy != "fail").stop
    fetched = Fetched(memoryview(data)[:stop], ((7, 0),) if aborted else (), 3, "there:1")
    try:
        found = [row for some in decoder.rows(fetched) for row in some.to_pylist()]
    except ReadError as error:
        assert policy == "fail" or aborted
        assert "there:1" in str(error) and "\n" not in str(error)
        return
    assert all(3 <= row["offset"] < 3002 for row in found)
    assert policy == "emit" or all(row["crcOk"] for row in found)
