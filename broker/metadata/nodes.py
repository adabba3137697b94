"""The nodes that clients see, and the assignment of replicas and leaders to them.

Owns replica placement and leader election, with the rules of Kafka's controller. Each partition has a single log,
whatever its replicas: replicas are labels, so every running replica is in sync at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..replica.assignment import NO_LEADER, Assignment
from .placement import place

REPLICAS = 3  # default replication factor, if there are as many nodes


class Nodes:
    """The nodes of one broker process; `stopped` nodes do not run."""

    def __init__(self, own: int, ids: Sequence[int] = ()) -> None:
        """`own` is the node id of the data directory. It is the only node unless `ids` has several, including `own`."""
        self.own = own
        self.is_cluster = len(ids) > 1
        """Whether clients see more than one node."""
        self.ids: tuple[int, ...] = tuple(sorted(ids)) if self.is_cluster else (own,)
        self.stopped: set[int] = set()
        self.unregistered: set[int] = set()
        """Stopped nodes that are no longer reported to clients."""
        self.racks: dict[int, str | None] = dict.fromkeys(self.ids)
        """The rack of each node, or None."""

    @property
    def running(self) -> list[int]:
        """Ids of the running nodes."""
        return [node for node in self.ids if node not in self.stopped]

    @property
    def controller(self) -> int:
        """The node reported as controller; every node accepts changes."""
        return self.own if not self.is_cluster else next(iter(self.running), NO_LEADER)

    def runs(self, node_id: int) -> bool:
        """Returns whether the node exists and runs."""
        return node_id in self.ids and node_id not in self.stopped

    def unregister(self, node_id: int) -> bool:
        """Unregisters a stopped node until it runs again; returns whether it was registered. A running node stays
        registered.
        """
        if node_id not in self.ids or node_id in self.unregistered:
            return False
        if node_id in self.stopped:
            self.unregistered.add(node_id)
        return True

    def place(self, count: int, factor: int, first: int) -> list[tuple[int, ...]]:
        """Returns replicas for `count` new partitions: spread over racks, then over nodes, the preferred leader first.
        `first` is where their rotation starts.
        """
        return place(count, factor, first, self.racks, self.stopped)

    def preferred(self, now: Assignment, rack: str) -> int | None:
        """Returns the replica from which a consumer in `rack` is to read, as Kafka's RackAwareReplicaSelector: one in
        sync in that rack. None for the leader: if it is in that rack, or no other replica is (KIP-392).
        """
        if self.racks.get(now.leader) == rack:
            return None
        return max((node for node in now.isr if self.runs(node) and self.racks[node] == rack), default=None)

    @property
    def has_racks_in_part(self) -> bool:
        """Whether some nodes have a rack and others have none."""
        return len({rack is None for rack in self.racks.values()}) > 1

    def problem_of(self, replicas: Sequence[int]) -> str | None:
        """Returns the controller's error message if these replicas are invalid, or None."""
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
        """Returns the assignment of a new partition with these replicas; the first running one is the leader."""
        running = tuple(filter(self.runs, replicas))
        if not running:
            return Assignment(tuple(replicas), tuple(replicas), NO_LEADER, leader_epoch)
        return Assignment(tuple(replicas), running, running[0], leader_epoch)

    def found(self, stored: Assignment) -> Assignment:
        """Adapts a stored assignment to the present nodes. A single node has and leads every partition."""
        if not self.is_cluster:
            return Assignment(self.ids, self.ids, self.own, stored.leader_epoch, stored.partition_epoch)
        if set(stored.replicas) <= set(self.ids) and stored.replicas:
            return stored
        replicas = tuple(node for node in stored.target if node in self.ids) or (self.own,)
        isr = tuple(node for node in stored.isr if node in replicas) or replicas
        leader = stored.leader if stored.leader in isr else NO_LEADER
        return Assignment(replicas, isr, leader, stored.leader_epoch, stored.partition_epoch)

    def elected(self, now: Assignment, *, is_held: bool, unclean: bool, least: int = 0) -> Assignment:
        """Returns the assignment after an election: a running leader in sync stays, otherwise the first replica in sync
        leads. A reassignment whose new replicas are all in sync completes.

        `is_held`: the partition has no leader. `unclean`: a replica out of sync may lead if none is in sync. Without a
        leader the last in-sync replicas stay in the ISR: only they have all records.

        `least` is min.insync.replicas if there are eligible leader replicas (KIP-966), else 0. Replicas that leave an
        ISR with fewer replicas than that become eligible to lead; then the ISR may be empty.
        """
        return now.after(self._led(now, is_held=is_held, unclean=unclean, least=least))

    def _led(self, now: Assignment, *, is_held: bool, unclean: bool, least: int, ends: bool = True) -> Assignment:
        running = tuple(filter(self.runs, now.replicas))
        clean = [node for node in running if node in now.isr or node in now.eligible]
        leader = now.leader
        if is_held:
            leader = NO_LEADER
        elif leader not in clean:
            leader = clean[0] if clean else self._last_resort(now, running, unclean=unclean)
        if leader == NO_LEADER:
            in_sync = tuple(node for node in running if node in now.isr)
            isr = () if least else in_sync or now.isr if is_held else now.isr
            return _with_eligible(now, now._replace(leader=leader, isr=isr), least)
        made = now._replace(leader=leader, isr=running)
        if ends and now.is_reassigned and set(now.target) <= set(running):
            isr = tuple(node for node in running if node not in now.removing)
            leader = leader if leader in isr else isr[0]
            made = now._replace(replicas=now.target, isr=isr, leader=leader, adding=(), removing=())
        return _with_eligible(now, made, least)

    @staticmethod
    def _last_resort(now: Assignment, running: Sequence[int], *, unclean: bool) -> int:
        """Returns the leader of a partition of which no running replica has all records: the last known one if the ISR
        is empty, or any with `unclean`, or NO_LEADER.
        """
        if not now.isr and not now.eligible and now.last_known and now.last_known[0] in running:
            return now.last_known[0]
        return running[0] if running and unclean else NO_LEADER

    def reassigned(
        self, now: Assignment, target: Sequence[int], *, is_held: bool, unclean: bool, least: int = 0
    ) -> Assignment:
        """Returns the assignment during a reassignment: old and new replicas, until all new ones run and `elected`
        completes it (KIP-455). A mere change of order takes effect at once.
        """
        made = now._replace(
            replicas=(*target, *sorted(set(now.replicas) - set(target))),
            adding=tuple(sorted(set(target) - (set(now.replicas) - set(now.adding)))),
            removing=tuple(sorted(set(now.replicas) - set(target))),
        )
        return now.after(self._led(made, is_held=is_held, unclean=unclean, least=least, ends=False))

    def reverted(self, now: Assignment, *, is_held: bool, unclean: bool, least: int = 0) -> Assignment | None:
        """Returns the assignment after cancelling the reassignment. None if no replica would be in sync, unless
        `unclean`.
        """
        replicas = tuple(node for node in now.replicas if node not in now.adding)
        isr = tuple(node for node in now.isr if node in replicas)
        if not isr and not unclean:
            return None
        leader = now.leader if now.leader in replicas else NO_LEADER
        made = now._replace(replicas=replicas, isr=isr or replicas[:1], leader=leader, adding=(), removing=())
        return now.after(self._led(made, is_held=is_held, unclean=unclean, least=least))


def _with_eligible(before: Assignment, made: Assignment, least: int) -> Assignment:
    """Returns `made` with its eligible leader replicas and its last known leader."""
    if made.leader != NO_LEADER:
        made = made._replace(last_known=())
    elif least and before.leader != NO_LEADER and not before.last_known:
        made = made._replace(last_known=(before.leader,))
    if not least and made.leader == NO_LEADER:
        return made  # the eligible ones can still lead
    if len(made.isr) >= min(least, len(made.replicas)):
        return made._replace(eligible=())
    had = {*before.isr, *before.eligible}
    # Without a clean leader nothing is known of the others.
    is_clean = made.leader == NO_LEADER or bool(had & set(made.isr))
    eligible = (had & set(made.replicas)) - set(made.isr) if is_clean else ()
    return made._replace(eligible=tuple(sorted(eligible)))
