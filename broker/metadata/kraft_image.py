"""Reads the metadata log of a KRaft broker: topics, partitions, configs, producer ids (KIP-500, KIP-630).

Reads `__cluster_metadata-0` as Apache Kafka 3.3 to 4.x leaves it: the newest `.checkpoint` (a snapshot of the state at
its offset, in batches), then the records after it in the log. Writes nothing. Supports the records declared in
`kraft_records.py`; an unknown type or version is an error, because its effect is unknown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterator
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
from ...protocol.internal_records.metadata_values import frame_of
from ...protocol.records import formats
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ...protocol.schema import spec
from ...storage import inspect
from ...storage.errors import StorageError
from ...storage.format.file_names import offsets_in
from ...storage.io.files import Files
from ..config.resource_types import BROKER, TOPIC
from .kraft_records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from .log import SNAPSHOT
from .named_configs import KINDS, is_broker
from .record_values import METADATA_CLASSES
from .topic_records import LEADER_UNCHANGED, apply_config, config_records

_REMOVALS = (RemoveUserScramCredentialRecord, RemoveDelegationTokenRecord, RemoveAccessControlEntryRecord)


def _key(record: Any) -> Hashable | None:
    """Returns by what a later record replaces or removes one that is kept as it is; None for other records."""
    match record:
        case UserScramCredentialRecord() | RemoveUserScramCredentialRecord():
            return "credential", record.name, record.mechanism
        case DelegationTokenRecord() | RemoveDelegationTokenRecord():
            return "token", record.token_id
        case AccessControlEntryRecord() | RemoveAccessControlEntryRecord():
            return "acl", record.id
        case ClientQuotaRecord():
            entity = frozenset((part.entity_type, part.entity_name) for part in record.entity)
            return "quota", entity, record.key
        case _:
            return None


@dataclass
class ImageTopic:
    """A topic, with the leader epoch of each partition."""

    name: str
    id: bytes
    leader_epochs: dict[int, int] = field(default_factory=dict[int, int])


@dataclass
class Image:
    """The state after the last record.

    `configs` are by resource (type, name), `features` the levels by name. `kept` are the records of SCRAM credentials,
    delegation tokens, access control entries and quotas.
    """

    topics: dict[bytes, ImageTopic] = field(default_factory=dict[bytes, ImageTopic])
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict[tuple[int, str], dict[str, str]])
    kept: dict[Hashable, Any] = field(default_factory=dict[Hashable, Any])
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
            epochs[record.partition_id] += record.leader != LEADER_UNCHANGED
        elif isinstance(record, RemoveTopicRecord):
            topic = self._topic(record.topic_id)
            del self.topics[topic.id]
            self.configs.pop((TOPIC, topic.name), None)
        elif isinstance(record, ConfigRecord):
            apply_config(record, self.configs.setdefault((record.resource_type, record.resource_name), {}))
        elif isinstance(record, FeatureLevelRecord):
            self.features[record.name] = record.feature_level
        elif isinstance(record, ProducerIdsRecord):
            self.next_producer_id = record.next_producer_id
        elif (key := _key(record)) is not None:
            self.kept.pop(key, None)
            if not isinstance(record, _REMOVALS) and not (isinstance(record, ClientQuotaRecord) and record.remove):
                self.kept[key] = record

    def _topic(self, topic_id: bytes) -> ImageTopic:
        topic = self.topics.get(topic_id)
        if topic is None:
            raise StorageError(f"a record refers to the unknown topic {topic_id.hex()}")
        return topic

    def broker_configs(self, node_id: int) -> Iterator[ConfigRecord]:
        """Yields the configs of this broker, of all brokers, of client metrics and of groups."""
        for (kind, name), configs in self.configs.items():
            if kind in KINDS and (kind != BROKER or name == str(node_id) or name == "" or not is_broker(name)):
                yield from config_records(kind, name, {}, configs)


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
        for value in _values(files, os.path.join(folder, name), 0, is_torn=False):
            image.apply(_decode(value))
    bases = offsets_in(names, ".log")
    if bases and bases[0] > begin:
        raise StorageError(f"the log begins at offset {bases[0]}, after the newest snapshot (offset {begin})")
    pending: list[Any] | None = None  # records of an open metadata transaction
    for number, base in enumerate(bases):
        is_last = number + 1 == len(bases)
        if not is_last and bases[number + 1] <= begin:
            continue
        for value in _values(files, os.path.join(folder, f"{base:020d}.log"), begin, is_last and not was_clean):
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


def _values(files: Files, path: str, begin: int, is_torn: bool) -> Iterator[bytes]:
    """Yields the values of the records from `begin` on; if `is_torn`, up to the first damaged batch."""
    with inspect.FileSource(path, files) as source:
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
                    yield bytes(record.value)


def _decode(value: bytes) -> Any:
    """Decodes a record. Raises MalformedMessage, also for an unknown type or version."""
    kind, version, position = frame_of(value)
    cls = METADATA_CLASSES.get(kind)
    if cls is None or version not in spec(cls).versions:
        raise MalformedMessage(f"metadata record of type {kind}, version {version}, is from a newer Kafka")
    return parse(cls, version, value, position)
