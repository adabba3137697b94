"""Topics: names, ids, partitions and configs, and their durable changes.

Owns the existing topics and the rules for names, counts and configs. Every change is a durable metadata record before
it is visible. A partition's folder follows: after a crash in between, the next start creates the folder of a topic, or
sets a folder without a topic aside. Sources: KIP-4, KIP-516 (ids), Kafka's `Topic.validate` and
`ReplicationControlManager`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...protocol.errors import ErrorCode
from ...protocol.internal_records.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ...protocol.internal_records.metadata_values import TOPIC as METADATA_TOPIC
from ...protocol.records import steps
from ...protocol.records.steps import Steps
from ...storage.errors import DirectoryFailed, StorageError
from ..config.log_config import log_config
from ..config.message_format import topic_warning
from ..config.resource_types import TOPIC
from ..config.values import Config, TopicConfig, without_nulls
from ..errors import ConfigError, Refused
from ..logs import get_logger
from ..replica.assignment import NO_LEADER, Assignment
from ..replica.flush import Durability
from ..replica.log_dirs import FIRST_DIRECTORY_ID, LogDirs
from ..replica.partition import LEADER_EPOCH, Partition
from .log import MetadataLog
from .nodes import REPLICAS, Nodes
from .topic_changes import TopicChanges
from .topic_records import apply_config, changed_record, config_records, merged, partition_record, stored_assignment

if TYPE_CHECKING:
    from ...storage.config import LogConfig
    from ...storage.log_dir.directory import DataDirectory

GROUP_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"  # KIP-932, internal from 4.0 on
_PREFIXES = {
    GROUP_OFFSETS_TOPIC: "offsets.topic",
    TRANSACTION_STATE_TOPIC: "transaction.state.log",
    SHARE_STATE_TOPIC: "share.coordinator.state.topic",
}
INTERNAL_TOPICS = frozenset(_PREFIXES)
NAME_LENGTH_MAX = 249
BROKER_DEFAULT = -1  # of the counts, since KIP-464
PARTITIONS_AT_ONCE_MAX = 10_000  # per request, as in KRaft
TOO_MANY_PARTITIONS = "Excessively large number of partitions per request."
STEP_PARTITIONS = 10  # opened or deleted in one cooperative step; each takes up to a millisecond
PLACED_AT_ONCE = 500
_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class Topic:
    """A topic. `id` has 16 bytes; `partitions` are in order of their index."""

    __slots__ = ("config", "id", "name", "partitions")

    def __init__(self, name: str, id: bytes, config: TopicConfig) -> None:
        self.name = name
        self.id = id
        self.config = config
        self.partitions: list[Partition] = []

    def online_partitions(self) -> list[Partition]:
        """Returns the partitions whose log directory is online."""
        return [partition for partition in self.partitions if partition.offline is None]

    @property
    def is_internal(self) -> bool:
        """Whether this is one of Kafka's internal topics."""
        return is_internal(self.name, self.config.broker)


def check_name(name: str, *, as_kraft: bool = True) -> None:
    """Refuses topic names that Kafka refuses (INVALID_TOPIC_EXCEPTION), with the text of KRaft or of ZooKeeper."""
    if not name:
        kraft, zookeeper = "the empty string is not allowed", "Topic name is illegal, it can't be empty"
    elif name in (".", ".."):
        kraft, zookeeper = f"'{name}' is not allowed", 'Topic name cannot be "." or ".."'
    elif len(name) > NAME_LENGTH_MAX:
        kraft = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
        zookeeper = f"Topic name is illegal, it can't be longer than {NAME_LENGTH_MAX} characters, topic name: {name}"
    elif not _NAME.fullmatch(name):
        kraft = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        what = "is illegal, it contains a character other than ASCII alphanumerics, '.', '_' and '-'"
        zookeeper = f'Topic name "{name}" {what}'
    elif name == METADATA_TOPIC:
        kraft, zookeeper = f"'{name}' is reserved", f'Topic name "{name}" is reserved'
    else:
        return
    raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {kraft}" if as_kraft else zookeeper)


def is_internal(name: str, config: Config) -> bool:
    """Returns whether a name is that of one of the release's internal topics."""
    return name in INTERNAL_TOPICS and config.fact(f"{_PREFIXES[name]}.num.partitions") is not None


def internal_prefix(name: str) -> str:
    """Returns the prefix of the broker configs of an internal topic."""
    return _PREFIXES[name]


def internal_configs(name: str, config: Config) -> dict[str, str]:
    """Returns the topic configs of an internal topic."""
    segment_bytes = config[f"{internal_prefix(name)}.segment.bytes"]
    if name == SHARE_STATE_TOPIC:  # its coordinator deletes old records
        return {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "segment.bytes": str(segment_bytes),
            "min.insync.replicas": str(config["share.coordinator.state.topic.min.isr"]),
            "retention.ms": "-1",
        }
    configs = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": str(segment_bytes)}
    if name == TRANSACTION_STATE_TOPIC:
        configs |= {"compression.type": "uncompressed", "unclean.leader.election.enable": "false"}
        configs["min.insync.replicas"] = str(config["transaction.state.log.min.isr"])
    return configs


def new_topic_id(random_uuid: Callable[[], bytes]) -> bytes:
    """Returns a topic id whose text form does not begin with a dash, which command lines would parse as an option."""
    while True:
        made = random_uuid()
        if made[:15] != bytes(15) and not base64.urlsafe_b64encode(made).startswith(b"-"):
            return made


class Topics:
    """All topics of the broker, by name and by id."""

    def __init__(
        self,
        logs: LogDirs,
        metadata: MetadataLog,
        config: Config,
        nodes: Nodes,
        random_uuid: Callable[[], bytes],
        durability: Durability,
    ) -> None:
        self._logs = logs
        self._durability = durability
        self._metadata = metadata
        self._config = config
        self._nodes = nodes
        self._random_uuid = random_uuid
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._assigned: dict[tuple[bytes, int], Assignment] = {}  # assignments of partitions that are not open yet
        self._recorded: dict[tuple[bytes, int], Assignment] = {}  # assignments in the metadata log
        self._as_kraft: bool = config.profile.behaviour.topics_as_kraft
        self._new_names: set[str] = set()  # names of topics being created
        self.created_at = metadata.end_offset
        """The end offset of the metadata log when a topic was last created, or at the start."""
        self.on_created: Callable[[Topic], object] = lambda topic: None
        """Called when a topic was created."""
        self.on_deleted: Callable[[Topic], object] = lambda topic: None
        """Called when a topic was deleted, before its partitions end."""
        self.changes = TopicChanges()
        """Changes in progress; every other change of the same topic completes them first."""

    # --- look-ups

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def topic_names(self) -> list[str]:
        """Returns the names of all topics."""
        return list(self._by_name)

    def topic_name(self, id: bytes) -> str | None:
        """Returns the name of the topic with this id, or None."""
        topic = self._by_id.get(id)
        return None if topic is None else topic.name

    def topic_id(self, name: str) -> bytes | None:
        """Returns the id of the topic with this name, or None."""
        topic = self._by_name.get(name)
        return None if topic is None else topic.id

    def partition_count(self, topic: str) -> int:
        """Returns the number of partitions of a topic; 0 for an unknown one."""
        found = self._by_name.get(topic)
        return 0 if found is None else len(found.partitions)

    def get(self, name: str | None) -> Topic | None:
        """Returns the topic with this name, or None."""
        return self._by_name.get(name)  # type: ignore[arg-type]

    def by_id(self, id: bytes) -> Topic | None:
        """Returns the topic with this id, or None."""
        return self._by_id.get(id)

    def named(self, name: str) -> Topic:
        """Returns the topic with this name. Raises Refused (UNKNOWN_TOPIC_OR_PARTITION)."""
        topic = self._by_name.get(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def partition(self, name: str, index: int) -> Partition:
        """Returns a partition. Raises Refused (UNKNOWN_TOPIC_OR_PARTITION)."""
        partition = self._partitions.get((name, index))
        if partition is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def has_partition(self, name: str, index: int) -> bool:
        """Returns whether the partition exists."""
        return (name, index) in self._partitions

    def leader(self, name: str, index: int) -> int:
        """Returns the leader of a partition; -1 if it has none or does not exist."""
        partition = self._partitions.get((name, index))
        return NO_LEADER if partition is None or partition.offline is not None else partition.leader

    def led_by(self, node_id: int, name: str) -> Callable[[int], bool]:
        """Returns a function that tests whether a node leads the topic's partition with an index."""
        return lambda index: self.leader(name, index) == node_id

    # --- changes

    def check_free(self, name: str) -> None:
        """Checks that a new topic may have this name. Raises Refused."""
        check_name(name, as_kraft=self._as_kraft)
        if name in self._by_name:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        # Metric names cannot distinguish '.' from '_', so Kafka refuses topic names that differ only in these.
        flat = name.replace(".", "_")
        for other in (*self._by_name, *self._new_names) if "." in name or "_" in name else ():
            if other.replace(".", "_") == flat:
                raise Refused(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"Topic '{name}' collides with existing topic{'' if self._as_kraft else 's'}: {other}",
                )

    def check_new(self, name: str, configs: Mapping[str, str | None]) -> dict[str, str]:
        """Returns the configs to store of a new topic, if they and its name are valid. Raises Refused, ConfigError."""
        self.check_free(name)
        kept = without_nulls(configs)
        TopicConfig(self._config, kept).check_tiered()
        return kept

    def replication_factor(self, name: str) -> int:
        """Returns the default replication factor of a new topic. Raises Refused if it exceeds the number of nodes.

        That is the broker config if set; otherwise the number of nodes, at most three. For internal topics a configured
        factor is lowered to the number of nodes.
        """
        there, config = len(self._nodes.ids), self._config
        key = "default.replication.factor"
        if is_internal(name, config):
            key = f"{internal_prefix(name)}.replication.factor"
        if there == 1 or not config.is_set(key):
            return min(REPLICAS, there)
        factor = config[key]
        if is_internal(name, config):
            return min(factor, there)
        return self.check_factor(factor)

    def check_factor(self, factor: int) -> int:
        """Returns the factor. Raises Refused (INVALID_REPLICATION_FACTOR) below 1 and above the number of nodes."""
        there = len(self._nodes.ids)
        if 1 <= factor <= there:
            return factor
        if self._as_kraft:
            problem = "Replication factor must be larger than 0, or -1 to use the default value."
            if factor > there:
                problem = f"Unable to replicate the partition {factor} time(s): The target replication factor of "
                problem += f"{factor} cannot be reached because only {there} broker(s) are registered"
                cordoned = " or some brokers have all their log directories cordoned"
                problem += f"{cordoned if self._config.profile.behaviour.cordoned_log_dirs else ''}."
        elif factor < 1:
            problem = "Replication factor must be larger than 0."
        else:
            problem = f"Replication factor: {factor} larger than available brokers: {there}."
        raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, problem)

    def check_racks(self) -> None:
        """Checks the racks of the nodes before partitions are created on request. Raises Refused in a release with
        ZooKeeper if some nodes have a rack and others have none (KIP-36).
        """
        if len({rack is None for rack in self._nodes.racks.values()}) > 1 and not self._as_kraft:
            raise Refused(ErrorCode.UNKNOWN_SERVER_ERROR, wordless=True)

    def place(self, count: int, factor: int, *, grows: bool = False) -> list[tuple[int, ...]]:
        """Returns replicas for `count` new partitions, of a new topic or, with `grows`, of an existing one. Raises
        Refused if all directories are cordoned (KIP-1066).
        """
        if all(map(self._logs.is_cordoned, self._logs.online)) and self._logs.online:
            problem = "All brokers are currently fenced, or have all their log directories cordoned."
            before = "" if grows else f"Unable to replicate the partition {factor} time(s): "
            raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, before + problem)
        return self._nodes.place(count, factor, len(self._partitions))

    def create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str | None],
        now_ms: int,
        replicas: Sequence[Sequence[int]] | None = None,
    ) -> Topic:
        """Creates a topic; `replicas` are the node ids of each partition, None places them. Raises Refused, ConfigError
        or StorageError; then nothing of the topic remains.
        """
        self.changes.finish(name)
        return steps.run(self.creating(name, partitions, configs, now_ms, replicas))

    def creating(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str | None],
        now_ms: int,
        replicas: Sequence[Sequence[int]] | None = None,
    ) -> Steps[Topic]:
        """`create` in steps, for `changes`. Refusals are raised in the first step."""
        kept = self.check_new(name, configs)
        if replicas is None:
            replicas = self.place(partitions, self.replication_factor(name))
        while True:
            try:
                return (yield from self._create(name, replicas, kept, now_ms))
            except DirectoryFailed:  # try again without the failed directory
                continue

    def _create(self, name: str, replicas: Sequence[Sequence[int]], kept: dict[str, str], now_ms: int) -> Steps[Topic]:
        self._new_names.add(name)
        topic = Topic(name, new_topic_id(self._random_uuid), TopicConfig(self._config, kept))
        try:
            placed, new = yield from self._place_logs(topic, 0, replicas)
            records: list[Any] = [TopicRecord(name=name, topic_id=topic.id)]
            records += config_records(TOPIC, name, {}, kept)
            yield from self._metadata.append_steps(records + new, now_ms)
            yield from self._open_new(topic, placed, now_ms)
        finally:
            self._new_names.discard(name)
        self._by_name[name] = self._by_id[topic.id] = topic
        self.created_at = self._metadata.end_offset
        self._warn_of_format(topic)
        self.on_created(topic)
        return topic

    def _open_new(self, topic: Topic, placed: Sequence[tuple[int, bytes]], now_ms: int) -> Steps[None]:
        """Creates the logs of a topic whose records are written; after an error removes the topic again."""
        try:
            config = self._log_config(topic)
            for index, directory in placed:
                if index and index % STEP_PARTITIONS == 0:
                    yield None
                self._open(topic, index, directory, config, now_ms)
            if config != self._log_config(topic):  # a broker config changed in the meantime
                self._reconfigure(topic)
        except StorageError:
            # First, because the error may be too many open files.
            steps.run(self._dropping(topic, at_once=True))
            for index, _ in placed:
                self._assigned.pop((topic.id, index), None)
                self._recorded.pop((topic.id, index), None)
            self._metadata.append([RemoveTopicRecord(topic_id=topic.id)], now_ms)
            raise

    def _place_logs(
        self, topic: Topic, first: int, replicas: Sequence[Sequence[int]]
    ) -> Steps[tuple[list[tuple[int, bytes]], list[PartitionRecord]]]:
        """Chooses directories of partitions from index `first` on; returns (index, directory) and record of each."""
        self._logs.forget_offsets(topic.name, range(first, first + len(replicas)))
        placed: list[tuple[int, bytes]] = []
        records: list[PartitionRecord] = []
        for index, nodes in enumerate(replicas, first):
            if len(placed) % PLACED_AT_ONCE == PLACED_AT_ONCE - 1:
                yield None
            at = self._logs.place(topic.name, index)
            made = self._assigned[topic.id, index] = self._recorded[topic.id, index] = self._nodes.assigned(
                nodes, LEADER_EPOCH
            )
            placed.append((index, at))
            records.append(partition_record(topic.id, index, made, at))
        return placed, records

    def adding_partitions(
        self, topic: Topic, count: int, now_ms: int, replicas: Sequence[Sequence[int]] | None = None
    ) -> Steps[None]:
        """Extends a topic to `count` partitions in total, in steps for `changes`; without `replicas` the new ones have
        as many replicas as the others. Raises StorageError, and Refused if a previous change made it invalid.
        """
        self._check_there(topic)
        first = len(topic.partitions)
        if count <= first or (replicas is not None and len(replicas) != count - first):
            raise Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {first} partition(s).")
        if replicas is None:
            factor = len(topic.partitions[0].replicas) if topic.partitions else self.replication_factor(topic.name)
            replicas = self.place(count - first, factor, grows=True)
        placed, records = yield from self._place_logs(topic, first, replicas)
        yield from self._metadata.append_steps(records, now_ms)
        for start in range(0, len(placed), STEP_PARTITIONS):
            if start:
                yield None
            self.open([(topic, index, at) for index, at in placed[start : start + STEP_PARTITIONS]], now_ms)

    def _check_there(self, topic: Topic) -> None:
        if self._by_id.get(topic.id) is not topic:  # deleted by the previous change
            problem = "This server does not host this topic-partition."
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem)

    def set_configs(self, topic: Topic, configs: Mapping[str, str], now_ms: int) -> None:
        """Replaces a topic's configs. Raises ConfigError or StorageError; then nothing has changed."""
        changed = TopicConfig(self._config, configs)
        if records := config_records(TOPIC, topic.name, topic.config.overrides, configs):
            self._metadata.append(records, now_ms)
        topic.config = changed
        self._reconfigure(topic)
        self._warn_of_format(topic)

    def delete(self, topic: Topic, now_ms: int) -> None:
        """Deletes a topic and completes delayed requests on its partitions. Raises StorageError."""
        self.changes.finish(topic.name)
        steps.run(self.deleting(topic, now_ms))

    def deleting(self, topic: Topic, now_ms: int) -> Steps[None]:
        """`delete` in steps, for `changes`: the topic is gone after the first step, its folders after the last."""
        self._check_there(topic)
        self._metadata.append([RemoveTopicRecord(topic_id=topic.id)], now_ms)
        del self._by_name[topic.name], self._by_id[topic.id]
        yield from self._dropping(topic)
        self.on_deleted(topic)  # writes of coordinators may create an internal topic of the same name

    def eligible_below(self, topic: str) -> int:
        """Returns min.insync.replicas of a topic: with fewer replicas in sync its partitions have eligible leader
        replicas (KIP-966). 0 without that feature.
        """
        return self.named(topic).config["min.insync.replicas"] if self._config.eligible_leaders else 0

    def reassign(self, changes: Sequence[tuple[Partition, Assignment]], now_ms: int) -> None:
        """Changes leaders and in-sync replicas, all at once. Raises StorageError; then nothing has changed."""
        records = [
            changed_record(
                (id := self._by_name[one.topic].id), one.index, self._recorded[id, one.index], made, one.directory
            )
            for one, made in changes
        ]
        self._metadata.append(records, now_ms)
        for partition, assignment in changes:
            topic = self._by_name[partition.topic]
            self._recorded[topic.id, partition.index] = assignment
            partition.assign(assignment)
            self._hold(partition, topic)

    def set_directory(self, partition: Partition, directory: bytes, now_ms: int) -> None:
        """Records durably that a partition moved to another directory. Raises StorageError."""
        key = self._by_name[partition.topic].id, partition.index
        record = PartitionChangeRecord(
            topic_id=key[0], partition_id=key[1], directories=[directory] * len(self._recorded[key].replicas)
        )
        self._metadata.append([record], now_ms)
        self._recorded[key] = merged(self._recorded[key], record)
        partition.assignment = partition.assignment._replace(partition_epoch=self._recorded[key].partition_epoch)

    def reconfigure(self) -> None:
        """Applies changed broker configs to all logs."""
        for topic in self._by_name.values():
            self._reconfigure(topic)

    # --- startup

    def replay(self, records: Iterable[Any]) -> list[tuple[Topic, int, bytes | None]]:
        """Restores topics from metadata records; returns (topic, partition, directory id) of the partitions to open.

        Raises StorageError for contradictory records.
        """
        found: dict[bytes, Topic] = {}
        overrides: dict[str, dict[str, str]] = {}
        placed: dict[bytes, dict[int, bytes | None]] = {}
        for record in records:
            if isinstance(record, TopicRecord):
                found[record.topic_id] = Topic(record.name, record.topic_id, TopicConfig(self._config))
                placed[record.topic_id] = {}
                overrides[record.name] = {}
            elif isinstance(record, PartitionRecord):
                directory = record.directories[0] if record.directories else None
                if record.topic_id not in placed:
                    raise StorageError(f"{METADATA_TOPIC}-0: partition of unknown topic {record.topic_id.hex()}")
                placed[record.topic_id][record.partition_id] = directory
                self._recorded[record.topic_id, record.partition_id] = stored_assignment(record)
            elif isinstance(record, PartitionChangeRecord):
                if record.partition_id not in placed.get(record.topic_id, ()):
                    raise StorageError(f"{METADATA_TOPIC}-0: change of unknown partition, {record.topic_id.hex()}")
                key = record.topic_id, record.partition_id
                self._recorded[key] = merged(self._recorded[key], record)
                if record.directories:
                    placed[record.topic_id][record.partition_id] = record.directories[0]
            elif isinstance(record, RemoveTopicRecord):
                found.pop(record.topic_id, None)
                for index in placed.pop(record.topic_id, ()):
                    self._recorded.pop((record.topic_id, index), None)
            elif isinstance(record, ConfigRecord) and record.resource_type == TOPIC:
                apply_config(record, overrides.setdefault(record.resource_name, {}))
        for topic in found.values():
            topic.config = TopicConfig(self._config, self._readable(topic.name, overrides[topic.name]))
            for index in placed[topic.id]:
                self._assigned[topic.id, index] = self._nodes.found(self._recorded[topic.id, index])
            self._by_name[topic.name] = self._by_id[topic.id] = topic
            self._warn_of_format(topic)
        return [(found[id], index, at) for id, indexes in placed.items() for index, at in sorted(indexes.items())]

    def _readable(self, topic: str, configs: Mapping[str, str]) -> dict[str, str]:
        """Returns the known configs. Configs of newer or older Kafka releases are logged and ignored."""
        kept: dict[str, str] = {}
        for name, value in configs.items():
            try:
                TopicConfig(self._config, {name: value})
            except ConfigError as error:
                get_logger().warning("topic config ignored", topic=topic, reason=str(error))
            else:
                kept[name] = value
        return kept

    def open(
        self, placed: list[tuple[Topic, int, bytes | None]], now_ms: int, on_done: Callable[[], None] = lambda: None
    ) -> None:
        """Opens the logs of `replay`, offline on a failed disk; calls `on_done` after each. Raises StorageError."""
        moved: list[PartitionRecord] = []
        configs: dict[bytes, LogConfig] = {}
        for topic, index, directory in placed:
            if topic.id not in configs:
                configs[topic.id] = self._log_config(topic)
            try:
                lies_in = self._open(topic, index, directory, configs[topic.id], now_ms).directory
            except DirectoryFailed as error:
                assigned = self._assigned.pop((topic.id, index))
                offline = Partition(topic.name, index, None, self._durability, str(error), assigned)
                offline.directory = directory
                self._add(offline, topic)
                continue
            finally:
                on_done()
            # The folder was moved to another directory: record its new place.
            if directory is not None and directory >= FIRST_DIRECTORY_ID and lies_in not in (None, directory):
                now = self._recorded[topic.id, index] = topic.partitions[-1].assignment
                moved.append(partition_record(topic.id, index, now, lies_in))
        if moved:
            self._metadata.append(moved, now_ms)

    def take_offline(self, log_dir: DataDirectory) -> list[Partition]:
        """Takes the partitions of a failed directory offline; returns those that were online."""
        reason = f"{log_dir.path}: {log_dir.failure}"
        found = [partition for partition in self._partitions.values() if partition.lies_in(log_dir)]
        for partition in found:
            partition.go_offline(reason)
        return found

    def _open(self, topic: Topic, index: int, directory: bytes | None, config: LogConfig, now_ms: int) -> Partition:
        log = self._logs.open_partition(topic.name, index, topic.id, config, directory, now_ms)
        assigned = self._assigned.pop((topic.id, index))
        # Clients ignore leader epochs older than the one they have seen.
        log.leader_epoch = max(log.leader_epoch, assigned.leader_epoch)
        assigned = assigned._replace(leader_epoch=log.leader_epoch)
        partition = Partition(topic.name, index, log, self._durability, assignment=assigned)
        partition.directory = self._logs.holder(log).id
        self._add(partition, topic)
        return partition

    def _add(self, partition: Partition, topic: Topic) -> None:
        topic.partitions.append(partition)
        self._partitions[topic.name, partition.index] = partition
        self._hold(partition, topic)

    def _hold(self, partition: Partition, topic: Topic) -> None:
        """Stops the high watermark of a partition while too few replicas are in sync. A lone node has all of them."""
        if self._nodes.is_cluster and self._config.profile.behaviour.in_sync_at_most_replicas:
            least = min(topic.config["min.insync.replicas"], len(partition.replicas))
            partition.hold(is_held=len(partition.isr) < least)

    def _log_config(self, topic: Topic) -> LogConfig:
        return log_config(topic.config, self._config)

    def _reconfigure(self, topic: Topic) -> None:
        config = self._log_config(topic)
        for partition in topic.online_partitions():
            partition.configure(config)
            self._hold(partition, topic)

    def _warn_of_format(self, topic: Topic) -> None:
        self._config.log_inert(topic.config.overrides)
        if reason := topic_warning(topic.config, self._config):
            get_logger().warning("message.format.version of a topic is ignored", topic=topic.name, reason=reason)

    def _dropping(self, topic: Topic, *, at_once: bool = False) -> Steps[None]:
        """Deletes the logs of a topic, `at_once` without yielding. The next start sets folders aside that could not be
        removed, because no record lists them.
        """
        for partition in topic.partitions:
            del self._partitions[topic.name, partition.index]
            self._recorded.pop((topic.id, partition.index), None)
        for number, partition in enumerate(topic.partitions):
            if number and number % STEP_PARTITIONS == 0 and not at_once:
                yield None
            partition.gone()
            if partition.offline is None:
                try:
                    self._logs.delete(partition.log, at_once=at_once)
                except StorageError as error:
                    get_logger().error(
                        "folder of deleted partition not removed", folder=repr(partition.log), reason=str(error)
                    )
