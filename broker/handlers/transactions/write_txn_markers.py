"""WriteTxnMarkers v0-v2: ends transactions in partitions, regardless of their coordinator's state (KIP-98, 664, 1228).

`kafka-transactions abort` and abort_transaction of admin clients send it for a hanging transaction. A coordinator that
has yet to mark a partition does not count this marker: it writes its own after it. Requires CLUSTER_ACTION or ALTER on
the cluster.
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
MARKER_ENTRIES = 10  # entries of a cooperative step for a marker in one partition
Codes = dict[int, dict[Place, ErrorCode]]
"""The error codes of each producer's partitions; of two markers for one partition, the later one's."""


@handles(WriteTxnMarkersRequest)
async def write_txn_markers(request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    """Writes markers to each partition on its own. The response is sent when the markers are as durable as their topics
    require.
    """
    try:
        _check(request, context)
    except Refused as refused:
        return await _response(
            {one.producer_id: {place: refused.code for place in _places(one)} for one in request.markers}, context
        )
    codes: Codes = {}
    later: list[tuple[Marker, Place, asyncio.Future[Appended]]] = []
    for marker in request.markers:
        of_producer = codes.setdefault(marker.producer_id, {})
        await context.step()
        for place in _places(marker):
            await context.step(MARKER_ENTRIES)
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
    return await _response(codes, context)


def _check(request: WriteTxnMarkersRequest, context: RequestContext) -> None:
    if not context.allowed(AclOperation.ALTER, ResourceType.CLUSTER):
        context.check_allowed(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    if any(marker.producer_id < 0 for marker in request.markers):
        raise Refused(ErrorCode.INVALID_REQUEST)  # Kafka fails unexpectedly for a marker without a producer


def _places(marker: Marker) -> list[Place]:
    return [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]


def _write(marker: Marker, place: Place, context: RequestContext) -> Appended | asyncio.Future[Appended]:
    partition = context.broker.topics.partition(*place)
    if context.node_id not in partition.replicas:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition.check_leader(context.node_id)
    context.broker.check_in_sync(partition)
    # Without waiting for appends: one in several steps then finds its transaction ended.
    appended = partition.log.append_marker(
        marker.producer_id,
        marker.producer_epoch,
        committed=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        now_ms=context.now_ms(),
        transaction_version=marker.transaction_version,
    )
    return partition.appended(appended)


def _written(marker: Marker, place: Place, context: RequestContext) -> None:
    """Completes or drops the offset commits that the transaction held."""
    name, index = place
    if name == GROUP_OFFSETS_TOPIC:
        context.broker.groups.end_transaction(index, marker.producer_id, committed=marker.transaction_result)


async def _response(codes: Codes, context: RequestContext) -> WriteTxnMarkersResponse:
    markers: list[Result] = []
    for producer_id, of_producer in codes.items():
        topics: dict[str, list[PartitionResult]] = {}
        await context.step()
        for (name, index), code in of_producer.items():
            await context.step()
            topics.setdefault(name, []).append(PartitionResult(partition_index=index, error_code=code))
        markers.append(
            Result(
                producer_id=producer_id,
                topics=[TopicResult(name=name, partitions=partitions) for name, partitions in topics.items()],
            )
        )
    return WriteTxnMarkersResponse(markers=markers)
