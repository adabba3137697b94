"""What one partition knows of its idempotent producers, and whether a batch may follow it (KIP-98, KIP-192, KIP-360).

Pure: `judge` turns a batch and the known producer into a verdict, `remember` gives the producer after that batch; no
disk, no clock. A verdict is adopted by the log only after the bytes are written. How releases differ is data,
`ProducerRules`; the defaults are the rules of Ottla's own profile. Where the state is kept is `store.py`'s.

Sequences run from 0 to 2**31 - 1 and then start at 0 again (KAFKA-7692).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ...protocol.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from ...protocol.records.new_tuple import new_tuple

SEQUENCE_SPACE = 1 << 31
_MAX_SEQUENCE = SEQUENCE_SPACE - 1
DAY_MS = 86_400_000
CACHED_BATCHES = 5  # what an idempotent producer may have in flight, so what it may send again


class CachedBatch(NamedTuple):
    """One remembered batch: its sequences (both -1 where it has none), its offsets, its largest timestamp in ms."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int

    @property
    def offset_delta(self) -> int:
        """How far its last offset is from the first, and its last sequence, if it has any."""
        return self.last_offset - self.base_offset


class Producer(NamedTuple):
    """What is known of one producer id. `batches` is oldest first and empty when only a marker is known.

    `last_offset` is that of the newest batch, or a marker's if no batch is known. `last_timestamp_ms` is the newest
    batch's largest or the marker's, whatever came last: the producer's own word, unless the topic has log append time.
    -1 in the last two: no marker, no open transaction.
    """

    epoch: int
    batches: tuple[CachedBatch, ...]
    last_offset: int
    last_timestamp_ms: int
    coordinator_epoch: int = -1
    transaction_first_offset: int = -1


class Answer(Enum):
    """What a rule may say to a batch for which releases differ."""

    ACCEPT = "accept"
    UNKNOWN = "unknown"
    OUT_OF_ORDER = "out of order"
    DUPLICATE_SEQUENCE = "duplicate sequence"


@dataclass(frozen=True, slots=True)
class ProducerRules:
    """The answers that moved between releases.

    unknown_producer: nothing is known of the producer and the batch does not begin with 0.
    marker_only: the epoch is known, no batch of it is, and the batch does not begin with 0.
    below_cache: all sequences of the batch were written before the remembered batches.
    inside_cache: all of them were written before, some of them in remembered batches, and it is a copy of none.
    cached_batches: how many batches are remembered.
    drop_below_log_start: a producer is forgotten when its last offset falls below the log start.
    expiration_ms: a producer is forgotten so long after its last timestamp; None for never.
    below_log_start_ms: so is one whose last offset lies below the log start, where there is no expiration_ms; without
    it the producers of a topic would become more for ever.
    scan_bytes: how far from the end of the log an exact copy is looked for, where the answer would be that a batch was
    written before; 0 for not at all (see duplicate_scan.py).
    """

    unknown_producer: Answer = Answer.UNKNOWN
    marker_only: Answer = Answer.OUT_OF_ORDER
    below_cache: Answer = Answer.DUPLICATE_SEQUENCE
    inside_cache: Answer = Answer.DUPLICATE_SEQUENCE
    cached_batches: int = CACHED_BATCHES
    drop_below_log_start: bool = False
    expiration_ms: int | None = None
    below_log_start_ms: int | None = DAY_MS
    scan_bytes: int = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Accept:
    """The batch may be written."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch was written already, as `of`."""

    of: CachedBatch


@dataclass(frozen=True, slots=True)
class Fenced:
    """The batch's epoch is older than `current_epoch`."""

    current_epoch: int


@dataclass(frozen=True, slots=True)
class OutOfOrder:
    """The next batch must begin with `expected`."""

    expected: int


@dataclass(frozen=True, slots=True)
class DuplicateWithoutOffset:
    """All of the batch was written before; its offset is not remembered."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nothing is known of the producer, and the batch is not its first."""


@dataclass(frozen=True, slots=True)
class Misplaced:
    """The batch belongs to a transaction that is not open, or belongs to none while one is; `why` in words."""

    why: str


Verdict = Accept | Duplicate | Fenced | OutOfOrder | DuplicateWithoutOffset | Unknown | Misplaced

ACCEPT = Accept()
OWN_RULES = ProducerRules()


def _verdict(answer: Answer, expected: int) -> Verdict:
    if answer is Answer.ACCEPT:
        return ACCEPT
    if answer is Answer.UNKNOWN:
        return Unknown()
    if answer is Answer.DUPLICATE_SEQUENCE:
        return DuplicateWithoutOffset()
    return OutOfOrder(expected)


def at_or_below(sequence: int, last: int) -> bool:
    """Whether a sequence lies at or before `last`, on the circle of 2**31 sequences: in the half that precedes it."""
    return (last - sequence) % SEQUENCE_SPACE < SEQUENCE_SPACE // 2


NO_EPOCH = -1  # of a producer of which nothing is known


def judge(known: Producer | None, batch: BatchHeader, rules: ProducerRules = OWN_RULES) -> Verdict:
    """Whether the batch of a producer may follow what is known of it. Of a batch without sequences, which a coordinator
    writes, only the epoch counts."""
    first = batch.base_sequence
    if first < 0:
        return Fenced(known.epoch) if known is not None and batch.producer_epoch < known.epoch else ACCEPT
    if known is None:
        if batch.producer_epoch < NO_EPOCH:
            return Fenced(NO_EPOCH)
        return ACCEPT if first == 0 else _verdict(rules.unknown_producer, 0)
    epoch, batches = known[:2]
    if batch.producer_epoch != epoch:
        if batch.producer_epoch < epoch:
            return Fenced(epoch)
        return ACCEPT if first == 0 else OutOfOrder(0)
    if not batches:
        return ACCEPT if first == 0 else _verdict(rules.marker_only, 0)
    newest: int = batches[-1][1]
    expected = (newest + 1) & _MAX_SEQUENCE
    if first == expected:
        return ACCEPT
    last = batch.last_sequence
    for cached in batches:
        if cached.first_sequence == first and cached.last_sequence == last:
            return Duplicate(cached)
    if at_or_below(first, newest) and at_or_below(last, newest):
        oldest = batches[0].first_sequence
        is_below = at_or_below(last, (oldest - 1) % SEQUENCE_SPACE)
        return _verdict(rules.below_cache if is_below else rules.inside_cache, expected)
    return OutOfOrder(expected)


def follow(known: Producer, batch: BatchHeader, rules: ProducerRules = OWN_RULES) -> Producer | None:
    """The producer after the batch, if that is the next one of its epoch and no transaction is about; else None, and
    `judge` and `remember` say more. Of these it says the same: nearly every batch is one that this settles at once."""
    attributes, delta, _, max_timestamp_ms, _, epoch, first = batch[5:12]
    known_epoch, batches, _, _, coordinator_epoch, begun = known
    if (
        epoch != known_epoch
        or not batches
        or first != (batches[-1][1] + 1) & _MAX_SEQUENCE
        or attributes & (TRANSACTIONAL_BIT | CONTROL_BIT)
        or begun >= 0
    ):
        return None
    base_offset = batch[0]
    last_offset = base_offset + delta
    entry = new_tuple(CachedBatch, (first, (first + delta) & _MAX_SEQUENCE, base_offset, last_offset, max_timestamp_ms))
    keep = rules.cached_batches - 1
    cached = (*batches[-keep:], entry) if keep else (entry,)
    return new_tuple(Producer, (epoch, cached, last_offset, max_timestamp_ms, coordinator_epoch, begun))


def remember(
    known: Producer | None,
    batch: BatchHeader,
    base_offset: int,
    rules: ProducerRules = OWN_RULES,
    coordinator_epoch: int = -1,
) -> Producer:
    """The producer after a batch that was written at `base_offset`. A new epoch forgets the batches of the old one.

    A transaction marker carries an epoch, an offset and the epoch of its coordinator, and no sequences, as does a batch
    that a coordinator wrote in a transaction: the batch behind that may begin with 0.
    """
    attributes, delta, _, max_timestamp_ms, _, epoch, first = batch[5:12]
    last_offset = base_offset + delta
    cached, begun = (), -1
    if known is not None:
        known_epoch, batches, _, _, known_coordinator_epoch, begun = known
        if known_epoch == epoch:
            cached = batches
        if known_coordinator_epoch > coordinator_epoch:
            coordinator_epoch = known_coordinator_epoch
    if attributes & CONTROL_BIT:
        begun = -1
        if cached:
            last_offset = cached[-1].last_offset
    else:
        if begun < 0 and attributes & TRANSACTIONAL_BIT:
            begun = base_offset
        last = (first + delta) & _MAX_SEQUENCE if first >= 0 else -1
        entry = new_tuple(CachedBatch, (first, last, base_offset, last_offset, max_timestamp_ms))
        keep = rules.cached_batches - 1
        cached = (*cached[-keep:], entry) if keep else (entry,)
    return new_tuple(Producer, (epoch, cached, last_offset, max_timestamp_ms, coordinator_epoch, begun))


def advance(
    producers: dict[int, Producer],
    header: BatchHeader,
    log_start_offset: int,
    rules: ProducerRules = OWN_RULES,
    coordinator_epoch: int = -1,
) -> None:
    """One step of `replay`; the coordinator's epoch is a marker's."""
    if header.producer_id >= 0 and header.base_offset + header.last_offset_delta >= log_start_offset:
        known = producers.get(header.producer_id)
        producers[header.producer_id] = remember(known, header, header.base_offset, rules, coordinator_epoch)


def replay(
    headers: Iterable[BatchHeader], log_start_offset: int, rules: ProducerRules = OWN_RULES
) -> dict[int, Producer]:
    """The producers that a log's batches, oldest first, leave behind.

    Batches below the log start are passed over: a producer may have been forgotten there and have begun anew with the
    same sequences, and a batch from before must not be taken for a copy of one of these.
    """
    producers: dict[int, Producer] = {}
    for header in headers:
        advance(producers, header, log_start_offset, rules)
    return producers


def is_below(known: Producer, log_start_offset: int) -> bool:
    """Whether nothing of a producer is left at or above the log start, and it has no open transaction."""
    return known.last_offset < log_start_offset and known.transaction_first_offset < 0


def forget_below(producers: dict[int, Producer], log_start_offset: int, rules: ProducerRules = OWN_RULES) -> None:
    """Drops the producers of which nothing is left at or above the log start, if they have no open transaction."""
    if rules.drop_below_log_start:
        for producer_id, known in list(producers.items()):
            if is_below(known, log_start_offset):
                del producers[producer_id]


def expires_ms(producers: dict[int, Producer], log_start_offset: int, rules: ProducerRules = OWN_RULES) -> int | None:
    """The earliest time at which `forget_expired` drops one of them, as they are; None if never."""
    times = (_expires_ms(known, log_start_offset, rules) for known in producers.values())
    return min((time_ms for time_ms in times if time_ms is not None), default=None)


def forget_expired(
    producers: dict[int, Producer], now_ms: int, log_start_offset: int, rules: ProducerRules = OWN_RULES
) -> int:
    """Drops the producers that have written nothing for so long, if they have no open transaction; how many."""
    if rules.expiration_ms is None and rules.below_log_start_ms is None:
        return 0
    times = {producer_id: _expires_ms(known, log_start_offset, rules) for producer_id, known in producers.items()}
    expired = [producer_id for producer_id, time_ms in times.items() if time_ms is not None and time_ms <= now_ms]
    for producer_id in expired:
        del producers[producer_id]
    return len(expired)


def _expires_ms(known: Producer, log_start_offset: int, rules: ProducerRules) -> int | None:
    if known.transaction_first_offset >= 0:
        return None
    limit_ms = rules.expiration_ms
    if limit_ms is None and known.last_offset < log_start_offset:
        limit_ms = rules.below_log_start_ms
    return None if limit_ms is None else known.last_timestamp_ms + limit_ms
