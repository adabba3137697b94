"""Produce v3-v13: appends record batches (KIP-98, KIP-192, KIP-467, KIP-516).

Advertised from v0, since librdkafka before 2.12 takes compression from that (KAFKA-18659); v0-v2 close the connection,
as in Kafka 4.x. Left out: transactions (a transactional batch answers INVALID_TXN_STATE). With one node there is
nothing to wait for beyond the append, so acks 1 and -1 are the same.
"""

from __future__ import annotations

from ...protocol.errors import ErrorCode, ProtocolViolation
from ...protocol.messages.produce import ProduceRequest, ProduceResponse
from ...protocol.records import batch
from ...protocol.records.errors import CorruptRecords, InvalidRecords, MessageTooLarge
from ...storage.errors import RecordListTooLarge, StorageError
from ..context import RequestContext, handles
from ..errors import Refused, code_of
from ..partitions import Partition
from ..topics import INTERNAL_TOPICS

Topic = ProduceResponse.TopicProduceResponse
Answer = Topic.PartitionProduceResponse
RecordErrorAnswer = Answer.BatchIndexAndErrorMessage

ADMIN_CLIENT_ID = "__admin_client"  # the one client id that may write to internal topics, as in Kafka
# Thrown before the log is looked at: these answers carry no log start offset (semantics of ReplicaManager).
_ATTRIBUTES_AT = 22  # the low byte, in a batch
_WITHOUT_LOG_START = (CorruptRecords, MessageTooLarge, RecordListTooLarge, StorageError)


@handles(ProduceRequest, served="3+", advertised="0+")
async def produce(request: ProduceRequest, context: RequestContext) -> ProduceResponse | None:
    """Appends each partition's batch on its own; one refused batch does not touch the others."""
    now_ms = context.now_ms()
    topics = context.broker.topics
    responses = []
    failed = False
    for asked in request.topic_data:
        name = asked.name
        if context.api_version >= 13:
            topic = topics.by_id(asked.topic_id)
            name = topic.name if topic else ""
        answers = []
        for data in asked.partition_data:
            partition = None
            try:
                if request.acks not in (-1, 0, 1):
                    raise Refused(ErrorCode.INVALID_REQUIRED_ACKS)
                if context.api_version >= 13 and not name:
                    raise Refused(ErrorCode.UNKNOWN_TOPIC_ID)
                if name in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
                    raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
                partition = topics.partition(name, data.index)
                if not data.records:
                    raise InvalidRecords("a partition without a record batch")
                _refuse_transactional(request, data.records)
                appended = partition.append(data.records, now_ms, context.api_version)  # type: ignore[arg-type]
            except Exception as error:
                failed = True
                answers.append(_refusal(data.index, partition, error))
                continue
            answers.append(
                Answer(
                    index=data.index,
                    error_code=0,
                    base_offset=appended.base_offset,
                    log_append_time_ms=appended.log_append_time_ms,
                    log_start_offset=appended.log_start_offset,
                )
            )
        responses.append(Topic(name=asked.name, topic_id=asked.topic_id, partition_responses=answers))
    if request.acks == 0:
        if failed:  # the only way to tell a client that does not listen
            raise ProtocolViolation("a batch of a request with acks=0 was refused")
        return None
    return ProduceResponse(responses=responses)


def _refuse_transactional(request: ProduceRequest, records: bytes | bytearray | memoryview) -> None:
    """No transaction is ever open. A batch that is damaged is left to the checks that say so."""
    bits = batch.TRANSACTIONAL_BIT | batch.CONTROL_BIT  # a control batch is refused for what it is
    if len(records) < batch.HEADER_BYTES or records[_ATTRIBUTES_AT] & bits != batch.TRANSACTIONAL_BIT:
        return
    header = batch.read_header(records)
    if header.size_bytes <= len(records) and batch.crc_matches(records, 0, header):
        if request.transactional_id is None:
            raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        raise Refused(ErrorCode.INVALID_TXN_STATE)


def _refusal(index: int, partition: Partition | None, error: Exception) -> Answer:
    answer = Answer(index=index, error_code=code_of(error), base_offset=-1)
    if partition is not None and not isinstance(error, _WITHOUT_LOG_START):
        answer.log_start_offset = partition.log.log_start_offset
    if isinstance(error, InvalidRecords) and error.record_errors:
        answer.error_message = error.message
        answer.record_errors = [
            RecordErrorAnswer(batch_index=batch_index, batch_index_error_message=message)
            for batch_index, message in error.record_errors
        ]
    return answer
