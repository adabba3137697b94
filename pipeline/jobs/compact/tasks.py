"""Rewrites one group of segments by the offsets of the surviving records, as the cleaner does by its map of keys.

Owns the input of a group (`GroupItem`), the verdict on each of its entries from sorted lists of offsets, and the task.
Does not read keys: entries without survivors are dropped unread, unchanged ones are copied unread. The CRCs were
verified when the offsets were listed.

Memory: eight bytes for each listed record of the group: the last ones of their keys, tombstones, and dropped ones of
the clean part. A group has at most segment.bytes, or is one segment.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ....protocol.records.batch import MAGIC, BatchHeader
from ....storage.compaction.cleaned_transactions import CleanedTransactions
from ....storage.compaction.compaction import Chooser, Clean, clean_group
from ....storage.compaction.rewrite import Verdict, every, none
from ....storage.compaction.swap import Rewritten
from ....storage.errors import StorageError
from ....storage.io.files import DiskFiles, Files
from ....storage.producers.txn_index import AbortedTransaction
from ....storage.segments.segment import file_name
from ..in_place.directory_hold import COMPACTED, own_suffix
from .last_offsets import KEYLESS, TOMBSTONES, blocks, read_settled
from .thinned_batches import Chosen, RunReader


@dataclass(frozen=True, slots=True)
class GroupItem:
    """A group to rewrite: the `number`-th of the partition with number `partition` in the plan.

    `task` is the cleaner's task with these segments only; the first of them is the `first_index`-th of the partition.
    `from_ms`, `aborted` and `left` carry the state of the segments before; `keys` and `settled` are the files of
    `last_offsets`, `clean_records` counts the records below the first dirty offset.
    """

    partition: int
    number: int
    task: Clean
    first_index: int
    from_ms: int
    aborted: tuple[AbortedTransaction, ...]
    left: frozenset[int]
    keys: tuple[str, ...]
    settled: tuple[str, ...]
    clean_records: int

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.task.segments)

    def __str__(self) -> str:
        return f"{self.task.directory}/{file_name(self.task.segments[0].base_offset)}"


class GroupDone(NamedTuple):
    """New segments, complete and fsynced under names that end with `suffix`, and what they keep: the number of records
    without markers, and of tombstones among them. For a group that cannot be rewritten only the problem."""

    new: tuple[Rewritten, ...]
    suffix: str
    records: int
    tombstones: int
    problem: str | None = None


def rewrite_group(item: GroupItem, files: Files | None = None) -> GroupDone:
    """Writes the new segments of a group beside the old ones; damage is returned as the problem. Raises OSError, and
    StorageError for a disk error; then its files are removed, if the disk allows it."""
    files = files or DiskFiles()
    suffix = own_suffix(COMPACTED)
    survivors = OffsetSurvivors(files, item)
    chooser = Chooser(item.task, survivors.verdict, CleanedTransactions(item.aborted, item.left), item.from_ms)
    reader = RunReader(chooser, keep_old=item.task.keep_old_formats)
    try:
        made = clean_group(
            files, item.task, item.task.segments, chooser, suffix=suffix, read=reader.read, choose=reader
        )
    except StorageError as error:
        if isinstance(error.__cause__, OSError):
            raise
        return GroupDone((), suffix, 0, 0, str(error))
    return GroupDone(tuple(made), suffix, survivors.records, survivors.tombstones)


class OffsetSurvivors:
    """The `Survivors` of a group; `records` and `tombstones` count the kept ones after all entries were shown."""

    def __init__(self, files: Files, item: GroupItem) -> None:
        directory, task = item.task.directory, item.task
        indexes = range(item.first_index, item.first_index + len(task.segments))
        settled = read_settled(files, directory, item.settled, indexes)
        keyless, tombstones = list[np.ndarray](), list[np.ndarray]()
        for name in item.keys:
            for kind, found in blocks(files, f"{directory}/{name}", (KEYLESS, TOMBSTONES)):
                (keyless if kind == KEYLESS else tombstones).append(found[0])
        offsets = _sorted([*settled, *keyless])
        goes, stays = np.split(offsets, [np.searchsorted(offsets, task.first_dirty_offset)])
        self._stays, self._goes = _Cursor(stays), _Cursor(goes)
        self._tombstones = _Cursor(_sorted(tombstones))
        self._first_dirty = task.first_dirty_offset
        self.records = stays.size + item.clean_records - goes.size
        self.tombstones = 0

    def verdict(
        self, header: BatchHeader, retains_tombstones: bool, keep_empty: bool, delete_horizon_ms: int | None
    ) -> Verdict:
        """Returns the verdict on an entry, see `storage.compaction.compaction.Survivors`."""
        last = header.last_offset
        stays, goes, tombstones = self._stays.upto(last), self._goes.upto(last), self._tombstones.upto(last)
        records = header.record_count if header.magic == MAGIC or not header.codec else -1
        if not records:
            return Verdict(none, keep_empty)
        if tombstones:
            gone = set(goes)
            kept = set(stays)
            left = [at for at in tombstones if (at in kept if at >= self._first_dirty else at not in gone)]
            if retains_tombstones:
                self.tombstones += len(left)
            else:
                self.records -= len(left)
                stays = sorted(kept.difference(left))
                goes = sorted(gone.union(at for at in left if at < self._first_dirty))
                left = []
            tombstones = left
        horizon_ms = delete_horizon_ms if tombstones else None
        if last < self._first_dirty:
            if not goes:
                return Verdict(every, keep_empty, horizon_ms)
            if len(goes) == records:
                return Verdict(none, keep_empty)
            return Verdict(Chosen(goes, is_complement=True), keep_empty, horizon_ms)
        if header.base_offset >= self._first_dirty and records >= 0:
            if not stays:
                return Verdict(none, keep_empty)
            if len(stays) == records:
                return Verdict(every, keep_empty, horizon_ms)
            return Verdict(Chosen(stays, is_complement=False), keep_empty, horizon_ms)
        first_dirty, staying, going = self._first_dirty, frozenset(stays), frozenset(goes)

        def is_kept(offset: int, key: bytes | None, has_value: bool) -> bool:
            return offset in staying if offset >= first_dirty else offset not in going

        return Verdict(is_kept, keep_empty, horizon_ms)  # the entry may contain the first dirty offset


class _Cursor:
    """A single pass over ascending offsets."""

    def __init__(self, offsets: np.ndarray) -> None:
        self._offsets = array("q", offsets.tobytes())
        self._at = 0

    def upto(self, last: int) -> list[int]:
        """Returns the next offsets, up to `last`."""
        start = self._at
        offsets = self._offsets
        if start == len(offsets) or offsets[start] > last:
            return []
        self._at = end = bisect_right(offsets, last, start)
        return offsets[start:end].tolist()


def _sorted(pieces: Sequence[np.ndarray]) -> np.ndarray:
    offsets = np.concatenate([np.zeros(0, np.int64), *pieces])
    offsets.sort()
    return offsets
