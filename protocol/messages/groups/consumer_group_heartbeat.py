"""ConsumerGroupHeartbeat: request and response of API key 68. KIP-848, KIP-1082."""

from __future__ import annotations

from ...primitives import Int16, Int32, Text, Uuid
from ...schema import field, group, message


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    """Null, or -1, means that a field did not change. The epoch is 0 to join, -1 to leave, -2 to leave as a static
    member that will return. v1 adds the regular expression and requires a member id (KIP-1082).
    """

    group_id: Text
    member_id: Text
    member_epoch: Int32
    instance_id: Text | None = None
    rack_id: Text | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[Text] | None = field(default=None)
    subscribed_topic_regex: Text | None = field("1+", default=None)
    server_assignor: Text | None = None
    topic_partitions: list[TopicPartitions] | None = field(default=None)

    @group
    class TopicPartitions:
        topic_id: Uuid
        partitions: list[Int32]


@message(api_key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    """A null assignment means that the member keeps the one that it has."""

    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: Text | None = None
    member_id: Text | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = field(default=None)

    @group
    class Assignment:
        topic_partitions: list[TopicPartitions]

        @group
        class TopicPartitions:
            topic_id: Uuid
            partitions: list[Int32]
