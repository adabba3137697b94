"""Members that stay alive during a move of the clock, as with `keep_members`."""

from __future__ import annotations

from typing import Any

from ottla.broker.groups.classic.state import GroupState
from ottla.protocol.errors import ErrorCode

DAY_MS = 24 * 3600 * 1000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


async def move(h: Any, ms: int) -> None:
    """Moves the clock while keeping the present members."""
    h.coordinator.refresh_members(h.clock.now_ms() + ms)
    await h.advance(ms)
    h.coordinator.refreshed()


async def test_refresh_keeps_members_and_restarts_their_sessions(h: Any) -> None:
    a, b = await h.stable(2)
    await move(h, 7 * DAY_MS)
    assert h.group().state is GroupState.STABLE and list(h.group().members) == [a, b]
    await h.advance(SESSION_MS - 1)
    assert list(h.group().members) == [a, b]
    assert h.heartbeat(a, 1) is ErrorCode.NONE
    await h.advance(1)
    assert list(h.group().members) == [a]


async def test_clock_move_without_refresh_expires_members(h: Any) -> None:
    await h.stable(2)
    await h.advance(DAY_MS)
    assert h.group().state is GroupState.EMPTY


async def test_heartbeat_during_refresh_keeps_the_member(h: Any) -> None:
    (a,) = await h.stable(1)
    h.coordinator.refresh_members(h.clock.now_ms() + DAY_MS)
    await h.advance(1000)
    assert h.heartbeat(a, 1) is ErrorCode.NONE
    await h.advance(DAY_MS - 1000)
    h.coordinator.refreshed()
    assert list(h.group().members) == [a]
    await h.advance(1000)
    assert h.heartbeat(a, 1) is ErrorCode.NONE  # after the refresh, timeouts apply as usual
    await h.advance(SESSION_MS - 1)
    assert list(h.group().members) == [a]
    await h.advance(1)
    assert h.group().state is GroupState.EMPTY


async def test_refresh_during_a_rebalance_waits_for_joining_members(h: Any, soon: Any, settle: Any) -> None:
    a, b = await h.stable(2)
    join = h.join(b, protocols=[("range", b"changed")])
    await settle()
    assert h.group().state is GroupState.PREPARING_REBALANCE
    await move(h, DAY_MS)
    assert not join.done() and list(h.group().members) == [a, b]
    again = h.join(a)
    assert (await soon(join)).generation_id == (await soon(again)).generation_id == 2


async def test_rebalance_times_out_after_the_refresh(h: Any, soon: Any, settle: Any) -> None:
    a, b = await h.stable(2)
    join = h.join(b, protocols=[("range", b"changed")])
    await settle()
    await move(h, DAY_MS)
    for _ in range(REBALANCE_MS // 5000):
        assert not join.done()
        h.heartbeat(a, 1)
        await h.advance(5000)
    assert [member.member_id for member in (await soon(join)).members] == [b]


async def test_refresh_keeps_members_that_have_to_sync(h: Any, soon: Any, settle: Any) -> None:
    joins = [h.join(rebalance_timeout_ms=20_000), h.join(rebalance_timeout_ms=20_000)]
    await settle()
    await h.advance(3000)
    await h.advance(3000)
    a, b = [(await soon(join)).member_id for join in joins]
    assert h.group().state is GroupState.COMPLETING_REBALANCE
    await move(h, DAY_MS)
    assert h.group().state is GroupState.COMPLETING_REBALANCE and list(h.group().members) == [a, b]
    late = h.sync(a, 1, assignments=[(a, b"A"), (b, b"B")])
    assert (await soon(late)).assignment == b"A"


async def test_refresh_keeps_a_pending_member_id(h: Any, soon: Any) -> None:
    refused = await soon(h.join(requires_member_id=True))
    assert refused.error is ErrorCode.MEMBER_ID_REQUIRED
    await move(h, DAY_MS)
    join = h.join(refused.member_id, requires_member_id=True)
    await h.advance(3000)
    await h.advance(3000)
    assert (await soon(join)).generation_id == 1


async def test_refresh_does_not_delay_the_first_rebalance(h: Any, soon: Any) -> None:
    """The initial delay waits for members and removes none."""
    join = h.join()
    await h.advance(0)
    await move(h, 6000)
    assert (await soon(join)).generation_id == 1
