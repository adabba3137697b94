"""The machine of one share partition (KIP-932): which offsets are delivered to which member, how often, until when.

No clock and no I/O: time is an argument, records to read are described by their batches, and state to store is
returned. The owner stores it, and calls `finish` with the outcome. Rules: Kafka 4.4's `SharePartition`.

Offsets below the start offset are done. From there to the end offset they are in flight: available, acquired by a
member with a lock, or in a terminal state. After a restart the stored state may have gaps: the offsets in them are
fetched again.
"""

# The classes of this module change one state.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

from ...protocol.errors import ErrorCode
from ...protocol.frozen import frozen
from ...protocol.named import NamedTuple
from ..errors import Refused
from ..metrics.histogram import Histogram
from .in_flight import NO_MEMBER, Held, InFlightBatch, Transition
from .values import (
    Acknowledgement,
    AcknowledgeType,
    Acquired,
    DeadLetters,
    DeliveryEnd,
    FetchedBatch,
    InFlight,
    RecordState,
    StateBatch,
    StoredState,
    joined,
)

BATCH_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
LEAST_SHRINKING_COUNT = 2  # a smaller delivery count does not shrink deliveries

_STATES = {
    AcknowledgeType.GAP: (RecordState.ARCHIVED, DeliveryEnd.GAP),
    AcknowledgeType.ACCEPT: (RecordState.ACKNOWLEDGED, DeliveryEnd.ACCEPTED),
    AcknowledgeType.RELEASE: (RecordState.AVAILABLE, DeliveryEnd.RELEASED),
    AcknowledgeType.REJECT: (RecordState.ARCHIVED, DeliveryEnd.REJECTED),
}


@frozen
class ShareRules:
    """The configs of a group for its share partitions, with Kafka's defaults.

    `shrinks` delivers records that were delivered often in smaller and smaller parts, on the last attempt one by one
    (KIP-1206). `has_dead_letters` writes records that were not accepted to a dead-letter queue (KIP-1191).
    """

    max_in_flight: int = 2000
    delivery_limit: int = 5
    lock_ms: int = 30_000
    renews: bool = True
    shrinks: bool = True
    has_dead_letters: bool = False

    @property
    def after_last(self) -> RecordState:
        """The state of a record that was not accepted and is not delivered again."""
        return RecordState.ARCHIVING if self.has_dead_letters else RecordState.ARCHIVED


class Acquisition(NamedTuple):
    """The wishes of a ShareFetch: with `is_strict` no more records than requested, without it whole batches of the log;
    `batch_size` splits the acquired offsets.
    """

    member: str
    is_strict: bool
    batch_size: int


class Fetched(NamedTuple):
    """The batches that a read of the log returned, and its aborted transactions as (producer id, first offset)."""

    batches: Sequence[FetchedBatch]
    aborted: Sequence[tuple[int, int]] = ()


class SharePartition:
    """The state of one share partition. `rules` returns the group's configs, which may change at any time."""

    def __init__(self, stored: StoredState, rules: Callable[[], ShareRules]) -> None:
        """Continues from stored state whose start offset is known. Raises ValueError if the state is not valid."""
        self._rules = rules
        self.start_offset = stored.start_offset
        """The first offset that is not done."""
        self._batches: list[InFlightBatch] = []  # in order of their offsets
        self.lock_timeouts = 0
        """The number of records whose lock has expired."""
        self.batch_sizes = Histogram(BATCH_SIZES, 1)
        """The number of records of each batch when it came into flight."""
        self._looks_for_free = False  # whether some offset at or below the end may be available
        self._gap: tuple[int, int] | None = None  # (end offset of the stored state, first offset of the rest of gaps)
        self.unwritten: list[DeadLetters] = []
        """Stored offsets whose records may not be in the dead-letter queue yet. Why is not stored."""
        limit = rules().delivery_limit
        end = stored.start_offset - 1
        for first, last, state, count in stored.batches:
            if first <= end or last < first:
                raise ValueError(f"stored state of offsets {first} to {last} after {end}")
            if self._gap is None and first > end + 1:
                self._gap = stored.batches[-1].last, end + 1
            end = last
            self._batches.append(InFlightBatch(first, last, Held(RecordState(state), count)))
            self.batch_sizes.add(last - first + 1)
            if state == RecordState.ARCHIVING:
                self.unwritten.append(DeadLetters(first, last, count, is_rejected=count < limit))
        self.end_offset = end if self._batches else self.start_offset
        """The last offset in flight; the start offset if there is none."""
        if self._batches:
            self._looks_for_free = True
            self.advance()

    # --- positions -----------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """The number of offsets in flight."""
        return self.end_offset - self.start_offset + 1 if self._batches else 0

    @property
    def batches_in_flight(self) -> int:
        """The number of batches in flight."""
        return len(self._batches)

    @property
    def delivery_complete_count(self) -> int:
        """The number of offsets in flight in a terminal state (KIP-1226)."""
        return sum(
            last - max(first, self.start_offset) + 1
            for batch in self._batches
            for first, last, held in batch.parts()
            if held.state.is_terminal and last >= self.start_offset
        )

    @property
    def batches(self) -> list[StateBatch]:
        """The offsets in flight with their states, in order."""
        return [
            StateBatch(first, last, held.state, held.count)
            for batch in self._batches
            for first, last, held in batch.parts()
        ]

    def records(self) -> list[InFlight]:
        """Returns the offsets in flight from the start offset on, in order; those with equal states in one range."""
        start = self.start_offset
        return joined(
            InFlight(max(first, start), last, held.state, held.count, held.ended, held.member, held.deadline_ms)
            for batch in self._batches
            for first, last, held in batch.parts()
            if last >= start
        )

    def next_fetch_offset(self) -> int:
        """Returns the offset from which the group reads next: the first available one, or the one after the end."""
        if self._looks_for_free and not self._is_empty:
            gap = self._gap_start()
            for batch in self._batches:
                if gap is not None:
                    if batch.first > gap:
                        return gap
                    gap = max(batch.last + 1, gap)
                for first, _, held in batch.parts():
                    if held.is_free:
                        return first
            if gap is not None:  # no gap is left: the start offset may pass the stored state
                self._gap = None
                self.advance()
        self._looks_for_free = False
        return self.end_offset if self._is_empty else self.end_offset + 1

    @property
    def _is_empty(self) -> bool:
        return not self._batches or self.start_offset > self._batches[-1].last

    def can_acquire(self) -> bool:
        """Returns whether a read from `next_fetch_offset` may acquire records."""
        return self.next_fetch_offset() != self.end_offset + 1 or self.in_flight < self._rules().max_in_flight

    # --- acquiring -----------------------------------------------------------------------------------------------

    def acquire(
        self, wanted: Acquisition, max_records: int, fetch_offset: int, fetched: Fetched, now_ms: int
    ) -> list[Acquired]:
        """Acquires records of the batches that were read from `fetch_offset` on; returns the acquired ranges."""
        if max_records <= 0 or not fetched.batches:
            return []
        first, last = fetched.batches[0].first, fetched.batches[-1].last
        if last < self.start_offset:
            return []
        limit = min(max_records, self._rules().max_in_flight - self.in_flight)
        if limit <= 0:  # offsets that are in flight already can still be acquired
            if fetch_offset > self.end_offset:
                return []
            limit = min(max_records, self.end_offset - fetch_offset + 1)
            last = min(last, self.end_offset)
        self._archive_vanished(fetch_offset, first)
        acquired = _Acquiring(self, wanted, fetched.batches, limit, first, last, now_ms).run()
        acquired = self._without_aborted(acquired, fetched)
        self.advance()
        return acquired

    def _archive_vanished(self, fetch_offset: int, first: int) -> None:
        """Archives available offsets between the fetch offset and the first batch read: they are in the log no more."""
        if fetch_offset < first and self._archive(fetch_offset, first - 1, RecordState.AVAILABLE):
            self._looks_for_free = True

    def _archive(self, first: int, last: int, state: RecordState) -> bool:
        """Archives the offsets between these two in a state; returns whether there were any."""
        found = False
        for batch in self._overlapping(first, last):
            if batch.whole is not None and batch.whole.state is not state:
                continue
            if batch.whole is not None and batch.lies_within(first, last):
                batch.whole.archive()
                found = True
                continue
            for _, held in batch.parts_within(first, last):
                if held.state is state:
                    held.archive()
                    found = True
        return found

    def _without_aborted(self, acquired: list[Acquired], fetched: Fetched) -> list[Acquired]:
        """Archives acquired records of aborted transactions, and leaves them out."""
        for batch in _aborted_batches(fetched) if acquired and fetched.aborted else ():
            self._archive(batch.first, batch.last, RecordState.ACQUIRED)
            kept: list[Acquired] = []
            for first, last, count in acquired:
                if last < batch.first or first > batch.last:
                    kept.append(Acquired(first, last, count))
                    continue
                if first < batch.first:
                    kept.append(Acquired(first, batch.first - 1, count))
                if last > batch.last:
                    kept.append(Acquired(batch.last + 1, last, count))
            acquired = kept
        return acquired

    # --- acknowledging -------------------------------------------------------------------------------------------

    def acknowledge(self, member: str, acknowledgements: Iterable[Acknowledgement], now_ms: int) -> Transition:
        """Begins all of a member's acknowledgements, or none. Raises Refused.

        The state in the transition is to be stored, then `finish` is called; without any, it has finished.
        """
        transition = Transition()
        try:
            for acknowledgement in acknowledgements:
                if not set(acknowledgement.types) <= set(AcknowledgeType):
                    raise Refused(ErrorCode.INVALID_REQUEST, f"Invalid acknowledge type: {acknowledgement.types}")
                if acknowledgement.last >= self.start_offset:
                    self._acknowledge(member, acknowledgement, transition, now_ms)
        except Refused:
            self.finish(transition, committed=False, now_ms=now_ms)
            raise
        return transition

    def _acknowledge(self, member: str, given: Acknowledgement, transition: Transition, now_ms: int) -> None:
        floor = self._floor(given.first)
        if floor < 0 and given.first < self.start_offset:
            floor = self._floor(self.start_offset)
        if floor < 0:
            raise Refused(
                ErrorCode.INVALID_RECORD_STATE,
                "Batch record not found. The request batch offsets are not found in the cache.",
            )
        found = self._batches[floor : self._floor(given.last) + 1]
        if found[-1].last < given.first:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The first offset in request is past acquired records.",
            )
        if given.last > found[-1].last:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "Batch record not found. The last offset in request is past acquired records.",
            )
        for batch in found:
            if batch.last < self.start_offset:
                continue
            whole = batch.whole
            if whole is not None:
                _check_owner(whole, member)
            first = max(given.first, self.start_offset)
            if whole is not None and batch.lies_within(first, given.last) and len(given.types) == 1:
                self._settle(batch.first, batch.last, whole, given.types[0], transition, now_ms)
                continue
            for offset, held in batch.parts_within(first, given.last):
                if held.state is not RecordState.ACQUIRED:
                    raise _wrong_state("The offset cannot be acknowledged. The offset is not acquired.")
                if held.member != member:
                    raise _wrong_state("Member is not the owner of offset")
                kind = given.types[0] if len(given.types) == 1 else given.types[offset - given.first]
                self._settle(offset, offset, held, kind, transition, now_ms)

    def _settle(self, first: int, last: int, held: Held, kind: int, transition: Transition, now_ms: int) -> None:
        """Applies an acknowledgement to acquired offsets with one state."""
        rules = self._rules()
        if kind == AcknowledgeType.RENEW:
            if not rules.renews:
                raise _wrong_state("Renewing acquisition locks is not enabled for the group.")
            held.deadline_ms = now_ms + rules.lock_ms
            return
        state, end = _STATES[AcknowledgeType(kind)]
        _begin((first, last, held), state, end, transition, rules)

    def release(self, member: str) -> Transition:
        """Begins the release of everything that a member has acquired, with its delivery counts. See `acknowledge`."""
        transition, rules = Transition(), self._rules()
        for batch in self._batches:
            whole = batch.whole
            if whole is not None and (whole.state is not RecordState.ACQUIRED or whole.member != member):
                continue
            if whole is not None and batch.first < self.start_offset <= batch.last:
                batch.split()
            for first, last, held in batch.parts():
                if held.state is RecordState.ACQUIRED and held.member == member:
                    is_below = last < self.start_offset
                    state = RecordState.ARCHIVED if is_below else RecordState.AVAILABLE
                    _begin((first, last, held), state, DeliveryEnd.SESSION_CLOSED, transition, rules)
        return transition

    def finish(self, transition: Transition, *, committed: bool, now_ms: int) -> None:
        """Completes a transition whose state is stored, or takes it back."""
        limit = self._rules().delivery_limit
        for changed in transition.batches:
            for batch in self._overlapping(changed.first, changed.last):
                for _, _, held in batch.parts():
                    if held.pending is transition:
                        held.end(committed=committed, limit=limit, now_ms=now_ms)
                        self._looks_for_free |= held.state is RecordState.AVAILABLE
        self.advance()

    # --- time and the log ----------------------------------------------------------------------------------------

    def due_ms(self) -> int | None:
        """Returns the time at which the next lock expires, or None."""
        deadlines = (held.deadline_ms for held in self._acquired())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def _acquired(self) -> Iterable[Held]:
        for batch in self._batches:
            for _, _, held in batch.parts():
                if held.state is RecordState.ACQUIRED:
                    yield held

    def expire(self, now_ms: int) -> list[StateBatch]:
        """Ends the locks that are due. Returns the state to store, after which `advance` is called. The locks have
        ended whether or not it is stored.
        """
        rules = self._rules()
        changed: list[StateBatch] = []
        for batch in self._batches:
            whole = batch.whole
            if whole is not None and (whole.state is not RecordState.ACQUIRED or not _is_due(whole, now_ms)):
                continue
            if batch.first < self.start_offset <= batch.last:
                batch.split()
            for first, last, held in batch.parts():
                if held.state is RecordState.ACQUIRED and _is_due(held, now_ms):
                    if last < self.start_offset:
                        held.expire(0, RecordState.ARCHIVED)
                    else:
                        self._looks_for_free |= held.expire(rules.delivery_limit, rules.after_last)
                    self.lock_timeouts += last - first + 1
                    changed.append(StateBatch(first, last, held.state, held.count))
        return changed

    def archive_dead_letters(self, letters: DeadLetters) -> StateBatch:
        """Archives offsets that were written to the dead-letter queue, or could not be. Returns the state to store,
        after which `advance` is called.
        """
        self._archive(letters.first, letters.last, RecordState.ARCHIVING)
        return StateBatch(letters.first, letters.last, RecordState.ARCHIVED, letters.delivery_count)

    def log_start_moved(self, log_start: int) -> None:
        """Moves the start offset up to the log start. Acquired records below it are archived when their lock ends."""
        if log_start <= self.start_offset:
            return
        if not self._batches:
            self.start_offset = self.end_offset = log_start
            return
        if self._archive(self.start_offset, log_start - 1, RecordState.AVAILABLE):
            self._looks_for_free = True
        if self._gap is not None and self._gap[1] < log_start:
            self._move_gap(log_start)
        self.start_offset = log_start
        self.end_offset = max(self.end_offset, log_start)

    def advance(self) -> None:
        """Moves the start offset past settled offsets, and drops their batches."""
        if not self._can_advance():
            return
        settled = self._last_settled()
        if settled is None:
            return
        if settled == self._batches[-1].last:
            self.start_offset = self.end_offset = max(settled + 1, self.start_offset)
            self._batches.clear()
            return
        floor = self._floor(settled)
        if settled == self._batches[floor].last:
            self.start_offset = max(self.start_offset, self._batches[floor + 1].first)
            gap = self._gap_start()
            if gap is not None:
                self.start_offset = min(gap, self.start_offset)
            floor += 1
        else:
            self.start_offset = max(self.start_offset, settled + 1)
        del self._batches[:floor]

    def _can_advance(self) -> bool:
        floor = self._floor(self.start_offset)
        if floor < 0:
            return False
        batch = self._batches[floor]
        if batch.offsets is None:
            assert batch.whole is not None
            return batch.whole.is_settled
        return batch.offsets[min(self.start_offset, batch.last) - batch.first].is_settled

    def _last_settled(self) -> int | None:
        """The last offset before the first one that is not settled."""
        settled: int | None = None
        gap = self._gap_start()
        for batch in self._batches:
            if gap is not None and batch.last >= gap:
                return settled
            for _, last, held in batch.parts():
                if not held.is_settled:
                    return settled
                settled = last
        return settled

    # --- batches and gaps ----------------------------------------------------------------------------------------

    def _floor(self, offset: int) -> int:
        """The index of the last batch that begins at or below the offset, or -1."""
        return bisect_right(self._batches, offset, key=_first) - 1

    def _overlapping(self, first: int, last: int) -> list[InFlightBatch]:
        found = self._batches[max(self._floor(first), 0) : self._floor(last) + 1]
        return found[1:] if found and found[0].last < first else found

    def _gap_start(self) -> int | None:
        """The first offset that may lie in a gap of the stored state, while no later offset was acquired."""
        return self._gap[1] if self._gap is not None and self._gap[0] == self.end_offset else None

    def _move_gap(self, offset: int) -> None:
        """Notes that the offsets below this one are acquired or in flight."""
        if self._gap is not None:
            end = self._gap[0]
            self._gap = (end, offset) if end == self.end_offset and offset <= end else None

    def _insert(self, batch: InFlightBatch) -> None:
        self._batches.insert(self._floor(batch.first) + 1, batch)
        self.batch_sizes.add(batch.last - batch.first + 1)


class _Acquiring:
    """One call of `SharePartition.acquire`."""

    def __init__(
        self,
        machine: SharePartition,
        wanted: Acquisition,
        fetched: Sequence[FetchedBatch],
        limit: int,
        first: int,
        last: int,
        now_ms: int,
    ) -> None:
        self._machine = machine
        self._wanted = wanted
        self._fetched = fetched
        self._first, self._last = first, last
        self._left = limit
        self._rules = machine._rules()
        self._deadline_ms = now_ms + self._rules.lock_ms
        self._acquired: list[Acquired] = []
        limit_for_whole = max(LEAST_SHRINKING_COUNT, (self._rules.delivery_limit + 1) // 2)
        self._shrinks_from = limit_for_whole if self._rules.shrinks else None

    def run(self) -> list[Acquired]:
        machine, base = self._machine, self._first
        floor = machine._floor(base)
        if floor < 0:
            base = max(base, machine.start_offset)
        elif machine._batches[floor].last >= base:
            base = machine._batches[floor].first
        lowest = min(self._first, base)
        cached = [batch for batch in machine._overlapping(lowest, self._last) if batch.first >= lowest]
        if not cached:
            self._take_new(base, self._last)
            return self._acquired
        gap_from = base
        for batch in cached:
            if self._left <= 0:
                break
            if machine._gap_start() is not None:
                if gap_from < batch.first:
                    self._take_new(gap_from, batch.first - 1)
                gap_from = batch.last + 1
            if self._left > 0:
                self._take_cached(batch)
        if self._left > 0 and cached[-1].last < self._last:
            self._take_new(cached[-1].last + 1, self._last)
        if self._acquired:
            machine._move_gap(self._acquired[-1].last + 1)
        return self._acquired

    def _add(self, first: int, last: int, count: int) -> None:
        self._acquired.append(Acquired(first, last, count))
        self._left -= last - first + 1

    def _take_cached(self, batch: InFlightBatch) -> None:
        """Acquires the available offsets of a batch in flight."""
        shrinks = self._is_shrinking(batch)
        if shrinks and self._acquired:  # such records are delivered on their own
            self._left = 0
            return
        whole = batch.whole
        if whole is not None and not whole.is_free:
            return
        is_too_large = self._wanted.is_strict and batch.size > self._left
        if whole is not None and not is_too_large and not shrinks and batch.lies_within(self._first, self._last):
            whole.acquire(self._wanted.member, self._deadline_ms)
            self._add(batch.first, batch.last, whole.count)
        elif self._take_some(batch) and shrinks:
            self._left = 0

    def _is_shrinking(self, batch: InFlightBatch) -> bool:
        """Whether an available offset of the batch was delivered so often that it is delivered in a smaller part."""
        if self._shrinks_from is None:
            return False
        if batch.whole is not None:
            return batch.whole.is_free and batch.whole.count >= self._shrinks_from
        parts = batch.parts_within(self._first, self._last)
        return any(held.is_free and held.count >= self._shrinks_from for _, held in parts)

    def _take_some(self, batch: InFlightBatch) -> bool:
        """Acquires available offsets of a batch one by one. Returns whether there were any."""
        limit = self._rules.delivery_limit
        isolates = self._shrinks_from is not None and limit > LEAST_SHRINKING_COUNT
        most = {self._left} if self._wanted.is_strict else set[int]()
        shrunk = False
        taken: list[Acquired] = []
        for offset, held in batch.parts_within(self._first, self._last):
            if not held.is_free:
                continue
            if isolates and held.count == limit - 1 and taken:
                break
            if self._shrinks_from is not None and held.count >= self._shrinks_from and not shrunk:
                shrunk = True
                most.add(max(1, batch.size >> (held.count - self._shrinks_from + 1)))
            held.acquire(self._wanted.member, self._deadline_ms)
            taken.append(Acquired(offset, offset, held.count))
            if len(taken) in most or (isolates and held.count == limit):
                break
        for first, last, count in joined(taken):
            self._add(first, last, count)
        return bool(taken)

    def _take_new(self, first: int, last: int) -> None:
        """Acquires offsets that are not in flight yet."""
        machine, most, member = self._machine, self._left, self._wanted.member
        if not machine._batches:
            first = max(first, machine.end_offset)
        if last - first + 1 > most:
            end = self._end_of_batch(first + most - 1)
            last = min(end, last) if machine._gap_start() is not None else end
        if self._wanted.is_strict and last - first + 1 > most:
            self._take_first_of(first, last, most)
        else:
            for start, end in self._ranges(first, last):
                machine._insert(InFlightBatch(start, end, Held(RecordState.ACQUIRED, 1, member, self._deadline_ms)))
                self._add(start, end, 1)
        if machine._batches[0].first == first:
            machine.start_offset = first
        machine.end_offset = max(machine.end_offset, last)
        machine._move_gap(self._acquired[-1].last + 1)

    def _take_first_of(self, first: int, last: int, most: int) -> None:
        """Acquires the first offsets of new ones; the others are in flight and available."""
        batch = InFlightBatch(first, last, Held(RecordState.AVAILABLE, 0))
        for held in batch.split()[:most]:
            held.acquire(self._wanted.member, self._deadline_ms)
        self._machine._insert(batch)
        self._machine._looks_for_free = True
        self._add(first, first + most - 1, 1)

    def _ranges(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        """The offsets in parts of the wanted batch size, at the boundaries of the log's batches."""
        size = self._wanted.batch_size
        if not self._wanted.is_strict and last - first + 1 > size:
            for batch in self._fetched:
                if first < batch.first <= last and batch.first - first >= size:
                    yield first, batch.first - 1
                    first = batch.first
        yield first, last

    def _end_of_batch(self, offset: int) -> int:
        """The last offset of the log's batch with this offset; the offset itself if none has it."""
        index = bisect_right(self._fetched, offset, key=_first) - 1
        return max(offset, self._fetched[index].last) if index >= 0 else offset


def _first(batch: InFlightBatch | FetchedBatch) -> int:
    return batch.first


def _is_due(held: Held, now_ms: int) -> bool:
    return held.deadline_ms is not None and held.deadline_ms <= now_ms


def _begin(
    part: tuple[int, int, Held], state: RecordState, end: DeliveryEnd, transition: Transition, rules: ShareRules
) -> None:
    """Begins the transition of acquired offsets with one state, which may have had their last delivery."""
    first, last, held = part
    is_rejected = end is DeliveryEnd.REJECTED
    if is_rejected or (state is RecordState.AVAILABLE and held.count >= rules.delivery_limit):
        state = rules.after_last
    held.begin(transition, state, end)
    transition.batches.append(StateBatch(first, last, state, held.count))
    if state is RecordState.ARCHIVING:
        transition.dead_letters.append(DeadLetters(first, last, held.count, is_rejected))


def _wrong_state(text: str) -> Refused:
    return Refused(ErrorCode.INVALID_RECORD_STATE, text)


def _check_owner(held: Held, member: str) -> None:
    """Refuses the acknowledgement of a batch that the member has not acquired."""
    if held.pending is not None or held.state is not RecordState.ACQUIRED or held.member == NO_MEMBER:
        raise _wrong_state("The batch cannot be acknowledged. The batch is not in the acquired state.")
    if held.member != member:
        raise _wrong_state("Member is not the owner of batch record")


def _aborted_batches(fetched: Fetched) -> list[FetchedBatch]:
    """Returns the batches with records of aborted transactions."""
    coming = sorted(fetched.aborted, key=lambda one: one[1], reverse=True)
    aborted: set[int] = set()
    found: list[FetchedBatch] = []
    for batch in fetched.batches:
        if batch.producer_id < 0:
            continue
        while coming and coming[-1][1] <= batch.last:
            aborted.add(coming.pop()[0])
        if batch.is_abort:
            aborted.discard(batch.producer_id)
        elif batch.is_transactional and not batch.is_control and batch.producer_id in aborted:
            found.append(batch)
    return found
