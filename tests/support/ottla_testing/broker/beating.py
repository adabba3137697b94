"""Heartbeats of members of consumer groups (KIP-848) and share groups (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from ottla.protocol.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.share.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.protocol.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla_testing.broker.harness import Client

QUICK = {
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
}
"""Configs under which assignments follow at once, and internal topics are made quickly."""


async def consumer_beat(
    client: Client, member: str, topics: Iterable[str] | None = None, *, group: str = "g", epoch: int = 0, **more: Any
) -> Any:
    """A heartbeat of a member of a consumer group; with epoch 0 it joins."""
    fields: dict[str, Any] = {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "subscribed_topic_names": None if topics is None else list(topics),
    }
    if not epoch:
        fields |= {"rebalance_timeout_ms": 10_000, "topic_partitions": []}
    response = await client.call(ConsumerGroupHeartbeatRequest(**fields | more), 0)
    assert response.error_code == 0, response.error_message
    return response


async def share_beat(
    client: Client, member: str, topics: Iterable[str] | None = None, *, group: str = "s", epoch: int = 0, **more: Any
) -> Any:
    """A heartbeat of a member of a share group; with epoch 0 it joins."""
    names = None if topics is None else list(topics)
    request = ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names, **more
    )
    response = await client.call(request, 1)
    assert response.error_code == 0, response.error_message
    return response


async def share_joined(client: Client, member: str, *topics: str, group: str = "s") -> Any:
    """Joins a share group and sends heartbeats until the member has partitions."""
    response = await share_beat(client, member, topics, group=group)
    for _ in range(5):
        if response.assignment is not None and response.assignment.topic_partitions:
            break
        await asyncio.sleep(0)  # the state of the share partitions is initialized after the response
        response = await share_beat(client, member, group=group, epoch=response.member_epoch)
    return response


def altering_share_offset(group: str, topic: str, partition: int, offset: int) -> AlterShareGroupOffsetsRequest:
    """A request that sets the start offset of a share partition."""
    made = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
    part = made.AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
    return AlterShareGroupOffsetsRequest(group_id=group, topics=[made(topic_name=topic, partitions=[part])])
