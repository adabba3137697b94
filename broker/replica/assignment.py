"""Who has a partition: its replicas, those in sync, and its leader, as the metadata of the cluster says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

NO_LEADER = -1


class Assignment(NamedTuple):
    """Who has a partition: node ids in order of preference, those in sync, and the leader with its epoch. While it is
    being reassigned its replicas are the old and the new ones; `adding` and `removing` are those that come and go."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_reassigned(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that it has, or will have when its reassignment is done."""
        return tuple(node for node in self.replicas if node not in self.removing)

    def next(self, leader: int, isr: Iterable[int]) -> Assignment:
        """What it becomes with another leader, or others in sync; itself where nothing changes."""
        return self.after(self._replace(leader=leader, isr=tuple(isr)))

    def after(self, made: Assignment) -> Assignment:
        """The next one, with its epochs: a change of leader is a new one, and so is a replica less, as in Kafka."""
        if made._replace(leader_epoch=self.leader_epoch, partition_epoch=self.partition_epoch) == self:
            return self
        is_new = made.leader != self.leader or not set(self.replicas) <= set(made.replicas)
        return made._replace(leader_epoch=self.leader_epoch + is_new, partition_epoch=self.partition_epoch + 1)
