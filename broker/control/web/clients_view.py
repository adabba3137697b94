"""Groups with members, offsets and lag; producers with sequences and verdicts; transactions with their partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....storage.errors import StorageError
from ...admin_api.views import Group, GroupOffset, NotFound
from ...groups.resets import SCENARIOS
from ...replica import producer_answers
from ...replica.producer_answers import BatchVerdict, Judge
from ...transactions.state import NO_TIMEOUT_MS, Transaction, TransactionState
from ..refusal import Refusal
from .page import Columns, Page, PageRequest, listing
from .records import partition_of

if TYPE_CHECKING:
    from ....storage.producers.producer_state import Producer
    from ...broker_state import BrokerState
    from ...replica.partition import Partition

AT_ONCE = 500
PRODUCERS_MAX = 100_000  # that are sorted
_GROUPS: Columns[Group] = {
    "id": lambda group: group.id,
    "state": lambda group: (group.state, group.id),
    "type": lambda group: (group.type, group.id),
    "members": lambda group: (len(group.members), group.id),
    "lag": lambda group: (group.lag, group.id),
}
_OFFSETS: Columns[GroupOffset] = {
    "partition": lambda one: (one.topic, one.partition),
    "lag": lambda one: (one.lag or 0, one.topic, one.partition),
    "offset": lambda one: (one.offset, one.topic, one.partition),
    "end": lambda one: (one.end_offset or 0, one.topic, one.partition),
}
_PRODUCERS: Columns[ProducerRow] = {
    "topic": lambda row: (row.topic, row.partition, row.producer_id),
    "id": lambda row: (row.producer_id, row.topic, row.partition),
    "sequence": lambda row: (row.known.last_sequence, row.producer_id),
    "time": lambda row: (row.known.last_timestamp_ms, row.producer_id),
}
_TRANSACTIONS: Columns[Transaction] = {
    "id": lambda one: one.transactional_id,
    "producer": lambda one: one.producer_id,
    "state": lambda one: (one.state.value, one.transactional_id),
    "begun": lambda one: (one.start_ms, one.transactional_id),
}


async def groups(request: PageRequest) -> Page:
    """Lists groups. With `id` shows that group: its id cannot be the end of a path."""
    if "id" in request.query or "id" in request.given:
        return await _group(request, request.query.get("id", "") or request.given.get("id", ""))
    state = request.plane.operations.running.state
    wanted, kind = request.query.text("q"), request.query.text("state")
    found: list[Group] = []
    listed = state.groups.list_groups()[1]
    for number, one in enumerate(listed, 1):
        if wanted.casefold() in one.group_id.casefold() and kind in ("", one.state):
            group = await request.plane.operations.group(one.group_id)
            if group.state != "Dead":
                found.append(group)
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
    rows = listing(found, request.query, _GROUPS)
    values: dict[str, Any] = {"list": rows, "q": wanted, "state": kind, "counted": len(listed)}
    values["states"] = sorted({one.state for one in listed} | ({kind} if kind else set()))
    return Page("groups.html", "Groups", "groups", values)


async def group(request: PageRequest) -> Page:
    """Shows one group."""
    return await _group(request, request.path["group"])


async def _group(request: PageRequest, id: str) -> Page:
    found = await request.plane.operations.group(id)
    if found.state == "Dead":
        raise NotFound(f"there is no group {id}")
    owners = {place: member.member_id for member in found.members for place in member.assignment}
    committed = found.committed
    uncommitted = _uncommitted(request.plane.operations.running.state, owners.keys() - committed.keys())
    offsets = listing([*found.offsets, *uncommitted], request.query, _OFFSETS)
    values = {"group": found, "offsets": offsets, "committed": committed, "owners": owners, "scenarios": SCENARIOS}
    return Page("group.html", found.id, "groups", values)


def _uncommitted(state: BrokerState, places: Iterable[tuple[str, int]]) -> Iterator[GroupOffset]:
    """Yields assigned partitions without a committed offset, with -1: they have no lag, as in kafka-consumer-groups."""
    for place in sorted(places):
        try:
            log = partition_of(state, *place).log
            yield GroupOffset(*place, -1, -1, "", None, log.log_start_offset, log.high_watermark)
        except (NotFound, StorageError):
            yield GroupOffset(*place, -1, -1, "", None)


@dataclass(frozen=True, slots=True)
class ProducerRow:
    """A producer state entry of a partition."""

    topic: str
    partition: int
    producer_id: int
    known: Producer
    transactional_id: str | None = None


async def producers(request: PageRequest) -> Page:
    """Lists the producer state entries of partitions."""
    state = request.plane.operations.running.state
    topic, wanted = request.query.text("topic"), request.query.whole("id")
    is_open = request.query.flag("open")
    rows: list[ProducerRow] = []
    ids = {one.producer_id: one.transactional_id for one in state.transactions.list()[2]}
    names: set[str] = set()
    looked = 0
    for one in list(state.topics):
        for partition in one.online_partitions():
            try:
                known = partition.log.producers()
            except StorageError:
                continue
            if known:
                names.add(one.name)
            looked += 1 + len(known)
            if topic not in ("", one.name):
                continue
            for producer_id, producer in known.items():
                if wanted not in (None, producer_id) or (is_open and producer.transaction_first_offset < 0):
                    continue
                if len(rows) < PRODUCERS_MAX:
                    rows.append(ProducerRow(one.name, partition.index, producer_id, producer, ids.get(producer_id)))
            if looked >= AT_ONCE:
                looked = 0
                await asyncio.sleep(0)
    found = listing(rows, request.query, _PRODUCERS)
    verdicts = {(row.topic, row.partition, row.producer_id): _next(state, row) for row in found.rows}
    values = {"list": found, "verdicts": verdicts, "names": sorted(names | ({topic} if topic else set()))}
    return Page("producers.html", "Producers", "producers", {**values, "topic": topic, "id": wanted, "open": is_open})


def _next(state: BrokerState, row: ProducerRow) -> BatchVerdict | None:
    """Returns the verdict on the next batch of a producer; None if its partition was deleted meanwhile."""
    try:
        partition = partition_of(state, row.topic, row.partition)
        return _verdicts(state, partition, row.producer_id, row.known)[0]
    except (NotFound, StorageError):
        return None


def _verdicts(state: BrokerState, partition: Partition, producer_id: int, known: Producer | None) -> list[BatchVerdict]:
    """Returns the broker's verdicts on batches that the producer may send."""
    log = partition.log
    config = log.config
    magic = config.rules.target_magic
    by = Judge(state.profile, config.producer_rules, magic, log.log_start_offset, log.size_bytes)
    batches = producer_answers.examples(known, [], config.producer_rules)
    return [producer_answers.batch_verdict(by, producer_id, known, one, None) for one in batches]


async def producer(request: PageRequest) -> Page:
    """Shows one producer of a partition: its cached batches, and the verdicts on further ones."""
    state = request.plane.operations.running.state
    partition = partition_of(state, request.path["topic"], int(request.path["partition"][:10]))
    producer_id = int(request.path["producer"][:19])
    try:
        known = partition.log.producers().get(producer_id)
        if known is None:
            raise NotFound(f"{partition.topic}-{partition.index} has no entry of producer {producer_id}")
        verdicts = _verdicts(state, partition, producer_id, known)
    except StorageError as error:
        raise Refusal(409, error) from error
    values = {
        "topic": partition.topic,
        "partition": partition.index,
        "id": producer_id,
        "known": known,
        "verdicts": verdicts,
        "transactions": state.transactions.list(producer_ids=[producer_id])[2],
    }
    return Page("producer.html", f"Producer {producer_id}", "producers", values)


@dataclass(frozen=True, slots=True)
class OpenRow:
    """A transaction that is open in a partition, from an offset on; `holds` is whether readers of committed records
    wait for it."""

    topic: str
    partition: int
    producer_id: int
    first_offset: int
    offsets: int
    holds: bool
    transactional_id: str | None


async def transactions(request: PageRequest) -> Page:
    """Lists the transactions of all coordinators, and those that are open in partitions."""
    state = request.plane.operations.running.state
    wanted, kind = request.query.text("q"), request.query.text("state")
    everything = state.transactions.list()[2]
    rows = [
        one
        for one in everything
        if kind in ("", one.state.value)
        and (not wanted or wanted.casefold() in one.transactional_id.casefold() or wanted == str(one.producer_id))
    ]
    found = listing(rows, request.query, _TRANSACTIONS)
    values = {
        "list": found,
        "q": wanted,
        "state": kind,
        "counted": len(everything),
        "states": [one.value for one in TransactionState if one.value != "PrepareEpochFence"],
        "open": await _open(state, {one.producer_id: one.transactional_id for one in everything}),
        "no_timeout": NO_TIMEOUT_MS,
    }
    return Page("transactions.html", "Transactions", "transactions", values)


async def _open(state: BrokerState, ids: dict[int, str]) -> list[OpenRow]:
    """Returns the open transactions in partitions; those that hold readers back come first, by the number of
    offsets."""
    found: list[OpenRow] = []
    looked = 0
    for topic in list(state.topics):
        for partition in topic.online_partitions():
            looked += 1
            try:
                log = partition.log
                stable, high = log.last_stable_offset, log.high_watermark
                for producer_id, first in log.open_transactions().items() if stable < high else ():
                    place = topic.name, partition.index, producer_id
                    found.append(OpenRow(*place, first, high - first, first <= stable, ids.get(producer_id)))
            except StorageError:
                continue
        if looked >= AT_ONCE:
            looked = 0
            await asyncio.sleep(0)
    return sorted(found, key=lambda row: (not row.holds, -row.offsets))[:200]
