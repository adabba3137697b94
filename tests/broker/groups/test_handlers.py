"""Handlers of the group APIs, in every version: request bytes in, response bytes out."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.context import RequestContext
from ottla.broker.groups.classic.state import GroupState
from ottla.broker.groups.lookups import Lookups
from ottla.broker.handlers import handler_of
from ottla.broker.handlers.groups.administration import delete_groups, describe_groups, list_groups, offset_delete
from ottla.broker.handlers.groups.classic_members import heartbeat, join_group, leave_group, sync_group
from ottla.broker.handlers.groups.find_coordinator import find_coordinator
from ottla.broker.handlers.groups.offset_commit import offset_commit
from ottla.broker.handlers.groups.offset_fetch import offset_fetch
from ottla.broker.releases.profiles import own_profile, profile
from ottla.protocol.compiler import build, parse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.limits import INT64_MAX, INT64_MIN
from ottla.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.groups.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.groups.heartbeat import HeartbeatRequest
from ottla.protocol.messages.groups.join_group import JoinGroupRequest
from ottla.protocol.messages.groups.leave_group import LeaveGroupRequest
from ottla.protocol.messages.groups.list_groups import ListGroupsRequest
from ottla.protocol.messages.groups.offset_commit import OffsetCommitRequest
from ottla.protocol.messages.groups.offset_delete import OffsetDeleteRequest
from ottla.protocol.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.groups.sync_group import SyncGroupRequest
from ottla.protocol.schema import spec

HANDLERS = [
    delete_groups, describe_groups, find_coordinator, heartbeat, join_group, leave_group, list_groups, offset_commit,
    offset_delete, offset_fetch, sync_group,
]  # fmt: skip
T_ID = b"T" * 16


class Wire:
    """Calls a handler like the broker, with both messages encoded and decoded."""

    def __init__(self, harness: Any) -> None:
        self.harness = harness
        self.profile = own_profile()

    async def call(self, handler: Any, request: Any, version: int) -> Any:
        async def durable(group_id: str) -> ErrorCode:
            return ErrorCode.NONE

        broker = SimpleNamespace(
            groups=self.harness.coordinator, node_id=1, nodes=SimpleNamespace(is_cluster=False),
            awaits_topic=lambda name: False, apis=SimpleNamespace(served={}),
            endpoint=lambda info, node_id: (f"host-of-{info.listener}", 9092), group_records_durable=durable,
            clock=self.harness.clock, authorizer=None, profile=self.profile,
            lookups=Lookups(self.harness.clock, unserved=lambda: None),
        )  # fmt: skip
        library = SimpleNamespace(software_name=None, software_version=None)
        connection_info = SimpleNamespace(listener="PLAIN", client_host="10.0.0.1", node_id=1, library=library)
        context = RequestContext(cast("Any", broker), version, 1, "cl", cast("Any", connection_info))
        response = await handler(parse(type(request), version, build(request, version)), context)
        return parse(type(response), version, build(response, version))

    async def joined(self, version: int, **fields: Any) -> Any:
        """JoinGroup of a single member, with the second request that v4 requires."""
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0")]
        plain: dict[str, Any] = {
            "group_id": "g", "session_timeout_ms": 10_000, "member_id": "", "protocol_type": "consumer",
            "protocols": protocols,
        }  # fmt: skip
        request = JoinGroupRequest(**{**plain, **fields})
        task = asyncio.get_running_loop().create_task(self.call(join_group, request, version))
        await self.harness.advance(0)
        if task.done() and task.result().error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return await self.joined(version, **{**fields, "member_id": task.result().member_id})
        await self.harness.advance(3000)
        return await task

    async def stable(self, join_version: int = 9) -> str:
        member_id = (await self.joined(join_version)).member_id
        given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")
        request = SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=[given])
        assert (await self.call(sync_group, request, 3)).error_code == 0
        return member_id


@pytest.fixture
def wire(h: Any) -> Wire:
    return Wire(h)


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.__name__)
def test_handlers_are_listed_and_named_by_their_api(handler: Any) -> None:
    api = handler.request_class.__name__.removesuffix("Request")
    assert handler_of(spec(handler.request_class).api_key) is handler
    assert handler.__name__.replace("_", "") == api.lower()


@pytest.mark.parametrize("version", range(10))
async def test_join(wire: Wire, version: int) -> None:
    reply = await wire.joined(version, **({"rebalance_timeout_ms": 7000} if version else {}))
    assert (reply.error_code, reply.generation_id, reply.protocol_name) == (0, 1, "range")
    assert reply.leader == reply.member_id == "cl-0001"
    assert reply.protocol_type == ("consumer" if version >= 7 else None)
    assert [(member.member_id, bytes(member.metadata)) for member in reply.members] == [("cl-0001", b"\0" * 6)]
    member = wire.harness.group().members["cl-0001"]
    assert member.rebalance_timeout_ms == (7000 if version else 10_000)
    assert member.client_host == "/10.0.0.1"


@pytest.mark.parametrize("version", range(10))
async def test_join_refused(wire: Wire, version: int) -> None:
    reply = await wire.joined(version, session_timeout_ms=1)
    assert (reply.error_code, reply.generation_id, reply.leader) == (ErrorCode.INVALID_SESSION_TIMEOUT, -1, "")
    assert reply.protocol_name == (None if version >= 7 else "")


async def test_join_v4_requires_a_member_id_except_for_static_members(wire: Wire) -> None:
    for version in range(10):
        wire.harness.coordinator = wire.harness.make()
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")]
        for instance_id in [None, "i"] if version >= 5 else [None]:
            request = JoinGroupRequest(
                group_id="g", session_timeout_ms=10_000, member_id="", protocol_type="consumer", protocols=protocols,
                group_instance_id=instance_id,
            )  # fmt: skip
            task = asyncio.get_running_loop().create_task(wire.call(join_group, request, version))
            await wire.harness.advance(0)
            assert task.done() == (version >= 4 and instance_id is None)
            if task.done():
                assert task.result().error_code == ErrorCode.MEMBER_ID_REQUIRED
            else:
                await wire.harness.advance(60_000)
                assert (await task).error_code == 0


async def test_join_v9_of_a_static_leader_skips_the_assignment(wire: Wire) -> None:
    member_id = (await wire.joined(9, group_instance_id="i")).member_id
    await wire.harness.settle_generation([member_id])
    assert wire.harness.group().state is GroupState.STABLE
    old = await wire.joined(8, group_instance_id="i")
    assert (old.leader, old.members) == (member_id, [])
    new = await wire.joined(9, group_instance_id="i")
    assert new.skip_assignment
    assert new.leader == new.member_id == new.members[0].member_id


@pytest.mark.parametrize("version", range(6))
async def test_sync(wire: Wire, version: int) -> None:
    member_id = (await wire.joined(9)).member_id
    given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")
    named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=[given], **named)
    reply = await wire.call(sync_group, request, version)
    assert (reply.error_code, bytes(reply.assignment)) == (0, b"mine")
    assert reply.protocol_name == ("range" if version >= 5 else None)
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=[])
    unnamed = await wire.call(sync_group, request, version)
    assert unnamed.error_code == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL if version >= 5 else 0)


@pytest.mark.parametrize("version", range(5))
async def test_heartbeat(wire: Wire, version: int) -> None:
    member_id = await wire.stable()
    for generation, code in ((1, 0), (2, ErrorCode.ILLEGAL_GENERATION)):
        request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
        assert (await wire.call(heartbeat, request, version)).error_code == code


@pytest.mark.parametrize("version", range(6))
async def test_leave(wire: Wire, version: int) -> None:
    member_id = await wire.stable()

    async def leave(name: str) -> tuple[int, int]:
        if version < 3:
            reply = await wire.call(leave_group, LeaveGroupRequest(group_id="g", member_id=name), version)
            return 0, reply.error_code
        request = LeaveGroupRequest(group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id=name)])
        reply = await wire.call(leave_group, request, version)
        return reply.error_code, reply.members[0].error_code

    assert await leave("x") == (0, ErrorCode.UNKNOWN_MEMBER_ID)
    assert await leave(member_id) == (0, 0)
    assert wire.harness.group().state is GroupState.EMPTY
    stranger: dict[str, Any] = {"member_id": "x"} if version < 3 else {}
    empty_name = LeaveGroupRequest(group_id="", **stranger)
    assert (await wire.call(leave_group, empty_name, version)).error_code == ErrorCode.INVALID_GROUP_ID


CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic


def commit_request(version: int, partitions: list[Any], **fields: Any) -> OffsetCommitRequest:
    named: dict[str, Any] = {"topic_id": T_ID} if version >= 10 else {"name": "t"}
    requested = [
        CommitTopic.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=4, committed_metadata=metadata
        )
        for index, offset, metadata in partitions
    ]
    return OffsetCommitRequest(group_id="g", topics=[CommitTopic(**named, partitions=requested)], **fields)


@pytest.mark.parametrize("version", range(11))
async def test_commit_and_fetch(wire: Wire, version: int) -> None:
    partitions = [(0, 10, "m"), (1, 11, None), (2, 12, "x" * 4097), (3, 13, ""), (-1, 14, "")]
    reply = await wire.call(offset_commit, commit_request(version, partitions), version)
    (topic,) = reply.topics
    assert (topic.name, topic.topic_id) == (("", T_ID) if version >= 10 else ("t", bytes(16)))
    assert [(one.partition_index, one.error_code) for one in topic.partitions] == [
        (0, 0), (1, 0), (2, ErrorCode.OFFSET_METADATA_TOO_LARGE), (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]  # fmt: skip
    epoch = 4 if version >= 6 else -1
    for fetch_version in range(11):
        found = await fetched(wire, fetch_version, [0, 1, 2])
        seen = epoch if fetch_version >= 5 else -1
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if fetch_version == 0 else 0
        assert found == [(0, 10, seen, "m", 0), (1, 11, seen, "", 0), (2, -1, -1, "", missing)]


async def fetched(wire: Wire, version: int, indexes: list[int] | None) -> list[tuple[Any, ...]]:
    if version < 8:
        requested = None
        if indexes is not None:
            requested = [OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=indexes)]
        reply = await wire.call(offset_fetch, OffsetFetchRequest(group_id="g", topics=requested), version)
        assert reply.error_code == 0
        topics = reply.topics
    else:
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        named: dict[str, Any] = {"topic_id": T_ID} if version >= 10 else {"name": "t"}
        requested = None
        if indexes is not None:
            requested = [group.OffsetFetchRequestTopics(**named, partition_indexes=indexes)]
        reply = await wire.call(
            offset_fetch, OffsetFetchRequest(groups=[group(group_id="g", topics=requested)]), version
        )
        assert (reply.groups[0].group_id, reply.groups[0].error_code) == ("g", 0)
        topics = reply.groups[0].topics
    (topic,) = topics
    if version >= 10:
        assert topic.topic_id == T_ID
    else:
        assert topic.name == "t"
    return [
        (one.partition_index, one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code)
        for one in topic.partitions
    ]


@pytest.mark.parametrize("version", range(2, 11))
async def test_fetch_of_all_topics(wire: Wire, version: int) -> None:
    await wire.call(offset_commit, commit_request(6, [(2, 7, "m")]), 6)
    assert await fetched(wire, version, None) == [(2, 7, 4 if version >= 5 else -1, "m", 0)]


async def test_offset_fetch_of_several_groups_reports_unknown_topic_ids(wire: Wire) -> None:
    await wire.call(offset_commit, commit_request(6, [(0, 7, "")]), 6)
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    strange = group.OffsetFetchRequestTopics(topic_id=b"?" * 16, partition_indexes=[0, 5])
    known = group.OffsetFetchRequestTopics(topic_id=T_ID, partition_indexes=[0])
    groups = [group(group_id="g", topics=[strange, known]), group(group_id="nobody", topics=None)]
    reply = await wire.call(offset_fetch, OffsetFetchRequest(groups=groups), 10)
    assert [(one.group_id, one.error_code) for one in reply.groups] == [("g", 0), ("nobody", 0)]
    first, topic = reply.groups[0].topics  # unknown topics come last
    assert (first.topic_id, first.partitions[0].committed_offset) == (T_ID, 7)
    assert topic.topic_id == b"?" * 16
    assert [(one.partition_index, one.committed_offset, one.error_code) for one in topic.partitions] == [
        (0, -1, ErrorCode.UNKNOWN_TOPIC_ID), (5, -1, ErrorCode.UNKNOWN_TOPIC_ID)
    ]  # fmt: skip
    assert reply.groups[1].topics == []


@pytest.mark.parametrize("version", range(11))
async def test_fetch_while_loading(wire: Wire, version: int) -> None:
    wire.harness.coordinator.begin_loading(wire.harness.coordinator.partition_of("g"))
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if version >= 8:
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
        reply = await wire.call(offset_fetch, OffsetFetchRequest(groups=[group]), version)
        assert reply.groups[0].error_code == loading
        return
    requested = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    reply = await wire.call(offset_fetch, OffsetFetchRequest(group_id="g", topics=[requested]), version)
    if version >= 2:
        assert reply.error_code == loading
    else:
        assert [one.error_code for one in reply.topics[0].partitions] == [loading]


@pytest.mark.parametrize("version", range(1, 11))
async def test_commit_of_an_unknown_member_fails_for_every_existing_partition(wire: Wire, version: int) -> None:
    request = commit_request(
        version, [(0, 1, ""), (2, 1, "x" * 5000), (9, 1, "")], generation_id_or_member_epoch=3, member_id="x"
    )
    gone = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION
    reply = await wire.call(offset_commit, request, version)
    assert [one.error_code for one in reply.topics[0].partitions] == [gone, gone, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    await wire.stable()
    reply = await wire.call(offset_commit, request, version)
    assert [one.error_code for one in reply.topics[0].partitions][:2] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


async def test_a_commit_to_an_unknown_topic_id(wire: Wire) -> None:
    one = CommitTopic.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    request = OffsetCommitRequest(group_id="g", topics=[CommitTopic(topic_id=b"?" * 16, partitions=[one])])
    reply = await wire.call(offset_commit, request, 10)
    assert [one.error_code for one in reply.topics[0].partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]


async def test_old_commit_versions_have_their_own_timestamps(wire: Wire) -> None:
    now_ms = wire.harness.clock.now_ms()
    request = commit_request(1, [(0, 1, "")])
    request.topics[0].partitions[0].commit_timestamp = 77
    await wire.call(offset_commit, request, 1)
    assert wire.harness.coordinator.offsets("g")["t", 0].commit_timestamp_ms == 77
    for version, expiry in ((2, now_ms + 500), (4, now_ms + 500), (5, None)):
        fields = {"retention_time_ms": 500} if version < 5 else {}
        await wire.call(offset_commit, commit_request(version, [(0, 1, "")], **fields), version)
        assert wire.harness.coordinator.offsets("g")["t", 0].expire_timestamp_ms == expiry
        assert wire.harness.coordinator.offsets("g")["t", 0].commit_timestamp_ms == now_ms


async def test_unlimited_retention_of_an_old_commit_wraps_its_expiry(wire: Wire) -> None:
    """As in Kafka, which adds 64 bits: the offset expires as soon as the group is empty."""
    now_ms = wire.harness.clock.now_ms()
    request = commit_request(4, [(0, 1, "")], retention_time_ms=INT64_MAX)
    reply = await wire.call(offset_commit, request, 4)
    assert [one.error_code for one in reply.topics[0].partitions] == [0]
    assert wire.harness.coordinator.offsets("g")["t", 0].expire_timestamp_ms == now_ms - 1 + INT64_MIN


async def test_commit_metadata_size_is_counted_in_utf16_units(wire: Wire) -> None:
    fits, too_long = "\U0001f600" * 2048, "\U0001f600" * 2048 + "x"
    reply = await wire.call(offset_commit, commit_request(8, [(0, 1, fits), (1, 1, too_long)]), 8)
    assert [one.error_code for one in reply.topics[0].partitions] == [0, ErrorCode.OFFSET_METADATA_TOO_LARGE]


async def test_commit_with_only_oversized_metadata_creates_the_group(wire: Wire) -> None:
    coordinator = wire.harness.coordinator
    await wire.call(offset_commit, OffsetCommitRequest(group_id="g", topics=[]), 8)
    assert coordinator.group("g") is None
    await wire.call(offset_commit, commit_request(8, [(0, 1, "x" * 4097)]), 8)
    assert [one[:3] for one in coordinator.list_groups()[1]] == [("g", "", "Empty")]
    coordinator.expire()
    assert coordinator.group("g") is None


async def test_offset_delete(wire: Wire) -> None:
    await wire.call(offset_commit, commit_request(6, [(0, 7, "")]), 6)
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    requested = [topic(name="t", partitions=[topic.OffsetDeleteRequestPartition(partition_index=n) for n in (0, 1, 9)])]
    reply = await wire.call(offset_delete, OffsetDeleteRequest(group_id="g", topics=requested), 0)
    assert reply.error_code == 0
    assert [one.error_code for one in reply.topics[0].partitions] == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert wire.harness.coordinator.offsets("g") == {}
    reply = await wire.call(offset_delete, OffsetDeleteRequest(group_id="nobody", topics=requested), 0)
    assert (reply.error_code, reply.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])


@pytest.mark.parametrize("version", range(6))
async def test_list(wire: Wire, version: int) -> None:
    await wire.stable()
    wire.harness.commit(1, group_id="simple")

    async def listed(**filters: list[str]) -> list[tuple[str, ...]]:
        reply = await wire.call(list_groups, ListGroupsRequest(**filters), version)
        assert reply.error_code == 0
        return [(one.group_id, one.protocol_type, one.group_state, one.group_type) for one in reply.groups]

    state, kind = version >= 4, "classic" if version >= 5 else ""
    g, simple = ("g", "consumer", "Stable" if state else "", kind), ("simple", "", "Empty" if state else "", kind)
    assert await listed() == [g, simple]
    if version >= 4:
        assert await listed(states_filter=["stable", "Dead"]) == [g]
        assert await listed(states_filter=["nonsense"]) == []
    if version >= 5:
        assert await listed(types_filter=["Classic"], states_filter=["EMPTY"]) == [simple]
        assert await listed(types_filter=["consumer"]) == []


async def test_list_groups_up_to_3_7_compares_states_with_case(wire: Wire) -> None:
    wire.profile = profile("3.7")
    wire.harness.commit(1, group_id="simple")
    for states, count in ((["empty"], 0), (["EMPTY", "Dead"], 0), (["Dead", "Empty"], 1), ([], 1)):
        assert len((await wire.call(list_groups, ListGroupsRequest(states_filter=states), 4)).groups) == count


@pytest.mark.parametrize("version", range(7))
async def test_describe(wire: Wire, version: int) -> None:
    member_id = await wire.stable()
    reply = await wire.call(describe_groups, DescribeGroupsRequest(groups=["g", "nobody"]), version)
    known, unknown = reply.groups
    assert (known.error_code, known.group_state, known.protocol_type, known.protocol_data) == (
        0, "Stable", "consumer", "range",
    )  # fmt: skip
    (member,) = known.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "cl", "/10.0.0.1")
    assert (bytes(member.member_metadata), bytes(member.member_assignment)) == (b"\0" * 6, b"mine")
    assert known.authorized_operations == -(2**31)
    assert (unknown.group_state, unknown.members) == ("Dead", [])
    assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    assert (unknown.error_message is not None) == (version >= 6)
    if version >= 3:
        request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
        assert (await wire.call(describe_groups, request, version)).groups[0].authorized_operations == 3400


async def test_describe_has_no_protocol_during_a_rebalance(wire: Wire) -> None:
    await wire.joined(9)
    reply = await wire.call(describe_groups, DescribeGroupsRequest(groups=["g"]), 5)
    described = reply.groups[0]
    assert (described.group_state, described.protocol_data) == ("CompletingRebalance", "")
    assert bytes(described.members[0].member_metadata) == b""


@pytest.mark.parametrize("version", range(3))
async def test_delete(wire: Wire, version: int) -> None:
    await wire.stable()
    wire.harness.commit(1, group_id="simple")
    request = DeleteGroupsRequest(groups_names=["g", "simple", "nobody", "simple"])
    reply = await wire.call(delete_groups, request, version)
    assert [(one.group_id, one.error_code) for one in reply.results] == [
        ("g", ErrorCode.NON_EMPTY_GROUP), ("simple", 0), ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
    ]  # fmt: skip


@pytest.mark.parametrize("version", range(7))
async def test_find_coordinator(wire: Wire, version: int) -> None:
    for key_type, code in ((0, 0), (2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.INVALID_REQUEST)):
        if key_type and version == 0:
            continue
        where: dict[str, Any] = {"coordinator_keys": ["a", "b"]} if version >= 4 else {"key": "a"}
        reply = await wire.call(find_coordinator, FindCoordinatorRequest(key_type=key_type, **where), version)
        found = reply.coordinators if version >= 4 else [reply]
        assert len(found) == (2 if version >= 4 else 1)
        node = (1, "host-of-PLAIN", 9092) if code == 0 else (-1, "", -1)
        assert {(one.node_id, one.host, one.port, one.error_code) for one in found} == {(*node, code)}
        if version >= 4:
            assert [one.key for one in found] == ["a", "b"]
