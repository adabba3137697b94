"""The task's side: sends the rows of one partition in order, each exactly once even if other attempts send the same.

Owns the requests in flight, their retries, and the meaning of error codes. Every attempt of a task has the same batches
with the same sequences, so the log has a prefix of them, whichever attempt wrote it:

* First the progress is read from the leader (DescribeProducers, since 2.8). Batches that are in the log are not sent
  again, except the last one: its response comes only after it and all before it are replicated.
* Until the first batch is acknowledged only one is in flight: a broker of 2.5 to 3.5 without state of a producer
  accepts any sequence as its first, so of two in flight the second could be appended without the first.
* After a failure all unacknowledged batches are sent again, in order. A duplicate of one of the newest five batches
  gets the response of the original. For an older one the broker returns OUT_OF_ORDER_SEQUENCE_NUMBER (45) or
  DUPLICATE_SEQUENCE_NUMBER (46): then another attempt is ahead, and this one continues after it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn, Self, TypeVar

import pyarrow as pa

from ...client.admin.calls import Calls
from ...client.admin.logs import LogCalls
from ...client.net.cluster import NO_NODE, Cluster
from ...client.net.connection import Connection
from ...client.net.errors import ClientError, ConnectionLost, KafkaError, UnsupportedVersion
from ...client.net.retry import retry
from ...client.net.threads import mark_retrieved
from ...client.producer.idempotence import last_version
from ...client.producer.log_tail import LogTail
from ...client.producer.responses import partitions_in
from ...client.producer.transactions.requests import PRODUCE_OF_V1
from ...protocol.errors import ErrorCode
from ...protocol.limits import INT32_MAX
from ...protocol.messages.records.produce import ProduceRequest
from ...protocol.messages.transactions.describe_producers import DescribeProducersRequest
from ..readers.columnar.encoding import EncodeOptions
from .batches import Batch, cut, encoded
from .errors import SinkError, SinkFenced
from .options import SinkOptions
from .rows import Targets, content, gathered, split
from .transaction import MISSING_ATTEMPTS, Grant, SinkCalls, SinkTransaction, idempotent_grant

PRODUCE_OF_1_0 = 5
"""From this version on (1.0) a broker keeps five batches of a producer for deduplication; before, one."""

COMPRESSED_HEADROOM = 61
"""Bytes of a batch besides its records."""

_FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_NOT_OPEN = (
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
_ELSEWHERE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


T = TypeVar("T")


class Sent(NamedTuple):
    """The result of a task's sending; picklable.

    `bytes` is the size of keys, values and headers. The offsets are those of the first and the last row, -1 if they are
    unknown because another attempt wrote them, or without rows.
    """

    topic: str
    partition: int
    records: int
    bytes: int
    first_offset: int
    last_offset: int


def send(options: SinkOptions, grant: Grant, where: tuple[str, int], rows: Iterator[pa.RecordBatch]) -> Sent:
    """Writes all rows to the partition, and returns when they are acknowledged.

    `rows` have the columns of `rows.COLUMNS`; `topic` and `partition` are ignored. Raises SinkError, SinkFenced.
    """
    with TaskSender(options, grant) as sender:
        return sender.send(where, rows)


class TaskSender(ExitStack):
    """The connections of a task that sends to several partitions."""

    def __init__(self, options: SinkOptions, grant: Grant) -> None:
        super().__init__()
        self._options, self._grant = options, grant
        self._calls = self.enter_context(SinkCalls(options, options.client.delivery_timeout_ms / 1000))

    def of(self, where: tuple[str, int]) -> Sending:
        """Returns the sending of one partition's rows, until this is closed."""
        return self.enter_context(Sending(self._options, self._grant, where, self._calls))

    def send(self, where: tuple[str, int], rows: Iterator[pa.RecordBatch]) -> Sent:
        """Sends the rows of one partition, see the function `send`."""
        with Sending(self._options, self._grant, where, self._calls) as sending:
            for batch in cut(rows, self._options.batch_bytes):
                sending.put(batch)
            return sending.finish()


CHUNK_BYTES = 32 << 20
"""The memory of a task that writes its rows at once."""


def send_rows(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> int:
    """Writes the rows of a task at once, without a transaction, and returns their number; those for one partition in
    their order. At least once: a second call, of a task that runs again, repeats them. Raises SinkError."""
    now_ms, records = time.time_ns() // 1_000_000, 0
    counts: dict[str, int] = {}
    with SinkTransaction(options, "") as brokers:  # only for metadata: begins no transaction
        for chunk in gathered(batches, CHUNK_BYTES):
            counts |= brokers.partitions(_topics(chunk, options.topic) - counts.keys())
            targets = Targets(counts)
            written = [content(batch, now_ms) for batch in chunk]
            numbers = [targets.numbers(batch, options.topic) for batch in chunk]
            # Sequences begin at 0 with each grant.
            with TaskSender(options, idempotent_grant(options)) as sender:
                for target, rows in split(written, numbers):
                    records += sender.send(targets[target], iter([rows])).records
    return records


def _topics(batches: Iterable[pa.RecordBatch], topic: str | None) -> set[str]:
    """Returns the topics of the rows. Raises SinkError for a row without one."""
    if topic is not None:
        return {topic}
    found = {name for batch in batches for name in batch.column("topic").unique().to_pylist()}
    if None in found:
        raise SinkError("a row has no topic: set the option topic, or the column topic of the row")
    return found


class _Producers(LogCalls):
    """Reads producer states from leaders."""

    def __init__(self, cluster: Cluster) -> None:
        self._calls = Calls(cluster)


class _Ready(NamedTuple):
    """A batch with its bytes."""

    batch: Batch
    data: bytes | bytearray


class Sending:
    """The sending of one partition's rows, over the connections of `calls`."""

    def __init__(self, options: SinkOptions, grant: Grant, where: tuple[str, int], calls: SinkCalls) -> None:
        self._options = options
        self._grant = grant
        self._topic, self._partition = where
        self._where = f"{where[0]}-{where[1]}"
        self._calls = calls
        self._encoding = EncodeOptions(
            codec=options.codec,
            level=options.client.compression_level,
            batch_bytes=INT32_MAX,
            producer_id=grant.producer_id,
            producer_epoch=grant.producer_epoch,
            transactional=grant.transactional_id is not None,
        )
        self._waiting: deque[_Ready] = deque()  # not acknowledged, in order
        self._responses: deque[asyncio.Future[Any]] = deque()  # of the first waiting batches, on the present connection
        self._connection: Connection | None = None
        self._version = 0
        self._has_looked_up = False
        self._has_acked = False
        self._ahead = -1  # the last known sequence in the log, whichever attempt wrote it
        self._failed_since_s: float | None = None
        self._attempt = 0
        self._missing = 0
        self._records = self._bytes = 0
        self._first_offset = self._last_offset = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for response in self._responses:
            response.add_done_callback(mark_retrieved)

    def put(self, batch: Batch) -> None:
        """Sends a batch once there is room in flight."""
        most = self._options.client.max_request_size
        if batch.size_bytes + COMPRESSED_HEADROOM > most and batch.records == 1:
            raise SinkError(
                f"a record of {batch.content_bytes} bytes for {self._where} is larger than"
                f" kafka.max.request.size, {most}"
            )
        self._records += batch.records
        self._bytes += batch.content_bytes
        if not self._has_looked_up:
            self._run(self._look_up_progress)
        if batch.last < self._ahead:
            return  # in the log already
        self._check_boundary(batch)
        ready = _Ready(batch, encoded(batch, replace(self._encoding, base_sequence=batch.first)))
        self._run(lambda cluster: self._put(cluster, ready))

    def finish(self) -> Sent:
        """Waits until all batches are acknowledged."""
        if self._waiting:
            self._run(lambda cluster: self._drain(cluster, 0))
        if self._ahead >= self._records:
            raise self._differs()
        return Sent(self._topic, self._partition, self._records, self._bytes, self._first_offset, self._last_offset)

    def _run(self, work: Any) -> None:
        try:
            self._calls.run(work)
        except UnsupportedVersion as error:
            raise SinkError(f"{self._where} cannot be written exactly once: {error}") from error
        except ClientError as error:
            raise SinkError(f"{self._where} cannot be written: {self._calls.with_brokers(error)}") from error

    def _check_boundary(self, batch: Batch) -> None:
        if batch.first <= self._ahead < batch.last:
            raise self._differs()

    def _differs(self) -> SinkError:
        return SinkError(
            f"{self._where} has other rows from another attempt of this task: rows and their order must be the same"
            " in every computation; the micro-batch has to be written from scratch"
        )

    # -- sending

    async def _put(self, cluster: Cluster, ready: _Ready) -> None:
        await self._drain(cluster, self._limit() - 1)
        if ready.batch.last < self._ahead:
            return  # detected while draining
        self._check_boundary(ready.batch)
        self._waiting.append(ready)
        try:
            await self._send_waiting(cluster)
        except ClientError as error:
            await self._recover(cluster, error)
        await asyncio.sleep(0)  # lets the queued requests leave

    def _limit(self) -> int:
        return self._options.in_flight if self._has_acked and self._version >= PRODUCE_OF_1_0 else 1

    async def _drain(self, cluster: Cluster, most: int) -> None:
        """Waits until at most `most` batches are unacknowledged."""
        while len(self._waiting) > most:
            try:
                await self._send_waiting(cluster)
                await self._take_response()
            except ClientError as error:
                await self._recover(cluster, error)

    async def _send_waiting(self, cluster: Cluster) -> None:
        """Sends the waiting batches that have not been sent on this connection."""
        if self._connection is None:
            self._connection = await self._leader(cluster)
            self._version = self._connection.version_of(ProduceRequest, PRODUCE_OF_V1)
        elif self._connection.is_closed:
            raise ConnectionLost(f"{self._where}: the connection to its leader is closed")
        while len(self._responses) < min(len(self._waiting), self._limit()):
            ready = self._waiting[len(self._responses)]
            self._responses.append(self._connection.send(self._request(ready.data), self._version))

    def _request(self, data: bytes | bytearray) -> ProduceRequest:
        topic = ProduceRequest.TopicProduceData
        one = topic.PartitionProduceData(index=self._partition, records=data)
        return ProduceRequest(
            transactional_id=self._grant.transactional_id,
            acks=-1,
            timeout_ms=self._options.client.request_timeout_ms,
            topic_data=[topic(name=self._topic, partition_data=[one])],
        )

    async def _leader(self, cluster: Cluster) -> Connection:
        await cluster.topic(self._topic, self._patience_s())
        node_id = cluster.leader(self._topic, self._partition)
        if node_id == NO_NODE:
            known = cluster.topics[self._topic]
            self._missing += self._partition not in known.partitions
            if self._missing >= MISSING_ATTEMPTS:
                count = len(known.partitions)
                raise SinkError(f"topic {self._topic!r} has {count} partitions, no partition {self._partition}")
            cluster.expire(self._topic)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, self._where)
        return await cluster.connection(node_id)

    def _patience_s(self) -> float:
        client = self._options.client
        return min(client.max_block_ms, client.delivery_timeout_ms) / 1000

    async def _take_response(self) -> None:
        """Waits for the oldest pending response. Raises SinkError, and ClientError for `_recover`."""
        response = await self._responses[0]
        result: Any = partitions_in(response).get((self._topic, self._partition))
        self._responses.popleft()
        if result is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a response without the partition")
        code = result.error_code
        if code == ErrorCode.NONE:
            self._acked(result.base_offset)
        elif code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._acked(-1)
        else:
            error = KafkaError(code, getattr(result, "error_message", None))
            if error.retriable or code in _ELSEWHERE:
                raise error
            self._refused(error, self._waiting[0])

    def _acked(self, base_offset: int) -> None:
        batch = self._waiting.popleft().batch
        self._has_acked = True
        self._failed_since_s = None
        self._attempt = 0
        if batch.first == 0:
            self._first_offset = base_offset
        self._last_offset = base_offset + batch.records - 1 if base_offset >= 0 else -1

    def _refused(self, error: KafkaError, ready: _Ready) -> NoReturn:
        """Raises the error of a batch that no retry can change."""
        code, batch = error.number, ready.batch
        if code in _FENCED:
            raise self._fenced()
        if code in _NOT_OPEN:
            raise SinkError(
                f"{self._where} has no open transaction of {self._owner()}: it may have been"
                f" aborted after its timeout ({error})"
            )
        if code in _TOO_LARGE:
            what, advice = f"a record of {batch.content_bytes} bytes", ""
            if batch.records > 1:
                what = f"a batch of {len(ready.data)} bytes"
                advice = ": set kafka.batch.size below its max.message.bytes"
            raise SinkError(
                f"{what} for {self._where} is larger than its topic allows{advice} (max.message.bytes): {error}"
            )
        if code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
            raise SinkError(f"{self._where} has an older message format than v2, without producer ids: {error}")
        raise SinkError(f"{self._where} refuses rows {batch.first} to {batch.last} of this task: {error}")

    def _fenced(self) -> SinkFenced:
        return SinkFenced(
            f"{self._where} has a newer owner of {self._owner()}: another query took over, or the transaction was"
            " aborted after its timeout (kafka.transaction.timeout.ms)"
        )

    def _owner(self) -> str:
        grant = self._grant
        if grant.transactional_id is None:
            return f"producer id {grant.producer_id}"
        return f"transactional id {grant.transactional_id!r}"

    # -- after a failure

    async def _recover(self, cluster: Cluster, cause: ClientError) -> None:
        """Waits until no request is in flight, reads the progress from the log, and lets the waiting batches be sent
        again. Raises SinkError if no retry can help."""
        if not cause.retriable and not (isinstance(cause, KafkaError) and cause.code in _ELSEWHERE):
            raise cause
        loop = asyncio.get_running_loop()
        if self._responses:
            await asyncio.gather(*self._responses, return_exceptions=True)
            self._responses.clear()
        self._has_acked = False
        if self._failed_since_s is None:
            self._failed_since_s = loop.time()
        self._attempt += 1
        delay_s = cluster.retry_backoff_s(self._attempt)
        if loop.time() + delay_s >= self._deadline_s():
            raise self._given_up(cause) from cause
        if isinstance(cause, KafkaError) and cause.code in _ELSEWHERE:
            await self._find_place(cluster, cause, is_refused=True)
            if self._attempt == 1:
                return
        elif isinstance(cause, ConnectionLost) or (isinstance(cause, KafkaError) and cause.stale_metadata):
            # Another leader, or the same one after a restart: its log may lack acknowledged batches.
            self._connection = None
            cluster.expire(self._topic)
            await self._find_place(cluster, cause, is_refused=False)
        await asyncio.sleep(delay_s)

    def _deadline_s(self) -> float:
        since_s = self._failed_since_s
        since_s = asyncio.get_running_loop().time() if since_s is None else since_s
        return since_s + self._options.client.delivery_timeout_ms / 1000

    def _given_up(self, cause: ClientError) -> SinkError:
        limit_ms = self._options.client.delivery_timeout_ms
        return SinkError(
            f"{self._where} could not be written within kafka.delivery.timeout.ms, {limit_ms} ms:"
            f" {self._calls.with_brokers(cause)}"
        )

    async def _find_place(self, cluster: Cluster, cause: ClientError, *, is_refused: bool) -> None:
        """Continues after the batches in the log. `is_refused`: the first waiting batch is out of order, so another
        attempt is ahead, or the batches before it are lost."""
        last = await self._patiently(cluster, self._last_sequence)
        if last is None and is_refused:
            last = await self._patiently(cluster, self._last_in_log)
        if last is None:
            return
        first = self._waiting[0].batch.first
        if last < first - 1:
            raise SinkError(
                f"{self._where} lost rows of this task up to {first - 1}, or their producer state"
                f": the micro-batch has to be written from scratch ({cause})"
            ) from cause
        if last > self._ahead:
            self._ahead = last
            self._failed_since_s = None
        elif is_refused and self._waiting[0].batch.last == last:
            raise self._differs()  # this batch is the newest in the log, so a duplicate of it would not be out of order
        while self._waiting and self._waiting[0].batch.last < self._ahead:
            self._waiting.popleft()
            self._last_offset = -1
        for ready in self._waiting:
            self._check_boundary(ready.batch)

    # -- progress in the log

    async def _look_up_progress(self, cluster: Cluster) -> None:
        self._has_looked_up = True
        last = await self._patiently(cluster, self._last_sequence)
        self._ahead = -1 if last is None else last

    async def _patiently(self, cluster: Cluster, lookup: Callable[[Cluster], Awaitable[T]]) -> T:
        """Runs `lookup`, retried until the deadline of a batch. Raises ClientError, SinkError."""
        left_s = self._deadline_s() - asyncio.get_running_loop().time()
        expire = cluster.expire
        try:
            return await retry(
                lambda: lookup(cluster), cluster.retry_backoff_s, left_s, on_failure=lambda error: expire(self._topic)
            )
        except ClientError as error:
            if error.retriable:
                raise self._given_up(error) from error
            raise

    async def _last_sequence(self, cluster: Cluster) -> int | None:
        """Returns the last sequence of this grant in the partition, -1 for none, or None if the broker does not report
        it."""
        connection = await self._leader(cluster)
        if last_version(connection, DescribeProducersRequest) < 0:
            return None
        where = self._topic, self._partition
        found = (await _Producers(cluster).describe_producers([where], timeout_s=self._patience_s()))[where]
        if isinstance(found, ClientError):
            if isinstance(found, KafkaError) and found.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                return None
            if isinstance(found, UnsupportedVersion):
                return None
            raise found
        for state in found:
            if state.producer_id == self._grant.producer_id:
                return self._sequence_of(state.producer_epoch, state.last_sequence)
        return -1

    def _sequence_of(self, epoch: int, sequence: int) -> int:
        if epoch > self._grant.producer_epoch:
            raise self._fenced()
        return sequence if epoch == self._grant.producer_epoch else -1

    async def _last_in_log(self, cluster: Cluster) -> int:
        """Returns the same by reading the end of the log; a limit of time bounds the search."""
        try:
            async with asyncio.timeout(self._patience_s()):
                found = await LogTail(cluster).last_of(self._topic, self._partition, {self._grant.producer_id})
        except TimeoutError:
            raise SinkError(f"{self._where}: the batches of this task were not found in its log in time") from None
        return -1 if found is None else self._sequence_of(found.producer_epoch, found.sequence)
