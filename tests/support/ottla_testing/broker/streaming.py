"""Requests of members of streams groups."""

from __future__ import annotations

from typing import Any

from ottla.protocol.messages.streams.parts import Endpoint, KeyValue, Subtopology, TaskIds, TopicInfo
from ottla.protocol.messages.streams.streams_group_heartbeat import StreamsGroupHeartbeatRequest

GROUP = "k"
Topology = StreamsGroupHeartbeatRequest.Topology


def internal(name: str, partitions: int = 0, policy: str | None = None, factor: int = -1) -> TopicInfo:
    """An internal topic, with a cleanup policy or without. Kafka Streams sends the replication factor -1."""
    pairs = [] if policy is None else [KeyValue(key="cleanup.policy", value=policy)]
    return TopicInfo(name=name, partitions=partitions, replication_factor=factor, topic_configs=pairs)


def subtopology(id: str = "0", source: str = "t", changelog: str | None = None, **more: Any) -> Subtopology:
    """A part that reads a topic, with a changelog or without."""
    return Subtopology(
        **{
            "subtopology_id": id,
            "source_topics": [source],
            "source_topic_regex": [],
            "state_changelog_topics": [] if changelog is None else [internal(changelog)],
            "repartition_sink_topics": [],
            "repartition_source_topics": [],
            "copartition_groups": [],
        }
        | more
    )


def topology(*parts: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=list(parts) or [subtopology()])


def tasks(**found: set[int]) -> list[TaskIds]:
    """Tasks by subtopology; the id has an underscore before its digit."""
    return [TaskIds(subtopology_id=id.strip("_"), partitions=sorted(some)) for id, some in found.items()]


def joining(member: str = "a", *parts: Subtopology, **more: Any) -> StreamsGroupHeartbeatRequest:
    return StreamsGroupHeartbeatRequest(
        **{
            "group_id": GROUP,
            "member_id": member,
            "member_epoch": 0,
            "endpoint_information_epoch": 0,
            "rebalance_timeout_ms": 10_000,
            "topology": topology(*parts),
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            "process_id": f"process of {member}",
            "client_tags": [],
        }
        | more
    )


def beating(member: str = "a", epoch: int = 2, **more: Any) -> StreamsGroupHeartbeatRequest:
    fields = {"group_id": GROUP, "member_id": member, "member_epoch": epoch, "endpoint_information_epoch": 0}
    return StreamsGroupHeartbeatRequest(**fields | more)


def endpoint(host: str = "h", port: int = 7) -> Endpoint:
    return Endpoint(host=host, port=port)


def tasks_of(response: Any) -> dict[str, list[int]] | None:
    """The active tasks of a response."""
    if response.active_tasks is None:
        return None
    return {one.subtopology_id: one.partitions for one in response.active_tasks}
