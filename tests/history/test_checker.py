"""The checker, tested with forged histories: each is a clean history with the smallest change that makes it invalid."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest

from ottla_testing.each import each
from ottla_testing.history import facts
from ottla_testing.history.checker import check, check_events
from ottla_testing.history.facts import LOG_KINDS, Report
from ottla_testing.history.history import BadHistory, Event, Recorder, dump, read
from ottla_testing.history.log_model import ALL, Model, Receiver, Sender
from ottla_testing.patience import PATIENCE_S


def checked(events: list[Event]) -> Report:
    return check_events((line, {"at": line / 1000, **event}) for line, event in enumerate(events, 1))


def clean() -> list[Event]:
    """Returns a history with plain sends, transactions of both outcomes, a group that changes its owner, a loop, a
    crash and
    a fence.
    Values: 1-4 plain in a-0; 6 and 7 committed, 9 aborted, 10 plain; in b-0 the values made from 1 and 2.
    """
    model = Model()
    plain, loop = Sender(model, "plain"), Sender(model, "loop", "id")
    for _ in range(4):
        plain.send("a-0")
    loop.init()
    loop.begin()  # value 5 is its name
    loop.send("a-0")
    loop.send("a-0")
    first = Receiver(model, "first", "group")
    first.assign("a-0")
    first.poll(2)
    first.commit()
    first.poll(1)
    loop.end("commit")
    loop.begin()  # 8
    loop.send("a-0")
    loop.end("abort")
    plain.send("a-0")
    first.crash()
    second = Receiver(model, "second", "group")
    second.assign("a-0")
    second.poll()
    second.commit()
    taker = Receiver(model, "loop", "takers")
    taker.assign("a-0")
    taker.poll(2)
    loop.begin()  # 11
    loop.send("b-0", of=1)
    loop.send("b-0", of=2)
    loop.send_offsets("takers", {"a-0": 2})
    loop.end("commit")
    heir = Sender(model, "heir", "id")
    heir.init()
    heir.begin()  # 14
    heir.send("b-0", of=3)
    taker = Receiver(model, "heir", "takers")
    taker.assign("a-0")
    taker.poll(1)
    heir.send_offsets("takers", {"a-0": 3})
    heir.end("commit")
    return model.finish()


def where(events: list[Event], op: str, type: str = "ok", **fields: object) -> list[int]:
    """Returns the indexes of the matching events."""
    wanted = {"op": op, "type": type, **fields}
    return [n for n, event in enumerate(events) if all(event.get(name) == value for name, value in wanted.items())]


def without(events: list[Event], value: int, *ops: str) -> None:
    """Removes a value from the events of these kinds."""
    for event in events:
        if event["op"] in ops:
            for partition, records in event["records"].items():
                event["records"][partition] = [pair for pair in records if pair[1] != value]


def found_at(events: list[Event], value: int) -> tuple[str, int]:
    for event in events:
        for partition, records in event.get("records", {}).items():
            for offset, one in records:
                if one == value:
                    return partition, offset
    raise AssertionError(f"{value} is in no event")


# -- forgeries: each changes a clean history, and names the violations that must be found


def two_values(events: list[Event]) -> None:
    """Two readers find different records at one offset; one of them had an unknown outcome."""
    events.insert(0, {"process": "other", "type": "invoke", "op": "send", "partition": "a-0", "value": 99})
    records = events[where(events, "read", isolation="read_uncommitted")[0]]["records"]["a-0"]
    records[records.index([3, 4])] = [3, 99]


def duplicate(events: list[Event]) -> None:
    """A record that all readers find twice: the retry was not detected."""
    event = events[where(events, "read", isolation="read_committed")[0]]
    event["records"]["a-0"].append([20, 4])


def lost(events: list[Event]) -> None:
    without(events, 3, "read", "poll")


def lost_after_a_poll(events: list[Event]) -> None:
    """Never acknowledged, but polled and then missing."""
    events[where(events, "send", value=3)[0]] |= {"type": "info"}
    without(events, 3, "read")


def unseen(events: list[Event]) -> None:
    """The last record of a log, which no read reaches."""
    without(events, 10, "read", "poll")
    for event in events:
        if event["op"] in ("commit_offsets", "committed") and event["offsets"].get("a-0") == 10:
            event["offsets"]["a-0"] = 9
        if event["op"] == "poll" and [8, 9] in event["records"].get("a-0", []):
            raise AssertionError("an aborted record was polled")


def aborted_read(events: list[Event]) -> None:
    """A read_committed consumer polls a record of an aborted transaction, at its offset."""
    partition, offset = found_at(events, 9)
    for n in where(events, "poll", process="second"):
        events[n]["records"][partition] = sorted([*events[n]["records"][partition], [offset, 9]])


def aborted_read_in_the_end(events: list[Event]) -> None:
    partition, offset = found_at(events, 9)
    n = where(events, "read", isolation="read_committed")[0]
    events[n]["records"][partition] = sorted([*events[n]["records"][partition], [offset, 9]])


def own_read(events: list[Event]) -> None:
    """A loop reads its own write before it has sent the commit."""
    (n,) = where(events, "commit", "invoke", txn="loop 5")
    events.insert(n, {"process": "loop", "type": "ok", "op": "poll", "records": {"a-0": [[4, 6]]}})
    events.insert(0, {"process": "loop", "type": "ok", "op": "start", "isolation": "read_committed"})


def early_read(events: list[Event]) -> None:
    """The same by another process."""
    (n,) = where(events, "commit", "invoke", txn="loop 5")
    events.insert(n, {"process": "stranger", "type": "ok", "op": "poll", "records": {"a-0": [[4, 6]]}})
    events.insert(0, {"process": "stranger", "type": "ok", "op": "start", "isolation": "read_committed"})


def failed_read(events: list[Event]) -> None:
    """A send that definitely failed is found."""
    events[where(events, "send", value=4)[0]] |= {"type": "fail"}


def phantom(events: list[Event]) -> None:
    n = where(events, "read", isolation="read_committed")[0]
    events[n]["records"]["a-0"].append([30, 777])


def phantom_elsewhere(events: list[Event]) -> None:
    """A record of another partition."""
    n = where(events, "read", isolation="read_committed")[-1]
    assert "b-0" in events[n]["records"]
    events[n]["records"]["b-0"].append([30, 4])


def skipped_poll(events: list[Event]) -> None:
    (n,) = where(events, "poll", process="second")
    events[n]["records"]["a-0"] = [pair for pair in events[n]["records"]["a-0"] if pair[1] != 6]


def skipped_when_resumed(events: list[Event]) -> None:
    """The next consumer of a group begins after a record that the previous owner had not committed."""
    (n,) = where(events, "poll", process="second")
    events[n]["records"]["a-0"] = events[n]["records"]["a-0"][1:]


def backward_poll(events: list[Event]) -> None:
    n = where(events, "poll", process="first")[-1]
    events[n]["records"]["a-0"] = [[1, 2], *events[n]["records"]["a-0"]]


def backward_send(events: list[Event]) -> None:
    """Two records are exchanged, everywhere."""
    sends = [events[where(events, "send", value=value)[0]] for value in (2, 3)]
    sends[0]["offset"], sends[1]["offset"] = sends[1]["offset"], sends[0]["offset"]
    exchange = {1: [1, 3], 2: [2, 2]}
    for event in events:
        for records in event.get("records", {}).values():
            if [0, 1] in records or [2, 3] in records:
                records[:] = [exchange.get(offset, [offset, value]) for offset, value in records]
    n = where(events, "poll", process="first")[-1]
    assert events[n]["records"]["a-0"] == [[2, 2]]


def commit_beyond(events: list[Event]) -> None:
    for type in ("invoke", "ok"):
        events[where(events, "commit_offsets", type, process="first")[0]]["offsets"]["a-0"] = 4
    # ... and the next consumer continues normally, at the next offset after that.
    (n,) = where(events, "poll", process="second")
    events[n]["records"]["a-0"] = [pair for pair in events[n]["records"]["a-0"] if pair[0] >= 4]


def commit_beyond_in_a_transaction(events: list[Event]) -> None:
    for type in ("invoke", "ok"):
        events[where(events, "send_offsets", type, process="heir")[0]]["offsets"]["a-0"] = 4
    events[where(events, "committed", group="takers")[0]]["offsets"]["a-0"] = 4


def resumed_below(events: list[Event]) -> None:
    (n,) = where(events, "poll", process="second")
    events[n]["records"]["a-0"] = [[1, 2], *events[n]["records"]["a-0"]]


def lost_commit(events: list[Event]) -> None:
    events[where(events, "committed", group="group")[0]]["offsets"]["a-0"] = 2


def forgotten_commit(events: list[Event]) -> None:
    events[where(events, "committed", group="group")[0]]["offsets"] = {}


def torn_unknown(events: list[Event]) -> None:
    """A transaction of unknown outcome, half of which exists."""
    events[where(events, "commit", txn="loop 5")[0]]["type"] = "info"
    without(events, 7, "read", "poll")


def torn_unsaid(events: list[Event]) -> None:
    """A committed transaction lacks a record that was sent in it without a response."""
    events[where(events, "send", value=7)[0]]["type"] = "info"
    without(events, 7, "read", "poll")


def zombie(events: list[Event]) -> None:
    """The previous process with a transactional id commits after the new one has begun."""
    (n,) = where(events, "commit", "invoke", txn="loop 11")
    invoked, ended = events[n : n + 2]
    del events[n : n + 2]
    (n,) = where(events, "init", process="heir")
    events[n + 1 : n + 1] = [invoked, ended]


def zombie_that_sends(events: list[Event]) -> None:
    (n,) = where(events, "init", process="heir")
    sent = {"process": "loop", "op": "send", "value": 99}
    begun = {"process": "loop", "type": "ok", "op": "begin", "txn": "late", "transactional_id": "id"}
    events[n + 1 : n + 1] = [
        begun,
        {**sent, "type": "invoke", "partition": "b-0", "txn": "late"},
        {**sent, "type": "ok", "offset": 40},
    ]


def twice(events: list[Event]) -> None:
    events[where(events, "send", "invoke", of=3)[0]]["of"] = 2


def unprocessed(events: list[Event]) -> None:
    events.append({"process": "reader", "type": "ok", "op": "drained", "source": "b", "target": "c"})


Forgery = Callable[[list[Event]], None]
FORGERIES: list[tuple[Forgery, set[str]]] = [
    (two_values, {facts.TWO_VALUES}),
    (duplicate, {facts.DUPLICATE}),
    (lost, {facts.LOST}),
    (lost_after_a_poll, {facts.LOST}),
    (unseen, {facts.UNSEEN}),
    (aborted_read, {facts.ABORTED_READ}),
    (aborted_read_in_the_end, {facts.ABORTED_READ}),
    (own_read, {facts.OWN_READ}),
    (early_read, {facts.EARLY_READ}),
    (failed_read, {facts.FAILED_READ}),
    (phantom, {facts.PHANTOM}),
    (phantom_elsewhere, {facts.PHANTOM}),
    (skipped_poll, {facts.SKIPPED_POLL}),
    (skipped_when_resumed, {facts.SKIPPED_POLL}),
    (backward_poll, {facts.BACKWARD_POLL}),
    (backward_send, {facts.BACKWARD_SEND}),
    (commit_beyond, {facts.COMMIT_BEYOND}),
    (commit_beyond_in_a_transaction, {facts.COMMIT_BEYOND}),
    (resumed_below, {facts.RESUMED_BELOW}),
    (lost_commit, {facts.LOST_COMMIT}),
    (forgotten_commit, {facts.LOST_COMMIT}),
    (torn_unknown, {facts.TORN}),
    (torn_unsaid, {facts.TORN}),
    (zombie, {facts.ZOMBIE}),
    (zombie_that_sends, {facts.ZOMBIE}),
    (twice, {facts.TWICE}),
    (unprocessed, {facts.UNPROCESSED}),
]


def test_clean_history_has_no_violations() -> None:
    report = checked(clean())
    assert not report.kinds, report
    assert report.counts["transactions: committed"] == 3 and report.counts["transactions: aborted"] == 1


@each(("forgery", "kinds"), FORGERIES)
def test_each_violation_found(forgery: Forgery, kinds: set[str]) -> None:
    events = deepcopy(clean())
    forgery(events)
    report = checked(events)
    assert set(report.kinds) == kinds, report
    for violation in report.violations:
        assert violation.evidence and all(0 < line <= len(events) for line in violation.lines), violation
        assert violation.lines and str(violation)


def test_every_kind_has_forgery() -> None:
    assert {kind for _, kinds in FORGERIES for kind in kinds} == set(LOG_KINDS)


# -- unusual but valid


def test_unknown_outcomes_may_be_either() -> None:
    model = Model()
    plain = Sender(model, "plain")
    for outcome in ("written", "lost", "ok", "written", "lost"):
        plain.send("a-0", outcome)
    for number, outcome in enumerate(("done", "undone")):
        sender = Sender(model, f"sender {number}", f"id {number}")
        sender.init()
        sender.begin()
        sender.send("a-0")
        sender.send("b-0", "ok", late=True)
        sender.end("commit", outcome)
        sender.crash()
    report = checked(model.finish())
    assert not report.kinds, report
    assert report.counts["transactions: unknown"] == 2


def test_resend_after_unknown_outcome_may_duplicate() -> None:
    model = Model()
    plain = Sender(model, "plain")
    value = plain.send("a-0", "written")
    plain.send("a-0", value=value)
    reader = Receiver(model, "reader 1", None)
    reader.assign("a-0")
    reader.poll()
    assert not checked(model.finish()).kinds
    events = [event for event in model.events if event["type"] != "info"]
    del events[where(events, "send", "invoke")[0]]
    assert set(checked(events).kinds) == {facts.DUPLICATE}


def test_fenced_zombie_is_no_violation() -> None:
    model = Model()
    old = Sender(model, "old", "id")
    old.init()
    old.begin()
    old.send("a-0")
    new = Sender(model, "new", "id")
    new.init()
    old.send("a-0")
    old.end("commit")
    old.begin()
    old.send("a-0")
    old.end("commit")
    new.begin()
    new.send("a-0")
    new.end("commit")
    consumer = Receiver(model, "consumer", "group")
    consumer.assign("a-0")
    assert sum(map(len, consumer.poll().values())) == 1
    consumer.commit(over=True)
    report = checked(model.finish())
    assert not report.kinds, report


def test_read_uncommitted_may_read_open_and_aborted() -> None:
    model = Model()
    sender = Sender(model, "sender", "id")
    sender.init()
    sender.begin()
    sender.send("a-0")
    reader = Receiver(model, "all", "group", ALL)
    reader.assign("a-0")
    assert reader.poll()
    sender.end("abort")
    sender.begin()
    sender.send("a-0")
    assert reader.poll()
    reader.commit()
    report = checked(model.finish())
    assert not report.kinds, report


def test_consumer_may_begin_at_or_before_unknown_commit() -> None:
    for outcome in ("done", "undone"):
        model = Model()
        plain = Sender(model, "plain")
        for _ in range(6):
            plain.send("a-0")
        first = Receiver(model, "first", "group")
        first.assign("a-0")
        first.poll(2)
        first.commit()
        first.poll(2)
        first.commit(outcome)
        first.crash()
        second = Receiver(model, "second", "group")
        second.assign("a-0")
        second.poll()
        second.seek("a-0", 1)
        second.poll()
        second.seek("a-0", None)
        second.poll()
        second.revoke("a-0")
        report = checked(model.finish())
        assert not report.kinds, report


def test_later_commit_replaces_earlier() -> None:
    """When another commit is acknowledged, no consumer may begin at the first."""
    model = Model()
    plain = Sender(model, "plain")
    for _ in range(6):
        plain.send("a-0")
    first = Receiver(model, "first", "group")
    first.assign("a-0")
    for _ in range(2):
        first.poll(2)
        first.commit()
    model.groups["group"]["a-0"] = 2
    second = Receiver(model, "second", "group")
    second.assign("a-0")
    second.poll()
    model.groups["group"]["a-0"] = 4
    assert set(checked(model.finish()).kinds) == {facts.RESUMED_BELOW}


def test_regained_partition_may_continue_at_old_position() -> None:
    """kafka-python does so after a rebalance. It is wrong if another member had the partition meanwhile and may have
    committed.
    """
    for others in (False, True):
        model = Model()
        plain = Sender(model, "plain")
        for _ in range(4):
            plain.send("a-0")
        first, second = Receiver(model, "first", "group"), Receiver(model, "second", "group")
        first.assign("a-0")
        first.poll(2)
        first.revoke("a-0")
        if others:
            second.assign("a-0")
            second.revoke("a-0")
        first.assign("a-0")
        first.positions["a-0"] = 2
        first.poll()
        kinds = set(checked(model.finish()).kinds)
        assert kinds == ({facts.SKIPPED_POLL} if others else set())


# -- the file


def test_read_history_omits_torn_last_line(tmp_path: Path) -> None:
    path = tmp_path / "history"
    one, other = Recorder(path, "one"), Recorder(path, "other")
    one.invoke("send", partition="a-0", value=1)
    other.ok("start", client="x", isolation="read_committed")
    one.info("send", OSError("gone"), value=1)
    with path.open("a") as file:
        file.write('{"at":1.0,"process":"one","ty')
    events = [event for _, event in read(path)]
    assert [(event["process"], event["type"]) for event in events] == [
        ("one", "invoke"),
        ("other", "ok"),
        ("one", "info"),
    ]
    assert events[0]["at"] <= events[1]["at"] <= events[2]["at"]
    assert not check(path).kinds
    one.close()
    other.close()


@pytest.mark.parametrize(
    "line", ["no JSON", "[]", '{"op":"send"}', '{"op":"none","type":"ok"}', '{"op":"poll","type":"ok","process":"p"}']
)
def test_invalid_history_raises(line: str, tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text(line + "\n")
    with pytest.raises(BadHistory, match="line 1"):
        check(path)


def test_command_prints_violations_and_lines(tmp_path: Path) -> None:
    good, bad = clean(), clean()
    lost(bad)
    for events, code, words in ((good, 0, "clean: "), (bad, 1, f"violations: 1 x {facts.LOST}")):
        dump(events, tmp_path / "history")
        command = [sys.executable, str(Path(__file__).with_name("check.py")), "-v", str(tmp_path / "history")]
        outcome = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert outcome.returncode == code and outcome.stdout.startswith(words), outcome


def test_exits_are_counted_by_their_reason() -> None:
    errors = (None, "Final: fenced", "Stalled: librdkafka: no offsets", "Stalled: librdkafka: no offsets")
    events: list[Event] = [
        {"process": f"member {number}", "type": "ok", "op": "exit", "error": error}
        for number, error in enumerate(errors)
    ]
    counts = checked(events).counts
    assert [counts[f"exits: {how}"] for how in ("requested", "by itself", "stalled")] == [1, 1, 2]
