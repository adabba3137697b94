"""The table of the cases of `test_apis.py`, and the broker that they run on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla_testing.broker.harness import Broker, Client, only


class World:
    """A broker with topic t of two partitions, the first with records a, b and c; and group g with one commit."""

    def __init__(self, broker: Broker, client: Client, topic_id: bytes) -> None:
        self.broker = broker
        self.client = client
        self.topic_id = topic_id

    def name(self, version: int, ids_since: int) -> dict[str, Any]:
        return {"topic_id": self.topic_id} if version >= ids_since else {"name": "t"}

    async def commit(self) -> None:
        response = await self.client.call(committing({"name": "t"}), 2)
        assert only(response).error_code == 0


def committing(named: dict[str, Any]) -> OffsetCommitRequest:
    topic = OffsetCommitRequest.OffsetCommitRequestTopic
    requested = topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=2, committed_metadata="m")
    return OffsetCommitRequest(group_id="g", topics=[topic(partitions=[requested], **named)])


Case = Callable[[World, int], Awaitable[None]]
CASES: dict[type, Case] = {}


def case(request_class: type) -> Callable[[Case], Case]:
    def keep(function: Case) -> Case:
        CASES[request_class] = function
        return function

    return keep
