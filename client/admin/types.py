"""The parameters and results of the admin client: plain values with Kafka's names, units last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, IntEnum

from ...protocol.acls import AclOperation, PatternType, PermissionType
from ...protocol.acls import ResourceType as AclResourceType
from ...protocol.config_codes import Code, ConfigSource
from ...protocol.config_codes import ConfigType as ConfigType
from ...protocol.named import NamedTuple
from ..net.errors import ClientError
from ..net.metadata import Node

DEFAULT_COUNT = -1  # of partitions or replicas: the broker's default (KIP-464)
TopicPartition = tuple[str, int]


class NewTopic(NamedTuple):
    """A topic to create. `assignments` are the node ids of each partition's replicas; they replace the counts."""

    name: str
    partition_count: int = DEFAULT_COUNT
    replication_factor: int = DEFAULT_COUNT
    assignments: Mapping[int, Sequence[int]] = {}
    configs: Mapping[str, str | None] = {}


class CreatedTopic(NamedTuple):
    """A topic that was created or validated. Before Kafka 2.4 only the name is known: counts are -1, `configs` None.

    `configs` is also None if the client is not authorized to describe them. `id` is zeros before 2.8.
    """

    name: str
    id: bytes
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] | None = None


class NewPartitions(NamedTuple):
    """The total partition count of a topic; `assignments` are the node ids of each new partition's replicas."""

    total_count: int
    assignments: Sequence[Sequence[int]] | None = None


class TopicListing(NamedTuple):
    """A topic in a list; `id` is zeros before Kafka 2.8."""

    name: str
    id: bytes
    is_internal: bool


class PartitionDescription(NamedTuple):
    """A partition; replicas are node ids. `leader` is -1 without one, `leader_epoch` is -1 before Kafka 2.1."""

    index: int  # pyright: ignore[reportIncompatibleMethodOverride] - Kafka's word, which a tuple has as a method
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class TopicDescription(NamedTuple):
    """A topic with its partitions, sorted."""

    name: str
    id: bytes
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class ClusterDescription(NamedTuple):
    """A cluster. `cluster_id` is None before Kafka 0.10.1, `controller` is None if the response has none."""

    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]


# Configs


class ResourceType(Code):
    """The type of a resource with configs."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A resource with configs. The name of a broker is its node id as text, empty for the cluster-wide default."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """Returns the resource of a topic."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> ConfigResource:
        """Returns the resource of a broker, or of the cluster-wide default."""
        return cls(ResourceType.BROKER, "" if node_id is None else str(node_id))


class ConfigSynonym(NamedTuple):
    """A config of another level, which is effective if the synonyms before it are not set."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A config. `value` is None if it is unset or sensitive. `synonyms` are returned by Kafka 1.1 and later."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: ConfigType = ConfigType.UNKNOWN
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None


class ConfigOperation(IntEnum):
    """An operation on a config (KIP-339); APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """A change of a config; `value` is None for DELETE."""

    operation: ConfigOperation
    value: str | None


# Logs


class ProducerState(NamedTuple):
    """The state of a producer in a partition. -1 means none: no batch, no transaction, no coordinator epoch."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    coordinator_epoch: int
    current_transaction_start_offset: int
    last_timestamp_ms: int


class LogDirPartition(NamedTuple):
    """A partition's log in a directory. `is_future`: it is being moved there, `offset_lag` offsets are left to copy."""

    offset_lag: int
    is_future: bool
    size_bytes: int


class LogDir(NamedTuple):
    """A log directory of a broker; `error` if it is offline. The sizes of its volume are -1 before Kafka 3.3."""

    path: str
    partitions: Mapping[TopicPartition, LogDirPartition]
    error: ClientError | None
    is_cordoned: bool
    total_bytes: int
    usable_bytes: int


# Groups


CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
"""Types of groups."""


class GroupListing(NamedTuple):
    """A group in a list. `state` is empty before Kafka 2.6, `type` before 3.8."""

    group: str
    protocol_type: str
    state: str
    type: str


class MemberTasks(NamedTuple):
    """The tasks of a member of a streams group (KIP-1071): partitions by subtopology id, in order."""

    active: Mapping[str, tuple[int, ...]]
    standby: Mapping[str, tuple[int, ...]]
    warmup: Mapping[str, tuple[int, ...]]


class MemberDescription(NamedTuple):
    """A member of a group.

    `partitions` are the assigned ones. In a classic group of consumers they are parsed from `assignment`, and
    `metadata` is the subscription, empty unless the group is stable; other groups have `epoch`, `topics` and `regex`
    instead. Of consumer groups (KIP-848), `target` is the target assignment, and `upgraded` whether the member uses
    that protocol, None before Kafka 4.0 (KIP-1099). Of streams groups (KIP-1071) `partitions` are those that the active
    tasks read, if their topics have them; `tasks` and `target_tasks` are the tasks, `process` is the process id.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    assignment: bytes
    metadata: bytes
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None
    upgraded: bool | None = None
    topics: tuple[str, ...] = ()
    regex: str | None = None
    tasks: MemberTasks | None = None
    target_tasks: MemberTasks | None = None
    process: str = ""


class GroupDescription(NamedTuple):
    """A group. `protocol` is the chosen assignor, `state` Kafka's name (Stable, ...), `coordinator` a node id.

    `type` is `classic`, `consumer`, `share` or `streams`. Classic groups have no epochs, streams groups alone
    one of the topology.
    """

    group: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[MemberDescription, ...]
    type: str = CLASSIC
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    topology_epoch: int | None = None


class ShareOffset(NamedTuple):
    """The start offset of a share partition (KIP-932). The leader epoch may be None, before Kafka 4.2 the lag is."""

    start_offset: int
    leader_epoch: int | None = None
    lag: int | None = None


# Transactions


class TransactionListing(NamedTuple):
    """A transactional id in a list; `state` is Kafka's name (Ongoing, CompleteCommit, ...)."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id. `start_ms` is -1 without an open transaction, `coordinator` is a node id."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]


# The cluster


class ElectionType(IntEnum):
    """The new leader: the preferred replica, or any live replica, in sync or not (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


class Reassignment(NamedTuple):
    """A reassignment in progress: node ids of the replicas, and those of them to be added and removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Replica(NamedTuple):
    """A replica of a partition on a broker."""

    topic: str
    partition: int
    node_id: int


class VersionRange(NamedTuple):
    """A range of versions, inclusive."""

    least: int
    most: int


class Features(NamedTuple):
    """The supported features of a broker and the finalized ones of the cluster; the epoch is -1 without the latter."""

    supported: Mapping[str, VersionRange]
    finalized: Mapping[str, VersionRange]
    finalized_epoch: int


class UpgradeType(IntEnum):
    """The allowed direction of a feature update: upgrade, downgrade without loss, downgrade with loss of metadata."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """The new level of a feature; 0 deletes it."""

    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


class QuorumReplica(NamedTuple):
    """A voter or observer; times are epoch milliseconds, -1 before Kafka 3.3."""

    node_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class Quorum(NamedTuple):
    """The quorum of controllers of a KRaft cluster."""

    leader: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


# Quotas


class AnyName(Enum):
    """Matches every name of an entity's type, including the default."""

    ANY = "any"


ANY_NAME = AnyName.ANY
QUOTA_ENTITY_TYPES = ("user", "client-id", "ip")
QuotaEntity = tuple[tuple[str, str | None], ...]
"""Types of `QUOTA_ENTITY_TYPES` with names, None for the default: `(("user", "anna"), ("client-id", None))`."""


# Access control lists


class AclBinding(NamedTuple):
    """A permission or prohibition of an operation on resources whose name is, or begins with, `resource_name`."""

    resource_type: AclResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: PermissionType


class AclFilter(NamedTuple):
    """A filter of bindings; None and ANY match all. The pattern type MATCH finds all bindings that affect a name."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: PermissionType = PermissionType.ANY


# Users


class ScramMechanism(Code):
    """The SCRAM mechanism of a credential."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class ScramCredential(NamedTuple):
    """A stored credential, as brokers describe it."""

    mechanism: ScramMechanism
    iterations: int


class ScramUpsertion(NamedTuple):
    """A credential to store. `salt` is random if it is None."""

    user: str
    mechanism: ScramMechanism
    password: str
    iterations: int = 4096
    salt: bytes | None = None


class ScramDeletion(NamedTuple):
    """A credential to delete."""

    user: str
    mechanism: ScramMechanism
