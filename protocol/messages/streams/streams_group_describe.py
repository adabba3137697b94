"""StreamsGroupDescribe: request and response of API key 89. KIP-1071, KIP-1331, KIP-1357."""

from __future__ import annotations

from ...limits import INT32_MIN
from ...primitives import Bool, Int8, Int16, Int32, Text
from ...schema import field, group, message
from .parts import Endpoint, KeyValue, TaskIds, TaskOffset, TopicInfo
from .topology_description import TopologyDescription


@message(api_key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeRequest:
    group_ids: list[Text]
    include_authorized_operations: Bool
    include_topology_description: Bool = field("1+", default=False)


@group
class Assignment:
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


@message(api_key=89, versions="0-1", flexible="0+")
class StreamsGroupDescribeResponse:
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup]

    @group
    class DescribedGroup:
        """v1 adds the description of the topology, the status of that, and the name of the assignor."""

        error_code: Int16 = 0
        error_message: Text | None = None
        group_id: Text
        group_state: Text
        group_epoch: Int32
        assignment_epoch: Int32
        topology: Topology | None = field(default=None)
        members: list[Member]
        authorized_operations: Int32 = INT32_MIN
        topology_description: TopologyDescription | None = field("1+", default=None, nullable="1+")
        topology_description_status: Int8 = field("1+", default=0)
        assignor_name: Text | None = field("1+", default=None, nullable="1+", ignorable=True)

        @group
        class Topology:
            epoch: Int32
            subtopologies: list[Subtopology] | None = field(default=None)

            @group
            class Subtopology:
                subtopology_id: Text
                source_topics: list[Text]
                repartition_sink_topics: list[Text]
                state_changelog_topics: list[TopicInfo]
                repartition_source_topics: list[TopicInfo]

        @group
        class Member:
            member_id: Text
            member_epoch: Int32
            instance_id: Text | None = None
            rack_id: Text | None = None
            client_id: Text
            client_host: Text
            topology_epoch: Int32
            process_id: Text
            user_endpoint: Endpoint | None = field(default=None)
            client_tags: list[KeyValue]
            task_offsets: list[TaskOffset]
            task_end_offsets: list[TaskOffset]
            assignment: Assignment
            target_assignment: Assignment
            is_classic: Bool
