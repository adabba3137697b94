"""The transactions of a node: the coordinator, as the node that received the request has it.

Owns the response of a node that does not coordinate a transactional id, NOT_COORDINATOR; what a node does coordinate is
the coordinator's. Needed with several nodes, and before `__transaction_state` exists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ...protocol.errors import ErrorCode
from .coordinator import TransactionCoordinator
from .state import Answer, Partition, Transaction

Answered = Answer | asyncio.Future[Answer]


class TransactionsAtNode:
    """What handlers ask of a `TransactionCoordinator`, for the ids whose partition of `__transaction_state` the node
    `leads`."""

    def __init__(self, transactions: TransactionCoordinator, leads: Callable[[int], bool]) -> None:
        self._transactions = transactions
        self._leads = leads

    def _elsewhere(self, transactional_id: str) -> bool:
        """What an empty id is, the coordinator says."""
        return bool(transactional_id) and not self._leads(self._transactions.partition_of(transactional_id))

    def init_producer_id(self, transactional_id: str, **more: Any) -> Answered:
        """InitProducerId with a transactional id."""
        if self._elsewhere(transactional_id):
            return Answer(ErrorCode.NOT_COORDINATOR)
        return self._transactions.init_producer_id(transactional_id, **more)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[Partition],
        *,
        client_version: int,
    ) -> Answered:
        """AddPartitionsToTxn."""
        if self._elsewhere(transactional_id):
            return Answer(ErrorCode.NOT_COORDINATOR)
        return self._transactions.add_partitions(
            transactional_id, producer_id, producer_epoch, partitions, client_version=client_version
        )

    def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[Partition]
    ) -> Answer:
        """AddPartitionsToTxn that only asks."""
        if self._elsewhere(transactional_id):
            return Answer(ErrorCode.NOT_COORDINATOR)
        return self._transactions.verify(transactional_id, producer_id, producer_epoch, partitions)

    def add_offsets(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str, *, client_version: int
    ) -> Answered:
        """AddOffsetsToTxn."""
        if self._elsewhere(transactional_id):
            return Answer(ErrorCode.NOT_COORDINATOR)
        return self._transactions.add_offsets(
            transactional_id, producer_id, producer_epoch, group_id, client_version=client_version
        )

    def end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, committed: bool, client_version: int
    ) -> Answered:
        """EndTxn."""
        if self._elsewhere(transactional_id):
            return Answer(ErrorCode.NOT_COORDINATOR)
        return self._transactions.end(
            transactional_id, producer_id, producer_epoch, committed=committed, client_version=client_version
        )

    def describe(self, transactional_id: str) -> tuple[ErrorCode, Transaction | None]:
        """DescribeTransactions for one id."""
        if self._elsewhere(transactional_id):
            return ErrorCode.NOT_COORDINATOR, None
        return self._transactions.describe(transactional_id)

    def list(self, **filters: Any) -> tuple[ErrorCode, list[str], list[Transaction]]:
        """ListTransactions: those of this node."""
        error, unknown, found = self._transactions.list(**filters)
        return error, unknown, [one for one in found if not self._elsewhere(one.transactional_id)]
