"""What a Produce request shows of its producer's configuration: acks, codecs, formats, idempotence.

Small enough to be kept of a request whose frame is too large for it.
"""

from __future__ import annotations

from ...protocol.errors import MalformedMessage, ProtocolViolation
from ...protocol.messages.records.produce import ProduceRequest
from ...protocol.records import batch, formats
from ...protocol.records.errors import CorruptRecords, InvalidRecords
from ...protocol.records.schemas import CODEC_NAMES
from . import decoding
from .exchange import Produced


def facts_of(frame: bytes | memoryview) -> Produced | None:
    """The facts of a Produce request's frame; None where it cannot be read."""
    try:
        return produced_of(decoding.read_request(frame)[1])
    except (MalformedMessage, ProtocolViolation):
        return None


def produced_of(request: ProduceRequest) -> Produced:
    """The facts of a Produce request. Of damaged records those before the damage count."""
    headers: list[batch.BatchHeader] = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                headers += [header for _, header in formats.headers(data.records or b"")]
            except (CorruptRecords, InvalidRecords):
                continue
    return Produced(
        request.acks,
        tuple(dict.fromkeys(topic.name or topic.topic_id for topic in request.topic_data)),
        tuple(dict.fromkeys(CODEC_NAMES.get(one.codec, str(one.codec)) for one in headers)),
        tuple(dict.fromkeys(one.magic for one in headers)),
        bool(headers) and all(one.has_producer for one in headers),
        request.transactional_id is not None,
        tuple(dict.fromkeys(one.producer_id for one in headers if one.has_producer)),
        sum(max(1, one.record_count) for one in headers),
    )
