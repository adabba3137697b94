"""Cases of `test_apis.py` for streams groups."""

from __future__ import annotations

from typing import Any

from ottla.protocol.messages.streams.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.streams.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.protocol.messages.streams.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from ottla.protocol.messages.streams.topology_description import TopologyDescription
from ottla_testing.broker.api_cases import World, case
from ottla_testing.broker.streaming import GROUP, beating, joining

KEYS = {88, 89, 93}


async def joined(world: World, version: int) -> Any:
    response = await world.client.call(joining(), version)
    assert (response.error_code, response.error_message, response.member_id) == (0, None, "a")
    return response


@case(StreamsGroupHeartbeatRequest)
async def joins_a_streams_group(world: World, version: int) -> None:
    response = await joined(world, version)
    assert (response.member_epoch, response.heartbeat_interval_ms, response.task_offset_interval_ms) == (1, 5000, 60000)
    assert response.acceptable_recovery_lag == (10_000 if version >= 1 else -1)
    assert [status.status_code for status in response.status] == [5]
    assert (await world.client.call(beating(epoch=-1), version)).member_epoch == -1


@case(StreamsGroupDescribeRequest)
async def describes_a_streams_group(world: World, version: int) -> None:
    await world.commit()
    await joined(world, 1)
    request = StreamsGroupDescribeRequest(group_ids=[GROUP, "g"], include_authorized_operations=False)
    found, other = (await world.client.call(request, version)).groups
    assert (found.error_code, found.group_state, found.group_epoch) == (0, "Assigning", 2)
    assert found.assignor_name == ("sticky" if version >= 1 else None)
    assert [part.source_topics for part in found.topology.subtopologies] == [["t"]]
    (member,) = found.members
    assert (member.member_id, member.process_id, member.client_host) == ("a", "process of a", "/127.0.0.1")
    assert (other.error_code, other.error_message) == (69, "Group g is not a streams group.")


@case(StreamsGroupTopologyDescriptionUpdateRequest)
async def refuses_a_topology_description(world: World, version: int) -> None:
    request = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=GROUP,
        member_id="a",
        topology_epoch=0,
        topology_description=TopologyDescription(subtopologies=[], global_stores=[]),
    )
    response = await world.client.call(request, version)
    assert (response.error_code, response.error_message) == (
        35,
        "The broker has no streams group topology description plugin configured.",
    )
