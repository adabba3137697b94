"""GET /overview: counters and the most active topics, groups, producers, clients and requests."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from ....protocol.limits import INT16_MAX, INT16_MIN
from ...admin_api.overview import DEFAULT_LIMIT, MAX_LIMIT, TOTALS
from .parts import NAME_MAX, Count, Epoch, Health, LogOffset, Model, ProducerEpoch, TimeMs, doc, text, whole
from .steering import Clock, Fault, Node


class OverviewQuery(Model):
    limit: Annotated[int, whole(1, MAX_LIMIT, "entries of each list at most")] = DEFAULT_LIMIT
    contains: Annotated[str, text(NAME_MAX, "only entries with this in their names, in any case")] = ""


class OverviewBroker(Health):
    instance: Annotated[str, doc("changes with each start of the process")]
    state: Annotated[Count, doc("changes with each reset or restore")]
    uptime_ms: Annotated[Count, doc("time since the observation began, by the machine's clock; for rates")]


class OverviewNode(Node):
    leads: Annotated[Count, doc("how many partitions the node leads")]


OverviewTotals = msgspec.defstruct(
    "OverviewTotals",
    [(name, Count) for name in TOTALS],
    bases=(Model,),
    namespace={"__doc__": "Of everything, whatever the lists are cut to."},
)


class OverviewTopic(Model):
    name: str
    is_internal: bool
    partitions: Count
    offline_partitions: Count
    size_bytes: Count
    records: Annotated[Count, doc("offsets from the log starts to the high watermarks")]
    records_in: Annotated[Count, doc("a counter: the sum of the log end offsets")]
    bytes_in: Annotated[Count, doc("a counter: bytes that clients produced")]
    bytes_out: Annotated[Count, doc("a counter: bytes that clients fetched")]


class OverviewGroup(Model):
    id: str
    type: Annotated[str, doc("classic, consumer or share")]
    state: str
    protocol_type: str
    protocol: str
    generation: Epoch
    members: Count
    unreconciled: Annotated[Count, doc("members that do not have their target assignment, in a consumer group")]
    topics: Annotated[list[str], doc("some of those with committed offsets")]
    partitions: Annotated[Count, doc("those with committed offsets")]
    committed: Annotated[Count, doc("the sum of the committed offsets, or of the start offsets of a share group")]
    lag: Count
    in_flight: Annotated[Count, doc("records of a share group that are delivered or wait for it again")]


class OverviewProducer(Model):
    topic: Annotated[str | None, doc("null for a transaction that has not reached a partition")]
    partition: Epoch
    producer_id: Count
    producer_epoch: ProducerEpoch
    last_sequence: Epoch
    last_timestamp_ms: TimeMs
    transaction_start_offset: Annotated[LogOffset, doc("-1 without an open transaction")]
    transactional_id: str | None
    transaction_state: str | None
    transaction_start_ms: TimeMs


class OverviewClient(Model):
    client_id: Annotated[str | None, doc("null for clients without an id, and for those beyond the bound of clients")]
    software_name: str | None
    software_version: str | None
    listener: str
    hosts: Annotated[list[str], doc("some of those that are connected")]
    principals: Annotated[list[str], doc("some of those that are connected; without a login User:ANONYMOUS")]
    connections: Count
    waiting: Annotated[Count, doc("requests without a response yet")]
    requests: Count
    request_bytes: Count
    response_bytes: Count
    apis: Annotated[
        dict[str, Annotated[int, whole(0, INT16_MAX)]], doc("the highest version of each API that the client has used")
    ]
    idle_ms: Count


class _Request(Model):
    number: Count
    api: str
    api_version: Annotated[int, whole(INT16_MIN, INT16_MAX)]
    client_id: str | None
    host: str
    port: Annotated[int, whole(-1, 65_535)]
    request_bytes: Count
    fault: Annotated[str | None, doc("the fault that fired for it")]


class SlowRequest(_Request):
    duration_us: Count
    ago_ms: Annotated[Count, doc("time since its response")]
    response_bytes: Count
    ending: Literal["responded", "silent", "closed"]


class WaitingRequest(_Request):
    waiting_ms: Count
    waits_for: Annotated[Literal["records", "members", None], doc("what the request itself waits for")]


class Overview(Model):
    """The state of this moment. Lists have the most active entries first; rates are differences of counters over
    uptime_ms."""

    broker: OverviewBroker
    clock: Clock
    nodes: list[OverviewNode]
    totals: OverviewTotals  # pyright: ignore[reportInvalidTypeForm]
    topics: list[OverviewTopic]
    groups: list[OverviewGroup]
    producers: Annotated[list[OverviewProducer], doc("in each partition, open transactions first")]
    clients: list[OverviewClient]
    slow: Annotated[
        list[SlowRequest],
        doc("the slowest of the last minute, without JoinGroup, SyncGroup and Fetch within its max_wait_ms"),
    ]
    waiting: Annotated[list[WaitingRequest], doc("without a response yet, oldest first")]
    faults: list[Fault]
