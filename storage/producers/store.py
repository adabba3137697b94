"""What a partition knows of its producers, kept in memory and in snapshots, and brought back when a log is opened.

Owns the `.snapshot` files of one folder: when one is written, which is used, which are removed. The rules of the state
are `producer_state.py`'s, the bytes `snapshot.py`'s. As in Apache Kafka a snapshot is written at each roll (its offset
is the new segment's base), at a clean close and after a recovery (the end of the log), and goes with its segment.

After a clean start nothing is read until somebody asks: then the newest good snapshot, and the headers behind it. A
batch of a producer asks before it is appended, so all that an unasked log was given since its opening has no producer,
and what lies behind the end that it had then need not be read.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence

from ..errors import StorageError
from ..io.files import Files, write_atomically
from ..segments.segment import Segment
from . import snapshot, txn_index
from .producer_state import Producer, ProducerRules, advance, forget_below, forget_expired


class Producers:
    """See the module. Raises StorageError (or OSError, where said) and nothing else.

    `known` is what is known of each producer, by id; None until it is loaded.
    """

    __slots__ = ("_checked_ms", "_directory", "_files", "_offsets", "_opened_ms", "_replay_end", "known")

    def __init__(self, files: Files, directory: str, names: Iterable[str], opened_ms: int):
        """The producers of a folder with files of these names, opened at that time; reads nothing."""
        self._files = files
        self._directory = directory
        self._offsets = sorted(int(match[1]) for match in map(snapshot.NAME.fullmatch, names) if match)
        self._opened_ms = opened_ms
        self._checked_ms: int | None = None
        self._replay_end = 0
        self.known: dict[int, Producer] | None = None

    @property
    def snapshots(self) -> Sequence[int]:
        """The offsets of the snapshots that are there, rising."""
        return self._offsets

    # -- bringing back

    def begin(self, offset: int, log_start_offset: int, rules: ProducerRules) -> dict[int, Producer] | None:
        """The state at a segment's base offset, if that can be told without reading a segment. Some snapshots above it
        may be void. OSError."""
        if offset <= log_start_offset:
            return {}
        return self._read(offset, log_start_offset, rules) if offset in self._offsets else None

    def at(
        self, offset: int, segments: Sequence[Segment], log_start_offset: int, rules: ProducerRules
    ) -> dict[int, Producer]:
        """The state at an offset, from the newest good snapshot at or below it and the batches of these segments behind
        that. StorageError."""
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

        Those above its end are of batches that were cut. Of those that are no segment's base (a close's) the newest is
        of use, if it lies in the newest segment. Nothing at or below the log start is remembered. OSError.
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
        """Removes the snapshots above an offset. OSError."""
        for found in [found for found in self._offsets if found > offset]:
            self._remove(found)

    def load(self, segments: Sequence[Segment], log_start_offset: int, rules: ProducerRules) -> dict[int, Producer]:
        """The state, from the newest good snapshot and the batches behind it; `known` from now on.

        Batches below the log start are passed over, see `producer_state.replay`.
        """
        found = self.at(self._replay_end, segments, log_start_offset, rules)
        forget_below(found, log_start_offset, rules)
        if self._checked_ms is not None:
            forget_expired(found, self._checked_ms, log_start_offset, rules)
        self.known = found
        return found

    def _read(self, offset: int, log_start_offset: int, rules: ProducerRules) -> dict[int, Producer] | None:
        """A snapshot's producers, without those that would have been forgotten; one that is damaged is removed."""
        found = snapshot.read(self._files, self._directory, offset)
        if found is None:
            with contextlib.suppress(OSError):  # it will be found damaged again
                self._remove(offset)
            return None
        forget_below(found, log_start_offset, rules)
        forget_expired(found, self._opened_ms, log_start_offset, rules)
        return found

    def expire(self, now_ms: int, log_start_offset: int, rules: ProducerRules) -> int:
        """Forgets producers that have written nothing for too long (KIP-854); how many. To be called now and then."""
        self._checked_ms = now_ms
        return 0 if self.known is None else forget_expired(self.known, now_ms, log_start_offset, rules)

    # -- snapshots

    def save(self, offset: int, segments: Sequence[Segment], log_start_offset: int, rules: ProducerRules) -> str | None:
        """Writes a snapshot at the end of the log, not synced; its name, or None if there is nothing to write.

        Nothing is written where batches would have to be read for it: then the next opening has to do that just as
        well. OSError.
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
        """Writes the snapshot at an offset, not synced; its name. OSError."""
        name = snapshot.file_name(offset)
        write_atomically(self._files, os.path.join(self._directory, name), snapshot.dump(known), sync=False)
        if offset not in self._offsets:
            self._offsets = sorted([*self._offsets, offset])
        return name

    def thin(self, base_offset: int) -> None:
        """Removes the snapshots within the newest segment but the last one: each save leaves one. StorageError."""
        try:
            for offset in [offset for offset in self._offsets if offset > base_offset][:-1]:
                self._remove(offset)
        except OSError as error:
            raise StorageError(f"cannot remove a snapshot in {self._directory}: {error}") from error

    def release(self, offset: int) -> str | None:
        """Leaves the file of a snapshot to the caller, who takes it away with its segment; its name, None without."""
        if offset not in self._offsets:
            return None
        self._offsets.remove(offset)
        return snapshot.file_name(offset)

    def _remove(self, offset: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(os.path.join(self._directory, snapshot.file_name(offset)))
        self._offsets.remove(offset)


def _replay(segment: Segment, known: dict[int, Producer], offsets: tuple[int, int], rules: ProducerRules) -> None:
    """Takes the batches of a segment that end at the first offset or behind, up to the second, into the state."""
    start, end = offsets
    position = segment.position_of(start) if start > segment.base_offset else 0
    if position is None:
        return
    for at, header in segment.batches(position):
        if header.base_offset >= end:
            return
        if header.producer_id >= 0:
            data = segment.read(at, header.size_bytes) if header.is_control else b""
            marker = txn_index.read_marker(data, 0, header)
            advance(known, header, start, rules, marker.coordinator_epoch if marker is not None else -1)
