"""Checks a history for violations. Independent of clients and brokers.
`check(path)` reads the file once, and then evaluates what it has collected. The kinds of violations:
    TWO_VALUES      one offset of a partition has two values
    DUPLICATE       one value at two offsets, or a value acknowledged at one offset and found at another
    LOST            acknowledged (or polled) and below the end of the last read, but missing there
    UNSEEN          acknowledged, but neither polled nor in the last read, which went to the end of the log
    ABORTED_READ    a read_committed consumer got a record of an aborted transaction
    OWN_READ        it got a record that its own process had sent and not tried to commit
    EARLY_READ      the same, sent by another process
    FAILED_READ     a record was read whose send had definitely failed
    PHANTOM         a record was read that was never sent to this partition
    SKIPPED_POLL    a consumer's polls skipped an offset whose record others got
    BACKWARD_POLL   a consumer's polls went back without a new assignment or seek
    BACKWARD_SEND   a producer's records are in another order than it sent them
    COMMIT_BEYOND   a consumer committed an offset after what it had polled
    RESUMED_BELOW   a consumer began before every offset that its group may have committed
    LOST_COMMIT     at the end a group's committed offset is none of the last acknowledged (or unknown) ones
    TORN            of a transaction's records, some are visible and some are not
    ZOMBIE          a fenced producer had a transaction committed, or a record acknowledged
    TWICE           two committed records of a topic were made from one
    UNPROCESSED     no record was made from this one, but the history claims that all were processed
Of share groups (KIP-932):
    HELD_TWICE      a record was delivered while a member certainly held it
    ACKED_TWICE     a record was accepted or rejected by two members that certainly held it
    REDELIVERED     a record was delivered after it had been accepted or rejected
    STOLEN          a member acknowledged a record that another one certainly held
    WRONGLY_REFUSED  a member certainly held records and could not acknowledge them
    BEYOND_LIMIT    a delivery count is larger than the group's limit
    LOW_COUNT       a delivery count is not larger than that of an earlier delivery, which cannot have been lost
    HIGH_COUNT      a delivery count is larger than the number of deliveries that may have been
    UNSHARED        a record was not acknowledged, and cannot have reached the limit, but all were processed
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ottla_testing.history.facts import Report
from ottla_testing.history.follower import Follower
from ottla_testing.history.history import BadHistory, Event, read
from ottla_testing.history.share_verdicts import judge_shares
from ottla_testing.history.verdicts import judge


def check(path: Path | str) -> Report:
    """Returns all violations in a history file. Raises BadHistory."""
    return check_events(read(path))


def check_events(events: Iterable[tuple[int, Event]]) -> Report:
    """The same for (line number, event) pairs."""
    follower = Follower()
    for line, event in events:
        try:
            follower.take(line, event)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BadHistory(f"line {line}: {type(error).__name__} {error}") from error
    judge(follower)
    judge_shares(follower)
    return follower.report
