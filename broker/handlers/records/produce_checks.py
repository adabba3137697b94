"""Checks of a Produce request as a whole, before its partitions are handled.

Kafka reads the first batch of every partition to find out whether a request is transactional. If that batch is
malformed, releases up to 2.7 fail while they parse the request, and later ones refuse all its partitions. Nothing is
appended in either case. Errors of single partitions are found by `protocol/records/validate.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ....protocol.acls import AclOperation, ResourceType
from ....protocol.errors import ErrorCode, ProtocolViolation
from ....protocol.records import batch
from ....protocol.records.compression import Codec
from ....protocol.records.errors import (
    CorruptRecords,
    InvalidRecords,
    OverflowingSize,
    Undecodable,
    UnknownBatches,
    UnsupportedCodec,
    WrongBatches,
)
from ....protocol.records.layout import CODEC_AT, LENGTH_AT, MAGIC_AT, PREFIX_BYTES, PRODUCER_ID_AT
from ....protocol.records.validate import only_batch
from ....protocol.records.validate_batch import next_entry
from ...errors import Refused, code_of

if TYPE_CHECKING:
    from ....protocol.messages.records.produce import ProduceRequest
    from ...context import RequestContext

Records = bytes | bytearray | memoryview

BATCHES_FROM = 3  # the first version whose sets are one batch v2
ZSTD_FROM = 7
# A batch that ends before its producer id: Kafka 3.8 and later read that field before they compare sizes.
_PRODUCER_ID_END = PRODUCER_ID_AT + 8
_length_at = struct.Struct(">i").unpack_from


async def check_request(request: ProduceRequest, context: RequestContext) -> bool:
    """Returns whether a request is transactional. Raises Refused for all its partitions, ProtocolViolation to close the
    connection.
    """
    version = context.api_version
    behaviour = context.broker.profile.behaviour
    if behaviour.wrong_batches == "close" and version >= BATCHES_FROM:
        _close_for_wrong_batches(request, version)
    ordinary, transactional = _ordinary(request, version)
    if not ordinary:
        transactional = await _read_first_batches(request, context, behaviour.unreadable_batches)
    if transactional:
        _check_transactional_id(request, context)
    elif behaviour.idempotence_of_cluster and context.broker.authorizer is not None:
        _check_idempotence(request, context)
    if not ordinary and version >= BATCHES_FROM and behaviour.unreadable_batches != "partition":
        await _check_batches(request, context, reads_producers=behaviour.unreadable_batches == "any")
    elif not ordinary and behaviour.unreadable_batches == "any":
        await _check_sets(request, context)
    return transactional


def is_transactional(records: Records | None, version: int) -> bool:
    """Returns whether a partition's records are a transactional batch that may be appended."""
    if not records or len(records) < batch.HEADER_BYTES or records[MAGIC_AT] != batch.MAGIC:
        return False
    if not records[CODEC_AT] & batch.TRANSACTIONAL_BIT:
        return False
    if _length_at(records, LENGTH_AT)[0] + PREFIX_BYTES == len(records) and version >= ZSTD_FROM:
        return True
    try:
        only_batch(records, version)
    except (UnknownBatches, WrongBatches, UnsupportedCodec, Undecodable):
        return False
    except (CorruptRecords, InvalidRecords):
        pass  # the log refuses it, after the verification
    return True


def _ordinary(request: ProduceRequest, version: int) -> tuple[bool, bool]:
    """(whether each partition has one whole v2 batch with a codec of that version, whether one is transactional)."""
    transactional = 0
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if (
                not records
                or len(records) < batch.HEADER_BYTES
                or records[MAGIC_AT] != batch.MAGIC
                or _length_at(records, LENGTH_AT)[0] + PREFIX_BYTES != len(records)
            ):
                return False, False
            attributes = records[CODEC_AT]
            if version < ZSTD_FROM and attributes & batch.CODEC_BITS > Codec.ZSTD:
                return False, False
            transactional |= attributes & batch.TRANSACTIONAL_BIT
    return True, bool(transactional)


async def _read_first_batches(request: ProduceRequest, context: RequestContext, unreadable: str) -> bool:
    """Returns whether the first batch of a partition is transactional, in Kafka's order: from 2.8 on the first such
    batch ends the search, so the batches of later partitions are not read.
    """
    found = False
    for topic in request.topic_data:
        for data in topic.partition_data:
            if context.is_due():
                await context.next_step()
            try:
                magic, size = next_entry(data.records or b"", 0)
            except (UnknownBatches, OverflowingSize) as error:
                if unreadable == "close":
                    raise ProtocolViolation(str(error)) from error
                if unreadable == "partition":
                    continue
                raise Refused(code_of(error), str(error) if isinstance(error, UnknownBatches) else "") from error
            if unreadable == "close" and (magic is None or (magic == batch.MAGIC and size < _PRODUCER_ID_END)):
                raise ProtocolViolation("a partition without a whole batch")
            if magic == batch.MAGIC and data.records and data.records[CODEC_AT] & batch.TRANSACTIONAL_BIT:
                if unreadable == "partition":
                    found = found or context.api_version >= BATCHES_FROM
                    continue
                found = True
                if unreadable != "close":
                    return True
    return found


def _check_transactional_id(request: ProduceRequest, context: RequestContext) -> None:
    name = request.transactional_id
    if name is not None and context.broker.authorizer is None:
        return
    if name is None or not context.allowed(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _check_idempotence(request: ProduceRequest, context: RequestContext) -> None:
    """Up to 2.7 a batch with a producer id needs IDEMPOTENT_WRITE on the cluster. Raises Refused."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            is_batch = records and len(records) >= batch.HEADER_BYTES and records[MAGIC_AT] == batch.MAGIC
            if records and is_batch and records[PRODUCER_ID_AT] < 0x80:
                if context.allowed(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER):
                    return
                raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _close_for_wrong_batches(request: ProduceRequest, version: int) -> None:
    """Up to 2.0 the whole request is refused while it is parsed, so nothing of it is appended."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                only_batch(data.records or b"", version)
            except (WrongBatches, UnknownBatches, OverflowingSize) as error:
                raise ProtocolViolation(str(error)) from error
            except (CorruptRecords, InvalidRecords, UnsupportedCodec):
                continue  # an error of this partition alone


async def _check_batches(request: ProduceRequest, context: RequestContext, *, reads_producers: bool) -> None:
    """Refuses a whole request of v3 or later for a batch at which Kafka fails with an unexpected exception.

    These are an unknown codec in v3-v6, a size that overflows, and with `reads_producers` a batch that ends before its
    producer id.
    """
    version = context.api_version
    short = False
    for records in _taken(request, context):
        if context.is_due():
            await context.next_step()
        try:
            size = only_batch(records, version).size_bytes
        except Undecodable as error:
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR) from error
        except (UnknownBatches, WrongBatches, UnsupportedCodec):
            continue  # an error of this partition alone
        except (CorruptRecords, InvalidRecords):  # of one batch
            size = _length_at(records, LENGTH_AT)[0] + PREFIX_BYTES
        short = short or size < _PRODUCER_ID_END
    if short and reads_producers:
        raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)


async def _check_sets(request: ProduceRequest, context: RequestContext) -> None:
    """Refuses a whole request of v0-v2 for any malformed batch or message, in cooperative steps. Kafka 3.8 and 3.9 look
    for transactional batches in the whole sets.
    """
    for records in _taken(request, context):
        position = 0
        try:
            while (entry := next_entry(records, position))[0] is not None:
                magic, size = entry
                if magic == batch.MAGIC and size < _PRODUCER_ID_END:
                    raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR)
                position += size
                if context.is_due():
                    await context.next_step()
        except (UnknownBatches, OverflowingSize) as error:
            raise Refused(code_of(error)) from error


def _taken(request: ProduceRequest, context: RequestContext) -> Iterator[Records]:
    """The records for partitions that exist and that the principal may write to."""
    topics, is_restricted = context.broker.topics, context.broker.authorizer is not None
    for topic_data in request.topic_data:
        name = topic_data.name
        if context.api_version >= 13:
            topic = topics.by_id(topic_data.topic_id)
            name = topic.name if topic else ""
        if is_restricted and name and context.topic_refusal(AclOperation.WRITE, name):
            continue
        for data in topic_data.partition_data:
            if data.records and topics.has_partition(name, data.index):
                yield data.records
