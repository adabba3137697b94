"""The state of transactions for the crash tests: open and aborted ones, and the expected producer state.

All of it follows from the attempted batches, oldest first, so that it stays right when an interruption takes the last.
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
    """A batch of a producer: (id, epoch, first sequence), the last -1 if it has none."""

    @property
    def producer(self) -> tuple[int, int, int] | None: ...

    @property
    def kind(self) -> str:
        """One of the words above; empty outside transactions."""
        ...

    @property
    def first(self) -> int: ...

    @property
    def end(self) -> int: ...


@dataclass
class State:
    """A producer. `next_sequence` is 0 and `data_end` -1 without a known batch of the epoch."""

    epoch: int = 0
    next_sequence: int = 0
    data_end: int = -1
    open_from: int = -1
    end: int = 0


def states(batches: Iterable[Written], start: int = 0) -> dict[int, State]:
    """Returns the producers after these batches, of those that end above `start`."""
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
    """Returns the epoch and the sequence with which a producer continues; one that may be dropped starts again."""
    state = states(batches).get(producer_id, State())
    if state.next_sequence and state.data_end <= log_start:
        return state.epoch + 1, 0
    return state.epoch, state.next_sequence


def fates(batches: Iterable[Written]) -> tuple[set[int], set[int]]:
    """Returns the offsets of aborted records, and of those in open transactions."""
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
    """Returns the offsets of markers."""
    return {one.first for one in batches if one.kind in MARKERS}


def stable_range(batches: list[Written], start: int, end: int) -> tuple[int, int]:
    """Returns the least and the largest possible last stable offset: a log opened since may not know a transaction that
    began below the log start."""
    begun = [state.open_from for state in states(batches).values() if state.open_from >= 0]
    left = [offset for offset in fates(batches)[1] if offset >= start]
    return min([max(first, start) for first in begun], default=end), min(left, default=end)


def wrong_producer(known: Producer | None, whole: State, part: State | None, start: int, drops: bool) -> str:
    """Returns the error in a log's state of a producer, for which all batches lead to `whole`, and those above the log
    start to `part`. `drops`: the log drops producers below its start. Empty without an error."""
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
    if surely and not whole.open_from <= first <= latest:  # relative to the log start at the time when it was loaded
        return f"its transaction begins at {first} and not at {whole.open_from} to {latest}"
    return ""


def end_all(log: PartitionLog, now_ms: int) -> None:
    """Ends all open transactions."""
    for producer_id in log.open_transactions():
        epoch = log.producers()[producer_id].epoch
        log.append_marker(producer_id, epoch, committed=True, coordinator_epoch=0, now_ms=now_ms)


def commit_of_offsets(number: int, timestamp: int) -> batch.Record:
    """Writes the batch of a group coordinator."""
    return batch.Record(0, timestamp, b"group", b"%d" % number)
