"""The open transactions of partitions as a cluster tells them: `ottla explain --transactions --bootstrap`.

Owns what is asked for, in which order, and why it cannot be told. DescribeProducers (Kafka 2.8 and later) tells which
are open, ListTransactions and DescribeTransactions (3.0) what the coordinators know of them. What seems to hang is
asked for again: it may have begun or ended meanwhile. Apart from the command: reading a directory imports no client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ...broker.transactions.state import Transaction, TransactionState
from ...client.admin.admin import EARLIEST, LATEST, Admin, ProducerState, TransactionDescription, checked
from ...client.net.errors import ClientError, UnsupportedVersion
from ..kafka.producers_of_broker import Cannot, partitions_of
from .coordinators import ENDING, HANGING, IN_PROGRESS, ONGOING, Coordinators, Standing, standing
from .transaction_history import OPEN, InPartition
from .transactions import Open, Seen

__all__ = ["Cannot", "ask"]

DESCRIBED_AT_ONCE = 1000
Place = tuple[str, int]
States = Mapping[Place, tuple[ProducerState, ...]]


def ask(
    bootstrap: str, topic: str | None, partition: int | None, transactional_id: str | None
) -> tuple[list[Seen], Coordinators]:
    """The partitions of a cluster, or those asked for, and what its coordinators know. Raises Cannot."""
    try:
        return asyncio.run(_ask(bootstrap, topic, partition, transactional_id))
    except UnsupportedVersion:
        raise Cannot(f"the broker at {bootstrap} has no DescribeProducers: Kafka has it from 2.8 on") from None
    except ClientError as error:
        raise Cannot(str(error)) from None


async def _coordinators(admin: Admin, producer_ids: set[int], transactional_id: str | None) -> Coordinators:
    """What all brokers know of transactional ids, in full of those that are under way, of some producers, or asked
    for by name. Raises ClientError."""
    try:
        listed = await admin.list_transactions()
    except UnsupportedVersion:
        return Coordinators(cannot="the broker has no ListTransactions: Kafka has it from 3.0 on")
    found: list[Transaction] = []
    wanted: list[str] = []
    for told in listed:
        name, state = told.transactional_id, _state(told.state)
        found.append(Transaction(name, told.producer_id, -1, -1, state))
        if state in IN_PROGRESS or told.producer_id in producer_ids or name == transactional_id:
            wanted.append(name)
    for start in range(0, len(wanted), DESCRIBED_AT_ONCE):
        described = await admin.describe_transactions(wanted[start : start + DESCRIBED_AT_ONCE])
        found += [_transaction(told) for told in described.values() if not isinstance(told, ClientError)]
    return Coordinators(found, where="of this cluster")


async def _ask(
    bootstrap: str, topic: str | None, partition: int | None, transactional_id: str | None
) -> tuple[list[Seen], Coordinators]:
    async with Admin(bootstrap) as admin:
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
            one.open = _stand(one, states[where], coordinators)
        again = [(one.topic, one.partition) for one in seen if any(o.standing.kind == HANGING for o in one.open)]
        now: States = checked(await admin.describe_producers(again)) if again else {}
    for one in seen:
        if (one.topic, one.partition) in now:
            one.open = [_looked_at_again(known, now[one.topic, one.partition]) for known in one.open]
    return seen, coordinators


def _open(states: tuple[ProducerState, ...]) -> list[ProducerState]:
    found = [one for one in states if one.current_transaction_start_offset >= 0]
    return sorted(found, key=lambda one: one.current_transaction_start_offset)


def _stand(seen: Seen, states: tuple[ProducerState, ...], coordinators: Coordinators) -> list[Open]:
    found: list[Open] = []
    for one in _open(states):
        begun_at = one.current_transaction_start_offset
        of = InPartition(one.producer_id, one.producer_epoch, begun_at, -1, -1, -1, -1, one.last_timestamp_ms, OPEN)
        stands = standing(seen.topic, seen.partition, of, coordinators)
        known = coordinators.of(one.producer_id)
        if stands.kind == ONGOING and known is not None:
            of = of._replace(begun_ms=known.start_ms)
        found.append(Open(of, stands))
    return found


def _looked_at_again(known: Open, states: tuple[ProducerState, ...]) -> Open:
    """A hanging one was open before and after the coordinators were asked."""
    of = known.transaction
    is_open = any(
        (one.producer_id, one.current_transaction_start_offset) == (of.producer_id, of.first_offset) for one in states
    )
    if known.standing.kind != HANGING or is_open:
        return known
    return known._replace(standing=Standing(ENDING, "it ended while this was asked for"))


def _state(name: str) -> TransactionState:
    try:
        return TransactionState(name)
    except ValueError:  # of a newer release
        return TransactionState.DEAD


def _transaction(told: TransactionDescription) -> Transaction:
    return Transaction(
        told.transactional_id,
        told.producer_id,
        told.producer_epoch,
        told.timeout_ms,
        _state(told.state),
        told.partitions,
        start_ms=told.start_ms,
    )
