"""The configuration of a partition log: plain values, named like the configs."""

from __future__ import annotations

from dataclasses import field

from ..protocol.frozen import frozen
from ..protocol.limits import INT64_MAX
from ..protocol.records.validate import Rules
from .producers.producer_state import ProducerRules


@frozen
class LogConfig:
    """The configs of one topic. `rules` apply to records of clients, `producer_rules` to sequences of producers.

    -1 in retention_ms and retention_bytes means no limit; they apply only with `deletes` (cleanup.policy includes
    delete). `segment_ms` is already limited by max.compaction.lag.ms for a compacted topic. The owner of the log
    flushes it when `flush_messages` records are not durable, or any for longer than `flush_ms`.
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
