"""Where a consumer stands in one partition, and what was fetched of it and not yet read.

Owns the state of a partition as values and small steps: position, what may be committed, buffered chunks, pauses,
failures, how often a try failed. Who fetches and when is `fetcher.py`.
"""

from __future__ import annotations

from collections import deque

from ..net.errors import ClientError
from .records import Chunk, ConsumerRecord

__all__ = ["BUFFERED_CHUNKS", "COMMITTED", "PartitionState"]

COMMITTED = -1000  # in `reset`: begin where the group has committed
BUFFERED_CHUNKS = 2  # one is read while the next is fetched


class PartitionState:
    """One assigned partition.

    `position` is the offset of the next record to hand out, -1 while it is not known; `reset` is then what will tell
    it: COMMITTED, a timestamp of ListOffsets, or None. `committable` is the position that an automatic commit may tell:
    behind what the application has come back from. `version` changes with each jump, so that an answer to what was
    asked before it is known as such.
    """

    __slots__ = (
        "attempts",
        "chunks",
        "committable",
        "committed",
        "failure",
        "fetch_offset",
        "high_watermark",
        "index",
        "is_busy",
        "is_paused",
        "last_stable_offset",
        "leader_epoch",
        "limit_bytes",
        "log_start_offset",
        "not_before",
        "partition",
        "position",
        "records",
        "reset",
        "topic",
        "turn",
        "version",
    )

    def __init__(self, topic: str, partition: int, limit_bytes: int) -> None:
        self.topic = topic
        self.partition = partition
        self.limit_bytes = limit_bytes
        self.position = -1
        self.committable = -1
        self.committed = -1  # as far as this consumer knows
        self.fetch_offset = -1
        self.leader_epoch = -1
        self.reset: int | None = None
        self.version = 0
        self.is_paused = False
        self.is_busy = False  # something is asked for it
        self.failure: ClientError | None = None
        self.attempts = 0
        self.not_before = 0.0
        self.chunks: deque[Chunk] = deque()
        self.records: list[ConsumerRecord] = []
        self.index = 0  # of the next of `records` to hand out
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1
        self.turn = 0  # when it was served last: who was served goes to the end of the queue

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.partition} at {self.position}>"

    @property
    def is_held(self) -> bool:
        """Whether the application has records of it that it has not come back from."""
        return self.position != self.committable

    def jump(self, offset: int) -> None:
        """Goes on from an offset; what was fetched is forgotten."""
        self._forget()
        self.position = self.committable = self.fetch_offset = offset
        self.reset = None

    def lose(self, reset: int) -> None:
        """The position is to be found out anew."""
        self._forget()
        self.position = self.committable = self.fetch_offset = -1
        self.reset = reset

    def refetch(self) -> None:
        """Forgets what was fetched behind the position."""
        self._forget()
        self.fetch_offset = self.position

    def _forget(self) -> None:
        self.version += 1
        self.chunks.clear()
        self.records = []
        self.index = 0
        self.is_busy = False
        self.failure = None
        self.attempts = 0
        self.not_before = 0.0

    def is_fetchable(self) -> bool:
        """Whether a Fetch may be sent for it."""
        return (
            self.position >= 0
            and self.reset is None
            and not self.is_busy
            and not self.is_paused
            and self.failure is None
            and len(self.chunks) < BUFFERED_CHUNKS
        )

    def fill(self) -> bool:
        """Decodes until there are records to hand out; False if there is nothing more. Raises KafkaError.

        The position passes what holds nothing to see.
        """
        while self.index >= len(self.records):
            if not self.chunks:
                return False
            chunk = self.chunks[0]
            try:
                self.records, self.index = chunk.read(), 0
            finally:
                if chunk.offset > self.position and not self.records:
                    self._pass(chunk.offset)
            if not self.records:
                self.chunks.popleft()
        return True

    def handed_out(self, count: int) -> list[ConsumerRecord]:
        """The next records, at most so many of those decoded."""
        records, index = self.records, self.index
        taken = records if index == 0 and len(records) <= count else records[index : index + count]
        self.index = index + len(taken)
        self.position = taken[-1].offset + 1
        if self.index >= len(records):
            self.position = max(self.position, self.chunks[0].offset)
            self.leader_epoch = taken[-1].leader_epoch
        return taken

    def give_back(self, offset: int) -> None:
        """Takes the last records handed out back, from an offset on: they are next again."""
        while self.index > 0 and self.records[self.index - 1].offset >= offset:
            self.index -= 1
        self.position = offset

    def _pass(self, offset: int) -> None:
        if self.committable == self.position:
            self.committable = offset
        self.position = offset
