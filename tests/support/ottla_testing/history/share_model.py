"""A small model of a share group that writes clean histories, beside the logs of `log_model`.

Locks end by the model's clock, `now`. Each operation is a method with the outcome that its client gets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla_testing.history.history import Event
from ottla_testing.history.log_model import Model
from ottla_testing.history.shares import ACCEPT, NOT_OWNED, RELEASE, RENEW, configs_of

LIMIT, LOCKS, LOCK_S = 3, 4, 1.0
Where = tuple[str, int]


@dataclass
class Shared:
    """A record of a share group: its delivery count, the stored one, its owner, and whether it is done."""

    count: int = 0
    stored: int = 0
    owner: str = ""
    until: float = 0.0
    is_done: bool = False


class ShareModel(Model):
    """The logs, and the records of one share group."""

    def __init__(self, group: str = "sharers") -> None:
        super().__init__()
        self.group = group
        self.now = 0.0
        self.shared: dict[Where, Shared] = {}
        self.open: set[str] = set()  # sessions

    def note(self, process: str, type: str, op: str, **fields: Any) -> Event:
        self.now += 0.001
        return super().note(process, type, op, at=self.now, **fields)

    def state(self, where: Where) -> Shared:
        return self.shared.setdefault(where, Shared())

    def free(self, where: Where) -> None:
        """Ends a lock: its delivery count is stored, and after the last delivery the record is archived."""
        one = self.shared[where]
        one.owner, one.stored, one.is_done = "", one.count, one.count >= LIMIT

    def expire(self) -> None:
        for where, one in self.shared.items():
            if one.owner and one.until <= self.now:
                self.free(where)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.expire()

    def close(self, session: str) -> None:
        """Ends a session: its records are released."""
        self.open.discard(session)
        for where, one in self.shared.items():
            if one.owner == session:
                self.free(where)

    def crash(self) -> None:
        """The broker is killed: locks and counts that are not stored are lost."""
        self.fault("kill")
        self.open.clear()
        for one in self.shared.values():
            one.owner, one.count = "", one.stored
        self.fault("start")

    def move(self) -> None:
        """The leaders move: locks and counts are lost as in a crash, but sessions stay."""
        self.fault("move")
        for one in self.shared.values():
            one.owner, one.count = "", one.stored
        self.fault("moved")

    def available(self, partition: str) -> list[tuple[int, int]]:
        """Returns (offset, value) of the records that can be acquired, within the limit of records in flight."""
        records = [pair for pair in self.readable(partition, 0, False)]
        undone = [pair for pair in records if not self.state((partition, pair[0])).is_done]
        window = [pair for pair in undone if pair[0] < undone[0][0] + LOCKS]
        return [pair for pair in window if not self.state((partition, pair[0])).owner]

    def drain(self, *partitions: str) -> None:
        """Lets a new member accept everything."""
        self.wait(LOCK_S)
        for session in sorted(self.open):
            self.close(session)
        last = Sharer(self, "drain")
        while any(self.available(partition) for partition in partitions):
            for partition in partitions:
                last.fetch(partition)
            last.acknowledge({where: ACCEPT for where in last.held})
        for topic in sorted({partition.rpartition("-")[0] for partition in partitions}):
            self.note("drain", "ok", "share_drained", group=self.group, topic=topic)


class Sharer:
    """A member of the share group, with one session at a time."""

    def __init__(self, model: ShareModel, process: str) -> None:
        self.model, self.process = model, process
        self.sessions = 0
        self.session = ""
        self.held: list[Where] = []
        configs = configs_of(LIMIT, LOCKS, LOCK_S, "read_uncommitted")
        model.note(process, "ok", "start", client="model", group=model.group, share=configs)
        self.renew_session()

    def renew_session(self) -> None:
        self.sessions += 1
        self.session = f"{self.process}/{self.sessions}"
        self.held = []
        self.model.open.add(self.session)

    @property
    def known(self) -> dict[str, str]:
        return {"group": self.model.group, "session": self.session}

    def fetch(self, partition: str, most: int = 3, outcome: str = "ok") -> None:
        """Outcomes: ok; unseen (acquired, but the response is lost); lost (the request is)."""
        model = self.model
        model.note(self.process, "invoke", "share_fetch", **self.known)
        is_open = self.session in model.open
        model.expire()
        records: list[list[int]] = []
        for offset, value in model.available(partition)[:most] if is_open and outcome != "lost" else ():
            one = model.state((partition, offset))
            one.count, one.owner, one.until = one.count + 1, self.session, model.now + LOCK_S
            records.append([offset, value, one.count])
        if outcome == "ok" and is_open:
            model.note(self.process, "ok", "share_fetch", records={partition: records})
            self.held += [(partition, offset) for offset, _, _ in records]
        else:
            model.note(self.process, "info", "share_fetch", error="the connection is lost")
            model.close(self.session)
            self.renew_session()

    def acknowledge(self, kinds: dict[Where, int], outcome: str = "ok") -> None:
        """Outcomes: ok (or refused, by the state of the records); done and undone (both unknown to the client)."""
        model = self.model
        acks: dict[str, list[list[int]]] = {}
        for (partition, offset), kind in sorted(kinds.items()):
            acks.setdefault(partition, []).append([offset, kind])
        model.note(self.process, "invoke", "share_ack", **self.known, acks=acks)
        began = model.now
        is_open = self.session in model.open
        model.expire()
        results: dict[str, str | None] = {}
        for partition, pairs in acks.items() if is_open and outcome != "undone" else ():
            owned = all(model.state((partition, offset)).owner == self.session for offset, _ in pairs)
            results[partition] = None if owned else NOT_OWNED
            for offset, kind in pairs if owned else ():
                self._settle((partition, offset), kind, began)
        self.held = [where for where in self.held if kinds.get(where, RENEW) == RENEW]
        if outcome == "ok" and is_open:
            model.note(self.process, "ok", "share_ack", partitions=results)
        else:
            model.note(self.process, "info", "share_ack", error="the connection is lost")
            model.close(self.session)
            self.renew_session()

    def _settle(self, where: Where, kind: int, began: float) -> None:
        one = self.model.shared[where]
        if kind == RENEW:
            one.until = began + LOCK_S + 0.0005
        elif kind == RELEASE:
            self.model.free(where)
        else:
            one.owner, one.is_done = "", True

    def die(self) -> None:
        """Its process is killed during a fetch."""
        self.model.note(self.process, "invoke", "share_fetch", **self.known)
        self.model.close(self.session)
        self.model.note(self.process, "ok", "crash")
