"""Members of groups as processes, so that one can be killed: their current partitions, and all their records."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ottla_testing.clients.group_member import HEARTBEAT_MS, SESSION_TIMEOUT_MS
from ottla_testing.patience import PATIENCE_S

PROGRAM = Path(__file__).with_name("group_member.py")
KCAT_ASSIGNMENT = re.compile(r"% Group .* rebalanced \(memberid .*\): (assigned|revoked): (.*)")


class Members:
    """Starts members and waits for their progress; `changed` is called with every line of a member."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        self.address, self.group, self.topic = address, group, topic
        self.all: list[Member] = []
        self.changed = threading.Condition()

    def start(self, kind: str, **settings: str) -> Member:
        member = Member(self, kind, [f"{name}={value}" for name, value in settings.items()])
        self.all.append(member)
        return member

    def wait_for(self, what: Callable[[], object]) -> None:
        """Returns when `what` is true; fails with all printed lines if that does not happen."""
        with self.changed:
            if self.changed.wait_for(what, PATIENCE_S):
                return
        raise AssertionError("\n".join(f"{m.kind}: {sorted(m.held)}\n{''.join(m.printed[-30:])}" for m in self.all))

    def wait_for_shares(self, members: Sequence[Member], share: int) -> None:
        """Waits until each of the members holds `share` partitions, all of them different."""
        self.wait_for(lambda: all(len(m.held) == share for m in members) and not shared(members))

    @property
    def values(self) -> set[str]:
        """Returns the values of all records that any member has read."""
        return {value for member in self.all for _, _, value in member.records}


def shared(members: Sequence[Member]) -> set[int]:
    seen: set[int] = set()
    return {p for m in members for p in m.held if p in seen or seen.add(p)}


class Member:
    """One process. `held` are its current partitions, `records` all it has read, `printed` its lines."""

    def __init__(self, members: Members, kind: str, settings: Sequence[str]) -> None:
        self.kind = kind
        self.held: set[int] = set()
        self.revoked: list[set[int]] = []
        self.records: list[tuple[int, int, str]] = []
        self.errors: list[str] = []
        self.printed: list[str] = []
        self._members = members
        where = (members.address, members.group, members.topic)
        command = _kcat(*where) if kind == "kcat" else [sys.executable, str(PROGRAM), kind, *where, *settings]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._readers = [
            threading.Thread(target=self._read, args=(stream,)) for stream in (self.process.stdout, self.process.stderr)
        ]
        for reader in self._readers:
            reader.start()

    def leave(self) -> None:
        """Stops the process with SIGTERM: it leaves the group."""
        self.process.terminate()
        self._gone()
        assert self.process.returncode == 0, "".join(self.printed)

    def kill(self) -> None:
        """Kills the process (-9): the group notices after the session timeout."""
        self.process.kill()
        self._gone()

    def _gone(self) -> None:
        self.process.wait(PATIENCE_S)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream
            stream.close()

    def _read(self, stream: Iterator[str]) -> None:
        for line in stream:
            with self._members.changed:
                self.printed.append(line)
                event = _kcat_event(line) if self.kind == "kcat" else _event(line)
                if partitions := event.get("assigned"):
                    self.held |= set(partitions)
                if partitions := event.get("revoked"):
                    self.held -= set(partitions)
                    self.revoked.append(set(partitions))
                if record := event.get("record"):
                    self.records.append((record[0], record[1], record[2]))
                if error := event.get("error"):
                    self.errors.append(error)
                self._members.changed.notify_all()


def _event(line: str) -> dict:
    with contextlib.suppress(ValueError):
        return json.loads(line)
    return {}


def _kcat(address: str, group: str, topic: str) -> list[str]:
    settings = {
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 100,
        "fetch.wait.max.ms": 100,
    }
    options = [text for name, value in settings.items() for text in ("-X", f"{name}={value}")]
    return ["kcat", "-b", address, *options, "-u", "-f", r"%p %o %s\n", "-G", group, topic]


def _kcat_event(line: str) -> dict:
    if match := KCAT_ASSIGNMENT.match(line):
        return {match[1]: [int(number) for number in re.findall(r"\[(\d+)\]", match[2])]}
    if match := re.fullmatch(r"(\d+) (\d+) (.*)\n", line):
        return {"record": [int(match[1]), int(match[2]), match[3]]}
    return {"error": line.strip()} if line.startswith("% ERROR") else {}


@contextlib.contextmanager
def members(address: str, group: str, topic: str) -> Iterator[Members]:
    """Members, all of which end with the test."""
    made = Members(address, group, topic)
    try:
        yield made
    finally:
        for member in made.all:
            member.kill()
