"""Applies Produce responses to batches: acknowledged, retried, split, refused, or a fatal error of the producer.

Owns the step from an error code to the batch and its futures. For batches with sequences `sequences.py` decides whether
a code means a loss.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ...protocol.errors import ErrorCode
from ..net.errors import (
    ClientError,
    KafkaError,
    MessageTooLarge,
    ProducerFailed,
    ProducerFenced,
    UnknownProducer,
    error_code,
    is_retriable,
)
from .accumulator import Batch
from .recovery_queries import Inquiries
from .sender_state import SenderState
from .sequences import Sequences, Verdict
from .transactions.coordinator_calls import COPIES_LIVE_S, SOON_S
from .transactions.manager import Transactions

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

_Partition = Any  # ProduceResponse's PartitionProduceResponse


class Outcomes:
    """The responses of one sender."""

    def __init__(self, sender: SenderState, inquiries: Inquiries, transactions: Transactions | None) -> None:
        self._sender = sender
        self._inquiries = inquiries
        self._transactions = transactions

    def on_success(self, batch: Batch, base_offset: int, append_time_ms: int, log_start_offset: int) -> None:
        """Handles an acknowledgement."""
        sequences = batch.queue.sequences
        if sequences is None or batch.base_sequence < 0:
            batch.queue.in_flight -= 1
        elif (suspect := sequences.suspect) is not None:
            looking = self._inquiries.look_for_suspect(batch, sequences, suspect, base_offset, append_time_ms)
            self._sender.task(looking)
            return
        else:
            sequences.succeeded(batch, base_offset, log_start_offset)
        self._sender.accumulator.fulfil(batch, base_offset, append_time_ms)

    def on_error(self, batch: Batch, code: int, response: _Partition | None, cause: BaseException | None) -> None:
        error: ClientError = KafkaError(code, getattr(response, "error_message", None))
        if isinstance(cause, ClientError):
            error = cause
        if isinstance(error, KafkaError) and error.stale_metadata:
            self._sender.want_metadata(batch.queue.topic)
        if code in _TOO_LARGE and batch.count > 1 and not batch.is_done:
            self._split(batch)
            return
        if code == ErrorCode.MESSAGE_TOO_LARGE:
            error = MessageTooLarge(
                f"a record of about {batch.size} bytes exceeds max.message.bytes of topic {batch.queue.topic!r}"
            )
        sequences = batch.queue.sequences
        if sequences is None or batch.base_sequence < 0:
            batch.queue.in_flight -= 1
            if is_retriable(code):
                self.retry_plain(batch, error)
            else:
                self._sender.accumulator.fail(batch, partial(_error_of_record, error, response))
        elif code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
            self._on_old_format(batch, sequences)
        elif self._is_abandoned(response, code):
            sequences.abandon(batch)
            self._sender.accumulator.fail(batch, lambda _: error)
        else:
            self._judge(batch, sequences, code, response, error)

    def _is_abandoned(self, response: _Partition | None, code: int) -> bool:
        """Returns whether a failed batch is not retried since its transaction will be aborted."""
        transactions = self._transactions
        if transactions is None or not transactions.is_failing:
            return False
        return not (transactions.status.resends_always and (response is None or is_retriable(code)))

    def retry_plain(self, batch: Batch, error: ClientError) -> None:
        if batch.is_done:
            return
        batch.attempts += 1
        if batch.attempts > self._sender.options.retries:
            self._sender.accumulator.fail(batch, lambda _: error)
            return
        batch.not_before_s = self._sender.now_s() + self._sender.cluster.retry_backoff_s(batch.attempts)
        batch.queue.keep_order(batch)
        self._sender.resume(batch.queue)

    def _split(self, batch: Batch) -> None:
        parts = batch.halves()
        queue = batch.queue
        if queue.sequences is not None and batch.base_sequence >= 0:
            queue.sequences.split(batch, parts)
        else:
            queue.in_flight -= 1
            for part in parts:
                queue.keep_order(part)
        self._sender.accumulator.replace(batch, parts)
        for part in parts:
            self._sender.watch(part)

    def _on_old_format(self, batch: Batch, sequences: Sequences[Batch]) -> None:
        """Retries without idempotence after UNSUPPORTED_FOR_MESSAGE_FORMAT, or fails all batches of the topic."""
        queue = batch.queue
        topic = self._sender.cluster.topics.get(queue.topic)
        error = self._sender.modes.refuse(topic) if topic is not None else None
        queue.mode = False
        sequences.release(batch)
        if not batch.is_done and error is None:
            queue.keep_order(batch)
        for other in [other for other in sequences.unfinished if not other.in_flight]:
            sequences.release(other)
            if error is None:
                queue.keep_order(other)
            else:
                self._sender.accumulator.fail(other, lambda _: error)
        if not sequences.unfinished:
            queue.sequences = None
        if error is not None:
            queue.mode = None
            self._sender.accumulator.fail(batch, lambda _: error)
            self._sender.refuse_topic(queue.topic, error)

    def _judge(
        self, batch: Batch, sequences: Sequences[Batch], code: int, response: _Partition | None, error: ClientError
    ) -> None:
        """Handles an error of a batch with sequences."""
        now_s = self._sender.now_s()
        queue = batch.queue
        if response is None:
            queue.lost_s = now_s
        alive_until_s = queue.lost_s + COPIES_LIVE_S
        verdict = sequences.failed(
            batch,
            code,
            retriable=response is None or is_retriable(code),
            log_start_offset=-1 if response is None else response.log_start_offset,
            copies_alive=now_s < alive_until_s,
        )
        if verdict is Verdict.PUT_BACK:
            if is_retriable(code):
                batch.attempts += 1
                delay_s = self._sender.cluster.retry_backoff_s(batch.attempts)
                if code == ErrorCode.CONCURRENT_TRANSACTIONS:
                    delay_s = min(delay_s, SOON_S * batch.attempts)
                batch.not_before_s = now_s + delay_s
                if batch.attempts > self._sender.options.retries:
                    sequences.give_up(batch)
                    self._sender.accumulator.fail(batch, lambda _: error)
        elif verdict is Verdict.WAIT:
            batch.not_before_s = alive_until_s
        elif verdict is Verdict.LOOK:
            self._sender.task(self._inquiries.look_for_batch(batch, sequences, alive_until_s))
        elif verdict is Verdict.DONE:
            self._sender.accumulator.fulfil(batch, -1, -1)
        elif verdict is Verdict.DROPPED:
            self._sender.accumulator.fail(batch, partial(_error_of_record, error, response))
        elif verdict is not Verdict.NEW_START and self._inquiries.abort_is_enough(queue, verdict):
            sequences.give_up(batch)
            self._sender.accumulator.fail(batch, lambda _: error)
        elif verdict is not Verdict.NEW_START:
            self._sender.fail(self._fatal(batch, sequences, verdict, response), batch)
        if not sequences.offset_is_known:
            self._inquiries.bound_offset(queue, sequences)

    def _fatal(
        self, batch: Batch, sequences: Sequences[Batch], verdict: Verdict, response: _Partition | None
    ) -> ProducerFailed:
        queue = batch.queue
        if verdict is Verdict.UNKNOWN_PRODUCER:
            return UnknownProducer(
                queue.topic,
                queue.index,
                first_sequence=batch.base_sequence,
                last_sequence=batch.last_sequence,
                last_acked_offset=sequences.last_acked_offset,
                log_start_offset=-1 if response is None else response.log_start_offset,
            )
        if verdict is Verdict.FENCED:
            fenced = ProducerFenced(f"{queue.topic}-{queue.index} has a newer epoch of producer {batch.producer_id}")
            fenced.topic, fenced.partition = queue.topic, queue.index
            return fenced
        return self._inquiries.out_of_order(batch, sequences)


def partitions_in(response: Any) -> dict[tuple[Any, int], Any]:
    """Returns the partitions of a Produce response, by topic name, or id since v13, and partition."""
    return {
        (topic.name or topic.topic_id, partition.index): partition
        for topic in response.responses
        for partition in topic.partition_responses
    }


def _error_of_record(error: ClientError, response: _Partition | None, index: int) -> BaseException:
    """Returns the error of the record at an index of a refused batch: brokers may name the invalid ones (KIP-467)."""
    wrong = {each.batch_index: each.batch_index_error_message for each in response.record_errors} if response else {}
    if not wrong or not isinstance(error, KafkaError):
        return error
    code = error_code(error.number)
    if index in wrong:
        return KafkaError(code, wrong[index] or error.message)
    return KafkaError(code, "another record of the same batch was refused")
