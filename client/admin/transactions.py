"""The admin's calls about transactions: the ids that coordinators know, and what they know of one (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.messages.transactions.describe_transactions import DescribeTransactionsRequest
from ...protocol.messages.transactions.list_transactions import ListTransactionsRequest
from ...protocol.messages.transactions.write_txn_markers import WriteTxnMarkersRequest
from ..net.cluster import TRANSACTION
from ..net.connection import Connection
from ..net.errors import ClientError, UnsupportedVersion
from .calls import Calls, checked, failure
from .types import TopicPartition, TransactionDescription, TransactionListing

LIST_BY_DURATION, LIST_BY_PATTERN = 1, 2


class TransactionCalls:
    """A part of `Admin`."""

    _calls: Calls

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        duration_ms: int = -1,
        pattern: str | None = None,
        timeout_s: float | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all brokers in order (Kafka 3.0 and later), by what is asked for.

        `duration_ms` are those that run for longer (3.8), `pattern` is a regular expression for the id (4.1). A state
        that the broker does not know matches nothing. Raises ClientError, also if one broker could not be asked.
        """
        wanted_states, wanted_ids = list(states), list(producer_ids)

        async def ask(connection: Connection, left: list[int]) -> dict[int, list[TransactionListing] | ClientError]:
            version = connection.version_of(ListTransactionsRequest)
            if (duration_ms >= 0 and version < LIST_BY_DURATION) or (pattern is not None and version < LIST_BY_PATTERN):
                raise UnsupportedVersion("the broker cannot filter by that: duration is from 3.8, pattern from 4.1")
            request = ListTransactionsRequest(state_filters=wanted_states, producer_id_filters=wanted_ids)
            if version >= LIST_BY_DURATION:
                request.duration_filter = duration_ms
            if version >= LIST_BY_PATTERN:
                request.transactional_id_pattern = pattern
            response = await connection.request(request, version)
            found = [
                TransactionListing(told.transactional_id, told.producer_id, told.transaction_state)
                for told in response.transaction_states
            ]
            return dict.fromkeys(left, failure(response.error_code) or found)

        nodes = await self._calls.nodes(timeout_s)
        by_node = checked(await self._calls.at_any(nodes, ask, timeout_s, int))
        return sorted({one for found in by_node.values() for one in found})

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, TransactionDescription | ClientError]:
        """What coordinators know of ids (Kafka 3.0 and later); TRANSACTIONAL_ID_NOT_FOUND for one without a state."""

        async def ask(connection: Connection, left: list[str]) -> dict[str, TransactionDescription | ClientError]:
            response = await connection.request(DescribeTransactionsRequest(transactional_ids=left))
            address = connection.host, connection.port
            nodes = self._calls.cluster.nodes.values()
            node_id = next((n.node_id for n in nodes if (n.host, n.port) == address), -1)
            return {
                told.transactional_id: failure(told.error_code)
                or TransactionDescription(
                    told.transactional_id,
                    node_id,
                    told.transaction_state,
                    told.producer_id,
                    told.producer_epoch,
                    told.transaction_timeout_ms,
                    told.transaction_start_time_ms,
                    tuple((of.topic, number) for of in told.topics for number in of.partitions),
                )
                for told in response.transaction_states
            }

        return await self._calls.at_coordinators(transactional_ids, ask, timeout_s, TRANSACTION)

    async def abort_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        *,
        coordinator_epoch: int = -1,
        timeout_s: float | None = None,
    ) -> None:
        """Ends a transaction in one partition, whatever its coordinator knows: for one that hangs (KIP-664).

        The numbers are those of `describe_producers`. Raises ClientError: INVALID_PRODUCER_EPOCH for another epoch than
        the producer's, TRANSACTION_COORDINATOR_FENCED for an older one than its coordinator's.
        """
        name, number = partition
        kind = WriteTxnMarkersRequest.WritableTxnMarker

        async def ask(connection: Connection, left: list[TopicPartition]) -> dict[TopicPartition, ClientError | None]:
            marker = kind(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_result=False,
                topics=[kind.WritableTxnMarkerTopic(name=name, partition_indexes=[number])],
                coordinator_epoch=coordinator_epoch,
            )
            response = await connection.request(WriteTxnMarkersRequest(markers=[marker]))
            return {
                (topic.name, told.partition_index): failure(told.error_code)
                for one in response.markers
                for topic in one.topics
                for told in topic.partitions
            }

        checked(await self._calls.at_leaders([partition], ask, timeout_s))
