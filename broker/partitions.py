"""A partition as the broker serves it: its log and those who wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..protocol.errors import ErrorCode
from .errors import Refused
from .waiting import wake_all

if TYPE_CHECKING:
    from ..storage.log import Appended, PartitionLog
    from .waiting import FetchWaiter

LEADER_EPOCH = 0  # one node leads everything, from the first epoch on


class Partition:
    """One partition that this broker leads. Appending through it wakes the fetches that wait for it."""

    __slots__ = ("index", "log", "topic", "waiters")

    def __init__(self, topic: str, index: int, log: PartitionLog) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.waiters: set[FetchWaiter] = set()

    def append(self, records: bytearray | memoryview, now_ms: int, produce_version: int) -> Appended:
        """Appends a client's batch. Raises what `PartitionLog.append` raises."""
        appended = self.log.append(records, now_ms=now_ms, produce_version=produce_version)
        if self.waiters:
            self.wake()
        return appended

    def wake(self) -> None:
        """Lets the waiting fetches look again."""
        for waiter in list(self.waiters):
            waiter.check()

    def gone(self) -> None:
        """The partition was deleted: waiting fetches answer so at once."""
        wake_all(self.waiters)

    @staticmethod
    def check_epoch(current_leader_epoch: int) -> None:
        """Refuses a client that knows of another leader epoch; -1 does not ask (KIP-320)."""
        if current_leader_epoch in (-1, LEADER_EPOCH):
            return
        if current_leader_epoch < LEADER_EPOCH:
            raise Refused(ErrorCode.FENCED_LEADER_EPOCH)
        raise Refused(ErrorCode.UNKNOWN_LEADER_EPOCH)
