"""The partitions that a member serves queries for, by the endpoint it has sent (KIP-1071, Interactive Queries)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from ....protocol.named import NamedTuple
from ..topics import TopicShape
from .topology import ConfiguredSubtopology
from .values import Tasks, TasksTuple

TopicPartitions: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]


class EndpointPartitions(NamedTuple):
    """The source partitions of a member's active tasks, and of the others."""

    active: TopicPartitions = ()
    standby: TopicPartitions = ()


def endpoint_partitions(
    tasks: TasksTuple,
    subtopologies: Mapping[str, ConfiguredSubtopology],
    shape_of: Callable[[str], TopicShape | None],
    *,
    existing_only: bool,
) -> EndpointPartitions:
    """Returns the partitions of the tasks that a member is assigned.

    With `existing_only`, as since Kafka 4.4, a topic with fewer partitions than its subtopology has tasks has those
    that exist, and warm-up tasks count as standbys. Before, such a topic has as many of the lowest tasks as it has
    partitions, and a topic without any is listed.
    """

    def listed(some: Tasks) -> TopicPartitions:
        found: list[tuple[str, tuple[int, ...]]] = []
        for id, partitions in sorted(some.items()):
            part = subtopologies.get(id)
            if part is None:
                continue  # the topology was configured again after the assignment
            names = part.source_topics | {topic.name for topic in part.repartition_sources}
            for name in sorted(names):
                shape = shape_of(name)
                count = 0 if shape is None else shape.partitions
                if existing_only:
                    indexes = [index for index in sorted(partitions) if index < count]
                else:
                    indexes = sorted(partitions)[:count]
                if indexes or not existing_only:
                    found.append((name, tuple(indexes)))
        return tuple(found)

    others = {id: frozenset(found) for id, found in tasks.standby.items()}
    if existing_only:
        for id, found in tasks.warmup.items():
            others[id] = others.get(id, frozenset()) | found
    return EndpointPartitions(listed(tasks.active), listed(others))
