"""What a checker collects about share groups (KIP-932): deliveries, acknowledgements, and what is certain about locks.

Only what is certain is a violation. A delivery takes place between the invocation and the outcome of its fetch. From
the outcome on, the member certainly holds the record until the first of: its next acknowledgement of the record, except
a renewal; the end of the lock, counted from the invocation of the fetch or renewal; the invocation of the last
successful operation of its session; a move of the leader. Members without sessions in the history never hold a record
for certain.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla_testing.history.facts import NEVER
from ottla_testing.history.history import Event

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
TERMINAL = (GAP, ACCEPT, REJECT)
OK, REFUSED, UNKNOWN = "ok", "refused", "unknown"  # outcomes of an acknowledgement
NOT_OWNED = "INVALID_RECORD_STATE"
OLD_SESSION = "INVALID_SHARE_SESSION_EPOCH"
MOVES = {"move": "moved", "lead": "led", "node": "joined", "reassign": "reassigned"}  # faults that move leaders
ENDS = {"kill": "start", "stop": "start", **MOVES}
"""Faults after which acquired records are available, with their stored counts, and the events after them."""


@dataclass(slots=True, eq=False)
class Delivery:
    """A delivery of one record: the lines and seconds of its fetch, and when its lock ends at the earliest.

    `invoked` is 0 if it was fetched at an unknown time before.
    """

    owner: str
    is_certain: bool
    count: int
    invoked: int
    line: int
    at: float
    locked_until: float
    acks: list[Ack] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Ack:
    """An acknowledgement of one record, and the deliveries of all records of its partition that it acknowledges."""

    kind: int
    delivery: Delivery
    together: list[Ack]
    invoked: int
    line: int = NEVER
    at: float = 0.0
    outcome: str = UNKNOWN

    @property
    def is_first(self) -> bool:
        """Whether no earlier one but renewals was about the same delivery."""
        return all(one is self or one.kind == RENEW or one.invoked > self.invoked for one in self.delivery.acks)


class Fetching(NamedTuple):
    """A fetch under way."""

    line: int
    at: float
    group: str
    session: str | None


class Acking(NamedTuple):
    """An acknowledgement under way, by partition."""

    line: int
    at: float
    group: str
    session: str | None
    partitions: dict[str, list[Ack]]


@dataclass
class ShareGroup:
    """The configs of a share group, and its deliveries by (place, offset)."""

    limit: int = 0
    locks: int = 0
    lock_s: float = 0.0
    committed_only: bool = False
    deliveries: dict[tuple[int, int], list[Delivery]] = field(default_factory=dict)
    unknown: list[tuple[int, int]] = field(default_factory=list)
    """Fetches of unknown outcome, which may have acquired records: lines of the invocation and of the end."""
    heights: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """By place, the highest offset that was delivered so far: (line, offset), both rising."""
    opened: dict[str, int] = field(default_factory=dict)
    """The line at which each session was certainly open for the first time."""
    drained: dict[str, int] = field(default_factory=dict)
    """The topics of which all was processed, with the line that claims it."""


class Spans:
    """Spans of lines in order; a fault takes effect at some time between its event and the event of its end."""

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] = []

    def begin(self, line: int) -> None:
        """Begins a span, which lasts until `end`."""
        if not self._spans or self._spans[-1][1] != NEVER:
            self._spans.append((line, NEVER))

    def end(self, line: int) -> None:
        """Ends the span that is open, if there is one."""
        if self._spans and self._spans[-1][1] == NEVER:
            self._spans[-1] = self._spans[-1][0], line

    def next_after(self, line: int) -> int:
        """Returns the first line of the first span that has not ended by this line; NEVER if there is none."""
        at = bisect_right(self._spans, line, key=_end)
        return self._spans[at][0] if at < len(self._spans) else NEVER


def _end(span: tuple[int, int]) -> int:
    return span[1]


class Shares:
    """Follows the events of share groups. `find` notes that a value was found, as `Follower` does."""

    def __init__(
        self, place: Callable[[str], int], find: Callable[[int, int, int, bool, int], object], counts: Counter[str]
    ) -> None:
        self.groups: dict[str, ShareGroup] = {}
        self.alive: dict[str, int] = {}  # by session: the line at which it was certainly open for the last time
        self.losses = Spans()  # of faults that lose the state in memory
        self.moves = Spans()  # of those that move leaders, whose connections stay
        self.acks: list[list[Ack]] = []  # together in one partition
        self._place, self._find, self._counts = place, find, counts
        self._fetching: dict[str, Fetching] = {}
        self._acking: dict[str, Acking] = {}
        self._spans: dict[int, list[tuple[int, int]]] = {}
        self.handlers: dict[str, Callable[[int, str, Event], None]] = {
            "share_fetch": self._on_fetch,
            "share_ack": self._on_ack,
            "share_close": self._on_close,
            "share_drained": self._on_drained,
        }

    def started(self, event: Event) -> None:
        """Notes the configs of a member's group."""
        if (given := event.get("share")) is not None:
            group = self.groups.setdefault(event["group"], ShareGroup())
            group.limit, group.locks, group.lock_s = given["limit"], given["locks"], given["lock_s"]
            group.committed_only = given["isolation"] == "read_committed"

    def ended(self, process: str, line: int) -> None:
        """Notes that a process has ended: the outcomes of its requests are unknown."""
        if (fetch := self._fetching.pop(process, None)) is not None:
            self.groups[fetch.group].unknown.append((fetch.line, line))
        self._acking.pop(process, None)

    def fault(self, line: int, fault: str) -> None:
        """Notes a fault."""
        for spans, faults in ((self.losses, ENDS), (self.moves, MOVES)):
            if fault in faults:
                spans.begin(line)
            elif fault in ENDS.values():
                spans.end(line)

    # -- events

    def _on_fetch(self, line: int, type: str, event: Event) -> None:
        process = event["process"]
        if type == "invoke":
            self._fetching[process] = Fetching(line, event["at"], event["group"], event.get("session"))
            return
        fetch = self._fetching.pop(process)
        group = self.groups[fetch.group]
        self._counts[f"share fetches: {type}"] += 1
        if type == "info":
            group.unknown.append((fetch.line, line))
        if type != "ok":
            return
        if fetch.session is not None:
            self.alive[fetch.session] = fetch.line
            group.opened.setdefault(fetch.session, line)
        for partition, records in event["records"].items():
            place = self._place(partition)
            for offset, value, count in records:
                self._find(place, offset, value, group.committed_only, line)
                self._delivered(group, (place, offset), fetch, count, line, event)

    def _delivered(
        self, group: ShareGroup, where: tuple[int, int], fetch: Fetching, count: int, line: int, event: Event
    ) -> None:
        self._counts["records delivered"] += 1
        self._counts["records delivered again"] += count > 1
        owner, until = fetch.session or event["process"], fetch.at + group.lock_s
        made = Delivery(owner, fetch.session is not None, count, fetch.line, line, event["at"], until)
        group.deliveries.setdefault(where, []).append(made)
        heights = group.heights.setdefault(where[0], [])
        if not heights or where[1] > heights[-1][1]:
            heights.append((line, where[1]))

    def _on_ack(self, line: int, type: str, event: Event) -> None:
        if type == "invoke":
            self._begin(line, event)
            return
        self._counts[f"share acknowledgements: {type}"] += 1
        acking = self._acking.pop(event["process"])
        errors: dict[str, str | None] = event.get("partitions", {}) if type == "ok" else {}
        if type == "ok" and acking.session is not None:
            self.alive[acking.session] = acking.line
        for partition, acks in acking.partitions.items():
            if partition not in errors:
                continue
            error = errors[partition]
            outcome = OK if error is None else REFUSED if error == NOT_OWNED else UNKNOWN
            self._counts[f"records acknowledged: {outcome}"] += len(acks)
            for ack in acks:
                ack.outcome, ack.line, ack.at = outcome, line, event["at"]
                # librdkafka keeps what it has fetched: it may deliver records of a session that has ended since.
                if error == OLD_SESSION and not ack.delivery.is_certain:
                    ack.delivery.invoked = 0
                if outcome == OK and ack.kind == RENEW:
                    until = acking.at + self.groups[acking.group].lock_s
                    ack.delivery.locked_until = max(ack.delivery.locked_until, until)

    def _begin(self, line: int, event: Event) -> None:
        group, session = self.groups[event["group"]], event.get("session")
        owner = session or event["process"]
        partitions: dict[str, list[Ack]] = {}
        for partition, pairs in event["acks"].items():
            place, together = self._place(partition), list[Ack]()
            for offset, kind in pairs:
                own = [one for one in group.deliveries.get((place, offset), ()) if one.owner == owner]
                if not own:
                    raise ValueError(f"{owner} acknowledges {offset} of {partition}, which it did not get")
                ack = Ack(kind, own[-1], together, line)
                own[-1].acks.append(ack)
                together.append(ack)
            partitions[partition] = together
            self.acks.append(together)
        self._acking[event["process"]] = Acking(line, event["at"], event["group"], session, partitions)

    def _on_close(self, line: int, type: str, event: Event) -> None:
        """Nothing: the last successful operation of the session was before."""

    def _on_drained(self, line: int, type: str, event: Event) -> None:
        self.groups[event["group"]].drained[event["topic"]] = line

    # -- what is certain

    def held_until(self, delivery: Delivery) -> tuple[int, float]:
        """Returns the line and the second until which the member certainly holds the record."""
        acked = [ack.invoked for ack in delivery.acks if ack.kind != RENEW]
        return min([self.owned_until(delivery), *acked]), delivery.locked_until

    def owned_until(self, delivery: Delivery) -> int:
        """Returns the line until which its session is certainly open, and the leader the same."""
        if not delivery.is_certain:
            return 0
        return min(self.alive[delivery.owner], self.moves.next_after(delivery.invoked))

    def is_certain(self, ack: Ack) -> bool:
        """Returns whether the member certainly held the record when it was acknowledged."""
        delivery = ack.delivery
        is_open = delivery.is_certain and ack.invoked <= self.owned_until(delivery)
        moved = self.moves.next_after(delivery.invoked) < ack.line
        return ack.is_first and is_open and not moved and ack.at <= delivery.locked_until

    def has_lost_state(self, group: ShareGroup, earlier: Delivery, later: Delivery) -> bool:
        """Returns whether the broker may have lost the state in memory between two deliveries: by a fault, or because
        the group had no session. Then, as in Kafka, locks are lost in partitions that the last sessions no longer had.
        """
        if self.losses.next_after(earlier.invoked) < later.line:
            return True
        spans = self._spans.get(id(group))
        if spans is None:
            spans = self._spans[id(group)] = _merged((opened, self.alive[one]) for one, opened in group.opened.items())
        at = bisect_right(spans, (earlier.line, NEVER)) - 1
        return at < 0 or spans[at][1] < later.invoked


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Joins spans that overlap."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return merged


def configs_of(limit: int, locks: int, lock_s: float, isolation: str) -> dict[str, Any]:
    """Returns the configs of a share group as a member's `start` has them."""
    return {"limit": limit, "locks": locks, "lock_s": lock_s, "isolation": isolation}
