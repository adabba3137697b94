"""Compaction: retained keys, tombstones and empty batches, and how segments are merged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import batch
from ottla.protocol.records.batch import Record
from ottla.storage.compaction.compaction import Cleaned, Group, clean
from ottla.storage.errors import StorageError
from ottla_testing.each import each
from ottla_testing.storage.batches import FOLDER
from ottla_testing.storage.compacting import (
    Laid,
    bases,
    clean_once,
    data,
    entries_of,
    last_values,
    lay,
    offsets,
    old,
    rows,
    run,
    task,
)
from ottla_testing.storage.old_messages import wrapper
from ottla_testing.storage.simulated_files import SimulatedFiles

A, B, C = b"a", b"b", b"c"
V, W, X = b"v", b"w", b"x"
NOW = 10_000


def laid(*segments: Laid) -> SimulatedFiles:
    files = SimulatedFiles()
    lay(files, segments)
    return files


# -- keys


def test_last_record_of_each_key_stays_at_its_offset():
    files = laid(
        Laid(0, 0, [data(0, (A, V), (B, V), (None, V)), data(3, (A, W))]),
        Laid(4, 0, [data(4, (C, V), (B, W))]),
        Laid(6, 0, [data(6, (A, X))]),  # the active segment
    )
    active = entries_of(files, 6)
    done = clean_once(files, 0, 6)
    assert rows(files) == [(3, A, W), (4, C, V), (5, B, W), (6, A, X)]
    assert entries_of(files, 6) == active and bases(files) == [0, 6]
    assert done == Cleaned(6, 3, done.read_bytes, done.written_bytes, 6, 3)
    assert done.read_bytes > done.written_bytes == sum(len(entry) for _, entry in entries_of(files, 0))


def test_clean_records_stay_unless_their_key_is_dirty():
    files = laid(Laid(0, 0, [data(0, (A, V), (B, V))]), Laid(5, 0, [data(5, (A, W), (None, W))]), Laid(9, 0, []))
    assert clean_once(files, 5, 9).keys == 1
    assert rows(files) == [(1, B, V), (5, A, W)]


def test_pass_that_begins_and_ends_inside_batches():
    """As after a pass whose map was full: records below the start are not looked up, those above the end are
    retained."""
    files = laid(Laid(0, 0, [data(0, (A, V), (B, V), (A, W))]), Laid(3, 0, [data(3, (C, V), (A, X), (B, W), (C, W))]))
    done = clean_once(files, 1, 7, dedupe_buffer_bytes=24 * 3)  # room for two keys
    assert done.end_offset == 3 and done.keys == 2 and bases(files) == [0, 3]
    assert rows(files) == [(1, B, V), (2, A, W), (3, C, V), (4, A, X), (5, B, W), (6, C, W)]
    done = clean_once(files, 3, 7, dedupe_buffer_bytes=24 * 3)
    assert done.end_offset == 5 and offsets(files) == [1, 3, 4, 5, 6]
    done = clean_once(files, 5, 7, dedupe_buffer_bytes=24 * 3)
    assert done.end_offset == 7 and offsets(files) == [4, 5, 6]


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_records_below_the_start_use_no_buffer(magic: int):
    pairs = [(A, V), (B, V), (B, W)]
    entry = data(0, *pairs) if magic == 2 else old(magic, 1, 0, *pairs)
    files = laid(Laid(0, 0, [entry]), Laid(3, 0, []))
    assert clean_once(files, 1, 3).keys == 1 and offsets(files) == [0, 2]


def test_tombstone_outside_the_full_buffer_stays_at_any_age():
    files = laid(Laid(0, 0, [data(0, (A, V), (C, None))]), Laid(2, 0, []))
    clean_once(files, 0, 2, now_ms=NOW)
    done = clean_once(files, 0, 2, now_ms=NOW + 500, dedupe_buffer_bytes=24 * 2)  # room for one key
    assert done.end_offset == 1 and offsets(files) == [0, 1]
    clean_once(files, 1, 2, now_ms=NOW + 500, dedupe_buffer_bytes=24 * 2)
    assert offsets(files) == [0]


def test_buffer_without_space_for_a_key_is_refused():
    with pytest.raises(ValueError, match="no room"):
        clean_once(laid(Laid(0, 0, [data(0, (A, V))])), 0, 1, dedupe_buffer_bytes=40)


def test_batch_without_removed_records_is_copied_unchanged():
    whole = data(0, (A, V), (B, V), codec=4, producer_id=5, producer_epoch=1, base_sequence=0, leader_epoch=3)
    files = laid(Laid(0, 0, [whole, data(2, (C, V)), data(3, (C, W))]), Laid(4, 0, []))
    clean_once(files, 0, 4)
    assert [entry for _, entry in entries_of(files)] == [bytes(whole), bytes(data(3, (C, W)))]


# -- tombstones


def test_tombstone_stays_until_its_delete_horizon():
    """KIP-534: the horizon is that of the first pass; at it, not before it, the tombstone is removed."""
    files = laid(Laid(0, 0, [data(0, (A, V), (B, V)), data(2, (A, None), (C, V))]), Laid(4, 0, []))
    clean_once(files, 0, 4, now_ms=NOW)
    assert rows(files) == [(1, B, V), (2, A, None), (3, C, V)]
    horizons = [header.base_timestamp for header, _ in entries_of(files) if header.has_delete_horizon]
    assert horizons == [NOW + 500]
    before = entries_of(files)
    clean_once(files, 4, 4, now_ms=NOW + 499)
    assert entries_of(files) == before
    clean_once(files, 4, 4, now_ms=NOW + 500)
    assert rows(files) == [(1, B, V), (3, C, V)]


def test_superseded_tombstone_is_removed_at_once():
    files = laid(Laid(0, 0, [data(0, (A, None)), data(1, (A, V))]), Laid(2, 0, []))
    clean_once(files, 0, 2)
    assert rows(files) == [(1, A, V)]


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("keep_old", [True, False])
def test_tombstones_expire_by_file_times(magic: int, keep_old: bool):
    """Old formats in all releases, and all formats before 3.1: retained while their segment is younger than the time of
    the last clean one less delete.retention.ms."""

    def one(first: int, *pairs: tuple[bytes | None, bytes | None]) -> bytes:
        return bytes(data(first, *pairs)) if magic == 2 else old(magic, 0, first, *pairs)

    for segment_ms, stays in ((1500, False), (1501, True)):
        files = laid(
            Laid(0, 900, [one(0, (A, V))]),
            Laid(1, segment_ms, [one(1, (B, None))]),
            Laid(2, 2000, [one(2, (C, V))]),
            Laid(3, 2000, [one(3, (A, None))]),
            Laid(4, 0, []),
        )
        clean_once(files, 3, 4, delete_horizon=False, keep_old_formats=keep_old, segment_bytes=10)
        assert offsets(files) == ([1, 2, 3] if stays else [2, 3])
        assert not any(header.has_delete_horizon for header, _ in entries_of(files))
        assert {header.magic for header, _ in entries_of(files)} == {magic if keep_old else 2}


def test_first_pass_keeps_every_tombstone():
    files = laid(Laid(0, 1, [old(1, 0, 0, (A, None))]), Laid(1, 0, []))
    clean_once(files, 0, 1, delete_horizon=False)
    assert offsets(files) == [0]


def test_old_tombstone_gets_a_delete_horizon_when_converted_to_v2():
    """Kafka 4: the retention then counts from the conversion."""
    files = laid(Laid(0, 1, [old(0, 0, 0, (A, None)), old(1, 1, 1, (B, None), (C, V))]), Laid(3, 0, []))
    clean_once(files, 0, 3, now_ms=NOW)
    assert [(h.magic, h.has_delete_horizon, h.base_timestamp) for h, _ in entries_of(files)] == [
        (2, True, NOW + 500), (2, True, NOW + 500)
    ]  # fmt: skip
    clean_once(files, 3, 3, now_ms=NOW + 500)
    assert rows(files) == [(2, C, V)]


# -- old formats


@each("magic", [0, 1])
@each("codec", [0, 1, 2, 3])
@each("keep_old", [True, False])
def test_old_formats_stay_up_to_3_9_and_are_converted_from_4_0_on(magic: int, codec: int, keep_old: bool):
    pairs = [(A, V), (B, V), (A, W), (None, V), (C, V), (B, W)]
    whole = old(magic, codec, 20, (b"d", V), (b"e", V))
    files = laid(Laid(0, 0, [old(magic, codec, 10, *pairs), whole]), Laid(22, 0, []))
    clean_once(files, 0, 22, keep_old_formats=keep_old)
    assert rows(files) == [(12, A, W), (14, C, V), (15, B, W), (20, b"d", V), (21, b"e", V)]
    found = entries_of(files)
    assert {header.magic for header, _ in found} == {magic if keep_old else 2}
    assert {header.codec for header, _ in found} == {codec}
    assert len(found) == (2 if codec else 5)
    if keep_old:
        assert whole.endswith(found[-1][1])
    if codec and not keep_old:
        assert (found[0][0].base_offset, found[0][0].last_offset) == (12, 15)


def test_wrapper_timestamp_after_records_are_removed():
    """CreateTime: the largest retained timestamp. LogAppendTime: that of the broker, with the bit still set."""
    rows_in = [(0, A, V, 5), (1, B, V, 9), (2, A, W, 7), (3, B, W, 6)]
    for append_time, expected in ((None, 7), (77, 77)):
        files = laid(Laid(0, 0, [wrapper(1, 1, rows_in, append_time=append_time)]), Laid(4, 0, []))
        clean_once(files, 0, 4, keep_old_formats=True)
        ((header, _),) = entries_of(files)
        assert (header.max_timestamp, header.log_append_time) == (expected, append_time is not None)
        assert offsets(files) == [2, 3]


# -- empty batches


def test_last_batch_of_a_known_producer_keeps_its_header():
    known = {"producer_id": 5, "producer_epoch": 1}
    files = laid(
        Laid(0, 0, [
            data(0, (A, V), base_sequence=0, **known),
            data(1, (A, W), (B, V), base_sequence=1, codec=1, **known),
            data(3, (A, X), (B, W), producer_id=6, producer_epoch=0, base_sequence=0),
        ]),
        Laid(5, 0, []),
    )  # fmt: skip
    clean_once(files, 0, 5, active_producers={5: (1, 2), 6: (0, 4)})
    assert [(h.base_offset, h.record_count) for h, _ in entries_of(files)] == [(1, 0), (3, 2)]
    emptied = entries_of(files)[0][0]
    assert (emptied.last_offset, emptied.producer_id, emptied.base_sequence, emptied.last_sequence) == (2, 5, 1, 2)
    again = entries_of(files)
    clean_once(files, 5, 5, active_producers={5: (1, 2), 6: (0, 4)})
    assert entries_of(files) == again
    clean_once(files, 5, 5, active_producers={6: (0, 4)})  # expired
    assert offsets(files) == [3, 4] and len(entries_of(files)) == 1


def test_last_batch_of_the_range_keeps_its_header_from_4_0_on():
    for keeps in (True, False):
        files = laid(Laid(0, 0, [data(0, (A, V)), data(1, (None, V)), data(2, (None, W))]), Laid(3, 0, []))
        clean_once(files, 0, 3, keep_empty_at_end=keeps)
        assert [(h.base_offset, h.record_count) for h, _ in entries_of(files)] == [(0, 1), *([(2, 0)] if keeps else [])]
        # With a later batch above it, it is removed.
        lay(files, [Laid(3, 0, [data(3, (B, V))]), Laid(4, 0, [])])
        clean_once(files, 3, 4, keep_empty_at_end=keeps)
        assert [(h.base_offset, h.record_count) for h, _ in entries_of(files)] == [(0, 1), (3, 1)]


# -- groups and files


def test_segments_are_merged_while_they_fit():
    one = data(0, (A, V))
    size = len(one)
    for limit, expected in ((2 * size, [0, 2, 4]), (3 * size, [0, 3]), (size, [0, 1, 2, 3, 4]), (1 << 30, [0])):
        files = laid(*(Laid(n, 0, [data(n, (b"%d" % n, V))]) for n in range(5)), Laid(5, 0, []))
        clean_once(files, 0, 5, segment_bytes=limit)
        assert bases(files) == [*expected, 5] and offsets(files) == [0, 1, 2, 3, 4]


def test_groups_are_limited_by_index_size_and_offsets():
    far = 2**31
    files = laid(
        Laid(0, 0, [data(0, (A, V))]), Laid(1, 0, [data(1, (B, V))]), Laid(far, 0, [data(far, (C, V))]),
        Laid(far + 1, 0, []), Laid(far + 2, 0, []),
    )  # fmt: skip
    clean_once(files, 0, far + 2)
    assert bases(files) == [0, far, far + 2] and offsets(files) == [0, 1, far]
    for suffix, entry_bytes in ((".index", 8), (".timeindex", 12)):
        files = laid(*(Laid(n, 0, [data(n, (b"%d" % n, V))]) for n in range(4)), Laid(4, 0, []))
        for base in range(4):
            file = files.open(f"{FOLDER}/{base:020d}{suffix}")
            file.write(0, bytes(20 * entry_bytes))
        clean_once(files, 0, 4, segment_index_bytes=40 * entry_bytes)
        assert bases(files) == [0, 2, 4]


def test_group_has_the_file_time_of_its_last_segment():
    files = laid(Laid(0, 111, [data(0, (A, V))]), Laid(1, 222, [data(1, (A, W))]), Laid(2, 0, []))
    clean_once(files, 0, 2)
    assert files.modified_ns(f"{FOLDER}/{0:020d}.log") == 222_000_000


def test_log_without_remaining_records_becomes_an_empty_segment():
    files = laid(Laid(7, 0, [data(7, (None, V))]), Laid(8, 0, [data(8, (None, W))]), Laid(9, 0, []))
    done = clean_once(files, 7, 9)
    assert done.end_offset == 9 and entries_of(files) == [] and bases(files) == [7, 9]


def test_groups_are_yielded_one_by_one_and_leave_other_files_unchanged():
    files = laid(*(Laid(n, 0, [data(n, (A, b"%d" % n))]) for n in range(3)), Laid(3, 0, []))
    before = {name: files.read_bytes(f"{FOLDER}/{name}") for name in files.list(FOLDER)}
    steps = clean(files, task(files, 0, 3, segment_bytes=1))
    seen: list[Group | Cleaned] = []
    for found in steps:
        seen.append(found)
        made = [name for name in files.list(FOLDER) if name.endswith(".cleaned")]
        assert len(made) == 3 * sum(isinstance(group, Group) for group in seen)
        assert {name: files.read_bytes(f"{FOLDER}/{name}") for name in before} == before
    assert [group.old for group in seen[:-1] if isinstance(group, Group)] == [(0,), (1,), (2,)]
    assert isinstance(seen[-1], Cleaned)


def test_stopped_pass_removes_files_of_unfinished_groups():
    big = [data(n, (b"%d" % n, bytes(200_000))) for n in range(20)]
    files = laid(Laid(0, 0, big), Laid(20, 0, []))
    heard: list[int] = []

    class Stop(Exception):
        pass

    def on_progress(size_bytes: int) -> None:
        heard.append(size_bytes)
        if len(heard) == 6:
            assert any(name.endswith(".cleaned") for name in files.list(FOLDER))
            raise Stop

    with pytest.raises(Stop):
        list(clean(files, task(files, 0, 20), on_progress=on_progress))
    assert not any(name.endswith(".cleaned") for name in files.list(FOLDER))
    heard = []
    list(clean(files, task(files, 0, 20), on_progress=lambda size_bytes: heard.append(size_bytes)))
    size = sum(map(len, big))
    # Read twice and written once; less than a MiB at the end is not reported.
    assert 3 * size - (1 << 20) < sum(heard) <= 3 * size
    assert max(heard[:-1]) < 2 << 20


# -- damage


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_damage_is_found_before_the_first_group(magic: int):
    """Even in the last of many segments: a damaged key must not remove the records of another one."""
    sound = bytes(data(3, (A, V))) if magic == 2 else old(magic, 0, 3, (A, V))
    for at in range(8 if magic < 2 else 16, len(sound)):
        damaged = bytearray(sound)
        damaged[at] ^= 1
        files = laid(Laid(0, 0, [data(0, (A, V))]), Laid(3, 0, [sound]), Laid(4, 0, []))
        what = task(files, 0, 4, segment_bytes=1)
        lay(files, [Laid(3, 0, [damaged])])
        names = sorted(files.list(FOLDER))
        with pytest.raises(StorageError, match="at byte 0: "):
            run(files, what)
        assert sorted(files.list(FOLDER)) == names


def test_unreadable_segment_raises():
    files = laid(Laid(0, 0, [data(0, (A, V))]), Laid(1, 0, []))
    what = task(files, 0, 1)
    files.remove(f"{FOLDER}/{0:020d}.log")
    with pytest.raises(StorageError, match="cannot read"):
        list(clean(files, what))


# -- idempotence


@given(
    st.lists(st.tuples(st.sampled_from([None, A, B, C]), st.sampled_from([V, W, None])), min_size=1, max_size=12),
    st.data(),
)
def test_second_pass_changes_nothing(pairs: list, draw: st.DataObject):
    files = SimulatedFiles()
    batches, cuts = [], draw.draw(st.sets(st.integers(0, len(pairs))))
    for number, pair in enumerate(pairs):
        batches.append(Laid(number, 0, [])) if number in cuts or not number else None
        batches[-1] = batches[-1]._replace(batches=[*batches[-1].batches, data(number, pair)])
    lay(files, [*batches, Laid(len(pairs) + 1, 0, [])])
    before = last_values(rows(files))
    for first_dirty in (0, len(pairs), 0):
        clean_once(files, first_dirty, len(pairs) + 1)
        found = entries_of(files)
        assert last_values(rows(files)) == before
        clean_once(files, len(pairs), len(pairs) + 1)
        assert entries_of(files) == found


def test_remaining_records_keep_headers_and_timestamps():
    records = [Record(n, 50 - n, b"%d" % (n % 3), b"v", (batch.Header("h", b"%d" % n),)) for n in range(6)]
    files = laid(Laid(0, 0, [batch.build(records, codec=3)]), Laid(6, 0, []))
    clean_once(files, 0, 6)
    ((header, entry),) = entries_of(files)
    assert list(batch.records(entry)) == records[3:]
    assert (header.base_timestamp, header.max_timestamp, header.last_offset_delta) == (47, 47, 5)
