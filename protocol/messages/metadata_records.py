"""Records of `__cluster_metadata`: topics, partitions, configs, producer-id blocks (KIP-500, KIP-631)."""

from __future__ import annotations

from ..primitives import Int8, Int16, Int32, Int64, Text, Uuid
from ..schema import field, message


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
