"""Records in flight: the state of a batch of offsets as a whole, or of each of its offsets.

A batch begins as one state for all its offsets, and is split into one state for each when they begin to differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .values import DeadLetters, DeliveryEnd, RecordState, StateBatch

NO_MEMBER = ""


@dataclass(slots=True, eq=False)
class Transition:
    """An acknowledgement or release under way, until it is stored. Compared by identity."""

    batches: list[StateBatch] = field(default_factory=list[StateBatch])
    """The new state of the offsets, to be stored."""
    dead_letters: list[DeadLetters] = field(default_factory=list[DeadLetters])
    """Those of them to write to the dead-letter queue after that."""


@dataclass(slots=True, eq=False)
class Held:
    """The state of one offset, or of all offsets of a batch: its delivery count, the member that has acquired it, and
    the time at which its lock expires. `ended` is how the last delivery ended, None before and after a restart.
    """

    state: RecordState
    count: int
    member: str = NO_MEMBER
    deadline_ms: int | None = None
    ended: DeliveryEnd | None = None
    pending: Transition | None = None
    """The transition under way, which either completes or is taken back."""
    _before: str = NO_MEMBER  # the member before the transition

    def copy(self) -> Held:
        """Returns a state of its own with the same values, in the same transition."""
        return Held(self.state, self.count, self.member, self.deadline_ms, self.ended, self.pending, self._before)

    @property
    def is_free(self) -> bool:
        """Whether it can be acquired."""
        return self.state is RecordState.AVAILABLE and self.pending is None

    @property
    def is_settled(self) -> bool:
        """Whether it is in a terminal state that is not taken back any more."""
        return self.pending is None and self.state.is_terminal

    def acquire(self, member: str, deadline_ms: int) -> None:
        """Locks it for a member until `deadline_ms`."""
        self.state, self.member, self.deadline_ms = RecordState.ACQUIRED, member, deadline_ms
        self.count += 1

    def expire(self, limit: int, after_last: RecordState) -> bool:
        """Ends the lock: `after_last` after the last delivery, else AVAILABLE again, which is returned."""
        is_last = self.count >= limit
        self.state = after_last if is_last else RecordState.AVAILABLE
        self.member, self.deadline_ms, self.ended = NO_MEMBER, None, DeliveryEnd.LOCK_EXPIRED
        return not is_last

    def begin(self, transition: Transition, state: RecordState, end: DeliveryEnd) -> None:
        """Begins a transition from ACQUIRED to `state`. The lock stays until the transition ends."""
        self.pending, self._before, self.ended = transition, self.member, end
        self.state, self.member = state, NO_MEMBER

    def end(self, *, committed: bool, limit: int, now_ms: int) -> None:
        """Completes the transition, or takes it back; a lock that has expired meanwhile is not restored."""
        self.pending = None
        if committed:
            self.deadline_ms = None
        elif self.deadline_ms is not None and self.deadline_ms <= now_ms:
            self.expire(limit, RecordState.ARCHIVED)
        else:
            self.state, self.member = RecordState.ACQUIRED, self._before

    def archive(self) -> None:
        """Archives it for good, also during a transition."""
        self.state, self.member, self.deadline_ms, self.pending = RecordState.ARCHIVED, NO_MEMBER, None, None


@dataclass(slots=True, eq=False)
class InFlightBatch:
    """The offsets from `first` to `last` with one state: `whole` for all, or `offsets` with one for each."""

    first: int
    last: int
    whole: Held | None
    offsets: list[Held] | None = None

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.last - self.first + 1

    def split(self) -> list[Held]:
        """Returns the states of the offsets in order; from now on each offset has its own."""
        if self.offsets is None:
            assert self.whole is not None
            self.offsets = [self.whole.copy() for _ in range(self.size)]
            self.whole = None
        return self.offsets

    def parts(self) -> Iterator[tuple[int, int, Held]]:
        """Yields (first offset, last offset, state) of all states, in order."""
        if self.offsets is None:
            assert self.whole is not None
            yield self.first, self.last, self.whole
        else:
            for offset, held in enumerate(self.offsets, self.first):
                yield offset, offset, held

    def parts_within(self, first: int, last: int) -> Iterator[tuple[int, Held]]:
        """Yields (offset, state) of the offsets between these two of a split batch."""
        offsets = self.split()
        for offset in range(max(first, self.first), min(last, self.last) + 1):
            yield offset, offsets[offset - self.first]

    def lies_within(self, first: int, last: int) -> bool:
        """Returns whether all its offsets are between these two."""
        return self.first >= first and self.last <= last
