"""Fetch v4-v18: whole batches from the log, with long poll and incremental sessions.

KIP-74 (bounds over the whole answer), KIP-227 (sessions), KIP-320 (leader epochs), KIP-516 (topic ids). v0-v3 close the
connection. Left out: followers' fetches are answered like consumers', there being one node; no transaction is ever
open, so READ_COMMITTED reads to the high watermark and no transaction is listed as aborted.
"""

from __future__ import annotations

from itertools import groupby

from ...protocol.errors import ErrorCode
from ...protocol.messages.fetch import FetchRequest, FetchResponse
from ...protocol.records import batch
from ...storage.errors import OffsetOutOfRange
from ..context import RequestContext, handles
from ..errors import Refused, code_of
from ..fetch_sessions import FetchPlan, PartitionKey, Wanted
from ..partitions import Partition
from ..state import BrokerState
from ..waiting import FetchWaiter

Topic = FetchResponse.FetchableTopicResponse
Answer = Topic.PartitionData

READ_COMMITTED = 1


@handles(FetchRequest, served="4+")
async def fetch(request: FetchRequest, context: RequestContext) -> FetchResponse:
    """Reads; where that is too little, waits for appends or the deadline, and reads once more."""
    broker = context.broker
    uses_topic_ids = context.api_version >= 13
    try:
        plan = broker.fetch_sessions.plan(request, uses_topic_ids, context.now_ms())
    except Refused as refused:
        return FetchResponse(error_code=refused.code, responses=[])
    answers, enough = _read(plan, request, context)
    if not enough:
        answers.clear()  # a wait keeps nothing of what was read
        waiter = FetchWaiter(_watched(plan, broker, uses_topic_ids), _min_bytes(request, context), broker.loop)
        await waiter.wait(broker.clock, context.now_ms() + request.max_wait_ms)
        answers, _ = _read(plan, request, context)
    try:
        session_id, sent = broker.fetch_sessions.conclude(plan, answers, uses_topic_ids, context.now_ms())
    except Refused as refused:
        return FetchResponse(error_code=refused.code, session_id=request.session_id, responses=[])
    return FetchResponse(
        session_id=session_id,
        responses=[
            Topic(topic=topic, topic_id=topic_id, partitions=[answer for _, answer in group])
            for (topic, topic_id), group in groupby(sent, key=lambda pair: pair[0][:2])
        ],
    )


def _max_bytes(request: FetchRequest, context: RequestContext) -> int:
    return max(0, min(request.max_bytes, context.broker.config["fetch.max.bytes"]))


def _min_bytes(request: FetchRequest, context: RequestContext) -> int:
    """More than may be sent is not waited for."""
    return min(request.min_bytes, _max_bytes(request, context))


def _read(
    plan: FetchPlan, request: FetchRequest, context: RequestContext
) -> tuple[list[tuple[PartitionKey, Answer]], bool]:
    """The answers of all partitions in order, and whether they may leave now."""
    left = _max_bytes(request, context)
    found = 0
    enough = request.max_wait_ms <= 0 or not plan.partitions
    committed = request.isolation_level == READ_COMMITTED
    answers = []
    for key, wanted in plan.partitions.items():
        try:
            partition = _partition(key, context.broker, context.api_version >= 13)
            partition.check_epoch(wanted.current_leader_epoch)
            answer = _read_partition(partition, wanted, left, found == 0, committed)
            size = len(answer.records or b"")
            found += size
            left = max(0, left - size)
            # What lies in an older segment does not grow: no need to wait for more of it.
            grows = size == 0 or wanted.offset >= partition.log.active_segment_offset
            enough = enough or not grows or answer.diverging_epoch.epoch != -1
        except Exception as error:
            answer = Answer(
                partition_index=key.index,
                error_code=code_of(error),
                high_watermark=-1,
                log_start_offset=-1,
                aborted_transactions=[] if committed else None,
                records=b"",
            )
            enough = True
        answers.append((key, answer))
    enough = enough or found >= _min_bytes(request, context)
    return answers, enough or _is_enough_there(plan, answers, request, context)


def _is_enough_there(
    plan: FetchPlan, answers: list[tuple[PartitionKey, Answer]], request: FetchRequest, context: RequestContext
) -> bool:
    """Whether there are min_bytes in the logs, though the bounds cut some of them off from this answer."""
    left, there = _max_bytes(request, context), 0
    for (key, wanted), (_, answer) in zip(plan.partitions.items(), answers, strict=True):
        log = _partition(key, context.broker, context.api_version >= 13).log
        size = len(answer.records or b"")
        there += size
        if log.available_bytes(wanted.offset) > size:  # that may be too high, so look where the answer ends
            end_offset = wanted.offset
            for _, header in batch.headers(answer.records or b""):
                end_offset = header.next_offset
            if end_offset < log.high_watermark:
                there += max(0, min(wanted.max_bytes, left) - size)
        left = max(0, left - size)
    return there >= _min_bytes(request, context)


def _partition(key: PartitionKey, broker: BrokerState, uses_topic_ids: bool) -> Partition:
    if not uses_topic_ids:
        return broker.topics.partition(key.topic, key.index)
    topic = broker.topics.by_id(key.topic_id)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
    return broker.topics.partition(topic.name, key.index)


def _read_partition(partition: Partition, wanted: Wanted, left: int, first: bool, committed: bool) -> Answer:
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
                aborted_transactions=[] if committed else None,
                records=b"",
            )
    found = log.read(wanted.offset, max(0, min(wanted.max_bytes, left)), at_least_one_batch=first, committed=committed)
    return Answer(
        partition_index=partition.index,
        error_code=0,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        aborted_transactions=[] if committed else None,
        records=found.records,
    )


def _watched(plan: FetchPlan, broker: BrokerState, uses_topic_ids: bool) -> list[tuple[Partition, int, int]]:
    return [
        (_partition(key, broker, uses_topic_ids), wanted.offset, max(0, wanted.max_bytes))
        for key, wanted in plan.partitions.items()
    ]
