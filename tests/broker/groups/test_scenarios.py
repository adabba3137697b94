"""Scenarios of group members: joining, rebalancing, leaving and failing, on a manual clock."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.groups.classic.state import GroupState
from ottla.broker.groups.records import GroupEntry, decode
from ottla.broker.groups.settings import CoordinatorSettings
from ottla.protocol.errors import ErrorCode

DELAY = 3000


async def test_first_generation_waits_for_members_and_its_leader_receives_all(h: Any, soon: Any) -> None:
    first = h.join(client_id="one")
    await h.advance(DELAY - 1)
    second, third = h.join(client_id="two"), h.join(client_id="three")
    await h.advance(1)
    assert not first.done(), "new members extend the delay"
    await h.advance(DELAY)
    replies = [await soon(join) for join in (first, second, third)]
    assert [reply.error for reply in replies] == [0, 0, 0]
    assert {reply.generation_id for reply in replies} == {1}
    assert {reply.leader for reply in replies} == {"one-0001"}
    assert [member.member_id for member in replies[0].members] == ["one-0001", "two-0002", "three-0003"]
    assert replies[0].members[0].metadata == b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff"
    assert replies[1].members == replies[2].members == ()
    assert (replies[1].protocol_type, replies[1].protocol_name) == ("consumer", "range")


async def test_the_initial_delay_ends_at_the_rebalance_timeout(h: Any, settle: Any) -> None:
    joins = [h.join(rebalance_timeout_ms=7000)]
    await settle()
    for _ in range(2):
        joins.append(h.join(rebalance_timeout_ms=7000))
        await h.advance(DELAY)
        assert not joins[0].done()
    joins.append(h.join(rebalance_timeout_ms=7000))
    await h.advance(1000)
    assert joins[0].done(), "7 s: 3 + 3 + 1"
    assert len(h.group().members) == 4


async def test_a_group_that_had_members_before_is_delayed_only_once(h: Any, soon: Any) -> None:
    (a,) = await h.stable(1)
    h.leave((a, None))
    first = h.join()
    await h.advance(1000)
    second = h.join()
    await h.advance(DELAY - 1000)
    assert {(await soon(join)).generation_id for join in (first, second)} == {3}


async def test_join_of_a_single_member_without_initial_delay_completes_at_the_next_tick(
    make_harness: Any, soon: Any
) -> None:
    h = make_harness(CoordinatorSettings(initial_rebalance_delay_ms=0))
    join = h.join()
    await h.advance(0)
    await h.advance(0)
    assert (await soon(join)).generation_id == 1


async def test_assignments_reach_members_in_any_order_of_syncs(h: Any, soon: Any, settle: Any) -> None:
    joins = [h.join(), h.join()]
    await settle()
    await h.advance(DELAY)
    await h.advance(DELAY)
    leader, follower = [(await soon(join)).member_id for join in joins]
    early = h.sync(follower, 1)
    await settle()
    assert not early.done()
    late = h.sync(leader, 1, assignments=[(follower, b"F"), (leader, b"L")])
    assert (await soon(late)).assignment == b"L"
    assert (await soon(early)).assignment == b"F"
    assert (await soon(early)).protocol_name == "range"
    assert h.group().state is GroupState.STABLE
    assert (await soon(h.sync(follower, 1))).assignment == b"F", "a Stable group repeats the response"


async def test_a_third_member_joins_and_one_leaves(h: Any, soon: Any, settle: Any) -> None:
    a, b = await h.stable(2)
    join = h.join()
    await settle()
    assert h.heartbeat(a, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = [h.join(a), h.join(b)]
    reply = await soon(join)
    assert reply.generation_id == 2
    c = reply.member_id
    for task in again:
        assert (await soon(task)).generation_id == 2
    await h.settle_generation([a, b, c])
    assert h.heartbeat(b, 1) is ErrorCode.ILLEGAL_GENERATION
    assert h.heartbeat(b, 2) is ErrorCode.NONE
    left = h.leave((c, None))
    assert [one.error for one in left.members] == [0]
    assert h.heartbeat(b, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    again = [h.join(a), h.join(b)]
    assert [(await soon(task)).generation_id for task in again] == [3, 3]


async def test_silent_member_is_removed_at_its_session_timeout(h: Any, soon: Any) -> None:
    a, b = await h.stable(2)
    for _ in range(3):
        await h.advance(4000)
        assert h.heartbeat(a, 1) in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    assert list(h.group().members) == [a]
    assert h.heartbeat(b, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert (await soon(h.join(a))).generation_id == 2


async def test_session_expires_exactly_at_its_timeout(h: Any) -> None:
    (a,) = await h.stable(1)
    await h.advance(9_999)
    assert h.heartbeat(a, 1) is ErrorCode.NONE
    await h.advance(9_999)
    assert a in h.group().members
    await h.advance(1)
    assert h.group().state is GroupState.EMPTY
    assert h.group().generation_id == 2


async def test_leader_without_rejoin_is_removed_and_another_member_leads(h: Any, soon: Any, settle: Any) -> None:
    a, b = await h.stable(2)
    join = h.join(b, protocols=[("range", b"changed")])
    await settle()
    for _ in range(12):
        await h.advance(5000)
        if a in h.group().members:
            h.heartbeat(a, 1)  # it sends heartbeats, but does not rejoin
    reply = await soon(join)
    assert reply.leader == b == reply.member_id
    assert [member.member_id for member in reply.members] == [b]


async def test_member_that_never_syncs_is_removed(h: Any, soon: Any, settle: Any) -> None:
    joins = [h.join(rebalance_timeout_ms=20_000), h.join(rebalance_timeout_ms=20_000)]
    await settle()
    await h.advance(DELAY)
    await h.advance(DELAY)
    leader, follower = [(await soon(join)).member_id for join in joins]
    sync = h.sync(follower, 1)
    await settle()
    for _ in range(4):
        assert not sync.done()
        assert h.heartbeat(leader, 1) is ErrorCode.NONE
        await h.advance(5000)
    assert (await soon(sync)).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert list(h.group().members) == [follower]


async def test_cooperative_group_moves_partitions_in_two_rebalances(h: Any, soon: Any, settle: Any) -> None:
    """A cooperative leader rejoins at once after partitions were revoked: each of its joins must rebalance
    (KIP-429).
    """
    protocols = {"protocols": [("cooperative-sticky", b"v1")]}
    (a,) = await h.stable(1, **protocols)
    join_b = h.join(**protocols)
    rejoin_a = h.join(a, **protocols)
    b = (await soon(join_b)).member_id
    assert (await soon(rejoin_a)).generation_id == 2
    syncs = [h.sync(a, 2, assignments=[(a, b"0"), (b, b"")]), h.sync(b, 2)]
    assert [(await soon(sync)).assignment for sync in syncs] == [b"0", b""]
    given_up = {"protocols": [("cooperative-sticky", b"v2")]}
    rejoin_a = h.join(a, **given_up)
    await settle()
    assert h.heartbeat(b, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert h.commit(5, b, 2) is ErrorCode.NONE, "commits are accepted during PreparingRebalance"
    rejoin_b = h.join(b, **protocols)
    assert {(await soon(task)).generation_id for task in (rejoin_a, rejoin_b)} == {3}
    syncs = [h.sync(a, 3, assignments=[(a, b"0"), (b, b"1")]), h.sync(b, 3)]
    assert [(await soon(sync)).assignment for sync in syncs] == [b"0", b"1"]


async def test_members_may_change_their_assignor_one_by_one(h: Any, soon: Any, settle: Any) -> None:
    old, both = [("range", b"")], [("sticky", b""), ("range", b"")]
    a, b = await h.stable(2, protocols=old)
    chosen = []
    for of_a, of_b in ((both, old), (both, both)):
        tasks = [h.join(a, protocols=of_a), h.join(b, protocols=of_b)]
        await settle()
        chosen += [(await soon(task)).protocol_name for task in tasks]
        await h.settle_generation([a, b])
    assert chosen == ["range", "range", "sticky", "sticky"]
    assert (await soon(h.join(protocols=[("other", b"")]))).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_pending_member_id_expires_after_the_session_timeout(h: Any, soon: Any, settle: Any) -> None:
    reply = await soon(h.join(requires_member_id=True))
    assert (reply.error, reply.member_id, reply.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, "c-0001", -1)
    join = h.join("c-0001", requires_member_id=True)
    await h.advance(DELAY)
    assert (await soon(join)).member_id == "c-0001"
    lost = (await soon(h.join(requires_member_id=True))).member_id
    await h.advance(5000)
    h.heartbeat("c-0001", 1)
    await h.advance(5000)
    assert lost not in h.group().pending
    assert (await soon(h.join(lost))).error is ErrorCode.UNKNOWN_MEMBER_ID


async def test_pending_member_id_delays_the_rebalance(h: Any, soon: Any, settle: Any) -> None:
    (a,) = await h.stable(1)
    pending = (await soon(h.join(requires_member_id=True))).member_id
    rejoin = h.join(a)
    await settle()
    assert not rejoin.done()
    join = h.join(pending)
    assert {(await soon(task)).generation_id for task in (rejoin, join)} == {2}


async def test_new_member_without_response_is_removed_after_five_minutes(h: Any, soon: Any, settle: Any) -> None:
    (a,) = await h.stable(1, rebalance_timeout_ms=600_000, session_timeout_ms=1_800_000)
    join = h.join(session_timeout_ms=6000)
    await settle()
    await h.advance(299_999)
    assert not join.done()
    await h.advance(1)
    reply = await soon(join)
    assert (reply.error, reply.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert list(h.group().members) == [a]


@pytest.mark.parametrize("newest", [True, False])
async def test_static_leader_returns_without_a_rebalance(h: Any, soon: Any, newest: bool) -> None:
    a, b = await h.stable(2, instance_id="i")
    assert (a, b) == ("i0-0001", "i1-0002")
    reply = await soon(h.join(instance_id="i0", may_skip_assignment=newest))
    assert (reply.error, reply.generation_id, reply.member_id) == (0, 1, "i0-0003")
    assert h.group().state is GroupState.STABLE
    assert h.group().leader == "i0-0003"
    assert list(h.group().members) == ["i0-0003", "i1-0002"]
    if newest:
        assert reply.skip_assignment
        assert reply.leader == "i0-0003"
        assert [member.instance_id for member in reply.members] == ["i0", "i1"]
    else:
        assert not reply.skip_assignment
        assert reply.leader == a, "an older client must not consider itself the leader"
        assert reply.members == ()
    assert (await soon(h.sync("i0-0003", 1, instance_id="i0"))).assignment == a.encode()
    assert h.heartbeat(a, 1, "i0") is ErrorCode.FENCED_INSTANCE_ID
    assert h.heartbeat("i0-0003", 1, "i0") is ErrorCode.NONE


async def test_failed_write_of_a_static_return_changes_nothing(h: Any, soon: Any) -> None:
    a, b = await h.stable(2, instance_id="i")
    before = h.group()
    h.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    reply = await soon(h.join(instance_id="i1"))
    assert (reply.error, reply.member_id, reply.leader) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "", a)
    assert h.group() == before
    assert h.heartbeat(b, 1, "i1") is ErrorCode.NONE


async def test_static_return_with_another_protocol_rebalances(h: Any, soon: Any, settle: Any) -> None:
    await h.stable(1, instance_id="i", protocols=[("range", b""), ("sticky", b"")])
    join = h.join(instance_id="i0", protocols=[("sticky", b"")])
    assert ((await soon(join)).generation_id, h.group().protocol_name) == (2, "sticky")


async def test_static_member_with_the_same_instance_fences_the_delayed_one(h: Any, soon: Any, settle: Any) -> None:
    first = h.join(instance_id="i0")
    await settle()
    second = h.join(instance_id="i0")
    assert (await soon(first)).error is ErrorCode.FENCED_INSTANCE_ID
    await h.advance(DELAY)
    reply = await soon(second)
    assert (reply.error, reply.member_id, reply.leader) == (0, "i0-0002", "i0-0002")


async def test_leave_by_instance_id_removes_static_members(h: Any) -> None:
    await h.stable(2, instance_id="i")
    left = h.leave(("", "i1"), ("", "nobody"), ("x", None))
    assert [int(one.error) for one in left.members] == [0, 25, 25]
    assert len(h.group().members) == 1


async def test_static_member_keeps_its_assignment_during_its_absence(h: Any, soon: Any, settle: Any) -> None:
    a, b = await h.stable(2, instance_id="i", session_timeout_ms=120_000, rebalance_timeout_ms=20_000)
    join = h.join(a, instance_id="i0", session_timeout_ms=120_000, rebalance_timeout_ms=20_000)
    await h.advance(20_000)
    reply = await soon(join)
    assert [member.member_id for member in reply.members] == [a, b], "b is still a member without rejoin"


async def test_failed_assignment_write_refuses_all_syncs(h: Any, soon: Any, settle: Any) -> None:
    joins = [h.join(), h.join()]
    await settle()
    await h.advance(2 * DELAY)
    leader, follower = [(await soon(join)).member_id for join in joins]
    early = h.sync(follower, 1)
    await settle()
    h.fail_with = ErrorCode.KAFKA_STORAGE_ERROR
    assert (await soon(h.sync(leader, 1))).error is ErrorCode.NOT_COORDINATOR
    assert (await soon(early)).error is ErrorCode.NOT_COORDINATOR
    assert h.group().state is GroupState.PREPARING_REBALANCE


async def test_join_of_a_full_group_is_refused(make_harness: Any, soon: Any) -> None:
    h = make_harness(CoordinatorSettings(max_size=2))
    a, _ = await h.stable(2)
    reply = await soon(h.join())
    assert (reply.error, reply.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert h.heartbeat(a, 1) is ErrorCode.NONE, "a refused join starts no rebalance"


async def test_refused_requests_create_no_group(h: Any, soon: Any) -> None:
    assert (await soon(h.join("x"))).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert (await soon(h.join(group_id=""))).error is ErrorCode.INVALID_GROUP_ID
    assert (await soon(h.join(session_timeout_ms=5999))).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert (await soon(h.join(session_timeout_ms=1_800_001))).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert (await soon(h.join(protocols=[]))).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert (await soon(h.sync("x", 1))).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert h.heartbeat("x", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert [one.error for one in h.leave(("x", None)).members] == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert h.commit(1, "x", 1) is ErrorCode.ILLEGAL_GENERATION
    assert h.coordinator.group("g") is None
    assert h.coordinator.list_groups() == (ErrorCode.NONE, [])


async def test_disconnected_client_does_not_affect_other_members(h: Any, soon: Any, settle: Any) -> None:
    gone, stays = h.join(), h.join()
    await settle()
    gone.cancel()
    await settle()
    await h.advance(2 * DELAY)
    assert (await soon(stays)).error is ErrorCode.NONE


async def test_close_responds_to_delayed_requests(h: Any, soon: Any, settle: Any) -> None:
    join = h.join()
    await settle()
    h.coordinator.close()
    assert (await soon(join)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await soon(h.join())).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_requests_during_loading_are_retriable(h: Any, soon: Any) -> None:
    partition = h.coordinator.partition_of("g")
    h.coordinator.begin_loading(partition)
    assert (await soon(h.join())).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await soon(h.sync("a", 1))).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert h.heartbeat("a", 1) is ErrorCode.NONE
    assert h.leave(("a", None)).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert h.commit(1) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert h.coordinator.fetch("g", None, require_stable=False)[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert h.coordinator.list_groups()[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert h.coordinator.load(partition, []) is ErrorCode.NONE
    assert h.heartbeat("a", 1) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("requires_id", [True, False])
async def test_record_of_a_new_group(old: bool, requires_id: bool, make_harness: Any, settle: Any) -> None:
    """Since 4.0 a group has a record without members from its first JoinGroup on, also before it has a member."""
    h = make_harness(CoordinatorSettings(old_group_coordinator=old))
    joining = h.join(requires_member_id=requires_id)
    await settle()
    joining.cancel()
    stored = [record for partition in h.log.values() for record in partition]
    assert len(stored) == (0 if old else 1)
    for record in stored:
        entry = decode(*record)
        assert isinstance(entry, GroupEntry) and entry.group is not None
        group = entry.group
        assert (group.protocol_type or "", group.generation_id, group.protocol_name, group.leader) == (
            "",
            0,
            None,
            None,
        )
        assert (group.members, group.state_changed_ms) == ({}, h.clock.now_ms())
    if not old:
        assert h.restart().group("g") is not None
        assert h.coordinator.delete("g") is ErrorCode.NONE
        assert h.restart().group("g") is None


async def test_failed_write_of_a_new_group_refuses_the_join(make_harness: Any, soon: Any) -> None:
    h = make_harness(CoordinatorSettings(old_group_coordinator=False))
    h.fail_with = ErrorCode.NOT_ENOUGH_REPLICAS
    for requires_id in (True, False):
        reply = await soon(h.join(requires_member_id=requires_id))
        assert reply.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert h.coordinator.group("g") is None
    h.fail_with = None
    reply = await soon(h.join(requires_member_id=True))
    assert reply.error is ErrorCode.MEMBER_ID_REQUIRED
