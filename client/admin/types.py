"""What the admin takes and answers: plain values in Kafka's words, units last. Who fills them is `admin.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, IntEnum
from typing import NamedTuple

from ...protocol.acls import AclOperation, PatternType, PermissionType
from ...protocol.acls import ResourceType as AclResourceType
from ..net.errors import ClientError
from ..net.metadata import Node

DEFAULT_COUNT = -1  # of partitions or replicas: what the broker is configured to (KIP-464)
TopicPartition = tuple[str, int]


class _Told(IntEnum):
    """A number of the protocol; one that is newer than this client reads as UNKNOWN."""

    @classmethod
    def _missing_(cls, value: object) -> IntEnum:
        return cls(0)


class NewTopic(NamedTuple):
    """A topic to make. `assignments` are the node ids of each partition's replicas; counts are left out with them."""

    name: str
    partition_count: int = DEFAULT_COUNT
    replication_factor: int = DEFAULT_COUNT
    assignments: Mapping[int, Sequence[int]] = {}
    configs: Mapping[str, str | None] = {}


class CreatedTopic(NamedTuple):
    """A topic that was made, or could be. Before Kafka 2.4 brokers tell only that: -1 and None stand for the rest.

    `configs` is None as well where the caller may not read them. `id` is zeros before 2.8.
    """

    name: str
    id: bytes
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | None] | None = None


class NewPartitions(NamedTuple):
    """How many partitions a topic is to have; `assignments` are the node ids for each new one."""

    total_count: int
    assignments: Sequence[Sequence[int]] | None = None


class TopicListing(NamedTuple):
    """A topic's name, its id (zeros before Kafka 2.8), and whether it is one of Kafka's own."""

    name: str
    id: bytes
    is_internal: bool


class PartitionDescription(NamedTuple):
    """Node ids; `leader` is -1 while there is none, `leader_epoch` -1 where it is not told (before Kafka 2.1)."""

    index: int  # pyright: ignore[reportIncompatibleMethodOverride] - Kafka's word, which a tuple has as a method
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class TopicDescription(NamedTuple):
    """A topic with its partitions in order."""

    name: str
    id: bytes
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class ClusterDescription(NamedTuple):
    """`cluster_id` is None before Kafka 0.10.1, `controller` where none is told."""

    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]


# Configs


class ResourceType(_Told):
    """What a config belongs to."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(_Told):
    """Where the value of a config comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigType(_Told):
    """What a value has to be; told from Kafka 2.6 on."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigResource(NamedTuple):
    """What has configs. The name of a broker is its node id as text; empty for what holds for all brokers."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """A topic's."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> ConfigResource:
        """One broker's, or all brokers'."""
        return cls(ResourceType.BROKER, "" if node_id is None else str(node_id))


class ConfigSynonym(NamedTuple):
    """A config of another level, which would hold if the ones before it were not set."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A config as it holds now; `value` is None if it has none or is secret. Synonyms come from Kafka 1.1 on."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: ConfigType = ConfigType.UNKNOWN
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None


class ConfigOperation(IntEnum):
    """What is done to a config (KIP-339); the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """A change of one config: `value` of DELETE is None."""

    operation: ConfigOperation
    value: str | None


# Logs


class ProducerState(NamedTuple):
    """What a partition knows of a producer. -1 is what is not known: no batch, no transaction, no coordinator."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    coordinator_epoch: int
    current_transaction_start_offset: int
    last_timestamp_ms: int


class LogDirPartition(NamedTuple):
    """A partition's log in a directory. `is_future`: it is being moved there; `offset_lag` is how far it is behind."""

    offset_lag: int
    is_future: bool
    size_bytes: int


class LogDir(NamedTuple):
    """A directory of a broker; `error` if it is out of order. The sizes of its volume are -1 before Kafka 3.3."""

    path: str
    partitions: Mapping[TopicPartition, LogDirPartition]
    error: ClientError | None
    is_cordoned: bool
    total_bytes: int
    usable_bytes: int


# Groups


class GroupListing(NamedTuple):
    """A group that a coordinator knows. `state` is empty before Kafka 2.6, `type` before 3.8."""

    group: str
    protocol_type: str
    state: str
    type: str


class MemberDescription(NamedTuple):
    """A member of a group. `partitions` are those assigned, in a group of consumers; `assignment` what they were read
    from, `metadata` what the member said of itself (empty unless the group is stable)."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    assignment: bytes
    metadata: bytes


class GroupDescription(NamedTuple):
    """A group; `protocol` is the chosen assignor, `state` Kafka's word (Empty, Stable, ...)."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    coordinator: int
    members: tuple[MemberDescription, ...]


# Transactions


class TransactionListing(NamedTuple):
    """A transactional id that a coordinator knows; `state` is Kafka's word (Ongoing, CompleteCommit, ...)."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id; `start_ms` is -1 while no transaction is open, `coordinator` a node id."""

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
    """Who is to lead: the first of the replicas, or any that runs, in sync or not (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


class Reassignment(NamedTuple):
    """Where a partition's replicas are while they move: node ids, and those of them that come and go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Replica(NamedTuple):
    """A partition's replica on one broker."""

    topic: str
    partition: int
    node_id: int


class VersionRange(NamedTuple):
    """From and to, both included."""

    least: int
    most: int


class Features(NamedTuple):
    """What a broker supports and the cluster has agreed on, by name; the epoch is -1 where nothing is agreed on."""

    supported: Mapping[str, VersionRange]
    finalized: Mapping[str, VersionRange]
    finalized_epoch: int


class UpgradeType(IntEnum):
    """Which way a feature may go: up, down without loss, down with it."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """The level that a feature is to have; 0 removes it."""

    level: int
    upgrade_type: UpgradeType = UpgradeType.UPGRADE


class QuorumReplica(NamedTuple):
    """A voter or observer; times are epoch milliseconds, -1 where they are not told (before Kafka 3.3)."""

    node_id: int
    directory_id: bytes
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class Quorum(NamedTuple):
    """The controllers of a cluster without ZooKeeper, as `__cluster_metadata` has them."""

    leader: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]


# Quotas


class AnyName(Enum):
    """Stands for every name of an entity's type, the default too."""

    ANY = "any"


ANY_NAME = AnyName.ANY
QUOTA_ENTITY_TYPES = ("user", "client-id", "ip")
QuotaEntity = tuple[tuple[str, str | None], ...]
"""Types of `QUOTA_ENTITY_TYPES` with a name each, None for the default: `(("user", "anna"), ("client-id", None))`."""


# Access control lists


class AclBinding(NamedTuple):
    """Who may, or may not, do what with which resources: all whose name is, or begins with, `resource_name`."""

    resource_type: AclResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: PermissionType


class AclFilter(NamedTuple):
    """What bindings are to be like; None and ANY match all. The pattern MATCH finds what affects a name."""

    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: PermissionType = PermissionType.ANY


# Users


class ScramMechanism(_Told):
    """How a password is stored."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2


class ScramCredential(NamedTuple):
    """What a broker tells of a stored password: how often it was hashed."""

    mechanism: ScramMechanism
    iterations: int


class ScramUpsertion(NamedTuple):
    """A password to store. `salt` is made up if it is None."""

    user: str
    mechanism: ScramMechanism
    password: str
    iterations: int = 4096
    salt: bytes | None = None


class ScramDeletion(NamedTuple):
    """A password to forget."""

    user: str
    mechanism: ScramMechanism
