"""The topics and partitions in data directories of Apache Kafka, and the metadata log of Ottla that is made of them.

Data of a ZooKeeper-based cluster has no topic configs. A topic in the cleaner's checkpoint becomes compacted. For all
others retention is off (`retention.ms=-1`) until a user sets it: a guess of seven days could delete years of data.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...protocol.internal_records.metadata_records import (
    FeatureLevelRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from ...protocol.internal_records.metadata_values import TOPIC as METADATA_TOPIC
from ...protocol.internal_records.metadata_values import TOPIC_ID as METADATA_TOPIC_ID
from ...protocol.named import NamedTuple
from ...protocol.primitives import ZERO_UUID
from ...protocol.records import formats
from ...protocol.records.batch import BatchHeader
from ...protocol.records.errors import CorruptRecords, InvalidRecords, UnsupportedCodec
from ...storage import inspect
from ...storage.config import LogConfig
from ...storage.errors import StorageError
from ...storage.format import checkpoint
from ...storage.format.file_names import aside_name, offsets_in
from ...storage.format.partition_metadata import FILE_NAME as PARTITION_METADATA
from ...storage.io.files import Files
from ...storage.log.recovery import LogCheckpoints
from ...storage.log_dir.directory import DataDirectory
from ...storage.partition_log import PartitionLog, TopicIdPartition
from ...storage.producers import snapshot
from ..config.resource_types import TOPIC
from ..config.values import Config
from ..logs import get_logger
from ..replica.assignment import Assignment
from ..replica.log_dirs import LogDirs
from .kraft_image import Image
from .log import MetadataLog
from .topic_records import config_records, partition_record
from .topics import TRANSACTION_STATE_TOPIC, internal_configs, is_internal, new_topic_id

HOLES_MAX = 10_000  # limit of empty partitions created because a higher partition index exists
# Producer ids that were allocated but never used in a write leave no trace; brokers allocate blocks of a thousand.
PRODUCER_IDS_SKIPPED = 1_000_000
RECORDS_AT_ONCE = 1_000  # records in a batch of the metadata log
RETENTION_OFF = {"retention.ms": "-1"}
_RETENTION_CONFIGS = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
_TRANSACTION_VALUE = struct.Struct(">hq")  # version, producer id; the key is the transactional id


class Folder(NamedTuple):
    """A partition folder. A `topic_id` of zeros means that it has none."""

    log_dir: DataDirectory
    topic_id: bytes
    leader_epoch: int

    def path(self, topic: str, index: int) -> str:
        """Returns the path of the folder."""
        return os.path.join(self.log_dir.path, f"{topic}-{index}")


Folders = dict[str, dict[int, Folder]]


@dataclass
class AdoptedTopic:
    """A topic to be created: (directory id, leader epoch) of each partition, in order."""

    name: str
    id: bytes
    configs: Mapping[str, str]
    partitions: list[tuple[bytes, int]]

    def records(self, node_id: int) -> Iterator[Any]:
        """Yields the metadata records of the topic."""
        yield TopicRecord(name=self.name, topic_id=self.id)
        yield from config_records(TOPIC, self.name, {}, self.configs)
        for index, (directory, leader_epoch) in enumerate(self.partitions):
            assignment = Assignment((node_id,), (node_id,), node_id, leader_epoch)
            yield partition_record(self.id, index, assignment, directory)


@dataclass
class Adopted:
    """The metadata to be written. `features` are levels by name; `others` are records kept as they are; `holes` are
    partitions that start empty.
    """

    topics: list[AdoptedTopic] = field(default_factory=list[AdoptedTopic])
    next_producer_id: int = 0
    features: Mapping[str, int] = field(default_factory=dict[str, int])
    others: list[Any] = field(default_factory=list[Any])
    holes: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    def records(self, node_id: int) -> Iterator[Any]:
        """Yields all metadata records, in an order for replay."""
        yield from self.others
        for topic in self.topics:
            yield from topic.records(node_id)
        if self.next_producer_id:
            yield ProducerIdsRecord(broker_id=node_id, broker_epoch=-1, next_producer_id=self.next_producer_id)


# --- folders


def find_folders(files: Files, directories: Sequence[DataDirectory]) -> Folders:
    """Returns every partition folder except the metadata log's. Raises StorageError for a folder that is no partition,
    and for a duplicate.
    """
    found: Folders = {}
    for log_dir in directories:
        for topic, index in log_dir.partitions():
            if topic == METADATA_TOPIC:
                continue
            path = os.path.join(log_dir.path, f"{topic}-{index}")
            _check_folder(files, path)
            folder = Folder(log_dir, log_dir.topic_id(topic, index), newest_epoch(files, path))
            if (other := found.setdefault(topic, {}).get(index)) is not None:
                raise StorageError(f"{path} and {other.path(topic, index)} are one partition: move one of them away")
            found[topic][index] = folder
    return found


def _check_folder(files: Files, path: str) -> None:
    try:
        names = files.list(path)
    except NotADirectoryError:
        names = [""]
    if names and PARTITION_METADATA not in names and not any(name.endswith(".log") for name in names):
        raise StorageError(f"{path} has the name of a partition but no segment: move it away")


def newest_epoch(files: Files, path: str) -> int:
    """Returns the newest leader epoch in a partition's checkpoint; 0 if there is none."""
    try:
        epochs = checkpoint.read_epochs(files, os.path.join(path, checkpoint.LEADER_EPOCH))
    except StorageError:  # rebuilt from the batches when the log is opened
        return 0
    return max(0, epochs[-1][0]) if epochs else 0


def topic_id_of(topic: str, folders: Mapping[int, Folder]) -> bytes:
    """Returns the topic id of a topic's folders; zeros if none has one. Raises StorageError for several ids."""
    ids = {folder.topic_id: folder.path(topic, index) for index, folder in sorted(folders.items(), reverse=True)}
    ids.pop(ZERO_UUID, None)
    if len(ids) > 1:
        (first, second, *_) = sorted(ids.values())
        raise StorageError(f"partition.metadata of {first} and {second} differs: move one of them away")
    return next(iter(ids), ZERO_UUID)


def check_ids(topics: Sequence[AdoptedTopic]) -> None:
    """Raises StorageError if two topics have the same id."""
    by_id: dict[bytes, str] = {}
    for topic in topics:
        if (other := by_id.setdefault(topic.id, topic.name)) != topic.name:
            raise StorageError(f"the topics {other} and {topic.name} have the same topic id in partition.metadata")


# --- topics of folders


def from_folders(
    files: Files, logs: LogDirs, folders: Folders, config: Config, random_uuid: Callable[[], bytes]
) -> Adopted:
    places = [
        (topic, folder.path(topic, index), folder.log_dir.was_clean)
        for topic, found in folders.items()
        for index, folder in found.items()
    ]
    adopted = Adopted(next_producer_id=next_producer_id(files, places))
    cleaned = {topic for log_dir in logs.directories for topic in cleaned_topics(files, log_dir.path)}
    for name, found in sorted(folders.items()):
        topic_id = topic_id_of(name, found)
        if topic_id == ZERO_UUID:
            topic_id = new_topic_id(random_uuid)
        count = max(found) + 1
        if count - len(found) > HOLES_MAX:
            raise StorageError(f"{name}-{count - 1} exists, but {count - len(found)} partitions below it are missing")
        adopted.topics.append(
            AdoptedTopic(
                name,
                topic_id,
                configs_unknown(name, config, is_cleaned=name in cleaned),
                [placed(logs, found.get(index)) for index in range(count)],
            )
        )
        adopted.holes += [(name, index) for index in range(count) if index not in found]
    check_ids(adopted.topics)
    return adopted


def from_image(logs: LogDirs, folders: Folders, image: Image) -> Adopted:
    """Builds the metadata from that of a KRaft broker. Keeps its leader epochs: clients ignore older ones."""
    others: list[Any] = [*image.broker_configs(logs.node_id), *image.kept.values()]
    adopted = Adopted(next_producer_id=image.next_producer_id, others=others)
    for topic in sorted(image.topics.values(), key=lambda topic: topic.name):
        if sorted(topic.leader_epochs) != list(range(len(topic.leader_epochs))):
            raise StorageError(f"the metadata log lacks partitions of {topic.name}")
        places: list[tuple[bytes, int]] = []
        for index in range(len(topic.leader_epochs)):
            folder = folders.get(topic.name, {}).get(index)
            if folder is not None and folder.topic_id not in (ZERO_UUID, topic.id):
                folder = None  # of a deleted topic with the same name; set aside
            if folder is None:
                adopted.holes.append((topic.name, index))
            directory, leader_epoch = placed(logs, folder)
            places.append((directory, max(leader_epoch, topic.leader_epochs[index])))
        configs = image.configs.get((TOPIC, topic.name), {})
        adopted.topics.append(AdoptedTopic(topic.name, topic.id, configs, places))
    if len(adopted.holes) > HOLES_MAX:
        raise StorageError(f"{len(adopted.holes)} partitions of the metadata log are in no data directory")
    return adopted


def placed(logs: LogDirs, folder: Folder | None) -> tuple[bytes, int]:
    """Returns (directory id, leader epoch) of a partition; without a folder it starts empty."""
    return (logs.place(), 0) if folder is None else (folder.log_dir.id, folder.leader_epoch)


def configs_unknown(topic: str, config: Config, *, is_cleaned: bool) -> dict[str, str]:
    """Returns the configs of a topic whose own ones are unknown, see the module."""
    if is_internal(topic, config):
        return internal_configs(topic, config)
    if is_cleaned:
        return {"cleanup.policy": "compact"}
    is_configured = any(map(config.is_set, _RETENTION_CONFIGS))
    return {} if is_configured else dict(RETENTION_OFF)


def cleaned_topics(files: Files, path: str) -> set[str]:
    """Returns the topics in the cleaner's checkpoint; none if it cannot be read."""
    try:
        return {topic for topic, _ in checkpoint.read_offsets(files, os.path.join(path, checkpoint.CLEANER_OFFSET))}
    except StorageError as error:
        get_logger().warning("cleaner checkpoint unreadable, compacted topics unknown", reason=str(error))
        return set()


# --- producer ids


def next_producer_id(files: Files, partitions: Iterable[tuple[str, str, bool]]) -> int:
    """Returns a producer id that is unused, well above all that appear in partitions (topic, folder, was closed); 0 if
    none appears. Raises StorageError.

    Ids appear in snapshots, in the transaction log and, without a clean shutdown, in batches after the newest snapshot.
    """
    newest = -1
    for topic, path, was_closed in partitions:
        newest = max(newest, _in_snapshots(files, path))
        is_transactions = topic == TRANSACTION_STATE_TOPIC
        if is_transactions or not was_closed:
            newest = max(newest, _in_batches(files, path, is_transactions))
    return 0 if newest < 0 else newest + 1 + PRODUCER_IDS_SKIPPED


def _in_snapshots(files: Files, path: str) -> int:
    found = [snapshot.read(files, path, offset) for offset in offsets_in(files.list(path), snapshot.SUFFIX)]
    return max((id for producers in found if producers for id in producers), default=-1)


def _in_batches(files: Files, path: str, is_transactions: bool) -> int:
    """Returns the largest id in batches that no snapshot covers; in the transaction log, in all records. A torn end is
    ignored: recovery removes it.
    """
    names = files.list(path)
    snapshots = reversed(offsets_in(names, snapshot.SUFFIX))
    covered = next((offset for offset in snapshots if snapshot.read(files, path, offset) is not None), 0)
    bases = offsets_in(names, ".log")
    newest = -1
    for number, base in enumerate(bases):
        if not is_transactions and number + 1 < len(bases) and bases[number + 1] <= covered:
            continue
        with inspect.FileSource(os.path.join(path, f"{base:020d}.log"), files) as source:
            for entry in inspect.entries(source, check_crc=is_transactions):
                if isinstance(entry, inspect.Damage):
                    break
                newest = max(newest, entry.header.producer_id)
                if is_transactions and entry.crc_ok:
                    newest = max(newest, _in_transactions(source, entry.position, entry.header))
    return newest


def _in_transactions(source: inspect.Source, position: int, header: BatchHeader) -> int:
    """Returns the largest producer id in a batch of `__transaction_state`."""
    newest = -1
    if header.is_control or header.size_bytes > inspect.ENTRY_BYTES_MAX:
        return newest
    try:
        for record in formats.records(source.read(position, header.size_bytes), 0):
            if record.value and len(record.value) >= _TRANSACTION_VALUE.size:
                newest = max(newest, _TRANSACTION_VALUE.unpack_from(record.value)[1])
    except (CorruptRecords, InvalidRecords, UnsupportedCodec):  # reported when the log is loaded
        pass
    return newest


# --- the metadata log


def write(
    files: Files, directory: DataDirectory, first: Sequence[FeatureLevelRecord], records: Iterator[Any], now_ms: int
) -> str:
    """Writes a metadata log into a folder that the next start would remove; returns its path. All of it is durable."""
    folder = os.path.join(directory.path, aside_name(METADATA_TOPIC, 0, "delete"))
    log = PartitionLog.open(
        files,
        folder,
        TopicIdPartition(METADATA_TOPIC, 0, METADATA_TOPIC_ID),
        config=LogConfig(),
        now_ms=now_ms,
        checkpoints=LogCheckpoints(clean_shutdown=True),
    )
    metadata = MetadataLog(log, first)
    while some := list(itertools.islice(records, RECORDS_AT_ONCE)):
        metadata.append(some, now_ms)
    log.close()
    return folder
