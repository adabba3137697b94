"""Fetch v0-v18: whole batches from the log, with long poll and incremental sessions.

KIP-74 (bounds over the whole answer), KIP-227 (sessions), KIP-320 (leader epochs), KIP-516 (topic ids), KIP-724. v0-v3
are given records in the format that they know, by the rules of the release; v0-v2 are given exactly as many bytes as
they asked for, the last message cut. KIP-98: READ_COMMITTED (v4+) reads to the last stable offset, and is told which
transactions were aborted. Left out: followers' fetches are answered like consumers', replicas being labels; only the
leader of a partition answers, whatever its racks (KIP-392). Asks for READ on each topic, of followers for
CLUSTER_ACTION.
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
from ...config.message_format import down_converts
from ...context import RequestContext, handles
from ...errors import Refused, code_of
from ...replica.fetch_sessions import FetchPlan, PartitionKey, Wanted
from ...replica.partition import Partition
from ...replica.purgatory import FetchWaiter
from ..leaders import endpoints_of, tell_leader

Topic = FetchResponse.FetchableTopicResponse
Answer = Topic.PartitionData
AbortedTransaction = Answer.AbortedTransaction
T = TypeVar("T")

READ_COMMITTED = 1
SENT_PER_ENTRY = 20  # answers that are put in their places in the time of one entry of a cooperative step
BATCHES_FROM = 4  # the first version that takes record batches v2
ONE_BATCH_FROM = 3  # the first that is given a whole batch even if it is larger than it asked for (KIP-74)
STORAGE_ERROR_FROM = 6
ZSTD_FROM = 10
LEADERS_FROM = 16  # the first version that tells who leads (KIP-951)
# Where nothing is read Kafka has an empty list of aborted transactions; where that failed it has none.
_BEFORE_READING = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
# A message that is announced and not there: a client that gets nothing else sees that it is too large, or asks again.
_OVERFLOW = struct.pack(">qi", -1, batch.HEADER_BYTES)


@handles(FetchRequest)
async def fetch(request: FetchRequest, context: RequestContext) -> FetchResponse:
    """Reads; where that is too little, waits for appends or the deadline, and reads once more."""
    broker = context.broker
    uses_topic_ids = context.api_version >= 13
    if broker.lookups.waiting:  # a consumer of librdkafka that assigns partitions itself looks up a coordinator, too
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
    answers, enough = await _read(readable, request, context)
    if not enough:
        answers.clear()  # a wait keeps nothing of what was read
        watched, committed = _watched(readable, broker, uses_topic_ids), request.isolation_level == READ_COMMITTED
        waiter = FetchWaiter(watched, _min_bytes(request, context), broker.loop, committed=committed)
        await waiter.wait(broker.waits, broker.waits.now_ms() + request.max_wait_ms)
        answers, _ = await _read(readable, request, context)
    if context.meter is not None and context.meter.has_fetched(partial(_size, answers + denied, plan, context)):
        return _throttled(plan)
    if context.api_version < ZSTD_FROM:
        await _fit_all(answers, plan, request, context)
    if broker.topic_metrics is not None:
        broker.topic_metrics.fetched(answers, broker.topics)
    answers += denied
    try:
        concluding = broker.fetch_sessions.concluding(plan, answers, uses_topic_ids, context.now_ms())
        session_id, sent = await _in_steps(concluding, context)
    except Refused as refused:
        return FetchResponse(error_code=refused.code, session_id=request.session_id, responses=[])
    if context.is_due(len(sent) // SENT_PER_ENTRY):
        await context.next_step()
    response = _response(session_id, sent)
    if broker.nodes.is_cluster and context.api_version >= LEADERS_FROM:
        response.node_endpoints = endpoints_of(FetchResponse, (answer for _, answer in sent), context)
    return response


async def _in_steps(steps: Steps[T], context: RequestContext) -> T:
    """The result of work that is done in the steps of this request. Raises what it raises."""
    try:
        while True:
            next(steps)
            await context.next_step()
    except StopIteration as stop:
        return stop.value


async def _denied(plan: FetchPlan, request: FetchRequest, context: RequestContext) -> list[tuple[PartitionKey, Answer]]:
    """The answers for partitions that may not be read. As in Kafka they come behind the others, and end no wait for
    these; a topic id that is not known is no secret."""
    replica_id = request.replica_state.replica_id if context.api_version >= 15 else request.replica_id
    is_follower, topics = replica_id >= 0, context.broker.topics
    if is_follower and context.allowed(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return []
    codes: dict[str, ErrorCode] = {}
    answers: list[tuple[PartitionKey, Answer]] = []
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
            answers.append((key, _failed(key.partition, Refused(codes[name]), context)))
    return answers


def _response(session_id: int, sent: list[tuple[PartitionKey, Answer]]) -> FetchResponse:
    return FetchResponse(
        session_id=session_id,
        responses=[
            Topic(topic=topic, topic_id=topic_id, partitions=[answer for _, answer in group])
            for (topic, topic_id), group in groupby(sent, key=lambda pair: pair[0][:2])
        ],
    )


def _size(answers: list[tuple[PartitionKey, Answer]], plan: FetchPlan, context: RequestContext) -> int:
    """What the answer would take with its length, before anything is converted down, as Kafka counts it."""
    response = _response(0, context.broker.fetch_sessions.pending(plan, answers))
    parts: list[Records] = []
    builder(FetchResponse, context.api_version)(response, parts.append)
    return 4 + sum(map(len, parts))


def _throttled(plan: FetchPlan) -> FetchResponse:
    """Nothing, though the session's epoch is used up; no session is begun."""
    session = plan.session
    if session is None:
        return FetchResponse(responses=[])
    code = ErrorCode.NONE if session.epoch == plan.session_epoch else ErrorCode.INVALID_FETCH_SESSION_EPOCH
    return FetchResponse(error_code=code, session_id=session.id, responses=[])


def _max_bytes(request: FetchRequest, context: RequestContext) -> int:
    most = min(request.max_bytes, context.broker.config["fetch.max.bytes"])
    if context.meter is not None and (allowed := context.meter.fetch_bytes_max()) is not None:
        most = min(most, allowed)
    return max(0, most)


def _min_bytes(request: FetchRequest, context: RequestContext) -> int:
    """More than may be sent is not waited for."""
    return min(request.min_bytes, _max_bytes(request, context))


async def _read(
    plan: FetchPlan, request: FetchRequest, context: RequestContext
) -> tuple[list[tuple[PartitionKey, Answer]], bool]:
    """The answers of all partitions in order, and whether they may leave now."""
    left = _max_bytes(request, context)
    found = 0
    enough = request.max_wait_ms <= 0 or not plan.partitions
    committed = request.isolation_level == READ_COMMITTED
    node_id = context.connection_info.node_id
    answers: list[tuple[PartitionKey, Answer]] = []
    for key, wanted in plan.partitions.items():
        if context.is_due():
            await context.next_step()
        try:
            if context.faulted is not None and key in context.faulted:
                raise Refused(context.faulted[key], "on command")
            partition = _partition(key, context.broker, context.api_version >= 13)
            if partition.leader != node_id:
                partition.check_leader(node_id, wanted.current_leader_epoch)
            partition.check_epoch(wanted.current_leader_epoch)
            hard_limit = context.api_version < ONE_BATCH_FROM
            answer = _read_partition(partition, wanted, left, found == 0, committed, hard_limit)
            size = len(answer.records or b"")
            found += size
            left = max(0, left - size)
            # What lies in an older segment does not grow: no need to wait for more of it.
            grows = size == 0 or wanted.offset >= partition.log.growing_from(committed=committed)
            enough = enough or not grows or answer.diverging_epoch.epoch != -1
        except Exception as error:
            answer = _failed(key.partition, error, context)
            enough = True
        answers.append((key, answer))
    enough = enough or found >= _min_bytes(request, context)
    return answers, enough or await _is_enough_there(plan, answers, request, context)


def _failed(index: int, error: Exception, context: RequestContext) -> Answer:
    code = code_of(error)
    if code == ErrorCode.KAFKA_STORAGE_ERROR and context.api_version < STORAGE_ERROR_FROM:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # which these clients know, and try again (KIP-112)
    answer = Answer(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        log_start_offset=-1,
        aborted_transactions=[] if code in _BEFORE_READING else None,
        records=b"",
    )
    tell_leader(answer, error, context, LEADERS_FROM)
    return answer


async def _is_enough_there(
    plan: FetchPlan, answers: list[tuple[PartitionKey, Answer]], request: FetchRequest, context: RequestContext
) -> bool:
    """Whether there are min_bytes in the logs, though the bounds cut some of them off from this answer."""
    left, there = _max_bytes(request, context), 0
    looks, committed = STEP_RECORDS, request.isolation_level == READ_COMMITTED
    for (key, wanted), (_, answer) in zip(plan.partitions.items(), answers, strict=True):
        if context.is_due():
            await context.next_step()
        try:
            log = _partition(key, context.broker, context.api_version >= 13).log
        except Exception:  # deleted or offline since it was read
            return True
        size = len(answer.records or b"")
        there += size
        # That may be too high, so look where the answer ends.
        if log.available_bytes(wanted.offset, committed=committed) > size:
            end_offset, looks = _end_offset(answer.records or b"", wanted.offset, looks)
            if end_offset < (log.last_stable_offset if committed else log.high_watermark):
                there += max(0, min(wanted.max_bytes, left) - size)
        left = max(0, left - size)
    return there >= _min_bytes(request, context)


def _end_offset(records: Records, offset: int, looks: int) -> tuple[int, int]:
    """The offset behind the last whole entry, and how many entries may still be looked at for this request.

    Where there are more, it is one before that: they are worth an answer now, and the time to look at them all would be
    everybody's.
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
) -> Answer:
    """The first partition that has anything sends at least one whole batch; the others what fits (KIP-74)."""
    log = partition.log
    if wanted.last_fetched_epoch >= 0:
        epoch, end_offset = log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if epoch == -1:
            raise OffsetOutOfRange(wanted.offset, log.log_start_offset, log.log_end_offset)
        if epoch < wanted.last_fetched_epoch or end_offset < wanted.offset:
            return Answer(
                partition_index=partition.index,
                error_code=0,
                high_watermark=log.high_watermark,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=log.log_start_offset,
                diverging_epoch=Answer.EpochEndOffset(epoch=epoch, end_offset=end_offset),
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
    )
    # A batch that was begun and did not fit is no answer, so has no list.
    is_cut = not found.records and limit > 0 and wanted.offset < found.last_stable_offset
    return Answer(
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


def _watched(plan: FetchPlan, broker: BrokerState, uses_topic_ids: bool) -> list[tuple[Partition, int, int]]:
    return [
        (_partition(key, broker, uses_topic_ids), wanted.offset, max(0, wanted.max_bytes))
        for key, wanted in plan.partitions.items()
    ]


# Old versions


async def _fit_all(
    answers: list[tuple[PartitionKey, Answer]], plan: FetchPlan, request: FetchRequest, context: RequestContext
) -> None:
    """Makes of what was read what the version takes. As in Kafka that comes last: there was a wait, the bounds went by
    the bytes as stored, and what a topic refuses to old versions it refuses also where nothing or an error was read."""
    needs_10 = context.broker.profile.behaviour.zstd_topic_needs_fetch_10
    if context.api_version >= BATCHES_FROM and not needs_10:
        return
    is_old = context.api_version < BATCHES_FROM
    worked = False
    for number, (key, answer) in enumerate(answers):
        if context.is_due():
            await context.next_step()
        if worked and is_old and answer.records:  # the last one took no turn of its own if it was just below a step
            await context.broker.scheduler.run(_turn())
        worked = worked or bool(answer.records)
        try:
            partition = _partition(key, context.broker, False)
            # By the topic's config alone; what a producer compressed so goes out to every v4-v9 (KIP-110).
            if needs_10 and partition.log.config.rules.compression == Codec.ZSTD:
                raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            if is_old:
                offset = plan.partitions[key].offset
                answer.records = await _converted(answer.records or b"", partition, offset, request, context)
        except Exception as error:
            answers[number] = key, _failed(key.partition, error, context)


def _turn() -> Steps[None]:
    """No work: others get their turn."""
    yield None


async def _converted(
    records: Records, partition: Partition, offset: int, request: FetchRequest, context: RequestContext
) -> Records:
    """KIP-724: 3.0 and later convert without a look whenever the topic is written in a newer format, older ones after
    a scan. Where nothing is left the client is not given nothing: it would wait at this offset for ever."""
    broker = context.broker
    behaviour = broker.profile.behaviour
    newest = 0 if context.api_version <= 1 else 1
    if behaviour.down_conversion == "none" or partition.log.config.rules.target_magic <= newest:
        return records
    if behaviour.down_conversion == "scan" and not await broker.scheduler.run(convert.holds_newer(records, newest)):
        return records
    is_follower = request.replica_id >= 0  # they are served whatever the topic says (KIP-283)
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
