"""Transactions as readers of one log see them (KIP-98): the last stable offset, and which transactions were aborted.

Owns the open transactions of a log as one number, and what its `.txnindex` files say, read when first asked for. What
is known of each producer is `store.py`'s, what the files say `txn_index.py`'s. A log whose producers use no
transactions pays two comparisons for each read, and a bit of the attributes for each append.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from ...protocol.records.batch import BatchHeader
from ..errors import StorageError
from ..io.files import Files, write_atomically
from ..producers import txn_index
from ..producers.producer_state import Producer, advance
from ..producers.txn_index import AbortedTransaction
from ..segments.segment import file_name

if TYPE_CHECKING:
    from ..segments.read_range import Run
    from .log_state import LogState
    from .recovery import Recovered

_FILE = re.compile(r"(\d{20})" + re.escape(txn_index.SUFFIX))
_last_offset = attrgetter("last_offset")
_base_offset = attrgetter("base_offset")


class Transactions:
    """See the module. Raises StorageError and nothing else."""

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
        """The transactions of a folder; reads nothing. `load` makes the producers known.

        After a clean stop each log that Kafka 0.11 or later or Ottla wrote with producers has a snapshot of them. One
        that has none, and no `.txnindex`, is taken for a log without transactions, as Kafka does: to look would be to
        read all headers of what may be a large log of Kafka 0.10.
        """
        self._files = files
        self._directory = directory
        self._producers = recovered.producers
        self._load = load
        self._has_read = bool(recovered.unsynced)  # whether segments were, which may have told of transactions
        self._of: dict[int, Producer] | None = None  # the producers that what follows is of
        self._open: dict[int, int] = {}  # first offset by producer
        self._heap: list[tuple[int, int]] = []  # (first offset, producer) of these, and of some that have ended
        self._first = -1  # the smallest first offset
        self._ended: list[tuple[int, int]] = []  # (marker, first offset), of markers that may not be shown yet
        self._bases: list[int] | None = None  # the segments that have a file, rising; None until it was looked
        self._indexes: dict[int, list[AbortedTransaction]] = {}

    # -- the last stable offset

    def stable_offset(self, high_watermark: int, log_start_offset: int) -> int:
        """The first offset that belongs to a transaction of which it is open how it ends, or whose marker consumers do
        not see yet; the high watermark if there is none. Never below the log start."""
        known = self._producers.known
        if known is None or known is not self._of:
            if known is None and not (self._has_read or self._producers.snapshots or self._with_files()):
                return high_watermark
            self.know()
        stable = high_watermark
        if 0 <= self._first < stable:
            stable = max(self._first, log_start_offset)
        if ended := self._ended:
            _drop_shown(ended, high_watermark)
            for _, first_offset in ended:  # as many as one sync covers
                if first_offset < stable:
                    stable = max(first_offset, log_start_offset)
        return stable

    def know(self) -> None:
        """Takes the open transactions from what is known of the producers."""
        known = self._producers.known
        if known is None or known is not self._of:
            self._take(self._load() if known is None else known)

    def note(self, header: BatchHeader, after: Producer, high_watermark: int) -> None:
        """Takes in a batch of a transaction that was appended, with its producer `after` it. What was known of
        producers before it is to be taken before it is changed, by `know`."""
        first_offset = after.transaction_first_offset
        begun = self._open.get(header.producer_id, -1)
        if begun == first_offset:
            return
        if begun >= 0:
            _drop_shown(self._ended, high_watermark)
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
        """The first offset of each open transaction, by producer id."""
        self.know()
        return dict(self._open)

    def oldest_besides(self, producer_id: int) -> int:
        """The producer, but this one, whose open transaction began first; -1 if there is none."""
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

    # -- what was aborted

    def aborted(self, log: LogState, run: Run, offset: int) -> list[AbortedTransaction]:
        """The aborted transactions of which something may lie in a run that is read from an offset on, in the order of
        their markers; these may lie behind the run.

        As in Kafka the run counts up to the next entry of the offset index. The look ends with the first transaction at
        whose end all below that was decided: what was aborted later began later.
        """
        segments, base_offset = log.segments, run.segment.base_offset
        found: list[AbortedTransaction] = []
        bases = self._with_files()
        while bases and bases[0] < segments[0].base_offset:  # retention took it
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
        """Writes entries behind those of a segment, not synced; the file's name."""
        name = file_name(base_offset, txn_index.SUFFIX)
        try:
            txn_index.append(self._files, os.path.join(self._directory, name), entries)
        except OSError as error:
            raise StorageError(f"cannot write {name} of {self._directory}: {error}") from error
        if self._bases is not None and base_offset not in self._bases:
            insort(self._bases, base_offset)
        if (known := self._indexes.get(base_offset)) is not None:  # else each abort would have it read anew
            known.extend(entries)
        return name

    def index_bytes(self, base_offset: int) -> int:
        """The size of a segment's file, 0 if there is none."""
        path = os.path.join(self._directory, file_name(base_offset, txn_index.SUFFIX))
        try:
            return self._files.size(path)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error}") from error

    def take_back(self, base_offset: int, size_bytes: int) -> None:
        """Cuts a segment's file to the size that it had before what was added for a marker that was not written."""
        if self.index_bytes(base_offset) <= size_bytes:  # as where no descriptor was free for it
            return
        path = os.path.join(self._directory, file_name(base_offset, txn_index.SUFFIX))
        try:
            with contextlib.suppress(FileNotFoundError):
                txn_index.cut(self._files, path, size_bytes)
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error}") from error
        self._indexes.pop(base_offset, None)

    def forget_files(self) -> None:
        """To be called when files of segments were replaced: they are read anew."""
        self._bases = None
        self._indexes.clear()

    def _with_files(self) -> list[int]:
        if self._bases is None:
            try:
                names = self._files.list(self._directory)
            except OSError as error:
                raise StorageError(f"cannot read {self._directory}: {error}") from error
            self._bases = sorted(int(match[1]) for match in map(_FILE.fullmatch, names) if match)
        return self._bases

    def _entries(self, base_offset: int, log: LogState) -> list[AbortedTransaction]:
        """What the file of a segment says; of a damaged file what the log says, and so does the file then."""
        entries = self._indexes.get(base_offset)
        if entries is not None:
            return entries
        path = os.path.join(self._directory, file_name(base_offset, txn_index.SUFFIX))
        try:
            entries = txn_index.parse(bytes(self._files.read_bytes(path)))
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error}") from error
        except StorageError:
            entries = list(self._indexed_anew(base_offset, log))
            try:
                write_atomically(self._files, path, txn_index.dump(entries))
            except OSError as error:
                raise StorageError(f"cannot write {path}: {error}") from error
        self._indexes[base_offset] = entries
        return entries

    def _indexed_anew(self, base_offset: int, log: LogState) -> Iterator[AbortedTransaction]:
        start, rules = log.log_start_offset, log.config.producer_rules
        before = [segment for segment in log.segments if segment.base_offset < base_offset]
        producers = self._producers.at(base_offset, before, start, rules)
        for segment in log.segments[len(before) : len(before) + 1]:
            for position, header in segment.batches():
                data = segment.read(position, header.size_bytes) if header.is_control else b""
                marker = txn_index.read_marker(data, 0, header)
                if marker is not None and (entry := txn_index.aborted(marker, header, producers)) is not None:
                    yield entry
                epoch = marker.coordinator_epoch if marker is not None else -1
                advance(producers, header, start, rules, epoch)


def _drop_shown(ended: list[tuple[int, int]], high_watermark: int) -> None:
    """Removes those whose markers consumers see. A list: a deque takes 700 bytes, and each log has one."""
    shown = 0
    while shown < len(ended) and ended[shown][0] < high_watermark:
        shown += 1
    del ended[:shown]
