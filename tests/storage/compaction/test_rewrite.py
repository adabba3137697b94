"""Rewriting segments: conversion of entries of each format, filters, and where an output ends."""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from typing import Any

import pytest

from ottla.protocol.limits import INT64_MAX
from ottla.protocol.records import batch, formats
from ottla.protocol.records.batch import BatchHeader, Record
from ottla.storage.compaction.rewrite import (
    LIMITS,
    Choose,
    Limits,
    Source,
    Target,
    Verdict,
    every,
    holds_old_formats,
    none,
    rewrite,
)
from ottla.storage.compaction.swap import Rewritten, finish_leftovers, swap_in
from ottla.storage.errors import StorageError
from ottla.storage.io.files import DiskFiles
from ottla.storage.partition_log import LogConfig
from ottla_testing.each import each
from ottla_testing.storage.batches import FOLDER, make, open_log
from ottla_testing.storage.old_messages import Piece, Row, lay_down, logs_of, message, piece, rows_of, wrapper
from ottla_testing.storage.simulated_files import Killed, SimulatedFiles

SOURCE = f"{FOLDER}/{0:020d}.log"
OUT = "/data/out"


def source(files: SimulatedFiles, base: int = 0) -> Source:
    path = f"{FOLDER}/{base:020d}.log"
    return Source(path, files.size(path))


def run(
    *pieces: Piece,
    files: SimulatedFiles | None = None,
    base: int = 0,
    interval: int = 4096,
    end_offset: int = INT64_MAX,
    limits: Limits = LIMITS,
    **more: Any,
) -> tuple[SimulatedFiles, list[Rewritten]]:
    """Rewrites one segment of these pieces into a folder of its own, without a suffix."""
    files = files or SimulatedFiles()
    lay_down(files, [(base, pieces)])
    files.make_directory(OUT)
    made = rewrite(files, [source(files, base)], Target(OUT, base, interval, end_offset, limits, suffix=""), **more)
    return files, made


def written(files: SimulatedFiles, base: int = 0, suffix: str = ".log") -> bytes:
    return files.read_bytes(f"{OUT}/{base:020d}{suffix}")


def batches_of(data: bytes) -> list[BatchHeader]:
    headers = list(formats.headers(data))
    assert all(batch.crc_matches(data, position, header) for position, header in headers)
    assert sum(header.size_bytes for _, header in headers) == len(data)
    return [header for _, header in headers]


def rows(data: bytes) -> list[Row]:
    found = [record for position, _ in formats.headers(data) for record in batch.records(data, position)]
    return [(record.offset, record.key, record.value, record.timestamp) for record in found]


# -- conversion


def test_golden_bytes_of_a_converted_message():
    """A batch of one record, without producer and leader epoch."""
    files, made = run(Piece(message(1, 7, None, b"a", 1000), []))
    assert written(files) == bytes.fromhex(
        "0000000000000007 00000039 ffffffff 02 ebf1884b 0000 00000000 00000000000003e8 00000000000003e8"
        "ffffffffffffffff ffff ffffffff 00000001 0e 00 00 00 01 02 61 00"
    )
    assert made == [Rewritten(0, 8, 69, 1, 1)]


KINDS = [(magic, codec, time) for magic in (0, 1) for codec in (0, 1, 2, 3) for time in (None, 5000)]


@each(("magic", "codec", "append_time"), KINDS)
def test_converted_entries_keep_offsets_keys_values_and_timestamps(magic: int, codec: int, append_time: int | None):
    part = piece(magic, codec, 40, (1, 3, 1, 1), (1000, 900, 1100, -1), append_time=append_time)
    files, (made,) = run(part, base=30)
    data = written(files, 30)
    assert rows(data) == part.rows
    headers = batches_of(data)
    if codec:
        assert [(header.base_offset, header.last_offset, header.record_count) for header in headers] == [(40, 46, 5)]
    else:
        offsets = [row[0] for row in part.rows]
        assert [(header.base_offset, header.last_offset, header.record_count) for header in headers] == [
            (offset, offset, 1) for offset in offsets
        ]
    assert {header.codec for header in headers} == {codec}
    assert {header.log_append_time for header in headers} == {magic == 1 and append_time is not None}
    assert max(header.max_timestamp for header in headers) == max(row[3] for row in part.rows)
    assert {header[9:12] for header in headers} == {(-1, -1, -1)}  # no producer
    assert made[:4] == (30, 47, len(data), 5)


def test_v2_batches_are_copied_even_if_damaged():
    """Readers find the damage; a new checksum would hide it."""
    sound = piece(2, 1, 0, (1, 1), (5,)).data + piece(2, 0, 5, (4,), (9,), append_time=77).data
    damaged = bytearray(sound)
    damaged[80] ^= 1
    for data in (sound, bytes(damaged)):
        files, (made,) = run(Piece(data, []))
        assert written(files) == data
        assert (made.next_offset, made.converted) == (10, 0)


def test_written_indexes_equal_recovered_ones():
    pieces = [
        piece(0, 0, 0, (1,) * 9, (0,)),
        piece(1, 1, 12, (1, 2), (50, 40)),
        piece(1, 0, 20, (1,) * 9, range(70, 60, -1)),
    ]
    pieces += [piece(2, 0, 40 + 3 * number, (1,), (60 + 3 * (number ^ 1),)) for number in range(20)]
    files, _ = run(*pieces, interval=150)
    names = [f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")]
    made = [files.read_bytes(f"{OUT}/{name}") for name in names]
    assert all(files.contents[f"{OUT}/{name}"].durable == data for name, data in zip(names, made, strict=True))
    assert len(made[1]) // 8 > 8 and len(made[2]) // 12 > 3
    other = SimulatedFiles()
    lay_down(other, [(0, [Piece(made[0], [])])])
    open_log(other, config=LogConfig(index_interval_bytes=150), clean=False).close()
    assert [other.read_bytes(f"{FOLDER}/{name}") for name in names] == made


def test_file_time_of_the_source_is_kept(tmp_path):
    files = DiskFiles()
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(message(0, 0, b"k", b"v"))
    files.set_modified_ns(str(path), 1_500_000_000_123_456_789)
    rewrite(files, [Source(str(path), path.stat().st_size)], Target(str(tmp_path), 0, 4096))
    assert files.modified_ns(f"{path}.cleaned") == 1_500_000_000_123_456_789 == path.stat().st_mtime_ns
    assert {name.name for name in tmp_path.iterdir()} == {
        path.name,
        *(f"{0:020d}{suffix}.cleaned" for suffix in (".log", ".index", ".timeindex")),
    }


def test_many_messages_are_written_in_large_chunks_with_progress():
    big = Piece(b"".join(message(1, offset, b"k", bytes(1000), 7) for offset in range(3000)), [])
    seen: list[tuple[int, int]] = []
    files, (made,) = run(big, on_progress=lambda done, records: seen.append((done, records)))
    assert len([line for line in files.log if line == f"write {OUT}/{0:020d}.log"]) == 4
    assert seen[-1] == (len(big.data), 3000) and len(seen) == 2 + 1
    assert made.size_bytes == len(written(files)) > len(big.data)


# -- where an output ends


def test_too_large_output_continues_in_the_next_without_a_gap():
    part = piece(0, 0, 5, (1, 1, 4, 1, 1, 9, 1), (0,))
    files, made = run(part, limits=Limits(segment_bytes=250))
    assert len(made) > 2
    assert [output.base_offset for output in made] == [0, *(output.next_offset for output in made[:-1])]
    datas = [written(files, output.base_offset) for output in made]
    assert [row for data in datas for row in rows(data)] == part.rows
    for output, data, following in zip(made, datas, [*datas[1:], None], strict=True):
        assert len(data) == output.size_bytes <= 250
        if following:
            assert len(data) + batches_of(following)[0].size_bytes > 250
    assert sum(output.converted for output in made) == 8


def test_batch_above_the_limit_has_its_own_output():
    part = piece(1, 0, 0, (1, 1), (0,))
    _, made = run(part, limits=Limits(segment_bytes=1))
    assert [output.base_offset for output in made] == [0, 1, 2]


def test_output_ends_when_an_index_is_full():
    pieces = [piece(1, 0, number, (), (number,)) for number in range(40)]
    files, made = run(*pieces, interval=0, limits=Limits(index_bytes=48))
    assert len(made) > 5
    for output in made:
        assert len(written(files, output.base_offset, ".index")) <= 48
        assert len(written(files, output.base_offset, ".timeindex")) <= 48
    assert [row for output in made for row in rows(written(files, output.base_offset))] == [
        row for part in pieces for row in part.rows
    ]


def test_output_ends_where_relative_offsets_overflow():
    far = 2**31 + 10
    files = SimulatedFiles()
    low, high = piece(1, 0, 0, (1,), (1,)), piece(1, 0, far, (1,), (1,))
    lay_down(files, [(0, [low]), (far, [high])])
    files.make_directory(OUT)
    made = rewrite(files, [source(files), source(files, far)], Target(OUT, 0, 4096, suffix=""))
    assert [(output.base_offset, output.next_offset) for output in made] == [(0, 2), (far, far + 2)]


def aborted(producer: int, first: int, last: int) -> bytes:
    return struct.pack(">hqqqq", 0, producer, first, last, last + 1)


def test_aborted_transactions_are_kept_with_their_markers():
    files = SimulatedFiles()
    entries = [aborted(9, 0, 1), aborted(8, 1, 4), aborted(9, 3, 5)]
    lay_down(files, [(0, [piece(1, 0, 0, (1,) * 5, (0,))])])
    file = files.open(SOURCE.replace(".log", ".txnindex"), create=True)
    file.write(0, b"".join(entries) + b"cut")
    _, made = run(piece(1, 0, 0, (1,) * 5, (0,)), files=files, limits=Limits(segment_bytes=300))
    assert [output.base_offset for output in made] == [0, 3]
    assert written(files, 0, ".txnindex") == entries[0]
    assert written(files, 3, ".txnindex") == entries[1] + entries[2]


# -- filters


def always(verdict: Verdict) -> Choose:
    return lambda header, data: verdict


def choose_by_key(*keys: bytes | None, **more: object):
    return lambda header, data: Verdict(lambda offset, key, has_value: key in keys, **more)  # type: ignore[arg-type]


def test_consecutive_segments_are_merged():
    files = SimulatedFiles()
    first, second = piece(1, 1, 0, (1, 1), (5,)), piece(2, 0, 3, (1, 1), (9,))
    lay_down(files, [(0, [first]), (3, [second])])
    files.make_directory(OUT)
    made = rewrite(files, [source(files), source(files, 3)], Target(OUT, 0, 4096, suffix=""))
    assert rows(written(files)) == first.rows + second.rows
    assert [(output.base_offset, output.next_offset, output.converted) for output in made] == [(0, 6, 3)]


@pytest.mark.parametrize("codec", [0, 1, 4])
@pytest.mark.parametrize("append_time", [False, True])
def test_filtered_batch_keeps_offsets_sequences_and_producer(codec: int, append_time: bool):
    records = [Record(10 + n, 100 - n, b"%d" % n, b"v", [batch.Header("h", b"x")]) for n in range(5)]
    data = batch.build(
        records,
        batch.BatchFields(
            log_append_time=append_time,
            max_timestamp=500 if append_time else None,
            producer_id=9,
            producer_epoch=3,
            base_sequence=70,
            transactional=True,
        ),
        base_offset=10,
        codec=codec,
        leader_epoch=6,
    )
    before = batch.read_header(data)
    files, _ = run(Piece(bytes(data), []), choose=choose_by_key(b"1", b"3"))
    (after,) = batches_of(written(files))
    changed = ("batch_length", "crc", "base_timestamp", "max_timestamp", "record_count")
    kept = [name for name in BatchHeader._fields if name not in changed]
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert after.record_count == 2 and after.max_timestamp == (500 if append_time else 99)
    found = list(batch.records(written(files)))
    assert [(record.offset, record.timestamp) for record in found] == [
        (11, 500 if append_time else 99), (13, 500 if append_time else 97)
    ]  # fmt: skip
    assert found[0].headers == (batch.Header("h", b"x"),)


def test_unfiltered_batches_are_copied_and_emptied_ones_removed():
    data = bytes(make(b"a", b"b", codec=1))
    part = Piece(data, [])
    files, _ = run(part, choose=choose_by_key(None))
    assert written(files) == data
    for verdict in (Verdict(none), Verdict(lambda *_: False)):
        files, made = run(part, piece(0, 0, 2, (), (0,)), piece(1, 1, 3, (1,), (0,)), choose=always(verdict))
        assert written(files) == written(files, 0, ".index") == b""
        assert made == [Rewritten(0, 0, 0, 0)]


def test_emptied_batch_may_keep_its_header():
    """As Kafka leaves it: no codec, no base timestamp, but all fields that a producer's next batch is checked
    against."""
    data = make(b"a", b"b", codec=1, timestamp=50, producer_id=9, producer_epoch=3, base_sequence=70, leader_epoch=2)
    for verdict in (Verdict(none, keep_empty=True), Verdict(lambda *_: False, keep_empty=True)):
        files, (made,) = run(Piece(bytes(data), []), choose=always(verdict))
        (after,) = batches_of(written(files))
        assert (after.size_bytes, after.record_count, after.codec) == (61, 0, 0)
        assert (after.base_offset, after.last_offset, after.partition_leader_epoch) == (0, 1, 2)
        assert (after.producer_id, after.producer_epoch, after.base_sequence, after.last_sequence) == (9, 3, 70, 71)
        assert (after.base_timestamp, after.max_timestamp) == (-1, 50)
        assert made.next_offset == 2
        again, _ = run(Piece(written(files), []), choose=lambda header, data: Verdict(lambda *_: True, keep_empty=True))
        assert written(again) == written(files)


def test_filtered_old_entries_begin_at_the_first_remaining_record():
    part = piece(1, 1, 10, (1, 1, 1, 1), (5, 6, 7, 8, 9), append_time=99)
    plain = piece(0, 0, 20, (1, 1), (0,))
    wanted = [row for row in part.rows + plain.rows if row[0] in (11, 13, 21)]
    files, (made,) = run(
        part, plain, choose=lambda header, data: Verdict(lambda offset, key, has_value: offset in (11, 13, 21))
    )
    assert rows(written(files)) == wanted
    first, second = batches_of(written(files))
    assert (first.base_offset, first.last_offset, first.codec, first.log_append_time) == (11, 13, 1, True)
    assert (second.base_offset, second.last_offset) == (21, 21)
    assert made.converted == 3
    files, _ = run(part, plain, choose=lambda header, data: Verdict(lambda *_: True))
    assert written(files) == written(run(part, plain)[0])


def test_delete_horizon_is_set_once_for_tombstones_and_markers_only():
    tombstone = batch.build([Record(0, 40, b"a", None), Record(1, 70, b"b", b"v")], codec=1)
    value = batch.build([Record(2, 40, b"a", b"v")], base_offset=2)
    marker = batch.build(
        [Record(3, 80, bytes(4), bytes(6))], batch.BatchFields(control=True, transactional=True), base_offset=3
    )
    pieces = [Piece(bytes(data), []) for data in (tombstone, value, marker)]
    files, _ = run(*pieces, choose=lambda header, data: Verdict(every, delete_horizon_ms=9000))
    headers = batches_of(written(files))
    assert [(header.has_delete_horizon, header.base_timestamp) for header in headers] == [
        (True, 9000), (False, 40), (True, 9000)
    ]  # fmt: skip
    assert [header.max_timestamp for header in headers] == [70, 40, 80]
    assert [row[3] for row in rows(written(files))] == [40, 70, 40, 80]
    assert headers[0].codec == 1 and headers[2].is_control and headers[2].is_transactional
    # The first horizon is kept, also when the batch loses a record.
    again, _ = run(
        Piece(written(files), []),
        choose=lambda header, data: Verdict(lambda offset, *_: offset != 1, delete_horizon_ms=10_000),
    )
    assert [(header.has_delete_horizon, header.base_timestamp) for header in batches_of(written(again))] == [
        (True, 9000), (False, 40), (True, 9000)
    ]  # fmt: skip
    assert [row[3] for row in rows(written(again))] == [40, 40, 80]


def test_filter_receives_headers_of_all_formats():
    seen: list[tuple[int, int]] = []

    def choose(header: BatchHeader, data: memoryview) -> Verdict:
        seen.append((header.magic, header.last_offset))
        return Verdict(none if header.magic == 1 else every)

    files, _ = run(piece(0, 1, 0, (1,), (0,)), piece(1, 0, 2, (), (0,)), piece(2, 0, 3, (1,), (0,)), choose=choose)
    assert seen == [(0, 1), (1, 2), (2, 4)]
    assert [row[0] for row in rows(written(files))] == [0, 1, 3, 4]


# -- damage


def nothing_made(files: SimulatedFiles) -> bool:
    return not files.list(OUT)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 3])
def test_flipped_bit_of_an_old_entry_is_refused_and_leaves_no_output(magic: int, codec: int):
    first = piece(2, 0, 0, (1,), (5,)).data
    rows_before = [(2, b"k", b"value", 7), (3, None, b"w", 8)]
    old = wrapper(magic, codec, rows_before) if codec else message(magic, 2, b"k", b"value", 7)
    for at in range(8, len(old)):  # the offset lies outside the checksum
        damaged = bytearray(old)
        damaged[at] ^= 1 << at % 8
        files = SimulatedFiles()
        with pytest.raises(StorageError, match=f"{0:020d}.log at byte {len(first)}: "):
            run(Piece(first + bytes(damaged), []), files=files)
        assert nothing_made(files) and files.read_bytes(SOURCE) == first + bytes(damaged)


def test_offsets_that_fall_or_jump_too_far_are_refused():
    for wrong in (piece(1, 0, 4, (), (0,)), piece(0, 1, 3, (1, 1), (0,)), piece(2, 0, 2, (1,), (0,))):
        with pytest.raises(StorageError, match="is next"):
            run(piece(1, 0, 3, (1,), (0,)), wrong)
    with pytest.raises(StorageError, match="is next"):
        run(piece(1, 0, 3, (1,), (0,)), base=4)
    run(piece(1, 1, 3, (1,), (0,)), end_offset=5)
    with pytest.raises(StorageError, match="offset 4 where 4 is the end"):
        run(piece(1, 1, 3, (1,), (0,)), end_offset=4)


def damaged_batch(*positions: int) -> bytes:
    data = make(b"a", b"b")
    for position in positions:
        data[position] ^= 1
    return bytes(data)


def test_damaged_batch_read_by_a_filter_is_refused():
    with pytest.raises(StorageError, match="checksum"):
        run(Piece(damaged_batch(-1), []), choose=choose_by_key(None))


def test_truncated_source_is_refused():
    data = piece(1, 0, 0, (1,), (0,)).data
    with pytest.raises(StorageError, match="at byte"):
        run(Piece(data[:-1], []))


def count_steps() -> int:
    files, _ = run(*PIECES, limits=Limits(segment_bytes=300))
    return files.steps


PIECES: Sequence[Piece] = (piece(0, 0, 0, (1, 1), (0,)), piece(1, 1, 3, (1, 1), (9,)), piece(2, 0, 6, (1,), (9,)))
STEPS = count_steps()


@each("step", range(STEPS), strided=True)
def test_disk_error_leaves_no_output_and_a_second_try_succeeds(step: int):
    files = SimulatedFiles()
    lay_down(files, [(0, PIECES)])
    files.make_directory(OUT)
    start = files.steps
    for number in (errno.EIO, errno.ENOSPC):
        files.fail_at, files.steps = (step, start) if number == errno.EIO else (None, start)
        files.capacity = files.used() + step * 20 if number == errno.ENOSPC else 1 << 40
        try:
            rewrite(files, [source(files)], Target(OUT, 0, 4096, limits=Limits(300), suffix=""))
        except StorageError as error:
            assert "cannot rewrite" in str(error)
            assert nothing_made(files)
        files.fail_at, files.capacity = None, 1 << 40
    made = rewrite(files, [source(files)], Target(OUT, 0, 4096, limits=Limits(300), suffix=""))
    assert [row for output in made for row in rows(written(files, output.base_offset))] == [
        row for part in PIECES for row in part.rows
    ]


# -- the swap


@pytest.mark.parametrize("limit", [2**31 - 1, 200], ids=["into one", "into several"])
def test_interrupted_swap_replaces_all_segments_or_none(limit: int):
    """With a filter: after a crash all of the old or all of the new segments are there, and those around them."""
    pieces = [piece(1, 0, 0, (1, 1), (5,)), piece(2, 0, 3, (1, 1), (6,)), piece(1, 1, 6, (1, 1), (7,))]
    outer = [piece(2, 0, 9, (1,), (8,))]
    outcomes: set[int] = set()
    step = 0
    while True:
        files = SimulatedFiles()
        old = lay_down(files, [(part.rows[0][0], [part]) for part in [*pieces, *outer]])
        new = [row for row in old if row[0] not in (1, 4, 7)]
        bases = [0, 3, 6]
        files.fail_at, files.killing, killed = step, True, False
        try:
            made = rewrite(
                files,
                [source(files, base) for base in bases],
                Target(FOLDER, 0, 4096, limits=Limits(limit)),
                choose=lambda header, data: Verdict(lambda offset, key, has_value: offset not in (1, 4, 7)),
            )
            swap_in(files, FOLDER, [output.base_offset for output in made], bases)
        except Killed:
            killed = True
            files.lose_power(lambda path, durable, live: durable)
        files.restart()
        finish_leftovers(files, FOLDER, files.list(FOLDER))
        found = rows_of(files)
        assert found in (old, new)
        outcomes.add(len(found))
        assert not [name for name in files.list(FOLDER) if not name.endswith(("log", "index", "timeindex"))]
        if not killed:
            assert found == new and len(logs_of(files)) == len(made) + 1
            assert (len(made) > 1) == (limit == 200)
            break
        step += 1
    assert outcomes == {len(old), len(new)} and step > 20


def test_swap_with_an_emptied_last_segment_removes_its_files():
    files = SimulatedFiles()
    first, second = piece(2, 0, 0, (1, 1), (5,)), piece(2, 0, 3, (1, 1), (6,))
    lay_down(files, [(0, [first]), (3, [second])])
    sources = [source(files), source(files, 3)]
    chosen: Choose = lambda header, data: Verdict(none if header.base_offset == 3 else every)  # noqa: E731
    made = rewrite(files, sources, Target(FOLDER, 0, 4096), choose=chosen)
    swap_in(files, FOLDER, [output.base_offset for output in made], [0, 3])
    assert rows_of(files) == first.rows and logs_of(files) == [f"{0:020d}.log"]


# -- the walk over headers


def test_segments_with_old_formats_are_found():
    for pieces, expected in (
        ([], False),
        ([piece(2, 0, 0, (1,), (0,)), piece(2, 4, 2, (1,), (0,))], False),
        ([piece(2, 0, 0, (1,), (0,)), piece(1, 0, 2, (), (0,))], True),
        ([piece(0, 0, 0, (), (0,))], True),
        ([piece(2, 0, 0, (1,), (0,)), Piece(message(0, 2, None, None), [])], True),
    ):
        files = SimulatedFiles()
        lay_down(files, [(0, pieces)])
        assert holds_old_formats(files, source(files)) is expected


@pytest.mark.parametrize("damage", ["cut", "longer", "short length", "magic 3"])
def test_search_over_damaged_headers_is_refused(damage: str):
    data = bytearray(damaged_batch())
    whole = len(data)
    if damage == "cut":
        del data[-1:]
    elif damage == "longer":
        data += b"x"
    elif damage == "short length":
        data[8:12] = (3).to_bytes(4, "big")
    else:
        data[16] = 3
    files = SimulatedFiles()
    lay_down(files, [(0, [Piece(bytes(data), [])])])
    at = {"cut": whole, "longer": whole, "short length": 0, "magic 3": 0}[damage]
    with pytest.raises(StorageError, match=f"{SOURCE} at byte {at}: "):
        holds_old_formats(files, source(files))


def test_unreadable_segment_raises():
    with pytest.raises(StorageError, match="cannot read"):
        holds_old_formats(SimulatedFiles(), Source(SOURCE, 100))
    with pytest.raises(StorageError, match="cannot rewrite"):
        rewrite(SimulatedFiles(), [Source(SOURCE, 100)], Target(FOLDER, 0, 4096))
