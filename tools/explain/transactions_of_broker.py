"""The open transactions of a cluster's partitions: `ottla explain --transactions --bootstrap-server`.

Owns the requests and their order. DescribeProducers (Kafka 2.8 and later) returns the open transactions,
ListTransactions and DescribeTransactions (3.0) the state at the coordinators. A transaction that seems to hang is
fetched a second time, since it may have begun or ended meanwhile. A module of its own, so that the analysis of a data
directory does not import the client.
"""

from __future__ import annotations

from argparse import Namespace

from ...broker.transactions.state import Transaction, TransactionState
from ...client.admin.admin import EARLIEST, LATEST, Admin, ProducerState, TransactionDescription, checked
from ...client.net.errors import ClientError, UnsupportedVersion
from ..kafka.producers_of_broker import Cannot, States, fetched, partitions_of
from .transactions import (
    IN_PROGRESS,
    ONGOING,
    OPEN,
    Coordinators,
    InPartition,
    Open,
    Seen,
    looked_at_again,
    status_at_coordinator,
)

__all__ = ["Cannot", "fetch_transactions"]

DESCRIBED_AT_ONCE = 1000


def fetch_transactions(given: Namespace) -> tuple[list[Seen], Coordinators]:
    """Fetches the matching partitions of a cluster and the states of its transactional ids, as the arguments of the
    command name them. Raises Cannot."""
    return fetched(given.bootstrap_server, given.security, lambda admin: _fetch(admin, given))


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


async def _fetch(admin: Admin, given: Namespace) -> tuple[list[Seen], Coordinators]:
    wanted = await partitions_of(admin, given.bootstrap_server, given.topic, given.partition)
    starts = checked(await admin.list_offsets(dict.fromkeys(wanted, EARLIEST)))
    states: States = checked(await admin.describe_producers(wanted))
    stable = checked(await admin.list_offsets(dict.fromkeys(wanted, LATEST), isolation="read_committed"))
    ends = checked(await admin.list_offsets(dict.fromkeys(wanted, LATEST)))
    seen = [Seen(*where, starts[where].offset) for where in sorted(states)]
    producer_ids = {one.producer_id for found in states.values() for one in _open(found)}
    coordinators = await _coordinators(admin, producer_ids, given.transactional_id)
    for one in seen:
        where = one.topic, one.partition
        one.last_stable_offset, one.end_offset = stable[where].offset, ends[where].offset
        one.open = _with_status(one, states[where], coordinators)
    again = [(one.topic, one.partition) for one in seen if one.hangs]
    now: States = checked(await admin.describe_producers(again)) if again else {}
    for one in seen:
        if (states_now := now.get((one.topic, one.partition))) is not None:
            one.open = looked_at_again(
                one.open, {(state.producer_id, state.current_transaction_start_offset) for state in states_now}
            )
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
