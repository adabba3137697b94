"""The state of idempotent producers in one partition, and the checks of their batches (KIP-98, KIP-192, KIP-360).

Pure: `judge` returns a verdict on a batch given the producer state entry, `remember` the entry after the batch; no
disk, no clock. The log adopts an entry only after the bytes are written. `ProducerRules` has the differences between
releases; the defaults are the rules of Ottla's own profile. `store.py` keeps the state.

Sequences run from 0 to 2**31 - 1 and then start at 0 again (KAFKA-7692).
"""

from __future__ import annotations

from enum import Enum

from ...protocol.frozen import frozen
from ...protocol.named import NamedTuple
from ...protocol.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from ...protocol.records.new_tuple import new_tuple

SEQUENCE_SPACE = 1 << 31
_MAX_SEQUENCE = SEQUENCE_SPACE - 1
DAY_MS = 86_400_000
CACHED_BATCHES = 5  # the batches that an idempotent producer may have in flight, and so may send again


class CachedBatch(NamedTuple):
    """A cached batch: its sequences (both -1 if it has none), its offsets, its largest timestamp in ms."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int

    @property
    def offset_delta(self) -> int:
        """The distance between its first and last offset, and between its sequences."""
        return self.last_offset - self.base_offset


class Producer(NamedTuple):
    """The state entry of one producer id. `batches` is oldest first, and empty when only a marker is known.

    `last_offset` is that of the newest batch, or a marker's if no batch is known. `last_timestamp_ms` is that of the
    newest batch or marker; it is the producer's own time, unless the topic has log append time. -1 in the last two: no
    marker, no open transaction.
    """

    epoch: int
    batches: tuple[CachedBatch, ...]
    last_offset: int
    last_timestamp_ms: int
    coordinator_epoch: int = -1
    transaction_first_offset: int = -1

    @property
    def last_sequence(self) -> int:
        """The last sequence of the newest batch, -1 if no batch is known."""
        return self.batches[-1].last_sequence if self.batches else -1


class RuleOutcome(Enum):
    """The result of a rule that differs between releases. Except for OUT_OF_ORDER it is a verdict, too.

    ACCEPT: the batch may be written. UNKNOWN: there is no entry of the producer, and the batch is not its first.
    DUPLICATE_SEQUENCE: all sequences of the batch were written before; their offset is no longer cached.
    """

    ACCEPT = "accept"
    UNKNOWN = "unknown"
    OUT_OF_ORDER = "out of order"
    DUPLICATE_SEQUENCE = "duplicate sequence"


@frozen
class ProducerRules:
    """The rules that differ between releases.

    unknown_producer: there is no entry of the producer, and the batch does not begin with sequence 0.
    marker_only: the entry has an epoch and no batch, and the batch does not begin with sequence 0.
    below_cache: all sequences of the batch were written before the cached batches.
    inside_cache: all of them were written before, some of them in cached batches, and it is a duplicate of none. Such
    a batch has other records under the same sequences: a client that counts it as written loses them.
    cached_batches: the number of cached batches.
    drop_below_log_start: a producer is dropped when its last offset falls below the log start.
    expiration_ms: a producer is dropped this long after its last timestamp; None for never.
    below_log_start_ms: without expiration_ms, the same for a producer whose last offset lies below the log start;
    otherwise the producers of a topic would grow without bound.
    scan_bytes: the length of the log's tail that is searched for an exact duplicate before a batch is refused as
    already written; 0 for none (see duplicate_scan.py).
    """

    unknown_producer: RuleOutcome = RuleOutcome.UNKNOWN
    marker_only: RuleOutcome = RuleOutcome.OUT_OF_ORDER
    below_cache: RuleOutcome = RuleOutcome.DUPLICATE_SEQUENCE
    inside_cache: RuleOutcome = RuleOutcome.OUT_OF_ORDER
    cached_batches: int = CACHED_BATCHES
    drop_below_log_start: bool = False
    expiration_ms: int | None = None
    below_log_start_ms: int | None = DAY_MS
    scan_bytes: int = 16 * 1024 * 1024


@frozen
class Fenced:
    """The batch's epoch is older than `current_epoch`."""

    current_epoch: int


@frozen
class OutOfOrder:
    """The next batch must begin with `expected`."""

    expected: int


@frozen
class Misplaced:
    """The batch belongs to a transaction that is not open, or to none while one is; `why` is the reason in words."""

    why: str


Verdict = RuleOutcome | CachedBatch | Fenced | OutOfOrder | Misplaced
"""A CachedBatch is the earlier copy of a batch that was already written."""

ACCEPT = RuleOutcome.ACCEPT
OWN_RULES = ProducerRules()


def _verdict(outcome: RuleOutcome, expected: int) -> Verdict:
    return OutOfOrder(expected) if outcome is RuleOutcome.OUT_OF_ORDER else outcome


def at_or_below(sequence: int, last: int) -> bool:
    """Returns whether a sequence is `last` or an earlier one. Sequences wrap after 2**31, so the half before `last`
    counts as earlier."""
    return (last - sequence) % SEQUENCE_SPACE < SEQUENCE_SPACE // 2


NO_EPOCH = -1  # of an unknown producer


def judge(known: Producer | None, batch: BatchHeader, rules: ProducerRules = OWN_RULES) -> Verdict:
    """Returns the verdict on a producer's batch. Batches without sequences, which a coordinator writes, are checked
    only by epoch."""
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
            return cached
    if at_or_below(first, newest) and at_or_below(last, newest):
        oldest = batches[0].first_sequence
        is_below = at_or_below(last, (oldest - 1) % SEQUENCE_SPACE)
        return _verdict(rules.below_cache if is_below else rules.inside_cache, expected)
    return OutOfOrder(expected)


def follow(known: Producer, batch: BatchHeader, rules: ProducerRules = OWN_RULES) -> Producer | None:
    """Returns the entry after a batch if it is the next one of its epoch and no transaction is involved; otherwise
    None, and `judge` and `remember` decide. A fast path with the same result, for nearly every batch."""
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
    """Returns the entry after a batch that was written at `base_offset`. A new epoch drops the batches of the old one.

    A transaction marker has an epoch, an offset and a coordinator epoch, and no sequences; so has a batch that a
    coordinator wrote in a transaction. The next batch may begin with sequence 0.
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
    """Applies one batch; the coordinator epoch is that of a marker.

    A batch below the log start is skipped: a producer may have been dropped there and have started again with the same
    sequences, and an earlier batch must not be taken for a duplicate of these.
    """
    if header.producer_id >= 0 and header.base_offset + header.last_offset_delta >= log_start_offset:
        known = producers.get(header.producer_id)
        producers[header.producer_id] = remember(known, header, header.base_offset, rules, coordinator_epoch)


def is_below(known: Producer, log_start_offset: int) -> bool:
    """Returns whether all offsets of a producer are below the log start, and it has no open transaction."""
    return known.last_offset < log_start_offset and known.transaction_first_offset < 0


def forget_below(producers: dict[int, Producer], log_start_offset: int, rules: ProducerRules = OWN_RULES) -> None:
    """Drops the producers whose offsets are all below the log start, except those with an open transaction."""
    if rules.drop_below_log_start:
        for producer_id, known in list(producers.items()):
            if is_below(known, log_start_offset):
                del producers[producer_id]


def expires_ms(producers: dict[int, Producer], log_start_offset: int, rules: ProducerRules = OWN_RULES) -> int | None:
    """Returns the earliest time at which `forget_expired` drops a producer, if nothing changes; None for never."""
    times = (_expires_ms(known, log_start_offset, rules) for known in producers.values())
    return min((time_ms for time_ms in times if time_ms is not None), default=None)


def forget_expired(
    producers: dict[int, Producer], now_ms: int, log_start_offset: int, rules: ProducerRules = OWN_RULES
) -> int:
    """Drops expired producers without an open transaction, and returns their number."""
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
