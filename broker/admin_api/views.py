"""The arguments and results of operations, as plain values: records, topics, groups, producers. Bytes stay bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from ...protocol.frozen import frozen
from ...protocol.narrowing import is_list, is_mapping, is_tuple

Value = bytes | str | None
"""A key or a value: bytes, text that is encoded as UTF-8, or None for null."""

# Errors that depend on the broker's state (HTTP 409); all others are caused by the request itself (400).
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
    """An operation was refused; one line with the reason."""


class NotFound(OperationError):
    """The topic, partition or group does not exist."""


class AlreadyExists(OperationError):
    """A topic of that name exists."""


class Unavailable(OperationError):
    """This broker was started without what the operation needs."""


class BrokerFailed(OperationError):
    """The broker's disk has failed; `restore` and `reset` start it again."""


def to_bytes(value: Any) -> bytes | None:
    """Returns a key or a value in bytes. Raises TypeError for other types."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(cast("bytearray", value))
    raise TypeError(f"a key or a value is bytes, str or None, not {type(value).__name__}")


def whole(name: str, value: Any) -> int:
    """Returns the number if it is an integer. Raises TypeError otherwise: a fractional time would spread into
    everything that is stored from then on."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(f"{name} is a whole number, not {value!r}")


def checked_text(name: str, value: Any) -> str:
    """Returns the name if it is a str. Raises TypeError otherwise."""
    if isinstance(value, str):
        return value
    raise TypeError(f"{name} is a str, not {value!r}")


def headers_of(given: Any) -> tuple[tuple[str, Value], ...]:
    """Returns headers as pairs; a mapping is accepted, too. Raises TypeError."""
    entries: Iterable[Any] = given.items() if is_mapping(given) else given
    found: list[tuple[str, Value]] = []
    for entry in entries:
        if not (is_tuple(entry) or is_list(entry)) or len(entry) != 2:
            raise TypeError(f"a header is a pair of a name and a value, not {entry!r}")
        found.append((checked_text("the name of a header", entry[0]), entry[1]))
    return tuple(found)


def config_texts(configs: Any) -> dict[str, str]:
    """Returns configs in Kafka's form: strings by name, `True` as "true". Raises TypeError."""
    if not is_mapping(configs):
        raise TypeError(f"configs are a mapping of names to values, not {configs!r}")
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in configs.items()}


@frozen
class Record:
    """A stored record. `headers` are (name, value); `timestamp_ms` is -1 if the format has no timestamps."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@frozen
class PartitionInfo:
    """A partition. Consumers read offsets from `start_offset` to below `end_offset`, the high watermark; consumers of
    committed records to below `stable_offset`. All three are -1 if the partition is `offline`."""

    partition: int
    leader: int
    leader_epoch: int
    start_offset: int
    end_offset: int
    stable_offset: int
    size_bytes: int
    offline: str | None = None


@frozen
class TopicInfo:
    """A topic; `id` is its id in Kafka's form, `configs` are its overrides."""

    name: str
    id: str
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]
    configs: dict[str, str]


@frozen
class Member:
    """A member of a group. `assignment` has its (topic, partition)s, `topics` its subscription; both are empty if the
    protocol is not a consumer's. A member of the consumer protocol (KIP-848), a share group (KIP-932) or a streams
    group (KIP-1071) has an `epoch`. In a group of the first and the last kind it has the partitions of its `target`
    assignment, and a `regex` if it subscribes to the topics that match one."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    topics: tuple[str, ...]
    assignment: tuple[tuple[str, int], ...]
    epoch: int | None = None
    regex: str = ""
    target: tuple[tuple[str, int], ...] | None = None


@frozen
class SharePartitionView:
    """The records in flight of a share partition (KIP-932): the offsets from `start_offset` to `end_offset`, by state.
    `deliveries` is the highest delivery count among those that may be delivered again. The offsets are None while no
    member fetches from the share partition."""

    topic: str
    partition: int
    start_offset: int | None = None
    end_offset: int | None = None
    available: int = 0
    acquired: int = 0
    acknowledged: int = 0
    archived: int = 0
    deliveries: int = 0


@frozen
class ShareRecords:
    """Records of a share partition in flight with equal states, from offset `first` to `last`: the number of their
    `deliveries`, how the last one ended (None if it has not, or before a restart), and with a lock its member and the
    time of its expiry."""

    first: int
    last: int
    state: str
    deliveries: int
    ended: str | None
    member: str | None
    lock_expires_ms: int | None


@frozen
class ShareRecordsInFlight:
    """The records of a share partition that are in flight. Those below `start_offset` are done. It is None while no
    member fetches from the share partition. A record is archived after `delivery_limit` deliveries."""

    start_offset: int | None
    delivery_limit: int
    records: tuple[ShareRecords, ...]


@frozen
class GroupOffset:
    """A committed offset with the log start offset and the high watermark of its partition. `lag` is the number of
    offsets that the group has not read yet. These three are None if the partition does not exist or cannot be read."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    lag: int | None
    start_offset: int | None = None
    end_offset: int | None = None


@frozen
class Group:
    """The present state of a group. A group that does not exist is in state Dead, as in DescribeGroups. With the types
    "consumer" (KIP-848), "share" (KIP-932) and "streams" (KIP-1071) `protocol` is the assignor and `generation` the
    epoch. `offsets` of a share group are its start offsets."""

    id: str
    state: str
    protocol_type: str
    protocol: str
    generation: int
    leader: str | None
    members: tuple[Member, ...]
    offsets: tuple[GroupOffset, ...]
    type: str = "classic"
    assignment_epoch: int | None = None
    share_partitions: tuple[SharePartitionView, ...] = ()

    @property
    def lag(self) -> int:
        """The sum over all partitions with a committed offset."""
        return sum(offset.lag or 0 for offset in self.offsets)

    @property
    def committed(self) -> dict[tuple[str, int], int]:
        """The committed offset of each (topic, partition)."""
        return {(offset.topic, offset.partition): offset.offset for offset in self.offsets}


@frozen
class ResetOffset:
    """The reset of one partition: the committed offset `before` (None if there was none) and `after`, which lies
    between the log start offset and the log end offset. `wanted` is the requested offset, if the log does not have
    it."""

    topic: str
    partition: int
    before: int | None
    after: int
    start_offset: int
    end_offset: int
    wanted: int | None = None


@frozen
class GroupReset:
    """The reset of a group's offsets. With `done` False it is a preview: nothing was changed."""

    group: str
    done: bool
    offsets: tuple[ResetOffset, ...]


@frozen
class ConfigInfo:
    """A config as DescribeConfigs returns it. `value` is None for a secret and for no value, `default` is the default
    of the release, `source` is Kafka's name of the value's source, `documentation` is None for a config that Ottla does
    not act on. `synonyms` are (name, value, source) of each place that has a value, the effective one first."""

    name: str
    value: str | None
    default: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool
    type: str
    documentation: str | None
    synonyms: tuple[tuple[str, str | None, str], ...]


@frozen
class AclEntry:
    """An access control entry in Kafka's names: `resource_type` TOPIC, `pattern_type` LITERAL, `operation` READ,
    `permission` ALLOW. In a filter None matches everything."""

    resource_type: str | None = None
    resource_name: str | None = None
    pattern_type: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: str | None = None
    permission: str | None = None


@frozen
class ProducerInfo:
    """The producer state entry of one producer in one partition; `transaction_start_offset` is -1 without an open
    transaction."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: int


@frozen
class NewRecord:
    """A record to append. Without a partition, its key chooses one as in Java's client; without a key the partitions
    are used round-robin."""

    value: Value
    key: Value = None
    headers: tuple[tuple[str, Value], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None

    @classmethod
    def of(cls, given: Any) -> NewRecord:
        """Returns a value, a (key, value) pair, or a record of either kind as a NewRecord."""
        if isinstance(given, NewRecord):
            return given
        if isinstance(given, Record):
            return cls(given.value, given.key, given.headers, given.partition, given.timestamp_ms)
        if is_tuple(given):
            if len(given) != 2:
                raise TypeError(f"a record is a value, a (key, value) pair, a NewRecord or a Record, not {given!r}")
            return cls(given[1], given[0])
        return cls(given)


def status_of(error: OperationError) -> int:
    """Returns the HTTP status of an error: 404 for things that do not exist, 409 if another state of the broker would
    allow the operation, else 400."""
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, (AlreadyExists, BrokerFailed, Unavailable)) or str(error).partition(":")[0] in STATES:
        return 409
    return 400
