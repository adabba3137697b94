"""Configuring topologies: partitions of internal topics, tasks, and what is wrong with the topics. KIP-1071."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.errors import Refused
from ottla.broker.groups.streams.topology import NEVER_WRITTEN, UNRESOLVED, Configured, Problem, check, configure
from ottla.broker.groups.streams.values import CopartitionGroup, InternalTopic, Status, Subtopology, Topology
from ottla.broker.groups.topics import TopicShape
from ottla.protocol.errors import ErrorCode


def internal(name: str, partitions: int = 0, **more: Any) -> InternalTopic:
    return InternalTopic(name, partitions, **more)


def part(id: str, sources: str = "", **more: Any) -> Subtopology:
    return Subtopology(id, tuple(sources.split()), **more)


def reads(*topics: InternalTopic) -> dict[str, Any]:
    return {"repartition_sources": topics}


def configured(parts: list[Subtopology], counts: Mapping[str, int]) -> Configured:
    def shape_of(name: str) -> TopicShape | None:
        return TopicShape(name.encode(), name, counts[name]) if name in counts else None

    return configure(Topology(3, {one.id: one for one in parts}), shape_of)


def together(part: Subtopology) -> Subtopology:
    """The subtopology with all that it reads in one co-partition group."""
    group = CopartitionGroup(
        tuple(range(len(part.source_topics))), repartition_sources=tuple(range(len(part.repartition_sources)))
    )
    return part._replace(copartition_groups=(group,))


JOINED = [
    part("1", "s1", repartition_sinks=("r",), changelogs=(internal("c1", configs=(("cleanup.policy", "compact"),)),)),
    together(part("2", "s2", **reads(internal("r", replication_factor=3)), changelogs=(internal("c2"),))),
]
"""A subtopology that writes a repartition topic, and one that joins it with a source topic."""


def test_configure_returns_tasks_and_the_internal_topics_that_do_not_exist():
    found = configured(JOINED, {"s1": 2, "s2": 2, "c2": 2})
    assert found.tasks == {"1": 2, "2": 2} and found.stateful == {"1", "2"}
    assert found.to_create == (
        internal("r", 2, replication_factor=3),
        internal("c1", 2, configs=(("cleanup.policy", "compact"),)),
    )
    assert found.problem == Problem(Status.MISSING_INTERNAL_TOPICS, "Internal topics are missing: r, c1")
    assert found.epoch == 3
    ready = configured(JOINED, {"s1": 2, "s2": 2, "c2": 2, "r": 2, "c1": 2})
    assert ready.is_ready and ready.to_create == () and ready.subtopologies == found.subtopologies


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({"s1": 2}, "Source topics s2 are missing."),
        ({}, "Source topics s1, s2 are missing."),
    ],
)
def test_missing_source_topic_is_reported(counts: dict[str, int], text: str):
    assert configured(JOINED, counts) == Configured(3, problem=Problem(Status.MISSING_SOURCE_TOPICS, text))


def test_text_names_three_missing_topics_and_counts_the_others():
    found = configured([part("0", "e d c b a")], {})
    assert found.problem == Problem(
        Status.MISSING_SOURCE_TOPICS, "Source topics a, b, c and 2 additional topics are missing."
    )


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param([part("0", "s"), part("1", **reads(internal("r", 4)))], {"r": 4}, id="fixed"),
        pytest.param(
            [part("0", "s", repartition_sinks=("r4", "r"), **reads(internal("r2", 2))),
             part("1", **reads(internal("r4", 4), internal("r")))],
            {"r4": 4, "r2": 2, "r": 3}, id="from the source topic, which has more than the repartition source"),
        pytest.param(
            [part("0", "s", repartition_sinks=("r",), **reads(internal("r4", 4))),
             part("1", repartition_sinks=("r4",), **reads(internal("r")))],
            {"r4": 4, "r": 4}, id="from the repartition source, which has more than the source topic"),
        pytest.param(
            [part("0", repartition_sinks=("c",), **reads(internal("b"))),
             part("1", repartition_sinks=("b",), **reads(internal("a"))),
             part("2", "s", repartition_sinks=("a",)), part("3", **reads(internal("c")))],
            {"a": 3, "b": 3, "c": 3}, id="along a chain in any order"),
        pytest.param(
            [part("0", "s", repartition_sinks=("r",), **reads(internal("r")))], {"r": 3}, id="a loop with a source"),
    ],
)  # fmt: skip
def test_repartition_topic_without_a_number_gets_it_from_its_writers(
    parts: list[Subtopology], expected: dict[str, int]
):
    found = configured(parts, {"s": 3})
    assert {topic.name: topic.partitions for topic in found.to_create} == expected


def test_changelog_has_a_partition_for_each_task():
    source = part("0", "s", changelogs=(internal("s"), internal("c")), **reads(internal("r", 5)))
    assert configured([source], {"s": 5}).tasks == {"0": 5}
    assert [topic for topic in configured([source], {"s": 5}).to_create if topic.name == "c"] == [internal("c", 5)]
    assert configured([source], {"s": 3}).problem == Problem(
        Status.INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic s has different number of partitions: expected 5, found 3",
    )


@pytest.mark.parametrize(
    ("parts", "counts", "expected"),
    [
        pytest.param(
            [part("0", "s", repartition_sinks=("r",)), together(part("1", "a b", **reads(internal("r"))))],
            {"s": 10, "a": 2, "b": 2}, {"r": 2}, id="as the source topics"),
        pytest.param(
            [part("0", "s", repartition_sinks=("x",)), part("1", "t", repartition_sinks=("y",)),
             together(part("2", **reads(internal("x"), internal("y"))))],
            {"s": 1, "t": 15}, {"x": 15, "y": 15}, id="the most of any if all are repartition topics"),
        pytest.param(
            [part("0", "s", repartition_sinks=("x",)), together(part("1", **reads(internal("x"), internal("y", 2))))],
            {"s": 5}, {"x": 2, "y": 2}, id="as the repartition topic with a number"),
    ],
)  # fmt: skip
def test_copartitioned_repartition_topics_have_the_same_number(
    parts: list[Subtopology], counts: dict[str, int], expected: dict[str, int]
):
    found = configured(parts, counts)
    assert {topic.name: topic.partitions for topic in found.to_create} == expected


@pytest.mark.parametrize(
    ("parts", "counts", "text"),
    [
        pytest.param(
            [together(part("0", "s1 s2"))], {"s1": 2, "s2": 1},
            "Following topics do not have the same number of partitions: [{s1=2, s2=1}]", id="source topics"),
        pytest.param(
            [together(part("0", **reads(internal("b", 5), internal("a", 10))))], {},
            "Following topics do not have the same number of partitions: [{a=10, b=5}]", id="repartition topics"),
        pytest.param(
            [part("0", **reads(internal("other", 3))), together(part("1", **reads(internal("a", 2))))], {},
            "Following topics do not have the same number of partitions: [{a=2}]",
            id="repartition topics of another group, which Kafka compares, too"),
        pytest.param(
            [together(part("0", "s", **reads(internal("r", 10))))], {"s": 2},
            "Number of partitions [10] of repartition topic [r] "
            "doesn't match number of partitions [2] of the source topic.", id="one of each"),
        pytest.param(
            [part("0", "s", repartition_sinks=("r",)), part("1", **reads(internal("r")))], {"s": 2, "r": 3},
            "Existing topic r has different number of partitions: expected 2, found 3", id="an existing topic"),
    ],
)  # fmt: skip
def test_incorrectly_partitioned_topics_are_reported(parts: list[Subtopology], counts: dict[str, int], text: str):
    found = configured(parts, counts)
    assert found == Configured(3, problem=Problem(Status.INCORRECTLY_PARTITIONED_TOPICS, text))
    assert not found.is_ready and found.tasks == {}


@pytest.mark.parametrize(
    ("parts", "code", "text"),
    [
        ([part("0", repartition_sinks=("r",), **reads(internal("r")))], 130, UNRESOLVED),
        ([part("0", **reads(internal("r")))], 130, NEVER_WRITTEN),
        ([part("0")], 130, "No source topics found for subtopology 0"),
        ([part("0", "s", copartition_groups=(CopartitionGroup((1,)),))], -1, ""),
        ([part("0", "s", copartition_groups=(CopartitionGroup((-1,)),))], -1, ""),
        ([part("0", "s", copartition_groups=(CopartitionGroup(repartition_sources=(0,)),))], -1, ""),
        ([part("0", "s", **reads(internal("r", -5)))], -1, ""),
    ],
)
def test_topology_that_no_topics_complete_is_refused(parts: list[Subtopology], code: int, text: str):
    with pytest.raises(Refused) as raised:
        configured(parts, {"s": 1})
    assert (raised.value.code, raised.value.message) == (code, text)


def test_changelog_with_a_number_of_its_own_is_refused():
    check(Topology(0, {"0": part("0", changelogs=(internal("c"),))}))
    with pytest.raises(Refused) as raised:
        check(Topology(0, {"0": part("0", changelogs=(internal("c", 3),))}))
    assert raised.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert raised.value.message == "Changelog topic c must have an undefined partition count, but it is set to 3."


@st.composite
def topologies(draw: st.DrawFn) -> tuple[list[Subtopology], dict[str, int]]:
    """Subtopologies that read source topics and what those before them write."""
    counts = draw(st.dictionaries(st.sampled_from(["s", "t", "u"]), st.integers(1, 5), min_size=1))
    parts: list[Subtopology] = []
    for number in range(draw(st.integers(1, 4))):
        written = [sink for one in parts for sink in one.repartition_sinks]
        made = part(
            str(number),
            " ".join(draw(st.lists(st.sampled_from(sorted(counts)), min_size=1, unique=True))),
            repartition_sinks=tuple(f"r{number}-{count}" for count in range(draw(st.integers(0, 2)))),
            changelogs=tuple(internal(f"c{number}-{count}") for count in range(draw(st.integers(0, 2)))),
            repartition_sources=tuple(
                internal(name, draw(st.sampled_from([0, 0, 0, 4])))
                for name in draw(st.lists(st.sampled_from(written), unique=True) if written else st.just([]))
            ),
        )
        parts.append(together(made) if draw(st.booleans()) else made)
    return draw(st.permutations(parts)), counts


@given(topologies())
def test_created_topics_make_the_topology_ready(drawn: tuple[list[Subtopology], dict[str, int]]):
    parts, counts = drawn
    found = configured(parts, counts)
    if found.subtopologies is None:
        assert found.problem is not None and found.problem.status is Status.INCORRECTLY_PARTITIONED_TOPICS
        return
    made = {**counts, **{topic.name: topic.partitions for topic in found.to_create}}
    after = configured(parts, made)
    assert after.is_ready and after.subtopologies == found.subtopologies
    for one in parts:
        tasks = found.subtopologies[one.id].tasks
        sources = [*one.source_topics, *(topic.name for topic in one.repartition_sources)]
        assert tasks == max(made[name] for name in sources)
        assert all(made[topic.name] == tasks for topic in one.changelogs)
        for group in one.copartition_groups:
            assert len({made[sources[index]] for index in range(len(sources))}) == 1, group
