"""The check of histories, on constructed histories: correct ones pass, and each error is detected as its kind."""

from __future__ import annotations

from ottla_testing.client.model_history import (
    DOUBLED,
    FAILED_WITHOUT_REASON,
    FATAL_WITHOUT_LOSS,
    LOST_AT_NEW_START,
    LOST_SILENTLY,
    PRODUCER_FAILED,
    REFUSED,
    REFUSED_BUT_PRESENT,
    REORDERED,
    TIMED_OUT,
    UNANSWERED,
    UNTRUE_OFFSET,
    WRONG_LOG,
    Acknowledged,
    Appended,
    Cut,
    Event,
    Failed,
    Fatal,
    FinalLog,
    History,
    Note,
    Sent,
    Started,
    check,
)
from ottla_testing.each import each


def sent(*records: int, producer: int = 1, partition: int = 0) -> list[Event]:
    return [Sent(1.0, record, producer, partition) for record in records]


def wrote(offset: int, *records: int, at_s: float = 2.0) -> Appended:
    return Appended(at_s, 0, offset, records)


def acked(record: int, offset: int | None, at_s: float = 2.5) -> Acknowledged:
    return Acknowledged(at_s, record, offset)


def kinds(events: list[Event], log: list[tuple[int, int]], start: int = 0) -> list[str]:
    """Returns the findings for a history of one partition: a delivery timeout of 10 s, responses within 1 s."""
    history = History(events, {0: FinalLog(start, log)}, response_s=1.0, delivery_timeout_s=10.0)
    return [violation.kind for violation in check(history)]


FATAL = Fatal(4.0, 1, 0, "gap")
NEW_DISK: list[Event] = [Cut(3.1, 0, 0), Started(3.1, 0, 0)]


@each(
    ("events", "log", "start"),
    [
        ([], [], 0),
        ([*sent(1, 2), wrote(0, 1, 2), acked(1, 0), acked(2, 1), Note(3.0, "x")], [(0, 1), (1, 2)], 0),
        # a response without an offset
        ([*sent(1), wrote(0, 1), acked(1, None)], [(0, 1)], 0),
        # timed out, one written and one not
        ([*sent(1, 2), wrote(0, 1), Failed(11.0, 1, TIMED_OUT), Failed(11.0, 2, TIMED_OUT)], [(0, 1)], 0),
        ([*sent(1), Failed(1.0, 1, REFUSED)], [], 0),
        # the log start moved over acknowledged records
        ([*sent(1, 2), wrote(0, 1), acked(1, 0), Started(3.0, 0, 1), wrote(1, 2), acked(2, 1)], [(1, 2)], 1),
        # the same, with a second copy of the deleted records
        ([*sent(1), wrote(0, 1), acked(1, 0), Started(3.0, 0, 1), wrote(1, 1)], [(1, 1)], 1),
        # lost, and reported
        ([*sent(1, 2), wrote(0, 1), acked(1, 0), Cut(3.0, 0, 0), FATAL, Failed(4.0, 2, PRODUCER_FAILED)], [], 0),
        # lost after the application had given it up: the broker may have acknowledged it nevertheless
        ([*sent(1), wrote(0, 1), Failed(11.0, 1, TIMED_OUT), Cut(12.0, 0, 0), Fatal(13.0, 1, 0, "gap")], [], 0),
        # lost, reported just after the log start moved over it
        ([*sent(1), wrote(0, 1), acked(1, 0), Cut(3.0, 0, 0), Started(3.5, 0, 1), FATAL], [], 1),
        # lost before it was acknowledged, and written again
        ([*sent(1), wrote(0, 1), Cut(2.1, 0, 0), wrote(0, 1), acked(1, 0)], [(0, 1)], 0),
        # lost, and brought back by a delayed copy
        (
            [*sent(1, 2), wrote(0, 1), acked(1, 0), Cut(3.0, 0, 0), wrote(0, 1), wrote(1, 2), acked(2, 1)],
            [(0, 1), (1, 2)],
            0,
        ),
        # a new disk begins at offset 0: a producer cannot know that the missing records had been deleted on the old
        # one, and it may continue without an error
        (
            [*sent(1), wrote(0, 1), acked(1, 0), Started(3.0, 0, 1), *NEW_DISK, FATAL],
            [],
            0,
        ),
        (
            [*sent(1, 2), wrote(0, 1), acked(1, 0), Started(3.0, 0, 1), *NEW_DISK, wrote(0, 2), acked(2, 0)],
            [(0, 2)],
            0,
        ),
        # records of two producers in one partition may have any order
        ([*sent(1), *sent(2, producer=2), wrote(0, 2, 1), acked(1, 1), acked(2, 0)], [(0, 2), (1, 1)], 0),
    ],
)
def test_correct_history_has_no_findings(events: list[Event], log: list[tuple[int, int]], start: int) -> None:
    assert kinds(events, log, start) == []


@each(
    ("events", "log", "expected"),
    [
        ([*sent(1), wrote(0, 1), wrote(1, 1), acked(1, 0)], [(0, 1), (1, 1)], [DOUBLED]),
        ([*sent(1), wrote(0, 1), wrote(1, 1), Failed(11.0, 1, TIMED_OUT)], [(0, 1), (1, 1)], [DOUBLED]),
        (
            [*sent(1, 2), wrote(0, 2), wrote(1, 1), acked(2, 0), acked(1, 1)],
            [(0, 2), (1, 1)],
            [REORDERED, REORDERED],
        ),
        # lost, and the next batch is accepted as if nothing had happened
        (
            [*sent(1, 2), wrote(0, 1), acked(1, 0), Cut(3.0, 0, 0), wrote(0, 2), acked(2, 0)],
            [(0, 2)],
            [LOST_SILENTLY],
        ),
        # the same, with a response without an offset
        (
            [*sent(1, 2), wrote(0, 1), acked(1, None), Cut(3.0, 0, 0), wrote(0, 2), acked(2, 0)],
            [(0, 2)],
            [LOST_SILENTLY],
        ),
        # the same at a new start of sequences
        (
            [*sent(1, 2), wrote(0, 1), acked(1, 0), Cut(3.0, 0, 0), Appended(3.5, 0, 0, (2,), 1), acked(2, 0)],
            [(0, 2)],
            [LOST_AT_NEW_START],
        ),
        # an acknowledgement without a write
        ([*sent(1), acked(1, 0)], [], [UNTRUE_OFFSET]),
        ([*sent(1, 2), wrote(0, 1, 2), acked(1, 0), acked(2, 0)], [(0, 1), (1, 2)], [UNTRUE_OFFSET]),
        ([*sent(1), wrote(0, 1), acked(1, 0), FATAL], [(0, 1)], [FATAL_WITHOUT_LOSS]),
        # lost in another partition, or by another producer, or never acknowledged
        (
            [*sent(1), wrote(0, 1), acked(1, 0), Cut(3.0, 0, 0), Fatal(4.0, 1, 1, "gap")],
            [],
            [FATAL_WITHOUT_LOSS],
        ),
        (
            [*sent(1, producer=2), wrote(0, 1), acked(1, 0), Cut(3.0, 0, 0), FATAL],
            [],
            [FATAL_WITHOUT_LOSS],
        ),
        (
            [*sent(1), wrote(0, 1), Cut(3.0, 0, 0), FATAL, Failed(4.0, 1, PRODUCER_FAILED)],
            [],
            [FATAL_WITHOUT_LOSS],
        ),
        # the log start had moved over it long before
        (
            [*sent(1), wrote(0, 1), acked(1, 0), Started(2.6, 0, 1), FATAL],
            [],
            [FATAL_WITHOUT_LOSS, WRONG_LOG],
        ),
        ([*sent(1), wrote(0, 1), Failed(2.0, 1, REFUSED)], [(0, 1)], [REFUSED_BUT_PRESENT]),
        (sent(1), [], [UNANSWERED]),
        ([*sent(1), Failed(9.0, 1, TIMED_OUT)], [], [FAILED_WITHOUT_REASON]),
        ([*sent(1), Failed(9.0, 1, PRODUCER_FAILED)], [], [FAILED_WITHOUT_REASON]),
        ([*sent(1), Failed(9.0, 1, "KeyError()")], [], [FAILED_WITHOUT_REASON]),
        ([*sent(1), wrote(0, 1), acked(1, 0), Failed(11.0, 1, TIMED_OUT)], [(0, 1)], [FAILED_WITHOUT_REASON]),
        # the log itself
        ([*sent(1), wrote(0, 1), acked(1, 0)], [], [WRONG_LOG]),
        ([*sent(1), wrote(0, 1), acked(1, 0)], [(0, 1), (1, 2)], [WRONG_LOG]),
        ([wrote(0, 1)], [], [WRONG_LOG]),
        ([*sent(1, partition=1), wrote(0, 1), acked(1, 0)], [], [WRONG_LOG, UNTRUE_OFFSET]),
    ],
)
def test_each_error_is_found(events: list[Event], log: list[tuple[int, int]], expected: list[str]) -> None:
    assert kinds(events, log) == expected


def test_history_is_printed_readably() -> None:
    history = History([*sent(7), wrote(0, 7), Note(3.0, "the broker is killed")], {0: FinalLog(0, [(0, 7)])})
    lines = history.describe().splitlines()
    assert "Sent" in lines[0] and "record=7" in lines[0]
    assert "the broker is killed" in lines[2]
    assert "partition 0" in lines[3]
