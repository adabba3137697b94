"""Fetching one range of one partition, as large pieces of bytes.

Owns the requests to the leader, the next of which is under way while the last is decoded; leader changes, retries and
their deadline; and what is known of records that are gone. Knows headers of entries, no records.
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
from ....protocol.errors import ErrorCode
from ....protocol.messages.records.fetch import FetchRequest
from ....protocol.primitives import ZERO_UUID
from ...backend import DataLoss, OffsetRange, ReadError
from .connection import told
from .entries import begins_damaged, extent

__all__ = ["Fetched", "RangeFetch"]

FETCH_WITHOUT_IDS = 12
FIRST_BYTES = 1 << 20
"""Asked for first: how many bytes a range has is known only when some of it is there."""

LEAST_BYTES = 64 << 10
GONE_ATTEMPTS = 3
"""So often a topic has to be missing to be gone: a broker that has just started may not know it yet."""

VISIBLE_PATIENCE_S = 10.0
"""For records to become visible that were to be seen already: a new leader learns of it within milliseconds."""

_NO_TOPIC = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
_log = logging.getLogger(__name__)


class Fetched(NamedTuple):
    """Whole entries, one behind the other, of which some records may lie outside of the range at both ends. `aborted`
    are (producer id, first offset); `offset` is where they were asked for, of `broker`."""

    data: memoryview
    aborted: tuple[tuple[int, int], ...]
    offset: int
    broker: str


class _Asked(NamedTuple):
    """A Fetch under way."""

    offset: int
    connection: Connection
    version: int
    answer: asyncio.Future[Any]


class _MovedOn(Exception):
    """The offset to read next has changed: what was under way is void."""


class RangeFetch:
    """The answers for one range, in order. `committed`: up to the last stable offset. `topic_id`: of the topic when the
    range was planned, ZERO_UUID if unknown. Without `fail_on_loss` what is gone is left out, with a line in the log.
    `doubting`: batches that are damaged are to be passed, see `extent`."""

    def __init__(
        self,
        cluster: Cluster,
        options: ConsumerOptions,
        wanted: OffsetRange,
        *,
        committed: bool,
        topic_id: bytes = ZERO_UUID,
        fail_on_loss: bool = True,
        doubting: bool = False,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._range = wanted
        self._committed = committed
        self._topic_id = topic_id
        self._fail_on_loss = fail_on_loss
        self._doubting = doubting
        self._lookup = OffsetLookup(cluster, committed)
        self._offset = wanted.start
        self._limit_bytes = min(FIRST_BYTES, options.max_partition_fetch_bytes, options.fetch_max_bytes)
        self._most_bytes = min(options.max_partition_fetch_bytes, options.fetch_max_bytes)
        self._max_wait_ms = options.fetch_max_wait_ms
        self._asked: _Asked | None = None
        self._broker = ""
        self._known = False  # whether the topic was seen to exist, so that asking for it makes none
        self._attempts = 0
        self._missing = 0
        self._deadline = 0.0
        self._visible_by = 0.0

    @property
    def offset(self) -> int:
        """Behind what was given so far."""
        return self._offset

    async def next(self) -> Fetched | None:
        """What follows, None at the end of the range. Raises DataLoss, ReadError."""
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self._options.default_api_timeout_ms / 1000
        self._visible_by = loop.time() + min(VISIBLE_PATIENCE_S, self._options.default_api_timeout_ms / 1000)
        self._attempts = self._missing = 0
        while self._offset < self._range.end:
            with contextlib.suppress(_MovedOn):
                found = await self._tried()
                if found is not None:
                    return found
        return None

    async def _tried(self) -> Fetched | None:
        try:
            asked = self._asked or self._ask(await self._leader())
            self._asked = None
            self._broker = f"{asked.connection.host}:{asked.connection.port}"
            return await self._arrived(asked, self._of_partition(await asked.answer))
        except ClientError as error:
            await self._failed(error)
            return None

    # Asking

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
        """Whether there is such a partition, in a way that makes no topic."""
        topic, partition = self._range.key
        self._known = False
        response = await self._cluster.metadata([topic])
        answer = next((one for one in response.topics if one.name == topic), None)
        there = answer.partitions if answer is not None else []
        # A topic without partitions has an error that may pass, such as that it has no leaders yet.
        if (
            answer is None
            or answer.error_code in _NO_TOPIC
            or (there and all(one.partition_index != partition for one in there))
        ):
            self._missing += 1
            if self._missing < GONE_ATTEMPTS:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self._range.key}")
            self._lose(self._range.end, "it was deleted")
        self._known = True
        before, self._topic_id = self._topic_id, answer.topic_id
        if before != answer.topic_id and ZERO_UUID not in (answer.topic_id, before):
            self._lose(self._offset, "its topic was deleted and made anew")

    def _ask(self, connection: Connection) -> _Asked:
        topic, partition = self._range.key
        known = self._cluster.topics.get(topic)
        topic_id = known.id if known is not None else ZERO_UUID
        version = connection.version_of(FetchRequest, None if topic_id != ZERO_UUID else FETCH_WITHOUT_IDS)
        asked = FetchRequest.FetchTopic
        one = asked.FetchPartition(
            partition=partition,
            current_leader_epoch=self._lookup.epoch(topic, partition),
            fetch_offset=self._offset,
            partition_max_bytes=self._limit_bytes,
        )
        request = FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._options.fetch_min_bytes,
            max_bytes=self._options.fetch_max_bytes,
            isolation_level=int(self._committed and version >= 4),
            topics=[asked(topic=topic, topic_id=topic_id, partitions=[one])],
        )
        timeout_s = (self._options.request_timeout_ms + self._max_wait_ms) / 1000
        answer = connection.send(request, version, timeout_s=timeout_s)
        answer.add_done_callback(_retrieved)
        return _Asked(self._offset, connection, version, answer)

    def _of_partition(self, response: Any) -> Any:
        if response.error_code:
            raise KafkaError(response.error_code)
        for topic in response.responses:
            for answer in topic.partitions:
                if answer.partition_index == self._range.partition:
                    if answer.error_code:
                        raise KafkaError(answer.error_code)
                    return answer
        raise ConnectionLost("an answer to Fetch without the partition")

    # What came

    async def _arrived(self, asked: _Asked, answer: Any) -> Fetched | None:
        data = memoryview(answer.records or b"")
        end = self._range.end
        found = extent(data, asked.offset, end, doubting=self._doubting)
        if found.next_offset > asked.offset:
            self._offset = found.next_offset
            self._max_wait_ms = self._options.fetch_max_wait_ms
            self._estimate(found.stop, found.next_offset - asked.offset)
            if self._offset < end and not asked.connection.is_closed:
                self._asked = self._ask(asked.connection)
            aborted = tuple((one.producer_id, one.first_offset) for one in answer.aborted_transactions or ())
            return Fetched(data[: found.stop], aborted if self._committed else (), asked.offset, self._broker)
        if found.is_broken:
            raise ReadError(
                f"{self._range.key} cannot be read at offset {asked.offset} of {self._broker}: what it has there is no"
                " record batch, and the next cannot be told from it"
            )
        if found.stop < len(data):
            self._enlarge(found.needed_bytes)
        elif self._doubting and begins_damaged(data):
            self._offset += 1  # it reaches further than it says
        else:
            await self._nothing(asked.version, answer)
        return None

    def _estimate(self, size_bytes: int, offsets: int) -> None:
        """No more is asked for than is left of the range, as far as can be told from what came."""
        left_bytes = size_bytes * (self._range.end - self._offset) // offsets
        self._limit_bytes = min(self._most_bytes, max(LEAST_BYTES, left_bytes + left_bytes // 8))

    def _enlarge(self, needed_bytes: int) -> None:
        """Fetch before v3 cuts at the limit, also the first entry: the limit has to grow, as far as it may."""
        most_bytes = self._options.fetch_max_bytes
        if needed_bytes > most_bytes or self._limit_bytes >= most_bytes:
            size = f"has {needed_bytes} bytes" if needed_bytes else "is larger"
            raise ReadError(
                f"{self._range.key} cannot be read at offset {self._offset} of {self._broker}: an entry there"
                f" {size}, and kafka.fetch.max.bytes is {most_bytes}"
            )
        self._limit_bytes = min(most_bytes, max(needed_bytes, 2 * self._limit_bytes))
        self._most_bytes = max(self._most_bytes, self._limit_bytes)

    async def _nothing(self, version: int, answer: Any) -> None:
        """No entry at the offset or behind it: the cleaner has taken the last ones, or they are not visible yet."""
        loop = asyncio.get_running_loop()
        stable = self._committed and version >= 4 and answer.last_stable_offset >= 0
        visible = answer.last_stable_offset if stable else answer.high_watermark
        if visible > self._offset and self._max_wait_ms == 0:
            # Asked twice: to end too early would lose records silently.
            if visible >= self._range.end:
                self._offset = self._range.end
                return
            self._offset = visible
        if loop.time() >= self._visible_by:
            if stable and answer.high_watermark >= self._range.end:
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
        """Looks where the partition is now, and waits a little; raises where no other try can help."""
        loop = asyncio.get_running_loop()
        self._asked = None
        code = error.code if isinstance(error, KafkaError) else None
        try:
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._out_of_range()
            elif code in _NO_TOPIC:
                await self._check_there()
            elif code == ErrorCode.CORRUPT_MESSAGE or not (error.retriable or code == ErrorCode.UNKNOWN_SERVER_ERROR):
                raise self._hopeless(error)
            if code is None or error.retriable:
                await self._cluster.refresh([self._range.topic] if self._known else [])
        except ClientError as another:
            error = another
        self._attempts += 1
        delay_s = self._cluster.retry_backoff_s(self._attempts)
        if loop.time() + delay_s >= self._deadline:
            raise self._hopeless(error)
        await asyncio.sleep(delay_s)

    def _hopeless(self, error: ClientError) -> ReadError:
        text = told(error, self._cluster)
        failure = ReadError(f"{self._range.key} cannot be read at offset {self._offset}: {text}")
        failure.__cause__ = error
        return failure

    async def _out_of_range(self) -> None:
        """Goes on where there are records again, if that is allowed. Returns if the offset is in range by now."""
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
        """Records up to that offset are gone: raises DataLoss; or _MovedOn, behind them, with a line in the log."""
        at = self._broker or ",".join(f"{node.host}:{node.port}" for node in self._cluster.nodes.values())
        what = f"offsets {self._offset} to {until - 1}" if until > self._offset else "its records"
        text = f"{self._range.key} has lost {what}: {why} (broker at {at})"
        if self._fail_on_loss:
            raise DataLoss(f"{text}; with failOnDataLoss=false what is there is read")
        _log.warning("%s", text)
        self._offset = max(until, self._offset)
        self._asked = None
        raise _MovedOn


def _retrieved(answer: asyncio.Future[Any]) -> None:
    """Marks a failure as seen: nobody may come for the answer."""
    with contextlib.suppress(asyncio.CancelledError):
        answer.exception()
