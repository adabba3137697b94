"""Metadata: request and response of API key 3. KIP-4, KIP-430, KIP-516, KIP-1102.

Ottla's extension, from v9 on, has KIP-192's `MessageFormatVersion` and `MaxMessageBytes`, which no release of Kafka
implements. A client that sends the empty tagged field 10192 receives the tagged fields 10192 and 10193 of each topic;
responses to other clients do not have them.
"""

from __future__ import annotations

from ...primitives import ZERO_UUID, Bool, Int8, Int16, Int32, Present, Text, Uuid
from ...schema import field, group, message


@message(api_key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    """Null requests all topics (v1); v4 adds the auto-creation flag, v8 authorized operations, v12 lookup by topic
    id."""

    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: Bool = field("4+", default=True)
    include_cluster_authorized_operations: Bool = field("8-10", default=False)
    include_topic_authorized_operations: Bool = field("8+", default=False)
    include_message_format: Present = field("9+", default=False, tag=10192, ignorable=True, extension=True)

    @group
    class MetadataRequestTopic:
        topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
        name: Text | None = field(nullable="10+")


@message(api_key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    """Brokers and topics. v10 adds topic ids, v13 a top-level error (KIP-1102)."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: Text | None = field("2+", default=None, ignorable=True)
    controller_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = field("8-10", default=-2147483648)
    error_code: Int16 = field("13+", default=0, ignorable=True)

    @group
    class MetadataResponseBroker:
        node_id: Int32
        host: Text
        port: Int32
        rack: Text | None = field("1+", default=None, ignorable=True)

    @group
    class MetadataResponseTopic:
        error_code: Int16
        name: Text | None = field(nullable="12+")
        topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
        is_internal: Bool = field("1+", default=False, ignorable=True)
        partitions: list[MetadataResponsePartition]
        topic_authorized_operations: Int32 = field("8+", default=-2147483648)
        message_format_version: Int8 = field("9+", default=-1, tag=10192, ignorable=True, extension=True)
        max_message_bytes: Int32 = field("9+", default=-1, tag=10193, ignorable=True, extension=True)

        @group
        class MetadataResponsePartition:
            error_code: Int16
            partition_index: Int32
            leader_id: Int32
            leader_epoch: Int32 = field("7+", default=-1, ignorable=True)
            replica_nodes: list[Int32]
            isr_nodes: list[Int32]
            offline_replicas: list[Int32] = field("5+", default=list, ignorable=True)
