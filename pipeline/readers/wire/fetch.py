"""Fetches one range of one partition as large pieces of bytes.

Owns the requests to the leader, with the next one in flight while the last is decoded; leader changes, retries and
their deadline; and lost records. Reads headers of entries, no records.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, NamedTuple, NoReturn

from ....client.consumer.list_offsets import EARLIEST, LATEST, OffsetLookup
from ....client.consumer.options import ConsumerOptions
from ....client.net.cluster import NO_NODE, Cluster
from ....client.net.connection import Connection
from ....client.net.errors import ClientError, ConnectionLost, KafkaError
from ....client.net.threads import mark_retrieved
from ....protocol.errors import ErrorCode
from ....protocol.messages.records.fetch import FetchRequest
from ....protocol.primitives import ZERO_UUID
from ...backend import DataLoss, OffsetRange, ReadError, Wanted
from .connection import with_brokers
from .entries import begins_damaged, extent

FETCH_WITHOUT_IDS = 12
FIRST_BYTES = 1 << 20
"""The first fetch size: the size of a range can be estimated only from its first bytes."""

LEAST_BYTES = 64 << 10
GONE_ATTEMPTS = 3
"""A topic is considered deleted after this many failed lookups: a broker that has just started may not have its
metadata yet."""

VISIBLE_PATIENCE_S = 10.0
"""Time for records below the planned end to become visible: a new leader gets its high watermark within milliseconds.
"""

_NO_TOPIC = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
_log = logging.getLogger(__name__)


class Fetched(NamedTuple):
    """Consecutive whole entries; the first and last may have records outside the range. `aborted` are (producer id,
    first offset); `offset` is the fetch offset and `broker` the address."""

    data: memoryview
    aborted: tuple[tuple[int, int], ...]
    offset: int
    broker: str


class _PendingFetch(NamedTuple):
    offset: int
    connection: Connection
    version: int
    response: asyncio.Future[Any]


class _OffsetMoved(Exception):
    """The next offset to read has changed; the request in flight is void."""


class RangeFetch:
    """Fetches one range, in order. `topic_id` is the topic's id at planning time, ZERO_UUID if unknown."""

    def __init__(
        self, cluster: Cluster, options: ConsumerOptions, of: OffsetRange, wanted: Wanted, topic_id: bytes = ZERO_UUID
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._range = of
        self._wanted = wanted
        self._topic_id = topic_id
        self._distrust_headers = wanted.on_corrupt != "fail"  # damaged batches must be skipped, see `extent`
        self._lookup = OffsetLookup(cluster, wanted.committed)
        self._offset = of.start
        self._limit_bytes = min(FIRST_BYTES, options.max_partition_fetch_bytes, options.fetch_max_bytes)
        self._most_bytes = min(options.max_partition_fetch_bytes, options.fetch_max_bytes)
        self._max_wait_ms = options.fetch_max_wait_ms
        self._pending: _PendingFetch | None = None
        self._broker = ""
        self._known = False  # whether the topic was seen to exist, so that a metadata request does not create it
        self._attempts = 0
        self._missing = 0
        self._deadline = 0.0
        self._visible_by = 0.0

    async def next(self) -> Fetched | None:
        """Returns the next entries, or None at the end of the range. Raises DataLoss, ReadError."""
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self._options.default_api_timeout_ms / 1000
        self._visible_by = loop.time() + min(VISIBLE_PATIENCE_S, self._options.default_api_timeout_ms / 1000)
        self._attempts = self._missing = 0
        while self._offset < self._range.end:
            with contextlib.suppress(_OffsetMoved):
                found = await self._attempt()
                if found is not None:
                    return found
        return None

    async def _attempt(self) -> Fetched | None:
        try:
            pending = self._pending or self._send(await self._leader())
            self._pending = None
            self._broker = f"{pending.connection.host}:{pending.connection.port}"
            return await self._received(pending, self._of_partition(await pending.response))
        except ClientError as error:
            await self._failed(error)
            return None

    # Requests

    async def _leader(self) -> Connection:
        topic, partition = self._range.key
        cluster = self._cluster
        if not self._known:
            await self._check_there()
        if not cluster.is_fresh(topic) or cluster.leader(topic, partition) == NO_NODE:
            await cluster.refresh([topic])
        known = cluster.topics.get(topic)
        if known is not None and known.error:
            raise KafkaError(known.error, f"topic {topic!r}")
        leader = cluster.leader(topic, partition)
        if leader == NO_NODE:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self._range.key} has no leader")
        return await cluster.connection(leader, "read")

    async def _check_there(self) -> None:
        """Checks that the partition exists, with a request that creates no topic."""
        topic, partition = self._range.key
        self._known = False
        response = await self._cluster.metadata([topic])
        described = next((one for one in response.topics if one.name == topic), None)
        there = described.partitions if described is not None else []
        # A topic without partitions has a transient error, such as a missing leader.
        if (
            described is None
            or described.error_code in _NO_TOPIC
            or (there and all(one.partition_index != partition for one in there))
        ):
            self._missing += 1
            if self._missing < GONE_ATTEMPTS:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self._range.key}")
            self._lose(self._range.end, "it was deleted")
        self._known = True
        before, self._topic_id = self._topic_id, described.topic_id
        if before != described.topic_id and ZERO_UUID not in (described.topic_id, before):
            self._lose(self._offset, "its topic was deleted and created again")

    def _send(self, connection: Connection) -> _PendingFetch:
        topic, partition = self._range.key
        known = self._cluster.topics.get(topic)
        topic_id = known.id if known is not None else ZERO_UUID
        version = connection.version_of(FetchRequest, None if topic_id != ZERO_UUID else FETCH_WITHOUT_IDS)
        fetch_topic = FetchRequest.FetchTopic
        one = fetch_topic.FetchPartition(
            partition=partition,
            current_leader_epoch=self._lookup.epoch(topic, partition),
            fetch_offset=self._offset,
            partition_max_bytes=self._limit_bytes,
        )
        request = FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._options.fetch_min_bytes,
            max_bytes=self._options.fetch_max_bytes,
            isolation_level=int(self._wanted.committed and version >= 4),
            topics=[fetch_topic(topic=topic, topic_id=topic_id, partitions=[one])],
        )
        timeout_s = (self._options.request_timeout_ms + self._max_wait_ms) / 1000
        response = connection.send(request, version, timeout_s=timeout_s)
        response.add_done_callback(mark_retrieved)
        return _PendingFetch(self._offset, connection, version, response)

    def _of_partition(self, response: Any) -> Any:
        if response.error_code:
            raise KafkaError(response.error_code)
        for topic in response.responses:
            for one in topic.partitions:
                if one.partition_index == self._range.partition:
                    if one.error_code:
                        raise KafkaError(one.error_code)
                    return one
        raise ConnectionLost("a Fetch response without the partition")

    # Responses

    async def _received(self, pending: _PendingFetch, response: Any) -> Fetched | None:
        data = memoryview(response.records or b"")
        end = self._range.end
        found = extent(data, pending.offset, end, distrust_headers=self._distrust_headers)
        if found.next_offset > pending.offset:
            self._offset = found.next_offset
            self._max_wait_ms = self._options.fetch_max_wait_ms
            # The fetch size is lowered to the estimated rest of the range.
            left_bytes = found.stop * (end - self._offset) // (found.next_offset - pending.offset)
            self._limit_bytes = min(self._most_bytes, max(LEAST_BYTES, left_bytes + left_bytes // 8))
            if self._offset < end and not pending.connection.is_closed:
                self._pending = self._send(pending.connection)
            aborted = tuple((one.producer_id, one.first_offset) for one in response.aborted_transactions or ())
            return Fetched(data[: found.stop], aborted if self._wanted.committed else (), pending.offset, self._broker)
        if found.is_broken:
            raise ReadError(
                f"{self._range.key} cannot be read at offset {pending.offset} of {self._broker}: no record"
                " batch begins there, and the start of the next one is unknown"
            )
        if found.stop < len(data):
            self._enlarge(found.needed_bytes)
        elif self._distrust_headers and begins_damaged(data):
            self._offset += 1  # it extends further than its header states
        else:
            await self._nothing(pending.version, response)
        return None

    def _enlarge(self, needed_bytes: int) -> None:
        """Raises the fetch size. Fetch before v3 truncates even the first entry at the limit."""
        most_bytes = self._options.fetch_max_bytes
        if needed_bytes > most_bytes or self._limit_bytes >= most_bytes:
            size = f"has {needed_bytes} bytes" if needed_bytes else "is larger"
            raise ReadError(
                f"{self._range.key} cannot be read at offset {self._offset} of {self._broker}: an entry there"
                f" {size}, and kafka.fetch.max.bytes is {most_bytes}"
            )
        self._limit_bytes = min(most_bytes, max(needed_bytes, 2 * self._limit_bytes))
        self._most_bytes = max(self._most_bytes, self._limit_bytes)

    async def _nothing(self, version: int, response: Any) -> None:
        """Handles a response without an entry at or after the offset: the cleaner removed the last ones, or they are
        not visible yet."""
        loop = asyncio.get_running_loop()
        stable = self._wanted.committed and version >= 4 and response.last_stable_offset >= 0
        visible = response.last_stable_offset if stable else response.high_watermark
        if visible > self._offset and self._max_wait_ms == 0:
            # Confirmed by a second request: ending too early would lose records silently.
            if visible >= self._range.end:
                self._offset = self._range.end
                return
            self._offset = visible
        if loop.time() >= self._visible_by:
            if stable and response.high_watermark >= self._range.end:
                raise ReadError(
                    f"{self._range.key} cannot be read up to offset {self._range.end} of {self._broker}: transactions"
                    f" are open from its last stable offset, {visible}, on"
                )
            self._lose(self._range.end, f"it ends at offset {visible}")
        if visible > self._offset:
            self._max_wait_ms = 0
            return
        self._max_wait_ms = self._options.fetch_max_wait_ms
        self._attempts += 1
        await asyncio.sleep(self._cluster.retry_backoff_s(self._attempts))

    # Failures

    async def _failed(self, error: ClientError) -> None:
        """Refreshes metadata and waits for the next attempt. Raises ReadError if no attempt can help."""
        loop = asyncio.get_running_loop()
        self._pending = None
        code = error.code if isinstance(error, KafkaError) else None
        try:
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._out_of_range()
            elif code in _NO_TOPIC:
                await self._check_there()
            elif code == ErrorCode.CORRUPT_MESSAGE or not (error.retriable or code == ErrorCode.UNKNOWN_SERVER_ERROR):
                raise self._failure(error) from error
            if code is None or error.retriable:
                await self._cluster.refresh([self._range.topic] if self._known else [])
        except ClientError as another:
            error = another
        self._attempts += 1
        delay_s = self._cluster.retry_backoff_s(self._attempts)
        if loop.time() + delay_s >= self._deadline:
            raise self._failure(error) from error
        await asyncio.sleep(delay_s)

    def _failure(self, error: ClientError) -> ReadError:
        text = with_brokers(error, self._cluster)
        return ReadError(f"{self._range.key} cannot be read at offset {self._offset}: {text}")

    async def _out_of_range(self) -> None:
        """Skips to the next existing records if data loss is allowed. Returns if the offset is in range by now."""
        key = self._range.topic, self._range.partition
        loop = asyncio.get_running_loop()
        left_s = max(0.0, self._deadline - loop.time())
        first = (await self._lookup.all({key: EARLIEST}, left_s))[key].offset
        last = (await OffsetLookup(self._cluster, False).all({key: LATEST}, left_s))[key].offset
        if self._offset < first:
            self._lose(min(first, self._range.end), f"it begins at offset {first}")
        if self._offset > last:
            self._lose(self._range.end, f"it ends at offset {last}")

    def _lose(self, until: int, why: str) -> NoReturn:
        """Handles the loss of the records up to `until`: raises DataLoss, or logs a warning and raises _OffsetMoved
        after them."""
        at = self._broker or ",".join(f"{node.host}:{node.port}" for node in self._cluster.nodes.values())
        what = f"offsets {self._offset} to {until - 1}" if until > self._offset else "its records"
        text = f"{self._range.key} has lost {what}: {why} (broker at {at})"
        if self._wanted.fail_on_loss:
            raise DataLoss(f"{text}; failOnDataLoss=false reads the remaining ones")
        _log.warning("%s", text)
        self._offset = max(until, self._offset)
        self._pending = None
        raise _OffsetMoved
