"""Cases of `test_authorization.py` for share groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.broker.groups.common_events import MemberLeave
from ottla.broker.groups.share.events import Heartbeat
from ottla.broker.share.sessions import SessionKey
from ottla.protocol.acls import AclOperation as Op
from ottla.protocol.messages.share.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.protocol.messages.share.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from ottla.protocol.messages.share.delete_share_group_state import DeleteShareGroupStateRequest
from ottla.protocol.messages.share.describe_share_group_offsets import DescribeShareGroupOffsetsRequest
from ottla.protocol.messages.share.initialize_share_group_state import InitializeShareGroupStateRequest
from ottla.protocol.messages.share.read_share_group_state import ReadShareGroupStateRequest
from ottla.protocol.messages.share.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from ottla.protocol.messages.share.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.messages.share.share_fetch import ShareFetchRequest
from ottla.protocol.messages.share.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.share.write_share_group_state import WriteShareGroupStateRequest
from ottla_testing.broker.authorization_cases import (
    CLUSTER,
    GROUP,
    TOPIC,
    Case,
    Right,
    World,
    cluster,
    group,
    topic,
)
from ottla_testing.broker.sharing import Member, initializing

UNINITIALIZED, INVALID = -1, 42


def fetching(world: World) -> ShareFetchRequest:
    member: Any = Member(world.client)
    return member.fetching(*((world.ids[name], 0) for name in "tu"))


def acknowledging(world: World) -> ShareAcknowledgeRequest:
    """Closes a session that is opened here, without a request."""
    sessions = world.broker.state.share_sessions
    key = SessionKey(world.broker.state.node_id, "g", "a")
    sessions.close(key)
    sessions._open(key, {}, Connection())  # pyright: ignore[reportPrivateUsage]
    made = ShareAcknowledgeRequest.AcknowledgeTopic
    return ShareAcknowledgeRequest(
        group_id="g",
        member_id="a",
        share_session_epoch=1,
        topics=[
            made(
                topic_id=world.ids[name],
                partitions=[made.AcknowledgePartition(partition_index=0, acknowledgement_batches=[])],
            )
            for name in "tu"
        ],
    )


class Connection:
    on_lost: Any = None


def fetched(response: Any) -> Any:
    return response.error_code, [one.error_code for topic in response.responses for one in topic.partitions]


def results(response: Any) -> Any:
    return [one.error_code for found in response.results for one in found.partitions]


def of_state(request: type, data: str, **fields: Any) -> Callable[[World], Any]:
    def made(world: World) -> Any:
        topic_data = getattr(request, data)
        one = topic_data.PartitionData(partition=0, **fields)
        topics = [topic_data(topic_id=world.ids["t"], partitions=[one])]
        return request(group_id="g", topics=topics)

    return made


def joining(world: World) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(group_id="n", member_id="a", member_epoch=0, subscribed_topic_names=["t", "u"])


def describing_offsets(world: World) -> DescribeShareGroupOffsetsRequest:
    made = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    topic_of = made.DescribeShareGroupOffsetsRequestTopic
    topics = [topic_of(topic_name=name, partitions=[0]) for name in "tu"]
    return DescribeShareGroupOffsetsRequest(groups=[made(group_id="s", topics=topics)])


def described_offsets(response: Any) -> Any:
    (found,) = response.groups
    return found.error_code, [(one.topic_name, one.partitions[0].error_code) for one in found.topics]


def share_group(world: World) -> None:
    """Makes an empty share group s with topic t."""
    groups = world.broker.state.groups
    groups.member_heartbeat("share", "s", Heartbeat("a", 0, topics=frozenset("t")))
    groups.member_heartbeat("share", "s", MemberLeave("a"))


def altering_offsets(world: World) -> AlterShareGroupOffsetsRequest:
    share_group(world)
    made = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    one = made.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)
    return AlterShareGroupOffsetsRequest(group_id="s", topics=[made(topic_name="t", partitions=[one])])


def deleting_offsets(world: World) -> DeleteShareGroupOffsetsRequest:
    share_group(world)
    made = DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic
    return DeleteShareGroupOffsetsRequest(group_id="s", topics=[made(topic_name="t")])


def offsets_results(response: Any) -> Any:
    results = [one for topic in response.responses for one in getattr(topic, "partitions", [topic])]
    return response.error_code, [one.error_code for one in results]


def code(response: Any) -> int:
    return response.error_code


DENIED: Mapping[Right | tuple[Right, ...], Any] = {cluster(Op.CLUSTER_ACTION): [CLUSTER]}

EVERY_SHARE: dict[type, list[Case]] = {
    ShareGroupHeartbeatRequest: [
        Case(
            1,
            joining,
            0,
            {group(Op.READ, "n"): GROUP, topic(Op.DESCRIBE): TOPIC, topic(Op.DESCRIBE, "u"): TOPIC},
            code,
        ),
    ],
    ShareGroupDescribeRequest: [
        Case(
            1,
            lambda world: ShareGroupDescribeRequest(group_ids=["x", "y"], include_authorized_operations=False),
            [("x", 69), ("y", 69)],
            {
                group(Op.DESCRIBE, "x"): [("x", GROUP), ("y", 69)],
                group(Op.DESCRIBE, "y"): [("y", GROUP), ("x", 69)],
            },
        ),
    ],
    DescribeShareGroupOffsetsRequest: [
        Case(
            1,
            describing_offsets,
            (0, [("t", 0), ("u", 0)]),
            {
                group(Op.DESCRIBE, "s"): (GROUP, []),
                topic(Op.DESCRIBE): (0, [("u", 0), ("t", TOPIC)]),
                topic(Op.DESCRIBE, "u"): (0, [("t", 0), ("u", TOPIC)]),
            },
            described_offsets,
        ),
    ],
    AlterShareGroupOffsetsRequest: [
        Case(
            0,
            altering_offsets,
            (0, [0]),
            {group(Op.READ, "s"): (GROUP, []), topic(Op.READ): (0, [TOPIC])},
            offsets_results,
        ),
    ],
    DeleteShareGroupOffsetsRequest: [
        Case(
            0,
            deleting_offsets,
            (0, [0]),
            {group(Op.DELETE, "s"): (GROUP, []), topic(Op.READ): (0, [TOPIC])},
            offsets_results,
        ),
    ],
    ShareFetchRequest: [
        Case(
            2,
            fetching,
            (0, [UNINITIALIZED, UNINITIALIZED]),
            {
                group(Op.READ): (GROUP, []),
                topic(Op.READ): (0, [TOPIC, UNINITIALIZED]),
                topic(Op.READ, "u"): (0, [UNINITIALIZED, TOPIC]),
            },
            fetched,
        ),
    ],
    ShareAcknowledgeRequest: [
        Case(
            2,
            acknowledging,
            (0, [0, 0]),
            {group(Op.READ): (GROUP, []), topic(Op.READ): (0, [TOPIC, 0]), topic(Op.READ, "u"): (0, [0, TOPIC])},
            fetched,
        ),
    ],
    InitializeShareGroupStateRequest: [
        Case(0, lambda world: initializing((world.ids["t"], 0)), [0], DENIED, results),
    ],
    ReadShareGroupStateRequest: [
        Case(0, of_state(ReadShareGroupStateRequest, "ReadStateData", leader_epoch=0), [INVALID], DENIED, results),
    ],
    WriteShareGroupStateRequest: [
        Case(
            1,
            of_state(
                WriteShareGroupStateRequest,
                "WriteStateData",
                state_epoch=0,
                leader_epoch=0,
                start_offset=0,
                state_batches=[],
            ),
            [INVALID],
            DENIED,
            results,
        ),
    ],
    DeleteShareGroupStateRequest: [
        Case(0, of_state(DeleteShareGroupStateRequest, "DeleteStateData"), [0], DENIED, results),
    ],
    ReadShareGroupStateSummaryRequest: [
        Case(
            1,
            of_state(ReadShareGroupStateSummaryRequest, "ReadStateSummaryData", leader_epoch=0),
            [0],
            DENIED,
            results,
        ),
    ],
}
