"""What a partition's batches tell of their producers: sequences that do not follow, epochs that go back, transactions.

Pure: fed with runs of batches, in order of the log, it gives findings and keeps facts. Memory grows with the number of
producers and of transactions that are open; of those that were aborted some are kept.

A gap is no finding where offsets are missing since the producer's batch before: compaction, retention or another fault,
told elsewhere, took what lay there. Nor is one in front of a producer's first batch: a broker that knows nothing of a
producer takes any sequence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from ....storage.check.facts import NO_MARKER, Finding, Run
from ....storage.producers.producer_state import SEQUENCE_SPACE, at_or_below
from ....storage.producers.txn_index import ABORT, COMMIT

ABORTED_KEPT = 100
RUNS_KEPT = 8
PART = "producers"


class OpenTransaction(NamedTuple):
    """A transaction without an end in the log; `since_ms` is the time of its first batch."""

    producer_id: int
    epoch: int
    first_offset: int
    since_ms: int


class EndedTransaction(NamedTuple):
    """One that was aborted: its first offset, -1 if the log does not tell, and that of its marker."""

    producer_id: int
    epoch: int
    first_offset: int
    marker_offset: int


class _Open(NamedTuple):
    told: OpenTransaction
    missing: int


class _Written(NamedTuple):
    """Sequences that are in the log, and at which offsets."""

    first: int
    last: int
    base_offset: int
    last_offset: int


class _Known:
    """What is known of a producer. Sequences are -1 where there are none yet."""

    __slots__ = ("epoch", "is_told", "last", "missing", "newest", "old", "written")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.newest = self.last = -1
        self.is_told = False  # the last run was written before, and that was said
        self.old: tuple[int, int] | None = None  # (epoch, last sequence) of a run of an old epoch that was told
        self.missing = 0
        self.written: deque[_Written] = deque(maxlen=RUNS_KEPT)


def _after(sequence: int) -> int:
    return (sequence + 1) % SEQUENCE_SPACE


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


class Producers:
    """The producers of one partition. `from_start`: the log holds all that was ever written to it."""

    def __init__(self, log_start_offset: int, *, from_start: bool) -> None:
        self._log_start = log_start_offset
        self._from_start = from_start
        self._known: dict[int, _Known] = {}
        self._open: dict[int, _Open] = {}
        self.commits = self.aborts = 0
        self.aborted: list[EndedTransaction] = []
        """The first ones."""

    @property
    def count(self) -> int:
        return len(self._known)

    def open_transactions(self) -> list[OpenTransaction]:
        """Those without an end, oldest first."""
        return sorted((one.told for one in self._open.values()), key=lambda one: one.first_offset)

    def take(self, file: str, run: Run, missing: int) -> Iterator[Finding]:
        """One run more. `missing`: how many offsets in front of it are in no sound batch."""
        if run.last_offset < self._log_start:
            return  # it may have been forgotten, and have begun anew
        what = self._what(run, missing)
        if what is not None:
            words, wrong = what
            yield Finding(file, run.position, run.base_offset, f"producer {run.producer_id}: {words}", wrong, PART)

    def _what(self, run: Run, missing: int) -> tuple[str, bool] | None:
        known = self._known.get(run.producer_id)
        if run.marker != NO_MARKER:
            return self._marker(run, known)
        is_old = known is not None and run.epoch < known.epoch
        hanging = None if is_old else self._transaction(run, missing)
        if known is None:
            known = self._known[run.producer_id] = _Known(run.epoch)
            words = self._late(run, missing, "nothing before it is in the log")
        elif run.epoch < known.epoch:
            return self._old(run, known)
        elif run.first_sequence < 0:
            words = None
            if run.epoch > known.epoch:
                known.epoch, known.newest, known.last = run.epoch, -1, -1
        else:
            words = self._sequences(run, known, missing)
        self._adopt(run, known, missing)
        return (hanging, True) if hanging else words

    def _old(self, run: Run, known: _Known) -> tuple[str, bool] | None:
        goes_on = known.old is not None and known.old[0] == run.epoch and run.first_sequence == _after(known.old[1])
        known.old = (run.epoch, run.last_sequence)
        what = f"epoch {run.epoch} goes back, {known.epoch} was written before: it was fenced then, and must not write"
        return None if goes_on else (what, True)

    def _late(self, run: Run, missing: int, why: str) -> tuple[str, bool] | None:
        if run.first_sequence <= 0 or not self._from_start or missing:
            return None
        what = f"begins with sequence {run.first_sequence}, {why}: its first batches never came, or were to another log"
        return f"{what} of this name", False

    def _sequences(self, run: Run, known: _Known, missing: int) -> tuple[str, bool] | None:
        first, last = run.first_sequence, run.last_sequence
        removed = missing > known.missing
        if run.epoch > known.epoch:
            epoch, known.epoch, known.newest, known.last = known.epoch, run.epoch, -1, -1
            known.written.clear()
            if first and not removed:
                return f"epoch {epoch} -> {run.epoch} begins with sequence {first} instead of 0: {_LOST}", True
            return None
        if known.newest < 0:
            return None if removed else self._late(run, missing, "of its epoch there is only a marker before it")
        if first == _after(known.newest):
            known.is_told = False
            return None
        if known.is_told and first == _after(known.last):
            return None
        known.is_told = False
        if at_or_below(first, known.newest):
            known.is_told = True
            return self._again(run, known)
        if removed:
            return None
        gap = (first - 1) % SEQUENCE_SPACE
        are = (
            f"sequence {gap} is" if gap == _after(known.newest) else f"sequences {_span(_after(known.newest), gap)} are"
        )
        return f"{are} missing in front of {_span(first, last)}, although no offset is: {_LOST}", True

    def _again(self, run: Run, known: _Known) -> tuple[str, bool]:
        first, last = run.first_sequence, run.last_sequence
        if not at_or_below(last, known.newest):
            what = f"sequences {_span(first, known.newest)} of {_span(first, last)} were written before"
            return f"{what}: some of these records are duplicates", True
        for one in known.written:
            if at_or_below(one.first, first) and at_or_below(last, one.last):
                at = f"in offsets {_span(one.base_offset, one.last_offset)}"
                return f"sequences {_span(first, last)} are {at} too: duplicates", True
        return f"sequences {_span(first, last)} were written before, up to {known.newest}: duplicates", True

    def _adopt(self, run: Run, known: _Known, missing: int) -> None:
        known.missing = missing
        known.old = None
        if run.first_sequence < 0:
            return
        last = run.last_sequence
        if known.newest < 0 or not at_or_below(last, known.newest):
            known.newest = last
        known.last = last
        before = known.written[-1] if known.written else None
        if before is not None and run.first_sequence == _after(before.last):
            known.written[-1] = before._replace(last=last, last_offset=run.last_offset)
        else:
            known.written.append(_Written(run.first_sequence, last, run.base_offset, run.last_offset))

    # -- transactions

    def _marker(self, run: Run, known: _Known | None) -> tuple[str, bool] | None:
        if run.marker not in (ABORT, COMMIT):
            return None
        ended = self._open.pop(run.producer_id, None)
        if run.marker == COMMIT:
            self.commits += 1
        else:
            self.aborts += 1
            if len(self.aborted) < ABORTED_KEPT:
                first = ended.told.first_offset if ended else -1
                self.aborted.append(EndedTransaction(run.producer_id, run.epoch, first, run.base_offset))
        if known is None:
            known = self._known[run.producer_id] = _Known(run.epoch)
        elif run.epoch < known.epoch:
            return f"a marker of epoch {run.epoch}, although {known.epoch} was written before", True
        elif run.epoch > known.epoch:
            known.epoch, known.newest, known.last = run.epoch, -1, -1
            known.written.clear()
        return None

    def _transaction(self, run: Run, missing: int) -> str | None:
        """Notes that one begins; what cannot be while one is open."""
        held = self._open.get(run.producer_id)
        if held is None:
            if run.transactional and run.records:  # one without records is what a cleaner leaves of an ended one
                told = OpenTransaction(run.producer_id, run.epoch, run.base_offset, run.base_ms)
                self._open[run.producer_id] = _Open(told, missing)
            return None
        told = held.told
        if run.epoch <= told.epoch and run.transactional:
            return None
        del self._open[run.producer_id]
        if run.transactional and run.records:
            begun = OpenTransaction(run.producer_id, run.epoch, run.base_offset, run.base_ms)
            self._open[run.producer_id] = _Open(begun, missing)
        if missing > held.missing or run.epoch < told.epoch:
            return None
        goes_on = f"goes on with epoch {run.epoch}" if run.epoch > told.epoch else "goes on outside of it"
        begun = f"the transaction of epoch {told.epoch} from offset {told.first_offset} on"
        return f"{begun} has no end, although the producer {goes_on}: its marker is missing"


_LOST = (
    "batches were lost, or the broker had forgotten the producer (expired, or its snapshots removed) and took what came"
)
