"""Configuration of the group coordinator, and the error codes of failed writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.frozen import frozen
from ...protocol.limits import INT32_MAX
from ..config.assignors import assignor_name
from ..releases.behaviour import Behaviour
from .classic.state import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupSettings, MemberChecks
from .consumer.events import Settings
from .consumer.records import Format
from .share.events import Settings as ShareSettings
from .streams.events import Settings as StreamsSettings

CONSUMER_DEFAULTS = Settings()
SHARE_DEFAULTS = ShareSettings()
STREAMS_DEFAULTS = StreamsSettings()
NEWEST_FORMAT = Format()
# The configs of a group, and the settings that they change.
_GROUP_CONFIGS = {
    "consumer.session.timeout.ms": "session_timeout_ms",
    "consumer.heartbeat.interval.ms": "heartbeat_interval_ms",
    "consumer.assignment.interval.ms": "assignment_interval_ms",
}


@frozen
class CoordinatorSettings:
    """Configuration of the group coordinator, with Kafka's defaults."""

    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3000
    max_size: int = INT32_MAX
    offset_metadata_max_bytes: int = 4096
    offsets_retention_minutes: int = 10080
    offsets_retention_check_interval_ms: int = 600_000
    new_member_join_timeout_ms: int = NEW_MEMBER_JOIN_TIMEOUT_MS
    old_group_coordinator: bool = False
    removes_unsynced: bool = True
    heartbeats_before_sync: bool = True
    first_session_at_join: bool = True
    member_checks: MemberChecks = "unless_empty"
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
            share=_share(config, behaviour),
            streams=_streams(config, behaviour),
        )

    def of_consumer_group(self, configs: Mapping[str, str]) -> Settings:
        """Returns the settings of a group of the consumer protocol with these configs of its own."""
        changed = {field: int(configs[name]) for name, field in _GROUP_CONFIGS.items() if name in configs}
        return replace(self.consumer, **changed) if changed else self.consumer

    @property
    def group(self) -> GroupSettings:
        return GroupSettings(
            self.initial_rebalance_delay_ms,
            self.max_size,
            self.new_member_join_timeout_ms,
            self.removes_unsynced,
            self.heartbeats_before_sync,
            self.first_session_at_join,
            self.member_checks,
        )


def _consumer(config: Any, behaviour: Behaviour) -> Settings:
    return Settings(
        session_timeout_ms=config.get("group.consumer.session.timeout.ms", 45_000),
        heartbeat_interval_ms=config.get("group.consumer.heartbeat.interval.ms", 5_000),
        max_size=config.get("group.consumer.max.size", INT32_MAX),
        assignors=tuple(map(assignor_name, config.get("group.consumer.assignors", ["uniform", "range"]))),
        assignment_interval_ms=config.get("group.consumer.assignment.interval.ms", 0),
        regex_refresh_interval_ms=config.get("group.consumer.regex.refresh.interval.ms", 600_000),
        migration=config.get("group.consumer.migration.policy", "disabled").lower(),
        classic_max_size=config["group.max.size"],
        first_epoch=int(behaviour.spaces_assignments),
        by_hash=behaviour.hashes_topics,
        rejoins_at_zero=behaviour.rejoins_at_zero,
        resets_epochs=behaviour.commits_by_assignment,
        commits_by_assignment=behaviour.commits_by_assignment,
    )


def _share(config: Any, behaviour: Behaviour) -> ShareSettings:
    return ShareSettings(
        session_timeout_ms=config.get("group.share.session.timeout.ms", 45_000),
        heartbeat_interval_ms=config.get("group.share.heartbeat.interval.ms", 5_000),
        max_size=config.get("group.share.max.size", 200),
        assignment_interval_ms=config.get("group.share.assignment.interval.ms", 0),
        initialize_retry_ms=config.get("group.share.initialize.retry.interval.ms", 30_000),
        first_epoch=int(behaviour.spaces_assignments),
    )


def _streams(config: Any, behaviour: Behaviour) -> StreamsSettings:
    return StreamsSettings(
        session_timeout_ms=config.get("group.streams.session.timeout.ms", 45_000),
        heartbeat_interval_ms=config.get("group.streams.heartbeat.interval.ms", 5_000),
        max_size=config.get("group.streams.max.size", INT32_MAX),
        assignment_interval_ms=(
            config.get("group.streams.assignment.interval.ms", 1_000) if behaviour.spaces_assignments else 0
        ),
        initial_delay_ms=config.get("group.streams.initial.rebalance.delay.ms", 3_000),
        standby_replicas=config.get("group.streams.num.standby.replicas", 0),
        rack_tags=tuple(config.get("group.streams.rack.aware.assignment.tags") or ()),
        task_offset_interval_ms=config.get("group.streams.task.offset.interval.ms", 60_000),
        acceptable_recovery_lag=config.get("group.streams.acceptable.recovery.lag", 10_000),
        first_epoch=int(behaviour.spaces_assignments),
        has_static_members=behaviour.static_streams_members,
    )


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
