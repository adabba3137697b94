"""Dead-letter queues of share groups (KIP-1191): topics for records that were delivered, and will not be accepted.

Each record gets a record in the queue, with headers that name its place, its group and why it is there; key and value
are copied if the group's `errors.deadletterqueue.copy.record.enable` is on. A record that cannot be written is archived
all the same. Rules, delays and texts: Kafka 4.4's `ShareGroupDLQStateManager`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.named import NamedTuple
from ...protocol.records import batch, formats
from ...protocol.records.batch import Record
from ...protocol.records.errors import DecompressedTooLarge
from ...storage.partition_log import PartitionLog
from ..clock import Clock
from ..errors import Refused, code_of, message_of
from ..futures import wake
from ..logs import get_logger
from ..metadata.topics import Topic, Topics
from ..replica.assignment import NO_LEADER
from ..replica.partition import Partition
from .settings import COPIES, DEAD_LETTER_TOPIC, ShareConfigs
from .values import DeadLetters

ENABLED = "errors.deadletterqueue.group.enable"  # config of a topic
CREATES = "errors.deadletterqueue.auto.create.topics.enable"
PREFIX = "errors.deadletterqueue.topic.name.prefix"
HEADERS = "__dlq.errors."
REJECTED = "Offset rejected by client."
DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."
ATTEMPTS = 5
FIRST_DELAY_MS = 1000  # before the second attempt; doubles with each
FETCH_BYTES = 1 << 20


class NoDeadLetterQueue(Exception):
    """The records of a group cannot be written to its dead-letter queue. The message is for the log."""


class Copies(NamedTuple):
    """Records by offset whose contents are copied. `last` is the last offset for which that is decided: none of the
    offsets up to it that are missing here can be copied.
    """

    records: Mapping[int, Record]
    last: int


Destination = Callable[[Partition, bytearray], Awaitable[Any]]
"""Appends a batch to a partition of a dead-letter queue. Raises what refuses a producer's batch with acks=-1."""


class DeadLetterQueues:
    """Writes to the dead-letter queues of all groups, and counts by group what it has written."""

    def __init__(
        self, topics: Topics, configs: ShareConfigs, append: Destination, clock: Clock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._topics = topics
        self._configs = configs
        self._broker = configs.broker
        self._append = append
        self._clock = clock
        self._loop = loop
        self.records: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()

    async def write(self, group_id: str, source: Partition, letters: DeadLetters) -> None:
        """Writes records to the queue of a group, or logs why it cannot."""
        try:
            await self._write(group_id, source, letters)
        except Exception as error:
            reason = str(error) if isinstance(error, NoDeadLetterQueue) else message_of(error) or code_of(error).name
            get_logger().error(
                "records cannot be written to the dead-letter queue",
                group=group_id,
                topic=source.topic,
                partition=source.index,
                first_offset=letters.first,
                last_offset=letters.last,
                reason=reason,
            )

    async def _write(self, group_id: str, source: Partition, letters: DeadLetters) -> None:
        """Raises NoDeadLetterQueue, and what refuses a topic or a batch."""
        first, last = letters.first, letters.last
        while first <= last:
            partition = await self._partition(group_id, source.index)
            budget = self._topics.named(partition.topic).config["max.message.bytes"]
            copies = self._copies(group_id, source, first, last, budget)
            data, first = _batch(group_id, source, letters, copies, first, budget, self._clock.now_ms())
            self.requests[group_id] += 1
            try:
                await self._append(partition, data)
            except Exception:
                self.failures[group_id] += 1
                raise
            self.records[group_id] += batch.read_header(data).record_count

    # --- the queue -----------------------------------------------------------------------------------------------

    async def _partition(self, group_id: str, index: int) -> Partition:
        """Returns the partition of a group's queue for the records of a partition; the topic may be created first."""
        attempts, delay_ms = 1, FIRST_DELAY_MS
        while True:
            name = self._checked(group_id)
            topic = self._topics.get(name) or await self._create(name)
            partition = topic.partitions[index % len(topic.partitions)] if topic is not None else None
            if partition is not None and partition.leader != NO_LEADER and partition.offline is None:
                return partition
            if attempts == ATTEMPTS:
                raise NoDeadLetterQueue(f"the topic {name} has no leader for partition {index}")
            await self._pause(delay_ms)
            attempts, delay_ms = attempts + 1, 2 * delay_ms

    def _checked(self, group_id: str) -> str:
        """Returns the name of a group's queue. Raises NoDeadLetterQueue."""
        name, prefix = self._configs.value(group_id, DEAD_LETTER_TOPIC), self._broker[PREFIX]
        topic = self._topics.get(name)
        if not name:
            raise NoDeadLetterQueue("the group has no topic for it")
        if name.startswith("__"):
            raise NoDeadLetterQueue(f"the topic {name} begins with __")
        if topic is not None and not topic.config[ENABLED]:
            raise NoDeadLetterQueue(f"the topic {name} does not have {ENABLED}=true")
        if topic is None and not self._broker[CREATES]:
            raise NoDeadLetterQueue(f"there is no topic {name}, and {CREATES} is false")
        if not name.startswith(prefix):
            raise NoDeadLetterQueue(f"the topic {name} does not begin with {prefix} ({PREFIX})")
        return name

    async def _create(self, name: str) -> Topic | None:
        """Returns the new topic; None if another task is creating it. Raises Refused, StorageError."""
        configs = {ENABLED: "true", "message.timestamp.type": "CreateTime"}
        creating = self._topics.creating(name, self._broker["num.partitions"], configs, self._clock.now_ms())
        try:
            return await self._topics.changes.make(name, creating)
        except Refused as refused:
            if refused.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return self._topics.get(name)

    async def _pause(self, delay_ms: int) -> None:
        over: asyncio.Future[None] = self._loop.create_future()
        timer = self._clock.call_at(self._clock.now_ms() + delay_ms, wake, over)
        try:
            await over
        finally:
            timer.cancel()

    # --- contents ------------------------------------------------------------------------------------------------

    def _copies(self, group_id: str, source: Partition, first: int, last: int, budget: int) -> Copies:
        """Returns the records between two offsets as far as they take at most `budget` bytes, if they are copied."""
        if self._configs.value(group_id, COPIES):
            try:
                return copied(source.log, first, last, budget)
            except Exception as error:  # the headers alone are worth more than nothing
                code_of(error)  # logs unexpected errors
        return Copies({}, last)


def copied(log: PartitionLog, first: int, last: int, budget: int) -> Copies:
    """Reads the records between two offsets, as many as take at most `budget` bytes. A batch that takes more when it is
    decompressed has none to copy, and neither has an offset that compaction has removed. Raises StorageError,
    OffsetOutOfRange, and the errors of records.
    """
    found: dict[int, Record] = {}
    used, offset = 0, first
    while offset <= last:
        data, start = log.read(offset, FETCH_BYTES).records, offset
        for position, header in formats.headers(data):
            try:
                records = list(formats.records(data, position, max_bytes=budget))
            except DecompressedTooLarge:
                records = []
            for record in records:
                if record.offset < offset:
                    continue
                if record.offset > last:
                    return Copies(found, last)
                size = batch.record_size(record, record.timestamp, record.offset)
                if size <= budget:
                    if used + size > budget:
                        return Copies(found, offset - 1)
                    found[record.offset] = record
                    used += size
                offset = record.offset + 1
            offset = max(offset, header.last_offset + 1)
        if offset == start:
            break
    return Copies(found, last)


def _batch(
    group_id: str, source: Partition, letters: DeadLetters, copies: Copies, first: int, limit: int, now_ms: int
) -> tuple[bytearray, int]:
    """Returns a batch of records for the queue within the size limit, at least one, and the offset after them."""
    end = max(first, min(letters.last, copies.last))
    size, records = batch.HEADER_BYTES, list[Record]()
    for offset in range(first, end + 1):
        copy = copies.records.get(offset)
        key, value = (copy.key, copy.value) if copy is not None else (None, None)
        record = Record(len(records), now_ms, key, value, _headers(group_id, source, letters, offset))
        size += batch.record_size(record, now_ms)
        if size > limit and records:
            break
        records.append(record)
    return batch.build(records), first + len(records)


def _headers(group_id: str, source: Partition, letters: DeadLetters, offset: int) -> tuple[batch.Header, ...]:
    texts = {
        "topic": source.topic,
        "partition": str(source.index),
        "offset": str(offset),
        "group": group_id,
        "delivery.count": str(letters.delivery_count),
        "message": REJECTED if letters.is_rejected else DELIVERED_TOO_OFTEN,
    }
    return tuple(batch.Header(HEADERS + name, text.encode()) for name, text in texts.items())
