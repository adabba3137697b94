"""What looking over one segment says to whoever puts a partition together from its segments.

Owns these values, which are few however many batches a segment has: those of a producer that follow each other are one
`Run`. They can be pickled, so that segments may be looked over elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ...protocol.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from .. import inspect

NO_MARKER, OTHER_CONTROL = -1, -2


class Finding(NamedTuple):
    """Something that was seen. `file` is relative to the data directory; `byte` and `offset` where they are known.

    `wrong` is False for what only is worth a word: leftovers, an end that is being written. `part` says which kind of
    file it speaks of: log, index, snapshot, transactions, epochs, checkpoint, identity, leftover.
    """

    file: str
    byte: int | None
    offset: int | None
    what: str
    wrong: bool = True
    part: str = "log"

    @property
    def where(self) -> str:
        """In words; the file's name may hold any letter."""
        byte = "" if self.byte is None else f" at byte {self.byte}"
        return self.file + byte + ("" if self.offset is None else f", offset {self.offset}")


@dataclass(frozen=True)
class Circumstances:
    """What the directory tells of a partition. `clean`: it was closed, so nothing may be unfinished.

    `gaps`: offsets may be missing (a cleaner works here, or that is not known). `deep`: records are read as well.
    `log_start_offset`: what was deleted up to there may still lie in the first segment.
    """

    clean: bool = True
    gaps: bool = False
    deep: bool = False
    log_start_offset: int = 0


class SegmentTask(NamedTuple):
    """One segment to be looked over. `label` is the partition's folder; `next_base` is that of the next segment, None
    in the last. `gaps`: offsets may be missing, now. `cuts`: runs end at these offsets, rising: those of snapshots."""

    label: str
    segment: inspect.SegmentFile
    next_base: int | None
    clean: bool
    gaps: bool
    deep: bool
    cuts: tuple[int, ...]


class First(NamedTuple):
    """The first sound entry of a segment. `is_sure`: nothing in the file lies in front of it; else what it says of the
    offsets between the segments is nothing."""

    position: int
    offset: int
    is_sure: bool


class Bad(NamedTuple):
    """An entry that cannot stay."""

    finding: Finding


class Run(NamedTuple):
    """Batches of one producer whose sequences follow each other, or one transaction marker.

    Sequences are -1 where there are none. `newest_...` is of the last batch. `marker`: txn_index.ABORT or COMMIT,
    OTHER_CONTROL for a control batch of another kind, NO_MARKER. `missing`: how many offsets between the segment's base
    and its first batch are in no sound entry, or in an empty one of no producer, as a repair leaves it. `base_ms` is
    the base timestamp of the first batch.
    """

    position: int
    base_offset: int
    last_offset: int
    batches: int
    records: int
    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    newest_base_offset: int
    newest_first_sequence: int
    base_ms: int
    newest_ms: int
    transactional: bool
    marker: int
    coordinator_epoch: int
    missing: int

    def newest(self) -> BatchHeader:
        """The last batch, as far as it matters for what is known of a producer."""
        bits = TRANSACTIONAL_BIT * self.transactional | CONTROL_BIT * (self.marker != NO_MARKER)
        delta = self.last_offset - self.newest_base_offset
        times = (self.newest_ms, self.newest_ms)
        identity = (self.producer_id, self.epoch, self.newest_first_sequence)
        return BatchHeader(self.newest_base_offset, 0, -1, 2, 0, bits, delta, *times, *identity, delta + 1)


class EpochStretch(NamedTuple):
    """Entries one behind the other with the same leader epoch; None for those of the old formats, which have none."""

    epoch: int | None
    position: int
    offset: int
    entries: int


class SnapshotDue(NamedTuple):
    """All that came before is below this offset, at which there is a snapshot, and no more will be. What lies below
    `doubt` is not all known: offsets in front of it are in no sound entry."""

    offset: int
    doubt: int


class End(NamedTuple):
    """The end of a segment.

    `end_offset` is the one behind the last entry, None if that is not known; `sound_end` the one behind the last in
    front of the first that cannot stay. `missing`, `doubt`: see Run and SnapshotDue. `bad` are stretches of offsets,
    end exclusive (None: open), about which there is a finding. `size_bytes` were read; `is_cut`: not to the end.
    """

    size_bytes: int
    end_offset: int | None
    sound_end: int
    missing: int
    doubt: int
    holes: int
    bad: tuple[tuple[int, int | None], ...]
    is_cut: bool
    entries: int
    records: int
    largest_ms: int


Event = Finding | First | Bad | Run | EpochStretch | SnapshotDue | End
Events = Iterator[Event]
