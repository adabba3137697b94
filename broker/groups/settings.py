"""Configuration of the group coordinator, and the error codes of failed writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ...protocol.errors import ErrorCode
from ...protocol.frozen import frozen
from ..config.java_classes import assignor_name
from ..releases.behaviour import Behaviour
from .classic.state import GroupSettings
from .consumer.events import Settings
from .record_form import NEWEST_FORMAT, Format
from .share.events import Settings as ShareSettings
from .streams.events import Settings as StreamsSettings

CONSUMER_DEFAULTS = Settings()
SHARE_DEFAULTS = ShareSettings()
STREAMS_DEFAULTS = StreamsSettings()
# The configs of groups that are numbers, and their settings. Those of a broker have the same names after `group.`.
_CONFIGS = {
    "consumer.session.timeout.ms": "session_timeout_ms",
    "consumer.heartbeat.interval.ms": "heartbeat_interval_ms",
    "consumer.assignment.interval.ms": "assignment_interval_ms",
    "consumer.max.size": "max_size",
    "consumer.regex.refresh.interval.ms": "regex_refresh_interval_ms",
    "share.session.timeout.ms": "session_timeout_ms",
    "share.heartbeat.interval.ms": "heartbeat_interval_ms",
    "share.assignment.interval.ms": "assignment_interval_ms",
    "share.max.size": "max_size",
    "share.initialize.retry.interval.ms": "initialize_retry_ms",
    "streams.session.timeout.ms": "session_timeout_ms",
    "streams.heartbeat.interval.ms": "heartbeat_interval_ms",
    "streams.assignment.interval.ms": "assignment_interval_ms",
    "streams.max.size": "max_size",
    "streams.initial.rebalance.delay.ms": "initial_delay_ms",
    "streams.num.standby.replicas": "standby_replicas",
    "streams.task.offset.interval.ms": "task_offset_interval_ms",
    "streams.acceptable.recovery.lag": "acceptable_recovery_lag",
}
_TAGS = "streams.rack.aware.assignment.tags"
S = TypeVar("S", Settings, ShareSettings, StreamsSettings)


@frozen
class CoordinatorSettings(GroupSettings):
    """Configuration of the group coordinator, with Kafka's defaults."""

    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    offset_metadata_max_bytes: int = 4096
    offsets_retention_minutes: int = 10080
    offsets_retention_check_interval_ms: int = 600_000
    old_group_coordinator: bool = False
    absent_group_code: int = ErrorCode.ILLEGAL_GENERATION
    consumer: Settings = CONSUMER_DEFAULTS
    consumer_format: Format = NEWEST_FORMAT
    share: ShareSettings = SHARE_DEFAULTS
    streams: StreamsSettings = STREAMS_DEFAULTS

    @classmethod
    def from_config(cls, config: Any, behaviour: Behaviour) -> CoordinatorSettings:
        """Reads Kafka's config names from `config[name]`, and the switches from the release's behaviours."""
        return cls(
            min_session_timeout_ms=config["group.min.session.timeout.ms"],
            max_session_timeout_ms=config["group.max.session.timeout.ms"],
            initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
            max_size=config["group.max.size"],
            offset_metadata_max_bytes=config["offset.metadata.max.bytes"],
            offsets_retention_minutes=config["offsets.retention.minutes"],
            offsets_retention_check_interval_ms=config["offsets.retention.check.interval.ms"],
            old_group_coordinator=behaviour.old_group_coordinator,
            removes_unsynced=behaviour.removes_unsynced,
            heartbeats_before_sync=behaviour.heartbeats_before_sync,
            first_session_at_join=behaviour.first_session_at_join,
            member_checks=behaviour.member_checks,
            absent_group_code=behaviour.absent_group_code,
            consumer=_consumer(config, behaviour),
            consumer_format=Format(
                assignment_epochs=behaviour.commits_by_assignment, assignment_time=behaviour.spaces_assignments
            ),
            share=_of_broker(ShareSettings(first_epoch=int(behaviour.spaces_assignments)), "share", config),
            streams=_streams(config, behaviour),
        )

    def of_group(self, kind: str, configs: Mapping[str, str]) -> Any:
        """Returns the settings of a consumer, share or streams group with these configs of its own."""
        settings = _changed(getattr(self, kind), kind, configs.get)
        if _TAGS not in configs or not isinstance(settings, StreamsSettings):
            return settings
        return replace(settings, rack_tags=tuple(tag.strip() for tag in configs[_TAGS].split(",") if tag.strip()))


def _changed(settings: S, kind: str, config_of: Callable[[str], Any]) -> S:
    """Returns the settings with those of a kind's configs that `config_of` has."""
    found = {field: config_of(name) for name, field in _CONFIGS.items() if name.startswith(kind)}
    changed: Any = {field: int(value) for field, value in found.items() if value is not None}
    return replace(settings, **changed) if changed else settings


def _of_broker(settings: S, kind: str, config: Any) -> S:
    return _changed(settings, kind, lambda name: config.get(f"group.{name}"))


def _consumer(config: Any, behaviour: Behaviour) -> Settings:
    settings = Settings(
        assignment_interval_ms=0,  # in releases without the config
        assignors=tuple(map(assignor_name, config.get("group.consumer.assignors", ["uniform", "range"]))),
        migration=config.get("group.consumer.migration.policy", "disabled").lower(),
        classic_max_size=config["group.max.size"],
        first_epoch=int(behaviour.spaces_assignments),
        by_hash=behaviour.hashes_topics,
        rejoins_at_zero=behaviour.rejoins_at_zero,
        resets_epochs=behaviour.commits_by_assignment,
        commits_by_assignment=behaviour.commits_by_assignment,
    )
    return _of_broker(settings, "consumer", config)


def _streams(config: Any, behaviour: Behaviour) -> StreamsSettings:
    settings = StreamsSettings(
        rack_tags=tuple(config.get("group.streams.rack.aware.assignment.tags") or ()),
        first_epoch=int(behaviour.spaces_assignments),
        has_static_members=behaviour.static_streams_members,
    )
    settings = _of_broker(settings, "streams", config)
    return settings if behaviour.spaces_assignments else replace(settings, assignment_interval_ms=0)


# Error codes for clients when a write to `__consumer_offsets` failed: retriable ones where possible (Kafka's own
# table).
WRITE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
COMMIT_WRITE_ERRORS = {
    **WRITE_ERRORS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
