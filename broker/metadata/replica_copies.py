"""The progress of replicas that catch up with their leader during a reassignment.

All nodes share one log, so nothing is copied, and a replica catches up at once, unless a replication throttle (KIP-73)
bounds its rate: then it takes the time of copying the bytes of the log, on the broker's clock. The copies that a node
throttles share the node's rate evenly, both as leader and as follower. Owns how far each replica has come, in memory:
after a restart the copies begin again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ...protocol.limits import INT64_MAX
from .nodes import Nodes

if TYPE_CHECKING:
    from ..clock import Clock
    from ..config.values import Config, TopicConfig
    from ..replica.partition import Partition

EVERY_REPLICA = "*"
STEP_MS = 100
"""The least time between two checks of throttled copies."""

Copy = tuple["Partition", int]  # to a node
Side = tuple[str, int]  # "leader" or "follower", and the node


class ReplicaCopies:
    """The replicas that catch up, in the partitions of `follow`."""

    def __init__(
        self, nodes: Nodes, config: Config, topic_config: Callable[[Partition], TopicConfig | None], clock: Clock
    ) -> None:
        """`config` has the rates. `topic_config` returns the config of a partition's topic; None if it was deleted."""
        self._nodes = nodes
        self._config = config
        self._topic_config = topic_config
        self._clock = clock
        self._copied: dict[Partition, dict[int, float]] = {}  # bytes by node
        self._held: set[Partition] = set()
        self._rates: dict[Copy, float] = {}  # bytes a second, since `_since_ms`
        self._since_ms = 0

    def follow(self, partition: Partition) -> None:
        """Follows the reassignment in progress of a partition; without one, no longer."""
        now = partition.assignment
        if not now.is_reassigned:
            self._forget(partition)
            return
        before = self._copied.get(partition, {})
        self._copied[partition] = {
            node: before.get(node, 0.0) for node in now.replicas if node in now.adding or node in before
        }

    def _forget(self, partition: Partition) -> None:
        self._copied.pop(partition, None)
        self._held.discard(partition)

    def hold(self, partitions: Iterable[Partition]) -> None:
        """Keeps the replicas of these from catching up until `release`."""
        self._held.update(partitions)

    def release(self, partitions: Iterable[Partition]) -> None:
        """Reverts `hold`."""
        self._held.difference_update(partitions)

    def advance(self) -> None:
        """Copies until now, at the rates of the last `caught_up`."""
        now_ms = self._clock.now_ms()
        passed_ms, self._since_ms = max(0, now_ms - self._since_ms), now_ms
        for (partition, node), rate in self._rates.items():
            copied = self._copied.get(partition, {})
            if node in copied:
                copied[node] = min(copied[node] + rate * passed_ms / 1000, float(_size_bytes(partition)))

    def caught_up(self) -> dict[Partition, list[int]]:
        """Returns the nodes whose replicas have caught up by now, and sets the rates of the others."""
        self.advance()
        for partition in [one for one in self._copied if self._topic_config(one) is None]:
            self._forget(partition)
        lagging = [
            (partition, node)
            for partition in self._copied
            if partition not in self._held and partition.offline is None
            for node in self._nodes.lagging(partition.assignment)
        ]
        self._rates = self._rates_of([copy for copy in lagging if self._left_bytes(*copy) > 0])
        found: dict[Partition, list[int]] = {}
        for partition, node in lagging:
            if (partition, node) not in self._rates:
                found.setdefault(partition, []).append(node)
        return found

    def next_ms(self) -> int | None:
        """Returns the time at which to call `caught_up` again if nothing else happens; None for never."""
        left_s = min((self._left_bytes(*copy) / rate for copy, rate in self._rates.items() if rate), default=None)
        return None if left_s is None else self._since_ms + max(STEP_MS, math.ceil(left_s * 1000))

    def _left_bytes(self, partition: Partition, node: int) -> float:
        # A replica that is not being added has the records of earlier times.
        return _size_bytes(partition) - self._copied[partition].get(node, math.inf)

    def _rates_of(self, copies: Iterable[Copy]) -> dict[Copy, float]:
        """Returns the rates of the throttled copies."""
        listed: dict[tuple[str, str], Callable[[int, int], bool]] = {}  # the throttled replicas, by topic and kind
        throttled: dict[Copy, list[Side]] = {}
        for partition, node in copies:
            for side in (("leader", partition.leader), ("follower", node)):
                key = partition.topic, side[0]
                if key not in listed:
                    listed[key] = self._listed(partition, side[0])
                if listed[key](partition.index, side[1]) and self._rate(side) != INT64_MAX:
                    throttled.setdefault((partition, node), []).append(side)
        sharing = Counter(side for sides in throttled.values() for side in sides)
        return {copy: min(self._rate(side) / sharing[side] for side in sides) for copy, sides in throttled.items()}

    def _rate(self, side: Side) -> int:
        return self._config.of(side[1])[f"{side[0]}.replication.throttled.rate"]

    def _listed(self, partition: Partition, kind: str) -> Callable[[int, int], bool]:
        """Returns a function that tests whether the replica (partition, node) of the topic is throttled."""
        config = self._topic_config(partition)
        texts: list[str] = [] if config is None else config[f"{kind}.replication.throttled.replicas"]
        if EVERY_REPLICA in texts:
            return lambda index, node: True
        replicas = {tuple(map(int, text.split(":"))) for text in texts if text}
        return lambda index, node: (index, node) in replicas


def _size_bytes(partition: Partition) -> int:
    return partition.log.size_bytes if partition.offline is None else 0
