"""Reads the log of a partition for the recovery of a producer: batch headers, by Fetch and ListOffsets.

Owns the queries: log start and end, whether an acknowledged record is still in the log, the last record of a producer.
Only the headers of batches are parsed, and the records of the last batch. Each method makes one attempt, and raises
ClientError.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import NoReturn

from ...protocol.errors import ErrorCode
from ...protocol.messages.records.fetch import FetchRequest
from ...protocol.named import NamedTuple
from ...protocol.primitives import ZERO_UUID
from ...protocol.records import batch, formats
from ...protocol.records.errors import CorruptRecords
from ..consumer.list_offsets import EARLIEST, LATEST, OffsetLookup
from ..net.cluster import Cluster
from ..net.connection import Connection
from ..net.errors import ClientError, KafkaError
from .sequences import Acked

FETCH_BYTES = 1 << 20
FETCH_WITHOUT_IDS = 12
FIRST_STEP, STEP_FACTOR = 1000, 8  # offsets that a backward search covers in its first step


class CommittedRecord(NamedTuple):
    """The last record of a producer in the log of a partition.

    `ordinal` counts the records that the application sent to the partition, from 0 (-1 if the record is not among
    them). Records with a higher ordinal are not in the log.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    producer_id: int
    producer_epoch: int
    sequence: int
    ordinal: int


class Fetched(NamedTuple):
    """A response to a Fetch."""

    log_start_offset: int
    high_watermark: int
    records: bytes | memoryview

    def headers(self) -> Iterator[tuple[int, batch.BatchHeader]]:
        """Yields (position, header) of the whole batches. Raises KafkaError CORRUPT_MESSAGE."""
        try:
            yield from formats.headers(self.records)
        except CorruptRecords as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


class LogTail:
    """Reads the logs of a cluster, on connections of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lookup = OffsetLookup(cluster, committed_only=False)

    async def _leader(self, topic: str, partition: int) -> Connection:
        node_id = self._cluster.leader(topic, partition)
        if node_id < 0:
            await self._cluster.refresh([topic])
            node_id = self._cluster.leader(topic, partition)
        if node_id < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        return await self._cluster.connection(node_id, "tail")

    async def offset(self, topic: str, partition: int, which: int = LATEST) -> int:
        """Returns the high watermark or, with EARLIEST, the log start offset."""
        connection = await self._leader(topic, partition)
        result = (await self._lookup.send(connection, {(topic, partition): which}))[topic, partition]
        if isinstance(result, KafkaError):
            self._refused(topic, result)
        return result.offset

    async def fetch(self, topic: str, partition: int, offset: int, max_bytes: int = FETCH_BYTES) -> Fetched:
        """Fetches batches from an offset on. Raises KafkaError OFFSET_OUT_OF_RANGE."""
        connection = await self._leader(topic, partition)
        topic_id = self._cluster.topic_ids([topic])[topic]
        version = connection.version_of(FetchRequest, None if topic_id != ZERO_UUID else FETCH_WITHOUT_IDS)
        topic_class = FetchRequest.FetchTopic
        one = topic_class.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=max_bytes,
            topics=[topic_class(topic=topic, topic_id=topic_id, partitions=[one])],
        )
        response = await connection.request(request, version)
        if response.error_code:
            raise KafkaError(response.error_code)
        for one_topic in response.responses:
            for found in one_topic.partitions:
                if found.error_code:
                    self._refused(topic, KafkaError(found.error_code))
                return Fetched(found.log_start_offset, found.high_watermark, found.records or b"")
        raise ClientError("the response to Fetch does not have the partition")

    def _refused(self, topic: str, error: KafkaError) -> NoReturn:
        if error.stale_metadata:
            self._cluster.expire(topic)
        raise error

    async def holds(self, topic: str, partition: int, acked: Acked) -> bool | None:
        """Returns whether an acknowledged record is in the log, or was deleted by retention or compaction.

        Returns None if it is above the high watermark, where consumers cannot read.
        """
        try:
            fetched = await self.fetch(topic, partition, acked.offset)
        except KafkaError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return await self.offset(topic, partition, EARLIEST) > acked.offset
        if fetched.high_watermark <= acked.offset:
            return None
        for _, header in fetched.headers():
            if header.base_offset > acked.offset:
                return True
            if header.last_offset >= acked.offset:
                return (header.producer_id, header.producer_epoch, header.last_sequence) == acked[1:]
        return True

    async def find(self, topic: str, partition: int, offset: int, producer_id: int) -> list[batch.BatchHeader]:
        """Returns the headers of all batches of a producer from an offset on."""
        start = max(offset, await self.offset(topic, partition, EARLIEST))
        end = await self.offset(topic, partition)
        return [header async for _, _, header in self._batches(topic, partition, start, end, {producer_id})]

    async def last_of(self, topic: str, partition: int, producer_ids: set[int]) -> CommittedRecord | None:
        """Returns the newest record of any of the producer ids, or None. Reads backward from the end."""
        start = await self.offset(topic, partition, EARLIEST)
        stop = await self.offset(topic, partition)
        step = FIRST_STEP
        while stop > start:
            begin = max(start, stop - step)
            last: CommittedRecord | None = None
            async for records, position, header in self._batches(topic, partition, begin, stop, producer_ids):
                last = _last_record(topic, partition, records, position, header)
            if last is not None:
                return last
            stop, step = begin, step * STEP_FACTOR
        return None

    async def _batches(
        self, topic: str, partition: int, offset: int, end: int, producer_ids: set[int]
    ) -> AsyncIterator[tuple[bytes | memoryview, int, batch.BatchHeader]]:
        """Yields the data batches of producers between two offsets: the fetched records, and position and header."""
        while offset < end:
            try:
                fetched = await self.fetch(topic, partition, offset)
            except KafkaError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                # The ends of the log have moved: the query may be repeated.
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "the log was truncated meanwhile") from error
            before = offset
            for position, header in fetched.headers():
                offset = max(offset, header.next_offset)
                if header.producer_id in producer_ids and header.record_count > 0 and not header.is_control:
                    yield fetched.records, position, header
            if offset == before:
                break


def _last_record(
    topic: str, partition: int, records: bytes | memoryview, position: int, header: batch.BatchHeader
) -> CommittedRecord:
    *_, record = batch.records(records, position)
    sequence = (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF
    return CommittedRecord(
        topic,
        partition,
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        header.producer_id,
        header.producer_epoch,
        sequence,
        -1,
    )
