"""Random events of a group, with invariants checked after each."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.groups.classic.machine import advance
from ottla.broker.groups.classic.state import (
    CancelTimer,
    Commit,
    Delete,
    Group,
    GroupSettings,
    GroupState,
    Heartbeat,
    Join,
    JoinRequest,
    Leave,
    PendingExpired,
    Persist,
    Persisted,
    PersistFailed,
    RebalanceDue,
    Reply,
    SessionExpired,
    StartTimer,
    Sync,
    SyncDue,
)
from ottla.protocol.errors import ErrorCode

PROTOCOLS = [(("a", b"1"), ("b", b"1")), (("b", b"2"), ("a", b"2")), (("b", b"3"),)]

KINDS = "join join join rejoin rejoin sync sync sync heartbeat leave commit timer timer delete".split()

# An event: its kind, its member (an index into the known ids, or an unknown one), and details.
happenings = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, 5),
        st.sampled_from([None, None, "i", "j"]),
        st.integers(0, 2),
        st.booleans(),
        st.integers(0, 9),
    ),
    max_size=60,
)


class World:
    """Feeds a group and tracks requests, responses and timers, like the coordinator."""

    def __init__(self) -> None:
        self.group = Group("g")
        self.settings = GroupSettings(max_size=4)
        self.now_ms = 0
        self.tokens = 0
        self.open: set[int] = set()
        self.timers: dict[Any, int] = {}
        self.ids: list[str] = []
        self.fail = False

    def send(self, make: Any) -> None:
        self.tokens += 1
        self.open.add(self.tokens)
        self.feed(make(self.tokens))

    def feed(self, event: Any) -> None:
        events = [event]
        while events:
            before = self.group
            self.group, effects = advance(before, events.pop(0), now_ms=self.now_ms, settings=self.settings)
            for effect in effects:
                if isinstance(effect, Reply):
                    assert effect.token in self.open, "second response, or response without request"
                    self.open.remove(effect.token)
                    name = getattr(effect.response, "member_id", "")
                    if name and name not in self.ids:
                        self.ids.append(name)
                elif isinstance(effect, StartTimer):
                    self.timers[effect.timer] = self.now_ms + effect.delay_ms
                elif isinstance(effect, CancelTimer):
                    self.timers.pop(effect.timer, None)
                elif isinstance(effect, Persist):
                    failed = PersistFailed(effect, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                    events.append(failed if self.fail else Persisted(effect))
            self.check(before)

    def check(self, before: Group) -> None:
        group = self.group
        assert 0 <= group.generation_id - before.generation_id <= 1, "generations increase by one"
        parked = set(group.parked_tokens)
        assert len(parked) == len(group.parked_tokens)
        assert parked <= self.open
        if group.members:
            assert group.leader in group.members, "the leader is a member"
            assert group.state not in (GroupState.EMPTY, GroupState.DEAD)
        instances = [one.instance_id for one in group.members.values() if one.instance_id is not None]
        assert len(instances) == len(set(instances))
        assert all(name == one.member_id for name, one in group.members.items())
        assert not group.pending & set(group.members)
        assert group.pending_sync <= set(group.members)
        for one in group.members.values():
            assert one.join_token is None or group.state is GroupState.PREPARING_REBALANCE
            assert one.sync_token is None or group.state is GroupState.COMPLETING_REBALANCE
            if one.join_token is None and one.sync_token is None:
                assert SessionExpired(one.member_id) in self.timers, "a member without a session"
        for name in group.pending:
            assert PendingExpired(name) in self.timers
        if group.state is GroupState.PREPARING_REBALANCE:
            assert RebalanceDue() in self.timers
        if group.pending_sync:
            assert SyncDue() in self.timers
        if group.members and group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            assert all(group.protocol_name in dict(one.protocols) for one in group.members.values()), (
                "all members support the protocol"
            )

    def let_a_timer_fire(self, pick: int = 0) -> None:
        if self.timers:
            timer, due_ms = sorted(self.timers.items(), key=lambda item: item[1])[0]
            self.now_ms = max(self.now_ms, due_ms)
            del self.timers[timer]
            self.feed(timer)

    def happen(self, what: str, who: int, instance: str | None, protocols: int, flag: bool, n: int) -> None:
        member_id = self.ids[who % len(self.ids)] if self.ids and who else "stranger"
        known = self.group.members.get(member_id)
        if known is not None:
            instance = known.instance_id
        generation = self.group.generation_id - (1 if n == 0 else 0)
        self.fail = n == 9
        if what in ("join", "rejoin"):
            name = member_id if what == "rejoin" else ""
            self.send(
                lambda token: Join(
                    token,
                    f"m{token}",
                    JoinRequest(
                        name,
                        instance,
                        "c",
                        "/h",
                        session_timeout_ms=6000 + 1000 * n,
                        rebalance_timeout_ms=20_000 * protocols,
                        protocol_type="consumer",
                        protocols=PROTOCOLS[protocols],
                        requires_member_id=flag,
                        may_skip_assignment=not flag,
                    ),
                )
            )
        elif what == "sync":
            given = tuple((name, name.encode()) for name in self.ids)
            self.send(lambda token: Sync(token, member_id, instance, generation, assignments=given))
        elif what == "heartbeat":
            self.send(lambda token: Heartbeat(token, member_id, instance, generation))
        elif what == "leave":
            self.send(lambda token: Leave(token, ((member_id if flag else "", instance), (member_id, None))))
        elif what == "commit":
            self.send(lambda token: Commit(token, member_id, instance, generation, flag))
        elif what == "delete" and not flag and self.group.state is not GroupState.EMPTY:
            self.send(Delete)
        else:
            self.let_a_timer_fire()


@given(happenings)
def test_random_events_keep_the_group_invariants(story: list[tuple[Any, ...]]) -> None:
    world = World()
    for happening in story:
        world.happen(*happening)
        assert world.open == set(world.group.parked_tokens), "only delayed requests lack a response"
    world.fail = False
    for _ in range(2000):
        if not world.timers:
            break
        world.let_a_timer_fire()
    assert not world.timers, "timers never end"
    assert not world.open, "a delayed request has no response"
    assert world.group.state in (GroupState.EMPTY, GroupState.DEAD)
    assert not world.group.members
    assert not world.group.pending
