"""Timers whose time has passed fire before the next request is handled, even if the event loop had no time for them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.clock import Clock, SystemClock
from ottla.broker.network import server
from ottla.broker.virtual_clock import VirtualClock
from ottla.protocol.messages.groups.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.groups.join_group import JoinGroupRequest
from ottla_testing.broker.harness import Broker, Client, options

SESSION_MS = 60_000


class Machine:
    """The machine's clocks, moved by a test; the event loop's own timers are unaffected."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def clock(self, kind: str) -> Clock:
        loop = asyncio.get_running_loop()
        if kind == "virtual":
            return VirtualClock(loop, wall=lambda: self.ms)
        return SystemClock(loop, wall=lambda: self.ms, monotonic=lambda: self.ms / 1000)


async def delete_group(client: Client) -> int:
    (result,) = (await client.call(DeleteGroupsRequest(groups_names=["g"]), 1)).results
    return result.error_code


@pytest.mark.parametrize("kind", ["virtual", "system"])
async def test_group_member_whose_session_expired_is_gone_for_the_next_request(kind: str, tmp_path: Path) -> None:
    machine = Machine()
    overrides = {"group.initial.rebalance.delay.ms": "0"}
    loop = asyncio.get_running_loop()
    clock: Any = machine.clock(kind)
    broker = Broker(await server.start(options([tmp_path / "data"], overrides), loop, clock), clock)
    try:
        client = await broker.client()
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        join = JoinGroupRequest(
            group_id="g", session_timeout_ms=SESSION_MS, member_id="", protocol_type="consumer", protocols=[protocol]
        )
        assert (await client.call(join, 0)).error_code == 0
        machine.ms += SESSION_MS - 1
        assert await delete_group(client) == 68  # NON_EMPTY_GROUP
        machine.ms += 1
        assert await delete_group(client) == 0
    finally:
        await broker.stop()


async def test_system_clock_fires_overdue_timers_in_order_and_leaves_the_others() -> None:
    machine = Machine()
    clock = machine.clock("system")
    fired: list[str] = []
    clock.call_at(machine.ms + 20, fired.append, "later")
    cancelled = clock.call_at(machine.ms + 5, fired.append, "cancelled")
    clock.call_at(machine.ms + 10, fired.append, "second")
    clock.call_at(machine.ms + 5, lambda: clock.call_at(machine.ms, fired.append, "set up by a timer"))
    clock.call_at(machine.ms + 5, fired.append, "first")
    cancelled.cancel()
    machine.ms += 10
    clock.fire_overdue()
    assert fired == ["first", "second"]
    clock.fire_overdue()
    assert fired == ["first", "second", "set up by a timer"]


async def test_system_clock_timer_that_fails_does_not_keep_others_from_firing() -> None:
    machine = Machine()
    clock = machine.clock("system")
    loop, failed, fired = asyncio.get_running_loop(), [], []
    loop.set_exception_handler(lambda _, context: failed.append(context["exception"]))
    clock.call_at(machine.ms, lambda: 1 // 0)
    clock.call_at(machine.ms, fired.append, "next")
    clock.fire_overdue()
    assert fired == ["next"] and [type(error) for error in failed] == [ZeroDivisionError]
