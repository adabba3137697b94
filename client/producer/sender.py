"""Sends batches to the leaders, and hands the responses on.

Owns the requests in flight, retries and their back-off, and the end after a fatal error. Deadlines of batches are in
`sender_state.py`, the order within a partition is in `sequences.py`, further requests are in `recovery_queries.py`.

There is no loop task: `wake` schedules one pass in the next iteration of the event loop. It sends the possible batches
and sets one timer for later ones. Responses, new metadata, records and timers call `wake`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...protocol.errors import ErrorCode
from ...protocol.messages.records.produce import ProduceRequest
from ...protocol.primitives import ZERO_UUID
from ..net.cluster import NO_NODE, Cluster, is_refused
from ..net.connection import Connection
from ..net.errors import ClientError, ConfigError, InvalidRequest, ProducerFailed, UnsupportedVersion
from ..net.metadata import by_topic
from .accumulator import Accumulator, Batch, PartitionQueue
from .batches import CODECS, encode, magic_of
from .options import ProducerOptions
from .recovery_queries import Inquiries
from .responses import Outcomes, partitions_in
from .sender_state import SenderState
from .sequences import Sequences
from .transactions.manager import Transactions
from .transactions.requests import PRODUCE_OF_V1
from .transactions.state_machine import Doom

SCAN_FEATURE = "ottla.duplicate.scan"
PRODUCE_WITHOUT_IDS = 12
IN_FLIGHT_WITHOUT_SCAN = 5  # the number of batches that every broker caches for a producer
NEVER = float("inf")

_log = logging.getLogger("ottla.client")


@dataclass(slots=True, eq=False)
class _Node:
    """A leader, with its connection and its requests in flight."""

    node_id: int
    connection: Connection | None = None
    in_flight: int = 0
    is_opening: bool = False
    not_before_s: float = 0.0


class Sender(SenderState):
    """The sender of one producer. `batch_closed(topic, partition)` is called when a batch leaves its queue."""

    def __init__(self, cluster: Cluster, options: ProducerOptions, batch_closed: Callable[[str, int], None]) -> None:
        super().__init__(cluster, options)
        self.transactions: Transactions | None = None
        if options.transactional_id is not None:
            self.transactions = Transactions(self, options.transactional_id)
        self.accumulator = Accumulator(
            buffer_bytes=options.buffer_memory,
            delivery_s=options.delivery_timeout_ms / 1000,
            opened=self.opened,
            failed=None if self.transactions is None else self.transactions.failed,
        )
        self.inquiries = Inquiries(self, self.transactions)
        self.outcomes = Outcomes(self, self.inquiries, self.transactions)
        self._batch_closed = batch_closed
        self._codec = CODECS[options.compression_type]
        self._linger_s = options.linger_ms / 1000
        self._nodes: dict[int, _Node] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = NEVER
        self._wake_s = NEVER
        self._has_warned = False
        cluster.add_listener(self._on_metadata)

    # Passes

    def _on_metadata(self) -> None:
        self._refreshing.clear()
        if self.modes.mode != "off":
            for queue in self.accumulator.queues.values():
                # The message format of the topic may be v2 now.
                if queue.mode is False and not queue.in_flight and not queue.put_back and queue.sequences is None:
                    queue.mode = None
        if self._active:
            self.wake()

    def not_before(self, when_s: float) -> None:
        """Schedules a pass at a time."""
        if when_s < self._wake_s:
            self._wake_s = when_s

    def _pass(self) -> None:
        self._is_awake = False
        if self._is_closed or self.failure is not None:
            return
        now_s = self.loop.time()
        self._wake_s = NEVER
        self._expire(now_s)
        by_node: dict[int, list[PartitionQueue]] = {}
        for queue in list(self._active):
            if not queue.has_work():
                del self._active[queue]
                continue
            leader = self.cluster.leader(queue.topic, queue.index)
            if leader == NO_NODE:
                self.want_metadata(queue.topic)
            else:
                by_node.setdefault(leader, []).append(queue)
        for node_id, queues in by_node.items():
            node = self._nodes.get(node_id)
            if node is None:
                node = self._nodes[node_id] = _Node(node_id)
            if self._is_usable(node, now_s):
                self._fill(node, queues, now_s)
            if self.failure is not None:
                return
        self._set_timer(now_s)

    def _set_timer(self, now_s: float) -> None:
        if self._deadlines:
            self.not_before(self._deadlines[0][0])
        if self._timer is not None:
            if self._timer_s <= self._wake_s < NEVER:
                return  # the set timer is earlier: an extra pass at worst
            self._stop_timer()
        if self._wake_s < NEVER:
            self._timer_s = max(self._wake_s, now_s)
            self._timer = self.loop.call_at(self._timer_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._pass()

    def _is_usable(self, node: _Node, now_s: float) -> bool:
        connection = node.connection
        if connection is not None and connection.is_closed:
            node.connection = connection = None
            node.in_flight = 0
        if node.not_before_s > now_s:
            self.not_before(node.not_before_s)
            return False
        if connection is None and not node.is_opening:
            node.is_opening = True
            self.task(self._connect(node))
        return connection is not None

    async def _connect(self, node: _Node) -> None:
        try:
            connection = await self.cluster.connection(node.node_id)
        except ClientError as error:
            node.not_before_s = self.loop.time() + self.cluster.retry_backoff_s(1)
            for topic in {
                queue.topic for queue in self._active if self.cluster.leader(queue.topic, queue.index) == node.node_id
            }:
                self.want_metadata(topic)
                if is_refused(error):
                    self.refuse_topic(topic, error)
        else:
            node.connection = connection
            node.in_flight = 0
            for queue in self.accumulator.queues.values():
                if queue.sequences is not None and self.cluster.leader(queue.topic, queue.index) == node.node_id:
                    queue.sequences.on_new_connection()
        finally:
            node.is_opening = False
            self.wake()

    # Sending

    def _in_flight_max(self, connection: Connection) -> int:
        most = self.options.max_in_flight_requests_per_connection
        if most <= IN_FLIGHT_WITHOUT_SCAN or self.modes.mode == "off" or SCAN_FEATURE in connection.features:
            return most
        if not self._has_warned:
            self._has_warned = True
            text = "max.in.flight.requests.per.connection=%d is limited to %d: the broker at %s:%d does not announce %s"
            _log.warning(text, most, IN_FLIGHT_WITHOUT_SCAN, connection.host, connection.port, SCAN_FEATURE)
        return IN_FLIGHT_WITHOUT_SCAN

    def _fill(self, node: _Node, queues: list[PartitionQueue], now_s: float) -> None:
        """Sends requests, each with at most one batch of a partition, until no batch may be sent."""
        connection = node.connection
        assert connection is not None
        most = self._in_flight_max(connection)
        room = self.options.max_request_size
        while node.in_flight < most and not connection.is_closed:
            taken: list[Batch] = []
            pieces: list[bytes] = []
            size = 0
            for queue in queues:
                batch = self._ready(queue, connection, now_s)
                if batch is None:
                    continue
                if taken and size + batch.size > room:
                    break
                data = self._take(queue, batch, connection)
                if data is not None:
                    taken.append(batch)
                    pieces.append(data)
                    size += len(data)
            if not taken:
                return
            self._send(node, connection, taken, pieces)
            if len(queues) > 1:  # the partitions served now are last in the next pass
                for batch in taken:
                    if self._active.pop(batch.queue, True) is None:
                        self._active[batch.queue] = None

    def _ready(self, queue: PartitionQueue, connection: Connection, now_s: float) -> Batch | None:
        """Returns the batch of a queue that may be sent now, or None."""
        if queue.mode is None and not self._decide(queue, connection):
            return None
        if self.transactions is not None and not self.transactions.may_send(queue):
            return None
        sequences = queue.sequences
        if sequences is not None:
            if sequences.may_restart() and not self._restart(queue, sequences):
                return None
            if sequences.unfinished:
                batch = sequences.resendable()
                if batch is not None and queue not in self.inquiries.bounding:
                    return self._if_due(batch, now_s)
            if not sequences.may_drain():
                return None
        elif queue.mode:
            return self._begin(queue, connection)
        elif queue.put_back:
            if self._is_muted(queue):
                return None
            return self._if_due(queue.put_back[0], now_s)
        if not queue.waiting or (queue.mode is False and (sequences is not None or self._is_muted(queue))):
            return None
        batch = queue.waiting[0]
        if batch is not queue.open or self.is_flushing or self.accumulator.is_waited_for or not self._linger_s:
            return batch
        due_s = batch.created_s + self._linger_s
        if due_s > now_s:
            self.not_before(due_s)
            return None
        return batch

    def _is_muted(self, queue: PartitionQueue) -> bool:
        """Returns whether a queue must wait: with one request in flight, order is guaranteed without idempotence."""
        return self.options.max_in_flight_requests_per_connection == 1 and queue.in_flight > 0

    def _if_due(self, batch: Batch, now_s: float) -> Batch | None:
        if batch.not_before_s > now_s:
            self.not_before(batch.not_before_s)
            return None
        return batch

    def _decide(self, queue: PartitionQueue, connection: Connection) -> bool:
        topic = self.cluster.topics.get(queue.topic)
        if topic is None:
            return False
        try:
            queue.mode = self.modes.decide(topic, connection)
        except ClientError as error:
            self.refuse_topic(queue.topic, error)
        return queue.mode is not None

    def _begin(self, queue: PartitionQueue, connection: Connection) -> None:
        """Creates the sequences of a queue when the producer id is known; the next pass sends its batches."""
        made = self.inquiries.producer_id() if self.transactions is None else self.transactions.owner
        if made is not None:
            queue.sequences = Sequences(*made, searches=SCAN_FEATURE in connection.features)
            self.wake()

    def _restart(self, queue: PartitionQueue, sequences: Sequences[Batch]) -> bool:
        fresh = None
        if self.transactions is not None:
            self.transactions.needs_new_start(queue)
            return False
        if sequences.needs_producer_id:
            fresh = self.inquiries.fresh_producer_id(queue)
            if fresh is None:
                return False
        sequences.restart(fresh)
        for batch in sequences.unfinished:
            queue.note_place(batch)
        return True

    def _take(self, queue: PartitionQueue, batch: Batch, connection: Connection) -> bytes | None:
        """Removes a batch from its queue and encodes it; if that fails, fails the batch and returns None."""
        sequences = queue.sequences
        is_new = bool(queue.waiting) and queue.waiting[0] is batch
        if is_new:
            queue.take_first()
            self._batch_closed(queue.topic, queue.index)
            if sequences is not None:
                sequences.assign(batch)
                queue.note_place(batch)
        elif sequences is not None:
            sequences.resent(batch)
        else:
            del queue.put_back[0]
        version = self._version(connection, queue.topic)
        batch.magic = magic_of(version)
        try:
            data = encode(
                batch.records,
                version,
                self._codec,
                self.options.compression_level,
                batch.producer_id,
                batch.epoch,
                batch.base_sequence,
                self.transactions is not None,
            )
        except (UnsupportedVersion, InvalidRequest, ConfigError) as error:
            cause = error
            if sequences is not None and is_new:
                sequences.withdraw(batch)
                batch.base_sequence = -1
            elif sequences is not None:
                sequences.failed(batch, ErrorCode.INVALID_RECORD, retriable=False)
            self.accumulator.fail(batch, lambda _: type(cause)(str(cause)))
            return None
        if sequences is None:
            queue.in_flight += 1
        return data

    def _version(self, connection: Connection, name: str) -> int:
        """Returns the version of Produce for a topic: v13 and later identify topics by id, and transactions of the
        first version need v11 or lower (KIP-890). Raises UnsupportedVersion."""
        topic = self.cluster.topics.get(name)
        is_v1 = self.transactions is not None and not self.transactions.status.is_v2
        newest = PRODUCE_OF_V1 if is_v1 else None
        if newest is None and (topic is None or topic.id == ZERO_UUID):
            newest = PRODUCE_WITHOUT_IDS
        return connection.version_of(ProduceRequest, newest)

    def _send(self, node: _Node, connection: Connection, batches: list[Batch], pieces: list[bytes]) -> None:
        names = {batch.queue.topic for batch in batches}
        version = min(self._version(connection, name) for name in names)
        ids = self.cluster.topic_ids(names)
        acks = self.options.acks
        assert isinstance(acks, int)
        topic_class = ProduceRequest.TopicProduceData
        make = topic_class.PartitionProduceData
        parts = by_topic(
            (batch.queue.topic, make(index=batch.queue.index, records=data))
            for batch, data in zip(batches, pieces, strict=True)
        )
        request = ProduceRequest(
            transactional_id=self.options.transactional_id,
            acks=acks,
            timeout_ms=self.options.request_timeout_ms,
            topic_data=[
                topic_class(name=name, topic_id=ids[name], partition_data=some) for name, some in parts.items()
            ],
        )
        node.in_flight += 1
        if acks:
            future = connection.send(request, version)
            future.add_done_callback(partial(self._on_response, node, connection, batches))
        else:
            self.task(self._post(node, connection, batches, request, version))

    async def _post(
        self, node: _Node, connection: Connection, batches: list[Batch], request: ProduceRequest, version: int
    ) -> None:
        """Sends with acks=0: a batch written to the socket counts as sent."""
        try:
            connection.post(request, version)
            await connection.wait_writable()
        except ClientError as error:
            for batch in batches:
                batch.queue.in_flight -= 1
                self.outcomes.retry_plain(batch, error)
        else:
            for batch in batches:
                batch.queue.in_flight -= 1
                self.accumulator.fulfil(batch, -1, -1)
        finally:
            if node.connection is connection:
                node.in_flight -= 1
            self.wake()

    # Responses

    def _on_response(
        self, node: _Node, connection: Connection, batches: list[Batch], future: asyncio.Future[Any]
    ) -> None:
        """Handles a response, or the end of the connection, which fails each request in flight."""
        if node.connection is connection:
            node.in_flight -= 1
        error = None if future.cancelled() else future.exception()
        if self._is_closed or self.failure is not None:
            return
        if error is not None or future.cancelled():
            for topic in {batch.queue.topic for batch in batches}:
                self.want_metadata(topic)
            for batch in batches:
                self.outcomes.on_error(batch, ErrorCode.NETWORK_EXCEPTION, None, error)
        else:
            response = future.result()
            if response.throttle_time_ms:
                node.not_before_s = self.loop.time() + response.throttle_time_ms / 1000
            partitions = partitions_in(response)
            ids = self.cluster.topic_ids({batch.queue.topic for batch in batches})
            for batch in batches:
                topic, index = batch.queue.topic, batch.queue.index
                found = partitions.get((topic, index)) or partitions.get((ids[topic], index))
                if found is None:
                    self.outcomes.on_error(batch, ErrorCode.NETWORK_EXCEPTION, None, None)
                elif found.error_code == ErrorCode.NONE:
                    self.outcomes.on_success(batch, found.base_offset, found.log_append_time_ms, found.log_start_offset)
                else:
                    self.outcomes.on_error(batch, found.error_code, found, None)
                if self.failure is not None:
                    return
        for batch in batches:
            if batch.queue.has_work():
                self._active[batch.queue] = None
        if self.transactions is not None:
            self.transactions.on_responses()
        self.wake()

    # The end

    def fail(self, error: ProducerFailed, batch: Batch | None = None) -> None:
        """Implements `SenderState.fail`."""
        if self.failure is not None:
            return
        self.failure = error
        if self.transactions is not None:
            self.transactions.process(Doom(error))
        if batch is not None:
            self.accumulator.fail(batch, lambda _: error)
        self.fail_all(self.failed)
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def close(self) -> None:
        """Stops sending. Does not close connections."""
        self._is_closed = True
        self._stop_timer()
        if self.transactions is not None:
            self.transactions.close()
        self.modes.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
