"""The options of the consumer: names, bounds and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..net.errors import ConfigError
from ..net.options import ALIASES, ClientOptions, check_name, ranged

_CHOICES = {
    "isolation": ("read_uncommitted", "read_committed"),
    "offset_reset": ("latest", "earliest", "none"),
    "assignor": ("range", "roundrobin"),
    "group_protocol": ("classic", "consumer"),
}
# Options of a member that the coordinator has in the consumer protocol (KIP-848).
_OF_CLASSIC = ("assignor", "session_timeout_ms", "heartbeat_interval_ms")
# Kafka's names (as fields) of options with a shorter name here.
CONSUMER_ALIASES = {
    **ALIASES,
    "group_id": "group",
    "isolation_level": "isolation",
    "auto_offset_reset": "offset_reset",
    "partition_assignment_strategy": "assignor",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions(ClientOptions):
    """The options of a consumer, in addition to those of all clients. Raises ConfigError."""

    group: str | None = None
    group_instance_id: str | None = None
    group_protocol: Literal["classic", "consumer"] = "classic"
    group_remote_assignor: str | None = None
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    offset_reset: Literal["latest", "earliest", "none"] = "latest"
    assignor: Literal["range", "roundrobin"] = "range"
    fetch_min_bytes: int = ranged(1, 0)
    fetch_max_bytes: int = ranged(50 << 20, 1)
    fetch_max_wait_ms: int = ranged(500, 0)
    max_partition_fetch_bytes: int = ranged(1 << 20, 1)
    max_poll_records: int = ranged(500, 1)
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = ranged(5_000, 1)
    session_timeout_ms: int = ranged(45_000, 1)
    heartbeat_interval_ms: int = ranged(3_000, 1)
    max_poll_interval_ms: int = ranged(300_000, 1)
    check_crcs: bool = True

    def __post_init__(self) -> None:
        ClientOptions.__post_init__(self)
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}")
        for name in ("group", "group_instance_id", "group_remote_assignor"):
            if getattr(self, name) is not None:
                check_name(name, getattr(self, name))
        for name in ("enable_auto_commit", "check_crcs"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} must be true or false, not {getattr(self, name)!r}")
        if self.group_instance_id is not None and self.group is None:
            raise ConfigError("group.instance.id needs a group.id")
        if self.group_protocol == "classic" and self.group_remote_assignor is not None:
            raise ConfigError("group_remote_assignor needs group_protocol=consumer")
        for name in _OF_CLASSIC if self.group_protocol == "consumer" else ():
            if getattr(self, name) != ConsumerOptions.__dataclass_fields__[name].default:
                raise ConfigError(f"{name} has no effect with group_protocol=consumer: it is a config of the broker")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be below"
                f" session.timeout.ms ({self.session_timeout_ms})"
            )
