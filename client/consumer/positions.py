"""The state of an assigned partition: its position and its fetched records.

Owns position, committable offset, buffered chunks, pause, error and back-off as values with small steps. The requests
are in `fetcher.py`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ..net.errors import ClientError
from .records import Chunk, ConsumerRecord

COMMITTED = -1000  # in `reset`: the position is the committed offset
BUFFERED_CHUNKS = 2  # one is read while the next is fetched


@dataclass(slots=True, eq=False, repr=False)
class PartitionState:
    """An assigned partition.

    `position` is the offset of the next record to return, -1 while it is unknown. `reset` is then the way to find it:
    COMMITTED, a timestamp of ListOffsets, or None. `committable` is the offset of an automatic commit: after the last
    processed record. `version` changes with each seek, so that responses to earlier requests are ignored.
    """

    topic: str
    partition: int
    limit_bytes: int
    position: int = -1
    committable: int = -1
    committed: int = -1  # by this consumer
    fetch_offset: int = -1
    leader_epoch: int = -1
    reset: int | None = None
    version: int = 0
    is_paused: bool = False
    is_busy: bool = False  # a request for it is in flight
    failure: ClientError | None = None
    attempts: int = 0
    not_before: float = 0.0
    chunks: deque[Chunk] = field(default_factory=deque[Chunk])
    records: list[ConsumerRecord] = field(default_factory=list[ConsumerRecord])
    index: int = 0  # of the next record in `records`
    high_watermark: int = -1
    turn: int = 0  # round-robin order: the number of its last response with records

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.partition} at {self.position}>"

    @property
    def is_held(self) -> bool:
        """Whether the application has returned records that are not processed."""
        return self.position != self.committable

    def jump(self, offset: int) -> None:
        """Sets the position, and drops fetched records."""
        self._forget()
        self.position = self.committable = self.fetch_offset = offset
        self.reset = None

    def lose(self, reset: int) -> None:
        """Marks the position as unknown, to be found by `reset`, and drops fetched records."""
        self._forget()
        self.position = self.committable = self.fetch_offset = -1
        self.reset = reset

    def refetch(self) -> None:
        """Drops fetched records; the next fetch begins at the position."""
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
        """Returns whether a Fetch may be sent for the partition."""
        return (
            self.position >= 0
            and self.reset is None
            and not self.is_busy
            and not self.is_paused
            and self.failure is None
            and len(self.chunks) < BUFFERED_CHUNKS
        )

    def fill(self) -> bool:
        """Decodes the next batch with visible records; returns False if there is none. Raises KafkaError.

        The position moves past batches without visible records.
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
        """Returns the next decoded records, at most `count`, and moves the position."""
        records, index = self.records, self.index
        taken = records if index == 0 and len(records) <= count else records[index : index + count]
        self.index = index + len(taken)
        self.position = taken[-1].offset + 1
        if self.index >= len(records):
            self.position = max(self.position, self.chunks[0].offset)
            self.leader_epoch = taken[-1].leader_epoch
        return taken

    def give_back(self, offset: int) -> None:
        """Moves back to `offset`: the returned records from there on will be returned again."""
        while self.index > 0 and self.records[self.index - 1].offset >= offset:
            self.index -= 1
        self.position = offset

    def _pass(self, offset: int) -> None:
        if self.committable == self.position:
            self.committable = offset
        self.position = offset
