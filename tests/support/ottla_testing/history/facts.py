"""What a checker remembers of a history: values and where they were found, transactions, what groups committed, and
what was wrong.

Made for millions of values: they are numbered as they are sent, and what is known of them stands in arrays.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

NOWHERE = -1

# What a value was (flags).
ACKED = 1
SEEN = 2  # polled by a consumer of committed records
READ = 4  # found by the last reading of committed records
GLIMPSED = 8  # found by a consumer or reading of all records, committed or not
VISIBLE = SEEN | READ
FOUND = VISIBLE | GLIMPSED

# What became of a transaction.
OPEN, COMMITTING, COMMITTED, ABORTED, UNKNOWN = "open", "committing", "committed", "aborted", "unknown"

# Kinds of violations; `checker` says what they mean.
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
KINDS = (
    *(TWO_VALUES, DUPLICATE, LOST, UNSEEN, ABORTED_READ, OWN_READ, EARLY_READ, FAILED_READ, PHANTOM, SKIPPED_POLL),
    *(BACKWARD_POLL, BACKWARD_SEND, COMMIT_BEYOND, RESUMED_BELOW, LOST_COMMIT, TORN, ZOMBIE, TWICE, UNPROCESSED),
)

PER_KIND = 100  # so many violations of a kind are kept, the rest is counted


class Violation(NamedTuple):
    """What must not have happened: where, at which offsets, and the lines of the history that show it."""

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
    """The outcome: violations (PER_KIND of each kind at most), how many there are, and what the history held."""

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
    """What was sent. All columns are by a value's number, which is its place in the order of the first invocations."""

    def __init__(self) -> None:
        self.number: dict[int, int] = {}
        self.value = array("q")
        self.place = array("l")
        self.process = array("l")
        self.txn = array("l")  # NOWHERE: in none
        self.source = array("q")  # the value it was made from
        self.sends = array("b")  # sends that happened or may have
        self.flags = array("B")
        self.offset = array("q")
        self.sent = array("q")  # lines: of the last invocation, of the outcome, of the first finding
        self.told = array("q")
        self.found = array("q")
        self.more: dict[int, set[int]] = {}  # further offsets of values that were sent again

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
        self.told.append(0)
        self.found.append(0)
        return number

    def lines(self, number: int) -> tuple[int, ...]:
        """The lines that tell of a value, as far as there are any."""
        return tuple(line for line in (self.sent[number], self.told[number], self.found[number]) if line)


@dataclass(slots=True)
class Transaction:
    name: str
    process: str
    transactional_id: str
    line: int
    state: str = OPEN
    is_doomed: bool = False  # its producer was fenced before it asked for the commit
    commit_line: int = 0
    end_line: int = 0
    values: array[int] = field(default_factory=lambda: array("l"))
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)  # by group and place
    pending: list[tuple[Commits, Commit]] = field(default_factory=list)

    @property
    def fate(self) -> str:
        """COMMITTED, ABORTED or UNKNOWN. What nobody asked to commit can only be aborted."""
        if self.state == COMMITTED:
            return COMMITTED
        return UNKNOWN if self.state == COMMITTING and not self.is_doomed else ABORTED


NEVER = 1 << 62
UNKNOWN_S = 30.0  # a request whose outcome is unknown takes effect within this time or not at all


@dataclass(slots=True, eq=False)
class Commit:
    """An offset that is committed or may be: told at line `end`, or unknown since second `unknown_at`."""

    offset: int
    line: int
    end: int = NEVER
    unknown_at: float | None = None


class Commits:
    """What a group may have committed in one partition: the acknowledged commits that no later one has replaced, and
    those whose outcome is open."""

    def __init__(self) -> None:
        self.entries: list[Commit] = []
        self.has_begun = False  # one is acknowledged: what was before is gone

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
        """All that may be committed now; where it may be that nothing is, 0 is among them."""
        return {one.offset for one in self.entries} | (set() if self.has_begun else {0})

    @property
    def newest_line(self) -> int:
        return max((one.line for one in self.entries), default=0)
