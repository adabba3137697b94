"""Random histories of a small model of a log: unchanged they are clean, and each single change is found."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from ottla_testing.history import facts
from ottla_testing.history.checker import check_events
from ottla_testing.history.facts import Report
from ottla_testing.history.history import Event
from ottla_testing.history.log_model import ALL, COMMITTED_ONLY, Model, Receiver, Sender

PARTITIONS = ("a-0", "a-1", "b-0")
ACTIONS = (
    *("send", "late send", "hear", "begin", "transactional send", "transactional send", "end", "process"),
    *("poll", "poll", "poll", "commit", "rebalance", "seek", "crash a consumer", "crash a producer", "fault"),
)
Step = tuple[str, int]  # an action and the seed of what it chooses
STEPS = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 1 << 16)), max_size=150)


def checked(events: list[Event]) -> Report:
    return check_events((line, {"at": line / 1000, **event}) for line, event in enumerate(events, 1))


class Run:
    """Two plain producers, two transactional ones, a group of two, a loop, and a reader without group."""

    def __init__(self) -> None:
        self.model = Model()
        self.lives = 0
        self.plain = [self.sender(None), self.sender(None)]
        self.transactional = [self.sender("id 0"), self.sender("id 1")]
        self.members = [self.member("group"), self.member("all", ALL)]
        self.members[0].assign(*PARTITIONS)
        self.members[1].assign(*PARTITIONS)

    def sender(self, transactional_id: str | None) -> Sender:
        self.lives += 1
        sender = Sender(self.model, f"sender {self.lives}", transactional_id)
        if transactional_id:
            sender.init()
        return sender

    def member(self, group: str, isolation: str = COMMITTED_ONLY) -> Receiver:
        self.lives += 1
        return Receiver(self.model, f"member {self.lives}", group, isolation)

    def step(self, action: str, choose: random.Random) -> None:
        outcome = choose.choice(("ok", "ok", "ok", "written", "lost"))
        if action in ("send", "late send"):
            choose.choice(self.plain).send(choose.choice(PARTITIONS), outcome, late=action == "late send")
        elif action == "hear":
            choose.choice(self.plain).hear()
        elif action in ("begin", "transactional send", "end"):
            self._transactional(action, choose)
        elif action == "process":
            self._process(choose)
        elif action == "crash a producer":
            self._crash_a_producer(choose)
        elif action == "fault":
            self.model.fault(choose.choice(("kill", "pause", "cut")))
        else:
            self._consume(action, choose)

    def _transactional(self, action: str, choose: random.Random) -> None:
        sender = choose.choice(self.transactional)
        if sender.txn is None:
            sender.begin()
        elif action == "transactional send":
            sender.send(choose.choice(PARTITIONS), late=choose.random() < 0.5)
        elif action == "end":
            outcome = choose.choice(("ok", "ok", "ok", "done", "undone"))
            sender.end(choose.choice(("commit", "commit", "abort")), outcome)
            if outcome != "ok":  # it must begin again
                self._crash_a_producer(choose, sender)

    def _process(self, choose: random.Random) -> None:
        """Runs one round of a consume-transform-produce loop as a new process."""
        loop = self.sender("loop")
        taker = Receiver(self.model, loop.process, "loop")
        taker.assign("a-0")
        records = taker.poll(3).get("a-0", [])
        loop.begin()
        for _, value in records:
            loop.send("c-0", of=value)
        loop.send_offsets("loop", dict(taker.positions))
        loop.end(choose.choice(("commit", "abort")), choose.choice(("ok", "done", "undone")))
        loop.crash()

    def _crash_a_producer(self, choose: random.Random, sender: Sender | None = None) -> None:
        lives = self.transactional if sender or choose.random() < 0.7 else self.plain
        place = lives.index(sender) if sender else choose.randrange(len(lives))
        old = lives[place]
        lives[place] = self.sender(old.transactional_id)
        if old.txn and choose.random() < 0.5:  # a zombie: it is still alive, and continues for a while
            old.send(choose.choice(PARTITIONS))
            old.end("commit")
        else:
            old.crash()

    def _consume(self, action: str, choose: random.Random) -> None:
        place = choose.randrange(len(self.members))
        member = self.members[place]
        if action == "poll":
            member.poll(choose.randrange(1, 6))
        elif action == "commit":
            member.commit(choose.choice(("ok", "ok", "fail", "done", "undone")), over=choose.random() < 0.3)
        elif action == "rebalance":
            member.revoke(*list(member.positions))
            member.assign(*PARTITIONS)
        elif action == "seek":
            partition = choose.choice(PARTITIONS)
            end = len(self.model.log(partition))
            member.seek(partition, choose.choice((None, choose.randrange(end + 1))))
        else:
            member.crash()
            self.members[place] = self.member(member.group or "", member.isolation)
            self.members[place].assign(*PARTITIONS)

    def finish(self) -> list[Event]:
        return self.model.finish()


def history(steps: list[Step]) -> list[Event]:
    run = Run()
    for action, seed in steps:
        run.step(action, random.Random(seed))
    return run.finish()


@given(STEPS)
def test_random_clean_histories_pass(steps: list[Step]) -> None:
    report = checked(history(steps))
    assert not report.kinds, report


# -- one thing changed


def events_of(events: list[Event], op: str, type: str = "ok", **fields: object) -> list[Event]:
    wanted = {"op": op, "type": type, **fields}
    return [event for event in events if all(event.get(name) == value for name, value in wanted.items())]


def committed_records(events: list[Event]) -> list[tuple[str, int, int]]:
    """Returns (partition, offset, value) of all committed records."""
    reads = events_of(events, "read", isolation=COMMITTED_ONLY)
    return [(partition, *pair) for event in reads for partition, pairs in event["records"].items() for pair in pairs]


def remove_value(events: list[Event], value: int) -> None:
    for event in events:
        for partition, pairs in event.get("records", {}).items():
            event["records"][partition] = [pair for pair in pairs if pair[1] != value]


def acknowledged(events: list[Event]) -> set[int]:
    """Returns the values that exist and were acknowledged: sent plainly, or in a transaction whose commit was `ok`."""
    committed = {event["txn"] for event in events_of(events, "commit")}
    sent = {event["value"]: event.get("txn") for event in events_of(events, "send", "invoke")}
    sent_values = {event["value"] for event in events_of(events, "send")}
    return {value for value in sent_values if sent[value] is None or sent[value] in committed}


def change_value(events: list[Event], choose: random.Random) -> str | None:
    """A record of the last read becomes another record of its partition."""
    found = committed_records(events)
    pairs = [(x, y) for x in found for y in found if x[0] == y[0] and x[1] < y[1]]
    if not pairs:
        return None
    (partition, offset, _), (_, _, other) = choose.choice(pairs)
    for event in events_of(events, "read", isolation=ALL):
        for pair in event["records"].get(partition, []):
            if pair[0] == offset:
                pair[1] = other
    return facts.TWO_VALUES


def double(events: list[Event], choose: random.Random) -> str | None:
    found = committed_records(events)
    if not found:
        return None
    partition, _, value = choose.choice(found)
    event = events_of(events, "read", isolation=COMMITTED_ONLY)[-1]
    event["records"][partition] = [[1 << 20, value]]
    return facts.DUPLICATE


def lose(events: list[Event], choose: random.Random) -> str | None:
    found = committed_records(events)
    last = {partition: value for partition, _, value in found}
    may = [value for partition, _, value in found if value in acknowledged(events) and value != last[partition]]
    if not may:
        return None
    remove_value(events, choose.choice(may))
    return facts.LOST


def lose_the_last(events: list[Event], choose: random.Random) -> str | None:
    partition_of = {e["value"]: e["partition"] for e in events_of(events, "send", "invoke")}
    last: dict[str, int] = {}
    for event in events:
        for partition, pairs in event.get("records", {}).items():
            for offset, _ in pairs:
                last[partition] = max(last.get(partition, -1), offset)
    may = [v for p, o, v in committed_records(events) if v in acknowledged(events) and last[partition_of[v]] == o]
    if not may:
        return None
    remove_value(events, choose.choice(may))
    return facts.UNSEEN


def read_an_aborted_one(events: list[Event], choose: random.Random) -> str | None:
    aborted = {event["txn"] for event in events_of(events, "abort")}
    partition_of = {e["value"]: e["partition"] for e in events_of(events, "send", "invoke") if e.get("txn") in aborted}
    may = [event for event in events_of(events, "send") if event["value"] in partition_of]
    if not may:
        return None
    event = choose.choice(may)
    read = events_of(events, "read_end", isolation=COMMITTED_ONLY)[0]
    pair = [event["offset"], event["value"]]
    records = {"process": "reader", "type": "ok", "op": "read", "isolation": COMMITTED_ONLY}
    events.insert(events.index(read), {**records, "records": {partition_of[event["value"]]: [pair]}})
    return facts.ABORTED_READ


def read_an_open_one(events: list[Event], choose: random.Random, process: str | None = None) -> str | None:
    committed = {event["txn"]: event for event in events_of(events, "commit")}
    sent = {e["value"]: e for e in events_of(events, "send", "invoke") if e.get("txn") in committed}
    may = [event for event in events_of(events, "send") if event["value"] in sent]
    if not may:
        return None
    event = choose.choice(may)
    own = sent[event["value"]]
    records = {own["partition"]: [[event["offset"], event["value"]]]}
    process = process or own["process"]
    start = {"process": process, "type": "ok", "op": "start", "isolation": COMMITTED_ONLY}
    poll = {"process": process, "type": "ok", "op": "poll", "records": records}
    place = events.index(event) + 1
    events[place:place] = [start, poll]
    return facts.OWN_READ if process == own["process"] else facts.EARLY_READ


def read_an_open_one_of_another(events: list[Event], choose: random.Random) -> str | None:
    return read_an_open_one(events, choose, "stranger")


def fail_what_is_there(events: list[Event], choose: random.Random) -> str | None:
    there = {value for _, _, value in committed_records(events)}
    may = [event for event in events_of(events, "send") if event["value"] in there]
    if not may:
        return None
    choose.choice(may)["type"] = "fail"
    return facts.FAILED_READ


def find_unsent_record(events: list[Event], choose: random.Random) -> str | None:
    reads = events_of(events, "read", isolation=COMMITTED_ONLY)
    if not reads:
        return None
    for pairs in choose.choice(reads)["records"].values():
        pairs.append([1 << 20, 1 << 40])
    return facts.PHANTOM


def skip(events: list[Event], choose: random.Random) -> str | None:
    """A consumer misses one record between two others."""
    there = {value for _, _, value in committed_records(events)}
    may = [
        (pairs, pair)
        for event in events_of(events, "poll")
        for pairs in event["records"].values()
        for pair in pairs[1:-1]
        if pair[1] in there
    ]
    if not may:
        return None
    pairs, pair = choose.choice(may)
    pairs.remove(pair)
    return facts.SKIPPED_POLL


def go_back(events: list[Event], choose: random.Random) -> str | None:
    polls = events_of(events, "poll")
    if not polls:
        return None
    event = choose.choice(polls)
    events.insert(events.index(event) + 1, deepcopy(event))
    return facts.BACKWARD_POLL


def exchange_sends(events: list[Event], choose: random.Random) -> str | None:
    """Two records of one producer are exchanged, everywhere."""
    sent = {event["value"]: event for event in events_of(events, "send", "invoke")}
    sends = [event for event in events_of(events, "send") if "txn" not in sent[event["value"]]]
    where = {event["value"]: (event["process"], sent[event["value"]]["partition"]) for event in sends}
    pairs = [
        (x, y) for x in sends for y in sends if x["offset"] < y["offset"] and where[x["value"]] == where[y["value"]]
    ]
    if not pairs:
        return None
    one, other = choose.choice(pairs)
    exchange = {one["value"]: other["value"], other["value"]: one["value"]}
    one["offset"], other["offset"] = other["offset"], one["offset"]
    for event in events:
        for found in event.get("records", {}).values():
            for pair in found:
                pair[1] = exchange.get(pair[1], pair[1])
    return facts.BACKWARD_SEND


def commit_too_much(events: list[Event], choose: random.Random) -> str | None:
    """A consumer commits one record more than it has polled; others have polled it."""
    found = committed_records(events)
    position: dict[tuple[str, str], int] = {}
    may: list[tuple[Event, str, int]] = []
    for event in events:
        for partition, pairs in event.get("records", {}).items() if event["op"] == "poll" else ():
            position[event["process"], partition] = pairs[-1][0] + 1
        if event["op"] == "assign" or event["op"] == "seek":
            for partition in event.get("partitions", [event.get("partition")]):
                position.pop((event["process"], partition), None)
        if event["op"] == "commit_offsets" and event["type"] == "invoke":
            for partition in event["offsets"]:
                at = position.get((event["process"], partition))
                beyond = [offset for p, offset, _ in found if p == partition and at is not None and offset >= at]
                may += [(event, partition, min(beyond) + 1)] if beyond else []
    if not may:
        return None
    event, partition, offset = choose.choice(may)
    event["offsets"][partition] = offset
    return facts.COMMIT_BEYOND


def begin_too_low(events: list[Event], choose: random.Random) -> str | None:
    """A consumer begins at a record before the only commit of its group."""
    found = [pair for pair in committed_records(events) if pair[0] == "a-0"]
    if not found:
        return None
    _, offset, value = choose.choice(found)
    end = events.index(events_of(events, "read_end", isolation=COMMITTED_ONLY)[0])
    own = {"process": "late", "type": "ok"}
    commit = {**own, "op": "commit_offsets", "group": "new", "offsets": {"a-0": offset + 1}}
    events[end:end] = [
        {**own, "op": "start", "isolation": COMMITTED_ONLY, "group": "new"},
        {**commit, "type": "invoke", "offsets": {"a-0": 0}},
        {**commit, "offsets": {"a-0": 0}},
        {**own, "op": "assign", "group": "new", "partitions": ["a-0"]},
        {**own, "op": "poll", "records": {"a-0": [list(pair[1:]) for pair in found if pair[1] <= offset]}},
        {**commit, "type": "invoke"},
        commit,
        {**own, "process": "later", "op": "start", "isolation": COMMITTED_ONLY, "group": "new"},
        {**own, "process": "later", "op": "assign", "group": "new", "partitions": ["a-0"]},
        {**own, "process": "later", "op": "poll", "records": {"a-0": [[offset, value]]}},
        {**own, "op": "committed", "group": "new", "offsets": {"a-0": offset + 1}},
    ]
    return facts.RESUMED_BELOW


def forget_a_commit(events: list[Event], choose: random.Random) -> str | None:
    may = [event for event in events_of(events, "committed") if event["offsets"]]
    if not may:
        return None
    event = choose.choice(may)
    event["offsets"][choose.choice(sorted(event["offsets"]))] += 1 << 20
    return facts.LOST_COMMIT


def tear(events: list[Event], choose: random.Random) -> str | None:
    """A record is missing from a transaction whose outcome is now unknown."""
    there = {value for _, _, value in committed_records(events)}
    members: dict[str, list[int]] = {}
    for event in events_of(events, "send", "invoke"):
        if event["value"] in there and "txn" in event:
            members.setdefault(event["txn"], []).append(event["value"])
    may = [(name, values) for name, values in sorted(members.items()) if len(values) > 1]
    if not may:
        return None
    name, values = choose.choice(may)
    for event in events_of(events, "commit", txn=name):
        event["type"] = "info"
    remove_value(events, choose.choice(values))
    return facts.TORN


def commit_by_fenced(events: list[Event], choose: random.Random) -> str | None:
    """A fenced process commits."""
    heirs: dict[str, list[Event]] = {}
    for event in events_of(events, "init"):
        heirs.setdefault(event["transactional_id"], []).append(event)
    old, new = choose.choice([lives for lives in heirs.values() if len(lives) > 1] or [[None, None]])[:2]
    if old is None or new is None:
        return None
    name = {"txn": "of the dead"}
    own = {"process": old["process"], "type": "ok", **name}
    place = events.index(new)
    begun = {**own, "op": "begin", "transactional_id": old["transactional_id"]}
    sent = {**own, "type": "invoke", "op": "send", "partition": "dead-0", "value": 1 << 41}
    events[place + 1 : place + 1] = [begun, sent, {**own, "type": "invoke", "op": "commit"}, {**own, "op": "commit"}]
    return facts.ZOMBIE


def process_again(events: list[Event], choose: random.Random) -> str | None:
    there = {value for _, _, value in committed_records(events)}
    made = [event for event in events_of(events, "send", "invoke") if "of" in event and event["value"] in there]
    if len(made) < 2:
        return None
    one, other = choose.sample(made, 2)
    one["of"] = other["of"]
    return facts.TWICE


def process_none(events: list[Event], choose: random.Random) -> str | None:
    if not any(partition == "a-1" for partition, _, _ in committed_records(events)):
        return None
    events.append({"process": "reader", "type": "ok", "op": "drained", "source": "a", "target": "nothing"})
    return facts.UNPROCESSED


Mutation = Callable[[list[Event], random.Random], str | None]
MUTATIONS: tuple[Mutation, ...] = (
    *(change_value, double, lose, lose_the_last, read_an_aborted_one, read_an_open_one, read_an_open_one_of_another),
    *(fail_what_is_there, find_unsent_record, skip, go_back, exchange_sends, commit_too_much, begin_too_low),
    *(forget_a_commit, tear, commit_by_fenced, process_again, process_none),
)
BUSY = 300  # steps of a history that most mutations apply to


def test_every_kind_of_change_found(scaled: Callable[[int], int]) -> None:
    """Each change is found in several random histories; in a small run, in the first to which it applies."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    choose = random.Random(seed)
    found: dict[str, int] = dict.fromkeys((mutation.__name__ for mutation in MUTATIONS), 0)
    kinds: set[str] = set()
    for _ in range(max(5, scaled(5))):  # in fewer, some change may not apply
        steps = [(choose.choice(ACTIONS), choose.randrange(1 << 16)) for _ in range(BUSY)]
        clean = history(steps)
        assert not checked(clean).kinds
        for mutation in (one for one in MUTATIONS if found[one.__name__] < scaled(10)):
            events = deepcopy(clean)
            kind = mutation(events, choose)
            if kind is not None:
                assert kind in checked(events).kinds, f"{mutation.__name__}: {checked(events)}"
                found[mutation.__name__] += 1
                kinds.add(kind)
    assert all(found.values()), found
    assert kinds == set(facts.LOG_KINDS)
