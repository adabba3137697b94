"""The history of a partition's producers: runs of consecutive batches, and anomalies between them.

Owns the classification. Pure: it takes batches, oldest first, and yields a `Stretch` when one ends. Memory grows with
the number of producers, not of batches. Sequences run from 0 to 2**31 - 1 and then start at 0 again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from ...protocol.frozen import slotted
from ...protocol.named import NamedTuple
from ...storage.producers.producer_state import SEQUENCE_SPACE, CachedBatch, at_or_below
from .producer_log import LogBatch

REMEMBERED = 6  # batches of each producer: those that a broker caches, and the one before them


class Stretch(NamedTuple):
    """Consecutive batches of one producer; or one marker, one batch without sequences, or one gap of offsets.

    `kind`: "begins", "late start" (not with sequence 0), "continues", "resumes" (in order again), "epoch", "old epoch",
    "again" (written before), "overlap", "gap", "no sequences" (a coordinator's), "marker", "missing offsets". `text`
    describes a remarkable stretch, mostly its first batch; it is `odd` if a correct log has none. A missing producer,
    sequence or time is -1.
    """

    first_offset: int
    last_offset: int
    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    batches: int
    records: int
    first_ms: int
    last_ms: int
    transactional: bool
    kind: str
    text: str
    odd: bool


class Written(NamedTuple):
    """A batch in the log; `log_position` is the number of bytes before it."""

    batch: CachedBatch
    epoch: int
    log_position: int


@slotted
class Producer:
    """The state of one producer in the history. `newest_sequence` is the highest of its epoch, or -1; `data_offset` is
    that of its newest data batch.
    """

    epoch: int
    missing: int
    last_offset: int = -1
    data_offset: int = -1
    last_sequence: int = -1
    newest_sequence: int = -1
    is_again: bool = False
    recent: list[Written] = field(default_factory=list[Written])
    open: Stretch | None = None


def after(sequence: int) -> int:
    """Returns the next sequence; 0 after -1, which means none."""
    return (sequence + 1) % SEQUENCE_SPACE


def span(first: int, last: int) -> str:
    """Returns `5` or `5-9`."""
    return str(first) if first == last else f"{first}-{last}"


def missing_text(first: int, last: int) -> str:
    """Returns `sequence 5 is` or `sequences 5-9 are`."""
    return f"sequence {first} is" if first == last else f"sequences {span(first, last)} are"


def place_text(of: CachedBatch) -> str:
    """Returns `offset 5` or `offsets 5-9`."""
    return f"offset{'' if of.base_offset == of.last_offset else 's'} {span(of.base_offset, of.last_offset)}"


class History:
    """See the module. Call `step` for each batch, then `finish`.

    `only` restricts the history to one producer. With `each_batch` every batch is a stretch of its own.
    """

    def __init__(self, log_start_offset: int, *, only: int | None = None, each_batch: bool = False) -> None:
        self._log_start_offset = log_start_offset
        self._only = only
        self._each_batch = each_batch
        self._next_offset = -1
        self.producers: dict[int, Producer] = {}
        self.plain_batches = 0
        """Batches without a producer, at or above the log start."""
        self.plain_records = 0
        self.missing_offsets = 0
        """The number of offsets between the first and the last batch that no batch has."""
        self.holes = 0
        """The number of places with missing offsets."""

    def step(self, found: LogBatch) -> Iterator[Stretch]:
        """Adds a batch. Yields the stretches that it ends."""
        header = found.header
        is_gone = header.last_offset < self._log_start_offset
        hole = self._hole(found)
        if hole is not None and not is_gone and (self._each_batch or found.begins_segment):
            yield hole
        if header.producer_id < 0:
            if not is_gone:
                self.plain_batches += 1
                self.plain_records += max(header.record_count, 0)
            return
        if self._only in (None, header.producer_id):
            yield from self._of_producer(found, is_gone)

    def finish(self) -> Iterator[Stretch]:
        """Yields the stretches that the end of the log ends, by offset."""
        left = [known.open for known in self.producers.values() if known.open is not None]
        yield from sorted(left)

    def _hole(self, found: LogBatch) -> Stretch | None:
        expected, self._next_offset = self._next_offset, found.header.last_offset + 1
        if expected < 0 or not expected < found.first_offset:
            return None
        count = found.first_offset - expected
        self.missing_offsets += count
        self.holes += 1
        text = "in no batch: removed by compaction, or with a segment"
        return Stretch(
            expected, found.first_offset - 1, -1, -1, -1, -1, 0, count, -1, -1, False, "missing offsets", text, False
        )

    def _of_producer(self, found: LogBatch, is_gone: bool) -> Iterator[Stretch]:
        header = found.header
        known = self.producers.get(header.producer_id)
        kind, text, odd = self._marker(found, known) if header.is_control else self._data(found, known)
        if known is None:
            known = self.producers[header.producer_id] = Producer(header.producer_epoch, self.missing_offsets)
        stretch = self._stretch(found, kind, text, odd)
        if not is_gone:
            if known.open is not None and _continues(known.open, stretch) and not self._each_batch:
                known.open = _joined(known.open, stretch)
            else:
                if known.open is not None:
                    yield known.open
                known.open = stretch
            if header.is_control:
                yield known.open
                known.open = None
        self._adopt(known, found, kind)

    def _stretch(self, found: LogBatch, kind: str, text: str, odd: bool) -> Stretch:
        header = found.header
        has_none = header.is_control or header.base_sequence < 0
        first, last = (-1, -1) if has_none else (header.base_sequence, header.last_sequence)
        return Stretch(
            header.base_offset,
            header.last_offset,
            header.producer_id,
            header.producer_epoch,
            first,
            last,
            1,
            max(header.record_count, 0),
            header.max_timestamp if header.has_delete_horizon else header.base_timestamp,
            header.max_timestamp,
            header.is_transactional,
            kind,
            text,
            odd,
        )

    def _adopt(self, known: Producer, found: LogBatch, kind: str) -> None:
        header = found.header
        if header.producer_epoch != known.epoch:
            known.epoch, known.last_sequence, known.newest_sequence = header.producer_epoch, -1, -1
        known.last_offset = header.last_offset
        if header.is_control:
            return
        known.data_offset, known.missing = header.last_offset, self.missing_offsets
        if header.base_sequence < 0:
            return
        last = header.last_sequence
        is_higher = known.newest_sequence < 0 or not at_or_below(last, known.newest_sequence)
        known.is_again = not is_higher and (known.is_again or kind == "again")
        known.newest_sequence = last if is_higher else known.newest_sequence
        known.last_sequence = last
        of = CachedBatch(header.base_sequence, last, header.base_offset, header.last_offset, header.max_timestamp)
        known.recent = [*known.recent, Written(of, header.producer_epoch, found.log_position)][-REMEMBERED:]

    # The classification of a batch: its kind, its text, and whether it is odd.

    def _marker(self, found: LogBatch, known: Producer | None) -> tuple[str, str, bool]:
        kind, coordinator_epoch = found.marker or ("?", -1)
        text = f"{kind} marker" + (f" of coordinator epoch {coordinator_epoch}" if coordinator_epoch >= 0 else "")
        epoch = found.header.producer_epoch
        if known is not None and epoch != known.epoch:
            text += f"; epoch {known.epoch} -> {epoch}"
        return "marker", text, known is not None and epoch < known.epoch

    def _data(self, found: LogBatch, known: Producer | None) -> tuple[str, str, bool]:
        header = found.header
        first = header.base_sequence
        if first < 0:
            is_old = known is not None and header.producer_epoch < known.epoch
            return "no sequences", "written by a coordinator, without sequences", is_old
        if known is None:
            return self._beginning(first)
        if header.producer_epoch < known.epoch:
            return "old epoch", f"epoch {header.producer_epoch} after epoch {known.epoch}", True
        if header.producer_epoch > known.epoch:
            text = f"epoch {known.epoch} -> {header.producer_epoch}"
            return "epoch", text if first == 0 else f"{text}, but sequence {first} instead of 0", first != 0
        if known.last_sequence < 0:  # the state comes from a marker
            return ("continues", "", False) if first == 0 else self._beginning(first)
        if first not in (after(known.newest_sequence), after(known.last_sequence)):
            return self._out_of_order(found, known)
        if known.last_offset < self._log_start_offset:
            return "resumes", f"the batches before sequence {first} are below the log start", False
        if known.is_again and first == after(known.newest_sequence):
            return "resumes", "", False
        wraps = first == 0 or header.last_sequence < first
        return "continues", "after sequence 2147483647 comes 0" if wraps else "", False

    def _beginning(self, first: int) -> tuple[str, str, bool]:
        if first == 0:
            return "begins", "its first batch", False
        if self._log_start_offset > 0:
            return "late start", f"sequences before {first} are below the log start, or were never written", False
        return "late start", f"begins with sequence {first}: nothing before it is in the log", True

    def _out_of_order(self, found: LogBatch, known: Producer) -> tuple[str, str, bool]:
        header = found.header
        first, last, newest = header.base_sequence, header.last_sequence, known.newest_sequence
        if first == 0 and known.last_offset < self._log_start_offset:
            return "begins", "begins again: earlier batches are below the log start, and its state has expired", False
        if at_or_below(first, newest):
            for written in reversed(known.recent):
                of = written.batch
                if (of.first_sequence, of.last_sequence, written.epoch) == (first, last, header.producer_epoch):
                    return "again", f"a duplicate: these sequences are at {place_text(of)} too", True
            if at_or_below(last, newest):
                return "again", f"written before: sequences up to {newest} were", True
            return "overlap", f"sequences up to {newest} were written before, later ones were not", True
        text = f"a gap: {missing_text(after(newest), (first - 1) % SEQUENCE_SPACE)} not in the log"
        if self.missing_offsets > known.missing:
            text += f", nor are {self.missing_offsets - known.missing} offsets since {known.data_offset}: removed"
            return "gap", text, False
        return "gap", f"{text}, although no offset is missing since {known.data_offset}", True


def _continues(one: Stretch, other: Stretch) -> bool:
    """Whether both belong to one stretch."""
    if other.kind == "no sequences":
        return (one.kind, one.epoch) == (other.kind, other.epoch)
    return other.kind == "continues" and one.kind != "no sequences"


def _joined(one: Stretch, other: Stretch) -> Stretch:
    text = one.text if other.text in one.text else "; ".join(filter(None, (one.text, other.text)))
    return one._replace(
        last_offset=other.last_offset,
        last_sequence=other.last_sequence,
        batches=one.batches + 1,
        records=one.records + other.records,
        first_ms=min(one.first_ms, other.first_ms),
        last_ms=max(one.last_ms, other.last_ms),
        text=text,
    )
