"""Looks through a history for what must not have happened. Knows neither clients nor brokers.

`check(path)` reads the file once, from the first line to the last, and then goes through what it remembers. It knows:

    TWO_VALUES      one offset of a partition was told with two values
    DUPLICATE       one value at two offsets, or a value acknowledged at one offset and found at another
    LOST            acknowledged (or polled) and below what was read, but the last reading has not got it
    UNSEEN          acknowledged, and neither polled by anyone nor in the last reading, which went to the end of the log
    ABORTED_READ    a consumer of committed records got a record of a transaction that was aborted
    OWN_READ        it got a record that its own process had sent and not asked to commit
    EARLY_READ      the same, of another process
    FAILED_READ     a record was read whose sending had failed for certain
    PHANTOM         a record was read that nobody had sent there
    SKIPPED_POLL    a consumer's polls passed over an offset whose record others got
    BACKWARD_POLL   a consumer's polls went back, and there was no new assignment and no seek
    BACKWARD_SEND   a producer's records lie in another order than it sent them
    COMMIT_BEYOND   a consumer committed an offset beyond what it had polled
    RESUMED_BELOW   a consumer began below all that its group may have had committed
    LOST_COMMIT     in the end a group has committed an offset other than the last acknowledged (or unknown) ones
    TORN            of one transaction's records some are to be seen and some not
    ZOMBIE          a producer that was fenced had a transaction committed, or a record acknowledged
    TWICE           two committed records of a topic were made from one
    UNPROCESSED     a record of which none was made, though it is said that all were
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ottla_testing.history.facts import Report
from ottla_testing.history.follower import Follower
from ottla_testing.history.history import BadHistory, Event, read
from ottla_testing.history.verdicts import judge


def check(path: Path | str) -> Report:
    """All violations in a history file. Raises BadHistory."""
    return check_events(read(path))


def check_events(events: Iterable[tuple[int, Event]]) -> Report:
    """The same for (line number, event)."""
    follower = Follower()
    for line, event in events:
        try:
            follower.take(line, event)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BadHistory(f"line {line}: {type(error).__name__} {error}") from error
    judge(follower)
    return follower.report
