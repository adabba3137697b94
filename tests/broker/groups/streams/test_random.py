"""Random lives of streams groups, with their laws checked after each event."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.groups.common_state import GroupState
from ottla.broker.groups.streams.events import DelayOver, Settings
from ottla.broker.groups.streams.state import Endpoint, each
from ottla_testing.broker.streams_group_world import Client, World

KINDS = "beat beat beat beat beat join join lost leave pause crash timer topic fail time restart standby".split()
happenings = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 6), st.integers(0, 7)), max_size=80)


def live(world: World, clients: list[Client], happening: tuple[str, int, int], made: list[int]) -> None:
    kind, who, n = happening
    client = clients[who % len(clients)]
    if kind in ("beat", "join"):
        world.heartbeat(client)
    elif kind == "lost":
        world.heartbeat(client, loses_response=True)
    elif kind == "leave":
        world.leave(client)
    elif kind == "pause" and client.instance_id is not None:
        world.leave_for_a_while(client)
    elif kind == "crash":  # a new process: it has a new member id
        made.append(len(made))
        name = f"{client.member_id[:2]}.{len(made)}"
        clients[clients.index(client)] = Client(name, client.process_id, client.instance_id, endpoint=client.endpoint)
    elif kind == "timer" and world.timers:
        world.fire()
    elif kind == "topic":
        world.set("in rep log in rep log in".split()[n % 7], [None, 1, 3, 3, 3, 2, 3, 4][n])
    elif kind == "fail":
        world.fail = not world.fail
    elif kind == "time":
        world.now_ms += n * 5_000
    elif kind == "restart":
        world.restart()
    elif kind == "standby":
        world.settings = Settings(
            standby_replicas=n % 3,
            assignment_interval_ms=world.settings.assignment_interval_ms,
            initial_delay_ms=world.settings.initial_delay_ms,
            has_static_members=world.settings.has_static_members,
        )


@given(happenings, st.sampled_from([0, 1000]), st.sampled_from([0, 3000]), st.booleans())
@settings(deadline=None)
def test_random_lives_keep_the_laws_and_end_in_the_target(
    story: list[tuple[Any, ...]], interval_ms: int, delay_ms: int, static: bool
) -> None:
    world = World(
        Settings(
            assignment_interval_ms=interval_ms,
            initial_delay_ms=delay_ms,
            standby_replicas=1,
            has_static_members=static,
        )
    )
    clients = [
        Client("m0", "p"),
        Client("m1", "p"),
        Client("m2", "q", endpoint=Endpoint("h", 1)),
        Client("m3", "r", instance_id="i3" if static else None),
        Client("m4", "q", instance_id="i4" if static else None),
    ]
    made: list[int] = []
    for happening in story:
        live(world, clients, happening, made)
    world.fail = False
    # In the end all sessions of lost members expire, and the others come to rest.
    world.now_ms += 2_000_000
    for name in ("in", "rep", "log"):
        world.set(name, 3)
    for timer in list(world.timers):
        if timer in world.timers:
            world.timers.pop(timer)
            world.feed(timer)
    for _ in range(6):
        for client in clients:
            world.heartbeat(client)
        world.now_ms += 20_000
        # As in Kafka, a static member whose first response was lost waits for the end of its own session.
        joined = {client.member_id for client in clients if client.is_joined}
        for name in set(world.group.members) - joined:
            world.feed(next(timer for timer in world.timers if getattr(timer, "member_id", "") == name))
        for timer in [timer for timer in world.timers if isinstance(timer, DelayOver)]:
            world.timers.pop(timer)
            world.feed(timer)
    for _ in range(6):
        world.now_ms += 20_000
        world.settle(clients)
    group = world.group
    assert group.state is GroupState.STABLE
    assert set(group.members) == {client.member_id for client in clients}
    for client in clients:
        assert client.tasks == group.target[client.member_id]
    tasks = [task for client in clients for task in each(client.tasks.active)]
    assert sorted(tasks) == [(part, index) for part in "01" for index in range(3)], "each task has one member"
    standbys = sorted(task for client in clients for task in each(client.tasks.standby))
    replicas = min(world.settings.standby_replicas, 2)  # three processes
    assert standbys == [("1", index) for index in range(3) for _ in range(replicas)]
