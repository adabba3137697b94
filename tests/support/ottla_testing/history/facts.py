"""What a checker collects from a history: values and where they were found, transactions, commits of groups,
violations.
Made for millions of values: they are numbered in the order of sending, and their data are kept in arrays.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

NOWHERE = -1

# Flags of a value.
ACKED = 1
SEEN = 2  # polled by a read_committed consumer
READ = 4  # found by the last read with read_committed
GLIMPSED = 8  # found by a read_uncommitted consumer or read
VISIBLE = SEEN | READ
FOUND = VISIBLE | GLIMPSED

# States of a transaction.
OPEN, COMMITTING, COMMITTED, ABORTED, UNKNOWN = "open", "committing", "committed", "aborted", "unknown"

# Kinds of violations, described in `checker`.
TWO_VALUES = "one offset with two values"
DUPLICATE = "duplicate"
LOST = "lost write"
UNSEEN = "acknowledged but unseen"
ABORTED_READ = "aborted read"
OWN_READ = "read of one's own uncommitted send"
EARLY_READ = "read of an uncommitted send"
FAILED_READ = "read of a failed send"
PHANTOM = "phantom"
SKIPPED_POLL = "skipped poll"
BACKWARD_POLL = "backward poll"
BACKWARD_SEND = "backward send"
COMMIT_BEYOND = "commit beyond what was polled"
RESUMED_BELOW = "resumed below what was committed"
LOST_COMMIT = "lost commit"
TORN = "torn transaction"
ZOMBIE = "zombie"
TWICE = "processed twice"
UNPROCESSED = "not processed"
HELD_TWICE = "held by two members"
ACKED_TWICE = "acknowledged twice"
REDELIVERED = "delivered after its acknowledgement"
STOLEN = "acknowledged while another member held it"
WRONGLY_REFUSED = "acknowledgement wrongly refused"
BEYOND_LIMIT = "delivered beyond the limit"
LOW_COUNT = "delivery count too low"
HIGH_COUNT = "delivery count too high"
UNSHARED = "lost by a share group"
LOG_KINDS = (
    *(TWO_VALUES, DUPLICATE, LOST, UNSEEN, ABORTED_READ, OWN_READ, EARLY_READ, FAILED_READ, PHANTOM, SKIPPED_POLL),
    *(BACKWARD_POLL, BACKWARD_SEND, COMMIT_BEYOND, RESUMED_BELOW, LOST_COMMIT, TORN, ZOMBIE, TWICE, UNPROCESSED),
)
SHARE_KINDS = (
    *(HELD_TWICE, ACKED_TWICE, REDELIVERED, STOLEN, WRONGLY_REFUSED, BEYOND_LIMIT, LOW_COUNT, HIGH_COUNT, UNSHARED),
)
KINDS = LOG_KINDS + SHARE_KINDS

PER_KIND = 100  # violations kept per kind; the rest is only counted


class Violation(NamedTuple):
    """A violation: its partition, the offsets, and the lines of the history that show it."""

    kind: str
    evidence: str
    partition: str = ""
    offsets: tuple[int, ...] = ()
    lines: tuple[int, ...] = ()

    def __str__(self) -> str:
        where = f" [{self.partition} at {', '.join(map(str, self.offsets))}]" if self.partition else ""
        return f"{self.kind}: {self.evidence}{where} (lines {', '.join(map(str, self.lines))})"


@dataclass
class Report:
    """The result: violations (at most PER_KIND of each kind), their numbers, and a summary of the history."""

    violations: list[Violation] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, violation: Violation) -> None:
        self.kinds[violation.kind] += 1
        if self.kinds[violation.kind] <= PER_KIND:
            self.violations.append(violation)

    def __str__(self) -> str:
        held = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        if not self.kinds:
            return f"clean: {held}"
        found = ", ".join(f"{count} x {kind}" for kind, count in sorted(self.kinds.items()))
        return "\n".join([f"violations: {found}", *map(str, self.violations), held])


class Values:
    """The sent values. All columns are indexed by a value's number: its position in the order of the first
    invocations."""

    def __init__(self) -> None:
        self.number: dict[int, int] = {}
        self.value = array("q")
        self.place = array("l")
        self.process = array("l")
        self.txn = array("l")  # NOWHERE: no transaction
        self.source = array("q")  # the value it was made from
        self.sends = array("b")  # sends that happened or may have happened
        self.flags = array("B")
        self.offset = array("q")
        self.sent = array("q")  # line numbers of the last invocation, the outcome, and the first read
        self.outcome = array("q")
        self.found = array("q")
        self.more: dict[int, set[int]] = {}  # other offsets of values that were sent again

    def __len__(self) -> int:
        return len(self.value)

    def add(self, value: int, place: int, process: int, txn: int, source: int, line: int) -> int:
        number = self.number[value] = len(self.value)
        self.value.append(value)
        self.place.append(place)
        self.process.append(process)
        self.txn.append(txn)
        self.source.append(source)
        self.sends.append(1)
        self.flags.append(0)
        self.offset.append(NOWHERE)
        self.sent.append(line)
        self.outcome.append(0)
        self.found.append(0)
        return number

    def lines(self, number: int) -> tuple[int, ...]:
        """Returns the known lines about a value."""
        return tuple(line for line in (self.sent[number], self.outcome[number], self.found[number]) if line)


@dataclass(slots=True)
class Transaction:
    name: str
    process: str
    transactional_id: str
    line: int
    state: str = OPEN
    is_doomed: bool = False  # its producer was fenced before it sent the commit
    commit_line: int = 0
    end_line: int = 0
    values: array[int] = field(default_factory=lambda: array("l"))
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)  # by group and place
    pending: list[tuple[Commits, Commit]] = field(default_factory=list)

    @property
    def fate(self) -> str:
        """COMMITTED, ABORTED or UNKNOWN. Without an attempt to commit, it can only be aborted."""
        if self.state == COMMITTED:
            return COMMITTED
        return UNKNOWN if self.state == COMMITTING and not self.is_doomed else ABORTED


NEVER = 1 << 62
UNKNOWN_S = 30.0  # a request whose outcome is unknown takes effect within this time or not at all


@dataclass(slots=True, eq=False)
class Commit:
    """An offset that is or may be committed: acknowledged at line `end`, or unknown since second `unknown_at`."""

    offset: int
    line: int
    end: int = NEVER
    unknown_at: float | None = None


class Commits:
    """What a group may have committed in one partition: the acknowledged commits that no later one has replaced, and
    those of
    unknown outcome.
    """

    def __init__(self) -> None:
        self.entries: list[Commit] = []
        self.has_begun = False  # one is acknowledged: earlier ones are obsolete

    def begin(self, offset: int, line: int) -> Commit:
        self.entries.append(Commit(offset, line))
        return self.entries[-1]

    def acknowledge(self, commit: Commit, line: int, at: float) -> None:
        commit.end = line
        commit.unknown_at = None
        self.has_begun = True
        if commit not in self.entries:
            self.entries.append(commit)
        self.entries = [
            one
            for one in self.entries
            if one.end >= commit.line and (one.unknown_at is None or at - one.unknown_at < UNKNOWN_S)
        ]

    def drop(self, commit: Commit) -> None:
        if commit in self.entries:
            self.entries.remove(commit)

    def offsets(self) -> set[int]:
        """Returns all offsets that may be committed now; includes 0 if possibly nothing is."""
        return {one.offset for one in self.entries} | (set() if self.has_begun else {0})

    @property
    def newest_line(self) -> int:
        return max((one.line for one in self.entries), default=0)
