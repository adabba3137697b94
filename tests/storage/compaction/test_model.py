"""Compaction compared with a plain model: lists of records, a dict for the last offsets, and a clock that the test
moves."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import formats
from ottla_testing.storage.compacting import Laid, bases, clean_once, data, entries_of, last_values, lay, old, rows
from ottla_testing.storage.simulated_files import SimulatedFiles

RETENTION_MS = 100
Pair = tuple[bytes | None, bytes | None]
Row = tuple[int, bytes | None, bytes | None]


@dataclass
class Entry:
    """A batch, a message or a wrapper."""

    magic: int
    rows: list[Row]
    horizon_ms: int | None = None


@dataclass
class Part:
    """A segment."""

    base_offset: int
    modified_ms: int = 0
    entries: list[Entry] = field(default_factory=list)


class Model:
    """The log as lists, and the expected result of a pass."""

    def __init__(self, *, keep_old: bool, delete_horizon: bool) -> None:
        self.keep_old, self.delete_horizon = keep_old, delete_horizon
        self.parts = [Part(0)]
        self.next_offset = 0
        self.first_dirty = 0

    def append(self, magic: int, codec: int, pairs: list[Pair], now_ms: int) -> bytes:
        first, self.next_offset = self.next_offset, self.next_offset + len(pairs)
        made = [(first + number, key, value) for number, (key, value) in enumerate(pairs)]
        active = self.parts[-1]
        active.modified_ms = now_ms
        if magic == 2 or codec:
            active.entries.append(Entry(magic, made))
        else:
            active.entries += [Entry(magic, [row]) for row in made]
        return bytes(data(first, *pairs, codec=codec)) if magic == 2 else old(magic, codec, first, *pairs)

    def roll(self, now_ms: int) -> None:
        if self.parts[-1].entries:
            self.parts.append(Part(self.next_offset, now_ms))

    def clean(self, now_ms: int, max_keys: int) -> None:
        *closed, active = self.parts
        last: dict[bytes, int] = {}
        end = active.base_offset
        for row in (row for part in closed for entry in part.entries for row in entry.rows):
            offset, key, _ = row
            if offset >= self.first_dirty and key is not None:
                if key not in last and len(last) == max_keys:
                    end = offset
                    break
                last[key] = offset
        clean = [part for part in closed if part.base_offset < self.first_dirty]
        files_ms = clean[-1].modified_ms - RETENTION_MS if clean else 0
        touched = [part for part in closed if part.base_offset < end]
        for part in touched:
            for entry in part.entries:
                self._filter(entry, last, end, now_ms, part.modified_ms > files_ms)
            part.entries = [entry for entry in part.entries if entry.rows]
        if touched:
            whole = Part(touched[0].base_offset, touched[-1].modified_ms)
            whole.entries = [entry for part in touched for entry in part.entries]
            self.parts = [whole, *self.parts[len(touched) :]]
        self.first_dirty = end

    def _filter(self, entry: Entry, last: dict[bytes, int], end: int, now_ms: int, is_young: bool) -> None:
        retains = is_young
        if entry.magic == 2 and self.delete_horizon:
            retains = entry.horizon_ms is None or now_ms < entry.horizon_ms
        entry.rows = [
            (offset, key, value)
            for offset, key, value in entry.rows
            if offset >= end or (key is not None and offset >= last.get(key, -1) and (value is not None or retains))
        ]
        if not self.keep_old:
            entry.magic = 2
        if entry.magic == 2 and self.delete_horizon and entry.horizon_ms is None:
            entry.horizon_ms = now_ms + RETENTION_MS if any(value is None for _, _, value in entry.rows) else None


PAIR = st.tuples(st.sampled_from([None, b"a", b"b", b"c", b"d"]), st.sampled_from([b"v", b"w", None]))
APPEND = st.tuples(
    st.just("append"),
    st.sampled_from([2, 2, 2, 1, 0]),
    st.sampled_from([0, 0, 1]),
    st.lists(PAIR, min_size=1, max_size=4),
)
CLEAN = st.tuples(st.just("clean"), st.sampled_from([1, 2, 3, 100]))
STEP = st.one_of(APPEND, APPEND, st.just(("roll",)), CLEAN)


@pytest.mark.parametrize(("keep_old", "delete_horizon"), [(False, True), (True, True), (True, False)])
@given(st.lists(st.tuples(STEP, st.integers(0, 60)), max_size=40))
def test_each_pass_equals_the_model(keep_old: bool, delete_horizon: bool, steps: list) -> None:
    model = Model(keep_old=keep_old, delete_horizon=delete_horizon)
    files, now_ms = SimulatedFiles(), 1000
    lay(files, [Laid(0, 0, [])])
    everything: list[Row] = []
    for (kind, *arguments), passed_ms in steps:
        now_ms += passed_ms
        if kind == "append":
            magic, codec, pairs = arguments
            everything += [(model.next_offset + number, *pair) for number, pair in enumerate(pairs)]
            active = model.parts[-1].base_offset
            stored = [entry for _, entry in entries_of(files, active)]
            added = model.append(magic, codec, pairs, now_ms)
            lay(files, [Laid(active, now_ms, [*stored, added])])
        elif kind == "roll":
            model.roll(now_ms)
            if model.parts[-1].base_offset not in bases(files):
                lay(files, [Laid(model.parts[-1].base_offset, now_ms, [])])
        else:
            (max_keys,) = arguments
            end = model.parts[-1].base_offset
            if end == 0:
                continue
            active = entries_of(files, end)
            done = clean_once(
                files, model.first_dirty, end, now_ms=now_ms, delete_retention_ms=RETENTION_MS,
                keep_old_formats=keep_old, delete_horizon=delete_horizon,
                dedupe_buffer_bytes=24 * int(max_keys / 0.9 + 1),
            )  # fmt: skip
            model.clean(now_ms, max_keys)
            assert done.end_offset == model.first_dirty and entries_of(files, end) == active
            check(files, model)
        # A consumer that reads from the beginning gets the same last values, at any time.
        assert last_values(rows(files)) == last_values(everything)
        assert set(rows(files)) <= set(everything)


def check(files: SimulatedFiles, model: Model) -> None:
    assert bases(files) == [part.base_offset for part in model.parts]
    for part in model.parts:
        found = [
            Entry(
                header.magic,
                [(record.offset, record.key, record.value) for record in formats.records(entry)],
                header.base_timestamp if header.has_delete_horizon else None,
            )
            for header, entry in entries_of(files, part.base_offset)
        ]
        assert found == part.entries
        assert files.modified_ns(f"/data/orders-0/{part.base_offset:020d}.log") == part.modified_ms * 1_000_000
