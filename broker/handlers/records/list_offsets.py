"""ListOffsets v0-v11: offsets by timestamp (KIP-79, KIP-320, KIP-734, KIP-405).

Left out: tiered storage. The local log is the whole log, so "earliest local" (-4) is the log start offset; "latest
tiered" (-5) and "earliest pending upload" (-6) have no offset. Requires DESCRIBE on each topic.
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
PartitionResponse = Topic.ListOffsetsPartitionResponse
RequestedPartition = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
# The first version in which a special timestamp has a meaning.
_SINCE = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_COMMITTED = 1
DEBUGGING = -2  # the replica id of tools, which any replica serves
COUNTED_PER_ENTRY = 10  # partitions that are counted in the time of one entry of a cooperative step


@handles(ListOffsetsRequest)
async def list_offsets(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Returns one offset for each partition; in v0 a list of them, newest first. As in Kafka, topics without permission
    come last.
    """
    counts: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        await context.step(1 + len(topic.partitions) // COUNTED_PER_ENTRY)
        counts.update((topic.name, requested.partition_index) for requested in topic.partitions)
    topics: list[Topic] = []
    refused: list[Topic] = []
    for topic in request.topics:
        error = context.topic_refusal(AclOperation.DESCRIBE, topic.name)
        if error is not ErrorCode.NONE:
            of_error = partial(_refused, error)
            responses = await context.mapped(of_error, topic.partitions)
            refused.append(Topic(name=topic.name, partitions=responses))
            continue
        responses: list[PartitionResponse] = []
        for requested in topic.partitions:
            await context.step()
            try:
                if counts[topic.name, requested.partition_index] > 1:
                    raise Refused(ErrorCode.INVALID_REQUEST)
                responses.append(_offset_of(topic.name, requested, request, context))
            except Exception as error:
                responses.append(_refused(code_of(error), requested))
        await context.step()
        topics.append(Topic(name=topic.name, partitions=responses))
    return ListOffsetsResponse(topics=topics + refused)


def _refused(error: ErrorCode, requested: RequestedPartition) -> PartitionResponse:
    return PartitionResponse(partition_index=requested.partition_index, error_code=error)


def _offset_of(
    topic: str, requested: RequestedPartition, request: ListOffsetsRequest, context: RequestContext
) -> PartitionResponse:
    # Checked before the leader and the existence of the partition.
    is_special = context.broker.profile.behaviour.special_timestamps
    if is_special and context.api_version < _SINCE.get(requested.timestamp, 1 << 15) and requested.timestamp < 0:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION)
    any_replica = request.replica_id == DEBUGGING
    partition = context.partition(topic, requested.partition_index, requested.current_leader_epoch, any_replica)
    log = partition.log
    response = PartitionResponse(partition_index=requested.partition_index, error_code=0)
    end = log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark
    if context.api_version == 0:
        response.old_style_offsets = _old_style(
            log, requested.timestamp, requested.max_num_offsets, end, context.now_ms()
        )
        return response
    epoch = -1
    if requested.timestamp == LATEST:
        response.offset, epoch = end, partition.leader_epoch
    elif requested.timestamp == EARLIEST or (is_special and requested.timestamp == EARLIEST_LOCAL):
        response.offset, epoch = log.log_start_offset, log.epoch_at_start()
    elif is_special and requested.timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        response.offset = -1
    else:
        newest = is_special and requested.timestamp == MAX_TIMESTAMP
        found = log.max_timestamp() if newest else log.find_timestamp(requested.timestamp)
        if found is not None and found.offset < end:
            response.timestamp, response.offset, epoch = found
    if context.api_version >= 4:  # older versions have no field for it, and Apache's definition refuses to write it
        response.leader_epoch = epoch
    return response


def _old_style(log: PartitionLog, timestamp: int, limit: int, end: int, now_ms: int) -> list[int]:
    """The result of v0: base offsets of the segments that are at least as old as the timestamp, newest first, preceded
    by the log end offset.

    Kafka uses the modification times of the files; here a segment is as old as its newest record.
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
