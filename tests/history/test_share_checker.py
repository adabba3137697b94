"""The checker of share groups: random clean histories pass, and planted faults are found."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_testing.history import facts
from ottla_testing.history.checker import check_events
from ottla_testing.history.facts import Report
from ottla_testing.history.history import BadHistory, Event
from ottla_testing.history.log_model import Sender
from ottla_testing.history.share_model import LIMIT, LOCK_S, ShareModel, Sharer
from ottla_testing.history.shares import ACCEPT, GAP, NOT_OWNED, OLD_SESSION, REJECT, RELEASE, RENEW, configs_of

PLACES = ("a-0", "b-0")


def checked(events: list[Event]) -> Report:
    return check_events((line, {"at": line / 1000, **event}) for line, event in enumerate(events, 1))


# -- forged histories: each planted fault is the smallest one that breaks a rule


class Scene:
    """Four records and two members."""

    def __init__(self) -> None:
        self.model = ShareModel()
        sender = Sender(self.model, "sender")
        for _ in range(4):
            sender.send("a-0")
        self.one, self.other = Sharer(self.model, "one"), Sharer(self.model, "other")

    def all_of(self, member: Sharer, kind: int) -> dict[tuple[str, int], int]:
        return dict.fromkeys(member.held, kind)

    def end(self) -> list[Event]:
        self.model.drain("a-0")
        return self.model.finish()


def no_fault(scene: Scene) -> None:
    """Every way in which a record changes hands without a fault."""
    scene.one.fetch("a-0", 2)
    scene.one.acknowledge({("a-0", 0): RENEW, ("a-0", 1): RELEASE})
    scene.other.fetch("a-0", 1)
    scene.one.acknowledge({("a-0", 0): ACCEPT})
    scene.model.wait(LOCK_S)
    scene.other.acknowledge({("a-0", 1): ACCEPT})  # refused
    scene.one.fetch("a-0", 2)
    scene.one.die()
    scene.other.fetch("a-0", 2, "unseen")
    scene.other.fetch("a-0", 3)
    scene.model.crash()
    scene.other.acknowledge(scene.all_of(scene.other, ACCEPT))


def held_twice(scene: Scene) -> None:
    scene.one.fetch("a-0", 1)
    scene.model.shared["a-0", 0].owner = ""
    scene.other.fetch("a-0", 1)
    scene.one.fetch("a-0", 1)  # its session is still open


def held_twice_after_an_early_end_of_the_lock(scene: Scene) -> None:
    scene.one.fetch("a-0", 1)
    scene.model.wait(LOCK_S / 2)
    scene.model.shared["a-0", 0].until = scene.model.now
    scene.other.fetch("a-0", 1)
    scene.one.fetch("a-0", 1)


def held_twice_after_a_lost_renewal(scene: Scene) -> None:
    scene.one.fetch("a-0", 1)
    scene.model.wait(LOCK_S * 3 / 4)
    scene.one.acknowledge({("a-0", 0): RENEW})
    scene.model.wait(LOCK_S / 2)
    scene.model.shared["a-0", 0].owner = ""
    scene.other.fetch("a-0", 1)
    scene.one.fetch("a-0", 1)


def acked_twice(scene: Scene) -> None:
    """Two members fetch and acknowledge at the same time, so that the order is not known."""
    model = scene.model
    scene.one.fetch("a-0", 1)
    model.shared["a-0", 0].owner = ""
    scene.other.fetch("a-0", 1)
    for member in (scene.one, scene.other):
        model.note(member.process, "invoke", "share_ack", **member.known, acks={"a-0": [[0, ACCEPT]]})
    for member in (scene.one, scene.other):
        model.note(member.process, "ok", "share_ack", partitions={"a-0": None})
        member.held = []
    model.shared["a-0", 0].owner, model.shared["a-0", 0].is_done = "", True


def redelivered(scene: Scene) -> None:
    scene.one.fetch("a-0", 1)
    scene.one.acknowledge({("a-0", 0): ACCEPT})
    scene.model.shared["a-0", 0].is_done = False
    scene.other.fetch("a-0", 1)


def redelivered_after_a_crash(scene: Scene) -> None:
    scene.one.fetch("a-0", 1)
    scene.one.acknowledge({("a-0", 0): REJECT})
    scene.model.crash()
    scene.model.shared["a-0", 0].is_done = False


def stolen(scene: Scene) -> None:
    """An acknowledgement after the end of the lock is not refused, although another member has the record."""
    scene.one.fetch("a-0", 1)
    scene.model.wait(LOCK_S)
    scene.other.fetch("a-0", 1)
    one = scene.model.shared["a-0", 0]
    one.owner = scene.one.session
    scene.one.acknowledge({("a-0", 0): RELEASE})
    one.owner = scene.other.session
    scene.other.fetch("a-0", 1)


def wrongly_refused(scene: Scene) -> None:
    scene.one.fetch("a-0", 2)
    scene.model.shared["a-0", 1].owner = "another"
    scene.one.acknowledge({("a-0", 0): ACCEPT, ("a-0", 1): ACCEPT})
    scene.model.shared["a-0", 1].owner = ""


def beyond_limit(scene: Scene) -> None:
    for _ in range(LIMIT + 1):
        scene.one.fetch("a-0", 1)
        scene.one.acknowledge({("a-0", 0): RELEASE})
        scene.model.shared["a-0", 0].is_done = False


def low_count(scene: Scene) -> None:
    """A session is open all the time, so that the group cannot have lost its state."""
    scene.one.fetch("a-0", 1)
    scene.model.wait(LOCK_S)
    scene.model.shared["a-0", 0].count = 0
    scene.other.fetch("a-0", 1)
    scene.one.fetch("b-0", 1)


def low_count_after_a_crash(scene: Scene) -> None:
    """The release was acknowledged, so its count was stored."""
    scene.one.fetch("a-0", 1)
    scene.one.acknowledge({("a-0", 0): RELEASE})
    scene.model.shared["a-0", 0].stored = 0
    scene.model.crash()
    scene.other.renew_session()
    scene.other.fetch("a-0", 1)


def high_count(scene: Scene) -> None:
    scene.model.state(("a-0", 0)).count = 1
    scene.one.fetch("a-0", 1)


def skipped(scene: Scene) -> None:
    """Never delivered."""
    scene.model.state(("a-0", 1)).is_done = True


def dropped_after_a_release(scene: Scene) -> None:
    scene.one.fetch("a-0", 1)
    scene.one.acknowledge({("a-0", 0): RELEASE})
    scene.model.shared["a-0", 0].is_done = True


def dropped_after_a_lock(scene: Scene) -> None:
    scene.one.fetch("a-0", 1)
    scene.model.wait(LOCK_S)
    scene.model.shared["a-0", 0].is_done = True


def another_value(scene: Scene) -> None:
    scene.one.fetch("a-0", 1)
    scene.model.events[-1]["records"]["a-0"][0][1] = 99


PLANTS: list[tuple[Callable[[Scene], None], str]] = [
    (held_twice, facts.HELD_TWICE),
    (held_twice_after_an_early_end_of_the_lock, facts.HELD_TWICE),
    (held_twice_after_a_lost_renewal, facts.HELD_TWICE),
    (acked_twice, facts.ACKED_TWICE),
    (redelivered, facts.REDELIVERED),
    (redelivered_after_a_crash, facts.REDELIVERED),
    (stolen, facts.STOLEN),
    (wrongly_refused, facts.WRONGLY_REFUSED),
    (beyond_limit, facts.BEYOND_LIMIT),
    (low_count, facts.LOW_COUNT),
    (low_count_after_a_crash, facts.LOW_COUNT),
    (high_count, facts.HIGH_COUNT),
    (skipped, facts.UNSHARED),
    (dropped_after_a_release, facts.UNSHARED),
    (dropped_after_a_lock, facts.UNSHARED),
    (another_value, facts.PHANTOM),
]


FOLLOWS = {facts.ACKED_TWICE: facts.HELD_TWICE, facts.REDELIVERED: facts.ACKED_TWICE}  # what such a fault leads to


def test_each_kind_is_planted() -> None:
    assert {kind for _, kind in PLANTS} == {*facts.SHARE_KINDS, facts.PHANTOM}


def test_records_that_change_hands_are_clean() -> None:
    scene = Scene()
    no_fault(scene)
    report = checked(scene.end())
    assert not report.kinds, report
    assert report.counts["records acknowledged: refused"] == 1, report.counts


@pytest.mark.parametrize(("plant", "kind"), PLANTS, ids=[plant.__name__ for plant, _ in PLANTS])
def test_planted_fault_is_found(plant: Callable[[Scene], None], kind: str) -> None:
    scene = Scene()
    plant(scene)
    report = checked(scene.end())
    assert kind in report.kinds, report
    assert set(report.kinds) <= {kind, FOLLOWS.get(kind)}, report


def test_acknowledgement_of_a_record_that_was_not_delivered_is_no_history() -> None:
    scene = Scene()
    scene.one.fetch("a-0", 1)
    scene.one.acknowledge({("a-0", 1): ACCEPT})
    with pytest.raises(BadHistory, match="did not get"):
        checked(scene.end())


# -- random histories

ACTIONS = (
    *("send", "send", "fetch", "fetch", "fetch", "unseen", "acknowledge", "acknowledge", "acknowledge"),
    *("some", "unknown", "wait", "die", "crash", "close", "move"),
)
STEPS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 1 << 16)), max_size=120)


class Run:
    """A sender, and a group of three members."""

    def __init__(self) -> None:
        self.model = ShareModel()
        self.sender = Sender(self.model, "sender")
        self.lives = 0
        self.members = [self.member() for _ in range(3)]

    def member(self) -> Sharer:
        self.lives += 1
        return Sharer(self.model, f"member {self.lives}")

    def step(self, action: str, choose: random.Random) -> None:
        at = choose.randrange(len(self.members))
        member = self.members[at]
        if action == "send":
            self.sender.send(choose.choice(PLACES))
        elif action in ("fetch", "unseen"):
            outcome = "ok" if action == "fetch" else choose.choice(("unseen", "lost"))
            member.fetch(choose.choice(PLACES), choose.randrange(1, 5), outcome)
        elif action in ("acknowledge", "some", "unknown"):
            held = member.held if action != "some" else choose.sample(member.held, len(member.held) // 2)
            kinds = {where: choose.choice((GAP, ACCEPT, ACCEPT, RELEASE, REJECT, RENEW)) for where in held}
            if kinds:
                member.acknowledge(kinds, choose.choice(("done", "undone")) if action == "unknown" else "ok")
        elif action == "wait":
            self.model.wait(choose.choice((0.1, 0.3, LOCK_S)))
        elif action in ("crash", "move"):
            getattr(self.model, action)()
        elif action == "close":
            self.model.close(member.session)
            member.renew_session()
        else:
            member.die()
            self.members[at] = self.member()


def history(steps: list[tuple[str, int]]) -> list[Event]:
    run = Run()
    for action, seed in steps:
        run.step(action, random.Random(seed))
    run.model.drain(*PLACES)
    return run.model.finish()


@given(STEPS)
def test_random_clean_histories_pass(steps: list[tuple[str, int]]) -> None:
    report = checked(history(steps))
    assert not report.kinds, report


def deliver_again(events: list[Event], choose: random.Random) -> str | None:
    """A record is delivered once more after its acknowledgement."""
    done: dict[tuple[str, int], int] = {}
    group = "sharers"
    under_way: dict[str, Event] = {}
    for number, event in enumerate(events):
        if event["op"] == "share_ack" and event["type"] == "invoke":
            under_way[event["process"]] = event
        elif event["op"] == "share_ack" and event["type"] == "ok":
            for partition, pairs in under_way[event["process"]]["acks"].items():
                if event["partitions"].get(partition, NOT_OWNED) is None:
                    done |= {(partition, offset): number for offset, kind in pairs if kind in (ACCEPT, REJECT)}
    values = {
        (partition, record[0]): record
        for event in events
        if event["op"] == "share_fetch" and event["type"] == "ok"
        for partition, records in event["records"].items()
        for record in records
    }
    if not done:
        return None
    (partition, offset), number = choose.choice(sorted(done.items()))
    _, value, count = values[partition, offset]
    late = {"process": "late", "at": events[number]["at"]}
    share = next(event["share"] for event in events if "share" in event)
    events[number + 1 : number + 1] = [
        {**late, "type": "ok", "op": "start", "group": group, "share": share},
        {**late, "type": "invoke", "op": "share_fetch", "group": group, "session": "late/1"},
        {**late, "type": "ok", "op": "share_fetch", "records": {partition: [[offset, value, count + 1]]}},
    ]
    return facts.REDELIVERED


def lose(events: list[Event], choose: random.Random) -> str | None:
    """A record is delivered to no member."""
    records = {
        (partition, pair[0])
        for event in events
        if event["op"] == "read" and event["isolation"] == "read_committed"
        for partition, pairs in event["records"].items()
        for pair in pairs
    }
    may_be_unseen = sum(event["op"] == "share_fetch" and event["type"] == "info" for event in events)
    may_be_unseen += sum(event["op"] == "crash" for event in events)
    if not records or may_be_unseen >= LIMIT:
        return None
    partition, offset = choose.choice(sorted(records))
    for event in events:
        where = {"share_fetch": "records", "share_ack": "acks"}.get(event["op"], "")
        if partition in event.get(where, {}):
            event[where][partition] = [pair for pair in event[where][partition] if pair[0] != offset]
    return facts.UNSHARED


def raise_count(events: list[Event], choose: random.Random) -> str | None:
    found = [
        record
        for event in events
        if event["op"] == "share_fetch" and event["type"] == "ok"
        for records in event["records"].values()
        for record in records
    ]
    if not found:
        return None
    choose.choice(found)[2] = LIMIT + 1
    return facts.BEYOND_LIMIT


CHANGES = (deliver_again, lose, raise_count)


@given(STEPS, st.sampled_from(CHANGES), st.integers(0, 1 << 16))
def test_random_history_with_one_change_is_found(
    steps: list[tuple[str, int]], change: Callable[[list[Event], random.Random], str | None], seed: int
) -> None:
    events = deepcopy(history(steps))
    kind = change(events, random.Random(seed))
    if kind is not None:
        assert kind in checked(events).kinds


def test_random_histories_are_rich() -> None:
    """Otherwise the tests above could pass with nothing to find."""
    totals = [0] * len(CHANGES)
    counts: dict[str, int] = {}
    for seed in range(60):
        choose = random.Random(seed)
        steps = [(choose.choice(ACTIONS), choose.randrange(1 << 16)) for _ in range(choose.choice((15, 150)))]
        events = history(steps)
        for name, count in checked(events).counts.items():
            counts[name] = counts.get(name, 0) + count
        for number, change in enumerate(CHANGES):
            totals[number] += change(deepcopy(events), choose) is not None
    assert all(total >= 5 for total in totals), totals
    names = ("records acknowledged: ok", "records acknowledged: refused", "records delivered again", "crashes")
    assert all(counts[name] > 10 for name in (*names, "share fetches: info")), counts


@pytest.mark.parametrize(("error", "found"), [(OLD_SESSION, set()), (None, {facts.REDELIVERED})])
def test_records_of_an_ended_session_are_delivered_late(error: str | None, found: set[str]) -> None:
    """A client that fetches unseen delivers a record after another member has acknowledged it; only if its own
    acknowledgement is refused for the session, it had fetched it before."""
    scene = Scene()
    scene.one.fetch("a-0", 1)
    scene.one.acknowledge(scene.all_of(scene.one, ACCEPT))
    model, of_group = scene.model, {"group": scene.model.group, "session": None}
    offset, value = next(iter(model.readable("a-0", 0, False)))
    configs = configs_of(LIMIT, 4, LOCK_S, "read_uncommitted")
    model.note("late", "ok", "start", client="confluent", group=model.group, share=configs)
    model.note("late", "invoke", "share_fetch", **of_group)
    model.note("late", "ok", "share_fetch", records={"a-0": [[offset, value, 1]]})
    model.note("late", "invoke", "share_ack", **of_group, acks={"a-0": [[offset, ACCEPT]]})
    model.note("late", "ok", "share_ack", partitions={"a-0": error})
    assert set(checked(scene.end()).kinds) == found
