"""The nodes that clients see: their ids, which of them run, and the replicas that partitions get on them.

Owns placement and the election of leaders, as a controller of Kafka has them. There is one log of each partition,
whatever its replicas are: these are labels, so whoever runs is in sync at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

NO_LEADER = -1
REPLICAS = 3  # of each partition where there are so many nodes and nothing else is asked for


class Assignment(NamedTuple):
    """Who has a partition: node ids in order of preference, those in sync, and the leader with its epoch."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0

    def next(self, leader: int, isr: Iterable[int], replicas: tuple[int, ...] | None = None) -> Assignment:
        """What it becomes with another leader, or others in sync; itself where nothing changes."""
        made = self._replace(leader=leader, isr=tuple(isr), replicas=self.replicas if replicas is None else replicas)
        if made == self:
            return self
        epoch = self.leader_epoch + (leader != self.leader)
        return made._replace(leader_epoch=epoch, partition_epoch=self.partition_epoch + 1)


class Nodes:
    """The nodes of one broker; `stopped` are those of them that do not run."""

    def __init__(self, own: int, count: int = 1) -> None:
        """`own` is the id of the data directory, the only one where there is one node; several are 1 to `count`."""
        self.own = own
        self.ids: tuple[int, ...] = (own,) if count == 1 else tuple(range(1, count + 1))
        self.is_cluster = count > 1
        """Whether clients see more than one."""
        self.stopped: set[int] = set()

    @property
    def running(self) -> list[int]:
        """Those that run."""
        return [node for node in self.ids if node not in self.stopped]

    @property
    def controller(self) -> int:
        """The one that clients are told to ask for changes; any of them does them."""
        return self.own if not self.is_cluster else next(iter(self.running), NO_LEADER)

    def place(self, count: int, factor: int, first: int) -> list[tuple[int, ...]]:
        """Replicas of `count` new partitions, the preferred leaders one after the other; `first` is where to go on.
        As in Kafka nodes that are stopped get none before all that run have theirs."""
        running = self.running
        return [
            (*_turned(running, first + index), *_turned(sorted(self.stopped), first + index))[:factor]
            for index in range(count)
        ]

    def assigned(self, replicas: Sequence[int], leader_epoch: int = 0) -> Assignment:
        """A new partition with these replicas; led by the first that runs."""
        running = tuple(node for node in replicas if node not in self.stopped)
        if not running:
            return Assignment(tuple(replicas), tuple(replicas), NO_LEADER, leader_epoch)
        return Assignment(tuple(replicas), running, running[0], leader_epoch)

    def found(self, stored: Assignment) -> Assignment:
        """What was written down when there may have been other nodes than now. A lone one has and leads all."""
        if not self.is_cluster:
            return stored._replace(replicas=self.ids, isr=self.ids, leader=self.own)
        if set(stored.replicas) <= set(self.ids) and stored.replicas:
            return stored
        replicas = tuple(node for node in stored.replicas if node in self.ids) or (self.own,)
        isr = tuple(node for node in stored.isr if node in replicas) or replicas
        leader = stored.leader if stored.leader in isr else NO_LEADER
        return stored._replace(replicas=replicas, isr=isr, leader=leader)

    def elected(self, now: Assignment, *, is_held: bool, unclean: bool) -> Assignment:
        """What a partition becomes as its nodes are now: a leader that runs stays, else the first one in sync leads.

        `is_held`: it is to have no leader. `unclean`: one that is not in sync may lead rather than nobody. Where nobody
        does, those who were in sync last stay so: they alone have all that was written.
        """
        running = tuple(node for node in now.replicas if node not in self.stopped)
        in_sync = [node for node in running if node in now.isr]
        if is_held:
            return now.next(NO_LEADER, in_sync or now.isr)
        leader = now.leader
        if leader not in in_sync:
            leader = in_sync[0] if in_sync else running[0] if running and unclean else NO_LEADER
        return now.next(leader, now.isr if leader == NO_LEADER else running)


def _turned(ids: Sequence[int], by: int) -> tuple[int, ...]:
    """The same in the same order, beginning with another one."""
    start = by % len(ids) if ids else 0
    return (*ids[start:], *ids[:start])
