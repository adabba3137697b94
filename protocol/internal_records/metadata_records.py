"""Records of `__cluster_metadata`: topics, partitions, configs, producer-id blocks (KIP-500, KIP-631)."""

from __future__ import annotations

from ..primitives import Bool, Bytes, Float64, Int8, Int16, Int32, Int64, Text, Uuid
from ..schema import field, group, message


@message(api_key=2, versions="0", flexible="0+")
class TopicRecord:
    """A topic was created."""

    name: Text
    topic_id: Uuid


@message(api_key=3, versions="0-2", flexible="0+")
class PartitionRecord:
    """A partition was created."""

    partition_id: Int32 = -1
    topic_id: Uuid
    replicas: list[Int32]
    isr: list[Int32]
    removing_replicas: list[Int32]
    adding_replicas: list[Int32]
    leader: Int32 = -1
    leader_recovery_state: Int8 = field(default=0, tag=0)
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: list[Uuid] = field("1+", default=list)
    eligible_leader_replicas: list[Int32] | None = field("2+", default=None, tag=1)
    last_known_elr: list[Int32] | None = field("2+", default=None, tag=2)


@message(api_key=5, versions="0-2", flexible="0+")
class PartitionChangeRecord:
    """Changes of a partition. A field that did not change is null, the leader -2."""

    partition_id: Int32 = -1
    topic_id: Uuid
    isr: list[Int32] | None = field(default=None, tag=0)
    leader: Int32 = field(default=-2, tag=1)
    replicas: list[Int32] | None = field(default=None, tag=2)
    removing_replicas: list[Int32] | None = field(default=None, tag=3)
    adding_replicas: list[Int32] | None = field(default=None, tag=4)
    leader_recovery_state: Int8 = field(default=-1, tag=5)
    directories: list[Uuid] | None = field("1+", default=None, tag=8)
    eligible_leader_replicas: list[Int32] | None = field("2+", default=None, tag=6)
    last_known_elr: list[Int32] | None = field("2+", default=None, tag=7)


@message(api_key=4, versions="0", flexible="0+")
class ConfigRecord:
    """A config was set, or removed (null value)."""

    resource_type: Int8
    resource_name: Text
    name: Text
    value: Text | None


@message(api_key=9, versions="0", flexible="0+")
class RemoveTopicRecord:
    """A topic was deleted."""

    topic_id: Uuid


@message(api_key=15, versions="0", flexible="0+")
class ProducerIdsRecord:
    """A block of producer ids was handed out; the next block starts at next_producer_id."""

    broker_id: Int32
    broker_epoch: Int64 = -1
    next_producer_id: Int64


@message(api_key=12, versions="0", flexible="0+")
class FeatureLevelRecord:
    """A feature was finalised at a level."""

    name: Text
    feature_level: Int16


@message(api_key=18, versions="0", flexible="0+")
class AccessControlEntryRecord:
    """An access control entry was added."""

    id: Uuid
    resource_type: Int8
    resource_name: Text
    pattern_type: Int8
    principal: Text
    host: Text
    operation: Int8
    permission_type: Int8


@message(api_key=19, versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    """An access control entry was removed."""

    id: Uuid


@message(api_key=14, versions="0", flexible="0+")
class ClientQuotaRecord:
    """A quota of a client was set or removed. KIP-546."""

    entity: list[EntityData]
    key: Text
    value: Float64
    remove: Bool

    @group
    class EntityData:
        entity_type: Text
        entity_name: Text | None


@message(api_key=11, versions="0", flexible="0+")
class UserScramCredentialRecord:
    """A user's SCRAM credential was set: salt, iterations and the two keys of RFC 5802. KIP-554, KIP-900."""

    name: Text
    mechanism: Int8
    salt: Bytes
    stored_key: Bytes
    server_key: Bytes
    iterations: Int32


@message(api_key=22, versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    """A user's SCRAM credential was removed."""

    name: Text
    mechanism: Int8


@message(api_key=10, versions="0", flexible="0+")
class DelegationTokenRecord:
    """A delegation token was created, renewed, or given another expiry; it has no secret. KIP-48, KIP-900."""

    owner: Text
    requester: Text
    renewers: list[Text]
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: Text


@message(api_key=26, versions="0", flexible="0+")
class RemoveDelegationTokenRecord:
    """A delegation token was removed."""

    token_id: Text
