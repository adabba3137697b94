"""The orders of Java's and Kafka's tables."""

from __future__ import annotations

from pathlib import Path

from ottla.broker.java_hash import hash_ordered, string_hash, timeline_place
from ottla.protocol.messages.groups.list_groups import ListGroupsRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla_testing.broker.harness import running
from ottla_testing.each import each


def test_hash_of_a_text() -> None:
    assert (string_hash(""), string_hash("a"), string_hash("hello")) == (0, 97, 99162322)
    assert string_hash("Aa") == string_hash("BB") and string_hash("\U0001f600") == 1772899
    assert hash_ordered(["b", "a", "q"], 16) == ["a", "q", "b"]


def test_order_of_a_timeline_hash_map() -> None:
    """As ListGroupsRequestTest and ConsumerGroupDescribeRequestTest of Kafka 4.3.1 expect it."""
    assert sorted(["grp-1", "grp-4"], key=timeline_place) == ["grp-4", "grp-1"]
    assert sorted(["member-1", "member-2"], key=timeline_place) == ["member-2", "member-1"]


@each(("release", "order"), [("3.9", ["grp-1", "grp-4"]), ("4.0", ["grp-4", "grp-1"]), ("4.4", ["grp-4", "grp-1"])])
async def test_groups_are_listed_in_the_order_of_kafkas_tables(release: str, order: list[str], tmp_path: Path) -> None:
    made = OffsetCommitRequest.OffsetCommitRequestTopic
    configs = {"offsets.topic.num.partitions": "1"}
    async with running(tmp_path, release=release, overrides=configs) as broker:
        await broker.topic("t")
        client = await broker.client()
        for group in ("grp-1", "grp-4"):
            broker.state.internal_topic("__consumer_offsets", broker.clock.now_ms())
            one = made.OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
            request = OffsetCommitRequest(group_id=group, topics=[made(name="t", partitions=[one])])
            assert (await client.call(request, 7)).topics[0].partitions[0].error_code == 0
        response = await client.call(ListGroupsRequest(states_filter=[], types_filter=[]), 4)
        assert [one.group_id for one in response.groups] == order
