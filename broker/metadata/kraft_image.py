"""Reads the metadata log of a KRaft broker: topics, partitions, configs, producer ids (KIP-500, KIP-630).

Reads `__cluster_metadata-0` as Apache Kafka 3.3 to 4.x leaves it: the newest `.checkpoint` (a snapshot of the state at
its offset, in batches), then the records after it in the log. Writes nothing. Supports the records declared in
`kraft_records.py`; an unknown type or version is an error, because its effect is unknown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...protocol.compiler import parse
from ...protocol.errors import MalformedMessage
from ...protocol.internal_records.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from ...protocol.records import formats
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ...protocol.schema import spec
from ...storage import inspect
from ...storage.errors import StorageError
from ...storage.io.files import File, Files
from ..config.resource_types import BROKER, TOPIC
from .kraft_records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from .log import SNAPSHOT, frame_of
from .named_configs import KINDS, is_broker
from .record_values import METADATA_CLASSES

_SEGMENT = re.compile(r"([0-9]{20})\.log")
_LEADER_UNCHANGED = -2

Credential = tuple[str, int]
"""(user, mechanism)"""
Quota = tuple[frozenset[tuple[str, str | None]], str]
"""(entity, key); an entity is a set of (type, name)."""


@dataclass
class ImageTopic:
    """A topic, with the leader epoch of each partition."""

    name: str
    id: bytes
    leader_epochs: dict[int, int] = field(default_factory=dict[int, int])


@dataclass
class Image:
    """The state after the last record.

    `configs` are by resource (type, name), `credentials` by user and mechanism, `tokens` and `acls` by id, `quotas` by
    entity and key, `features` the levels by name.
    """

    topics: dict[bytes, ImageTopic] = field(default_factory=dict[bytes, ImageTopic])
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict[tuple[int, str], dict[str, str]])
    credentials: dict[Credential, UserScramCredentialRecord] = field(
        default_factory=dict[Credential, UserScramCredentialRecord]
    )
    tokens: dict[str, DelegationTokenRecord] = field(default_factory=dict[str, DelegationTokenRecord])
    acls: dict[bytes, AccessControlEntryRecord] = field(default_factory=dict[bytes, AccessControlEntryRecord])
    quotas: dict[Quota, ClientQuotaRecord] = field(default_factory=dict[Quota, ClientQuotaRecord])
    features: dict[str, int] = field(default_factory=dict[str, int])
    next_producer_id: int = 0

    def apply(self, record: Any) -> None:
        """Applies a record. Raises StorageError if it refers to an unknown topic or partition."""
        if isinstance(record, TopicRecord):
            self.topics[record.topic_id] = ImageTopic(record.name, record.topic_id)
        elif isinstance(record, PartitionRecord):
            self._topic(record.topic_id).leader_epochs[record.partition_id] = record.leader_epoch
        elif isinstance(record, PartitionChangeRecord):
            epochs = self._topic(record.topic_id).leader_epochs
            if record.partition_id not in epochs:
                raise StorageError(f"a record changes the unknown partition {record.partition_id}")
            epochs[record.partition_id] += record.leader != _LEADER_UNCHANGED
        elif isinstance(record, RemoveTopicRecord):
            topic = self._topic(record.topic_id)
            del self.topics[topic.id]
            self.configs.pop((TOPIC, topic.name), None)
        elif isinstance(record, ConfigRecord):
            configs = self.configs.setdefault((record.resource_type, record.resource_name), {})
            if record.value is None:
                configs.pop(record.name, None)
            else:
                configs[record.name] = record.value
        elif isinstance(record, FeatureLevelRecord):
            self.features[record.name] = record.feature_level
        elif isinstance(record, ProducerIdsRecord):
            self.next_producer_id = record.next_producer_id
        elif isinstance(record, UserScramCredentialRecord):
            self.credentials[record.name, record.mechanism] = record
        elif isinstance(record, RemoveUserScramCredentialRecord):
            self.credentials.pop((record.name, record.mechanism), None)
        elif isinstance(record, DelegationTokenRecord):
            self.tokens[record.token_id] = record
        elif isinstance(record, RemoveDelegationTokenRecord):
            self.tokens.pop(record.token_id, None)
        elif isinstance(record, AccessControlEntryRecord):
            self.acls[record.id] = record
        elif isinstance(record, RemoveAccessControlEntryRecord):
            self.acls.pop(record.id, None)
        elif isinstance(record, ClientQuotaRecord):
            place = frozenset((part.entity_type, part.entity_name) for part in record.entity), record.key
            self.quotas.pop(place, None)
            if not record.remove:
                self.quotas[place] = record

    def _topic(self, topic_id: bytes) -> ImageTopic:
        topic = self.topics.get(topic_id)
        if topic is None:
            raise StorageError(f"a record refers to the unknown topic {topic_id.hex()}")
        return topic

    def broker_configs(self, node_id: int) -> Iterator[ConfigRecord]:
        """Yields the configs of this broker, of all brokers, of client metrics and of groups."""
        for (kind, name), configs in self.configs.items():
            if kind in KINDS and (kind != BROKER or name == str(node_id) or name == "" or not is_broker(name)):
                for key, value in configs.items():
                    yield ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


def read_image(files: Files, folder: str, *, was_clean: bool) -> Image:
    """Reads the metadata log of a KRaft broker. Raises StorageError if it cannot be read completely.

    Without a clean shutdown the log may end with a partial batch, which was never acknowledged.
    """
    try:
        return _read_image(files, folder, was_clean)
    except OSError as error:
        raise StorageError(f"cannot read {folder}: {error}") from error
    except (MalformedMessage, CorruptRecords, InvalidRecords, UnsupportedCodec, StorageError) as error:
        way_out = "`ottla import-dir` can add its partitions to a new directory"
        raise StorageError(f"{folder}: {error}; {way_out}") from error


def _read_image(files: Files, folder: str, was_clean: bool) -> Image:
    names = files.list(folder)
    image = Image()
    snapshots = sorted((int(match[1]), match[0]) for name in names if (match := re.fullmatch(SNAPSHOT, name)))
    begin = 0
    if snapshots:
        begin, name = snapshots[-1]
        for _, value in _values(files, os.path.join(folder, name), 0, is_torn=False):
            image.apply(_decode(value))
    bases = sorted(int(match[1]) for name in names if (match := _SEGMENT.fullmatch(name)))
    if bases and bases[0] > begin:
        raise StorageError(f"the log begins at offset {bases[0]}, after the newest snapshot (offset {begin})")
    pending: list[Any] | None = None  # records of an open metadata transaction
    for number, base in enumerate(bases):
        is_last = number + 1 == len(bases)
        if not is_last and bases[number + 1] <= begin:
            continue
        for _, value in _values(files, os.path.join(folder, f"{base:020d}.log"), begin, is_last and not was_clean):
            record = _decode(value)
            if isinstance(record, BeginTransactionRecord):
                pending = []
            elif isinstance(record, EndTransactionRecord):
                for one in pending or ():
                    image.apply(one)
                pending = None
            elif isinstance(record, AbortTransactionRecord):
                pending = None
            elif pending is not None:
                pending.append(record)
            else:
                image.apply(record)
    return image


def _values(files: Files, path: str, begin: int, is_torn: bool) -> Iterator[tuple[int, bytes]]:
    """Yields (offset, value) of the records from `begin` on; if `is_torn`, up to the first damaged batch."""
    file = files.open(path)
    try:
        source = FileSource(file)
        for entry in inspect.entries(source):
            if isinstance(entry, inspect.Damage) or not entry.crc_ok:
                if is_torn:
                    return
                reason = entry.reason if isinstance(entry, inspect.Damage) else "the CRC is wrong"
                raise StorageError(f"{os.path.basename(path)} at byte {entry.position}: {reason}")
            if entry.header.is_control or entry.last_offset < begin:
                continue
            if entry.size_bytes > inspect.ENTRY_BYTES_MAX:
                raise StorageError(f"{os.path.basename(path)} has a batch of {entry.size_bytes} bytes")
            for record in formats.records(source.read(entry.position, entry.size_bytes), 0):
                if record.offset >= begin and record.value is not None:
                    yield record.offset, bytes(record.value)
    finally:
        file.close()


def _decode(value: bytes) -> Any:
    """Decodes a record. Raises MalformedMessage, also for an unknown type or version."""
    kind, version, position = frame_of(value)
    cls = METADATA_CLASSES.get(kind)
    if cls is None or version not in spec(cls).versions:
        raise MalformedMessage(f"metadata record of type {kind}, version {version}, is from a newer Kafka")
    return parse(cls, version, value, position)


class FileSource:
    """Adapts a file of `Files` to the reader interface of `inspect`."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.size = file.size()

    def read(self, position: int, length: int) -> bytes:
        """Reads at most `length` bytes, fewer at the end of the file. Raises OSError."""
        return bytes(self._file.read(position, max(0, min(length, self.size - position))))
