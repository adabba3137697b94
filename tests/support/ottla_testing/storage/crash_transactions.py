"""What the crash tests know of transactions: who is in one, what was aborted, what a producer may be known by.

All of it follows from the batches that were tried, oldest first, so that it stays right when a stop takes the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from ottla.protocol.records import batch
from ottla.storage.partition_log import PartitionLog
from ottla.storage.producers.producer_state import Producer

DATA, OFFSETS, COMMIT, ABORT = "data", "offsets", "commit", "abort"
MARKERS = (COMMIT, ABORT)


class Written(Protocol):
    """A batch of a producer: (id, epoch, first sequence), the last -1 where it has none."""

    @property
    def producer(self) -> tuple[int, int, int] | None: ...

    @property
    def kind(self) -> str:
        """One of the words above; empty outside of transactions."""
        ...

    @property
    def first(self) -> int: ...

    @property
    def end(self) -> int: ...


@dataclass
class State:
    """A producer. `next_sequence` is 0 and `data_end` -1 where no batch of the epoch is known."""

    epoch: int = 0
    next_sequence: int = 0
    data_end: int = -1
    open_from: int = -1
    end: int = 0


def states(batches: Iterable[Written], start: int = 0) -> dict[int, State]:
    """The producers that these batches leave, of those that end behind `start`."""
    found: dict[int, State] = {}
    for one in batches:
        if one.producer is None or one.end <= start:
            continue
        producer_id, epoch, sequence = one.producer
        state = found.setdefault(producer_id, State(epoch))
        if state.epoch != epoch:
            state.epoch, state.next_sequence, state.data_end = epoch, 0, -1
        state.end = one.end
        if one.kind in MARKERS:
            state.open_from = -1
            continue
        state.next_sequence = sequence + one.end - one.first if sequence >= 0 else 0
        state.data_end = one.end
        if one.kind and state.open_from < 0:
            state.open_from = one.first
    return found


def next_of(batches: Iterable[Written], producer_id: int, log_start: int) -> tuple[int, int]:
    """The epoch and the sequence with which a producer goes on; who may be forgotten begins anew."""
    state = states(batches).get(producer_id, State())
    if state.next_sequence and state.data_end <= log_start:
        return state.epoch + 1, 0
    return state.epoch, state.next_sequence


def fates(batches: Iterable[Written]) -> tuple[set[int], set[int]]:
    """The offsets of what was aborted, and of what is open."""
    aborted: set[int] = set()
    pending: dict[int, set[int]] = {}
    for one in batches:
        if one.producer is None or not one.kind:
            continue
        if one.kind in MARKERS:
            ended = pending.pop(one.producer[0], set())
            aborted |= ended if one.kind == ABORT else set()
        else:
            pending.setdefault(one.producer[0], set()).update(range(one.first, one.end))
    return aborted, {offset for offsets in pending.values() for offset in offsets}


def markers(batches: Iterable[Written]) -> set[int]:
    """The offsets of markers."""
    return {one.first for one in batches if one.kind in MARKERS}


def stable_range(batches: list[Written], start: int, end: int) -> tuple[int, int]:
    """The least and the largest offset that may be the last stable one: what was open below the log start may be
    forgotten by a log that was opened since."""
    begun = [state.open_from for state in states(batches).values() if state.open_from >= 0]
    left = [offset for offset in fates(batches)[1] if offset >= start]
    return min([max(first, start) for first in begun], default=end), min(left, default=end)


def wrong_producer(known: Producer | None, whole: State, part: State | None, start: int, drops: bool) -> str:
    """What is wrong with what a log knows of a producer, of which all batches leave `whole`, and those that reach to
    the log start `part`. `drops`: the log forgets producers below its start. Empty if nothing is wrong."""
    surely = part is not None and part.data_end > start
    if known is None:
        return "it is not known" if surely else ""
    if known.epoch != whole.epoch:
        return f"epoch {known.epoch} and not {whole.epoch}"
    last = known.batches[-1].last_sequence if known.batches else None
    expected = (whole.next_sequence or 0) - 1 if whole.data_end >= 0 else None
    if last != expected and (surely or last is not None):
        return f"last sequence {last} and not {expected}"
    if surely and known.last_offset != whole.data_end - 1:
        return f"last offset {known.last_offset} and not {whole.data_end - 1}"
    if drops and part is None and known.batches and whole.open_from < 0:
        return "it should be forgotten"
    first, latest = known.transaction_first_offset, part.open_from if part is not None else -1
    if surely and not whole.open_from <= first <= latest:  # as far as the log start was when it was taken in
        return f"its transaction begins at {first} and not at {whole.open_from} to {latest}"
    return ""


def end_all(log: PartitionLog, now_ms: int) -> None:
    """Ends whatever is open."""
    for producer_id in log.open_transactions():
        epoch = log.producers()[producer_id].epoch
        log.append_marker(producer_id, epoch, committed=True, coordinator_epoch=0, now_ms=now_ms)


def commit_of_offsets(number: int, timestamp: int) -> batch.Record:
    """What a coordinator of groups writes."""
    return batch.Record(0, timestamp, b"group", b"%d" % number)
