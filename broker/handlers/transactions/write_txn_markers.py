"""WriteTxnMarkers v0-v2: ends transactions in partitions, whatever their coordinator knows (KIP-98, 664, 1228).

What `kafka-transactions abort` and the admin clients' abort_transaction send for a transaction that hangs. A marker
for a partition that the coordinator still has to mark is not counted for it: it writes its own behind it. Asks for
CLUSTER_ACTION or ALTER on the cluster.
"""

from __future__ import annotations

import asyncio

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode
from ....protocol.messages.transactions.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ....storage.partition_log import Appended
from ...context import RequestContext, handles
from ...errors import Refused, code_of
from ...metadata.topics import GROUP_OFFSETS_TOPIC

Marker = WriteTxnMarkersRequest.WritableTxnMarker
Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = Result.WritableTxnMarkerTopicResult
PartitionResult = TopicResult.WritableTxnMarkerPartitionResult
Place = tuple[str, int]
MARKER_ENTRIES = 10  # what a marker in one partition counts in a cooperative step
Codes = dict[int, dict[Place, ErrorCode]]
"""Of each producer what came of its partitions; where two markers of one name a partition, of the later."""


@handles(WriteTxnMarkersRequest)
async def write_txn_markers(request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    """Each partition on its own; the answer comes when the markers are as durable as their topics ask."""
    try:
        _check(request, context)
    except Refused as refused:
        return await _answer(
            {one.producer_id: {place: refused.code for place in _places(one)} for one in request.markers}, context
        )
    codes: Codes = {}
    later: list[tuple[Marker, Place, asyncio.Future[Appended]]] = []
    for marker in request.markers:
        of_producer = codes.setdefault(marker.producer_id, {})
        if context.is_due():
            await context.next_step()
        for place in _places(marker):
            if context.is_due(MARKER_ENTRIES):
                await context.next_step()
            of_producer[place] = ErrorCode.NONE
            try:
                submitted = _write(marker, place, context)
            except Exception as error:
                of_producer[place] = code_of(error)
                continue
            if isinstance(submitted, asyncio.Future):
                later.append((marker, place, submitted))
            else:
                _written(marker, place, context)
    for marker, place, submitted in later:
        try:
            await submitted
        except Exception as error:
            codes[marker.producer_id][place] = code_of(error)
        else:
            _written(marker, place, context)
    return await _answer(codes, context)


def _check(request: WriteTxnMarkersRequest, context: RequestContext) -> None:
    if not context.allowed(AclOperation.ALTER, ResourceType.CLUSTER):
        context.check_allowed(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    if any(marker.producer_id < 0 for marker in request.markers):
        raise Refused(ErrorCode.INVALID_REQUEST)  # Kafka fails unexpectedly where it builds a marker of nobody


def _places(marker: Marker) -> list[Place]:
    return [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]


def _write(marker: Marker, place: Place, context: RequestContext) -> Appended | asyncio.Future[Appended]:
    partition = context.broker.topics.partition(*place)
    if context.node_id not in partition.replicas:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition.check_leader(context.node_id)
    context.broker.check_in_sync(partition)
    return partition.write_marker(
        marker.producer_id,
        marker.producer_epoch,
        committed=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        now_ms=context.now_ms(),
        transaction_version=marker.transaction_version,
    )


def _written(marker: Marker, place: Place, context: RequestContext) -> None:
    """The commits of offsets that the transaction held count, or never will."""
    name, index = place
    if name == GROUP_OFFSETS_TOPIC:
        context.broker.groups.end_transaction(index, marker.producer_id, committed=marker.transaction_result)


async def _answer(codes: Codes, context: RequestContext) -> WriteTxnMarkersResponse:
    markers: list[Result] = []
    for producer_id, of_producer in codes.items():
        topics: dict[str, list[PartitionResult]] = {}
        if context.is_due():
            await context.next_step()
        for (name, index), code in of_producer.items():
            if context.is_due():
                await context.next_step()
            topics.setdefault(name, []).append(PartitionResult(partition_index=index, error_code=code))
        markers.append(
            Result(
                producer_id=producer_id,
                topics=[TopicResult(name=name, partitions=partitions) for name, partitions in topics.items()],
            )
        )
    return WriteTxnMarkersResponse(markers=markers)
