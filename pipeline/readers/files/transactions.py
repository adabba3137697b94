"""Transactions of a log in files: the open ones at an offset, and the aborted ones.

Owns reading producer snapshots, `.txnindex` files and, if these do not suffice, the headers of the log. Raises
ReadError; `Gone` if a needed file disappears meanwhile, so that the caller starts over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ....protocol.records.batch import BatchHeader
from ....storage.errors import StorageError
from ....storage.format.file_names import offsets_in
from ....storage.producers import snapshot, txn_index
from ...backend import ReadError
from . import broker_lock, catalog, indexes
from .headers import Bools, Int64s, Table
from .windows import Gone, Hops, LogFile, file_bytes, retried


class Aborted(NamedTuple):
    """Aborted transactions: producer id, first offset, and marker offset of each."""

    producer_ids: Int64s
    firsts: Int64s
    lasts: Int64s

    def hits(self, table: Table) -> Bools:
        """Returns which entries belong to one of them."""
        found = np.zeros(len(table), np.bool_)
        candidates = table.transactional & ~table.control
        if not len(self.firsts) or not candidates.any():
            return found
        bases, producers = table.base_offsets, table.producer_ids
        near = (self.lasts >= bases.min()) & (self.firsts <= bases.max())
        for producer_id, first, last in zip(
            self.producer_ids[near].tolist(), self.firsts[near].tolist(), self.lasts[near].tolist(), strict=True
        ):
            found |= candidates & (producers == producer_id) & (bases >= first) & (bases <= last)
        return found


class Event(NamedTuple):
    """A batch that begins or continues a transaction, or a control batch that ends one."""

    producer_id: int
    base_offset: int
    position: int
    size: int
    is_control: bool


def events(file: LogFile, base: int, position: int, start: int, end: int) -> Iterator[Event]:
    """Yields the transactional batches of a segment from a position on, between two offsets. Skips damage that hides
    batches by the offset index, as the record reader does, which reports it."""
    while True:
        hops = Hops(file, position)
        for table in hops:
            bases = table.base_offsets
            shown = (table.transactional | table.control) & (table.producer_ids >= 0) & (bases >= start) & (bases < end)
            for index in np.flatnonzero(shown).tolist():
                yield Event(
                    int(table.producer_ids[index]),
                    int(bases[index]),
                    int(table.positions[index]),
                    int(table.sizes[index]),
                    bool(table.control[index]),
                )
            if int(table.last_offsets[-1]) >= end - 1:
                return
        again = None
        if hops.stop.problem is not None:
            again = indexes.after_damage(file, base, hops.stop.position)
        if again is None:
            return
        position = again.position


def follow(folder: str, open_at: dict[int, int], start: int, end: int) -> None:
    """Applies the batches between two offsets to the open transactions (first offset by producer id). Raises `Gone`."""
    for _, event in _events(folder, start, end):
        if event.is_control:
            open_at.pop(event.producer_id, None)
        elif event.base_offset >= start:
            open_at.setdefault(event.producer_id, event.base_offset)


def open_at(folder: str, offset: int, log_start: int) -> dict[int, int]:
    """Returns the open transactions at an offset: the first offset of each, by producer id. Raises `Gone`. Starts from
    the newest valid producer snapshot at or below the offset and applies the batches after it."""
    begin, found = log_start, dict[int, int]()
    for taken in reversed(offsets_in(catalog.names(folder), snapshot.SUFFIX)):
        if not log_start < taken <= offset:
            continue
        known = snapshot.parse(file_bytes(os.path.join(folder, snapshot.file_name(taken))), taken)
        if known is not None:
            firsts = {producer_id: producer.transaction_first_offset for producer_id, producer in known.items()}
            begin, found = taken, {producer_id: first for producer_id, first in firsts.items() if first >= 0}
            break
    follow(folder, found, begin, offset)
    return found


def may_have_any(folder: str) -> bool:
    """Returns whether a log that was closed cleanly can have transactions: then it has producer snapshots or a
    transaction index."""
    names = catalog.names(folder)
    return bool(offsets_in(names, snapshot.SUFFIX) or offsets_in(names, txn_index.SUFFIX))


def aborted(folder: str, start: int, end: int) -> Aborted:
    """Returns the aborted transactions that overlap two offsets, both below the last stable offset."""
    try:
        return retried(lambda: _aborted(folder, start, end))
    except Gone:
        text = f"cannot read {folder}: its transaction indexes are deleted faster than they can be read"
        raise ReadError(text) from None


def _aborted(folder: str, start: int, end: int) -> Aborted:
    bases = catalog.bases(folder)
    first_base = bases[max(catalog.number_of(bases, start), 0)]
    indexed = offsets_in(catalog.names(folder), txn_index.SUFFIX)
    files = [base for base in indexed if base >= first_base and base in bases]
    root = os.path.dirname(folder)
    was_closed = broker_lock.was_closed(root)
    found = list(_indexed(folder, files, start, end, may_be_cut=None if was_closed else bases[-1]))
    # A crash may have lost index entries; the log has them all.
    if not was_closed and not broker_lock.is_in_use(root):
        found += _decided(folder, start, end)
    columns = np.array([entry[:3] for entry in found], np.int64).reshape(-1, 3)
    return Aborted(columns[:, 0], columns[:, 1], columns[:, 2])


def _indexed(
    folder: str, files: list[int], start: int, end: int, may_be_cut: int | None
) -> Iterator[txn_index.AbortedTransaction]:
    for base in files:
        for entry in _entries(folder, base, base == may_be_cut):
            if entry.last_offset >= start and entry.first_offset < end:
                yield entry
            if entry.last_stable_offset >= end:
                return


def _decided(folder: str, start: int, end: int) -> Iterator[txn_index.AbortedTransaction]:
    """Yields the aborted transactions of the batches between two offsets, by their markers there or after that."""
    begun: dict[int, int] = {}
    for low, high in ((start, end), (end, 2**63)):
        if high > end and not begun:
            return
        for file, event in _events(folder, low, high):
            if not event.is_control:
                if high == end:
                    begun.setdefault(event.producer_id, event.base_offset)
                continue
            first = begun.pop(event.producer_id, None)
            if first is not None and _aborting(file, event) is not None:
                yield txn_index.AbortedTransaction(event.producer_id, first, event.base_offset, end)
            if high > end and not begun:
                return


def _events(folder: str, start: int, end: int) -> Iterator[tuple[LogFile, Event]]:
    """Yields the transactional batches that end above one offset and begin below another."""
    bases = catalog.bases(folder)
    for base in bases[max(catalog.number_of(bases, start), 0) :]:
        if base >= end:
            return
        with LogFile(catalog.log_path(folder, base)) as file:
            mark = indexes.before(file, base, start) if start > base else None
            first = base if mark is None else mark.last_offset + 1
            for event in events(file, base, mark.position if mark is not None else 0, first, end):
                yield file, event


def _aborting(file: LogFile, event: Event) -> BatchHeader | None:
    """Returns the header of a control batch with the marker of an abort; None for another one."""
    header = file.header(event.position)
    if header is None:
        return None
    marker = txn_index.read_marker(file.read(event.position, event.size), 0, header)
    return header if marker is not None and marker.kind == txn_index.ABORT else None


def _entries(folder: str, base: int, may_be_cut: bool) -> list[txn_index.AbortedTransaction]:
    """Returns the entries of a segment's transaction index, or those of the log if the index is damaged."""
    data = file_bytes(os.path.join(folder, f"{base:020d}{txn_index.SUFFIX}"))
    if may_be_cut:  # an entry may be in the middle of its write
        data = data[: len(data) // txn_index.ENTRY_BYTES * txn_index.ENTRY_BYTES]
    try:
        return txn_index.parse(data)
    except StorageError:
        return list(_from_log(folder, base))


def _from_log(folder: str, base: int) -> Iterator[txn_index.AbortedTransaction]:
    begun = open_at(folder, base, catalog.bases(folder)[0])
    with LogFile(catalog.log_path(folder, base)) as file:
        for event in events(file, base, 0, base, base + 2**31):
            if not event.is_control:
                begun.setdefault(event.producer_id, event.base_offset)
                continue
            first = begun.pop(event.producer_id, None)
            if first is not None and (header := _aborting(file, event)) is not None:
                stable = min(begun.values(), default=header.next_offset)
                yield txn_index.AbortedTransaction(event.producer_id, first, header.last_offset, stable)
