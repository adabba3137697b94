"""A broker's present activity and contents, small enough to be requested every second: GET /v1/overview.

`ottla top` and the page's first view show it. It has counters instead of rates. A client that requests it twice
computes rates over the difference of `uptime_ms`, unless `instance` (the process) or `state` (counts resets and
restores) has changed in between. Lists are cut to a limit, the most active entries first; totals cover everything.
Nothing is done for each record, and the event loop serves clients after every few hundred partitions.
"""

from __future__ import annotations

import asyncio
import heapq
import time
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from ...protocol.named import NamedTuple
from ...storage.errors import StorageError
from ...storage.io import random_ids
from ..groups.consumer.state import Group as ConsumerGroup
from ..groups.share.state import Group as ShareGroup
from ..metrics.client_ledger import shortened
from ..releases.profiles import api_names
from ..replica.assignment import NO_LEADER
from ..transactions.state import Transaction, TransactionState
from ..version import own_version
from .activity import FRAME_BYTES_MAX, WAITS_FOR, Activity, ClientActivity
from .clock import state_of
from .group_views import consumer_lag, generation_of, protocol_of, share_places, start_offsets

if TYPE_CHECKING:
    from ...storage.producers.producer_state import Producer
    from ..broker_state import BrokerState
    from ..groups.registry import AnyGroup
    from ..metadata.topics import Topic
    from ..metrics.counters import TopicCounters
    from ..network.server import Running
    from ..recording.exchange import Exchange
    from ..replica.partition import Partition

DEFAULT_LIMIT = 100  # entries of each list of an overview
MAX_LIMIT = 10_000
TOTALS = (
    "topics",
    "partitions",
    "offline_partitions",
    "size_bytes",
    "records",
    "records_in",
    "bytes_in",
    "bytes_out",
    "groups",
    "members",
    "lag",
    "producers",
    "open_transactions",
    "clients",
    "connections",
    "waiting",
    "requests",
    "request_bytes",
    "response_bytes",
    "faults",
)

SUMMED = ("partitions", "offline_partitions", "size_bytes", "records", "records_in")  # over the topics
PARTITIONS_AT_ONCE = 500  # in one step on the loop
NAMES_MAX = 10  # topics of a group, hosts of a client
HALF_LIFE_NS = 10_000_000_000  # after which activity counts half
OPEN_STATES = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
T = TypeVar("T")


class Selection(NamedTuple):
    """The number of entries wanted in each list, and a text that their names contain, in upper or lower case."""

    limit: int = DEFAULT_LIMIT
    contains: str = ""

    def fits(self, *names: str | None) -> bool:
        """Returns whether one of the names contains the text."""
        wanted = self.contains.casefold()
        return not wanted or any(wanted in name.casefold() for name in names if name)

    def first(self, found: Iterable[tuple[Any, T]]) -> list[T]:
        """Returns the entries with the greatest keys, greatest first."""
        return [one for _, one in heapq.nlargest(self.limit, found, key=lambda pair: pair[0])]


EVERYTHING = Selection()


class _Scores:
    """Recent activity: the growth of one counter for each name, halved every HALF_LIFE_NS."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[int, float]] | None = None
        self._at_ns = 0

    def updated(self, counters: Iterable[tuple[Hashable, int]], now_ns: int) -> dict[Hashable, float]:
        """Returns the score of each name, and drops names that are no longer among the counters."""
        faded = 0.5 ** ((now_ns - self._at_ns) / HALF_LIFE_NS)
        known = self._known
        found: dict[Hashable, tuple[int, float]] = {}
        for name, counter in counters:
            # Counters of the first call are old activity; a name that is new since then is recent activity.
            before, score = (counter, 0.0) if known is None else known.get(name, (0, 0.0))
            found[name] = counter, score * faded + max(0, counter - before)
        self._known, self._at_ns = found, now_ns
        return {name: score for name, (_, score) in found.items()}


class _Gathering:
    """The state of one overview while it is made: totals, and the count of partitions since the last pause."""

    def __init__(self, selection: Selection, now_ns: int) -> None:
        self.selection = selection
        self.now_ns = now_ns
        self.totals: Counter[str] = Counter()
        self.leads: Counter[int] = Counter()
        self.producers: list[tuple[tuple[bool, int], dict[str, Any]]] = []
        self._looked = 0

    async def at(self, count: int) -> None:
        """Counts partitions, or work of the same cost, and yields to the event loop after PARTITIONS_AT_ONCE."""
        self._looked += count
        if self._looked >= PARTITIONS_AT_ONCE:
            self._looked = 0
            await asyncio.sleep(0)


class Overviews:
    """Makes overviews of a broker, across resets and restores; counts the activity of clients from its creation on."""

    def __init__(self, running: Running, timer: Callable[[], int] = time.perf_counter_ns) -> None:
        """`timer` is the clock of `Exchange.begun_ns`, in nanoseconds."""
        self.activity = Activity(timer)
        self._running = running
        self._timer = timer
        self._begun_ns = timer()
        self._instance = random_ids.uuid4().hex()[:12]
        self._state: Callable[[], BrokerState | None] = lambda: None
        self._states = 0
        self._topics, self._groups, self._clients = _Scores(), _Scores(), _Scores()
        running.connections.listen(self.activity, FRAME_BYTES_MAX)

    def close(self) -> None:
        """Stops counting the activity of clients."""
        self._running.connections.unlisten(self.activity)

    async def taken(self, selection: Selection = EVERYTHING) -> dict[str, Any]:
        """Returns the overview in plain values, with the fields of `Overview` in control/models/overview.py."""
        state = self._running.state
        if self._state() is not state:
            self._state, self._states = weakref.ref(state), self._states + 1
        look = _Gathering(selection, self._timer())
        transactions = {one.producer_id: one for one in state.transactions.list()[2]}  # the newest of each producer id
        topics = await self._look_at_topics(state, look, transactions)
        groups = await self._look_at_groups(state, look)
        faults = self._running.faults
        standing = [] if faults is None else [one.to_json() for one in faults.list()]
        look.totals["faults"] = len(standing)
        return {
            "broker": about(self._running)
            | {
                "instance": self._instance,
                "state": self._states,
                "uptime_ms": (look.now_ns - self._begun_ns) // 1_000_000,
            },
            "clock": asdict(state_of(state.clock)),
            "nodes": [asdict(node) | {"leads": look.leads[node.id]} for node in state.topology.node_views()],
            "topics": topics,
            "groups": groups,
            "producers": selection.first(look.producers),
            **self._look_at_clients(look),
            "faults": standing[: selection.limit],
            "totals": {name: look.totals[name] for name in TOTALS},
        }

    async def _look_at_topics(
        self, state: BrokerState, look: _Gathering, transactions: dict[int, Transaction]
    ) -> list[dict[str, Any]]:
        """Returns the topics, and collects the producers of their partitions on the way."""
        found: list[dict[str, Any]] = []
        metrics = self._running.connections.metrics
        flows = None if metrics is None else metrics.topics
        unseen = dict(transactions)
        ids: set[int] = set()
        for topic in state.topics:
            row = topic_row(topic)
            look.totals.update({name: row[name] for name in SUMMED})
            found.append(row | _traffic(None if flows is None else flows.get(topic.name)))
            for partition in topic.online_partitions():
                look.leads[partition.leader] += 1
                known = _known_producers(partition)
                ids.update(known)
                entries = list(known.items())
                for first in range(0, len(entries), PARTITIONS_AT_ONCE):
                    some = entries[first : first + PARTITIONS_AT_ONCE]
                    for producer_id, producer in some:
                        unseen.pop(producer_id, None)
                        one = _producer(partition, producer_id, producer, transactions.get(producer_id))
                        _add_producer(look, one)
                    await look.at(len(some))
                await look.at(1)
        for transaction in unseen.values():
            _add_producer(look, _producer(None, transaction.producer_id, None, transaction))
        look.totals["topics"] = len(found)
        look.totals.update(_traffic(None if flows is None else flows.all()))
        look.totals["producers"] = len(ids | set(transactions))
        look.totals["open_transactions"] = sum(one.state in OPEN_STATES for one in transactions.values())
        # A record counts as much as a hundred bytes: a topic with many small records is busy, too.
        busy = ((one["name"], one["records_in"] + (one["bytes_in"] + one["bytes_out"]) // 100) for one in found)
        scores = self._topics.updated(busy, look.now_ns)
        return look.selection.first(
            ((scores[one["name"]], one["size_bytes"]), one) for one in found if look.selection.fits(one["name"])
        )

    async def _look_at_groups(self, state: BrokerState, look: _Gathering) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for listed in state.groups.list_groups()[1]:
            group = state.groups.group(listed.group_id)
            if group is not None:  # it may have been deleted since the groups were listed
                found.append(_group(state, group))
                await look.at(1 + found[-1]["partitions"])
        look.totals["groups"] = len(found)
        look.totals["members"] = sum(one["members"] for one in found)
        look.totals["lag"] = sum(one["lag"] for one in found)
        scores = self._groups.updated(((one["id"], one["committed"]) for one in found), look.now_ns)
        return look.selection.first(
            ((scores[one["id"]], one["members"], one["lag"]), one)
            for one in found
            if look.selection.fits(one["id"], *one["topics"])
        )

    def _look_at_clients(self, look: _Gathering) -> dict[str, Any]:
        """Returns the clients, and their waiting and slow requests."""
        activity, selection, now_ns = self.activity, look.selection, look.now_ns
        names = api_names()
        clients, pending = activity.clients, list(activity.waiting())
        waiting = Counter(activity.client_of(exchange.peer) for exchange in pending)
        look.totals["clients"] = sum(client.connections > 0 for client in clients)
        look.totals["connections"] = activity.connections
        look.totals["waiting"] = len(pending)
        for client in (*clients, activity.evicted):
            look.totals["requests"] += client.requests
            look.totals["request_bytes"] += client.request_bytes
            look.totals["response_bytes"] += client.response_bytes
        scores = self._clients.updated(((client, client.requests) for client in clients), now_ns)
        chosen = selection.first(
            ((client.connections > 0, scores[client], client.last_ns), client)
            for client in clients
            if selection.fits(client.client_id, client.software_name, *client.hosts)
        )
        slow = (_slow(one, names, now_ns) for one in activity.slow())
        waits = (_waiting(exchange, names, now_ns) for exchange in pending)
        return {
            "clients": [_client(client, waiting[client], names, now_ns) for client in chosen],
            "slow": list(islice((one for one in slow if _fits(one, selection)), selection.limit)),
            "waiting": list(islice((one for one in waits if _fits(one, selection)), selection.limit)),
        }


def about(running: Running) -> dict[str, Any]:
    """Returns the broker's status, version, release and addresses."""
    failed = running.failed
    return {
        "status": "failed" if failed.done() else "serving",
        "reason": failed.result() if failed.done() else None,
        "version": own_version(),
        "release": running.state.profile.name,
        "cluster_id": running.state.cluster_id,
        "bootstrap": ",".join(running.addresses),
    }


def topic_row(topic: Topic) -> dict[str, Any]:
    """Returns the present size of a topic. `records` counts offsets; partitions without a leader are offline, too."""
    size_bytes = records = records_in = offline = 0
    for partition in topic.partitions:
        try:
            log = partition.log
            size_bytes += log.size_bytes
            records += max(0, log.high_watermark - log.log_start_offset)
            records_in += log.log_end_offset
        except StorageError:
            offline += 1
        else:
            offline += partition.leader == NO_LEADER
    return {
        "name": topic.name,
        "is_internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "offline_partitions": offline,
        "size_bytes": size_bytes,
        "records": records,
        "records_in": records_in,
    }


def _traffic(counters: TopicCounters | None) -> dict[str, int]:
    """Returns the bytes of records that clients have produced to a topic and fetched from it."""
    if counters is None:
        return {"bytes_in": 0, "bytes_out": 0}
    return {"bytes_in": counters.bytes_in, "bytes_out": counters.bytes_out}


def _known_producers(partition: Partition) -> dict[int, Producer]:
    try:
        return partition.log.producers()
    except StorageError:
        return {}


def _producer(
    partition: Partition | None, producer_id: int, producer: Producer | None, transaction: Transaction | None
) -> dict[str, Any]:
    return {
        "topic": None if partition is None else partition.topic,
        "partition": -1 if partition is None else partition.index,
        "producer_id": producer_id,
        "producer_epoch": producer.epoch if producer is not None else transaction.producer_epoch if transaction else -1,
        "last_sequence": -1 if producer is None else producer.last_sequence,
        "last_timestamp_ms": -1 if producer is None else producer.last_timestamp_ms,
        "transaction_start_offset": -1 if producer is None else producer.transaction_first_offset,
        "transactional_id": None if transaction is None else transaction.transactional_id,
        "transaction_state": None if transaction is None else transaction.state.value,
        "transaction_start_ms": -1 if transaction is None else transaction.start_ms,
    }


def _add_producer(look: _Gathering, one: dict[str, Any]) -> None:
    """Adds a producer that is selected and among the first: those with open transactions, then the most recent
    writers."""
    if not look.selection.fits(one["topic"], one["transactional_id"], str(one["producer_id"])):
        return
    key = one["transaction_start_offset"] >= 0, max(one["last_timestamp_ms"], one["transaction_start_ms"])
    look.producers.append((key, one))
    if len(look.producers) > 2 * look.selection.limit + PARTITIONS_AT_ONCE:
        look.producers = heapq.nlargest(look.selection.limit, look.producers, key=lambda pair: pair[0])


def _group(state: BrokerState, group: AnyGroup) -> dict[str, Any]:
    places, lags, in_flight = _progress(state, group)
    return {
        "id": group.group_id,
        "type": group.kind,
        "state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol": protocol_of(state, group),
        "generation": generation_of(group),
        "members": len(group.members),
        "unreconciled": sum(not one.is_reconciled(group.assignment_epoch) for one in group.members.values())
        if isinstance(group, ConsumerGroup)
        else 0,
        "topics": sorted({topic for topic, _ in places})[:NAMES_MAX],
        "partitions": len(places),
        "committed": sum(max(0, offset) for offset in places.values()),
        "lag": lags,
        "in_flight": in_flight,
    }


def _progress(state: BrokerState, group: AnyGroup) -> tuple[dict[tuple[str, int], int], int, int]:
    """Returns the offsets by partition, the lag, and the number of records in flight."""
    if isinstance(group, ShareGroup):
        starts = start_offsets(state, group)
        led = [state.share_partitions.get(key) for _, _, key in share_places(state, group)]
        places = {(one.topic, one.partition): one.offset for one in starts}
        return places, sum(one.lag or 0 for one in starts), sum(one.machine.in_flight for one in led if one)
    places = {place: one.offset for place, one in state.groups.offsets(group.group_id).items()}
    lags = (consumer_lag(state, topic, index, offset) for (topic, index), offset in places.items())
    return places, sum(lag or 0 for lag in lags), 0


def _client(client: ClientActivity, waiting: int, names: dict[int, str], now_ns: int) -> dict[str, Any]:
    return {
        "client_id": client.client_id,
        "software_name": client.software_name,
        "software_version": client.software_version,
        "listener": client.listener,
        "hosts": sorted(client.hosts)[:NAMES_MAX],
        "principals": sorted(client.principals)[:NAMES_MAX],
        "connections": client.connections,
        "waiting": waiting,
        "requests": client.requests,
        "request_bytes": client.request_bytes,
        "response_bytes": client.response_bytes,
        "apis": {names.get(key, str(key)): version for key, version in sorted(client.apis.items())},
        "idle_ms": max(0, now_ns - client.last_ns) // 1_000_000,
    }


def _slow(exchange: Exchange, names: dict[int, str], now_ns: int) -> dict[str, Any]:
    return _request(exchange, names) | {
        "duration_us": exchange.duration_ns // 1000,
        "ago_ms": max(0, now_ns - exchange.begun_ns - exchange.duration_ns) // 1_000_000,
        "response_bytes": exchange.response_bytes,
        "ending": exchange.ending.value,
    }


def _request(exchange: Exchange, names: dict[int, str]) -> dict[str, Any]:
    return {
        "number": exchange.number,
        "api": names.get(exchange.api_key, str(exchange.api_key)),
        "api_version": exchange.api_version,
        "client_id": shortened(exchange.client_id),
        "host": exchange.peer.client_host,
        "port": exchange.peer.client_port,
        "request_bytes": exchange.request_bytes,
        "fault": exchange.fault,
    }


def _waiting(exchange: Exchange, names: dict[int, str], now_ns: int) -> dict[str, Any]:
    return _request(exchange, names) | {
        "waiting_ms": max(0, now_ns - exchange.begun_ns) // 1_000_000,
        "waits_for": WAITS_FOR.get(exchange.api_key),
    }


def _fits(request: dict[str, Any], selection: Selection) -> bool:
    return selection.fits(request["client_id"], request["host"], request["api"])
