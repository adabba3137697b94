"""Views of groups of the consumer protocol and of share groups: epochs, targets, records in flight, lag."""

from __future__ import annotations

from pathlib import Path

from ottla.broker.admin_api.group_views import group_view
from ottla.broker.admin_api.views import SharePartitionView
from ottla_testing.broker.beating import QUICK, altering_share_offset, consumer_beat, share_beat, share_joined
from ottla_testing.broker.controlling import controlled
from ottla_testing.broker.harness import produce, records
from ottla_testing.broker.sharing import ACCEPT, RELEASE, Member


async def test_member_of_a_consumer_group_has_epoch_and_target(tmp_path: Path) -> None:
    async with controlled(tmp_path, overrides=QUICK) as (broker, api):
        await broker.topic("t", 2)
        client = await broker.client()
        await consumer_beat(client, "a", ["t"])
        await consumer_beat(client, "b", ["t"])
        found = group_view(broker.state, "g")
        assert (found.type, found.generation, found.assignment_epoch, found.share_partitions) == ("consumer", 3, 3, ())
        first, second = found.members
        assert (first.epoch, first.assignment, first.target) == (2, (("t", 0), ("t", 1)), (("t", 0),))
        assert (second.epoch, second.assignment, second.target) == (3, (), (("t", 1),))
        (listed,) = (await api.call("GET", "/overview"))["groups"]
        assert (listed["type"], listed["members"], listed["unreconciled"]) == ("consumer", 2, 2)


async def test_share_group_has_records_in_flight_and_lag(tmp_path: Path) -> None:
    async with controlled(tmp_path, overrides=QUICK) as (broker, api):
        topic_id = await broker.topic("t", 2)
        client = await broker.client()
        joined = await share_joined(client, "a", "t")
        await share_beat(client, "a", epoch=-1)
        assert (await client.call(altering_share_offset("s", "t", 0, 0), 0)).error_code == 0
        response = await client.call(produce(records(*[b"%d" % n for n in range(6)])), 9)
        assert response.responses[0].partition_responses[0].error_code == 0
        joined = await share_joined(client, "a", "t")
        member, place = await Member.join(broker, "a", "s"), (topic_id, 0)
        await member.fetch(place, max_records=5, batch_size=1)
        await member.acknowledge({place: [(1, 1, [ACCEPT]), (3, 3, [RELEASE])]})
        found, epoch = group_view(broker.state, "s"), joined.member_epoch
        assert (found.type, found.generation, found.assignment_epoch) == ("share", epoch, epoch)
        assert found.share_partitions == (
            SharePartitionView("t", 0, 0, 5, available=1, acquired=4, acknowledged=1, archived=0, deliveries=1),
            SharePartitionView("t", 1),
        )
        assert [(one.topic, one.partition, one.offset, one.lag) for one in found.offsets] == [("t", 0, 0, 5)]
        (listed,) = (await api.call("GET", "/overview"))["groups"]
        assert [listed[name] for name in ("type", "partitions", "lag", "in_flight")] == ["share", 1, 5, 6]
