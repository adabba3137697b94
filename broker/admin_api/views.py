"""What operations take and tell, as plain values: records, topics, groups, producers. Bytes stay bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Value = bytes | str | None
"""A key or a value as it may be given: a text stands for its UTF-8, None for none at all."""

# What Kafka calls refusals that another state of the broker would not bring; the others are the request's own fault.
STATES = {
    "COORDINATOR_NOT_AVAILABLE",
    "INVALID_REPLICATION_FACTOR",
    "KAFKA_STORAGE_ERROR",
    "LEADER_NOT_AVAILABLE",
    "NON_EMPTY_GROUP",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "NOT_LEADER_OR_FOLLOWER",
    "OFFSET_NOT_AVAILABLE",
    "POLICY_VIOLATION",
    "REQUEST_TIMED_OUT",
    "SECURITY_DISABLED",
    "UNKNOWN_SERVER_ERROR",
}


class OperationError(Exception):
    """Something cannot be done as asked; one line that says why."""


class NotFound(OperationError):
    """There is no such topic, partition or group."""


class AlreadyExists(OperationError):
    """There is a topic of that name."""


class BrokerFailed(OperationError):
    """The broker cannot go on, as its disk failed; `restore` and `reset` begin anew."""


def to_bytes(value: Value) -> bytes | None:
    """A key or a value in bytes. Raises TypeError for what is neither text nor bytes."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"a key or a value is bytes, str or None, not {type(value).__name__}")


def whole(name: str, value: Any) -> int:
    """A number as it was given. Raises TypeError for what is no whole number: a time in fractions would go round in
    everything that is stored from then on."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(f"{name} is a whole number, not {value!r}")


def checked_text(name: str, value: Any) -> str:
    """A name as it was given. Raises TypeError for what is no text."""
    if isinstance(value, str):
        return value
    raise TypeError(f"{name} is a str, not {value!r}")


def headers_of(given: Any) -> tuple[tuple[str, Value], ...]:
    """Headers as pairs, or as a mapping where no name comes twice. Raises TypeError."""
    entries = given.items() if isinstance(given, Mapping) else given
    found = []
    for entry in entries:
        if not isinstance(entry, tuple | list) or len(entry) != 2:
            raise TypeError(f"a header is a pair of a name and a value, not {entry!r}")
        found.append((checked_text("the name of a header", entry[0]), entry[1]))
    return tuple(found)


def config_texts(configs: Mapping[str, Any]) -> dict[str, str]:
    """Configs as Kafka has them: texts by name, `True` as "true". Raises TypeError."""
    if not isinstance(configs, Mapping):
        raise TypeError(f"configs are values by their names, not {configs!r}")
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in configs.items()}


@dataclass(frozen=True, slots=True)
class Record:
    """One record as it is stored. `headers` are (name, value); `timestamp_ms` is -1 where the format has none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition. Consumers see offsets from `start_offset` to below `end_offset`, the high watermark; below
    `stable_offset` those who read committed records only. Of one that is `offline` they are -1."""

    partition: int
    leader: int
    leader_epoch: int
    start_offset: int
    end_offset: int
    stable_offset: int
    size_bytes: int
    offline: str | None = None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic; `id` is its id as Kafka writes it, `configs` what is set on it."""

    name: str
    id: str
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]
    configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a group. `assignment` has its (topic, partition)s, `topics` those it subscribes to; both are
    empty where a protocol is not a consumer's."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    topics: tuple[str, ...]
    assignment: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """One committed offset with the log start offset and the log end offset (the high watermark) of its partition.
    `lag` is how many offsets the group has still to read. These three are None where the partition does not exist or
    cannot be read."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    lag: int | None
    start_offset: int | None = None
    end_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """One group as it is now. A group that is not there is in state Dead, as Kafka tells it."""

    id: str
    state: str
    protocol_type: str
    protocol: str
    generation: int
    leader: str | None
    members: tuple[Member, ...]
    offsets: tuple[GroupOffset, ...]

    @property
    def lag(self) -> int:
        """The sum over all partitions with a committed offset."""
        return sum(offset.lag or 0 for offset in self.offsets)

    @property
    def committed(self) -> dict[tuple[str, int], int]:
        """The committed offset of each (topic, partition)."""
        return {(offset.topic, offset.partition): offset.offset for offset in self.offsets}


@dataclass(frozen=True, slots=True)
class ResetOffset:
    """The reset of one partition: the committed offset `before` (None: there was none) and `after`, between the log
    start offset and the log end offset. `wanted` is the offset that was asked for where the log does not have it."""

    topic: str
    partition: int
    before: int | None
    after: int
    start_offset: int
    end_offset: int
    wanted: int | None = None


@dataclass(frozen=True, slots=True)
class GroupReset:
    """The reset of a group's offsets. With `done` False it is a preview: nothing was changed."""

    group: str
    done: bool
    offsets: tuple[ResetOffset, ...]


@dataclass(frozen=True, slots=True)
class ConfigInfo:
    """One config as DescribeConfigs returns it. `value` is None for a secret and for no value, `default` is that of the
    release, `source` Kafka's name of where the value comes from, `documentation` None where Ottla does not act on it.
    `synonyms` are (name, value, source) of each place that gives a value, the one in force first."""

    name: str
    value: str | None
    default: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool
    type: str
    documentation: str | None
    synonyms: tuple[tuple[str, str | None, str], ...]


@dataclass(frozen=True, slots=True)
class ConfigChanges:
    """Changes of configs as IncrementalAlterConfigs has them: values to set, names to delete, list elements (joined by
    commas) to append or subtract."""

    set: Mapping[str, str] = field(default_factory=dict)
    delete: tuple[str, ...] = ()
    append: Mapping[str, str] = field(default_factory=dict)
    subtract: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        set: Mapping[str, Any] | None,
        delete: Iterable[str],
        append: Mapping[str, Any] | None,
        subtract: Mapping[str, Any] | None,
    ) -> ConfigChanges:
        """From values as a test writes them. Raises TypeError."""
        if isinstance(delete, str):
            raise TypeError(f"delete is a list of names, not {delete!r}")
        return cls(config_texts(set or {}), tuple(delete), config_texts(append or {}), config_texts(subtract or {}))


@dataclass(frozen=True, slots=True)
class AclEntry:
    """One access control entry, in Kafka's words: `resource_type` TOPIC, `pattern_type` LITERAL, `operation` READ,
    `permission` ALLOW. In a filter None matches everything."""

    resource_type: str | None = None
    resource_name: str | None = None
    pattern_type: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: str | None = None
    permission: str | None = None


@dataclass(frozen=True, slots=True)
class ProducerInfo:
    """What a partition knows of one producer; `transaction_start_offset` is -1 without an open transaction."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to be sent. Without a partition it goes where Java's client puts its key, else in turns."""

    value: Value
    key: Value = None
    headers: tuple[tuple[str, Value], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None

    @classmethod
    def of(cls, given: Any) -> NewRecord:
        """From a value, a (key, value) pair, or a record of either kind."""
        if isinstance(given, NewRecord):
            return given
        if isinstance(given, Record):
            return cls(given.value, given.key, given.headers, given.partition, given.timestamp_ms)
        if isinstance(given, tuple):
            if len(given) != 2:
                raise TypeError(f"a record is a value, a (key, value) pair, a NewRecord or a Record, not {given!r}")
            return cls(given[1], given[0])
        return cls(given)


def status_of(error: OperationError) -> int:
    """Of what the broker refuses: 404 for what is not there, 409 for what could be done in another state, else 400."""
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, (AlreadyExists, BrokerFailed)) or str(error).partition(":")[0] in STATES:
        return 409
    return 400
