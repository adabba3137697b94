"""The requests that the sender needs before it can continue: producer ids, bounds of offsets, lookups in logs.

Owns these requests and their retries, each at most once in flight, and the errors for records that a log has lost.
`sequences.py` interprets the results.
"""

from __future__ import annotations

import asyncio

from ...protocol.errors import ErrorCode
from ...protocol.limits import INT32_MAX
from ...protocol.messages.transactions.init_producer_id import InitProducerIdRequest
from ..net.errors import (
    ClientError,
    ConnectionLost,
    KafkaError,
    OutOfOrderSequence,
    ProducerFailed,
    UnsupportedVersion,
)
from ..net.retry import retry
from .accumulator import Batch, PartitionQueue
from .log_tail import LogTail
from .sender_state import SenderState
from .sequences import Acked, Sequences, Verdict, precedes
from .transactions.manager import Transactions


class Inquiries:
    """The recovery queries of one sender."""

    def __init__(self, sender: SenderState, transactions: Transactions | None) -> None:
        self._sender = sender
        self._transactions = transactions
        self.tail = LogTail(sender.cluster)
        self._producer_id: tuple[int, int] | None = None
        self._fresh: dict[PartitionQueue | None, tuple[int, int] | None] = {}
        self.bounding: set[PartitionQueue] = set()  # a bound of their last acknowledged offset is being requested

    # Producer ids

    def producer_id(self) -> tuple[int, int] | None:
        """Returns the first producer id and epoch; None while they are requested."""
        if self._producer_id is None:
            self._producer_id = self.fresh_producer_id(None)
        return self._producer_id

    def fresh_producer_id(self, queue: PartitionQueue | None) -> tuple[int, int] | None:
        """Returns a new producer id for a queue whose epochs are exhausted; None while it is requested."""
        if queue not in self._fresh:
            self._fresh[queue] = None
            self._sender.task(self._request_fresh(queue))
        found = self._fresh[queue]
        if found is not None:
            del self._fresh[queue]
        return found

    async def _request_fresh(self, queue: PartitionQueue | None) -> None:
        """Requests a producer id and epoch, with retries.

        After a fatal error the producer fails or, in the mode "requested", continues without idempotence.
        """
        sender = self._sender
        try:
            found = await retry(self._request_id, sender.cluster.retry_backoff_s)
        except ClientError as error:
            if sender.modes.mode == "requested" and self._producer_id is None:
                sender.modes.mode = "off"
                for other in sender.accumulator.queues.values():
                    other.mode = None
            else:
                failure = ProducerFailed(f"no producer id: {error}")
                failure.__cause__ = error
                sender.fail(failure)
        else:
            sender.producer_ids.add(found[0])
            self._fresh[queue] = found
        sender.wake()

    async def _request_id(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=INT32_MAX)
        connection = None
        try:
            connection = await self._sender.cluster.any_connection()
            response = await connection.request(request)
        except UnsupportedVersion as error:
            # The leader serves InitProducerId. This connection was mistaken for that of an old broker, since it was
            # closed during the negotiation.
            if connection is not None:
                connection.close()
            raise ConnectionLost("a broker without InitProducerId") from error
        if response.error_code:
            raise KafkaError(response.error_code)
        return response.producer_id, response.producer_epoch

    # Offsets

    def bound_offset(self, queue: PartitionQueue, sequences: Sequences[Batch]) -> None:
        """Requests a bound of the last acknowledged offset, after an acknowledgement without an offset."""
        if queue not in self.bounding:
            self.bounding.add(queue)
            self._sender.task(self._bound(queue, sequences))

    async def _bound(self, queue: PartitionQueue, sequences: Sequences[Batch]) -> None:
        async def attempt() -> None:
            if not sequences.offset_is_known:
                sequences.bound_offset(await self._end_of_acked(queue, sequences))

        try:
            while not sequences.offset_is_known:
                await retry(attempt, self._sender.cluster.retry_backoff_s)
        except ClientError:
            sequences.bound_offset(0)
        finally:
            self.bounding.discard(queue)
            self._sender.wake()

    async def _end_of_acked(self, queue: PartitionQueue, sequences: Sequences[Batch]) -> int:
        """Returns an offset above all acknowledged records: that of a later batch of ours, or the log end."""
        end = await self.tail.offset(queue.topic, queue.index)
        last, epoch = sequences.last_acked_sequence, sequences.epoch
        since = 0 if sequences.last_acked is None else sequences.last_acked.offset
        for header in await self.tail.find(queue.topic, queue.index, since, sequences.producer_id):
            if header.producer_epoch == epoch and precedes(last, header.base_sequence):
                return header.base_offset
        return end

    # Logs

    async def look_for_suspect(
        self, batch: Batch, sequences: Sequences[Batch], suspect: Acked, base_offset: int, append_time_ms: int
    ) -> None:
        """Checks before an acknowledgement whether the suspect record was still in the log when it was written."""
        sender = self._sender
        is_there = base_offset > suspect.offset and await self._is_there(batch.queue, suspect)
        if sender.failure is not None:
            return
        if not is_there:
            self.lose(batch, sequences)
            return
        sequences.succeeded(batch, base_offset)
        sender.accumulator.fulfil(batch, base_offset, append_time_ms)
        sender.wake()

    async def _is_there(self, queue: PartitionQueue, acked: Acked) -> bool:
        """Returns whether a record is in the log; above the high watermark it is lost after a request timeout."""
        sender = self._sender
        loop = asyncio.get_running_loop()
        patience_s = loop.time() + sender.options.request_timeout_ms / 1000
        attempt = 0
        while True:
            attempt += 1
            try:
                found = await self.tail.holds(queue.topic, queue.index, acked)
                if found is not None:
                    return found
                if loop.time() >= patience_s:
                    return False
            except ClientError as error:
                if not error.retriable:
                    return False
            await asyncio.sleep(sender.cluster.retry_backoff_s(attempt))

    async def look_for_batch(self, batch: Batch, sequences: Sequences[Batch], alive_until_s: float) -> None:
        """Reads the log after OUT_OF_ORDER from a broker that does not search its log for duplicates."""
        sender, queue = self._sender, batch.queue
        loop = asyncio.get_running_loop()
        attempt = 0
        while sender.failure is None:
            attempt += 1
            try:
                base_offset = await self._place_of(batch, sequences)
            except ClientError as error:
                if error.retriable:
                    await asyncio.sleep(sender.cluster.retry_backoff_s(attempt))
                    continue
                self.lose(batch, sequences)
                return
            if base_offset is not None:
                sequences.found(batch, base_offset)
                sender.accumulator.fulfil(batch, base_offset, -1)
                if not sequences.offset_is_known:
                    self.bound_offset(queue, sequences)
                break
            last = sequences.last_acked
            if last is not None and not await self._is_there(queue, last):
                self.lose(batch, sequences)
                return
            left_s = alive_until_s - loop.time()
            if left_s <= 0:
                sequences.not_found()
                break
            await asyncio.sleep(left_s)
        sender.resume(queue)

    async def _place_of(self, batch: Batch, sequences: Sequences[Batch]) -> int | None:
        """Returns the offset of a batch in the log, -1 if it was deleted since, None if it was never written."""
        queue = batch.queue
        since = max(0, sequences.last_acked_offset)
        for header in await self.tail.find(queue.topic, queue.index, since, batch.producer_id):
            if header.producer_epoch == batch.epoch:
                if (header.base_sequence, header.last_sequence) == (batch.base_sequence, batch.last_sequence):
                    return header.base_offset
                if precedes(batch.base_sequence, header.base_sequence):
                    return -1  # a later batch was accepted, so this one was written
        return None

    # Losses

    def abort_is_enough(self, queue: PartitionQueue, verdict: Verdict) -> bool:
        """Returns whether aborting the transaction suffices: after fencing, or if only its own records are lost."""
        transactions = self._transactions
        return transactions is not None and (verdict is Verdict.FENCED or transactions.covers(queue))

    def lose(self, batch: Batch, sequences: Sequences[Batch]) -> None:
        """Handles the loss of acknowledged records: fails the producer, or the transaction of the lost records."""
        lost = self.out_of_order(batch, sequences)
        if not self.abort_is_enough(batch.queue, Verdict.OUT_OF_ORDER):
            self._sender.fail(lost, batch)
            return
        sequences.is_looking = False
        if batch in sequences.unfinished:
            sequences.give_up(batch)
        error = KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, str(lost))
        self._sender.accumulator.fail(batch, lambda _: error)

    def out_of_order(self, batch: Batch, sequences: Sequences[Batch]) -> OutOfOrderSequence:
        """Returns the error for lost acknowledged records."""
        queue = batch.queue
        error = OutOfOrderSequence(
            f"{queue.topic}-{queue.index} lost acknowledged records of this producer, up to offset"
            f" {sequences.last_acked_offset}: sequences {batch.base_sequence} to {batch.last_sequence} do not follow"
        )
        error.topic, error.partition = queue.topic, queue.index
        return error
