"""StreamsGroupHeartbeat: request and response of API key 88. KIP-1071, KIP-1331."""

from __future__ import annotations

from ...primitives import Bool, Int8, Int16, Int32, Int64, Text
from ...schema import field, group, message
from .parts import Endpoint, KeyValue, Subtopology, TaskIds, TaskOffset


@message(api_key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatRequest:
    """Null, or -1, means that a field did not change. The epoch is 0 to join, -1 to leave, -2 to leave as a static
    member that will return. v1 is as v0: its response may have more.
    """

    group_id: Text
    member_id: Text
    member_epoch: Int32
    endpoint_information_epoch: Int32
    instance_id: Text | None = None
    rack_id: Text | None = None
    rebalance_timeout_ms: Int32 = -1
    topology: Topology | None = field(default=None)
    active_tasks: list[TaskIds] | None = field(default=None)
    standby_tasks: list[TaskIds] | None = field(default=None)
    warmup_tasks: list[TaskIds] | None = field(default=None)
    process_id: Text | None = None
    user_endpoint: Endpoint | None = field(default=None)
    client_tags: list[KeyValue] | None = field(default=None)
    task_offsets: list[TaskOffset] | None = field(default=None)
    task_end_offsets: list[TaskOffset] | None = field(default=None)
    shutdown_application: Bool = False

    @group
    class Topology:
        epoch: Int32
        subtopologies: list[Subtopology]


@group
class TopicPartition:
    topic: Text
    partitions: list[Int32]


@message(api_key=88, versions="0-1", flexible="0+")
class StreamsGroupHeartbeatResponse:
    """Null tasks mean that the member keeps those that it has."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Text | None = None
    member_id: Text = ""
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    acceptable_recovery_lag_legacy: Int32 = field("0", default=0)
    task_offset_interval_ms: Int32 = 0
    acceptable_recovery_lag: Int64 = field("1+", default=-1, ignorable=True)
    status: list[Status] | None = field(default=list)
    active_tasks: list[TaskIds] | None = field(default=None)
    standby_tasks: list[TaskIds] | None = field(default=None)
    warmup_tasks: list[TaskIds] | None = field(default=None)
    topology_description_required: Bool = field("1+", default=False)
    endpoint_information_epoch: Int32 = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field(default=None)

    @group
    class Status:
        status_code: Int8
        status_detail: Text

    @group
    class EndpointToPartitions:
        """The source partitions of a member's tasks; several members may have the same endpoint."""

        user_endpoint: Endpoint
        active_partitions: list[TopicPartition]
        standby_partitions: list[TopicPartition]
