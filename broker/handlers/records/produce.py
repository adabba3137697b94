"""Produce v0-v13: appends message sets and record batches (KIP-32, 98, 192, 467, 516, 724, 890, 951).

v0-v2 have message sets of the old formats, with any number of messages; from v3 on there is exactly one batch v2. What
depends on the release is in `releases/behaviour.py`; `partition_verification.py` checks transactional batches.

All replicas are one log, so a request with acks=-1 waits for no replica; it only requires enough replicas in sync. With
`flush.messages` the append ends with a sync, as in Kafka: every response waits for it, and so do the requests after one
with acks=0. Requires WRITE on each topic, and on the transactional id for transactional batches.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ....protocol.acls import AclOperation
from ....protocol.api_key import ApiKey
from ....protocol.errors import ErrorCode, ProtocolViolation
from ....protocol.messages.records.produce import ProduceRequest, ProduceResponse
from ....protocol.named import NamedTuple
from ....protocol.records import batch
from ....protocol.records.errors import (
    PARTITION,
    CorruptRecords,
    InvalidRecords,
    InvalidTimestamps,
    MessageTooLarge,
    Undecodable,
    UnsupportedCodec,
    WrongBatches,
)
from ....storage.errors import RecordListTooLarge, StorageError
from ....storage.partition_log import Appended
from ...context import RequestContext, handles
from ...errors import Refused, code_of
from ...metadata.topics import is_internal
from ...replica.partition import NotLed, Partition
from ..leaders import endpoints_of, set_leader
from .partition_verification import PartitionVerification, Unverified, producer_id_of
from .produce_checks import BATCHES_FROM, ZSTD_FROM, check_request, is_transactional

if TYPE_CHECKING:
    from ...metrics.counters import Sent, TopicMetrics

TopicResponse = ProduceResponse.TopicProduceResponse
PartitionResponse = TopicResponse.PartitionProduceResponse
RecordError = PartitionResponse.BatchIndexAndErrorMessage

ADMIN_CLIENT_ID = "__admin_client"  # the only client id that may write to internal topics, as in Kafka
LEADERS_FROM = 10  # the first version with the current leader (KIP-951)
LOG_START_FROM = 5  # the first version with the log start offset (KIP-192)
STORAGE_ERROR_FROM = 4  # the first version with KAFKA_STORAGE_ERROR
# Errors before the access to the log: their responses have no log start offset (semantics of ReplicaManager; the first
# is KafkaApis').
_WITHOUT_LOG_START = (WrongBatches, CorruptRecords, MessageTooLarge, RecordListTooLarge, StorageError, Unverified)
_CODES_WITHOUT_LOG_START = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)
# The client retries batches that are refused with these codes.
_SENT_AGAIN = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS)


class _Later(NamedTuple):
    """An append under way, with the place of its response and its metrics."""

    results: list[PartitionResponse]
    position: int
    partition: Partition
    submitted: asyncio.Future[Appended]
    sent: Sent | None


@handles(ProduceRequest)
async def produce(request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
    """Appends the records of each partition on their own; a refused set does not affect the others."""
    now_ms = context.now_ms()
    version = context.api_version
    broker = context.broker
    topics, node_id = broker.topics, context.connection_info.node_id
    comparing = broker.comparing_producers if version >= LOG_START_FROM else ()
    needs_replicas = request.acks == -1 and broker.checks_in_sync
    is_restricted = broker.authorizer is not None
    try:
        verification = _verification(request, context) if await check_request(request, context) else None
    except Refused as refused:
        return _all_refused(request, refused)
    responses: list[TopicResponse] = []
    later: list[_Later] = []
    failed, counts = False, broker.topic_metrics
    for topic_data in request.topic_data:
        name = topic_data.name
        if version >= 13:
            topic = topics.by_id(topic_data.topic_id)
            name = topic.name if topic else ""
        if context.is_due():
            await context.next_step()
        has_name = bool(name) or version < 13  # an id without a topic is unknown, to every user
        denied = context.topic_refusal(AclOperation.WRITE, name) if is_restricted and has_name else None
        results: list[PartitionResponse] = []
        for data in topic_data.partition_data:
            partition = None
            if context.is_due():
                await context.next_step()
            try:
                if denied:
                    raise Refused(denied)
                if request.acks not in (-1, 0, 1):
                    raise Refused(ErrorCode.INVALID_REQUIRED_ACKS)
                if version >= 13 and not name:
                    raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
                partition = topics.partition(name, data.index)
                if is_internal(name, broker.config) and context.client_id != ADMIN_CLIENT_ID:
                    raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
                if partition.leader != node_id:
                    partition.check_leader(node_id)
                if needs_replicas:
                    broker.check_in_sync(partition)
                if not data.records:
                    if version >= BATCHES_FROM:
                        raise WrongBatches("a partition without a record batch")
                    results.append(PartitionResponse(index=data.index, error_code=0, base_offset=-1))
                    continue
                broker.clients.note_records(
                    context.connection_info.library, context.client_id, context.api_version, data.records
                )
                guard = verification.guard(name, data.index) if verification is not None else None
                compares = bool(comparing) and producer_id_of(data.records) in comparing
                appended = partition.submit(data.records, now_ms, version, context.scheduler, guard, compares)
                if isinstance(appended, asyncio.Future):
                    sent = _sent(counts, partition, data.records)
                    later.append(_Later(results, len(results), partition, appended, sent))
                    results.append(PartitionResponse(index=data.index, error_code=0, base_offset=-1))
                else:
                    if counts is not None:
                        counts.appended(partition, data.records, appended)
                    results.append(_success(data.index, appended))
            except Exception as error:
                failed = True
                if partition is not None and isinstance(error, Refused) and error.code in _SENT_AGAIN:
                    partition.refused_batches.note_records(data.records)
                results.append(_refusal(data.index, partition, error, context, _sent(counts, partition, data.records)))
        responses.append(TopicResponse(name=topic_data.name, topic_id=topic_data.topic_id, partition_responses=results))
    # All are submitted before the first is awaited, so that their syncs and checks run in parallel.
    for one in later:
        failed |= not await _settle(one, context)
    if request.acks == 0:
        if failed:  # without a response, closing the connection is the only signal
            raise ProtocolViolation("records of a request with acks=0 were refused")
        return None
    response = ProduceResponse(responses=responses)
    if failed and version >= LEADERS_FROM:
        all_results = (result for topic in responses for result in topic.partition_responses)
        response.node_endpoints = endpoints_of(all_results, context)
    return response


async def _settle(later: _Later, context: RequestContext) -> bool:
    """Waits for an append and sets its response. Returns whether the records were stored."""
    results, position, partition, submitted, sent = later
    index = results[position].index
    try:
        appended = await submitted
    except Exception as error:
        results[position] = _refusal(index, partition, error, context, sent)
        return False
    results[position] = _success(index, appended)
    if sent is not None:
        sent.appended(appended)
    return True


def _verification(request: ProduceRequest, context: RequestContext) -> PartitionVerification:
    """Requests verification of the transactional batches of a request. Raises Refused for the whole request.

    Partitions that are refused for another reason get that error later, regardless of the transaction.
    """
    topics = context.broker.topics
    sent: list[tuple[Partition | None, bytes | bytearray | memoryview]] = []
    for topic_data in request.topic_data:
        name = topic_data.name
        if context.api_version >= 13:
            topic = topics.by_id(topic_data.topic_id)
            name = topic.name if topic else ""
        is_taken = (
            request.acks in (-1, 0, 1)
            and (not is_internal(name, context.broker.config) or context.client_id == ADMIN_CLIENT_ID)
            and context.topic_refusal(AclOperation.WRITE, name) is ErrorCode.NONE
        )
        for data in topic_data.partition_data:
            if data.records is None or not is_transactional(data.records, context.api_version):
                continue
            partition = None
            if is_taken:
                leads = topics.leader(name, data.index) == context.connection_info.node_id
                partition = topics.partition(name, data.index) if leads else None
            sent.append((partition, data.records))
    verification = PartitionVerification(context)
    assert request.transactional_id is not None  # check_request refuses the request otherwise
    verification.request_verification(request.transactional_id, sent)
    return verification


def _all_refused(request: ProduceRequest, refused: Refused) -> ProduceResponse | None:
    """The same error for each partition of a request that is refused as a whole."""
    if request.acks == 0:
        raise ProtocolViolation(f"a request with acks=0 was refused: {refused}")
    return ProduceResponse(
        responses=[
            TopicResponse(
                name=topic_data.name,
                topic_id=topic_data.topic_id,
                partition_responses=[
                    PartitionResponse(
                        index=data.index,
                        error_code=refused.code,
                        base_offset=-1,
                        error_message=refused.message or None,
                    )
                    for data in topic_data.partition_data
                ],
            )
            for topic_data in request.topic_data
        ]
    )


def appended_alone(
    named: TopicResponse,
    partition: Partition,
    records: memoryview,
    context: RequestContext,
    error: StorageError | None,
) -> ProduceResponse:
    """Appends the plain batch of a request whose run failed, or refuses it with the `error` of that run. Returns its
    response, with the topic as in `named`.
    """
    index, counts = partition.index, context.broker.topic_metrics
    batch.assign(records, 0, base_offset=0, leader_epoch=-1)  # as the client has sent it
    try:
        if error is not None:
            raise error
        appended = partition.append(records, context.now_ms(), context.api_version)
        assert isinstance(appended, Appended)  # a run takes no batch that waits for a sync
        result = _success(index, appended)
        if counts is not None:
            counts.appended(partition, records, appended)
    except Exception as refused:
        result = _refusal(index, partition, refused, context, _sent(counts, partition, records))
    response = ProduceResponse(
        responses=[TopicResponse(name=named.name, topic_id=named.topic_id, partition_responses=[result])]
    )
    if result.error_code and context.api_version >= LEADERS_FROM:
        response.node_endpoints = endpoints_of([result], context)
    return response


def _sent(counts: TopicMetrics | None, partition: Partition | None, records: Any) -> Sent | None:
    """The metrics of records that are appended later or refused; None while metrics are off."""
    if counts is None or partition is None or partition.offline is not None or not records:
        return None
    return counts.sent(partition, records)


def _success(index: int, appended: Appended) -> PartitionResponse:
    return PartitionResponse(
        index=index,
        error_code=0,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )


def _serves_old_clients(context: RequestContext) -> bool:
    return 0 in context.broker.apis.served[ApiKey.PRODUCE]


def _refusal(
    index: int, partition: Partition | None, error: Exception, context: RequestContext, sent: Sent | None
) -> PartitionResponse:
    behaviour = context.broker.profile.behaviour
    version = context.api_version
    code = code_of(error)
    if isinstance(error, WrongBatches):
        code = ErrorCode.CORRUPT_MESSAGE if behaviour.wrong_batches == "corrupt" else ErrorCode.INVALID_RECORD
    elif isinstance(error, InvalidRecords) and not isinstance(error, InvalidTimestamps | Undecodable):
        code = ErrorCode(behaviour.invalid_record_code)
    elif code == ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_FROM and _serves_old_clients(context):
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER  # old clients retry for this error
    if sent is not None:
        sent.refused(code)
    result = PartitionResponse(index=index, error_code=code, base_offset=-1)
    before_the_log = isinstance(error, _WITHOUT_LOG_START) or code in _CODES_WITHOUT_LOG_START
    if isinstance(error, UnsupportedCodec) and version < ZSTD_FROM:
        before_the_log = True
    elif isinstance(error, InvalidTimestamps) and behaviour.record_errors == "none":
        before_the_log = True  # up to 2.3 it is one of the errors without the log's offsets
    if partition is not None and not before_the_log and not isinstance(error, NotLed):
        result.log_start_offset = partition.log.log_start_offset
    set_leader(result, error, context, LEADERS_FROM)
    if isinstance(error, Unverified):
        result.error_message = error.message or None
    if isinstance(error, InvalidRecords) and error.record_errors and partition is not None:
        name = f"{partition.topic}-{partition.index}"
        result.error_message = error.message.replace(PARTITION, name)
        result.record_errors = [
            RecordError(batch_index=batch_index, batch_index_error_message=message and message.replace(PARTITION, name))
            for batch_index, message in error.record_errors
        ]
    return result
