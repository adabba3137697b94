"""Calls of `Admin` on transactions: list, describe, abort (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.messages.transactions.describe_transactions import DescribeTransactionsRequest
from ...protocol.messages.transactions.list_transactions import ListTransactionsRequest
from ...protocol.messages.transactions.write_txn_markers import WriteTxnMarkersRequest
from ..net.cluster import TRANSACTION
from ..net.connection import Connection
from ..net.errors import ClientError, UnsupportedVersion
from .calls import Caller, checked, failure
from .types import TopicPartition, TransactionDescription, TransactionListing

LIST_BY_DURATION, LIST_BY_PATTERN = 1, 2


class TransactionCalls(Caller):
    """The transaction calls of `Admin`."""

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms: int = -1,
        pattern: str | None = None,
        timeout_s: float | None = None,
    ) -> list[TransactionListing]:
        """Returns the matching transactional ids of all brokers, sorted (Kafka 3.0 and later).

        `duration_ms` selects transactions that run longer (3.8), `pattern` is a regular expression for the id (4.1). A
        state that the broker does not have matches nothing. Raises ClientError, also if only one broker fails.
        """
        wanted_states, wanted_ids = list(states), list(producer_ids)

        async def send(connection: Connection, left: list[int]) -> dict[int, list[TransactionListing] | ClientError]:
            version = connection.version_of(ListTransactionsRequest)
            if (duration_ms >= 0 and version < LIST_BY_DURATION) or (pattern is not None and version < LIST_BY_PATTERN):
                raise UnsupportedVersion("the broker cannot filter by duration (Kafka 3.8) or pattern (4.1)")
            request = ListTransactionsRequest(state_filters=wanted_states, producer_id_filters=wanted_ids)
            if version >= LIST_BY_DURATION:
                request.duration_filter = duration_ms
            if version >= LIST_BY_PATTERN:
                request.transactional_id_pattern = pattern
            response = await connection.request(request, version)
            found = [
                TransactionListing(result.transactional_id, result.producer_id, result.transaction_state)
                for result in response.transaction_states
            ]
            return dict.fromkeys(left, failure(response) or found)

        nodes = await self._calls.nodes(timeout_s)
        by_node = checked(await self._calls.at_any(nodes, send, timeout_s, int))
        return sorted({one for found in by_node.values() for one in found})

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, TransactionDescription | ClientError]:
        """Describes transactional ids (Kafka 3.0); the error of an unknown id is TRANSACTIONAL_ID_NOT_FOUND."""

        async def send(connection: Connection, left: list[str]) -> dict[str, TransactionDescription | ClientError]:
            response = await connection.request(DescribeTransactionsRequest(transactional_ids=left))
            return {
                result.transactional_id: failure(result)
                or TransactionDescription(
                    result.transactional_id,
                    self._calls.node_of(connection),
                    result.transaction_state,
                    result.producer_id,
                    result.producer_epoch,
                    result.transaction_timeout_ms,
                    result.transaction_start_time_ms,
                    tuple((of.topic, number) for of in result.topics for number in of.partitions),
                )
                for result in response.transaction_states
            }

        return await self._calls.at_coordinators(transactional_ids, send, timeout_s, TRANSACTION)

    async def abort_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        *,
        coordinator_epoch: int = -1,
        timeout_s: float | None = None,
    ) -> None:
        """Writes an ABORT marker for a hanging transaction into one partition, without its coordinator (KIP-664).

        `producer_id` and the epochs are those of `describe_producers`. Raises ClientError: INVALID_PRODUCER_EPOCH for
        another epoch than the producer's, TRANSACTION_COORDINATOR_FENCED for an older coordinator epoch.
        """
        name, number = partition
        kind = WriteTxnMarkersRequest.WritableTxnMarker

        async def send(connection: Connection, left: list[TopicPartition]) -> dict[TopicPartition, ClientError | None]:
            marker = kind(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_result=False,
                topics=[kind.WritableTxnMarkerTopic(name=name, partition_indexes=[number])],
                coordinator_epoch=coordinator_epoch,
            )
            response = await connection.request(WriteTxnMarkersRequest(markers=[marker]))
            return {
                (topic.name, result.partition_index): failure(result)
                for one in response.markers
                for topic in one.topics
                for result in topic.partitions
            }

        checked(await self._calls.at_leaders([partition], send, timeout_s))
