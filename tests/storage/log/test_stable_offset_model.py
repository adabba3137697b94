"""Transactions of one log compared with a list as model: accepted batches, open transactions, visible records.

Producers write with and without verification by the coordinator, coordinators write offsets and markers; segments roll,
records are deleted, the log is closed or killed and opened again. The responses to a producer never depend on any of
that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records import batch, validate
from ottla.storage.config import LogConfig
from ottla.storage.errors import FencedCoordinator, FencedProducer, InvalidTransactionState
from ottla.storage.partition_log import Appended, PartitionLog
from ottla.storage.producers.producer_state import ProducerRules
from ottla.storage.producers.verification_guard import IN_TRANSACTION, Guard
from ottla_testing.storage.batches import FOLDER, make, open_log
from ottla_testing.storage.committed import consumed
from ottla_testing.storage.simulated_files import SimulatedFiles

PRODUCERS = 4
EXPIRATION_MS = 500
RULES = ProducerRules(expiration_ms=EXPIRATION_MS)
CONFIG = LogConfig(segment_bytes=420, index_interval_bytes=150, retention_ms=-1, producer_rules=RULES)


@dataclass
class Known:
    """A producer as its own client and the coordinator see it."""

    epoch: int = 0
    next_sequence: int = 0
    coordinator_epoch: int = 0
    last: bytes = b""
    ends: dict[bytes, list[int]] = field(default_factory=dict)
    """Of each batch the last offsets: after offsets of a coordinator a batch may be that before them, byte for byte."""
    last_offset: int = -1
    """The offset of its newest data; the state of data below the log start may be dropped."""
    first: int = -1
    """The first offset of its open transaction."""
    last_ms: int = 0
    guards: list[Guard] = field(default_factory=list)


@dataclass
class Model:
    log: PartitionLog
    files: SimulatedFiles
    now_ms: int = 1000
    end: int = 0
    start: int = 0
    owners: list[tuple[int, int] | None] = field(default_factory=list)
    """For each offset its producer and the first offset of its transaction; (-1, -1) for a marker, None for plain
    records."""
    committed: set[int] = field(default_factory=set)
    producers: list[Known] = field(default_factory=lambda: [Known() for _ in range(PRODUCERS)])

    # -- work

    def renew(self) -> None:
        """Restarts a producer whose state may have been dropped."""
        for number, known in enumerate(self.producers):
            if known.next_sequence and not self.is_known(number):
                known.epoch, known.next_sequence, known.last = known.epoch + 1, 0, b""

    def data(self, number: int, count: int, guard: Guard | None, transactional: bool = True) -> Appended:
        known = self.producers[number]
        sent = make(
            *[b"x"] * count,
            timestamp=self.now_ms,
            producer_id=number,
            producer_epoch=known.epoch,
            base_sequence=known.next_sequence,
            transactional=transactional,
        )
        kept = bytes(sent)
        prepared = validate.prepare(sent, CONFIG.rules, self.now_ms, 13, self.log.log_end_offset)
        done = self.log.append_prepared(prepared, now_ms=self.now_ms, guard=guard)
        assert done.base_offset == self.end and not done.duplicate
        known.next_sequence += count
        known.last = kept
        self.wrote(number, count, transactional)
        known.ends.setdefault(kept, []).append(known.last_offset)
        return done

    def wrote(self, number: int, count: int, transactional: bool = True) -> None:
        known = self.producers[number]
        if transactional and known.first < 0:
            known.first = self.end
        self.owners += [(number, known.first) if transactional else None] * count
        self.end += count
        known.last_offset, known.last_ms = self.end - 1, self.now_ms

    def offsets(self, number: int) -> None:
        """Writes the batch of a group coordinator in a transaction."""
        known = self.producers[number]
        entries = [batch.Record(0, self.now_ms, b"k", b"v")]
        self.log.append_records(entries, now_ms=self.now_ms, producer=(number, known.epoch))
        known.last, known.next_sequence = b"", 0  # the next batch begins with 0
        self.wrote(number, 1)

    def marker(self, number: int, committed: bool, bump: int, **changed: int) -> None:
        known = self.producers[number]
        fields = {"coordinator_epoch": known.coordinator_epoch, "now_ms": self.now_ms, **changed}
        self.log.append_marker(number, known.epoch + bump, committed=committed, **fields)
        if bump:
            known.epoch, known.next_sequence, known.last = known.epoch + bump, 0, b""
        known.coordinator_epoch = fields["coordinator_epoch"]
        if committed and known.first >= 0:
            self.committed.add(known.first)
        known.first = -1
        known.last_ms = self.now_ms
        self.owners.append((-1, -1))
        self.end += 1
        for guard in known.guards:
            assert guard.is_void

    # -- expected state

    def stable(self) -> tuple[int, int]:
        """Returns the least and the largest possible last stable offset: a log opened since may not know a transaction
        that began below the log start."""
        open_ones = {known.first for known in self.producers if known.first >= 0}
        left = [at for at, of in enumerate(self.owners) if of is not None and of[1] in open_ones and at >= self.start]
        return min([max(first, self.start) for first in open_ones], default=self.end), min(left, default=self.end)

    def visible(self, offset: int, stable: int) -> list[int]:
        return [
            at
            for at, of in enumerate(self.owners)
            if max(offset, self.start) <= at < stable and (of is None or of[1] in self.committed)
        ]

    def is_known(self, number: int) -> bool:
        """Returns whether the log must have the producer's newest data."""
        return self.producers[number].last_offset >= self.start

    def check(self, *numbers: int) -> None:
        log = self.log
        assert (log.log_end_offset, log.high_watermark, log.log_start_offset) == (self.end, self.end, self.start)
        least, largest = self.stable()
        assert least <= log.last_stable_offset <= largest
        found = log.open_transactions()
        for number, known in enumerate(self.producers):
            if self.is_known(number) or known.first < 0:
                assert (number in found) == (known.first >= 0)
                assert log.in_transaction(number, known.epoch) == (known.first >= 0)
                assert not log.in_transaction(number, known.epoch + 1)
            if known.first >= self.start and number in found:
                assert found[number] == known.first
        for number in numbers:
            offset = self.start + number % (self.end - self.start + 1)
            for max_bytes in (1, 1 << 20):
                assert consumed(log, offset, max_bytes) == self.visible(offset, log.last_stable_offset)

    def reopen(self, clean: bool) -> None:
        self.log.close() if clean else self.log.abandon()
        # Long after all timestamps, as after a long downtime: open transactions do not expire.
        self.log = opened(self.files, clean=clean, start=self.start, now_ms=self.now_ms)
        for known in self.producers:
            known.guards.clear()


def opened(files: SimulatedFiles, *, clean: bool = True, start: int = 0, now_ms: int = 0) -> PartitionLog:
    return open_log(files, FOLDER, config=CONFIG, clean=clean, log_start_offset=start, now_ms=now_ms)


def refused(error: type[Exception], call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    with pytest.raises(error):
        call(*arguments, **named)


def step(model: Model, kind: str, number: int, second: int) -> None:
    known, log = model.producers[number], model.log
    is_open = known.first >= 0
    if kind == "data":  # by a release without verification, or with a guard of this transaction
        guard = (None, log.verify(number, known.epoch, known.next_sequence))[second % 2] if second % 3 else None
        model.data(number, 1 + second % 3, guard)
    elif kind == "verify":
        guard = log.verify(number, known.epoch, known.next_sequence)
        if model.is_known(number):
            assert (guard is IN_TRANSACTION) == is_open
        if guard is not IN_TRANSACTION:
            known.guards.append(guard)
    elif kind == "late":  # a batch that was verified some time ago
        guard = known.guards[second % len(known.guards)] if known.guards else IN_TRANSACTION
        if guard.is_void and not is_open:
            refused(InvalidTransactionState, model.data, number, 1, guard)
        elif not guard.is_void or model.is_known(number):
            model.data(number, 1, guard)
    elif kind == "unasked":
        if is_open and model.is_known(number):
            model.data(number, 1, IN_TRANSACTION)
        elif not is_open:
            refused(InvalidTransactionState, model.data, number, 1, IN_TRANSACTION)
    elif kind == "outside":
        if is_open and model.is_known(number):
            refused(InvalidTransactionState, model.data, number, 1, None, False)
        elif not is_open:
            model.data(number, 1, None, False)
    elif kind == "offsets":
        model.offsets(number)
    elif kind == "copy":
        if known.last and model.is_known(number):
            before = model.end
            again = log.append(bytearray(known.last), now_ms=model.now_ms)
            assert again.duplicate and again.last_offset in known.ends[known.last] and model.end == before
    elif kind in ("commit", "abort"):
        model.marker(number, kind == "commit", second % 2)
    elif kind == "zombie":
        if model.is_known(number) and known.epoch > 0:
            refused(FencedProducer, model.marker, number, True, -1)
            older = [batch.Record(0, 1, b"k", b"v")]
            refused(FencedProducer, log.append_records, older, now_ms=1, producer=(number, known.epoch - 1))
    elif kind == "deposed" and model.is_known(number):
        model.marker(number, True, 0, coordinator_epoch=known.coordinator_epoch + 1)
        refused(FencedCoordinator, model.marker, number, False, 0, coordinator_epoch=known.coordinator_epoch - 1)


def world(model: Model, kind: str, first: int, second: int) -> None:
    if kind == "plain":
        model.log.append(make(b"plain", timestamp=model.now_ms), now_ms=model.now_ms)
        model.owners.append(None)
        model.end += 1
    elif kind == "delete":
        model.start = model.log.delete_records_before(model.start + first % (model.end - model.start + 1))
        removed = model.log.retain(model.now_ms)
        if removed is not None:
            removed.remove()
    elif kind in ("clean", "kill"):
        model.reopen(kind == "clean")
    elif kind == "later":
        model.now_ms += second
    elif kind == "expire":
        model.log.expire_producers(model.now_ms)
        for number, known in enumerate(model.producers):
            if known.first < 0 and known.last_ms <= model.now_ms - EXPIRATION_MS:
                assert number not in model.log.producers()
    # An expired producer may be dropped at any time from now on; its client starts again.
    for known in model.producers:
        if known.first < 0 and known.last_ms <= model.now_ms - EXPIRATION_MS:
            known.last_offset = -1


numbers = st.integers(0, 255)
KINDS = "data data verify late unasked outside offsets copy commit abort abort zombie deposed".split()
WORLD = "plain delete clean kill later expire read".split()
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(KINDS), st.integers(0, PRODUCERS - 1), numbers),
        st.tuples(st.sampled_from(WORLD), numbers, numbers),
    ),
    min_size=4,
    max_size=60,
)


@given(steps)
def test_transactions_equal_a_model(steps: list[tuple[str, int, int]]) -> None:
    files = SimulatedFiles()
    model = Model(opened(files), files)
    for kind, first, second in steps:
        model.renew()
        if kind in KINDS:
            step(model, kind, first, second)
        else:
            world(model, kind, first, second)
        model.check(*([second] if kind == "read" else []))
    model.check(0, *(number for _, _, number in steps[:5]))
    for is_clean in (True, False):
        model.reopen(is_clean)
        model.check(0, 1, 2, 3)
