"""Fetch v0-v18: batches from the log, the last one cut at the limit, with long polls and incremental sessions.

* KIP-74: bounds over the whole response.
* KIP-98: READ_COMMITTED (v4+) reads to the last stable offset and lists the aborted transactions.
* KIP-227: sessions. KIP-320: leader epochs. KIP-516: topic ids.
* KIP-724: v0-v3 receive records in their own format, by the rules of the release; for v0-v2 also the first message is
  cut at the limit.
* KIP-392: from v11 on each replica serves consumers. With a replica selector the leader names a replica in the rack of
  the consumer instead of reading.

All replicas are one log. Left out: fetches of followers are served like those of consumers. Requires READ on each
topic; followers need CLUSTER_ACTION.
"""

from __future__ import annotations

import struct
from functools import partial
from itertools import groupby, islice
from typing import TypeVar

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.compiler import builder
from ....protocol.errors import ErrorCode
from ....protocol.messages.records.fetch import FetchRequest, FetchResponse
from ....protocol.primitives import Records
from ....protocol.records import batch, convert, formats
from ....protocol.records.compression import Codec
from ....protocol.records.steps import STEP_RECORDS, Steps
from ....storage.errors import OffsetOutOfRange
from ....storage.log.results import Slice
from ...broker_state import BrokerState
from ...config.java_classes import SELECTOR, selects_by_rack
from ...config.message_format import down_converts
from ...context import RequestContext, handles
from ...errors import Refused, code_of
from ...replica.fetch_sessions import FetchPlan, PartitionKey, Wanted
from ...replica.partition import Partition
from ...replica.purgatory import bytes_waiter
from ..leaders import endpoints_of, set_leader

Topic = FetchResponse.FetchableTopicResponse
PartitionData = Topic.PartitionData
AbortedTransaction = PartitionData.AbortedTransaction
T = TypeVar("T")

READ_COMMITTED = 1
REPLICAS_FROM = 11  # the first version that a consumer may send to any replica (KIP-392)
SENT_PER_ENTRY = 20  # responses that are put in order in the time of one entry of a cooperative step
BATCHES_FROM = 4  # the first version with record batches v2
ONE_BATCH_FROM = 3  # the first version that receives a whole batch even above its limit (KIP-74)
STORAGE_ERROR_FROM = 6
ZSTD_FROM = 10
LEADERS_FROM = 16  # the first version with the current leader (KIP-951)
# Kafka has an empty list of aborted transactions for an error before the read, and null for an error of the read.
_BEFORE_READING = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
# The header of a message that does not follow: a client that receives only this reports it as too large, or retries.
_OVERFLOW = struct.pack(">qi", -1, batch.HEADER_BYTES)


@handles(FetchRequest)
async def fetch(request: FetchRequest, context: RequestContext) -> FetchResponse:
    """Reads; with too few bytes, waits for appends or the deadline and reads again."""
    broker = context.broker
    uses_topic_ids = context.api_version >= 13
    if broker.lookups.waiting:  # a consumer of librdkafka with manual assignment looks up a coordinator too
        broker.lookups.used(context.connection_info, context.client_id)
    try:
        planning = broker.fetch_sessions.planning(
            request, uses_topic_ids, context.now_ms(), context.connection_info.node_id
        )
        plan = await _in_steps(planning, context)
    except Refused as refused:
        return FetchResponse(error_code=refused.code, responses=[])
    denied = [] if broker.authorizer is None else await _denied(plan, request, context)
    readable = plan.without(key for key, _ in denied) if denied else plan
    most = _max_bytes(request, context)
    results, enough = await _read(readable, most, request, context)
    if not enough:
        results.clear()  # the memory is freed during the wait
        positions, committed = _positions(readable, broker, uses_topic_ids), request.isolation_level == READ_COMMITTED
        waiter = bytes_waiter(positions, min(request.min_bytes, most), broker.loop, committed=committed)
        await waiter.wait(broker.waits, broker.waits.now_ms() + request.max_wait_ms)
        results, _ = await _read(readable, most, request, context)
    if context.meter is not None and context.meter.has_fetched(partial(_size, results + denied, plan, context)):
        return _throttled(plan)
    if context.api_version < ZSTD_FROM:
        await _fit_all(results, plan, request, context)
    if broker.topic_metrics is not None:
        broker.topic_metrics.fetched(results, broker.topics)
    results += denied
    try:
        concluding = broker.fetch_sessions.concluding(plan, results, uses_topic_ids, context.now_ms())
        session_id, sent = await _in_steps(concluding, context)
    except Refused as refused:
        return FetchResponse(error_code=refused.code, session_id=request.session_id, responses=[])
    if context.is_due(len(sent) // SENT_PER_ENTRY):
        await context.next_step()
    response = _response(session_id, sent)
    if broker.nodes.is_cluster and context.api_version >= LEADERS_FROM:
        response.node_endpoints = endpoints_of((data for _, data in sent), context)
    return response


async def _in_steps(steps: Steps[T], context: RequestContext) -> T:
    """Runs work in the steps of this request. Returns its result. Raises what the work raises."""
    try:
        while True:
            next(steps)
            await context.next_step()
    except StopIteration as stop:
        return stop.value


async def _denied(
    plan: FetchPlan, request: FetchRequest, context: RequestContext
) -> list[tuple[PartitionKey, PartitionData]]:
    """The responses for partitions without permission. As in Kafka they come after the others, and do not end their
    wait. Unknown topic ids are left to the read.
    """
    replica_id = request.replica_state.replica_id if context.api_version >= 15 else request.replica_id
    is_follower, topics = replica_id >= 0, context.broker.topics
    if is_follower and context.allowed(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return []
    codes: dict[str, ErrorCode] = {}
    results: list[tuple[PartitionKey, PartitionData]] = []
    for key in plan.partitions:
        if context.is_due():
            await context.next_step()
        topic = topics.by_id(key.topic_id) if context.api_version >= 13 else None
        name = key.topic if context.api_version < 13 else topic.name if topic else None
        if name is None:
            continue
        if name not in codes:
            denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            codes[name] = denied if is_follower else context.topic_refusal(AclOperation.READ, name)
        if codes[name]:
            results.append((key, _failed(key.partition, Refused(codes[name]), context)))
    return results


def _response(session_id: int, sent: list[tuple[PartitionKey, PartitionData]]) -> FetchResponse:
    return FetchResponse(
        session_id=session_id,
        responses=[
            Topic(topic=topic, topic_id=topic_id, partitions=[data for _, data in group])
            for (topic, topic_id), group in groupby(sent, key=lambda pair: pair[0][:2])
        ],
    )


def _size(results: list[tuple[PartitionKey, PartitionData]], plan: FetchPlan, context: RequestContext) -> int:
    """The size of the response with its length field, before any down-conversion, as Kafka computes it for quotas."""
    response = _response(0, context.broker.fetch_sessions.pending(plan, results))
    parts: list[Records] = []
    builder(FetchResponse, context.api_version)(response, parts.append)
    return 4 + sum(map(len, parts))


def _throttled(plan: FetchPlan) -> FetchResponse:
    """The response of a throttled fetch: no records. The session's epoch has advanced; no new session is created."""
    session = plan.session
    if session is None:
        return FetchResponse(responses=[])
    code = ErrorCode.NONE if session.epoch == plan.session_epoch else ErrorCode.INVALID_FETCH_SESSION_EPOCH
    return FetchResponse(error_code=code, session_id=session.id, responses=[])


def _max_bytes(request: FetchRequest, context: RequestContext) -> int:
    most = min(request.max_bytes, context.config["fetch.max.bytes"])
    if context.meter is not None and (allowed := context.meter.fetch_bytes_max()) is not None:
        most = min(most, allowed)
    return max(0, most)


async def _read(
    plan: FetchPlan, most: int, request: FetchRequest, context: RequestContext
) -> tuple[list[tuple[PartitionKey, PartitionData]], bool]:
    """Reads all partitions in order, at most `most` bytes. Returns their responses, and whether these may be sent now:
    there are `min_bytes`, or as many as the response may have.
    """
    left = most
    found = 0
    enough = request.max_wait_ms <= 0 or not plan.partitions
    committed = request.isolation_level == READ_COMMITTED
    node_id = context.connection_info.node_id
    rack = request.rack_id
    if rack and not (_reads_replicas(request, context) and selects_by_rack(context.config)):
        rack = ""
    results: list[tuple[PartitionKey, PartitionData]] = []
    for key, wanted in plan.partitions.items():
        if context.is_due():
            await context.next_step()
        try:
            if context.faulted is not None and key in context.faulted:
                raise Refused(context.faulted[key], "on command")
            partition = _partition(key, context.broker, context.api_version >= 13)
            if partition.leader != node_id and not (
                partition.is_replica(node_id) and _reads_replicas(request, context)
            ):
                partition.check_leader(node_id, wanted.current_leader_epoch)
            partition.check_epoch(wanted.current_leader_epoch)
            data = _preferred(partition, wanted, rack, context) if rack and partition.leader == node_id else None
            if data is None:
                hard_limit = context.api_version < ONE_BATCH_FROM
                data = _read_partition(partition, wanted, left, found == 0, committed, hard_limit)
            size = len(data.records or b"")
            found += size
            left = max(0, left - size)
            enough = enough or data.diverging_epoch.epoch != -1 or data.preferred_read_replica != -1
        except Exception as error:
            data = _failed(key.partition, error, context)
            enough = True
        results.append((key, data))
    enough = enough or found >= min(request.min_bytes, most)
    return results, enough or await _is_enough_there(plan, most, results, request, context)


def _reads_replicas(request: FetchRequest, context: RequestContext) -> bool:
    """Whether any replica serves this request: one of a consumer, in releases with KIP-392."""
    is_follower = max(request.replica_id, request.replica_state.replica_id) >= 0
    has_selector = context.config.fact(SELECTOR) is not None
    return context.api_version >= REPLICAS_FROM and not is_follower and has_selector


def _preferred(partition: Partition, wanted: Wanted, rack: str, context: RequestContext) -> PartitionData | None:
    """The response that names a replica in the rack of the consumer, without records. None if the leader is to be read:
    also for an offset outside the log, which no replica has.
    """
    log = partition.log
    replica = context.broker.nodes.preferred(partition.assignment, rack)
    if replica is None or not log.log_start_offset <= wanted.offset <= log.log_end_offset:
        return None
    return PartitionData(
        partition_index=partition.index,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        preferred_read_replica=replica,
        aborted_transactions=None,
        records=b"",
    )


def _failed(index: int, error: Exception, context: RequestContext) -> PartitionData:
    code = code_of(error)
    if code == ErrorCode.KAFKA_STORAGE_ERROR and context.api_version < STORAGE_ERROR_FROM:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # clients before v6 retry for this error (KIP-112)
    data = PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        log_start_offset=-1,
        aborted_transactions=[] if code in _BEFORE_READING else None,
        records=b"",
    )
    set_leader(data, error, context, LEADERS_FROM)
    return data


async def _is_enough_there(
    plan: FetchPlan,
    most: int,
    results: list[tuple[PartitionKey, PartitionData]],
    request: FetchRequest,
    context: RequestContext,
) -> bool:
    """Returns whether the logs have min_bytes, although the bounds cut some of them off from this response, or no wait
    brings more of a partition.
    """
    left, there = most, 0
    looks, committed = STEP_RECORDS, request.isolation_level == READ_COMMITTED
    for (key, wanted), (_, data) in zip(plan.partitions.items(), results, strict=True):
        if context.is_due():
            await context.next_step()
        try:
            log = _partition(key, context.broker, context.api_version >= 13).log
        except Exception:  # deleted or offline since it was read
            return True
        size = len(data.records or b"")
        if size and wanted.offset < log.growing_from(committed=committed):  # an older segment does not grow
            return True
        there += size
        visible = log.last_stable_offset if committed else log.high_watermark
        # The estimate may be too high, so check where the response ends.
        if wanted.offset < visible and log.available_bytes(wanted.offset, committed=committed) > size:
            end_offset, looks = _end_offset(data.records or b"", wanted.offset, looks)
            if end_offset < visible:
                there += max(0, min(wanted.max_bytes, left) - size)
        left = max(0, left - size)
    return there >= min(request.min_bytes, most)


def _end_offset(records: Records, offset: int, looks: int) -> tuple[int, int]:
    """Returns the offset after the last whole entry, and the number of entries that may still be read for this request.

    With more entries than that it returns a lower offset, which makes the response due: reading on would delay all
    clients.
    """
    for _, header in islice(formats.headers(records), looks):
        offset = header.next_offset
        looks -= 1
    return offset, looks


def _partition(key: PartitionKey, broker: BrokerState, uses_topic_ids: bool) -> Partition:
    if not uses_topic_ids:
        return broker.topics.partition(key.topic, key.partition)
    topic = broker.topics.by_id(key.topic_id)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
    return broker.topics.partition(topic.name, key.partition)


def _read_partition(
    partition: Partition, wanted: Wanted, left: int, first: bool, committed: bool, hard_limit: bool
) -> PartitionData:
    """Reads one partition. The first partition with records returns at least one whole batch, the others up to the
    limit (KIP-74).
    """
    log = partition.log
    if wanted.last_fetched_epoch >= 0:
        epoch, end_offset = log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if epoch == -1:
            raise OffsetOutOfRange(wanted.offset, log.log_start_offset, log.log_end_offset)
        if epoch < wanted.last_fetched_epoch or end_offset < wanted.offset:
            return PartitionData(
                partition_index=partition.index,
                error_code=0,
                high_watermark=log.high_watermark,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=log.log_start_offset,
                diverging_epoch=PartitionData.EpochEndOffset(epoch=epoch, end_offset=end_offset),
                aborted_transactions=None,
                records=b"",
            )
    limit = max(0, min(wanted.max_bytes, left))
    found = log.read(
        wanted.offset,
        limit,
        at_least_one_batch=first,
        committed=committed,
        hard_limit=hard_limit,
        whole=False,
    )
    # A batch that does not fit is not returned, so there is no list of aborted transactions.
    is_cut = not found.records and limit > 0 and wanted.offset < found.last_stable_offset
    return PartitionData(
        partition_index=partition.index,
        error_code=0,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        aborted_transactions=_aborted(found) if committed and not is_cut else None,
        records=found.records,
    )


def _aborted(found: Slice) -> list[AbortedTransaction]:
    return [AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in found.aborted]


def _positions(plan: FetchPlan, broker: BrokerState, uses_topic_ids: bool) -> list[tuple[Partition, int, int]]:
    return [
        (_partition(key, broker, uses_topic_ids), wanted.offset, max(0, wanted.max_bytes))
        for key, wanted in plan.partitions.items()
    ]


# Old versions


async def _fit_all(
    results: list[tuple[PartitionKey, PartitionData]], plan: FetchPlan, request: FetchRequest, context: RequestContext
) -> None:
    """Converts the records to the version's format. As in Kafka this comes after the wait and the bounds, and a topic
    that refuses old versions does so even without records.
    """
    needs_10 = context.broker.profile.behaviour.zstd_topic_needs_fetch_10
    if context.api_version >= BATCHES_FROM and not needs_10:
        return
    is_old = context.api_version < BATCHES_FROM
    worked = False
    for number, (key, data) in enumerate(results):
        if context.is_due():
            await context.next_step()
        if worked and is_old and data.records:  # the previous one yielded nothing if it was below one step
            await context.broker.scheduler.run(_one_step())
        worked = worked or bool(data.records)
        try:
            partition = _partition(key, context.broker, False)
            # By the topic's config only; other zstd batches are sent to v4-v9 (KIP-110).
            if needs_10 and partition.log.config.rules.compression == Codec.ZSTD:
                raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            if is_old:
                offset = plan.partitions[key].offset
                data.records = await _converted(data.records or b"", partition, offset, request, context)
        except Exception as error:
            results[number] = key, _failed(key.partition, error, context)


def _one_step() -> Steps[None]:
    """Yields to the event loop once."""
    yield None


async def _converted(
    records: Records, partition: Partition, offset: int, request: FetchRequest, context: RequestContext
) -> Records:
    """Converts a partition's records to an older format (KIP-724). 3.0 and later convert whenever the topic's format is
    newer, older releases only after a scan. If no record is left, the response is not empty: the client would stay at
    this offset forever.
    """
    broker = context.broker
    behaviour = broker.profile.behaviour
    newest = 0 if context.api_version <= 1 else 1
    if behaviour.down_conversion == "none" or partition.log.config.rules.target_magic <= newest:
        return records
    if behaviour.down_conversion == "scan" and not await broker.scheduler.run(convert.holds_newer(records, newest)):
        return records
    is_follower = request.replica_id >= 0  # followers are served regardless of the topic's config (KIP-283)
    if not is_follower and not down_converts(broker.topics.named(partition.topic).config):
        raise Refused(ErrorCode.UNSUPPORTED_VERSION)
    if not records:
        return records
    if next(formats.headers(records), None) is None:
        return records if behaviour.sends_cut else b""
    converted = await broker.scheduler.run(convert.down(records, newest, offset))
    if broker.topic_metrics is not None:
        broker.topic_metrics.converted_down(partition.topic, converted)
    if not converted:
        return records if behaviour.nothing_left == "original" else _OVERFLOW
    return converted
