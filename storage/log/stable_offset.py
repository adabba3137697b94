"""Transactions as seen by readers of one log (KIP-98): the last stable offset, and the aborted transactions.

Tracks the first offset of the open transactions, and the contents of the `.txnindex` files, read when first needed.
`store.py` has the producer state, `txn_index.py` the file format. A log without transactions pays two comparisons for
each read, and the test of an attribute bit for each append.
"""

from __future__ import annotations

import contextlib
import heapq
import os
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from ...protocol.records.batch import BatchHeader
from ..errors import StorageError, storage_errors
from ..format.file_names import offsets_in
from ..io.files import Files, write_atomically
from ..producers import txn_index
from ..producers.producer_state import Producer
from ..producers.txn_index import AbortedTransaction
from ..segments.segment import file_name

if TYPE_CHECKING:
    from ..segments.read_range import Run
    from .recovery import Recovered
    from .results import LogState

_last_offset = attrgetter("last_offset")
_base_offset = attrgetter("base_offset")


class Transactions:
    """The transactions of one log. Raises StorageError only."""

    __slots__ = (
        "_bases",
        "_directory",
        "_ended",
        "_files",
        "_first",
        "_has_read",
        "_heap",
        "_indexes",
        "_load",
        "_of",
        "_open",
        "_producers",
    )

    def __init__(self, files: Files, directory: str, recovered: Recovered, load: Callable[[], dict[int, Producer]]):
        """Prepares the transactions of a folder; reads nothing. `load` loads the producer state.

        After a clean shutdown each log that Kafka 0.11 or later or Ottla wrote with producers has a snapshot of them. A
        log without snapshots and `.txnindex` files is taken for one without transactions, as Kafka does: reading all
        headers could take long in a large log of Kafka 0.10.
        """
        self._files = files
        self._directory = directory
        self._producers = recovered.producers
        self._load = load
        self._has_read = bool(recovered.unsynced)  # whether segments were read, which may have transactions
        self._of: dict[int, Producer] | None = None  # the producers from which the following fields were computed
        self._open: dict[int, int] = {}  # first offset by producer
        self._heap: list[tuple[int, int]] = []  # (first offset, producer) of these, and of some that have ended
        self._first = -1  # the smallest first offset
        self._ended: list[tuple[int, int]] = []  # (marker, first offset) of markers that may not be visible yet
        # base offsets of segments with a file, rising; None until the folder was listed
        self._bases: list[int] | None = None
        self._indexes: dict[int, list[AbortedTransaction]] = {}

    # -- the last stable offset

    def stable_offset(self, high_watermark: int, log_start_offset: int) -> int:
        """Returns the first offset of an undecided transaction, or of one whose marker is not visible to consumers yet;
        the high watermark if there is none. Never below the log start."""
        known = self._producers.known
        if known is None or known is not self._of:
            if known is None and not (self._has_read or self._producers.snapshots or self._with_files()):
                return high_watermark
            self.know()
        stable = high_watermark
        if 0 <= self._first < stable:
            stable = max(self._first, log_start_offset)
        if ended := self._ended:
            _drop_visible(ended, high_watermark)
            for _, first_offset in ended:  # as many as one sync covers
                if first_offset < stable:
                    stable = max(first_offset, log_start_offset)
        return stable

    def know(self) -> None:
        """Computes the open transactions from the producer state."""
        known = self._producers.known
        if known is None or known is not self._of:
            self._take(self._load() if known is None else known)

    def note(self, header: BatchHeader, after: Producer, high_watermark: int) -> None:
        """Applies an appended batch of a transaction; `after` is the producer's state entry after it. Call `know`
        before the producer state changes."""
        first_offset = after.transaction_first_offset
        begun = self._open.get(header.producer_id, -1)
        if begun == first_offset:
            return
        if begun >= 0:
            _drop_visible(self._ended, high_watermark)
            self._ended.append((header.last_offset, begun))
            del self._open[header.producer_id]
        if first_offset >= 0:
            self._open[header.producer_id] = first_offset
            heapq.heappush(self._heap, (first_offset, header.producer_id))
        self._settle()

    def _take(self, producers: dict[int, Producer]) -> None:
        self._open = {
            producer_id: known.transaction_first_offset
            for producer_id, known in producers.items()
            if known.transaction_first_offset >= 0
        }
        self._heap = [(first_offset, producer_id) for producer_id, first_offset in self._open.items()]
        heapq.heapify(self._heap)
        self._of = producers
        self._settle()

    def _settle(self) -> None:
        heap = self._heap
        while heap and self._open.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        self._first = heap[0][0] if heap else -1

    def opened(self) -> dict[int, int]:
        """Returns the first offset of each open transaction, by producer id."""
        self.know()
        return dict(self._open)

    def oldest_besides(self, producer_id: int) -> int:
        """Returns the producer, other than this one, whose open transaction began first; -1 if there is none."""
        self.know()
        heap = self._heap
        own: list[tuple[int, int]] = []
        while heap and (heap[0][1] == producer_id or self._open.get(heap[0][1]) != heap[0][0]):
            entry = heapq.heappop(heap)
            if self._open.get(entry[1]) == entry[0]:
                own.append(entry)
        found = heap[0][1] if heap else -1
        for entry in own:
            heapq.heappush(heap, entry)
        return found

    # -- aborted transactions

    def aborted(self, log: LogState, run: Run, offset: int) -> list[AbortedTransaction]:
        """Returns the aborted transactions that may have records in a run read from an offset on, in the order of their
        markers, which may be after the run.

        As in Kafka the run counts up to the next entry of the offset index. The search ends with the first transaction
        at whose end all offsets below were decided: transactions aborted later began later.
        """
        segments, base_offset = log.segments, run.segment.base_offset
        found: list[AbortedTransaction] = []
        bases = self._with_files()
        while bases and bases[0] < segments[0].base_offset:  # deleted by retention
            self._indexes.pop(bases.pop(0), None)
        first = bisect_left(bases, base_offset)
        if first == len(bases):
            return found
        upper_offset = run.segment.indexed_offset_from(run.end)
        if upper_offset is None:
            number = bisect_right(segments, base_offset, key=_base_offset)
            upper_offset = segments[number].base_offset if number < len(segments) else log.log_end_offset
        for base in bases[first:]:
            entries = self._entries(base, log)
            for entry in entries[bisect_left(entries, offset, key=_last_offset) :]:
                if entry.first_offset < upper_offset:
                    found.append(entry)
                if entry.last_stable_offset >= upper_offset:
                    return found
        return found

    def append(self, base_offset: int, entries: Sequence[AbortedTransaction]) -> str:
        """Appends entries to a segment's file, without a sync; returns the file's name."""
        name = file_name(base_offset, txn_index.SUFFIX)
        with storage_errors(f"cannot write {name} of {self._directory}"):
            txn_index.append(self._files, os.path.join(self._directory, name), entries)
        if self._bases is not None and base_offset not in self._bases:
            insort(self._bases, base_offset)
        # otherwise each abort would cause the file to be read again
        if (known := self._indexes.get(base_offset)) is not None:
            known.extend(entries)
        return name

    def index_bytes(self, base_offset: int) -> int:
        """Returns the size of a segment's file in bytes, 0 if there is none."""
        path = os.path.join(self._directory, file_name(base_offset, txn_index.SUFFIX))
        with storage_errors(f"cannot read {path}"), contextlib.suppress(FileNotFoundError):
            return self._files.size(path)
        return 0

    def undo_append(self, base_offset: int, size_bytes: int) -> None:
        """Cuts a segment's file to its size before the entry of a marker that could not be written."""
        if self.index_bytes(base_offset) <= size_bytes:  # no descriptor was free for the append
            return
        path = os.path.join(self._directory, file_name(base_offset, txn_index.SUFFIX))
        with storage_errors(f"cannot write {path}"), contextlib.suppress(FileNotFoundError):
            txn_index.cut(self._files, path, size_bytes)
        self._indexes.pop(base_offset, None)

    def forget_files(self) -> None:
        """Drops the cached files after segments were replaced; they are read again."""
        self._bases = None
        self._indexes.clear()

    def _with_files(self) -> list[int]:
        if self._bases is None:
            with storage_errors(f"cannot read {self._directory}"):
                self._bases = offsets_in(self._files.list(self._directory), txn_index.SUFFIX)
        return self._bases

    def _entries(self, base_offset: int, log: LogState) -> list[AbortedTransaction]:
        """Returns the entries of a segment's file. A damaged file is rebuilt from the log."""
        entries = self._indexes.get(base_offset)
        if entries is not None:
            return entries
        path = os.path.join(self._directory, file_name(base_offset, txn_index.SUFFIX))
        try:
            entries = txn_index.parse(bytes(self._files.read_bytes(path)))
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error}") from error
        except StorageError:
            entries = list(self._rebuilt_entries(base_offset, log))
            with storage_errors(f"cannot write {path}"):
                write_atomically(self._files, path, txn_index.dump(entries))
        self._indexes[base_offset] = entries
        return entries

    def _rebuilt_entries(self, base_offset: int, log: LogState) -> Iterator[AbortedTransaction]:
        start, rules = log.log_start_offset, log.config.producer_rules
        before = [segment for segment in log.segments if segment.base_offset < base_offset]
        producers = self._producers.at(base_offset, before, start, rules)
        for segment in log.segments[len(before) : len(before) + 1]:
            for position, header in segment.batches():
                data = segment.read(position, header.size_bytes) if header.is_control else b""
                if (entry := txn_index.apply(data, 0, header, producers, start, rules)) is not None:
                    yield entry


def _drop_visible(ended: list[tuple[int, int]], high_watermark: int) -> None:
    """Removes the transactions whose markers are visible to consumers. A list, since a deque takes 700 bytes in each
    log."""
    shown = 0
    while shown < len(ended) and ended[shown][0] < high_watermark:
        shown += 1
    del ended[:shown]
