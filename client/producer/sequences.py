"""The sequence numbers of one producer in one partition: what may be sent, what an answer means (KAFKA-5494, KIP-192).

Pure: no I/O, no clock. The sender asks `may_drain` and `resendable`, tells what was sent and what was answered, and
does what the verdict says. The rules, by number:

 1. Sequences are given when a batch is drained, from 0 to 2^31 - 1 and then 0 again. A batch keeps them when it is sent
    again.
 2. What was put back goes first, in order of sequence, one at a time; nothing new leaves until all of it is done. Nor
    does a second batch before the first one on a connection is acknowledged, unless the broker is known to search its
    log: one that forgot the producer (at a restart) may take any sequence, and would so take what is behind the first.
 3. A retriable failure, or an unknown outcome: put back.
 4. OUT_OF_ORDER (45) or UNKNOWN_PRODUCER_ID (59) for a batch with an unfinished one before it: put back. For the first
    unfinished one: acknowledged records may be gone. If the log start is above the last acknowledged offset, nothing
    acknowledged is missing: a new start (5). Else it is fatal.
 5. A new start: epoch + 1, so that delayed copies of older requests are fenced, and sequences from 0 for all that is
    unfinished, when none of it is in flight. After epoch 32767 a fresh producer id is needed. It is due as well when
    the broker, having forgotten the producer after such a deletion, accepts a batch from the very beginning anew.
 6. A batch that is given up leaves a gap: whether it is in the log is not known. The batch behind it goes alone.
    Accepted: it is in the log. OUT_OF_ORDER: it is not, nor is anything behind it; a new start, and no error. But
    records that were acknowledged might be gone as well, which that answer hides: `suspect` is the newest of them, to
    be looked for in the log before the first acknowledgement after such a start is passed on.
 7. DUPLICATE_SEQUENCE_NUMBER (46) is success without an offset; a duplicate's answer counts like any. A batch below
    the last acknowledged one is in the log, whatever is said of it, unless the broker is known to search its log.
    INVALID_PRODUCER_EPOCH (47) is fatal.
 8. A batch that is too large is split in two with the same sequences in total.
 9. Brokers that do not search their log answer 45 also for what is in it, behind their cache, or when they have
    forgotten the producer. There 45 for the first unfinished batch proves nothing: the log is read (`LOOK`) and decides
    between the three: written before, a new start, fatal.

Whoever resets sequences while an older copy of a request may still arrive could write its records twice: copies that
nobody answered must have died before a new start (`copies_alive`); until then the batch is put back and asks again.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Generic, NamedTuple, TypeVar

from ...protocol.errors import ErrorCode
from ...protocol.limits import INT16_MAX, INT32_MAX, INT64_MAX

__all__ = ["EPOCH_MAX", "NO_OFFSET", "Acked", "Sequenced", "Sequences", "Verdict", "precedes", "sequence_after"]

SEQUENCE_MASK = INT32_MAX
EPOCH_MAX = INT16_MAX
NO_OFFSET = -1
OFFSET_MAX = INT64_MAX
_HALF = 2**30

_OUT_OF_STEP = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


def sequence_after(sequence: int, count: int) -> int:
    """The sequence `count` records behind this one."""
    return (sequence + count) & SEQUENCE_MASK


def precedes(first: int, second: int) -> bool:
    """Whether the first sequence is given out before the second; they lie less than half of all sequences apart."""
    return 0 < ((second - first) & SEQUENCE_MASK) < _HALF


class Verdict(Enum):
    """What becomes of a batch that was answered with an error, or not at all."""

    PUT_BACK = auto()
    """It is sent again, with the same sequences."""
    WAIT = auto()
    """As PUT_BACK, but not before all unanswered copies of requests have died."""
    NEW_START = auto()
    """It is sent again after a new start of sequences."""
    DONE = auto()
    """It is in the log; its offset is not known."""
    DROPPED = auto()
    """It is not sent again: refused, or given up before."""
    LOOK = auto()
    """The log has to tell: is the batch in it, are the acknowledged records in it? Then `found` or `not_found`."""
    OUT_OF_ORDER = auto()
    """Fatal: records that were acknowledged are gone."""
    UNKNOWN_PRODUCER = auto()
    """Fatal: records that were acknowledged may be gone."""
    FENCED = auto()
    """Fatal: another producer of the same id has a newer epoch."""


class Sequenced:
    """A batch as seen from here. Whoever makes batches derives them from this; `count` is how many records it has."""

    __slots__ = ("after_gap", "base_sequence", "count", "epoch", "given_up", "in_flight", "producer_id")

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.producer_id = -1
        self.epoch = -1
        self.base_sequence = -1
        self.in_flight = False
        self.given_up = False
        self.after_gap = False

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record."""
        return sequence_after(self.base_sequence, self.count - 1)


class Acked(NamedTuple):
    """The last record of an acknowledged batch, as it stands in the log."""

    offset: int
    producer_id: int
    epoch: int
    sequence: int


B = TypeVar("B", bound=Sequenced)


class Sequences(Generic[B]):
    """See the module. `searches` says that the broker looks for duplicates in its log, behind what it has in memory."""

    __slots__ = (
        "_catching_up",
        "_gap_at_end",
        "_hides_loss",
        "_is_bound",
        "_is_known",
        "_least_offset",
        "_offset_is_known",
        "epoch",
        "in_flight",
        "is_looking",
        "last_acked",
        "last_acked_offset",
        "last_acked_sequence",
        "next_sequence",
        "producer_id",
        "restarting",
        "searches",
        "suspect",
        "unfinished",
    )

    def __init__(self, producer_id: int, epoch: int, *, searches: bool = False, next_sequence: int = 0) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.searches = searches
        self.next_sequence = next_sequence
        self.last_acked_sequence = -1  # of the present epoch
        self.last_acked_offset = NO_OFFSET  # of any
        self.last_acked: Acked | None = None  # the newest whose offset is known, of any epoch
        self.unfinished: list[B] = []  # in order of sequence: in flight, or put back
        self.in_flight = 0
        self.restarting = False
        self.is_looking = False
        self.suspect: Acked | None = None
        self._offset_is_known = True
        self._is_bound = False
        self._is_known = False  # to the broker
        self._catching_up = False
        self._gap_at_end = False
        self._hides_loss = False

    # -- sending

    @property
    def is_in_step(self) -> bool:
        """Nothing was put back or given up, or all of that is settled."""
        return not self._catching_up and not self.restarting

    def may_drain(self) -> bool:
        """Whether a new batch may be given sequences and sent (rule 2)."""
        if self.restarting or self.is_looking:
            return False
        if not self.unfinished:
            return True
        return not self._catching_up and (self._is_known or self.searches)

    def on_new_connection(self) -> None:
        """The broker may be another process than before, or another broker (rule 2)."""
        self._is_known = False

    def assign(self, batch: B) -> None:
        """Gives a new batch its sequences (rule 1); it is in flight from now on."""
        batch.producer_id = self.producer_id
        batch.epoch = self.epoch
        batch.base_sequence = self.next_sequence
        batch.after_gap = self._gap_at_end
        self._gap_at_end = False
        self.next_sequence = sequence_after(self.next_sequence, batch.count)
        self.unfinished.append(batch)
        batch.in_flight = True
        self.in_flight += 1

    def resendable(self) -> B | None:
        """The batch that was put back and may be sent again now."""
        if self.in_flight or self.restarting or self.is_looking or not self.unfinished:
            return None
        return self.unfinished[0]

    def resent(self, batch: B) -> None:
        """It is in flight once more."""
        batch.in_flight = True
        self.in_flight += 1

    # -- answers

    def succeeded(self, batch: B, base_offset: int = NO_OFFSET, log_start_offset: int = NO_OFFSET) -> None:
        """It is in the log, written now or before; at an unknown place if the offset is -1."""
        self._landed(batch)
        self._finish(batch, base_offset, log_start_offset)

    def _finish(self, batch: B, base_offset: int, log_start_offset: int = NO_OFFSET) -> None:
        self.unfinished.remove(batch)
        self._is_known = True
        is_below = self.last_acked_sequence >= 0 and precedes(batch.base_sequence, self.last_acked_sequence)
        if is_below and min(base_offset, log_start_offset) > self.last_acked_offset and self._offset_is_known:
            # Written once more behind what came after it: all of that was deleted, and the broker forgot the producer.
            # What comes next would be a gap.
            self.restarting = self._hides_loss = True
        if batch.epoch == self.epoch and batch.producer_id == self.producer_id:
            last = batch.last_sequence
            if self.last_acked_sequence < 0 or precedes(self.last_acked_sequence, last):
                self.last_acked_sequence = last
                # An offset that is not known might be above all that are.
                self._offset_is_known = base_offset >= 0
                known = NO_OFFSET if self.last_acked is None else self.last_acked.offset
                self._least_offset = known + batch.count
                if self._is_bound and base_offset >= 0:
                    self._is_bound = False
                    self.last_acked_offset = known
        if base_offset >= 0:
            offset = base_offset + batch.count - 1
            self.last_acked_offset = max(self.last_acked_offset, offset)
            if self.last_acked is None or offset > self.last_acked.offset:
                self.last_acked = Acked(offset, batch.producer_id, batch.epoch, batch.last_sequence)
        self.suspect = None
        self._settle()

    @property
    def offset_is_known(self) -> bool:
        """Whether `last_acked_offset` is that of the newest acknowledged record, or a bound above it."""
        return self._offset_is_known

    def bound_offset(self, end_offset: int) -> None:
        """All that was acknowledged lies below this offset: what to ask after a success without one."""
        if not self._offset_is_known:
            self._offset_is_known = self._is_bound = True
            # A log that ends below where the record must have been was cut meanwhile: nothing bounds it then.
            bound = end_offset - 1 if end_offset > self._least_offset else OFFSET_MAX
            self.last_acked_offset = max(self.last_acked_offset, bound)

    def failed(
        self,
        batch: B,
        code: int,
        *,
        retriable: bool,
        log_start_offset: int = NO_OFFSET,
        copies_alive: bool = False,
    ) -> Verdict:
        """What an answer other than success means; an answer that never came is a retriable NETWORK_EXCEPTION."""
        self._landed(batch)
        if code in _FENCED:
            return Verdict.FENCED
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            verdict = Verdict.DONE
        elif code in _OUT_OF_STEP:
            verdict = self._out_of_step(batch, code, log_start_offset, copies_alive)
        else:
            verdict = Verdict.PUT_BACK if retriable else Verdict.DROPPED
        if verdict is Verdict.DONE:
            self._finish(batch, NO_OFFSET)
        if verdict in (Verdict.OUT_OF_ORDER, Verdict.UNKNOWN_PRODUCER, Verdict.DONE):
            return verdict
        if verdict is Verdict.NEW_START:
            self.restarting = True
        if batch.given_up:
            verdict = Verdict.DROPPED
            self.is_looking = False
        if verdict is Verdict.DROPPED:
            self._drop(batch)
        else:
            self._catching_up = True
        return verdict

    def _out_of_step(self, batch: B, code: int, log_start_offset: int, copies_alive: bool) -> Verdict:
        is_unknown = code == ErrorCode.UNKNOWN_PRODUCER_ID
        if self.unfinished[0] is not batch:
            return Verdict.PUT_BACK
        is_below = self.last_acked_sequence >= 0 and precedes(batch.base_sequence, self.last_acked_sequence)
        if is_below and not is_unknown and not self.searches:
            return Verdict.DONE
        if not self._offset_is_known:
            return Verdict.WAIT  # until it is bounded
        is_told = log_start_offset >= 0
        nothing_missing = log_start_offset > self.last_acked_offset if is_told else self.last_acked_offset < 0
        if is_unknown:
            if not nothing_missing:
                return Verdict.UNKNOWN_PRODUCER
            hides_loss = False
        elif not self.searches:
            self.is_looking = True
            return Verdict.LOOK
        else:
            hides_loss = not nothing_missing
            if hides_loss and not batch.after_gap:
                return Verdict.OUT_OF_ORDER
        if copies_alive:
            return Verdict.WAIT
        self._hides_loss = hides_loss
        return Verdict.NEW_START

    # -- what the log told

    def found(self, batch: B, base_offset: int) -> None:
        """After LOOK: the batch is in the log."""
        self.is_looking = False
        if batch in self.unfinished:
            self._finish(batch, base_offset)

    def not_found(self) -> None:
        """After LOOK: it is not, and nothing that was acknowledged is missing: a new start is due."""
        self.is_looking = False
        self.restarting = True
        self._hides_loss = True

    # -- giving up, splitting

    def withdraw(self, batch: B) -> None:
        """Takes back the sequences of the last batch, which could not be sent at all."""
        self._landed(batch)
        self.unfinished.remove(batch)
        self.next_sequence = batch.base_sequence
        self._gap_at_end = batch.after_gap
        self._settle()

    def release(self, batch: B) -> None:
        """The batch goes on without sequences: its topic has none."""
        if batch.in_flight:
            self._landed(batch)
        self.unfinished.remove(batch)
        batch.producer_id = batch.epoch = batch.base_sequence = -1

    def give_up(self, batch: B) -> None:
        """Nobody waits for this batch any more (rule 6). In flight it stays until its answer, which may still count."""
        if batch.in_flight:
            batch.given_up = True
        else:
            self._drop(batch)

    def abandon(self, batch: B) -> None:
        """Its transaction will be aborted: whatever it was answered, it is not sent again."""
        self._landed(batch)
        self._drop(batch)

    def rewind(self) -> None:
        """After an aborted transaction, all of which that was not acknowledged is not in the log: goes on behind what
        was; from 0 if the broker has forgotten the producer."""
        if self.restarting or self.last_acked_sequence < 0:
            self.last_acked_sequence = -1
            self.next_sequence = 0
        else:
            self.next_sequence = sequence_after(self.last_acked_sequence, 1)
        self.restarting = self.is_looking = False
        self._gap_at_end = self._catching_up = self._hides_loss = False

    def split(self, batch: B, parts: list[B]) -> None:
        """Replaces a batch that is not in flight by smaller ones of the same records (rule 8)."""
        index = self.unfinished.index(batch)
        sequence = batch.base_sequence
        for part in parts:
            part.producer_id, part.epoch, part.base_sequence = batch.producer_id, batch.epoch, sequence
            sequence = sequence_after(sequence, part.count)
        parts[0].after_gap = batch.after_gap
        self.unfinished[index : index + 1] = parts
        self._catching_up = True

    def too_large(self, batch: B) -> None:
        """It was answered that it is too large, and will be split."""
        self._landed(batch)

    def _drop(self, batch: B) -> None:
        index = self.unfinished.index(batch)
        del self.unfinished[index]
        if index < len(self.unfinished):
            self.unfinished[index].after_gap = True
        else:
            self._gap_at_end = True
        self._catching_up = True

    # -- a new start

    def may_restart(self) -> bool:
        """A new start is due, and nothing is in flight any more."""
        return self.restarting and not self.in_flight

    @property
    def needs_producer_id(self) -> bool:
        """The next new start takes another producer id: the epochs of this one are used up."""
        return self.epoch >= EPOCH_MAX

    def restart(self, fresh: tuple[int, int] | None = None) -> None:
        """The new start (rule 5), with `fresh` (producer id, epoch) if one is needed."""
        if fresh is not None:
            self.producer_id, self.epoch = fresh
        else:
            self.epoch += 1
        self.next_sequence = 0
        self.last_acked_sequence = -1
        self.suspect = self.last_acked if self._hides_loss else None
        self._hides_loss = False
        self._gap_at_end = False
        self.restarting = False
        self._catching_up = True
        for batch in self.unfinished:
            batch.producer_id, batch.epoch, batch.base_sequence = self.producer_id, self.epoch, self.next_sequence
            batch.after_gap = False
            self.next_sequence = sequence_after(self.next_sequence, batch.count)
        self._settle()

    def _landed(self, batch: B) -> None:
        batch.in_flight = False
        self.in_flight -= 1

    def _settle(self) -> None:
        if not self.unfinished and not self._gap_at_end and self.suspect is None:
            self._catching_up = False
