"""The replicas of a partition, its ISR and its leader, as in the cluster's metadata."""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.named import NamedTuple

NO_LEADER = -1


class Assignment(NamedTuple):
    """The replicas of a partition: node ids in order of preference, the ISR, and the leader with its epoch.

    During a reassignment `replicas` are the old and the new ones; `adding` and `removing` are the difference.
    `eligible` are replicas out of sync that have all committed records and may lead, and `last_known` is the last
    leader of a partition without one (KIP-966).
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()

    @property
    def is_reassigned(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the reassignment under way; without one, the replicas."""
        return tuple(node for node in self.replicas if node not in self.removing)

    def next(self, leader: int, isr: Iterable[int]) -> Assignment:
        """Returns the assignment with another leader and ISR, or itself if nothing changes."""
        return self.after(self._replace(leader=leader, isr=tuple(isr)))

    def after(self, made: Assignment) -> Assignment:
        """Returns `made` with its epochs. As in Kafka, a new leader raises the leader epoch, and so does a removed
        replica.
        """
        if made._replace(leader_epoch=self.leader_epoch, partition_epoch=self.partition_epoch) == self:
            return self
        is_new = made.leader != self.leader or not set(self.replicas) <= set(made.replicas)
        return made._replace(leader_epoch=self.leader_epoch + is_new, partition_epoch=self.partition_epoch + 1)
