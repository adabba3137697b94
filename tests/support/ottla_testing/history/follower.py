"""Follows a history line by line: finds the violations that are evident at once, and collects the rest for the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla_testing.history.facts import (
    ABORTED,
    ACKED,
    BACKWARD_POLL,
    COMMIT_BEYOND,
    COMMITTED,
    COMMITTING,
    DUPLICATE,
    GLIMPSED,
    LOST_COMMIT,
    NOWHERE,
    OPEN,
    PHANTOM,
    READ,
    RESUMED_BELOW,
    SEEN,
    SKIPPED_POLL,
    TWO_VALUES,
    ZOMBIE,
    Commit,
    Commits,
    Report,
    Transaction,
    Values,
    Violation,
)
from ottla_testing.history.history import Event
from ottla_testing.history.ports import Stalled
from ottla_testing.history.shares import Shares

RESUMES = -1  # as a position: the group's committed offset
COMMITTED_ONLY = "read_committed"


class Gap(NamedTuple):
    """Skipped offsets: a violation of this kind if there was a record between `start` and `end`."""

    kind: str
    place: int
    start: int
    end: int
    line: int
    process: str
    committed_only: bool


class Resuming(NamedTuple):
    """What is known when a consumer gets a partition: the lowest offset that may have been committed then, and its own
    position if it had the partition last (it may continue there).
    """

    lowest: int
    own: int


class Consuming:
    """A process as a consumer."""

    def __init__(self) -> None:
        self.group: str | None = None
        self.committed_only = False
        self.positions: dict[int, int] = {}
        self.resuming: dict[int, Resuming] = {}
        self.pending: list[tuple[Commits, Commit]] = []


class Follower:
    """The state so far; `verdicts.judge` decides at the end what needs the whole history."""

    def __init__(self) -> None:
        self.report = Report()
        self.values = Values()
        self.places: dict[str, int] = {}
        self.partitions: list[str] = []  # by place
        self.logs: list[dict[int, int]] = []  # by place: value number by offset, as first reported
        self.ends: dict[int, int] = {}  # by place: end of the last read with read_committed
        self.processes: dict[str, int] = {}
        self.names: list[str] = []  # of processes
        self.consuming: dict[str, Consuming] = {}
        self.txns: list[Transaction] = []
        self.txn_numbers: dict[str, int] = {}
        self.current: dict[str, Transaction] = {}  # by process: its last transaction
        self.holders: dict[str, dict[str, int]] = {}  # by transactional id: line at which each process got it
        self.init_lines: dict[tuple[str, str], int] = {}  # by process and transactional id: line of the `init`
        self.fenced: dict[str, int] = {}  # by process: line at which this is certain
        self.owners: dict[tuple[str | None, int], str] = {}  # by group and place: the process that was assigned it last
        self.commits: dict[tuple[str, int], Commits] = {}
        self.gaps: list[Gap] = []
        self.early: dict[int, tuple[int, str]] = {}  # by value number: line and process of a poll before the commit
        self.drained: list[tuple[str, str, int]] = []
        self._conflicts: set[tuple[int, int]] = set()
        self.shares = Shares(self.place, self._shared, self.report.counts)
        self._handlers = {
            name.removeprefix("_on_"): getattr(self, name) for name in dir(self) if name.startswith("_on_")
        }
        self._handlers |= self.shares.handlers

    def take(self, line: int, event: Event) -> None:
        op = event["op"]
        self.report.counts["events"] += 1
        self._handlers[op](line, event["type"], event)

    def violate(
        self, kind: str, evidence: str, place: int = NOWHERE, offsets: Iterable[int] = (), lines: Iterable[int] = ()
    ) -> None:
        partition = self.partitions[place] if place != NOWHERE else ""
        self.report.add(Violation(kind, evidence, partition, tuple(offsets), tuple(lines)))

    def place(self, partition: str) -> int:
        place = self.places.get(partition)
        if place is None:
            place = self.places[partition] = len(self.partitions)
            self.partitions.append(partition)
            self.logs.append({})
        return place

    def _process(self, name: str) -> int:
        number = self.processes.get(name)
        if number is None:
            number = self.processes[name] = len(self.names)
            self.names.append(name)
        return number

    def consumer(self, name: str) -> Consuming:
        found = self.consuming.get(name)
        if found is None:
            found = self.consuming[name] = Consuming()
        return found

    # -- processes and faults

    def _on_start(self, line: int, type: str, event: Event) -> None:
        one = self.consumer(event["process"])
        one.group = event.get("group", one.group)
        one.committed_only = event.get("isolation", COMMITTED_ONLY if one.committed_only else "") == COMMITTED_ONLY
        self.report.counts["processes"] += 1
        self.shares.started(event)

    def _on_crash(self, line: int, type: str, event: Event) -> None:
        self.report.counts["crashes"] += 1
        self._leave(line, event)

    def _on_exit(self, line: int, type: str, event: Event) -> None:
        error = event.get("error") or ""
        how = ("stalled" if error.startswith(Stalled.__name__) else "by itself") if error else "requested"
        self.report.counts[f"exits: {how}"] += 1
        self._leave(line, event)

    def _leave(self, line: int, event: Event) -> None:
        """Its unfinished requests take effect soon, or never."""
        process = event["process"]
        self.shares.ended(process, line)
        for _, commit in self.consumer(process).pending:
            commit.unknown_at = event["at"]
        txn = self.current.get(process)
        if txn is not None and txn.state == COMMITTING:
            for _, commit in txn.pending:
                commit.unknown_at = event["at"]

    def _on_fault(self, line: int, type: str, event: Event) -> None:
        self.report.counts[f"faults: {event['fault']}"] += 1
        self.shares.fault(line, event["fault"])

    # -- sending

    def _on_send(self, line: int, type: str, event: Event) -> None:
        value = event["value"]
        if type == "invoke":
            self._sent(line, event, value)
            return
        number = self.values.number[value]
        self.values.outcome[number] = line
        self.report.counts[f"sends: {type}"] += 1
        if type == "fail":
            self.values.sends[number] -= 1
        elif type == "ok":
            self.values.flags[number] |= ACKED
            if event["offset"] >= 0:
                self._at(number, self.values.place[number], event["offset"], line)
            fenced = self.fenced.get(event["process"], line)
            if fenced < self.values.sent[number] and self.values.txn[number] != NOWHERE:
                evidence = f"{event['process']} had been fenced, and {value} was acknowledged"
                self.about(ZOMBIE, number, evidence, lines=(fenced, self.values.sent[number], line))

    def _sent(self, line: int, event: Event, value: int) -> None:
        place, name = self.place(event["partition"]), event.get("txn")
        txn = NOWHERE if name is None else self.txn_numbers[name]
        known = self.values.number.get(value)
        if known is not None:  # a resend after an unknown outcome
            if self.values.place[known] != place or self.values.txn[known] != txn:
                raise ValueError(f"{value} is sent again in another partition or transaction")
            self.values.sends[known] += 1
            self.values.sent[known] = line
            return
        number = self.values.add(value, place, self._process(event["process"]), txn, event.get("of", NOWHERE), line)
        if txn != NOWHERE:
            self.txns[txn].values.append(number)

    def _at(self, number: int, place: int, offset: int, line: int) -> None:
        """Notes that a value was acknowledged or found at an offset."""
        values = self.values
        other = self.logs[place].setdefault(offset, number)
        if other != number and (place, offset) not in self._conflicts:
            self._conflicts.add((place, offset))
            evidence = f"{values.value[other]} and {values.value[number]}"
            self.violate(TWO_VALUES, evidence, place, [offset], (*values.lines(other), line))
        known = values.offset[number]
        if known == NOWHERE:
            values.offset[number] = offset
        elif known != offset:
            more = values.more.setdefault(number, set())
            is_new = offset not in more
            more.add(offset)
            if is_new and len(more) >= max(1, values.sends[number]):
                evidence = f"{values.value[number]} is there more often than it was sent"
                self.about(DUPLICATE, number, evidence, offsets=(known, *sorted(more)), lines=(line,))

    def about(
        self, kind: str, number: int, evidence: str, *, offsets: Iterable[int] = (), lines: Iterable[int] = ()
    ) -> None:
        offset = self.values.offset[number]
        offsets = tuple(offsets) or ((offset,) if offset >= 0 else ())
        lines = dict.fromkeys((*self.values.lines(number), *lines))
        self.violate(kind, evidence, self.values.place[number], offsets, lines)

    # -- reading

    def _find(self, place: int, offset: int, value: int, flag: int, line: int) -> int:
        """Notes that a value was found, and returns its number (NOWHERE if it was never sent to this partition)."""
        number = self.values.number.get(value, NOWHERE)
        if number == NOWHERE or self.values.place[number] != place:
            where = "anywhere" if number == NOWHERE else "there"
            self.violate(PHANTOM, f"{value} was never sent {where}", place, [offset], [line])
            return NOWHERE
        flags = self.values.flags
        if not self.values.found[number]:
            self.values.found[number] = line
        flags[number] |= flag
        self._at(number, place, offset, line)
        return number

    def _on_poll(self, line: int, type: str, event: Event) -> None:
        process = event["process"]
        one = self.consumer(process)
        flag = SEEN if one.committed_only else GLIMPSED
        for partition, records in event["records"].items():
            place = self.place(partition)
            position = one.positions.get(place)
            self.report.counts["records polled"] += len(records)
            for offset, value in records:
                if position == RESUMES:
                    position = self._resume(one, place, offset, line, process)
                if position is not None and offset < position:
                    evidence = f"{process} was at {position} and got {offset}"
                    self.violate(BACKWARD_POLL, evidence, place, [position - 1, offset], [line])
                elif position is not None and offset > position:
                    self.gaps.append(Gap(SKIPPED_POLL, place, position, offset, line, process, one.committed_only))
                position = offset + 1
                number = self._find(place, offset, value, flag, line)
                txn = self.values.txn[number] if number != NOWHERE and flag == SEEN else NOWHERE
                if txn != NOWHERE and self.txns[txn].state == OPEN:
                    self.early.setdefault(number, (line, process))
            if position is not None:
                one.positions[place] = position

    def _resume(self, one: Consuming, place: int, offset: int, line: int, process: str) -> int:
        """Returns the highest offset at which a consumer may have begun; beginning below the lowest is a violation."""
        known = one.resuming.pop(place)
        commits = self._commits(one.group, place)
        if offset < known.lowest:
            evidence = f"{process} began at {offset}, and {one.group} had committed {known.lowest}"
            self.violate(RESUMED_BELOW, evidence, place, [known.lowest, offset], [commits.newest_line, line])
        # It is at most this; offsets skipped after it are checked at the end.
        return min(max(known.own, *commits.offsets()), offset)

    def _shared(self, place: int, offset: int, value: int, committed_only: bool, line: int) -> None:
        """Notes that a member of a share group got a record."""
        number = self._find(place, offset, value, SEEN if committed_only else GLIMPSED, line)
        txn = self.values.txn[number] if number != NOWHERE and committed_only else NOWHERE
        if txn != NOWHERE and self.txns[txn].state == OPEN:
            self.early.setdefault(number, (line, "a share group"))

    def _on_read(self, line: int, type: str, event: Event) -> None:
        flag = READ if event["isolation"] == COMMITTED_ONLY else GLIMPSED
        one = self.consumer(f"{event['process']} {event['isolation']}")
        for partition, records in event["records"].items():
            place = self.place(partition)
            self.report.counts["records read"] += len(records)
            position = one.positions.get(place, 0)
            for offset, value in records:
                if offset < position:
                    evidence = f"the last reading was at {position} and got {offset}"
                    self.violate(BACKWARD_POLL, evidence, place, [position - 1, offset], [line])
                position = offset + 1
                self._find(place, offset, value, flag, line)
            one.positions[place] = position

    def _on_read_end(self, line: int, type: str, event: Event) -> None:
        if event["isolation"] == COMMITTED_ONLY:
            self.ends.update({self.place(partition): end for partition, end in event["ends"].items()})

    # -- groups

    def _commits(self, group: str | None, place: int) -> Commits:
        return self.commits.setdefault((group or "", place), Commits())

    def _on_assign(self, line: int, type: str, event: Event) -> None:
        one = self.consumer(event["process"])
        one.group = event.get("group", one.group)
        for partition in event["partitions"]:
            place = self.place(partition)
            # If no other member had it meanwhile, some clients continue at their position, committed or not.
            is_own = self.owners.get((one.group, place)) == event["process"]
            own = one.positions.get(place, NOWHERE) if is_own else NOWHERE
            self.owners[one.group, place] = event["process"]
            one.positions[place] = RESUMES if one.group else 0
            one.resuming[place] = Resuming(min(self._commits(one.group, place).offsets()), own)

    def _on_revoke(self, line: int, type: str, event: Event) -> None:
        """A consumer keeps the partition until another gets it: its late polls and commits are judged by that."""

    def _on_seek(self, line: int, type: str, event: Event) -> None:
        one, place = self.consumer(event["process"]), self.place(event["partition"])
        if event["offset"] is None:
            one.positions[place] = RESUMES
            one.resuming[place] = Resuming(min(self._commits(one.group, place).offsets()), NOWHERE)
        else:
            one.positions[place] = event["offset"]

    def _beyond(self, line: int, event: Event) -> None:
        """Checks that a consumer has polled what it commits."""
        one = self.consumer(event["process"])
        for partition, offset in event["offsets"].items():
            place = self.place(partition)
            position = one.positions.get(place, RESUMES)
            if position == RESUMES:
                own = one.resuming[place].own if place in one.resuming else NOWHERE
                position = max(own, *self._commits(event["group"], place).offsets())
            if offset > position:
                gap = Gap(COMMIT_BEYOND, place, position, offset, line, event["process"], one.committed_only)
                self.gaps.append(gap)

    def _on_commit_offsets(self, line: int, type: str, event: Event) -> None:
        one = self.consumer(event["process"])
        if type == "invoke":
            self._beyond(line, event)
            for partition, offset in event["offsets"].items():
                commits = self._commits(event["group"], self.place(partition))
                one.pending.append((commits, commits.begin(offset, line)))
            return
        self.report.counts[f"commits of offsets: {type}"] += 1
        self._settle(one.pending, type, line, event["at"])
        one.pending = []

    @staticmethod
    def _settle(pending: Iterable[tuple[Commits, Commit]], type: str, line: int, at: float) -> None:
        for commits, commit in pending:
            if type == "ok":
                commits.acknowledge(commit, line, at)
            elif type == "fail":
                commits.drop(commit)
            else:
                commit.unknown_at = at

    def _on_committed(self, line: int, type: str, event: Event) -> None:
        group = event["group"]
        found = {self.place(partition): offset for partition, offset in event["offsets"].items()}
        known = {place for one, place in self.commits if one == group}
        for place in sorted(known | found.keys()):
            commits = self._commits(group, place)
            may = commits.offsets()
            offset = max(found.get(place, NOWHERE), 0 if not commits.has_begun else NOWHERE)
            if offset not in may:
                evidence = f"{group} has committed {offset}, and not one of {sorted(may)}"
                self.violate(LOST_COMMIT, evidence, place, sorted(may), [commits.newest_line, line])

    def _on_drained(self, line: int, type: str, event: Event) -> None:
        self.drained.append((event["source"], event["target"], line))

    # -- transactions

    def _on_init(self, line: int, type: str, event: Event) -> None:
        process, name = event["process"], event["transactional_id"]
        if type == "invoke":
            self.init_lines[process, name] = line
        if type != "ok":
            return
        self.fenced.pop(process, None)
        holders = self.holders.setdefault(name, {})
        for other, since in list(holders.items()):
            # A process that got it during this request may be the newer one.
            if other != process and since < self.init_lines[process, name]:
                del holders[other]
                self.fenced[other] = line
                if (txn := self.current.get(other)) is not None and txn.state == OPEN:
                    txn.is_doomed = True
        holders[process] = line

    def _on_begin(self, line: int, type: str, event: Event) -> None:
        txn = Transaction(event["txn"], event["process"], event["transactional_id"], line)
        if txn.name in self.txn_numbers:
            raise ValueError(f"a second transaction {txn.name}")
        txn.is_doomed = txn.process in self.fenced
        self.txn_numbers[txn.name] = len(self.txns)
        self.txns.append(txn)
        self.current[txn.process] = txn

    def _txn(self, event: Event) -> Transaction:
        return self.txns[self.txn_numbers[event["txn"]]]

    def _on_send_offsets(self, line: int, type: str, event: Event) -> None:
        if type == "invoke":
            self._beyond(line, event)
            offsets = {(event["group"], self.place(p)): offset for p, offset in event["offsets"].items()}
            self._txn(event).offsets.update(offsets)

    def _on_commit(self, line: int, type: str, event: Event) -> None:
        txn = self._txn(event)
        if type == "invoke":
            txn.commit_line = line
            if not txn.is_doomed:
                txn.state = COMMITTING
                self._begin_commits(txn, line)
            return
        if type == "ok" and txn.is_doomed:
            self._begin_commits(txn, line)
        self.report.counts[f"transactions: commit {type}"] += 1
        self._settle(txn.pending, type, line, event["at"])
        if type == "ok":
            if txn.is_doomed and (txn.values or txn.offsets):
                lines = (self.fenced.get(txn.process, txn.line), txn.commit_line, line)
                self.violate(ZOMBIE, f"{txn.process} had been fenced, but committed {txn.name}", lines=lines)
            self._end(txn, COMMITTED, line)
        elif type == "fail":
            self._end(txn, ABORTED, line)

    def _begin_commits(self, txn: Transaction, line: int) -> None:
        for (group, place), offset in txn.offsets.items():
            commits = self._commits(group, place)
            txn.pending.append((commits, commits.begin(offset, line)))

    def _on_abort(self, line: int, type: str, event: Event) -> None:
        if type == "invoke":
            return
        self.report.counts[f"transactions: abort {type}"] += 1
        if type == "ok" and (txn := self._txn(event)).state != COMMITTED:
            self._settle(txn.pending, "fail", line, event["at"])
            self._end(txn, ABORTED, line)

    @staticmethod
    def _end(txn: Transaction, state: str, line: int) -> None:
        txn.state, txn.end_line, txn.pending = state, line, []
