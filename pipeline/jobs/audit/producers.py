"""The producers of a partition by its batches: gaps and repetitions in sequences, epochs that go back, transactions.

Pure: takes runs of batches in the order of the log, returns findings and keeps facts. Memory grows with the number of
producers and open transactions; a bounded number of aborted ones is kept.

A sequence gap is no finding if offsets are missing since the producer's previous batch: compaction, retention or
another fault, which is reported separately, removed the batches. A gap before a producer's first batch is none either:
a broker without state of a producer accepts any sequence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ....storage.check.facts import NO_MARKER, Finding, Run
from ....storage.producers.producer_state import SEQUENCE_SPACE, at_or_below
from ....storage.producers.txn_index import ABORT, COMMIT

ABORTED_KEPT = 100
RUNS_KEPT = 8
PART = "producers"
COORDINATOR, BROKER, PRODUCER = "coordinator", "broker", "producer"


class OpenTransaction(NamedTuple):
    """A transaction without an end in the log. `since_ms` is the time of its start by `since_by`: the coordinator's
    records, else the time at which the broker appended its first batch, else that batch's timestamp by the producer.
    """

    producer_id: int
    epoch: int
    first_offset: int
    since_ms: int
    since_by: str = PRODUCER


class EndedTransaction(NamedTuple):
    """An aborted transaction: its first offset, -1 if the log does not contain it, and that of its marker."""

    producer_id: int
    epoch: int
    first_offset: int
    marker_offset: int


class _Open(NamedTuple):
    transaction: OpenTransaction
    missing: int


class _Written(NamedTuple):
    """Sequences in the log, and their offsets."""

    first: int
    last: int
    base_offset: int
    last_offset: int


@dataclass(slots=True)
class _Known:
    """The state of a producer. Sequences are -1 as long as there are none."""

    epoch: int
    newest: int = -1
    last: int = -1
    is_reported: bool = False  # the last run repeated earlier sequences, and was reported
    old: tuple[int, int] | None = None  # (epoch, last sequence) of a reported run of an old epoch
    missing: int = 0
    written: deque[_Written] = field(default_factory=lambda: deque(maxlen=RUNS_KEPT))


def _begun(run: Run) -> OpenTransaction:
    times = (run.base_ms, PRODUCER) if run.appended_ms < 0 else (run.appended_ms, BROKER)
    return OpenTransaction(run.producer_id, run.epoch, run.base_offset, *times)


def _after(sequence: int) -> int:
    return (sequence + 1) % SEQUENCE_SPACE


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


class Producers:
    """The producers of one partition. `from_start`: the log still has everything that was written to it."""

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
        """Returns the transactions without an end, oldest first."""
        return sorted((one.transaction for one in self._open.values()), key=lambda one: one.first_offset)

    def take(self, file: str, run: Run, missing: int) -> Iterator[Finding]:
        """Takes the next run. `missing` is the number of offsets before it that no sound batch has."""
        if run.last_offset < self._log_start:
            return  # its producer state may have expired and started again
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
            words = self._late(run, missing, "the log has nothing from it before that")
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
        continues = known.old is not None and known.old[0] == run.epoch and run.first_sequence == _after(known.old[1])
        known.old = (run.epoch, run.last_sequence)
        what = f"epoch {run.epoch} goes back after {known.epoch}: a fenced producer has written"
        return None if continues else (what, True)

    def _late(self, run: Run, missing: int, why: str) -> tuple[str, bool] | None:
        if run.first_sequence <= 0 or not self._from_start or missing:
            return None
        what = f"begins with sequence {run.first_sequence}, {why}: its first batches are lost, or in another log"
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
            return None if removed else self._late(run, missing, "with only a marker of its epoch before it")
        if first == _after(known.newest):
            known.is_reported = False
            return None
        if known.is_reported and first == _after(known.last):
            return None
        known.is_reported = False
        if at_or_below(first, known.newest):
            known.is_reported = True
            return self._again(run, known)
        if removed:
            return None
        gap = (first - 1) % SEQUENCE_SPACE
        are = (
            f"sequence {gap} is" if gap == _after(known.newest) else f"sequences {_span(_after(known.newest), gap)} are"
        )
        return f"{are} missing before {_span(first, last)}, although no offset is: {_LOST}", True

    def _again(self, run: Run, known: _Known) -> tuple[str, bool]:
        first, last = run.first_sequence, run.last_sequence
        if not at_or_below(last, known.newest):
            what = f"sequences {_span(first, known.newest)} of {_span(first, last)} were written before"
            return f"{what}: some records are duplicates", True
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
                first = ended.transaction.first_offset if ended else -1
                self.aborted.append(EndedTransaction(run.producer_id, run.epoch, first, run.base_offset))
        if known is None:
            known = self._known[run.producer_id] = _Known(run.epoch)
        elif run.epoch < known.epoch:
            return f"a marker of epoch {run.epoch}, although epoch {known.epoch} was written before", True
        elif run.epoch > known.epoch:
            known.epoch, known.newest, known.last = run.epoch, -1, -1
            known.written.clear()
        return None

    def _transaction(self, run: Run, missing: int) -> str | None:
        """Records the start of a transaction. Returns a problem with the open one, or None."""
        held = self._open.get(run.producer_id)
        if held is None:
            if run.transactional and run.records:  # one without records is left by a cleaner of an ended one
                self._open[run.producer_id] = _Open(_begun(run), missing)
            return None
        transaction = held.transaction
        if run.epoch <= transaction.epoch and run.transactional:
            return None
        del self._open[run.producer_id]
        if run.transactional and run.records:
            self._open[run.producer_id] = _Open(_begun(run), missing)
        if missing > held.missing or run.epoch < transaction.epoch:
            return None
        continues = f"writes with epoch {run.epoch}" if run.epoch > transaction.epoch else "writes outside of it"
        begun = f"the transaction of epoch {transaction.epoch} from offset {transaction.first_offset} on"
        return f"{begun} has no end, although the producer {continues}: its marker is missing"


_LOST = (
    "batches were lost, or the broker had no producer state (expired, or snapshots removed) and accepted any sequence"
)
