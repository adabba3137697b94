"""Parts that several messages and records of streams groups have in common. KIP-1071."""

from __future__ import annotations

from ...primitives import Int16, Int32, Int64, Text, UInt16
from ...schema import group


@group
class KeyValue:
    key: Text
    value: Text


@group
class TopicInfo:
    """An internal topic. 0 partitions: the broker decides; replication factor 0: the broker's default."""

    name: Text
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[KeyValue]


@group
class Endpoint:
    host: Text
    port: UInt16


@group
class TaskOffset:
    subtopology_id: Text
    partition: Int32
    offset: Int64


@group
class TaskIds:
    subtopology_id: Text
    partitions: list[Int32]


@group
class Subtopology:
    subtopology_id: Text
    source_topics: list[Text]
    source_topic_regex: list[Text]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[Text]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]

    @group
    class CopartitionGroup:
        """Positions in the lists of the subtopology."""

        source_topics: list[Int16]
        source_topic_regex: list[Int16]
        repartition_source_topics: list[Int16]
