"""The producer state of a partition, in memory and in snapshots, loaded on demand.

Writes, selects and removes the `.snapshot` files of one folder. `producer_state.py` has the rules, `snapshot.py` the
file format. As in Apache Kafka a snapshot is written at each roll (its offset is the new segment's base), at a clean
close and after a recovery (the log end), and is removed with its segment.

After a clean start nothing is read until the state is first needed: then the newest good snapshot, and the headers
after it. The state is loaded before a batch with a producer is appended; until then all appended batches have no
producer, so only the headers up to the log end at the start need to be read.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence

from ..errors import storage_errors
from ..format.file_names import offsets_in
from ..io.files import Files, write_atomically
from ..segments.segment import Segment
from . import snapshot, txn_index
from .producer_state import Producer, ProducerRules, forget_below, forget_expired


class Producers:
    """The producers of one log. Raises StorageError (or OSError, if documented) only.

    `known` has the entries by producer id; None until it is loaded.
    """

    __slots__ = ("_checked_ms", "_directory", "_files", "_offsets", "_opened_ms", "_replay_end", "known")

    def __init__(self, files: Files, directory: str, names: Iterable[str], opened_ms: int):
        """Prepares the producers of a folder with files of these names, opened at that time; reads nothing."""
        self._files = files
        self._directory = directory
        self._offsets = offsets_in(names, snapshot.SUFFIX)
        self._opened_ms = opened_ms
        self._checked_ms: int | None = None
        self._replay_end = 0
        self.known: dict[int, Producer] | None = None

    @property
    def snapshots(self) -> Sequence[int]:
        """The offsets of the existing snapshots, rising."""
        return self._offsets

    # -- loading

    def begin(self, offset: int, log_start_offset: int, rules: ProducerRules) -> dict[int, Producer] | None:
        """Returns the state at a segment's base offset, or None if it cannot be had without reading a segment. Some
        snapshots above it may be void. Raises OSError."""
        if offset <= log_start_offset:
            return {}
        return self._read(offset, log_start_offset, rules) if offset in self._offsets else None

    def at(
        self, offset: int, segments: Sequence[Segment], log_start_offset: int, rules: ProducerRules
    ) -> dict[int, Producer]:
        """Returns the state at an offset, from the newest good snapshot at or below it and the later batches of these
        segments. Raises StorageError."""
        found: dict[int, Producer] = {}
        start = log_start_offset
        for taken in reversed([taken for taken in self._offsets if log_start_offset < taken <= offset]):
            read = self._read(taken, log_start_offset, rules)
            if read is not None:
                found, start = read, taken
                break
        for segment in segments:
            if start < segment.next_offset and segment.base_offset < offset:
                _replay(segment, found, (start, offset), rules)
        return found

    def settle(self, bases: Sequence[int], log_start_offset: int, end_offset: int) -> None:
        """Removes the snapshots that do not belong to a log of these segments.

        Those above its end are of batches that were cut. Of those that are not at a segment's base (written by a close)
        the newest is kept, if it lies in the newest segment. No state is kept at or below the log start. Raises
        OSError.
        """
        self._replay_end = end_offset
        kept = [offset for offset in self._offsets if log_start_offset < offset <= end_offset]
        known_bases = set(bases)
        newest = kept[-1] if kept and kept[-1] > bases[-1] else -1
        for offset in self._offsets.copy():
            if offset not in kept or (offset not in known_bases and offset != newest):
                self._remove(offset)
        if self.known is None and end_offset <= log_start_offset:
            self.known = {}

    def remove_above(self, offset: int) -> None:
        """Removes the snapshots above an offset. Raises OSError."""
        for found in [found for found in self._offsets if found > offset]:
            self._remove(found)

    def load(self, segments: Sequence[Segment], log_start_offset: int, rules: ProducerRules) -> dict[int, Producer]:
        """Loads the state into `known`, from the newest good snapshot and the batches after it, and returns it.

        Batches below the log start are skipped, see `producer_state.advance`.
        """
        found = self.at(self._replay_end, segments, log_start_offset, rules)
        forget_below(found, log_start_offset, rules)
        if self._checked_ms is not None:
            forget_expired(found, self._checked_ms, log_start_offset, rules)
        self.known = found
        return found

    def _read(self, offset: int, log_start_offset: int, rules: ProducerRules) -> dict[int, Producer] | None:
        """Returns a snapshot's producers, without dropped and expired ones; a damaged snapshot is removed."""
        found = snapshot.read(self._files, self._directory, offset)
        if found is None:
            with contextlib.suppress(OSError):  # it will be found damaged again
                self._remove(offset)
            return None
        forget_below(found, log_start_offset, rules)
        forget_expired(found, self._opened_ms, log_start_offset, rules)
        return found

    def expire(self, now_ms: int, log_start_offset: int, rules: ProducerRules) -> int:
        """Drops producers without writes for too long (KIP-854) and returns their number. To be called periodically."""
        self._checked_ms = now_ms
        return 0 if self.known is None else forget_expired(self.known, now_ms, log_start_offset, rules)

    # -- snapshots

    def save(self, offset: int, segments: Sequence[Segment], log_start_offset: int, rules: ProducerRules) -> str | None:
        """Writes a snapshot at the log end, without a sync; returns its name, or None if there is nothing to write.

        Nothing is written if batches would have to be read for it: the next start can do that as well. Raises OSError.
        """
        if offset == 0 or (self._offsets and self._offsets[-1] == offset):
            return None
        if self.known is None:
            if not self._offsets or self._offsets[-1] != self._replay_end:
                return None
            if self._read(self._replay_end, log_start_offset, rules) is None:
                return None
            self.load(segments, log_start_offset, rules)
        return self.write(offset, self.known or {})

    def write(self, offset: int, known: dict[int, Producer]) -> str:
        """Writes the snapshot at an offset, without a sync, and returns its name. Raises OSError."""
        name = snapshot.file_name(offset)
        write_atomically(self._files, os.path.join(self._directory, name), snapshot.dump(known), sync=False)
        if offset not in self._offsets:
            self._offsets = sorted([*self._offsets, offset])
        return name

    def thin(self, base_offset: int) -> None:
        """Removes the snapshots within the newest segment except the last one: each save writes one. Raises
        StorageError."""
        with storage_errors(f"cannot remove a snapshot in {self._directory}"):
            for offset in [offset for offset in self._offsets if offset > base_offset][:-1]:
                self._remove(offset)

    def release(self, offset: int) -> str | None:
        """Hands the file of a snapshot over to the caller, who removes it with its segment; returns its name, or
        None."""
        if offset not in self._offsets:
            return None
        self._offsets.remove(offset)
        return snapshot.file_name(offset)

    def _remove(self, offset: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(os.path.join(self._directory, snapshot.file_name(offset)))
        self._offsets.remove(offset)


def _replay(segment: Segment, known: dict[int, Producer], offsets: tuple[int, int], rules: ProducerRules) -> None:
    """Applies the batches of a segment that end at or above the first offset, up to the second, to the state."""
    start, end = offsets
    position = segment.position_of(start) if start > segment.base_offset else 0
    if position is None:
        return
    for at, header in segment.batches(position):
        if header.base_offset >= end:
            return
        if header.producer_id >= 0:
            data = segment.read(at, header.size_bytes) if header.is_control else b""
            txn_index.apply(data, 0, header, known, start, rules)
