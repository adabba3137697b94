"""Plans an append before anything is written. Has no state and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.named import NamedTuple
from ...protocol.records import batch, formats, legacy
from ...protocol.records.batch import BatchHeader
from ...protocol.records.errors import UnsupportedForFormat
from ...protocol.records.validate import Prepared
from ..config import LogConfig
from ..errors import (
    DuplicateSequence,
    FencedProducer,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerRefused,
    RecordListTooLarge,
    UnknownProducer,
)
from ..format.index import MAX_RELATIVE_OFFSET
from ..producers.producer_state import (
    ACCEPT,
    CachedBatch,
    Fenced,
    Misplaced,
    OutOfOrder,
    Producer,
    RuleOutcome,
    Verdict,
    follow,
    judge,
    remember,
)
from ..producers.txn_index import Marker
from ..producers.verification_guard import Guard, judge_transaction
from ..segments.segment import Segment


class Plan(NamedTuple):
    """Whether the append begins a new segment, and the producer state entry to adopt afterwards."""

    roll: bool
    producer: Producer | None


def must_roll(
    segment: Segment, config: LogConfig, headers: Sequence[BatchHeader], size_bytes: int, now_ms: int
) -> bool:
    """Returns whether the batches of an append, `size_bytes` in total, belong into a new segment (Kafka's rules, in its
    order).

    If the first batch has a timestamp, time is measured by the records, not by the clock: an idle partition never
    rolls, and a timestamp in the far future rolls at once.
    """
    if segment.size_bytes == 0:
        return False
    if segment.size_bytes > config.segment_bytes - size_bytes:
        return True
    last = headers[-1]
    newest_ms, entries = last.max_timestamp, len(headers)
    if entries > 1:
        newest_ms = max(header.max_timestamp for header in headers)
        entries = min(entries, size_bytes // (config.index_interval_bytes + 1) + 1)  # entries that the index may get
    first_ms = segment.first_timestamp()
    waited_ms = newest_ms - first_ms if first_ms >= 0 else now_ms - segment.created_ms
    if waited_ms > config.segment_ms - segment.jitter_ms:
        return True
    relative = last.base_offset + last.last_offset_delta - segment.base_offset
    return relative > MAX_RELATIVE_OFFSET or segment.is_index_full(config.segment_index_bytes, entries)


def refusal(verdict: Verdict, header: BatchHeader) -> ProducerRefused:
    """Returns the exception for a refused batch of a producer."""
    who = f"producer {header.producer_id} epoch {header.producer_epoch}"
    what = f"sequences {header.base_sequence}..{header.last_sequence}"
    if isinstance(verdict, Fenced):
        return FencedProducer(f"{who} is older than the current epoch {verdict.current_epoch}")
    if isinstance(verdict, OutOfOrder):
        return OutOfOrderSequence(f"{who}: {what} where {verdict.expected} is next")
    if verdict is RuleOutcome.DUPLICATE_SEQUENCE:
        return DuplicateSequence(f"{who}: {what} were written before")
    if isinstance(verdict, Misplaced):
        return InvalidTransactionState(f"{who}: {verdict.why}")
    return UnknownProducer(f"{who}: {what}, and there is no state of the producer")


def built(
    records: Sequence[batch.Record], first: int, magic: int, codec: int, producer: tuple[int, int] | None
) -> Prepared:
    """Builds records of the broker's own in the topic's format, with offsets from `first` on: one batch, or in an old
    format without a codec one message each. With a producer id and epoch they are a part of its transaction. Raises
    UnsupportedForFormat."""
    numbered = [
        batch.Record(offset, record.timestamp, record.key, record.value, record.headers)
        for offset, record in enumerate(records, first)
    ]
    if producer is not None:
        if magic != batch.MAGIC:
            raise UnsupportedForFormat(f"a transaction in records of format v{magic}")
        buffer = batch.build(
            numbered,
            batch.BatchFields(producer_id=producer[0], producer_epoch=producer[1], transactional=True),
            codec=codec,
        )
    elif magic == batch.MAGIC:
        buffer = batch.build(numbered, codec=codec)
    else:
        buffer = legacy.build(numbered, magic=magic, codec=codec)
    headers = tuple([header for _, header in formats.headers(buffer)])
    return Prepared(buffer, headers[0], -1, first, headers)


def plan(
    headers: Sequence[BatchHeader],
    size_bytes: int,
    known: Producer | None,
    segment: Segment,
    config: LogConfig,
    *,
    now_ms: int,
    guard: Guard | None = None,
    marker: Marker | None = None,
) -> Plan | CachedBatch:
    """Returns the plan for the batches of one append, or the earlier batch of which it is a duplicate.

    Several batches are plain messages of an old format, which have no producer. `marker` is the content of a control
    batch. Raises RecordListTooLarge, and ProducerRefused by the verdict on sequences and transaction.
    """
    header = headers[0]
    if size_bytes > config.segment_bytes:
        raise RecordListTooLarge(f"{size_bytes} bytes in segments of {config.segment_bytes}")
    producer = None
    if header.producer_id >= 0:
        rules = config.producer_rules
        producer = follow(known, header, rules) if known is not None else None
        if producer is None:
            verdict = judge_transaction(known, header, judge(known, header, rules), guard)
            if verdict is not ACCEPT:
                if isinstance(verdict, CachedBatch):
                    return verdict
                raise refusal(verdict, header)
            coordinator_epoch = -1 if marker is None else marker.coordinator_epoch
            producer = remember(known, header, header.base_offset, rules, coordinator_epoch)
    return Plan(must_roll(segment, config, headers, size_bytes, now_ms), producer)
