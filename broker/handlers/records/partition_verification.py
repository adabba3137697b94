"""Verification of the transactional batches of a Produce request by the transaction coordinator (KIP-890).

Owns the checks before the append: from which release and version on partitions are verified, the request to the
coordinator, and the error codes for producers. Up to 3.5 nothing is verified. From 3.6 on a transaction begins in a
partition only after the producer has added the partition to it; from Produce v12 on the broker adds it, if
transaction.version is 2. A partition whose transaction is open already needs no verification. The log's own checks are
`storage/producers/verification_guard.py`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....protocol.errors import ErrorCode
from ....protocol.records import batch
from ....protocol.records.batch import BatchHeader
from ....protocol.records.errors import CorruptRecords
from ....protocol.records.layout import MAGIC_AT, PRODUCER_ID_AT
from ....storage.errors import ProducerRefused, StorageError
from ....storage.producers.verification_guard import IN_TRANSACTION, Guard
from ...errors import Refused, code_of

if TYPE_CHECKING:
    from ...context import RequestContext
    from ...replica.partition import Partition
    from ...transactions.state import Response

ABORTABLE_FROM = 11  # the first version with TRANSACTION_ABORTABLE
ADDS_FROM = 12

Key = tuple[str, int]
Records = bytes | bytearray | memoryview

# Transient errors: old clients receive a code at which they retry without a metadata update.
_PASSING = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Unverified(Refused):
    """The coordinator refuses a partition; the log is not checked."""


def producer_id_of(records: Records) -> int:
    """Returns the producer id of a partition's records, or -1."""
    if len(records) < batch.HEADER_BYTES or records[MAGIC_AT] != batch.MAGIC:
        return -1
    return int.from_bytes(records[PRODUCER_ID_AT : PRODUCER_ID_AT + 8], "big", signed=True)


class PartitionVerification:
    """The results of the verification of one request, by topic and partition."""

    def __init__(self, context: RequestContext) -> None:
        broker = context.broker
        behaviour = broker.profile.behaviour
        self._context = context
        self._version = context.api_version
        self._adds = self._version >= ADDS_FROM and broker.features.transaction_version >= 2
        self._verifies = behaviour.verifies_transactions and (
            self._adds or context.config["transaction.partition.verification.enable"]
        )
        self._begins_at_0 = behaviour.own_epoch_begins_at_0
        self._guards: dict[Key, Guard | asyncio.Future[Guard]] = {}
        self._refused: dict[Key, Exception] = {}

    def guard(self, topic: str, index: int) -> Guard | asyncio.Future[Guard] | None:
        """Returns the guard for the append to a partition. Raises Unverified, ProducerRefused, StorageError."""
        key = topic, index
        if key in self._refused:
            raise self._refused[key]
        return self._guards.get(key)

    def request_verification(self, transactional_id: str, sent: Sequence[tuple[Partition | None, Records]]) -> None:
        """Requests verification of the partitions that are not in the transaction yet, together and without waiting.

        `sent` are the transactional batches, with None for a partition that is refused anyway. As in Kafka, the request
        includes batches that the log will refuse, such as damaged and control batches. Raises Refused for the whole
        request if its batches have several producers.
        """
        if not self._verifies or self._is_open(sent):
            return
        headers = [(partition, _header(records)) for partition, records in sent]
        numbered = [(partition, header) for partition, header in headers if header is not None and header.has_producer]
        if len({(header.producer_id, header.producer_epoch) for _, header in numbered}) > 1:
            raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "The batches are of more than one producer.")
        self._guards = {(partition.topic, partition.index): IN_TRANSACTION for partition, _ in sent if partition}
        unknown: dict[Key, tuple[Partition, BatchHeader]] = {}
        for partition, header in numbered:
            if partition is None or partition.offline is not None:
                continue
            key = partition.topic, partition.index
            try:
                guard = self._guard(partition, header)
            except (StorageError, ProducerRefused) as error:
                self._refused[key] = error
                continue
            self._guards[key] = guard
            if guard is not IN_TRANSACTION:
                unknown[key] = partition, header
        if unknown:
            _, header = next(iter(unknown.values()))
            self._request(transactional_id, header.producer_id, header.producer_epoch, unknown)

    def _is_open(self, sent: Sequence[tuple[Partition | None, Records]]) -> bool:
        """Whether there is one batch and its transaction is open here, as in nearly all requests: it needs no
        verification.
        """
        if len(sent) != 1:
            return False
        partition, records = sent[0]
        header = _header(records)
        if partition is None or header is None or partition.offline is not None:
            return False
        try:
            if not partition.log.in_transaction(header.producer_id, header.producer_epoch):
                return False
        except StorageError:
            return False
        self._guards[partition.topic, partition.index] = IN_TRANSACTION
        return True

    def _guard(self, partition: Partition, header: BatchHeader) -> Guard:
        if partition.log.config.rules.target_magic < batch.MAGIC:
            return IN_TRANSACTION  # the log refuses it
        return partition.log.verify(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            bumps_epoch=self._adds and self._begins_at_0,
            now_ms=self._context.now_ms(),
        )

    def _request(
        self, transactional_id: str, producer_id: int, epoch: int, unknown: dict[Key, tuple[Partition, BatchHeader]]
    ) -> None:
        transactions = self._context.broker.transactions
        if not self._adds:
            self._take(transactions.verify(transactional_id, producer_id, epoch, list(unknown)), unknown)
            return
        response = transactions.add_partitions(transactional_id, producer_id, epoch, list(unknown), client_version=2)
        if not isinstance(response, asyncio.Future):
            self._take(response, unknown)
            return
        for key, (partition, header) in unknown.items():
            guard = self._guards[key]
            assert isinstance(guard, Guard)
            self._guards[key] = self._later(response, guard, partition, header)

    def _take(self, response: Response, unknown: dict[Key, tuple[Partition, BatchHeader]]) -> None:
        for key, (partition, header) in unknown.items():
            refused = self._refusal(response, key)
            if refused is not None:
                self._refused[key] = refused
                _forget(refused, partition, header)

    def _later(
        self, response: asyncio.Future[Any], guard: Guard, partition: Partition, header: BatchHeader
    ) -> asyncio.Future[Guard]:
        """Returns a future of the guard, done after the coordinator's response."""
        verified: asyncio.Future[Guard] = asyncio.get_running_loop().create_future()

        def completed(done: asyncio.Future[Any]) -> None:
            if verified.done():
                return
            error = asyncio.CancelledError() if done.cancelled() else done.exception()
            if error is not None:
                code = code_of(error) if isinstance(error, Exception) else ErrorCode.COORDINATOR_NOT_AVAILABLE
                refused = self._refused_by(code)
            else:
                refused = self._refusal(done.result(), (partition.topic, partition.index))
            if refused is None:
                verified.set_result(guard)
                return
            _forget(refused, partition, header)
            verified.set_exception(refused)
            verified.exception()  # else asyncio logs an error that no waiter has retrieved

        response.add_done_callback(completed)
        return verified

    def _refusal(self, response: Response, key: Key) -> Unverified | None:
        if response.error is not ErrorCode.NONE:
            return self._refused_by(response.error)
        if key in response.missing:
            return self._refused_by(ErrorCode.TRANSACTION_ABORTABLE)
        return None

    def _refused_by(self, error: ErrorCode) -> Unverified:
        """The coordinator's error code as producers expect it."""
        if error is ErrorCode.PRODUCER_FENCED:
            return Unverified(ErrorCode.INVALID_PRODUCER_EPOCH)
        if error is ErrorCode.TRANSACTION_ABORTABLE and self._version < ABORTABLE_FROM:
            error = ErrorCode.INVALID_TXN_STATE
        if error is ErrorCode.INVALID_TXN_STATE:
            return Unverified(error, "The transaction does not hold this partition.")
        if error in _PASSING or (error is ErrorCode.CONCURRENT_TRANSACTIONS and not self._adds):
            return Unverified(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"Whether the transaction holds this partition is not known: {error.name}.",
            )
        return Unverified(error)


def _header(records: Records) -> BatchHeader | None:
    try:
        return batch.read_header(records)
    except CorruptRecords:
        return None


def _forget(refused: Unverified, partition: Partition, header: BatchHeader) -> None:
    """Removes the guard of a batch that is refused for good. A batch that will be retried keeps it, with the lowest
    sequence.
    """
    if refused.code not in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS):
        partition.refuse(header.producer_id, header.producer_epoch)
