"""The sequence numbers of a producer in a partition: which batch may be sent, and what a response means.

Pure: no I/O, no clock. Sources: KAFKA-5494, KIP-192. The sender calls `may_drain` and `resendable`, reports batches
sent and their responses, and acts on the verdict. The rules, by number:

 1. A batch gets its sequences when it is drained, from 0 to 2^31 - 1 and then 0 again. A retry has the same sequences.
 2. Batches to be retried are sent first, in order of sequence, one at a time; no new batch is sent until all of them
    are acknowledged. Also, no second batch is sent on a connection before the first one is acknowledged, unless the
    broker searches its log for duplicates: a broker that has lost the producer state (at a restart) accepts any
    sequence, and so would accept the second batch without the first.
 3. After a retriable error, or without a response, the batch is retried.
 4. OUT_OF_ORDER (45) or UNKNOWN_PRODUCER_ID (59) for a batch with an unfinished batch before it: it is retried. For the
    first unfinished batch acknowledged records may be lost. If the log start offset is above the last acknowledged
    offset, no acknowledged record is missing: a new start (5). Otherwise the error is fatal.
 5. A new start: the epoch is bumped, so that delayed copies of older requests are fenced, and all unfinished batches
    get sequences from 0, when none of them is in flight. After epoch 32767 a new producer id is needed. A new start is
    also due when the broker, without producer state after such a deletion, accepts a retry of an old batch.
 6. A batch that is given up leaves a gap: it may be in the log or not. The next batch is sent alone. If it is accepted,
    the missing batch is in the log. If it is OUT_OF_ORDER, neither is: a new start without an error. But this error may
    hide the loss of acknowledged records: `suspect` is the newest of them, and is looked up in the log before the first
    acknowledgement after such a start is reported.
 7. DUPLICATE_SEQUENCE_NUMBER (46) is success without an offset; the response of a duplicate counts like any other. A
    batch below the last acknowledged one is in the log, whatever the error, unless the broker searches its log.
    INVALID_PRODUCER_EPOCH (47) is fatal.
 8. A batch that is too large is split in two, with the same sequences in total.
 9. Brokers that do not search their log also return 45 for a batch that is in the log but no longer in their cache, or
    without producer state. From them 45 for the first unfinished batch is ambiguous: the log is read (`LOOK`), and
    decides between written before, a new start, and a fatal error.

A new start while an older copy of a request may still arrive could write records twice: all copies without a response
must have expired before (`copies_alive`); until then the batch is retried.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from enum import Enum, auto
from typing import Generic, TypeVar

from ...protocol.errors import ErrorCode
from ...protocol.limits import INT16_MAX, INT32_MAX, INT64_MAX
from ...protocol.named import NamedTuple

SEQUENCE_MASK = INT32_MAX
EPOCH_MAX = INT16_MAX
NO_OFFSET = -1
OFFSET_MAX = INT64_MAX
_HALF = 2**30

_OUT_OF_STEP = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


def sequence_after(sequence: int, count: int) -> int:
    """Returns the sequence `count` records later."""
    return (sequence + count) & SEQUENCE_MASK


def precedes(first: int, second: int) -> bool:
    """Returns whether the first sequence is before the second; they must be less than 2^30 apart."""
    return 0 < ((second - first) & SEQUENCE_MASK) < _HALF


class Verdict(Enum):
    """The fate of a batch after an error or without a response."""

    PUT_BACK = auto()
    """Retried with the same sequences."""
    WAIT = auto()
    """As PUT_BACK, but not before all copies of requests without a response have expired."""
    NEW_START = auto()
    """Retried after a new start of the sequences."""
    DONE = auto()
    """In the log at an unknown offset."""
    DROPPED = auto()
    """Not retried: refused, or given up before."""
    LOOK = auto()
    """The log must be read for the batch and the acknowledged records; then `found` or `not_found` is called."""
    OUT_OF_ORDER = auto()
    """Fatal: acknowledged records are lost."""
    UNKNOWN_PRODUCER = auto()
    """Fatal: acknowledged records may be lost."""
    FENCED = auto()
    """Fatal: a producer with the same id has a newer epoch."""


@dataclass(slots=True, eq=False, repr=False, kw_only=True)
class Sequenced:
    """The base class of batches with sequences; `count` is the number of records."""

    count: int = 0
    producer_id: int = -1
    epoch: int = -1
    base_sequence: int = -1
    in_flight: bool = False
    given_up: bool = False
    after_gap: bool = False

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record."""
        return sequence_after(self.base_sequence, self.count - 1)


class Acked(NamedTuple):
    """The last record of an acknowledged batch in the log."""

    offset: int
    producer_id: int
    epoch: int
    sequence: int


B = TypeVar("B", bound=Sequenced)


@dataclass(slots=True, eq=False, repr=False)
class Sequences(Generic[B]):
    """The sequences of one partition. `searches`: the broker searches its log for duplicates beyond its cache."""

    producer_id: int
    epoch: int
    _: KW_ONLY
    searches: bool = False
    next_sequence: int = 0
    last_acked_sequence: int = -1  # of the current epoch
    last_acked_offset: int = NO_OFFSET  # of any epoch
    last_acked: Acked | None = None  # the newest one with a known offset, of any epoch
    unfinished: list[B] = field(default_factory=list[B])  # in order of sequence: in flight, or to be retried
    in_flight: int = 0
    restarting: bool = False
    is_looking: bool = False
    suspect: Acked | None = None
    offset_is_known: bool = True  # `last_acked_offset` is that of the newest acknowledged record, or a bound of it
    _least_offset: int = NO_OFFSET  # of the newest acknowledged record, if its offset is unknown
    _is_bound: bool = False
    _is_known: bool = False  # the broker has producer state
    _catching_up: bool = False
    _gap_at_end: bool = False
    _hides_loss: bool = False

    # Sending

    @property
    def is_in_step(self) -> bool:
        """Whether no batch is to be retried, and no gap is open."""
        return not self._catching_up and not self.restarting

    def may_drain(self) -> bool:
        """Returns whether a new batch may get sequences and be sent (rule 2)."""
        if self.restarting or self.is_looking:
            return False
        if not self.unfinished:
            return True
        return not self._catching_up and (self._is_known or self.searches)

    def on_new_connection(self) -> None:
        """Notes a new connection: the broker may have restarted, or be another one (rule 2)."""
        self._is_known = False

    def assign(self, batch: B) -> None:
        """Assigns sequences to a new batch (rule 1), which is in flight from then on."""
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
        """Returns the batch that may be retried now, or None."""
        if self.in_flight or self.restarting or self.is_looking or not self.unfinished:
            return None
        return self.unfinished[0]

    def resent(self, batch: B) -> None:
        """Marks a retried batch as in flight."""
        batch.in_flight = True
        self.in_flight += 1

    # Responses

    def succeeded(self, batch: B, base_offset: int = NO_OFFSET, log_start_offset: int = NO_OFFSET) -> None:
        """Handles an acknowledgement, of this request or of a duplicate; the offset is -1 if unknown."""
        self._landed(batch)
        self._finish(batch, base_offset, log_start_offset)

    def _finish(self, batch: B, base_offset: int, log_start_offset: int = NO_OFFSET) -> None:
        self.unfinished.remove(batch)
        self._is_known = True
        is_below = self.last_acked_sequence >= 0 and precedes(batch.base_sequence, self.last_acked_sequence)
        if is_below and min(base_offset, log_start_offset) > self.last_acked_offset and self.offset_is_known:
            # A retry was appended after later batches: these were deleted, and the broker has no producer state.
            # The next batch would be a gap.
            self.restarting = self._hides_loss = True
        if batch.epoch == self.epoch and batch.producer_id == self.producer_id:
            last = batch.last_sequence
            if self.last_acked_sequence < 0 or precedes(self.last_acked_sequence, last):
                self.last_acked_sequence = last
                # An unknown offset may be above all known ones.
                self.offset_is_known = base_offset >= 0
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

    def bound_offset(self, end_offset: int) -> None:
        """Sets a bound: all acknowledged records are below `end_offset`. For an acknowledgement without an offset."""
        if not self.offset_is_known:
            self.offset_is_known = self._is_bound = True
            # A log that ends below the least possible offset of the record was truncated: there is no bound.
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
        """Returns the verdict on an error code; a missing response is a retriable NETWORK_EXCEPTION."""
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
        if not self.offset_is_known:
            return Verdict.WAIT  # until the offset has a bound
        has_log_start = log_start_offset >= 0
        nothing_missing = log_start_offset > self.last_acked_offset if has_log_start else self.last_acked_offset < 0
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

    # Results of LOOK

    def found(self, batch: B, base_offset: int) -> None:
        """Handles a batch that was found in the log after LOOK."""
        self.is_looking = False
        if batch in self.unfinished:
            self._finish(batch, base_offset)

    def not_found(self) -> None:
        """Handles a batch that is not in the log after LOOK, without lost records: a new start is due."""
        self.is_looking = False
        self.restarting = True
        self._hides_loss = True

    # Giving up, splitting

    def withdraw(self, batch: B) -> None:
        """Takes back the sequences of the last batch, which could not be encoded."""
        self._landed(batch)
        self.unfinished.remove(batch)
        self.next_sequence = batch.base_sequence
        self._gap_at_end = batch.after_gap
        self._settle()

    def release(self, batch: B) -> None:
        """Removes the sequences of a batch, which is sent without idempotence."""
        if batch.in_flight:
            self._landed(batch)
        self.unfinished.remove(batch)
        batch.producer_id = batch.epoch = batch.base_sequence = -1

    def give_up(self, batch: B) -> None:
        """Gives up a batch (rule 6). One in flight stays until its response, which may still acknowledge it."""
        if batch.in_flight:
            batch.given_up = True
        else:
            self._drop(batch)

    def abandon(self, batch: B) -> None:
        """Drops a batch of a transaction that will be aborted, whatever the response."""
        self._landed(batch)
        self._drop(batch)

    def rewind(self) -> None:
        """Continues after the last acknowledged sequence, or from 0 if the broker has no producer state.

        For an aborted transaction whose unacknowledged batches are certainly not in the log.
        """
        if self.restarting or self.last_acked_sequence < 0:
            self.last_acked_sequence = -1
            self.next_sequence = 0
        else:
            self.next_sequence = sequence_after(self.last_acked_sequence, 1)
        self.restarting = self.is_looking = False
        self._gap_at_end = self._catching_up = self._hides_loss = False

    def split(self, batch: B, parts: list[B]) -> None:
        """Replaces a batch, after MESSAGE_TOO_LARGE, by parts with the same records (rule 8)."""
        self._landed(batch)
        index = self.unfinished.index(batch)
        sequence = batch.base_sequence
        for part in parts:
            part.producer_id, part.epoch, part.base_sequence = batch.producer_id, batch.epoch, sequence
            sequence = sequence_after(sequence, part.count)
        parts[0].after_gap = batch.after_gap
        self.unfinished[index : index + 1] = parts
        self._catching_up = True

    def _drop(self, batch: B) -> None:
        index = self.unfinished.index(batch)
        del self.unfinished[index]
        if index < len(self.unfinished):
            self.unfinished[index].after_gap = True
        else:
            self._gap_at_end = True
        self._catching_up = True

    # A new start

    def may_restart(self) -> bool:
        """Returns whether a new start is due and no batch is in flight."""
        return self.restarting and not self.in_flight

    @property
    def needs_producer_id(self) -> bool:
        """Whether the next new start needs a new producer id, since the epochs of this one are exhausted."""
        return self.epoch >= EPOCH_MAX

    def restart(self, fresh: tuple[int, int] | None = None) -> None:
        """Performs a new start (rule 5), with `fresh` (producer id, epoch) if a new id is needed."""
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
