"""Compaction of transactions: aborted records are removed, markers stay as long as they are needed, and `.txnindex`
follows."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from ottla.protocol.records import batch
from ottla.storage.errors import StorageError
from ottla_testing.storage.batches import FOLDER
from ottla_testing.storage.compacting import Laid, bases, clean_once, data, entries_of, last_values, lay, marker, rows
from ottla_testing.storage.simulated_files import SimulatedFiles

A, B, C = b"a", b"b", b"c"
V, W = b"v", b"w"
NOW = 10_000


def aborted(producer: int, first: int, marker_offset: int) -> bytes:
    return struct.pack(">hqqqq", 0, producer, first, marker_offset, marker_offset + 1)


def part(first: int, producer: int, *pairs: tuple[bytes | None, bytes | None], **more: int) -> bytes:
    """A batch of a transaction."""
    chosen = {"producer_epoch": 0, "base_sequence": 0} | more
    return bytes(data(first, *pairs, producer_id=producer, transactional=True, **chosen))


def index_of(files: SimulatedFiles, base: int = 0) -> bytes:
    path = f"{FOLDER}/{base:020d}.txnindex"
    return files.read_bytes(path) if files.exists(path) else b""


def shown(files: SimulatedFiles) -> list[tuple[int, int, bool]]:
    """Returns (base offset, records, whether it is a marker with a horizon) of each batch."""
    return [(h.base_offset, h.record_count, h.is_control and h.has_delete_horizon) for h, _ in entries_of(files)]


def test_aborted_records_are_removed_and_their_keys_ignored():
    files = SimulatedFiles()
    lay(
        files,
        [
            Laid(0, 0, [data(0, (A, V)), part(1, 5, (A, W), (B, V)), data(3, (C, V)), marker(4, 5, commit=False)]),
            Laid(5, 0, []),
        ],
        {0: [aborted(5, 1, 4)]},
    )
    clean_once(files, 0, 5)
    assert rows(files) == [(0, A, V), (3, C, V)]
    # The marker stays, and so does the entry: a reader may be inside the transaction.
    assert shown(files) == [(0, 1, False), (3, 1, False), (4, 1, False)] and index_of(files) == aborted(5, 1, 4)


def test_abort_marker_is_removed_after_its_delete_horizon():
    files = SimulatedFiles()
    lay(files, [Laid(0, 0, [part(0, 5, (A, V)), marker(1, 5, commit=False)]), Laid(2, 0, [])], {0: [aborted(5, 0, 1)]})
    clean_once(files, 0, 2, now_ms=NOW)
    assert shown(files) == [(1, 1, False)] and index_of(files) == aborted(5, 0, 1)
    clean_once(files, 2, 2, now_ms=NOW + 10)
    assert shown(files) == [(1, 1, True)] and index_of(files) == b""
    clean_once(files, 2, 2, now_ms=NOW + 509)
    assert shown(files) == [(1, 1, True)]
    clean_once(files, 2, 2, now_ms=NOW + 510)
    assert shown(files) == []


def test_commit_marker_stays_as_long_as_a_record_of_its_transaction():
    files = SimulatedFiles()
    lay(files, [Laid(0, 0, [part(0, 5, (A, V)), marker(1, 5, commit=True)]), Laid(2, 0, [])])
    for _ in range(3):
        clean_once(files, 0, 2, now_ms=NOW)
        assert shown(files) == [(0, 1, False), (1, 1, False)]
    lay(files, [Laid(2, 0, [data(2, (A, W))]), Laid(3, 0, [])])
    clean_once(files, 2, 3, now_ms=NOW)
    assert shown(files) == [(1, 1, False), (2, 1, False)]
    clean_once(files, 3, 3, now_ms=NOW)
    assert shown(files) == [(1, 1, True), (2, 1, False)]
    clean_once(files, 3, 3, now_ms=NOW + 500)
    assert shown(files) == [(2, 1, False)]


def test_markers_expire_by_file_times_before_3_1():
    for time_ms, stays in ((1500, False), (1501, True)):
        files = SimulatedFiles()
        lay(
            files,
            [
                Laid(0, time_ms, [marker(0, 5, commit=True), marker(1, 6, commit=False)]),
                Laid(2, 2000, [data(2, (A, V))]),
                Laid(3, 9000, [marker(3, 5, commit=True)]),
                Laid(4, 0, []),
            ],
        )
        clean_once(files, 3, 4, delete_horizon=False)
        assert [row[0] for row in shown(files)] == ([0, 1, 2, 3] if stays else [2, 3])
        assert not any(header.has_delete_horizon for header, _ in entries_of(files))


def test_marker_of_a_known_producer_keeps_its_header():
    """Its epoch fences zombies; if the producer has records, its last batch has the epoch."""
    files = SimulatedFiles()
    lay(files, [Laid(0, 0, [marker(0, 5, commit=True, epoch=3), marker(1, 6, commit=True)]), Laid(2, 0, [])])
    for time in (0, 500):
        clean_once(files, 0, 2, now_ms=NOW + time, active_producers={5: (3, -1), 6: (0, 7)})
    assert shown(files) == [(0, 0, False)]
    header = entries_of(files)[0][0]
    assert header.is_control and (header.producer_id, header.producer_epoch) == (5, 3)
    clean_once(files, 2, 2, active_producers={5: (3, -1)})
    assert shown(files) == [(0, 0, False)]
    clean_once(files, 2, 2, active_producers={5: (4, -1)})
    assert shown(files) == []


def test_marker_of_an_emptied_batch_stays():
    files = SimulatedFiles()
    lay(files, [Laid(0, 0, [part(0, 5, (A, V)), marker(1, 5, commit=False)]), Laid(2, 0, [])], {0: [aborted(5, 0, 1)]})
    for _ in range(3):
        clean_once(files, 0, 2, active_producers={5: (0, 0)})
        assert shown(files) == [(0, 0, False), (1, 1, False)] and index_of(files) == aborted(5, 0, 1)


@pytest.mark.parametrize("segment_bytes", [1, 1 << 30])
def test_transaction_over_many_segments(segment_bytes: int):
    """The entry is in the segment of the marker, also if that is not cleaned."""
    files = SimulatedFiles()
    lay(
        files,
        [
            Laid(0, 0, [part(0, 5, (A, V)), part(1, 6, (A, V))]),
            Laid(2, 0, [part(2, 5, (B, V)), part(3, 6, (B, V))]),
            Laid(4, 0, [marker(4, 5, commit=False), data(5, (C, V))]),
            Laid(6, 0, [marker(6, 6, commit=False)]),
        ],
        {4: [aborted(5, 0, 4)], 6: [aborted(6, 1, 6)]},
    )
    clean_once(files, 0, 6, segment_bytes=segment_bytes)
    assert rows(files) == [(5, C, V)]
    home = 4 if segment_bytes == 1 else 0
    assert {base: index_of(files, base) for base in bases(files) if index_of(files, base)} == {
        home: aborted(5, 0, 4), 6: aborted(6, 1, 6)
    }  # fmt: skip


def test_index_entry_without_a_marker_hides_no_records():
    """The marker is gone, the entry is not: later records of the producer were not aborted."""
    files = SimulatedFiles()
    lay(
        files,
        [Laid(0, 0, [data(2, (C, V)), part(5, 5, (A, V)), marker(6, 5, commit=True)]), Laid(7, 0, [])],
        {0: [aborted(5, 0, 1), b"cut"]},
    )
    clean_once(files, 0, 7)
    assert rows(files) == [(2, C, V), (5, A, V)]


def test_control_records_of_unknown_type_stay():
    files = SimulatedFiles()
    leader_change = marker(0, -1, commit=True, kind=2)
    lay(files, [Laid(0, 0, [leader_change]), Laid(1, 0, [])])
    for _ in range(3):
        clean_once(files, 0, 1, now_ms=1 << 50)
        assert shown(files) == [(0, 1, False)]


class Writer:
    """Writes random transactions of a few producers, and records of one without transactions."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.offset = 0
        self.open: dict[int, int] = {}  # producer and first offset
        self.producers: dict[int, tuple[int, int]] = {}
        self.index: dict[int, list[bytes]] = {}

    def segment(self, batches: int, *, closing: bool) -> Laid:
        base, made = self.offset, []
        for _ in range(batches):
            made.append(self._batch(base))
        while closing and self.open:
            made.append(self._end(base, next(iter(self.open))))
        return Laid(base, 0, made)

    def _batch(self, base: int) -> bytes | bytearray:
        producer = self.pick.randrange(4)
        if producer in self.open and self.pick.random() < 0.3:
            return self._end(base, producer)
        pairs = [
            (b"k%d" % self.pick.randrange(6), self.pick.choice([None, b"%d" % self.offset, b"%d." % self.offset]))
            for _ in range(self.pick.randrange(1, 4))
        ]
        first, self.offset = self.offset, self.offset + len(pairs)
        if producer == 3:
            return data(first, *pairs)
        self.open.setdefault(producer, first)
        self.producers[producer] = (0, self.offset - 1)
        return part(first, producer, *pairs)

    def _end(self, base: int, producer: int) -> bytearray:
        first = self.open.pop(producer)
        offset, self.offset = self.offset, self.offset + 1
        commit = self.pick.random() < 0.6
        if not commit:
            self.index.setdefault(base, []).append(aborted(producer, first, offset))
        return marker(offset, producer, commit=commit)


def committed(files: SimulatedFiles) -> dict[bytes, bytes]:
    """Returns the last committed value of each key, according to the existing transaction indexes."""
    spans = []
    for base in bases(files):
        content = index_of(files, base)
        spans += [struct.unpack_from(">hqqqq", content, at)[1:4] for at in range(0, len(content), 34)]
    found = []
    for header, entry in entries_of(files):
        is_aborted = header.is_transactional and any(
            producer == header.producer_id and first <= header.base_offset <= last for producer, first, last in spans
        )
        if not header.is_control and not is_aborted:
            found += [(record.offset, record.key, record.value) for record in batch.records(entry)]
    return last_values(found)


def test_committed_records_are_the_same_after_any_passes(scaled: Callable[[int], int]):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    for number in range(scaled(60)):
        writer = Writer(seed + number)
        files = SimulatedFiles()
        laid = [writer.segment(writer.pick.randrange(1, 12), closing=n == 3) for n in range(4)]
        laid.append(writer.segment(2, closing=True))
        lay(files, laid, writer.index)
        wanted = committed(files)
        end, dirty = laid[-1].base_offset, 0
        active = entries_of(files, end)
        for turn in range(6):
            done = clean_once(
                files, dirty, end, now_ms=NOW + 200 * turn, active_producers=writer.producers,
                segment_bytes=writer.pick.choice([1, 300, 1 << 30]), keep_empty_at_end=writer.pick.random() < 0.5,
                dedupe_buffer_bytes=24 * writer.pick.choice([3, 5, 100]),
                delete_horizon=writer.pick.random() < 0.9,
            )  # fmt: skip
            dirty = done.end_offset if done.end_offset < end else writer.pick.choice([0, end])
            assert committed(files) == wanted
            assert entries_of(files, end) == active
        for producer, (_, last_offset) in writer.producers.items():
            ends = [header.last_offset for header, _ in entries_of(files) if header.producer_id == producer]
            assert last_offset in ends


def test_repeated_passes_remove_all_aborted_records_and_markers(scaled: Callable[[int], int]):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    for number in range(scaled(20)):
        writer = Writer(seed + number)
        files = SimulatedFiles()
        laid = [writer.segment(10, closing=True), Laid(writer.offset, 0, [])]
        lay(files, laid, writer.index)
        wanted = committed(files)
        for turn in range(4):
            clean_once(files, 0, writer.offset, now_ms=NOW + 500 * turn)
        assert committed(files) == wanted and index_of(files) == b""
        left = [header for header, _ in entries_of(files)]
        assert all(header.record_count for header in left)
        markers = {header.producer_id for header in left if header.is_control}
        assert markers <= {header.producer_id for header in left if not header.is_control}


def test_damaged_transaction_index_is_refused():
    """Transactions missing from it must not be taken for committed."""
    for damage in (struct.pack(">hqqqq", 1, 5, 0, 1, 2), aborted(5, 2, 1), aborted(5, 0, 1) * 2):
        files = SimulatedFiles()
        lay(files, [Laid(0, 0, [part(0, 5, (A, V)), marker(1, 5, commit=False)]), Laid(2, 0, [])], {0: [damage]})
        names = sorted(files.list(FOLDER))
        with pytest.raises(StorageError, match="a transaction index"):
            clean_once(files, 0, 2)
        assert sorted(files.list(FOLDER)) == names and rows(files) == [(0, A, V)]
