"""Converts a topic's configs to the settings of its partition logs.

Settings that the release decides come from the broker's profile.
"""

from __future__ import annotations

from ...protocol.limits import INT32_MAX, INT64_MAX
from ...protocol.records import batch
from ...protocol.records.compression import Codec
from ...protocol.records.validate import Rules
from ...storage.config import LogConfig
from ...storage.producers.producer_state import ProducerRules, RuleOutcome
from .message_format import target_magic, timestamp_range_ms, zstd_allowed
from .values import Config, TopicConfig

MAX_LAG_MS = INT64_MAX

_CODECS = {
    "uncompressed": Codec.NONE,
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def log_config(topic: TopicConfig, broker: Config) -> LogConfig:
    """Returns the settings of a topic's partition logs."""
    codec = _CODECS.get(topic["compression.type"])  # None for "producer": each batch keeps its own codec
    has_level = codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD)
    level = topic.get(f"compression.{topic['compression.type']}.level") if has_level else None
    before, after = timestamp_range_ms(topic, broker)
    behaviour = broker.profile.behaviour
    rules = Rules(
        max_message_bytes=topic["max.message.bytes"],
        max_record_bytes=topic.get("max.decompressed.message.bytes", INT32_MAX),
        log_append_time=topic.get("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=before,
        timestamp_after_max_ms=after,
        compacted="compact" in topic["cleanup.policy"],
        compression=codec,
        compression_level=level,
        walk_records=broker["ottla.validate.records"],
        append_time_bit_allowed=behaviour.append_time_bit_allowed,
        target_magic=target_magic(topic, broker),
        old_formats=behaviour.old_formats,
        one_magic=behaviour.one_magic,
        record_errors=behaviour.record_errors,
        counted_record_errors=behaviour.counted_record_errors,
        sizes_overflow=behaviour.newest_magic == batch.MAGIC,
        refuse_unnumbered=behaviour.refuse_unnumbered,
        unnumbered_fail=behaviour.unnumbered_fail,
        zstd_allowed=zstd_allowed(broker),
    )
    policy = topic["cleanup.policy"]
    # A compacted topic rolls segments early enough for compaction (KIP-354); older releases have no maximum lag.
    lag_ms = topic.get("max.compaction.lag.ms", MAX_LAG_MS) if "compact" in policy else MAX_LAG_MS
    return LogConfig(
        segment_bytes=_first_set(topic.get("internal.segment.bytes"), topic["segment.bytes"]),
        segment_ms=min(topic["segment.ms"], lag_ms),
        # Derived from segment.ms as in Kafka: with a shorter lag every append may then start a segment.
        segment_jitter_ms=min(topic["segment.jitter.ms"], topic["segment.ms"]),
        index_interval_bytes=topic["index.interval.bytes"],
        segment_index_bytes=topic["segment.index.bytes"],
        retention_ms=topic["retention.ms"],
        retention_bytes=topic["retention.bytes"],
        deletes="delete" in policy,
        flush_messages=topic["flush.messages"],
        flush_ms=topic["flush.ms"],
        rules=rules,
        producer_rules=ProducerRules(
            unknown_producer=RuleOutcome[behaviour.unknown_producer.upper()],
            marker_only=RuleOutcome[behaviour.marker_only.upper()],
            below_cache=RuleOutcome[behaviour.below_cache.upper()],
            inside_cache=RuleOutcome[behaviour.inside_cache.upper()],
            cached_batches=behaviour.cached_batches,
            drop_below_log_start=behaviour.drop_below_log_start,
            expiration_ms=producer_expiration_ms(broker),
            below_log_start_ms=ProducerRules().below_log_start_ms if broker.profile.is_own else None,
            scan_bytes=broker["producer.duplicate.scan.bytes"] if broker.profile.is_own else 0,
        ),
    )


def metadata_config(broker: Config) -> LogConfig:
    """Returns the settings of the `__cluster_metadata` log, with defaults for releases without these configs."""
    defaults = LogConfig()
    return LogConfig(
        segment_bytes=_first_set(
            broker.get("internal.metadata.log.segment.bytes"),
            broker.get("metadata.log.segment.bytes", defaults.segment_bytes),
        ),
        segment_ms=broker.get("metadata.log.segment.ms", defaults.segment_ms),
    )


def _first_set(internal_bytes: int | None, segment_bytes: int) -> int:
    """Returns the size of segments: Kafka's internal config for tests, which has no minimum, replaces the other one."""
    return segment_bytes if internal_bytes is None else internal_bytes


def producer_expiration_ms(broker: Config) -> int | None:
    """Returns the time in ms after its last batch at which a producer id expires; None for never, the default of
    Ottla's profile.

    Up to 3.3 one config covers transactional ids and producer ids, from 3.4 on each has its own (KIP-854).
    """
    if broker.profile.is_own and not broker.is_set("producer.id.expiration.ms"):
        return None
    return broker.get("producer.id.expiration.ms", broker["transactional.id.expiration.ms"])
