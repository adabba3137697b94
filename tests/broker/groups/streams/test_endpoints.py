"""The partitions of a member by its endpoint. KIP-1071."""

from __future__ import annotations

import pytest

from ottla.broker.groups.streams.endpoints import EndpointPartitions, endpoint_partitions
from ottla.broker.groups.streams.topology import ConfiguredSubtopology
from ottla.broker.groups.streams.values import InternalTopic, Tasks, TasksTuple
from ottla.broker.groups.topics import TopicShape


def part(tasks: int, sources: str = "", repartition: str = "") -> ConfiguredSubtopology:
    internal = tuple(InternalTopic(name, tasks) for name in repartition.split())
    return ConfiguredSubtopology(tasks, frozenset(sources.split()), internal, frozenset(), ())


def some(**tasks: set[int]) -> Tasks:
    return {id: frozenset(found) for id, found in tasks.items()}


def partitions(tasks: TasksTuple, parts: dict[str, ConfiguredSubtopology], *, since_4_4: bool, **counts: int):
    def shape_of(name: str) -> TopicShape | None:
        return TopicShape(name.encode(), name, counts[name]) if name in counts else None

    return endpoint_partitions(tasks, parts, shape_of, existing_only=since_4_4)


@pytest.mark.parametrize("since_4_4", [True, False])
def test_active_and_standby_tasks_have_their_source_and_repartition_topics(since_4_4: bool):
    tasks = TasksTuple(some(x={0, 2, 1}), some(y={0, 1, 2}))
    found = partitions(tasks, {"x": part(3, "A"), "y": part(3, "", "B")}, since_4_4=since_4_4, A=3, B=3)
    assert found == EndpointPartitions((("A", (0, 1, 2)),), (("B", (0, 1, 2)),))


@pytest.mark.parametrize("since_4_4", [True, False])
def test_topic_with_fewer_partitions_has_the_existing_ones(since_4_4: bool):
    tasks = TasksTuple(some(x={0, 1, 2, 3, 4}))
    found = partitions(tasks, {"x": part(5, "A B")}, since_4_4=since_4_4, A=2, B=5)
    assert found.active == (("A", (0, 1)), ("B", (0, 1, 2, 3, 4)))


def test_tasks_beyond_the_partitions_of_a_topic_are_left_out_since_4_4():
    tasks, parts = TasksTuple(some(x={3, 4})), {"x": part(5, "A B")}
    assert partitions(tasks, parts, since_4_4=True, A=2, B=5).active == (("B", (3, 4)),)
    assert partitions(tasks, parts, since_4_4=False, A=2, B=5).active == (("A", (3, 4)), ("B", (3, 4)))


def test_warmup_tasks_are_listed_with_standbys_since_4_4():
    tasks, parts = TasksTuple(standby=some(x={0}), warmup=some(x={1}, y={2})), {"x": part(3, "A"), "y": part(3, "B")}
    assert partitions(tasks, parts, since_4_4=True, A=3, B=3).standby == (("A", (0, 1)), ("B", (2,)))
    assert partitions(tasks, parts, since_4_4=False, A=3, B=3).standby == (("A", (0,)),)


def test_unknown_topics_and_subtopologies_have_no_partitions():
    tasks = TasksTuple(some(x={0}, gone={0}))
    assert partitions(tasks, {"x": part(1, "A")}, since_4_4=True) == EndpointPartitions()
    assert partitions(tasks, {"x": part(1, "A")}, since_4_4=False) == EndpointPartitions((("A", ()),))
