"""Configuring a topology: tasks and internal topics from the partitions that the source topics have now (KIP-1071).

A pure function. Repartition topics for which the topology has no number of partitions get it from the topics of the
subtopologies that write them, and from topics they are co-partitioned with; changelogs from the sources of their
subtopology. Rules and texts: Kafka 4.3's `InternalTopicManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import NoReturn, TypeAlias

from ....protocol.errors import ErrorCode
from ....protocol.frozen import frozen
from ....protocol.named import NamedTuple
from ...errors import Refused
from ...java_hash import hash_ordered
from ..topics import TopicShape
from .values import CopartitionGroup, InternalTopic, Status, Subtopology, Topology

Counts: TypeAlias = dict[str, int]
"""Numbers of partitions by topic."""
UNRESOLVED = (
    "Failed to compute number of partitions for all repartition topics. "
    "There may be loops in the topology that cannot be resolved."
)
NEVER_WRITTEN = (
    "Failed to compute number of partitions for all repartition topics, "
    "because a repartition source topic is never used as a sink topic."
)
BUCKETS = 16  # of an empty HashMap
NAMED_MAX = 3
"""Topics that a text names; of others it has the number."""


class Problem(NamedTuple):
    """Why a topology has no tasks yet."""

    status: Status
    text: str


class ConfiguredSubtopology(NamedTuple):
    """A subtopology whose internal topics have their numbers of partitions."""

    tasks: int
    source_topics: frozenset[str]
    repartition_sources: tuple[InternalTopic, ...]
    repartition_sinks: frozenset[str]
    changelogs: tuple[InternalTopic, ...]

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelogs)


@frozen
class Configured:
    """A configured topology. `subtopologies`, by id in order, is None if configuring failed. `to_create` has the
    internal topics that do not exist; `problem` is None if tasks can be assigned.
    """

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None = None
    to_create: tuple[InternalTopic, ...] = ()
    problem: Problem | None = None

    @property
    def is_ready(self) -> bool:
        return self.problem is None

    @property
    def tasks(self) -> dict[str, int]:
        """The number of tasks of each subtopology."""
        return {id: found.tasks for id, found in (self.subtopologies or {}).items()}

    @property
    def stateful(self) -> frozenset[str]:
        """The subtopologies whose tasks can have standbys."""
        return frozenset(id for id, found in (self.subtopologies or {}).items() if found.is_stateful)


class _Failed(Exception):
    def __init__(self, status: Status, text: str) -> None:
        self.problem = Problem(status, text)


def check(topology: Topology) -> None:
    """Raises Refused with STREAMS_INVALID_TOPOLOGY if a changelog has a number of partitions of its own."""
    for part in topology.subtopologies.values():
        for topic in part.changelogs:
            if topic.partitions:
                _invalid(
                    f"Changelog topic {topic.name} must have an undefined partition count, "
                    f"but it is set to {topic.partitions}."
                )


def configure(topology: Topology, shape_of: Callable[[str], TopicShape | None]) -> Configured:
    """Configures the topology for the topics that exist.

    Raises Refused with STREAMS_INVALID_TOPOLOGY for a topology that no topics can complete, and with
    UNKNOWN_SERVER_ERROR, as Kafka does, for indexes and numbers of partitions that are impossible.
    """
    try:
        return _configure(topology, shape_of)
    except _Failed as failed:
        return Configured(topology.epoch, problem=failed.problem)


def _configure(topology: Topology, shape_of: Callable[[str], TopicShape | None]) -> Configured:
    # Where the outcome depends on an order, it is that of Kafka's HashMaps.
    parts = [topology.subtopologies[id] for id in hash_ordered(topology.subtopologies, BUCKETS)]
    together = [names for part in parts for group in part.copartition_groups if (names := _names(part, group))]
    existing = {name: shape.partitions for name in topology.required_topics if (shape := shape_of(name)) is not None}
    missing = sorted({name for part in parts for name in part.source_topics} - existing.keys())
    if missing:
        raise _Failed(Status.MISSING_SOURCE_TOPICS, f"Source topics {_summary(missing)} are missing.")

    decided = _repartition_counts(parts, existing)
    fixed = {topic.name for part in parts for topic in part.repartition_sources if topic.partitions}
    flexible = {topic.name for part in parts for topic in part.repartition_sources if not topic.partitions}
    for names in together:
        decided.update(_enforced(names, fixed, flexible, {**decided, **existing}))
    counts = {**decided, **existing}
    made: dict[str, ConfiguredSubtopology] = {}
    for part in sorted(parts):
        sources = [counts[name] for name in _sources(part)]
        if not sources:
            _invalid(f"No source topics found for subtopology {part.id}")
        made[part.id] = ConfiguredSubtopology(
            tasks=max(sources),
            source_topics=frozenset(part.source_topics),
            repartition_sources=tuple(
                _sized(topic, topic.partitions or decided[topic.name]) for topic in _distinct(part.repartition_sources)
            ),
            repartition_sinks=frozenset(part.repartition_sinks),
            changelogs=tuple(_sized(topic, max(sources)) for topic in _distinct(part.changelogs)),
        )
    to_create = _missing(made.values(), topology.required_topics, existing)
    problem = None
    if to_create:
        names = [topic.name for topic in to_create]
        problem = Problem(Status.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {_summary(names)}")
    return Configured(topology.epoch, made, to_create, problem)


def _sources(part: Subtopology) -> Iterable[str]:
    yield from part.source_topics
    yield from (topic.name for topic in part.repartition_sources)


def _names(part: Subtopology, group: CopartitionGroup) -> frozenset[str]:
    """The topics of a co-partition group. Kafka, too, ignores its regular expressions."""
    internal = [topic.name for topic in part.repartition_sources]
    names: set[str] = set()
    for topics, indexes in ((part.source_topics, group.source_topics), (internal, group.repartition_sources)):
        for index in indexes:
            if not 0 <= index < len(topics):
                raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
            names.add(topics[index])
    return frozenset(names)


def _repartition_counts(parts: Sequence[Subtopology], existing: Mapping[str, int]) -> Counts:
    """The partitions of the repartition topics, from those of the topics that the writing subtopologies read."""
    sources = [topic for part in parts for topic in part.repartition_sources]
    counts = {topic.name: topic.partitions for topic in sources if topic.partitions}
    # Two subtopologies may write the same topic: the first whose sources are known decides.
    waiting = [(part, sink) for part in parts for sink in part.repartition_sinks]
    while waiting:
        left: list[tuple[Subtopology, str]] = []
        for part, sink in waiting:
            if sink in counts:
                continue
            known = [counts[topic.name] for topic in part.repartition_sources if topic.name in counts]
            known += [existing[name] for name in part.source_topics]
            if known:
                counts[sink] = max(known)
            else:
                left.append((part, sink))
        if len(left) == len(waiting):
            _invalid(UNRESOLVED)
        waiting = left
    if any(topic.name not in counts for topic in sources):
        _invalid(NEVER_WRITTEN)
    return counts


def _enforced(names: Set[str], fixed: Set[str], flexible: Set[str], counts: Mapping[str, int]) -> Counts:
    """The partitions of the repartition topics among co-partitioned topics."""
    internal = {name: counts[name] for name in sorted(names) if name in fixed or name in flexible}
    external = {name: counts[name] for name in sorted(names) if name not in internal}
    if external:
        number = _same(external, external.values())
    elif fixed:
        # Kafka compares all topics of the topology whose number it fixes, not only those of this group.
        number = _same(internal, [counts[name] for name in fixed])
    else:
        number = max(internal.values())
    for name in hash_ordered(internal, BUCKETS):
        if name in fixed and internal[name] != number:
            raise _Failed(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{internal[name]}] of repartition topic [{name}] "
                f"doesn't match number of partitions [{number}] of the source topic.",
            )
    return dict.fromkeys(internal, number)


def _same(named: Mapping[str, int], counts: Collection[int]) -> int:
    if len(set(counts)) > 1:
        shown = ", ".join(f"{name}={count}" for name, count in sorted(named.items()))
        raise _Failed(
            Status.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{shown}}}]",
        )
    return next(iter(counts))


def _sized(topic: InternalTopic, partitions: int) -> InternalTopic:
    if partitions < 1:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    return topic._replace(partitions=partitions)


def _distinct(topics: Iterable[InternalTopic]) -> list[InternalTopic]:
    return [topic for _, topic in sorted({topic.name: topic for topic in topics}.items())]


def _missing(
    parts: Iterable[ConfiguredSubtopology], required: Collection[str], existing: Mapping[str, int]
) -> tuple[InternalTopic, ...]:
    """The internal topics to create, in the order in which Kafka names them."""
    wanted = {topic.name: topic for part in parts for topic in (*part.repartition_sources, *part.changelogs)}
    for name in hash_ordered(required, BUCKETS):
        found = existing.get(name)
        if found is not None and name in wanted and found != wanted[name].partitions:
            raise _Failed(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: "
                f"expected {wanted[name].partitions}, found {found}",
            )
    return tuple(wanted[name] for name in hash_ordered(wanted, BUCKETS) if name not in existing)


def _summary(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} additional topics" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def _invalid(text: str) -> NoReturn:
    raise Refused(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)
