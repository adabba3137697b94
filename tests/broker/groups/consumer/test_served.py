"""Where the consumer protocol is served: by release, feature and config. Groups of it across restarts of a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.broker.admin_api.group_views import group_view
from ottla.protocol.messages.cluster.update_features import UpdateFeaturesRequest
from ottla.protocol.messages.groups.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla_testing.broker.harness import Client, running

PROTOCOLS = {"group.coordinator.rebalance.protocols": "classic,consumer"}


async def beat(client: Client, version: int = 0, **changes: Any) -> Any:
    fields: dict[str, Any] = {"group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 10_000}
    fields |= {"subscribed_topic_names": ["t"], "topic_partitions": []} | changes
    return await client.call(ConsumerGroupHeartbeatRequest(**fields), version)


async def state(client: Client) -> Any:
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    (group,) = (await client.call(request, 0)).groups
    return group


@pytest.mark.parametrize(
    ("release", "overrides", "code", "epoch"),
    [
        ("3.8", {}, 35, 0),
        ("3.8", PROTOCOLS, 0, 1),
        ("3.9", PROTOCOLS, 0, 1),
        ("4.0", {}, 0, 1),
        ("4.0", {"group.coordinator.rebalance.protocols": "classic"}, 35, 0),
        ("4.2", {}, 0, 1),
        ("4.3", {}, 0, 2),
        ("ottla", {}, 0, 2),
    ],
)
async def test_release_and_config_enable_the_protocol(
    release: str, overrides: dict[str, str], code: int, epoch: int, tmp_path: Path
) -> None:
    async with running(tmp_path, release=release, overrides=overrides) as broker:
        await broker.topic("t")
        broker.state.internal_topic("__consumer_offsets", broker.clock.now_ms())
        client = await broker.client()
        response = await beat(client)
        assert (response.error_code, response.member_epoch) == (code, epoch)
        group = await state(client)
        assert (group.error_code, group.group_epoch) == (code, epoch)
        assert group.group_state == ("" if code else "Stable")


async def test_level_0_of_group_version_disables_the_protocol(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        assert (await beat(client)).error_code == 0
        update = UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
        assert (await client.call(UpdateFeaturesRequest(feature_updates=[update]), 1)).error_code == 0
        assert (await beat(client)).error_code == 35


@pytest.mark.parametrize("release", ["4.0", "4.1", "4.3", "ottla"])
async def test_groups_survive_a_restart_in_every_format(release: str, tmp_path: Path) -> None:
    async with running(tmp_path, release=release) as broker:
        await broker.topic("t")
        broker.state.internal_topic("__consumer_offsets", broker.clock.now_ms())
        client = await broker.client()
        await beat(client)
        await beat(client, member_id="n", instance_id="i", rack_id="r")
        before = await state(client)
    async with running(tmp_path, release=release) as broker:
        client = await broker.client()
        assert await state(client) == before
        held = before.members[0].assignment.topic_partitions
        owned = [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=h.topic_id, partitions=h.partitions) for h in held
        ]
        kept = {"rebalance_timeout_ms": -1, "subscribed_topic_names": None, "topic_partitions": owned}
        response = await beat(client, member_epoch=before.members[0].member_epoch, **kept)
        assert response.error_code == 0


async def test_a_log_of_release_4_0_continues_in_4_3_and_back(tmp_path: Path) -> None:
    for release in ("4.0", "4.3", "4.0", "ottla"):
        async with running(tmp_path, release=release) as broker:
            if broker.state.topics.get("t") is None:
                await broker.topic("t")
                broker.state.internal_topic("__consumer_offsets", broker.clock.now_ms())
            client = await broker.client()
            response = await beat(client, member_id=f"m-{release}", subscribed_topic_names=["t"])
            assert response.error_code == 0, release
            before = await state(client)
        async with running(tmp_path, release=release) as broker:
            assert await state(await broker.client()) == before


async def test_views_have_groups_of_the_consumer_protocol(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await broker.topic("t")
        client = await broker.client()
        await beat(client)
        await beat(client, member_id="n")
        group = group_view(broker.state, "g")
        assert (group.type, group.state, group.protocol, group.generation) == ("consumer", "Assigning", "uniform", 3)
        assert [(one.member_id, one.epoch, one.topics) for one in group.members] == [("m", 2, ("t",)), ("n", 2, ("t",))]
