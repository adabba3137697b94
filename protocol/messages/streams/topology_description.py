"""The description of a Kafka Streams topology: processing nodes and their connections. KIP-1331."""

from __future__ import annotations

from ...primitives import Int8, Text
from ...schema import field, group


@group
class TopologyDescriptionNode:
    """A node; the type is 1 for a source, 2 for a processor, 3 for a sink."""

    name: Text
    node_type: Int8
    source_topics: list[Text]
    sink_topic: Text | None = field(default=None)
    stores: list[Text]
    successors: list[Text]


@group
class TopologyDescription:
    subtopologies: list[Subtopology]
    global_stores: list[GlobalStore]

    @group
    class Subtopology:
        subtopology_id: Text
        nodes: list[TopologyDescriptionNode]

    @group
    class GlobalStore:
        source: TopologyDescriptionNode
        processor: TopologyDescriptionNode
