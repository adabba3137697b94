"""Streams groups through the wire: checks, assignments, internal topics, offsets, other APIs, and restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.cluster.update_features import UpdateFeaturesRequest
from ottla.protocol.messages.configs.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.groups.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.groups.heartbeat import HeartbeatRequest
from ottla.protocol.messages.groups.join_group import JoinGroupRequest
from ottla.protocol.messages.groups.list_groups import ListGroupsRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.groups.offset_delete import OffsetDeleteRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.streams.parts import KeyValue, TaskOffset
from ottla.protocol.messages.streams.streams_group_describe import StreamsGroupDescribeRequest
from ottla_testing.broker.harness import Client, Closed, running
from ottla_testing.broker.streaming import (
    GROUP,
    beating,
    endpoint,
    internal,
    joining,
    subtopology,
    tasks,
    tasks_of,
    topology,
)
from ottla_testing.each import each

AT_ONCE = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "2",
}
INVALID, NOT_FOUND = ErrorCode.INVALID_REQUEST, ErrorCode.GROUP_ID_NOT_FOUND
BAD_TOPOLOGY = ErrorCode.STREAMS_INVALID_TOPOLOGY


async def joined(client: Client, member: str = "a", *parts: Any, **more: Any) -> Any:
    response = await client.call(joining(member, *parts, **more), 1)
    assert response.error_code == 0, response.error_message
    return response


async def beat(client: Client, member: str = "a", epoch: int = 2, version: int = 1, **more: Any) -> Any:
    response = await client.call(beating(member, epoch, **more), version)
    assert response.error_code == 0, response.error_message
    return response


async def described(client: Client, group: str = GROUP, version: int = 1) -> Any:
    request = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=True)
    if version >= 1:
        request.include_topology_description = True
    (found,) = (await client.call(request, version)).groups
    return found


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


# --- checks ----------------------------------------------------------------------------------------------------------


@each(
    ("request_", "error", "message"),
    [
        (joining(""), INVALID, "MemberId can't be empty."),
        (joining(group_id=" "), INVALID, "GroupId can't be empty."),
        (joining(instance_id=""), INVALID, "InstanceId can't be empty."),
        (joining(rack_id=""), INVALID, "RackId can't be empty."),
        (joining(rebalance_timeout_ms=-1), INVALID, "RebalanceTimeoutMs must be provided in first request."),
        (joining(active_tasks=None), INVALID, "ActiveTasks must be empty when (re-)joining."),
        (joining(standby_tasks=tasks(_0={0})), INVALID, "StandbyTasks must be empty when (re-)joining."),
        (joining(warmup_tasks=None), INVALID, "WarmupTasks must be empty when (re-)joining."),
        (joining(topology=None), INVALID, "Topology must be non-null when (re-)joining."),
        (beating(epoch=-2), INVALID, "InstanceId can't be null."),
        (beating(epoch=-3), INVALID, "MemberEpoch is -3, but must be greater than or equal to -2."),
        (beating(active_tasks=[]), INVALID, "If one task-type is non-null, all must be non-null."),
        (beating(topology=topology()), INVALID, "Topology can only be provided when (re-)joining."),
        (
            joining("a", subtopology(source_topic_regex=["t.*"])),
            INVALID,
            "Regular expressions for source topics are not supported yet.",
        ),
        (
            joining("a", subtopology(state_changelog_topics=[internal("log", 2)])),
            BAD_TOPOLOGY,
            "Changelog topic log must have an undefined partition count, but it is set to 2.",
        ),
        (
            joining("a", subtopology(source_topics=["t", "__consumer_offsets", "__transaction_state"])),
            BAD_TOPOLOGY,
            "Use of Kafka internal topics __consumer_offsets,__transaction_state in a Kafka Streams topology is "
            "prohibited.",
        ),
        (joining("a", subtopology(changelog="a b")), BAD_TOPOLOGY, "Topic names a b are not valid topic names."),
        (joining("a", subtopology(source_topics=[])), BAD_TOPOLOGY, "No source topics found for subtopology 0"),
        (joining("a", subtopology(), subtopology()), ErrorCode.UNKNOWN_SERVER_ERROR, None),
        (joining(topology=topology(epoch=-1)), ErrorCode.UNKNOWN_SERVER_ERROR, None),
        (joining(client_tags=[KeyValue(key="k", value="v")] * 2), ErrorCode.UNKNOWN_SERVER_ERROR, None),
        (
            joining(task_offsets=[TaskOffset(subtopology_id="0", partition=1, offset=1)] * 2),
            INVALID,
            "Task offsets contain a duplicate entry for subtopology 0 and partition 1.",
        ),
        (beating(), NOT_FOUND, "Streams group k not found."),
        (beating(epoch=-1), NOT_FOUND, "Group k not found."),
    ],
)
async def test_bad_heartbeats_are_refused(request_: Any, error: ErrorCode, message: str | None, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=AT_ONCE) as broker:
        await broker.topic("t")
        client = await broker.client()
        response = await client.call(request_, 1)
        assert (response.error_code, response.error_message) == (error, message)
        listed = await client.call(ListGroupsRequest(states_filter=[], types_filter=[]), 5)
        assert listed.groups == [], "no group was made"


@each(
    ("request_", "message"),
    [
        (joining(instance_id="i"), "Static membership is not yet supported."),
        (joining(task_offsets=[]), "TaskOffsets are not supported yet."),
        (joining(task_end_offsets=[]), "TaskEndOffsets are not supported yet."),
        (joining(warmup_tasks=tasks(_0={0})), "WarmupTasks are not supported yet."),
    ],
)
async def test_what_4_4_added_is_refused_before(request_: Any, message: str, tmp_path: Path) -> None:
    async with running(tmp_path, release="4.3") as broker:
        await broker.topic("t")
        response = await (await broker.client()).call(request_, 0)
        assert (response.error_code, response.error_message) == (INVALID, message)


async def test_protocol_is_disabled_by_the_feature_and_by_the_config(tmp_path: Path) -> None:
    overrides = {"group.coordinator.rebalance.protocols": "classic,consumer"}
    async with running(tmp_path / "config", overrides=overrides) as broker:
        response = await (await broker.client()).call(joining(), 1)
        assert (response.error_code, response.error_message) == (ErrorCode.UNSUPPORTED_VERSION, None)
    async with running(tmp_path / "feature") as broker:
        client = await broker.client()
        await broker.topic("t")
        await joined(client)
        update = UpdateFeaturesRequest.FeatureUpdateKey(feature="streams.version", max_version_level=0, upgrade_type=2)
        await client.call(UpdateFeaturesRequest(feature_updates=[update]), 1)
        assert (await client.call(beating(), 1)).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await described(client)).error_code == ErrorCode.UNSUPPORTED_VERSION


# --- assignments -----------------------------------------------------------------------------------------------------


async def test_release_4_1_has_streams_groups_in_early_access(tmp_path: Path) -> None:
    configs = {"ottla.features": "streams.version=1", "offsets.topic.num.partitions": "2"}
    configs |= {f"unstable.{what}.versions.enable": "true" for what in ("api", "feature")}
    async with running(tmp_path, release="4.1", overrides=configs) as broker:
        await broker.topic("t")
        client = await broker.client()
        response = await client.call(joining(), 0)
        assert response.error_code == 0
        await beat(client, epoch=response.member_epoch, version=0)
        request = StreamsGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=False)
        (group,) = (await client.call(request, 0)).groups
        assert [member.member_id for member in group.members] == ["a"]
    async with running(tmp_path, release="4.1") as broker:
        with pytest.raises(Closed):
            await (await broker.client()).call(joining(), 0)


async def test_members_share_the_tasks_and_are_described(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=AT_ONCE) as broker:
        await broker.topic("t", 4)
        client = await broker.client()
        response = await joined(client, user_endpoint=endpoint(), client_tags=[KeyValue(key="zone", value="z")])
        assert (response.member_epoch, tasks_of(response), response.status) == (2, {"0": [0, 1, 2, 3]}, [])
        (one,) = response.partitions_by_user_endpoint
        assert (one.user_endpoint, one.active_partitions[0].partitions) == (endpoint(), [0, 1, 2, 3])
        await joined(client, "b", instance_id="i", rack_id="r")
        response = await beat(client, active_tasks=tasks(_0={0, 1, 2, 3}), standby_tasks=[], warmup_tasks=[])
        kept = tasks_of(response)
        assert response.member_epoch == 2 and kept is not None and len(kept["0"]) == 2
        owned = tasks(_0=set(kept["0"]))
        offset = TaskOffset(subtopology_id="0", partition=1, offset=9)
        response = await beat(
            client, active_tasks=owned, standby_tasks=[], warmup_tasks=[], task_offsets=[offset], task_end_offsets=[]
        )
        assert response.member_epoch == 3
        other = await beat(client, "b", 3, instance_id="i")
        assert sorted(kept["0"] + (tasks_of(other) or {})["0"]) == [0, 1, 2, 3]
        found = await described(client)
        assert (found.error_code, found.group_state, found.group_epoch, found.assignment_epoch) == (0, "Stable", 3, 3)
        assert (found.assignor_name, found.topology_description_status, found.topology_description) == (
            "sticky",
            1,
            None,
        )
        (part,) = found.topology.subtopologies
        assert (found.topology.epoch, part.subtopology_id, part.source_topics) == (0, "0", ["t"])
        a, b = sorted(found.members, key=lambda member: member.member_id)
        assert (a.process_id, a.user_endpoint, a.client_tags) == (
            "process of a",
            endpoint(),
            [KeyValue(key="zone", value="z")],
        )
        assert (a.task_offsets, a.task_end_offsets, a.topology_epoch, a.is_classic) == ([offset], [], 0, False)
        assert (b.instance_id, b.rack_id, b.member_epoch) == ("i", "r", 3)
        assert a.assignment.active_tasks == a.target_assignment.active_tasks == owned
        assert found.authorized_operations > 0
        (old,) = [await described(client, version=0)]
        assert (old.assignor_name, old.topology_description_status) == (None, 0)


@pytest.mark.parametrize("factor", [-1, 0, 1])
async def test_internal_topics_are_created_for_the_group(factor: int, tmp_path: Path) -> None:
    parts = (
        subtopology("0", repartition_sink_topics=["rep"]),
        subtopology(
            "1",
            source_topics=[],
            repartition_source_topics=[internal("rep", factor=factor)],
            state_changelog_topics=[internal("log", policy="compact")],
        ),
    )
    async with running(tmp_path, overrides=AT_ONCE) as broker:
        await broker.topic("t", 3)
        client = await broker.client()
        response = await joined(client, "a", *parts)
        (status,) = response.status
        assert (status.status_code, status.status_detail) == (3, "Internal topics are missing: log, rep")
        await settled()
        log = broker.state.topics.get("log")
        assert log is not None and len(log.partitions) == 3
        assert dict(log.config.overrides)["cleanup.policy"] == "compact"
        response = await beat(client)
        assert (response.status, tasks_of(response)) == ([], {"0": [0, 1, 2], "1": [0, 1, 2]})
        found = await described(client)
        assert [topic.partitions for topic in found.topology.subtopologies[1].state_changelog_topics] == [3]


async def test_failed_creation_of_a_topic_is_reported_for_a_while(tmp_path: Path) -> None:
    part = subtopology(state_changelog_topics=[internal("log", policy="never")])
    async with running(tmp_path, overrides=AT_ONCE) as broker:
        await broker.topic("t")
        client = await broker.client()
        response = await joined(client, "a", part)
        assert response.status[0].status_detail == "Internal topics are missing: log"
        await settled()
        detail = (await beat(client)).status[0].status_detail
        assert detail.startswith("Internal topics are missing: log; Creation failed: log (Invalid value never")
        broker.clock.advance(10_000)
        assert (await beat(client)).status[0].status_detail == "Internal topics are missing: log"
        await settled()
        assert "Creation failed" in (await beat(client)).status[0].status_detail


async def test_configs_of_a_group_apply_to_it(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=AT_ONCE) as broker:
        await broker.topic("t")
        client = await broker.client()
        made = IncrementalAlterConfigsRequest.AlterConfigsResource
        values = {
            "streams.heartbeat.interval.ms": "6000",
            "streams.session.timeout.ms": "50000",
            "streams.num.standby.replicas": "1",
            "streams.rack.aware.assignment.tags": "zone,row",
            "streams.task.offset.interval.ms": "20000",
            "streams.acceptable.recovery.lag": "5",
            "streams.initial.rebalance.delay.ms": "1000",
        }
        alterations = [
            made.AlterableConfig(name=name, config_operation=0, value=value) for name, value in values.items()
        ]
        resource = made(resource_type=32, resource_name=GROUP, configs=alterations)
        (result,) = (
            await client.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        ).responses
        assert (result.error_code, result.error_message) == (0, None)
        response = await joined(client)
        assert [status.status_code for status in response.status] == [5, 6]
        assert (response.heartbeat_interval_ms, response.task_offset_interval_ms) == (6000, 20000)
        assert response.acceptable_recovery_lag == 5
        group: Any = broker.state.groups.group(GROUP)
        assert group.configs == {"num.standby.replicas": "1", "rack.aware.assignment.tags": "zone,row"}
        broker.clock.advance(45_000)
        assert group.members
        broker.clock.advance(5_000)
        assert not group.members


# --- other APIs ------------------------------------------------------------------------------------------------------


def committing(offset: int, member: str = "a", epoch: int = 2, topic: str = "t") -> OffsetCommitRequest:
    made = OffsetCommitRequest.OffsetCommitRequestTopic
    one = made.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    return OffsetCommitRequest(
        group_id=GROUP,
        member_id=member,
        generation_id_or_member_epoch=epoch,
        topics=[made(name=topic, partitions=[one])],
    )


async def commit(client: Client, offset: int, version: int = 9, **more: Any) -> int:
    response = await client.call(committing(offset, **more), version)
    return response.topics[0].partitions[0].error_code


async def fetched(client: Client, **member: Any) -> tuple[int, list[int]]:
    made = OffsetFetchRequest.OffsetFetchRequestGroup
    topic = made.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    request = OffsetFetchRequest(groups=[made(group_id=GROUP, topics=[topic], **member)], require_stable=False)
    (group,) = (await client.call(request, 9)).groups
    return group.error_code, [one.committed_offset for found in group.topics for one in found.partitions]


async def test_members_commit_and_fetch_offsets_with_their_epochs(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=AT_ONCE) as broker:
        for name in "tu":
            await broker.topic(name)
        client = await broker.client()
        await joined(client)
        assert await commit(client, 1) == 0
        assert await commit(client, 2, version=8) == ErrorCode.UNSUPPORTED_VERSION
        assert await commit(client, 2, member="b") == ErrorCode.UNKNOWN_MEMBER_ID
        assert await commit(client, 2, epoch=3) == ErrorCode.STALE_MEMBER_EPOCH
        await joined(client, "b")
        await beat(client, active_tasks=tasks(_0={0}), standby_tasks=[], warmup_tasks=[])
        assert await commit(client, 2, epoch=2) == 0, "the task was assigned in this epoch"
        assert await commit(client, 2, epoch=1) == ErrorCode.STALE_MEMBER_EPOCH
        assert await commit(client, 2, epoch=2, topic="u") == ErrorCode.STALE_MEMBER_EPOCH
        assert await fetched(client) == (0, [2])
        assert await fetched(client, member_id="a", member_epoch=3) == (0, [2])
        assert await fetched(client, member_id="a", member_epoch=2) == (ErrorCode.STALE_MEMBER_EPOCH, [])
        assert await fetched(client, member_id="x", member_epoch=2) == (ErrorCode.UNKNOWN_MEMBER_ID, [])
        made = OffsetDeleteRequest.OffsetDeleteRequestTopic
        delete = OffsetDeleteRequest(
            group_id=GROUP,
            topics=[made(name="t", partitions=[made.OffsetDeleteRequestPartition(partition_index=0)])],
        )
        found = await client.call(delete, 0)
        assert found.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        for member in "ab":
            await beat(client, member, -1)
        assert await commit(client, 3, member="", epoch=-1) == 0, "an empty group accepts administrators"
        found = await client.call(delete, 0)
        assert (found.error_code, found.topics[0].partitions[0].error_code) == (0, 0)


async def test_group_is_listed_deleted_and_of_no_other_kind(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=AT_ONCE) as broker:
        client = await broker.client()
        await joined(client)
        for states, types in (([], ["streams"]), (["not_ready"], []), (["Not_Ready"], ["Streams"])):
            (one,) = (await client.call(ListGroupsRequest(states_filter=states, types_filter=types), 5)).groups
            assert (one.group_id, one.protocol_type, one.group_state, one.group_type) == (
                GROUP,
                "streams",
                "NotReady",
                "streams",
            )
        for states, types in ((["NotReady"], []), ([], ["consumer"])):  # as in Kafka, the name in filters differs
            assert not (await client.call(ListGroupsRequest(states_filter=states, types_filter=types), 5)).groups
        (one,) = (
            await client.call(DescribeGroupsRequest(groups=[GROUP], include_authorized_operations=False), 6)
        ).groups
        assert (one.error_code, one.error_message) == (NOT_FOUND, "Group k is not a classic group.")
        others = {
            "consumer": ConsumerGroupHeartbeatRequest(
                group_id=GROUP,
                member_id="c",
                member_epoch=0,
                rebalance_timeout_ms=1000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            ),
            "share": ShareGroupHeartbeatRequest(
                group_id=GROUP, member_id="c", member_epoch=0, subscribed_topic_names=["t"]
            ),
        }
        for kind, request in others.items():
            response = await client.call(request, 1)
            assert (response.error_code, response.error_message) == (NOT_FOUND, f"Group k is not a {kind} group.")
        classic = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="a", group_instance_id=None)
        assert (await client.call(classic, 3)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        refused = await client.call(classic_join(), 9)
        assert (refused.error_code, refused.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        delete = DeleteGroupsRequest(groups_names=[GROUP])
        assert (await client.call(delete, 2)).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        await beat(client, epoch=-1)
        assert (await described(client)).group_state == "Empty"
        assert (await client.call(delete, 2)).results[0].error_code == 0
        assert (await described(client)).error_message == "Group k not found."


def classic_join(member: str = "") -> JoinGroupRequest:
    made = JoinGroupRequest.JoinGroupRequestProtocol
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[made(name="range", metadata=b"")],
    )


async def test_empty_groups_change_their_kind_and_keep_their_offsets(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=AT_ONCE) as broker:
        await broker.topic("t")
        client = await broker.client()
        assert await commit(client, 1, member="", epoch=-1) == 0
        kinds = [broker.state.groups.group(GROUP)]
        await joined(client)
        kinds.append(broker.state.groups.group(GROUP))
        await beat(client, epoch=-1)
        assert (await client.call(classic_join(), 9)).error_code == ErrorCode.MEMBER_ID_REQUIRED
        kinds.append(broker.state.groups.group(GROUP))
        assert [getattr(group, "kind", "classic") for group in kinds] == ["classic", "streams", "classic"]
        assert await fetched(client) == (0, [1])


async def test_groups_of_other_kinds_refuse_streams_members(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=AT_ONCE) as broker:
        await broker.topic("t")
        client = await broker.client()
        other = ShareGroupHeartbeatRequest(group_id=GROUP, member_id="c", member_epoch=0, subscribed_topic_names=["t"])
        assert (await client.call(other, 1)).error_code == 0
        for request in (joining(), beating(), beating(epoch=-1)):
            response = await client.call(request, 1)
            assert (response.error_code, response.error_message) == (NOT_FOUND, "Group k is not a streams group.")
        found = await described(client)
        assert (found.error_code, found.error_message) == (NOT_FOUND, "Group k is not a streams group.")
        assert (await described(client, "")).error_code == ErrorCode.INVALID_GROUP_ID


# --- restarts and failures -------------------------------------------------------------------------------------------


async def test_group_is_there_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=AT_ONCE) as broker:
        await broker.topic("t", 2)
        client = await broker.client()
        await joined(client)
        before: Any = broker.state.groups.group(GROUP)
    async with running(tmp_path, overrides=AT_ONCE) as broker:
        client = await broker.client()
        found = await described(client)
        assert (found.group_state, found.group_epoch) == ("Stable", 2)
        after: Any = broker.state.groups.group(GROUP)
        assert (after.members, after.target, after.topology) == (before.members, before.target, before.topology)
        assert (await beat(client)).member_epoch == 2
        broker.clock.advance(45_000)
        assert (await described(client)).group_state == "Empty", "its session started with the load"


async def test_groups_without_members_and_offsets_expire(tmp_path: Path) -> None:
    async with running(tmp_path, overrides=AT_ONCE | {"offsets.retention.minutes": "1"}) as broker:
        await broker.topic("t")
        client = await broker.client()
        await joined(client)
        assert await commit(client, 1) == 0
        await beat(client, epoch=-1)
        broker.clock.advance(600_000)
        assert (await described(client)).error_code == NOT_FOUND


@pytest.mark.parametrize("request_", [joining("b"), beating(epoch=-1)])
async def test_failed_write_changes_nothing(request_: Any, tmp_path: Path) -> None:
    async with running(tmp_path, overrides=AT_ONCE) as broker:
        await broker.topic("t")
        client = await broker.client()
        await joined(client)
        registry = broker.state.groups._registry  # pyright: ignore[reportPrivateUsage]
        append, group = registry.append, broker.state.groups.group(GROUP)

        def fails(*_: Any) -> None:
            raise OSError(5, "disk")

        registry.append = fails
        assert (await client.call(request_, 1)).error_code != 0
        assert group is not None and set(group.members) == {"a"}
        broker.clock.advance(45_000)  # the end of the session cannot be written either, and is tried again
        assert set(group.members) == {"a"}
        registry.append = append
        broker.clock.advance(500)
        assert not group.members
