"""The events of a pass over one segment, from which a partition is verified as a whole.

There are few, however many batches a segment has: consecutive batches of a producer are one `Run`. They can be pickled,
so that another process can read the segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...protocol.named import NamedTuple
from ...protocol.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from .. import inspect

NO_MARKER, OTHER_CONTROL = -1, -2


class Finding(NamedTuple):
    """A finding of a verification. `file` is relative to the data directory; `byte` and `offset` are None if unknown.

    `wrong` is False for a note: leftovers, or an end that is being written. `part` is the kind of file: log, index,
    snapshot, transactions, epochs, checkpoint, identity, leftover, or the records of an internal topic.
    """

    file: str
    byte: int | None
    offset: int | None
    what: str
    wrong: bool = True
    part: str = "log"

    @property
    def where(self) -> str:
        """The place in words. It may contain any character that a file name can have."""
        byte = "" if self.byte is None else f" at byte {self.byte}"
        return self.file + byte + ("" if self.offset is None else f", offset {self.offset}")


@dataclass(frozen=True)
class Circumstances:
    """The state of a partition according to its directory. `clean`: it was closed, so no write is unfinished.

    `gaps`: offsets may be missing (the topic is compacted, or its policy is unknown). `deep`: records are read too.
    `log_start_offset`: deleted records below it may still be in the first segment.
    """

    clean: bool = True
    gaps: bool = False
    deep: bool = False
    log_start_offset: int = 0


class SegmentTask(NamedTuple):
    """A segment to read. `label` is the partition's folder; `next_base` the base offset of the next segment, None for
    the last. `gaps`: offsets may be missing. `cuts`: runs end at these rising offsets, those of snapshots."""

    label: str
    segment: inspect.SegmentFile
    next_base: int | None
    clean: bool
    gaps: bool
    deep: bool
    cuts: tuple[int, ...]


class First(NamedTuple):
    """The first sound entry of a segment. `is_sure`: it is at the start of the file; otherwise offsets missing before
    it may be in the bytes that precede it."""

    position: int
    offset: int
    is_sure: bool


class Bad(NamedTuple):
    """An entry that must be removed or corrected."""

    finding: Finding


class Run(NamedTuple):
    """Consecutive batches of one producer, or one transaction marker.

    Sequences are -1 for batches without them. `newest_...` belongs to the last batch. `marker`: txn_index.ABORT or
    COMMIT, OTHER_CONTROL for a control batch of another kind, NO_MARKER. `missing`: the number of offsets between the
    segment's base and the first batch that are in no sound entry, or in an empty batch without producer as a repair
    writes it. `base_ms` is the base timestamp of the first batch; `appended_ms` the broker's time of its append, -1 if
    the batch has the producer's.
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
    appended_ms: int = -1

    def newest(self) -> BatchHeader:
        """Returns the header of the last batch, with the fields that the producer state needs."""
        bits = TRANSACTIONAL_BIT * self.transactional | CONTROL_BIT * (self.marker != NO_MARKER)
        delta = self.last_offset - self.newest_base_offset
        times = (self.newest_ms, self.newest_ms)
        identity = (self.producer_id, self.epoch, self.newest_first_sequence)
        return BatchHeader(self.newest_base_offset, 0, -1, 2, 0, bits, delta, *times, *identity, delta + 1)


class EpochStretch(NamedTuple):
    """Consecutive entries with the same leader epoch; None for old formats, which have none."""

    epoch: int | None
    position: int
    offset: int
    entries: int


class SnapshotDue(NamedTuple):
    """A snapshot exists at this offset: all earlier events are below it, all later ones at or above. Below `doubt` the
    producer state is incomplete, since offsets there are in no sound entry."""

    offset: int
    doubt: int


class End(NamedTuple):
    """The end of a segment.

    `end_offset` is the offset after the last entry, None if unknown; `sound_end` the offset after the last entry before
    the first bad one. `missing`, `doubt`: see Run and SnapshotDue. `bad` are ranges of offsets, end exclusive (None:
    open), with a finding. `size_bytes` were read; `is_cut`: not to the end of the file.
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
