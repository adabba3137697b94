"""Cases of `test_authorization.py` for share groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.broker.share.sessions import SessionKey
from ottla.protocol.acls import AclOperation as Op
from ottla.protocol.messages.share.delete_share_group_state import DeleteShareGroupStateRequest
from ottla.protocol.messages.share.initialize_share_group_state import InitializeShareGroupStateRequest
from ottla.protocol.messages.share.read_share_group_state import ReadShareGroupStateRequest
from ottla.protocol.messages.share.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from ottla.protocol.messages.share.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.messages.share.share_fetch import ShareFetchRequest
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


DENIED: Mapping[Right | tuple[Right, ...], Any] = {cluster(Op.CLUSTER_ACTION): [CLUSTER]}

EVERY_SHARE: dict[type, list[Case]] = {
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
