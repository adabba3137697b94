"""Random lives of groups of the consumer protocol, with their laws checked after each event."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.groups.common_state import GroupState
from ottla.broker.groups.consumer.events import Settings
from ottla_testing.broker.consumer_group_world import Client, Topics, World, topic_id

KINDS = "beat beat beat beat beat join join full lost change leave pause crash timer topic search fail time".split()
happenings = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 6), st.integers(0, 7)), max_size=80)
SUBSCRIPTIONS = [frozenset(), frozenset("a"), frozenset("ab"), frozenset("abc"), frozenset("c")]
REGEXES = [None, None, None, "[ab]", "a|c", "", ".*"]


def live(world: World, clients: list[Client], happening: tuple[str, int, int]) -> None:
    kind, who, n = happening
    client = clients[who % len(clients)]
    if kind == "beat":
        world.heartbeat(client)
    elif kind == "join":
        if not client.is_joined:
            client.topics, client.regex = SUBSCRIPTIONS[n % 5], REGEXES[n % 7]
            client.assignor = [None, "range", "uniform"][n % 3]
        world.heartbeat(client)
    elif kind == "full":
        world.heartbeat(client, full=True)
    elif kind == "lost":
        world.heartbeat(client, loses_response=True)
    elif kind == "change":
        client.topics, client.regex = SUBSCRIPTIONS[n % 5], REGEXES[n % 7] or ""
        world.heartbeat(client, full=True)
    elif kind == "leave":
        world.leave(client)
    elif kind == "pause" and client.instance_id is not None:
        world.leave_for_a_while(client)
    elif kind == "crash":  # a new process: it has a new member id
        world.clients_made += 1
        clients[clients.index(client)] = Client(
            f"{client.member_id[:2]}{world.clients_made}", client.topics, client.instance_id, client.regex
        )
    elif kind == "timer" and world.timers:
        world.fire()
    elif kind == "topic":
        world.topics.set("abc"[n % 3], [None, 1, 3, 5, 8, 2, 3, 4][n])
    elif kind == "search":
        world.resolve()
    elif kind == "fail":
        world.fail = not world.fail
    elif kind == "time":
        world.now_ms += n * 5_000


def subscribed(world: World, client: Client) -> set[bytes]:
    names = set(client.topics)
    if client.regex:
        names |= world.group.resolved[client.regex].topics
    return {topic_id(name) for name in names if name in world.topics.counts}


@given(happenings, st.sampled_from([0, 1000]), st.booleans())
@settings(deadline=None)
def test_random_lives_keep_the_laws_and_end_in_the_target(
    story: list[tuple[Any, ...]], interval_ms: int, by_hash: bool
) -> None:
    world = World(Topics(a=3, b=4, c=1), Settings(assignment_interval_ms=interval_ms, by_hash=by_hash))
    clients = [
        Client("m0", frozenset("a")),
        Client("m1", frozenset("ab")),
        Client("m2", frozenset("abc")),
        Client("m3", frozenset("ab"), instance_id="i3"),
        Client("m4", frozenset("a"), instance_id="i4"),
    ]
    for happening in story:
        live(world, clients, happening)
    world.fail = False
    # In the end all sessions of lost members expire, and the others come to rest.
    world.now_ms += 2_000_000
    for _ in range(3):
        world.topics.set("d", None)
        for client in clients:
            world.heartbeat(client)
        world.resolve()
        world.now_ms += 20_000
        # As in Kafka, a static member whose first response was lost waits for the end of its own session.
        joined = {client.member_id for client in clients if client.is_joined}
        for name in set(world.group.members) - joined:
            world.feed(next(timer for timer in world.timers if timer.member_id == name))
    for _ in range(6):
        world.now_ms += 20_000
        world.settle(clients)
    group = world.group
    assert group.state is GroupState.STABLE
    assert set(group.members) == {client.member_id for client in clients}
    for client in clients:
        target = group.target.get(client.member_id, {})
        assert client.partitions() == {(topic, index) for topic, indexes in target.items() for index in indexes}
        assert set(target) <= subscribed(world, client)
    wanted = {topic for client in clients for topic in subscribed(world, client)}
    owned = {place for client in clients for place in client.partitions()}
    assert owned == {
        (topic_id(name), index)
        for name, count in world.topics.counts.items()
        if topic_id(name) in wanted
        for index in range(count)
    }, "every partition of a subscribed topic has an owner"
    restored = world.restored()
    assert restored.members == group.members
    assert (restored.epoch, restored.assignment_epoch, restored.target) == (
        group.epoch,
        group.assignment_epoch,
        group.target,
    )
    assert (restored.subscribers, restored.owners, restored.state) == (group.subscribers, group.owners, group.state)
