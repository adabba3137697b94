"""ListOffsets v0-v11: offsets by timestamp (KIP-79, KIP-320, KIP-734, KIP-405).

Left out: tiers. The local log is the whole log, so "earliest local" (-4) is the log start, and "latest tiered" (-5) and
"earliest pending upload" (-6) answer that there is none. Asks for DESCRIBE on each topic.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from ....protocol.acls import AclOperation
from ....protocol.errors import ErrorCode
from ....protocol.messages.records.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ....storage.partition_log import PartitionLog
from ...context import RequestContext, handles
from ...errors import Refused, code_of

Topic = ListOffsetsResponse.ListOffsetsTopicResponse
Answer = Topic.ListOffsetsPartitionResponse
AskedPartition = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
# The least version in which a special timestamp means something.
_SINCE = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_COMMITTED = 1
COUNTED_PER_ENTRY = 10  # partitions that are looked for twice in the time of one entry of a cooperative step


@handles(ListOffsetsRequest)
async def list_offsets(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """One offset per partition; in v0 a list of them, newest first. As in Kafka, topics that may not be described come
    last."""
    counts: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        if context.is_due(1 + len(topic.partitions) // COUNTED_PER_ENTRY):
            await context.next_step()
        counts.update((topic.name, asked.partition_index) for asked in topic.partitions)
    topics: list[Topic] = []
    refused: list[Topic] = []
    for topic in request.topics:
        error = context.topic_refusal(AclOperation.DESCRIBE, topic.name)
        if error is not ErrorCode.NONE:
            of_error = partial(_refused, error)
            answers = await context.mapped(of_error, topic.partitions)
            refused.append(Topic(name=topic.name, partitions=answers))
            continue
        answers: list[Answer] = []
        for asked in topic.partitions:
            if context.is_due():
                await context.next_step()
            try:
                if counts[topic.name, asked.partition_index] > 1:
                    raise Refused(ErrorCode.INVALID_REQUEST)
                answers.append(_answer(topic.name, asked, request.isolation_level, context))
            except Exception as error:
                answers.append(_refused(code_of(error), asked))
        if context.is_due():
            await context.next_step()
        topics.append(Topic(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics + refused)


def _refused(error: ErrorCode, asked: AskedPartition) -> Answer:
    return Answer(partition_index=asked.partition_index, error_code=error)


def _answer(topic: str, asked: AskedPartition, isolation_level: int, context: RequestContext) -> Answer:
    # Asked first: also where nobody leads, or nothing is.
    is_special = context.broker.profile.behaviour.special_timestamps
    if is_special and context.api_version < _SINCE.get(asked.timestamp, 1 << 15) and asked.timestamp < 0:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION)
    partition = context.partition(topic, asked.partition_index, asked.current_leader_epoch)
    log = partition.log
    answer = Answer(partition_index=asked.partition_index, error_code=0)
    end = log.last_stable_offset if isolation_level == READ_COMMITTED else log.high_watermark
    if context.api_version == 0:
        answer.old_style_offsets = _old_style(log, asked.timestamp, asked.max_num_offsets, end, context.now_ms())
        return answer
    epoch = -1
    if asked.timestamp == LATEST:
        answer.offset, epoch = end, partition.leader_epoch
    elif asked.timestamp == EARLIEST or (is_special and asked.timestamp == EARLIEST_LOCAL):
        answer.offset, epoch = log.log_start_offset, log.epoch_at_start()
    elif is_special and asked.timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        answer.offset = -1
    else:
        newest = is_special and asked.timestamp == MAX_TIMESTAMP
        found = log.max_timestamp() if newest else log.find_timestamp(asked.timestamp)
        if found is not None and found.offset < end:
            answer.timestamp, answer.offset, epoch = found
    if context.api_version >= 4:  # older versions have no place for it, and Apache's definition does not let it go
        answer.leader_epoch = epoch
    return answer


def _old_style(log: PartitionLog, timestamp: int, limit: int, end: int, now_ms: int) -> list[int]:
    """v0: bases of the segments that are at least so old, newest first, and before them the end of the log.

    Kafka goes by the files' times; here a segment is as old as its newest record.
    """
    if timestamp == EARLIEST:
        candidates = [log.log_start_offset]
    else:
        entries = log.segment_bases()
        if entries[-1][0] < end:
            entries.append((end, now_ms))
        known = [offset for offset, _ in reversed(entries)]
        young = 0
        if timestamp != LATEST:
            young = next((n for n, (_, time_ms) in enumerate(reversed(entries)) if time_ms <= timestamp), len(known))
        candidates = known[young:]
    return [max(offset, log.log_start_offset) for offset in candidates[: max(0, limit)]]
