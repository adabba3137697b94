"""The nodes that clients see, and the assignment of replicas and leaders to them.

Owns replica placement and leader election, with the rules of Kafka's controller. Each partition has a single log,
whatever its replicas: replicas are labels, so every running replica is in sync at once. Only during a reassignment a
replica that was out of sync joins the ISR later, when `replica_copies.py` reports that it has caught up.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..releases.behaviour import Behaviour
from ..replica.assignment import NO_LEADER, Assignment
from .placement import place

NEWEST = Behaviour()

REPLICAS = 3  # default replication factor, if there are as many nodes


class Nodes:
    """The nodes of one broker process; `stopped` nodes do not run."""

    def __init__(self, own: int, ids: Sequence[int] = (), behaviour: Behaviour = NEWEST) -> None:
        """`own` is the node id of the data directory. It is the only node unless `ids` has several, including `own`.
        `behaviour` has the release's rules of reassignments.
        """
        self.own = own
        self._behaviour = behaviour
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
        """Unregisters a stopped node until it runs again, and no running one; returns whether it was registered."""
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
        leads.

        `is_held`: the partition has no leader. `unclean`: a replica out of sync may lead if none is in sync. Without a
        leader the last in-sync replicas stay in the ISR: only they have all records. During a reassignment no replica
        joins the ISR, except a new leader; `joined` does the rest.

        `least` is min.insync.replicas if there are eligible leader replicas (KIP-966), else 0. Replicas that leave an
        ISR with fewer replicas than that become eligible to lead; then the ISR may be empty.
        """
        return now.after(self._led(now, is_held=is_held, unclean=unclean, least=least))

    def _led(self, now: Assignment, *, is_held: bool, unclean: bool, least: int) -> Assignment:
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
        isr = running
        if now.is_reassigned:
            isr = tuple(node for node in running if node in now.isr or node == leader)
        return _with_eligible(now, now._replace(leader=leader, isr=isr), least)

    @staticmethod
    def _last_resort(now: Assignment, running: Sequence[int], *, unclean: bool) -> int:
        """Returns the leader of a partition of which no running replica has all records: the last known one if the ISR
        is empty, or any with `unclean`, or NO_LEADER.
        """
        if not now.isr and not now.eligible and now.last_known and now.last_known[0] in running:
            return now.last_known[0]
        return running[0] if running and unclean else NO_LEADER

    def lagging(self, now: Assignment) -> tuple[int, ...]:
        """Returns the running replicas of a reassignment in progress that have to catch up with the leader."""
        if not now.is_reassigned or now.leader == NO_LEADER:
            return ()
        return tuple(node for node in now.replicas if self.runs(node) and node not in now.isr)

    def joined(self, now: Assignment, caught_up: Collection[int], *, least: int = 0) -> Assignment:
        """Returns the assignment after these replicas of a reassignment joined the ISR, which may complete it. `least`
        is that of `elected`.
        """
        isr = tuple(node for node in now.replicas if node in now.isr or node in caught_up)
        made = _with_eligible(now, now._replace(isr=isr), least)
        return now.after(self._completed(made, is_held=False, least=least))

    def _completed(self, now: Assignment, *, is_held: bool, least: int) -> Assignment:
        """Returns the assignment after the end of a reassignment, or itself if it continues. A leader that is removed
        hands over to the first of the others.
        """
        isr = tuple(node for node in now.isr if node not in now.removing)
        awaits, are_fewer = self._behaviour.reassignment_awaits, len(now.adding) < len(now.removing)
        awaited = set(now.target if awaits == "target" else now.adding)
        if awaits == "adding_if_not_fewer" and are_fewer:
            awaited.update(now.target)
        if not now.is_reassigned or not isr or not awaited <= set(isr):
            return now
        eligible = tuple(node for node in now.eligible if node in now.target)
        made = now._replace(replicas=now.target, isr=isr, adding=(), removing=(), eligible=eligible)
        return self._led(made, is_held=is_held, unclean=False, least=least)

    def reassigned(self, now: Assignment, target: Sequence[int], *, is_held: bool, least: int = 0) -> Assignment:
        """Returns the assignment at the beginning of a reassignment: old and new replicas, until the new ones are in
        sync (KIP-455). Without new ones it completes at once. `least` is that of `elected`.

        The two controllers differ if a reassignment is in progress. With ZooKeeper the new one replaces it. A KRaft
        controller adds to it: replicas being added stay and count as old ones, and an empty list of replicas to add or
        to remove leaves the present list.
        """
        isr = now.isr
        if self._behaviour.controls_as_kraft:
            removed = tuple(sorted(set(now.replicas) - set(target)))
            adding, removing = tuple(sorted(set(target) - set(now.replicas))) or now.adding, removed or now.removing
            replicas = (*target, *removed)
        else:
            old = [node for node in now.replicas if node not in now.adding]
            replicas = (*target, *(node for node in old if node not in target))
            adding = tuple(node for node in replicas if node not in old)
            removing = tuple(node for node in replicas if node not in target)
            isr = tuple(node for node in now.isr if node in replicas) or replicas[:1]
        made = now._replace(replicas=replicas, isr=isr, adding=adding, removing=removing)
        made = self._led(made, is_held=is_held, unclean=False, least=least)
        return now.after(self._completed(made, is_held=is_held, least=least))

    def reverted(self, now: Assignment, *, is_held: bool, unclean: bool, least: int = 0) -> Assignment | None:
        """Returns the assignment without its reassignment. None if no replica would be in sync, unless `unclean`."""
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
