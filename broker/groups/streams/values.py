"""The topology of a streams application and the tasks of its members (KIP-1071).

A task is one subtopology for one partition: partition n of each of its source topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from typing import TypeAlias

from ....protocol.frozen import frozen
from ....protocol.named import NamedTuple

Tasks: TypeAlias = Mapping[str, frozenset[int]]
"""Partitions by subtopology id."""
TaskOffsets: TypeAlias = Mapping[str, Mapping[int, int]]
"""Sums of changelog offsets by subtopology id and partition."""
NO_TASKS: Tasks = {}


class InternalTopic(NamedTuple):
    """A repartition or changelog topic. With 0 the broker decides on `partitions`, and uses its default for
    `replication_factor`.
    """

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(NamedTuple):
    """Topics of a subtopology that must have the same number of partitions: indexes into its tuples."""

    source_topics: tuple[int, ...] = ()
    source_regexes: tuple[int, ...] = ()
    repartition_sources: tuple[int, ...] = ()


class Subtopology(NamedTuple):
    """A part of a topology that is connected to others by topics alone."""

    id: str
    source_topics: tuple[str, ...] = ()
    source_regexes: tuple[str, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    changelogs: tuple[InternalTopic, ...] = ()
    repartition_sources: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()


@frozen
class Topology:
    """The topology that a group was initialized with."""

    epoch: int
    subtopologies: Mapping[str, Subtopology] = field(default_factory=dict[str, Subtopology])

    @property
    def required_topics(self) -> frozenset[str]:
        """The topics that tasks read and the changelogs: what the metadata hash of a group covers."""
        return frozenset(
            name
            for part in self.subtopologies.values()
            for name in (
                *part.source_topics,
                *(topic.name for topic in part.repartition_sources),
                *(topic.name for topic in part.changelogs),
            )
        )


class TasksTuple(NamedTuple):
    """The tasks of a member."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)


NOTHING = TasksTuple()


class Status(IntEnum):
    """What a heartbeat reports about the group beside the assignment."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6
