"""Values of `__consumer_offsets`: streams groups (KIP-1071), by the type of their keys."""

from __future__ import annotations

from ..messages.streams.parts import Endpoint, KeyValue, Subtopology, TaskIds
from ..primitives import Int8, Int32, Int64, Text
from ..schema import field, group, message


@group
class CurrentTaskIds:
    """Tasks of a member, with the epochs at which active tasks were assigned."""

    subtopology_id: Text
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(default=list, tag=0)


@message(api_key=17, versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    """The epoch of the group, the hash of its topics, and the epoch of a topology whose topics are there. The last two
    fields, of a plugin for topology descriptions, are there since 4.4 (KIP-1331).
    """

    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Int32 = field(default=-1, tag=0)
    last_assignment_configs: list[KeyValue] | None = field(default=list, tag=1)
    stored_description_topology_epoch: Int32 = field(default=-1, tag=2)
    failed_description_topology_epoch: Int32 = field(default=-1, tag=3)


@message(api_key=19, versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    """What a member has sent about itself."""

    instance_id: Text | None
    rack_id: Text | None
    client_id: Text
    client_host: Text
    rebalance_timeout_ms: Int32 = -1
    topology_epoch: Int32
    process_id: Text
    user_endpoint: Endpoint | None = field(default=None)
    client_tags: list[KeyValue]


@message(api_key=20, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    """The epoch of the target assignment; its time since 4.3 (KIP-1263)."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0, ignorable=True)


@message(api_key=21, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    """The tasks of the target assignment."""

    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


@message(api_key=22, versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    """The epochs of a member and its tasks."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    active_tasks: list[CurrentTaskIds]
    standby_tasks: list[CurrentTaskIds]
    warmup_tasks: list[CurrentTaskIds]
    active_tasks_pending_revocation: list[CurrentTaskIds]
    standby_tasks_pending_revocation: list[CurrentTaskIds]
    warmup_tasks_pending_revocation: list[CurrentTaskIds]


@message(api_key=23, versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    """The topology, as its members have sent it."""

    epoch: Int32
    subtopologies: list[Subtopology]
