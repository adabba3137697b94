"""Cases of `test_authorization.py` for streams groups."""

from __future__ import annotations

from typing import Any

from ottla.protocol.acls import AclOperation as Op
from ottla.protocol.messages.streams.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.streams.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.protocol.messages.streams.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
)
from ottla.protocol.messages.streams.topology_description import TopologyDescription
from ottla_testing.broker.authorization_cases import GROUP, TOPIC, Case, World, cluster, group, topic
from ottla_testing.broker.streaming import internal, joining, subtopology

HIDDEN = "The described group uses topics that the client is not authorized to describe."


def heartbeat(world: World) -> StreamsGroupHeartbeatRequest:
    part = subtopology("0", "t", "log", repartition_sink_topics=["rep"], repartition_source_topics=[internal("rep")])
    return joining("a", part)


def describing(world: World) -> StreamsGroupDescribeRequest:
    return StreamsGroupDescribeRequest(group_ids=["x", "y"], include_authorized_operations=False)


def update(world: World) -> StreamsGroupTopologyDescriptionUpdateRequest:
    empty = TopologyDescription(subtopologies=[], global_stores=[])
    return StreamsGroupTopologyDescriptionUpdateRequest(
        group_id="k", member_id="a", topology_epoch=0, topology_description=empty
    )


def code(response: Any) -> int:
    return response.error_code


def code_and_missing(response: Any) -> Any:
    return response.error_code, [one.status_detail for one in response.status if one.status_code == 3]


MISSING = "Internal topics are missing: log, rep"

EVERY_STREAMS: dict[type, list[Case]] = {
    StreamsGroupHeartbeatRequest: [
        Case(
            1,
            heartbeat,
            (0, [MISSING]),
            {
                group(Op.READ, "k"): (GROUP, []),
                topic(Op.DESCRIBE): (TOPIC, []),
                topic(Op.DESCRIBE, "log"): (TOPIC, []),
                topic(Op.DESCRIBE, "rep"): (TOPIC, []),
                (cluster(Op.CREATE), topic(Op.CREATE, "log")): (
                    0,
                    [f"{MISSING}; Unauthorized to CREATE on topics log."],
                ),
                (cluster(Op.CREATE), topic(Op.CREATE, "log"), topic(Op.CREATE, "rep")): (
                    0,
                    [f"{MISSING}; Unauthorized to CREATE on topics log, rep."],
                ),
            },
            code_and_missing,
            alone=True,
        ),
    ],
    StreamsGroupDescribeRequest: [
        Case(
            1,
            describing,
            [("x", 69), ("y", 69)],
            {
                group(Op.DESCRIBE, "x"): [("x", GROUP), ("y", 69)],
                group(Op.DESCRIBE, "y"): [("y", GROUP), ("x", 69)],
            },
        ),
    ],
    StreamsGroupTopologyDescriptionUpdateRequest: [
        Case(0, update, 35, {group(Op.READ, "k"): GROUP}, code),
    ],
}
