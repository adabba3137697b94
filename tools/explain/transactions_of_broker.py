"""The open transactions of a cluster's partitions: `ottla explain --transactions --bootstrap-server`.

Owns the requests and their order. DescribeProducers (Kafka 2.8 and later) returns the open transactions,
ListTransactions and DescribeTransactions (3.0) the state at the coordinators. A transaction that seems to hang is
fetched a second time, since it may have begun or ended meanwhile. A module of its own, so that the analysis of a data
directory does not import the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ...broker.transactions.state import Transaction, TransactionState
from ...client.admin.admin import EARLIEST, LATEST, Admin, ProducerState, TransactionDescription, checked
from ...client.net.errors import ClientError, UnsupportedVersion
from ..kafka.producers_of_broker import Cannot, partitions_of
from .coordinators import ENDING, HANGING, IN_PROGRESS, ONGOING, Coordinators, Status, status_at_coordinator
from .transaction_history import OPEN, InPartition
from .transactions import Open, Seen

__all__ = ["Cannot", "fetch_transactions"]

DESCRIBED_AT_ONCE = 1000
Place = tuple[str, int]
States = Mapping[Place, tuple[ProducerState, ...]]


def fetch_transactions(
    bootstrap: str,
    topic: str | None,
    partition: int | None,
    transactional_id: str | None,
    security: Mapping[str, Any],
) -> tuple[list[Seen], Coordinators]:
    """Fetches the matching partitions of a cluster and the states of its transactional ids, with these security options
    of the client. Raises Cannot."""

    async def fetched() -> tuple[list[Seen], Coordinators]:
        async with Admin(bootstrap, **security) as admin:
            return await _fetch(admin, bootstrap, topic, partition, transactional_id)

    try:
        return asyncio.run(fetched())
    except UnsupportedVersion:
        raise Cannot(f"the broker at {bootstrap} has no DescribeProducers API: expected Kafka 2.8 or later") from None
    except ClientError as error:
        raise Cannot(str(error)) from None


async def _coordinators(admin: Admin, producer_ids: set[int], transactional_id: str | None) -> Coordinators:
    """Fetches all transactional ids of a cluster. Raises ClientError.

    Those in progress, those of `producer_ids` and `transactional_id` are also described.
    """
    try:
        listed = await admin.list_transactions()
    except UnsupportedVersion:
        return Coordinators(cannot="the broker has no ListTransactions API, new in Kafka 3.0")
    found: list[Transaction] = []
    wanted: list[str] = []
    for one in listed:
        name, state = one.transactional_id, _state(one.state)
        found.append(Transaction(name, one.producer_id, -1, -1, state))
        if state in IN_PROGRESS or one.producer_id in producer_ids or name == transactional_id:
            wanted.append(name)
    for start in range(0, len(wanted), DESCRIBED_AT_ONCE):
        described = await admin.describe_transactions(wanted[start : start + DESCRIBED_AT_ONCE])
        found += [_transaction(result) for result in described.values() if not isinstance(result, ClientError)]
    return Coordinators(found, where="of this cluster")


async def _fetch(
    admin: Admin, bootstrap: str, topic: str | None, partition: int | None, transactional_id: str | None
) -> tuple[list[Seen], Coordinators]:
    wanted = await partitions_of(admin, bootstrap, topic, partition)
    starts = checked(await admin.list_offsets(dict.fromkeys(wanted, EARLIEST)))
    states: States = checked(await admin.describe_producers(wanted))
    stable = checked(await admin.list_offsets(dict.fromkeys(wanted, LATEST), isolation="read_committed"))
    ends = checked(await admin.list_offsets(dict.fromkeys(wanted, LATEST)))
    seen = [Seen(*where, starts[where].offset) for where in sorted(states)]
    producer_ids = {one.producer_id for found in states.values() for one in _open(found)}
    coordinators = await _coordinators(admin, producer_ids, transactional_id)
    for one in seen:
        where = one.topic, one.partition
        one.last_stable_offset, one.end_offset = stable[where].offset, ends[where].offset
        one.open = _with_status(one, states[where], coordinators)
    again = [(one.topic, one.partition) for one in seen if any(o.status.kind == HANGING for o in one.open)]
    now: States = checked(await admin.describe_producers(again)) if again else {}
    for one in seen:
        if (one.topic, one.partition) in now:
            one.open = [_looked_at_again(known, now[one.topic, one.partition]) for known in one.open]
    return seen, coordinators


def _open(states: tuple[ProducerState, ...]) -> list[ProducerState]:
    found = [one for one in states if one.current_transaction_start_offset >= 0]
    return sorted(found, key=lambda one: one.current_transaction_start_offset)


def _with_status(seen: Seen, states: tuple[ProducerState, ...], coordinators: Coordinators) -> list[Open]:
    found: list[Open] = []
    for one in _open(states):
        begun_at = one.current_transaction_start_offset
        of = InPartition(one.producer_id, one.producer_epoch, begun_at, -1, -1, -1, -1, one.last_timestamp_ms, OPEN)
        status = status_at_coordinator(seen.topic, seen.partition, of, coordinators)
        known = coordinators.of(one.producer_id)
        if status.kind == ONGOING and known is not None:
            of = of._replace(begun_ms=known.start_ms)
        found.append(Open(of, status))
    return found


def _looked_at_again(known: Open, states: tuple[ProducerState, ...]) -> Open:
    """Keeps the status "hanging" only if the transaction is still open after the coordinators were queried."""
    of = known.transaction
    is_open = any(
        (one.producer_id, one.current_transaction_start_offset) == (of.producer_id, of.first_offset) for one in states
    )
    if known.status.kind != HANGING or is_open:
        return known
    return known._replace(status=Status(ENDING, "it ended during the analysis"))


def _state(name: str) -> TransactionState:
    try:
        return TransactionState(name)
    except ValueError:  # a state of a newer release
        return TransactionState.DEAD


def _transaction(described: TransactionDescription) -> Transaction:
    return Transaction(
        described.transactional_id,
        described.producer_id,
        described.producer_epoch,
        described.timeout_ms,
        _state(described.state),
        described.partitions,
        start_ms=described.start_ms,
    )
