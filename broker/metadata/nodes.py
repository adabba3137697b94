"""The nodes that clients see: their ids, which of them run, and the replicas that partitions get on them.

Owns placement and the election of leaders, as a controller of Kafka has them. There is one log of each partition,
whatever its replicas are: these are labels, so whoever runs is in sync at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..replica.assignment import NO_LEADER, Assignment

REPLICAS = 3  # of each partition where there are so many nodes and nothing else is asked for


class Nodes:
    """The nodes of one broker; `stopped` are those of them that do not run."""

    def __init__(self, own: int, ids: Sequence[int] = ()) -> None:
        """`own` is the id of the data directory, the only one unless `ids` names several, `own` among them."""
        self.own = own
        self.is_cluster = len(ids) > 1
        """Whether clients see more than one."""
        self.ids: tuple[int, ...] = tuple(sorted(ids)) if self.is_cluster else (own,)
        self.stopped: set[int] = set()
        self.unregistered: set[int] = set()
        """Those of the stopped ones of which clients hear nothing any more."""

    @property
    def running(self) -> list[int]:
        """Those that run."""
        return [node for node in self.ids if node not in self.stopped]

    @property
    def controller(self) -> int:
        """The one that clients are told to ask for changes; any of them does them."""
        return self.own if not self.is_cluster else next(iter(self.running), NO_LEADER)

    def runs(self, node_id: int) -> bool:
        """Whether there is such a node and it runs."""
        return node_id in self.ids and node_id not in self.stopped

    def unregister(self, node_id: int) -> bool:
        """Forgets a node until it runs again; whether it was known. One that runs does not stay forgotten."""
        if node_id not in self.ids or node_id in self.unregistered:
            return False
        if node_id in self.stopped:
            self.unregistered.add(node_id)
        return True

    def place(self, count: int, factor: int, first: int) -> list[tuple[int, ...]]:
        """Replicas of `count` new partitions, the preferred leaders one after the other; `first` is where to go on.
        As in Kafka nodes that are stopped get none before all that run have theirs."""
        running = self.running
        return [
            (*_turned(running, first + index), *_turned(sorted(self.stopped), first + index))[:factor]
            for index in range(count)
        ]

    def problem_of(self, replicas: Sequence[int]) -> str | None:
        """Why these cannot be the replicas of a partition, in a controller's words; None if they can."""
        if not replicas:
            return "an empty replica list."
        before = None
        for node in sorted(replicas):
            if node not in self.ids:
                return f"broker {node}, but no such broker is registered."
            if node == before:
                return f"the broker {node} more than once."
            before = node
        return None

    def assigned(self, replicas: Sequence[int], leader_epoch: int = 0) -> Assignment:
        """A new partition with these replicas; led by the first that runs."""
        running = tuple(filter(self.runs, replicas))
        if not running:
            return Assignment(tuple(replicas), tuple(replicas), NO_LEADER, leader_epoch)
        return Assignment(tuple(replicas), running, running[0], leader_epoch)

    def found(self, stored: Assignment) -> Assignment:
        """What was written down when there may have been other nodes than now. A lone one has and leads all."""
        if not self.is_cluster:
            return stored._replace(replicas=self.ids, isr=self.ids, leader=self.own, adding=(), removing=())
        if set(stored.replicas) <= set(self.ids) and stored.replicas:
            return stored
        replicas = tuple(node for node in stored.target if node in self.ids) or (self.own,)
        isr = tuple(node for node in stored.isr if node in replicas) or replicas
        leader = stored.leader if stored.leader in isr else NO_LEADER
        return stored._replace(replicas=replicas, isr=isr, leader=leader, adding=(), removing=())

    def elected(self, now: Assignment, *, is_held: bool, unclean: bool) -> Assignment:
        """What a partition becomes as its nodes are now: a leader that runs stays, else the first one in sync leads.
        A reassignment whose new replicas are all in sync is done.

        `is_held`: it is to have no leader. `unclean`: one that is not in sync may lead rather than nobody. Where nobody
        does, those who were in sync last stay so: they alone have all that was written.
        """
        return now.after(self._led(now, is_held=is_held, unclean=unclean))

    def _led(self, now: Assignment, *, is_held: bool, unclean: bool, ends: bool = True) -> Assignment:
        running = tuple(filter(self.runs, now.replicas))
        in_sync = [node for node in running if node in now.isr]
        if is_held:
            return now._replace(leader=NO_LEADER, isr=tuple(in_sync) or now.isr)
        leader = now.leader
        if leader not in in_sync:
            leader = in_sync[0] if in_sync else running[0] if running and unclean else NO_LEADER
        if leader == NO_LEADER:
            return now._replace(leader=leader)
        if ends and now.is_reassigned and set(now.target) <= set(running):
            isr = tuple(node for node in running if node not in now.removing)
            leader = leader if leader in isr else isr[0]
            return now._replace(replicas=now.target, isr=isr, leader=leader, adding=(), removing=())
        return now._replace(leader=leader, isr=running)

    def reassigned(self, now: Assignment, target: Sequence[int], *, is_held: bool, unclean: bool) -> Assignment:
        """What a partition becomes that is to have these replicas: it has the old and the new ones until `elected`
        finds that all of the new ones run (KIP-455). Replicas that only change their order do so at once."""
        made = now._replace(
            replicas=(*target, *sorted(set(now.replicas) - set(target))),
            adding=tuple(sorted(set(target) - (set(now.replicas) - set(now.adding)))),
            removing=tuple(sorted(set(now.replicas) - set(target))),
        )
        return now.after(self._led(made, is_held=is_held, unclean=unclean, ends=False))

    def reverted(self, now: Assignment, *, is_held: bool, unclean: bool) -> Assignment | None:
        """What it becomes without the reassignment that is under way. None where nobody would be in sync, unless that
        may be (`unclean`)."""
        replicas = tuple(node for node in now.replicas if node not in now.adding)
        isr = tuple(node for node in now.isr if node in replicas)
        if not isr and not unclean:
            return None
        leader = now.leader if now.leader in replicas else NO_LEADER
        made = now._replace(replicas=replicas, isr=isr or replicas[:1], leader=leader, adding=(), removing=())
        return now.after(self._led(made, is_held=is_held, unclean=unclean))


def _turned(ids: Sequence[int], by: int) -> tuple[int, ...]:
    """The same in the same order, beginning with another one."""
    start = by % len(ids) if ids else 0
    return (*ids[start:], *ids[:start])
