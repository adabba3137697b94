"""A small model of a broker and its clients that writes clean histories, which a checker must accept.
A partition's log is a list; an entry is a record or a marker. A transaction takes effect at once when it is committed
or
aborted, with a marker in each of its partitions. Each operation is a method, with the outcome that its client gets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla_testing.history.history import Event

COMMITTED_ONLY, ALL = "read_committed", "read_uncommitted"


@dataclass
class Txn:
    name: str
    state: str = "open"
    partitions: dict[str, int] = field(default_factory=dict)  # first offset in each
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)  # by group


@dataclass
class Entry:
    """One offset; a marker has no value."""

    value: int | None
    txn: Txn | None = None


class Model:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self.logs: dict[str, list[Entry]] = {}
        self.groups: dict[str, dict[str, int]] = {}
        self.holders: dict[str, Sender] = {}
        self.names = 0

    def note(self, process: str, type: str, op: str, **fields: Any) -> Event:
        event = {"process": process, "type": type, "op": op, **fields}
        self.events.append(event)
        return event

    def next(self) -> int:
        self.names += 1
        return self.names

    def log(self, partition: str) -> list[Entry]:
        return self.logs.setdefault(partition, [])

    def fault(self, what: str) -> None:
        self.note("nemesis", "ok", "fault", fault=what)

    def readable(self, partition: str, start: int, committed_only: bool) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for offset, entry in enumerate(self.log(partition)[start:], start):
            state = entry.txn.state if entry.txn else "committed"
            if committed_only and state == "open":
                break
            if entry.value is not None and not (committed_only and state == "aborted"):
                found.append((offset, entry.value))
        return found

    def finish(self) -> list[Event]:
        """Aborts all open transactions, and reads everything to its end with both isolations."""
        for sender in list(self.holders.values()):
            sender.resolve("aborted")
        for isolation in (ALL, COMMITTED_ONLY):
            for partition in sorted(self.logs):
                pairs = self.readable(partition, 0, isolation == COMMITTED_ONLY)
                for at in range(0, len(pairs), 50):
                    records = {partition: [list(pair) for pair in pairs[at : at + 50]]}
                    self.note("reader", "ok", "read", isolation=isolation, records=records)
            ends = {partition: len(log) for partition, log in self.logs.items()}
            self.note("reader", "ok", "read_end", isolation=isolation, ends=ends)
        for group, offsets in self.groups.items():
            self.note("reader", "ok", "committed", group=group, offsets=dict(offsets))
        return self.events


class Sender:
    """One life of a producer; with a transactional id it sends only in transactions."""

    def __init__(self, model: Model, process: str, transactional_id: str | None = None) -> None:
        self.model, self.process, self.transactional_id = model, process, transactional_id
        self.txn: Txn | None = None
        self.waiting: list[Event] = []  # outcomes that it has not received yet
        model.note(process, "ok", "start", client="model", transactional_id=transactional_id)

    @property
    def is_fenced(self) -> bool:
        return self.transactional_id is not None and self.model.holders.get(self.transactional_id) is not self

    def init(self) -> None:
        name = self.transactional_id or ""
        self.model.note(self.process, "invoke", "init", transactional_id=name)
        if (other := self.model.holders.get(name)) is not None:
            other.resolve("aborted")
        self.model.holders[name] = self
        self.model.note(self.process, "ok", "init", transactional_id=name)

    def resolve(self, state: str) -> None:
        """Ends the transaction that is open in the log, if there is one."""
        if self.txn is None or self.txn.state != "open":
            return
        self.txn.state = state
        for partition in self.txn.partitions:
            self.model.log(partition).append(Entry(None))
        if state == "committed":
            for group, offsets in self.txn.offsets.items():
                self.model.groups.setdefault(group, {}).update(offsets)

    def send(
        self, partition: str, outcome: str = "ok", *, late: bool = False, value: int | None = None, **more: Any
    ) -> int:
        """Outcomes: ok; fail; written and lost (both unknown to the client). `late`: delivered by `hear`."""
        value = self.model.next() if value is None else value
        txn = {"txn": self.txn.name} if self.txn else {}
        self.model.note(self.process, "invoke", "send", partition=partition, value=value, **txn, **more)
        if self.is_fenced:
            outcome = "fail"
        offset = len(self.model.log(partition))
        if outcome in ("ok", "written"):
            if self.txn:
                self.txn.partitions.setdefault(partition, offset)
            self.model.log(partition).append(Entry(value, self.txn))
        event = {"process": self.process, "type": outcome, "op": "send", "value": value}
        if outcome == "ok":
            event["offset"] = offset
        else:
            event |= {"type": "fail" if outcome == "fail" else "info", "error": "no response"}
        self.waiting.append(event)
        if not late:
            self.hear()
        return value

    def hear(self) -> None:
        """Delivers the outcomes of its sends."""
        self.model.events += self.waiting
        self.waiting = []

    def begin(self) -> None:
        self.txn = Txn(f"{self.process} {self.model.next()}")
        name = self.transactional_id
        self.model.note(self.process, "ok", "begin", txn=self.txn.name, transactional_id=name)

    def send_offsets(self, group: str, offsets: dict[str, int]) -> None:
        assert self.txn
        what = {"txn": self.txn.name, "group": group, "offsets": offsets}
        self.model.note(self.process, "invoke", "send_offsets", **what)
        if not self.is_fenced:
            self.txn.offsets.setdefault(group, {}).update(offsets)
        self.model.note(self.process, "fail" if self.is_fenced else "ok", "send_offsets", **what)

    def end(self, how: str = "commit", outcome: str = "ok") -> None:
        """`how`: commit or abort. Outcomes: ok; done and undone (both unknown to the client)."""
        assert self.txn
        self.hear()
        txn, is_fenced = self.txn, self.is_fenced
        self.model.note(self.process, "invoke", how, txn=txn.name)
        if not is_fenced and outcome in ("ok", "done"):
            self.resolve("committed" if how == "commit" else "aborted")
        type = "info" if is_fenced or outcome != "ok" else "ok"
        self.model.note(self.process, type, how, txn=txn.name)
        if type == "ok":
            self.txn = None

    def crash(self) -> None:
        """The process sends nothing more; its unfinished requests are in the log, or not."""
        self.waiting = []
        self.model.note(self.process, "ok", "crash")


class Receiver:
    """One life of a consumer."""

    def __init__(self, model: Model, process: str, group: str | None, isolation: str = COMMITTED_ONLY) -> None:
        self.model, self.process, self.group, self.isolation = model, process, group, isolation
        self.positions: dict[str, int] = {}
        model.note(process, "ok", "start", client="model", group=group, isolation=isolation)

    def assign(self, *partitions: str) -> None:
        for partition in partitions:
            self.positions[partition] = self._committed(partition)
        self.model.note(self.process, "ok", "assign", group=self.group, partitions=list(partitions))

    def _committed(self, partition: str) -> int:
        return self.model.groups.get(self.group or "", {}).get(partition, 0)

    def revoke(self, *partitions: str) -> None:
        for partition in partitions:
            del self.positions[partition]
        self.model.note(self.process, "ok", "revoke", partitions=list(partitions))

    def seek(self, partition: str, offset: int | None) -> None:
        self.positions[partition] = self._committed(partition) if offset is None else offset
        self.model.note(self.process, "ok", "seek", partition=partition, offset=offset)

    def poll(self, most: int = 100) -> dict[str, list[list[int]]]:
        records: dict[str, list[list[int]]] = {}
        for partition, position in self.positions.items():
            pairs = self.model.readable(partition, position, self.isolation == COMMITTED_ONLY)[:most]
            if pairs:
                records[partition] = [list(pair) for pair in pairs]
                self.positions[partition] = pairs[-1][0] + 1
        if records:
            self.model.note(self.process, "ok", "poll", records=records)
        return records

    def commit(self, outcome: str = "ok", *, over: bool = False) -> None:
        """Commits its positions. Outcomes: ok, fail, done and undone (both unknown to the client). `over`: also over
        offsets
        without a visible record, such as a marker, as some clients do.
        """
        offsets = dict(self.positions)
        if over:
            for partition, position in offsets.items():
                log = self.model.log(partition)
                while position < len(log) and log[position].value is None:
                    position += 1
                offsets[partition] = position
        self.model.note(self.process, "invoke", "commit_offsets", group=self.group, offsets=offsets)
        if outcome in ("ok", "done"):
            self.model.groups.setdefault(self.group or "", {}).update(offsets)
        type = outcome if outcome in ("ok", "fail") else "info"
        self.model.note(self.process, type, "commit_offsets", group=self.group, offsets=offsets)

    def crash(self) -> None:
        self.model.note(self.process, "ok", "crash")
