"""Members without SyncGroup, by release, as observed with Apache Kafka 2.4.1, 2.5.1, 2.6.3, 2.7.2, 2.8.2 and 3.9.1."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.groups.classic.state import GroupState
from ottla.broker.groups.settings import CoordinatorSettings
from ottla.broker.releases.profiles import profile
from ottla.protocol.errors import ErrorCode

COMPLETING, EMPTY, PREPARING = GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.PREPARING_REBALANCE
SESSION_MS, REBALANCE_MS = 1500, 2500
KEPT, REFUSED, UNKNOWN = ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID
FOREVER = 1 << 40


def settings_of(release: str) -> CoordinatorSettings:
    behaviour = profile(release).behaviour
    return CoordinatorSettings(
        min_session_timeout_ms=500,
        initial_rebalance_delay_ms=0,
        removes_unsynced=behaviour.removes_unsynced,
        heartbeats_before_sync=behaviour.heartbeats_before_sync,
        first_session_at_join=behaviour.first_session_at_join,
    )


async def joined(h: Any, **more: int) -> Any:
    joining = h.join(**{"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": REBALANCE_MS, **more})
    await h.advance(0)
    return joining.result()


@pytest.mark.parametrize(
    ("release", "response", "until_ms"),
    [
        ("2.1", REFUSED, SESSION_MS),
        ("2.4", REFUSED, FOREVER),
        ("2.5", REFUSED, SESSION_MS),
        ("2.6", KEPT, FOREVER),
        ("2.7", KEPT, FOREVER),
        ("2.8", KEPT, REBALANCE_MS),
        ("3.9", KEPT, REBALANCE_MS),
        ("ottla", KEPT, REBALANCE_MS),
    ],
)
async def test_member_with_heartbeats_but_no_sync(
    make_harness: Any, release: str, response: ErrorCode, until_ms: int
) -> None:
    h = make_harness(settings_of(release))
    member = await joined(h)
    elapsed_ms = 0
    while elapsed_ms < min(until_ms, 20_000):
        assert h.heartbeat(member.member_id, member.generation_id) is response, elapsed_ms
        assert h.group().state is COMPLETING
        await h.advance(500)
        elapsed_ms += 500
    if until_ms < FOREVER:
        assert h.heartbeat(member.member_id, member.generation_id) is UNKNOWN
        assert h.group().state is EMPTY


@pytest.mark.parametrize(
    ("release", "session_ms", "until_ms"),
    [
        ("2.1", SESSION_MS, SESSION_MS),
        ("2.4", SESSION_MS, FOREVER),
        ("2.5", SESSION_MS, SESSION_MS),
        ("2.7", SESSION_MS, SESSION_MS),
        ("2.8", SESSION_MS, SESSION_MS),
        ("2.5", 6000, 6000),
        ("2.7", 6000, 6000),
        ("2.8", 6000, REBALANCE_MS),
        ("ottla", 6000, REBALANCE_MS),
    ],
)
async def test_member_without_any_request(make_harness: Any, release: str, session_ms: int, until_ms: int) -> None:
    h = make_harness(settings_of(release))
    await joined(h, session_timeout_ms=session_ms)
    await h.advance(min(until_ms, 20_000) - 1)
    assert h.group().state is COMPLETING
    await h.advance(1)
    assert h.group().state is (EMPTY if until_ms < FOREVER else COMPLETING)


@pytest.mark.parametrize(
    ("release", "until_ms"), [("2.4", 3000), ("2.5", 3000), ("2.6", FOREVER), ("2.7", FOREVER), ("2.8", 2000)]
)
async def test_follower_waits_for_a_leader_with_heartbeats_but_no_sync(
    make_harness: Any, release: str, until_ms: int
) -> None:
    """Session timeout 3 s, rebalance timeout 2 s: up to 2.5 the leader's session timeout ends the wait, from 2.8 on the
    sync timeout.
    """
    h = make_harness(settings_of(release))
    times = {"session_timeout_ms": 3000, "rebalance_timeout_ms": 2000}
    first = await joined(h, **times)
    joining = h.join(**times)
    await h.advance(0)
    again = h.join(first.member_id, **times)
    await h.advance(0)
    leader, follower = again.result(), joining.result()
    assert leader.leader == leader.member_id
    syncing = h.sync(follower.member_id, follower.generation_id)
    await h.advance(0)
    elapsed_ms = 0
    while elapsed_ms < min(until_ms, 20_000):
        h.heartbeat(leader.member_id, leader.generation_id)
        assert not syncing.done() and h.group().state is COMPLETING
        await h.advance(500)
        elapsed_ms += 500
    if until_ms == FOREVER:
        syncing.cancel()
        return
    assert syncing.result().error is REFUSED
    assert h.group().state is PREPARING and list(h.group().members) == [follower.member_id]
