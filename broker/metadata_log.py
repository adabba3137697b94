"""`__cluster_metadata-0`: topics, configs and producer-id blocks, in Kafka's metadata records.

Owns the frame of a record (KIP-631: frame version, record type and record version as varints, then the flexible
message) and the order of replay. What the records mean is `topics.py`'s and `producer_ids.py`'s. Record versions are
those of metadata.version 3.9-IV0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..protocol.compiler import build, parse
from ..protocol.errors import MalformedMessage
from ..protocol.messages import metadata_records
from ..protocol.primitives import varint_bytes
from ..protocol.records import batch, formats
from ..protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ..protocol.schema import spec
from ..storage.errors import StorageError

if TYPE_CHECKING:
    from ..storage.log import PartitionLog

TOPIC = "__cluster_metadata"
TOPIC_ID = bytes(15) + b"\x01"  # Kafka's Uuid.METADATA_TOPIC_ID
METADATA_VERSION_LEVEL = 21  # 3.9-IV0
FRAME_VERSION = 1

WRITTEN_VERSIONS: dict[type, int] = {
    metadata_records.TopicRecord: 0,
    metadata_records.PartitionRecord: 1,
    metadata_records.ConfigRecord: 0,
    metadata_records.RemoveTopicRecord: 0,
    metadata_records.ProducerIdsRecord: 0,
    metadata_records.FeatureLevelRecord: 0,
}
_CLASSES = {spec(cls).api_key: cls for cls in WRITTEN_VERSIONS}


def encode(record: Any) -> bytes:
    """The value bytes of one metadata record."""
    version = WRITTEN_VERSIONS[type(record)]
    key = spec(type(record)).api_key
    return varint_bytes(FRAME_VERSION) + varint_bytes(key) + varint_bytes(version) + build(record, version)


def frame_of(value: bytes) -> tuple[int, int, int]:
    """(type, version, where the message begins) of a value. Raises MalformedMessage."""
    numbers, position = [], 0
    for _ in range(3):
        number = shift = 0
        while True:
            if position == len(value) or shift > 28:
                raise MalformedMessage("metadata record: its frame is cut short")
            byte = value[position]
            position += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        numbers.append(number)
    frame_version, key, version = numbers
    if frame_version != FRAME_VERSION:
        raise MalformedMessage(f"metadata record: frame version {frame_version}")
    return key, version, position


def decode(value: bytes) -> Any | None:
    """The record of a value; None for a type that Ottla does not use. Raises MalformedMessage."""
    key, version, position = frame_of(value)
    cls = _CLASSES.get(key)
    if cls is None:
        return None
    if version not in spec(cls).versions:
        raise MalformedMessage(f"{cls.__name__}: version {version}")
    return parse(cls, version, value, position)


class MetadataLog:
    """Appends metadata records durably: what `append` returned from is on the disk."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        if log.log_end_offset == 0:
            level = metadata_records.FeatureLevelRecord(name="metadata.version", feature_level=METADATA_VERSION_LEVEL)
            self.append([level], now_ms=0)

    def append(self, records: Sequence[Any], now_ms: int) -> None:
        """Writes the records as one batch, all or none. Raises StorageError."""
        entries = [batch.Record(index, now_ms, None, encode(record), ()) for index, record in enumerate(records)]
        self._log.append_records(entries, now_ms=now_ms)
        self._log.flush()

    def replay(self) -> Iterator[Any]:
        """Every record, oldest first. Raises StorageError for a record that cannot be read."""
        for value in _values(self._log):
            try:
                record = decode(value)
            except MalformedMessage as error:
                raise StorageError(f"{TOPIC}-0: {error}") from error
            if record is not None:
                yield record

    def close(self) -> None:
        """Flushes and closes the log."""
        self._log.close()


def _values(log: PartitionLog) -> Iterable[bytes]:
    for record in read_all(log):
        if record.value is not None:
            yield record.value


def read_all(log: PartitionLog) -> Iterator[batch.Record]:
    """Every record of a log of our own, in whatever format it is stored, batch by batch; control batches are passed
    over. Raises StorageError."""
    try:
        yield from _read_all(log)
    except (CorruptRecords, InvalidRecords, UnsupportedCodec) as error:
        raise StorageError(f"{log.topic}-{log.partition}: {error}") from error


def _read_all(log: PartitionLog) -> Iterator[batch.Record]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20).records
        if not len(data):
            return
        for position, header in formats.headers(data):
            if not header.is_control and header.next_offset > offset:
                for record in formats.records(data, position):
                    if record.offset >= offset:
                        yield record
            offset = max(offset, header.next_offset)
