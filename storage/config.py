"""What a partition log must know of its topic's configuration: plain values, named as the configs are."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..protocol.limits import INT64_MAX
from ..protocol.records.validate import Rules
from .producers.producer_state import ProducerRules


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One topic's settings. `rules` say what a client may append, `producer_rules` how its sequences are judged.

    -1 in retention_ms and retention_bytes means no limit; they count only with `deletes` (cleanup.policy has delete).
    `segment_ms` is already the shorter of itself and, of a compacted topic, max.compaction.lag.ms. Whoever owns the
    log is to flush it when `flush_messages` records are not durable, or any for longer than `flush_ms`.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 * 1024 * 1024
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    rules: Rules = field(default_factory=Rules)
    producer_rules: ProducerRules = field(default_factory=ProducerRules)
    deletes: bool = True
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
