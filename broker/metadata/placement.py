"""Placement of the replicas of new partitions on nodes and racks, by the rules of KRaft's StripedReplicaPlacer.

* The replicas of a partition are on different nodes, and on different racks as far as there are any. Nodes without a
  rack are a rack of their own.
* The first replicas are on one rack after the other, and in a rack on one node after the other.
* In a rack, stopped nodes are used only after the running ones. The first replica is on a running node.
* After as many partitions as nodes run, the order of racks and nodes changes, so that other nodes share partitions.

Kafka chooses the first rack and nodes, and later orders, at random. Here they depend on the arguments only: a test that
creates the same topics again gets the same leaders.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random


class _Ring:
    """Nodes that are taken in order for each partition. A partition starts with the node after the previous start."""

    def __init__(self, nodes: Sequence[int], start: int) -> None:
        self.nodes = sorted(nodes)
        self._start = start
        self._taken = 0
        self._number = 0  # of the partition

    def take(self, number: int) -> int | None:
        """Returns the next node for a partition, or None if it has all of them."""
        if number != self._number:
            self._number, self._taken, self._start = number, 0, self._start + 1
        if self._taken == len(self.nodes):
            return None
        self._taken += 1
        return self.nodes[(self._start + self._taken - 1) % len(self.nodes)]


class _Rack:
    def __init__(self, nodes: Collection[int], stopped: Collection[int], start: int) -> None:
        self.running = _Ring([node for node in nodes if node not in stopped], start)
        self.stopped = _Ring([node for node in nodes if node in stopped], start)

    def take(self, number: int) -> int | None:
        node = self.running.take(number)
        return self.stopped.take(number) if node is None else node


def place(
    count: int, factor: int, first: int, racks: Mapping[int, str | None], stopped: Collection[int]
) -> list[tuple[int, ...]]:
    """Returns the replicas of `count` partitions, `factor` each, or all nodes if there are fewer. `racks` has the rack
    of every node. `first` is where the rotation of racks and nodes starts.
    """
    names = sorted(set(racks.values()), key=lambda name: (name is not None, name))
    starts = first // len(names)
    order = [_Rack([node for node in racks if racks[node] == name], stopped, starts) for name in names]
    factor = min(factor, len(racks))
    running = sum(len(rack.running.nodes) for rack in order)
    random = Random(first)
    placed: list[tuple[int, ...]] = []
    for number in range(count):
        if running > 1 and number and number % running == 0:
            random.shuffle(order)
            for rack in order:
                random.shuffle(rack.running.nodes)
                random.shuffle(rack.stopped.nodes)
        placed.append(_replicas(order, first + number, number, factor, leads=running > 0))
    return placed


def _replicas(order: Sequence[_Rack], start: int, number: int, factor: int, *, leads: bool) -> tuple[int, ...]:
    """Returns the replicas of one partition, whose racks begin at `start`. `leads`: a node runs, so the first replica
    is on a running node.
    """
    first = start % len(order)
    rotated = [*order[first:], *order[:first]]
    replicas: list[int] = []
    led: _Rack | None = None
    for rack in rotated if leads else ():
        if (node := rack.running.take(number)) is not None:
            replicas.append(node)
            led = rack
            break
    while len(replicas) < factor:
        for rack in rotated:
            if rack is led:
                led = None  # it has the first replica, and is passed over once
            elif len(replicas) < factor and (node := rack.take(number)) is not None:
                replicas.append(node)
    return tuple(replicas)
