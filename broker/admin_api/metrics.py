"""Gathers everything that Prometheus scrapes, as rows.

Reads the broker's state on its loop, in slices. Between two slices the loop serves clients and the state may change: a
scrape is not of one moment. Decodes nothing and reads no file.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..groups.classic.state import GroupState
from ..groups.consumer.state import Group as ConsumerGroup
from ..groups.share.state import Group as ShareGroup
from ..groups.streams.state import Group as StreamsGroup
from ..metrics.errors import name_of
from ..metrics.families import BY_NAME, TOPIC_COUNTERS
from ..recording.tap import PRINCIPAL_MAX
from ..replica.assignment import NO_LEADER
from ..security.authorizer import ANONYMOUS
from ..share.values import AcknowledgeType
from ..version import own_version
from .group_views import consumer_lag

if TYPE_CHECKING:
    from ..groups.coordinator import GroupCoordinator
    from ..metadata.topics import Topic
    from ..metrics.counters import RequestMetrics, TopicCounters
    from ..metrics.histogram import Histogram, LoopLag
    from ..network.server import Running
    from ..replica.partition import Partition

SLICE_SECONDS = 0.002  # of work on the loop without a pause
SERIES_MAX = 100_000  # of one family; a group that reads thousands of topics has as many
RUNNING, NOT_RUNNING = 3, 0  # of Kafka's BrokerState
PURGATORIES = {"Fetch": "Fetch", "Produce": "Produce", "JoinGroup": "Rebalance", "SyncGroup": "Rebalance"}
ACKNOWLEDGEMENTS = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW)
GROUP_STATES = {"classic": GroupState, **{one.kind: one.states for one in (ConsumerGroup, ShareGroup, StreamsGroup)}}
_NODE_ROWS = (
    "partitioncount leadercount offlinereplicacount underreplicatedpartitions underminisrpartitioncount "
    "atminisrpartitioncount reassigningpartitions"
).split()
_LOG_ROWS = ("size", "logstartoffset", "logendoffset", "numlogsegments")

Labels = tuple[str, ...]
"""The values of a family's labels, in order; fewer if a series lacks the last ones."""


class Buckets:
    """A histogram at one moment: each count includes those of all lower bounds."""

    def __init__(self, of: Histogram) -> None:
        total = 0
        self.buckets: list[tuple[str, int]] = []
        for bound, count in zip((*of.bounds, "+Inf"), of.buckets, strict=True):
            total += count
            self.buckets.append((str(bound), total))
        self.count = total
        self.sum = of.sum / of.per_unit


@dataclass(slots=True)
class Summed:
    """A summary: a count and a sum."""

    count: int
    sum: int


class Rows:
    """The gathered series, by the name of their family."""

    def __init__(self) -> None:
        self.found: dict[str, list[tuple[Labels, Any]]] = {name: [] for name in BY_NAME}
        self.left_out: Counter[str] = Counter()
        self._since = time.perf_counter()

    def add(self, name: str, value: Any, *labels: str) -> None:
        """Adds one series."""
        rows = self.found[name]
        if len(rows) >= SERIES_MAX:
            self.left_out[name] += 1
        else:
            rows.append((labels, value))

    async def pause(self) -> None:
        """Yields to the event loop if this slice has taken SLICE_SECONDS. Gatherers call it often."""
        if time.perf_counter() - self._since > SLICE_SECONDS:
            await asyncio.sleep(0)
            self._since = time.perf_counter()


async def gather(running: Running, metrics: RequestMetrics, lag: LoopLag) -> Rows:
    """Returns all rows. Runs on the broker's loop; two at once do not disturb each other."""
    rows = Rows()
    _requests(rows, metrics)
    await _topics(rows, running, metrics)
    await _partitions(rows, running)
    await _connections(rows, running, metrics)
    await _groups(rows, running)
    await _share_partitions(rows, running)
    _others(rows, running, lag)
    for name, count in rows.left_out.items():
        rows.add("ottla_metrics_left_out", count, BY_NAME[name].shown)
    return rows


def _requests(rows: Rows, metrics: RequestMetrics) -> None:
    of = "kafka_network_requestmetrics_"
    for api in metrics.apis.values():
        for api_version, count in enumerate(api.versions):
            if count:
                rows.add(of + "requests", count, api.name, str(api_version))
        for code, count in api.errors.items():
            rows.add(of + "errors", count, api.name, name_of(code))
        time = Buckets(api.time)
        rows.add(of + "totaltime_seconds", time, api.name)
        rows.add(of + "requestbytes", Summed(time.count, api.request_bytes), api.name)
        rows.add("ottla_response_bytes", Summed(time.count, api.response_bytes), api.name)
    rows.add("ottla_protocol_violations", metrics.violations)
    for name, counted in (("connection_creation", metrics.opened), ("connection_close", metrics.closed)):
        for listener, count in counted.items():
            rows.add(f"kafka_server_socket_server_metrics_{name}", count, listener)
    for (outcome, listener), count in metrics.authentications.items():
        rows.add(f"kafka_server_socket_server_metrics_{outcome}", count, listener)


async def _topics(rows: Rows, running: Running, metrics: RequestMetrics) -> None:
    metrics.topics.forget(running.state.topics.get)
    _topic(rows, metrics.topics.all())
    for name, counters in list(metrics.topics.by_name.items()):
        _topic(rows, counters, name)
        await rows.pause()


def _topic(rows: Rows, counters: TopicCounters, *labels: str) -> None:
    for name, attribute in TOPIC_COUNTERS.items():
        rows.add(f"kafka_server_brokertopicmetrics_{name}", getattr(counters, attribute), *labels)


async def _partitions(rows: Rows, running: Running) -> None:
    state = running.state
    nodes = {name: Counter(dict.fromkeys(state.nodes.ids, 0)) for name in _NODE_ROWS}
    counts = Counter({"globalpartitioncount": 0, "offlinepartitionscount": 0, "preferredreplicaimbalancecount": 0})
    producers = 0
    topics = list(state.topics)
    for topic in topics:
        least = topic.config["min.insync.replicas"]
        for partition in list(topic.partitions):
            counts["globalpartitioncount"] += 1
            if partition.offline is not None or partition.leader == NO_LEADER:
                counts["offlinepartitionscount"] += 1
            elif partition.leader != partition.replicas[0]:
                counts["preferredreplicaimbalancecount"] += 1
            _replicas(nodes, partition, least)
            if partition.offline is None:
                producers += _log(rows, topic, partition)
            await rows.pause()
    for name, counted in nodes.items():
        for node, count in counted.items():
            rows.add(f"kafka_server_replicamanager_{name}", count, str(node))
    rows.add("kafka_server_replicamanager_produceridcount", producers)
    counts["globaltopiccount"] = len(topics)
    counts["activebrokercount"] = len(state.nodes.running)
    counts["fencedbrokercount"] = len(state.nodes.ids) - len(state.nodes.running)
    counts["activecontrollercount"] = int(state.nodes.controller != NO_LEADER and not state.failed.done())
    for name, count in counts.items():
        rows.add(f"kafka_controller_kafkacontroller_{name}", count)


def _replicas(nodes: dict[str, Counter[int]], partition: Partition, least: int) -> None:
    assigned = partition.assignment
    for node in assigned.replicas:
        nodes["partitioncount"][node] += 1
        if partition.offline is not None:
            nodes["offlinereplicacount"][node] += 1
    leader = partition.leader
    if leader == NO_LEADER or partition.offline is not None:
        return
    in_sync = len(assigned.isr)
    nodes["leadercount"][leader] += 1
    nodes["underreplicatedpartitions"][leader] += in_sync < len(assigned.replicas)
    nodes["underminisrpartitioncount"][leader] += in_sync < least
    nodes["atminisrpartitioncount"][leader] += in_sync == least
    nodes["reassigningpartitions"][leader] += assigned.is_reassigned


def _log(rows: Rows, topic: Topic, partition: Partition) -> int:
    """Adds the rows of one log, and returns its number of producers."""
    log, labels = partition.log, (topic.name, str(partition.index))
    values = (log.size_bytes, log.log_start_offset, log.log_end_offset, len(log.segments))
    for name, value in zip(_LOG_ROWS, values, strict=True):
        rows.add(f"kafka_log_log_{name}", value, *labels)
    return log.producer_count


async def _connections(rows: Rows, running: Running, metrics: RequestMetrics) -> None:
    waiting: Counter[str] = Counter(dict.fromkeys((api.name for api in metrics.apis.values()), 0))
    by_client: Counter[Labels] = Counter()
    by_principal: Counter[Labels] = Counter()
    for connection in list(running.connections.open):
        if connection.waiting is not None:
            waiting[connection.waiting] += 1
        library = connection.info.library
        by_client[connection.listener, library.software_name or "", library.software_version or ""] += 1
        by_principal[connection.listener, (connection.principal or ANONYMOUS)[:PRINCIPAL_MAX]] += 1
        await rows.pause()
    for labels, count in by_client.items():
        rows.add("kafka_server_socket_server_metrics_connections", count, *labels)
    for labels, count in by_principal.items():
        rows.add("ottla_principal_connections", count, *labels)
    purgatories = Counter(dict.fromkeys(PURGATORIES.values(), 0))
    for name, count in waiting.items():
        rows.add("ottla_requests_waiting", count, name)
        if name in PURGATORIES:
            purgatories[PURGATORIES[name]] += count
    for name, count in purgatories.items():
        rows.add("kafka_server_delayedoperationpurgatory_purgatorysize", count, name)


async def _groups(rows: Rows, running: Running) -> None:
    groups = running.state.groups
    _, listed = groups.list_groups()
    states = {kind: Counter(dict.fromkeys((one.value for one in of), 0)) for kind, of in GROUP_STATES.items()}
    offsets = 0
    for one in listed:
        states[one.group_type][one.state] += 1
        offsets += await _group(rows, running, groups, one.group_id)
    of = "kafka_coordinator_group_groupmetadatamanager_"
    rows.add(of + "numgroups", len(listed))
    rows.add(of + "numoffsets", offsets)
    for name, count in states["classic"].items():
        rows.add(f"{of}numgroups{name.lower()}", count)
    of = "kafka_server_group_coordinator_metrics_"
    for kind, counted in states.items():
        rows.add(of + "groups", counted.total(), kind)
        for name, count in counted.items() if kind != "classic" else ():
            rows.add(f"{of}{kind}_groups", count, name.lower())


async def _share_partitions(rows: Rows, running: Running) -> None:
    state = running.state
    of = "kafka_server_sharegroupmetrics_"
    for kind in ACKNOWLEDGEMENTS:
        rows.add(of + "recordacknowledgements", state.share_partitions.acknowledged[kind], kind.name.capitalize())
    rows.add(of + "partitionloadtime_seconds", Buckets(state.share_partitions.load_time))
    for group_id, fetches in state.share_partitions.fetches.items():
        rows.add(of + "topicpartitionsacquiretime_seconds", Buckets(fetches.acquire_time), group_id)
        rows.add(of + "requesttopicpartitionsfetchratio", Buckets(fetches.ratio), group_id)
    queues = state.dead_letters
    for name, counts in (
        ("recordcount", queues.records),
        ("totalproducerequests", queues.requests),
        ("failedproducerequests", queues.failures),
    ):
        for group_id, count in counts.items():
            rows.add(f"{of}deadletterqueue{name}", count, group_id)
    rows.add("kafka_server_sharesessioncache_sharesessionscount", len(state.share_sessions))
    rows.add("kafka_server_sharesessioncache_sharepartitionscount", state.share_sessions.partition_count)
    rows.add("kafka_server_share_coordinator_metrics_write", state.share_state.writes)
    of = "kafka_server_sharepartitionmetrics_"
    for led in state.share_partitions:
        labels = led.key.group_id, led.partition.topic, str(led.key.partition)
        rows.add(of + "inflightmessagecount", led.machine.in_flight, *labels)
        rows.add(of + "inflightbatchcount", led.machine.batches_in_flight, *labels)
        rows.add(of + "inflightbatchmessagecount", Buckets(led.machine.batch_sizes), *labels)
        rows.add(of + "acquisitionlocktimeout", led.machine.lock_timeouts, *labels)
        await rows.pause()


async def _group(rows: Rows, running: Running, groups: GroupCoordinator, group_id: str) -> int:
    """Adds the rows of one group, and returns its number of committed offsets."""
    group = groups.group(group_id)
    if group is None:
        return 0
    rows.add("kafka_consumergroup_members", len(group.members), group_id)
    committed = groups.offsets(group_id)
    for (topic, index), offset in committed.items():
        labels = group_id, topic, str(index)
        rows.add("kafka_consumergroup_current_offset", offset.offset, *labels)
        if (lag := consumer_lag(running.state, topic, index, offset.offset)) is not None:
            rows.add("kafka_consumergroup_lag", lag, *labels)
        await rows.pause()
    return len(committed)


def _others(rows: Rows, running: Running, lag: LoopLag) -> None:
    state = running.state
    for node in state.nodes.ids:
        runs = node not in state.nodes.stopped
        rows.add("kafka_server_kafkaserver_brokerstate", RUNNING if runs else NOT_RUNNING, str(node))
    failed = [log_dir for log_dir in state.logs.all if log_dir.failure is not None]
    rows.add("kafka_log_logmanager_offlinelogdirectorycount", len(failed))
    rows.add("kafka_server_fetchsessioncache_numincrementalfetchsessions", len(state.fetch_sessions))
    _, _, transactions = state.transactions.list()
    for name, count in Counter(one.state.value for one in transactions).items():
        rows.add("ottla_transactions", count, name)
    faults = [] if running.faults is None else running.faults.list()
    rows.add("ottla_faults", len(faults))
    for standing in faults:
        rows.add("ottla_fault_fired", standing.fired, str(standing.id), standing.rule.action.name)
    recorder = running.recorder
    rows.add("ottla_recording", int(recorder.is_running))
    if (recording := recorder.state) is not None:
        rows.add("ottla_recording_exchanges", recording.exchanges)
        rows.add("ottla_recording_dropped", recording.dropped)
    rows.add("ottla_event_loop_lag_seconds", Buckets(lag.seen))
    rows.add("ottla_build_info", 1, own_version(), state.profile.name, state.cluster_id)
