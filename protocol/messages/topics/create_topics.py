"""CreateTopics: request and response of API key 19. KIP-4, KIP-464, KIP-525, KIP-516."""

from __future__ import annotations

from ...primitives import ZERO_UUID, Bool, Int8, Int16, Int32, Text, Uuid
from ...schema import field, group, message


@message(api_key=19, versions="0-7", flexible="5+")
class CreateTopicsRequest:
    """v1 adds validate-only, v4 default partitions and replication factor (KIP-464), v5 is flexible."""

    topics: list[CreatableTopic]
    timeout_ms: Int32 = 60000
    validate_only: Bool = field("1+", default=False)

    @group
    class CreatableTopic:
        name: Text
        num_partitions: Int32
        replication_factor: Int16
        assignments: list[CreatableReplicaAssignment]
        configs: list[CreatableTopicConfig]

        @group
        class CreatableReplicaAssignment:
            partition_index: Int32
            broker_ids: list[Int32]

        @group
        class CreatableTopicConfig:
            name: Text
            value: Text | None


@message(api_key=19, versions="0-7", flexible="5+")
class CreateTopicsResponse:
    """v5 returns configs (KIP-525), v7 topic ids."""

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult]

    @group
    class CreatableTopicResult:
        name: Text
        topic_id: Uuid = field("7+", default=ZERO_UUID, ignorable=True)
        error_code: Int16
        error_message: Text | None = field("1+", default="", ignorable=True)
        topic_config_error_code: Int16 = field("5+", default=0, tag=0, ignorable=True)
        num_partitions: Int32 = field("5+", default=-1, ignorable=True)
        replication_factor: Int16 = field("5+", default=-1, ignorable=True)
        configs: list[CreatableTopicConfigs] | None = field("5+", default=list, ignorable=True)

        @group
        class CreatableTopicConfigs:
            name: Text
            value: Text | None
            read_only: Bool
            config_source: Int8 = field(default=-1, ignorable=True)
            is_sensitive: Bool
