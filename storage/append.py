"""What an append will do, decided before anything is written. Changes nothing; has no state of its own."""

from __future__ import annotations

from typing import NamedTuple

from ..protocol.records.batch import BatchHeader
from .config import LogConfig
from .errors import (
    DuplicateSequence,
    FencedProducer,
    OutOfOrderSequence,
    ProducerRefused,
    RecordListTooLarge,
    UnknownProducer,
)
from .producer_state import (
    ACCEPT,
    CachedBatch,
    Duplicate,
    DuplicateWithoutOffset,
    Fenced,
    OutOfOrder,
    Producer,
    Verdict,
    judge,
    remember,
)
from .segment import Segment

MAX_RELATIVE_OFFSET = 2**31 - 1


class Plan(NamedTuple):
    """The batch as it will be written, whether a new segment begins with it, and the producer to adopt afterwards."""

    header: BatchHeader
    roll: bool
    producer: Producer | None


def must_roll(segment: Segment, config: LogConfig, header: BatchHeader, *, last_offset: int, now_ms: int) -> bool:
    """Whether a batch whose last record gets `last_offset` belongs into a new segment (Kafka's rules, in its order).

    Time counts by the records, not by the clock, where the first batch has a timestamp: an idle partition never rolls,
    and one timestamp of the far future rolls at once.
    """
    if segment.size_bytes == 0:
        return False
    if segment.size_bytes > config.segment_bytes - header.size_bytes:
        return True
    first_ms = segment.first_timestamp()
    waited_ms = header.max_timestamp - first_ms if first_ms >= 0 else now_ms - segment.created_ms
    if waited_ms > config.segment_ms - segment.jitter_ms:
        return True
    return last_offset - segment.base_offset > MAX_RELATIVE_OFFSET or segment.is_index_full(config.segment_index_bytes)


def refusal(verdict: Verdict, header: BatchHeader) -> ProducerRefused:
    """The error that tells a producer why its batch is refused."""
    who = f"producer {header.producer_id} epoch {header.producer_epoch}"
    what = f"sequences {header.base_sequence}..{header.last_sequence}"
    if isinstance(verdict, Fenced):
        return FencedProducer(f"{who} is older than the current epoch {verdict.current_epoch}")
    if isinstance(verdict, OutOfOrder):
        return OutOfOrderSequence(f"{who}: {what} where {verdict.expected} is next")
    if isinstance(verdict, DuplicateWithoutOffset):
        return DuplicateSequence(f"{who}: {what} were written before")
    return UnknownProducer(f"{who}: {what}, and nothing is known of the producer")


def plan(
    header: BatchHeader,
    known: Producer | None,
    segment: Segment,
    config: LogConfig,
    *,
    end_offset: int,
    leader_epoch: int,
    now_ms: int,
) -> Plan | CachedBatch:
    """The plan for one batch, or the batch of which it is a copy.

    Raises RecordListTooLarge, and ProducerRefused by the verdict on its sequences.
    """
    if header.size_bytes > config.segment_bytes:
        raise RecordListTooLarge(f"{header.size_bytes} bytes in segments of {config.segment_bytes}")
    producer = None
    if header.producer_id >= 0:
        verdict = judge(known, header, config.producer_rules)
        if isinstance(verdict, Duplicate):
            return verdict.of
        if verdict is not ACCEPT:
            raise refusal(verdict, header)
        producer = remember(known, header, end_offset, config.producer_rules)
    roll = must_roll(segment, config, header, last_offset=end_offset + header.last_offset_delta, now_ms=now_ms)
    return Plan(header.placed(end_offset, leader_epoch), roll, producer)
