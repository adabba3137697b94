"""The transactional ids that one node coordinates.

Returns NOT_COORDINATOR for an id that another node coordinates; all other calls go to the `TransactionCoordinator`.
Needed with several nodes, and before `__transaction_state` exists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ...protocol.errors import ErrorCode
from .coordinator import TransactionCoordinator
from .state import Partition, Response, Transaction

ResponseOrFuture = Response | asyncio.Future[Response]


class TransactionsAtNode:
    """The interface of a `TransactionCoordinator` for handlers, limited to ids whose partition of `__transaction_state`
    the node `leads`.
    """

    def __init__(self, transactions: TransactionCoordinator, leads: Callable[[int], bool]) -> None:
        self._transactions = transactions
        self._leads = leads

    def _elsewhere(self, transactional_id: str) -> bool:
        """Returns whether another node coordinates the id. An empty id is left to the coordinator, which refuses it."""
        return bool(transactional_id) and not self._leads(self._transactions.partition_of(transactional_id))

    def init_producer_id(self, transactional_id: str, **more: Any) -> ResponseOrFuture:
        """InitProducerId with a transactional id. See `TransactionCoordinator.init_producer_id`."""
        if self._elsewhere(transactional_id):
            return Response(ErrorCode.NOT_COORDINATOR)
        return self._transactions.init_producer_id(transactional_id, **more)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[Partition],
        *,
        client_version: int,
    ) -> ResponseOrFuture:
        """AddPartitionsToTxn. See `TransactionCoordinator.add_partitions`."""
        if self._elsewhere(transactional_id):
            return Response(ErrorCode.NOT_COORDINATOR)
        return self._transactions.add_partitions(
            transactional_id, producer_id, producer_epoch, partitions, client_version=client_version
        )

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[Partition]
    ) -> Response:
        """AddPartitionsToTxn with verify_only set. See `TransactionCoordinator.verify`."""
        if self._elsewhere(transactional_id):
            return Response(ErrorCode.NOT_COORDINATOR)
        return self._transactions.verify(transactional_id, producer_id, producer_epoch, partitions)

    def add_offsets(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str, *, client_version: int
    ) -> ResponseOrFuture:
        """AddOffsetsToTxn. See `TransactionCoordinator.add_offsets`."""
        if self._elsewhere(transactional_id):
            return Response(ErrorCode.NOT_COORDINATOR)
        return self._transactions.add_offsets(
            transactional_id, producer_id, producer_epoch, group_id, client_version=client_version
        )

    def end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, committed: bool, client_version: int
    ) -> ResponseOrFuture:
        """EndTxn. See `TransactionCoordinator.end`."""
        if self._elsewhere(transactional_id):
            return Response(ErrorCode.NOT_COORDINATOR)
        return self._transactions.end(
            transactional_id, producer_id, producer_epoch, committed=committed, client_version=client_version
        )

    def describe(self, transactional_id: str) -> tuple[ErrorCode, Transaction | None]:
        """DescribeTransactions for one id. See `TransactionCoordinator.describe`."""
        if self._elsewhere(transactional_id):
            return ErrorCode.NOT_COORDINATOR, None
        return self._transactions.describe(transactional_id)

    def list(self, **filters: Any) -> tuple[ErrorCode, list[str], list[Transaction]]:
        """ListTransactions: the transactions that this node coordinates."""
        error, unknown, found = self._transactions.list(**filters)
        return error, unknown, [one for one in found if not self._elsewhere(one.transactional_id)]
