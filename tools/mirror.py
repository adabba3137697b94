"""`ottla mirror`: copies partitions from a running broker into a data directory, byte for byte.

Owns the command line, the choice of topics, and their metadata: a topic is in the directory's metadata log, with the
source's id and configs, before its first record is copied. Retention is turned off in the copy (retention.ms and
retention.bytes are -1). A later run resumes at the log end offsets of the copies. No broker may use the directory
during a run. `client/mirror.py` fetches a partition, `storage/follower_log.py` stores it.
Exit code 0; 1 if a partition could not be copied; 2 for wrong arguments.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..broker.clock import wall_ms
from ..broker.config.log_config import log_config
from ..broker.config.values import Config, TopicConfig
from ..broker.errors import ConfigError
from ..broker.metadata.adopted_data import AdoptedTopic, partition_record
from ..broker.metadata.kraft_image import Image, ImageTopic
from ..broker.metadata.log import MetadataLog
from ..broker.metadata.topics import INTERNAL_TOPICS, RESOURCE_TOPIC
from ..broker.replica.log_dirs import LogDir, LogDirs
from ..client.admin.admin import Admin, ConfigResource, ConfigSource, ResourceType, TopicDescription, checked
from ..client.mirror import Copied, Diverged, Mirror
from ..client.net.cluster import Cluster
from ..client.net.errors import ClientError
from ..client.net.options import ClientOptions
from ..protocol.arguments import Parser, add_bootstrap, add_command_config
from ..protocol.mistakes import complain
from ..protocol.named import NamedTuple
from ..protocol.primitives import ZERO_UUID
from ..protocol.records import batch, formats
from ..protocol.records.errors import CorruptRecords
from ..protocol.text import size
from ..storage.errors import StorageError
from ..storage.follower_log import FollowerLog
from ..storage.io.files import DiskFiles
from ..storage.log_dir.directory import DataDirectory, new_id
from .command_line import FOUND_DAMAGE, printing, security_options
from .disk.import_dir import open_metadata

PROGRAM = "ottla mirror"
AT_ONCE = 4  # partitions copied concurrently
REPORT_S = 2.0
KEPT = {"retention.ms": "-1", "retention.bytes": "-1"}
FLUSH_BYTES = 256 << 20  # appended to a partition between two syncs: the most to copy again after a crash


class Cannot(Exception):
    """Nothing can be copied; the text is one line."""


def mirror(arguments: Sequence[str]) -> int:
    """`ottla mirror`: copies the chosen topics and returns the exit code."""
    parser = Parser(
        prog=PROGRAM, description="Copy partitions from a running broker, byte for byte; a later run resumes."
    )
    add_bootstrap(parser, required=True, help="the source")
    add_command_config(parser)
    parser.add_argument(
        "--topics", required=True, metavar="NAMES", help="names or regular expressions, separated by commas"
    )
    parser.add_argument("--data-dir", required=True, metavar="DIR", help="the target; no broker may use it meanwhile")
    parsed = parser.parse_args(list(arguments))
    patterns: list[re.Pattern[str]] = []
    for part in filter(None, parsed.topics.split(",")):
        try:
            patterns.append(re.compile(part))
        except re.error as error:
            parser.error(f"--topics {part}: not a regular expression ({error}); .* matches every topic")
    if not patterns:
        parser.error("--topics is empty: expected names or regular expressions, separated by commas")

    source = Source(parsed.bootstrap_server, security_options(parser, parsed.command_config))

    def run(write: Callable[[str], object]) -> int:
        try:
            return asyncio.run(run_mirror(source, patterns, Path(parsed.data_dir), write))
        except (StorageError, ClientError, Cannot) as error:
            return complain(PROGRAM, error)

    return printing(PROGRAM, run)


class Source(NamedTuple):
    """The brokers to copy from: their addresses, and the security options of the client."""

    bootstrap: str
    security: Mapping[str, Any] = {}


async def run_mirror(
    source: Source,
    patterns: Sequence[re.Pattern[str]],
    directory: Path,
    write: Callable[[str], object],
    progress: Callable[[str], object] = lambda line: sys.stderr.write(line),
) -> int:
    """Copies all matching topics and returns the exit code.

    Raises StorageError, ClientError or Cannot if nothing can be copied; a partition that fails is only reported.
    """
    topics = await read_source(source, patterns)
    logs = LogDirs.open(DiskFiles(), [directory], None)
    try:
        now_ms = wall_ms()
        metadata = open_metadata(DiskFiles(), logs, now_ms)
        targets = list(_placed(logs, metadata, topics, now_ms))
        cluster = Cluster(ClientOptions(bootstrap=source.bootstrap, **source.security))
        await cluster.start()
        try:
            code = await _copy_all(cluster, targets, write, Progress(progress))
        finally:
            await cluster.close()
        logs.close()
    except BaseException:
        logs.release()
        raise
    return code


# The source


class SourceTopic(NamedTuple):
    """A topic of the source cluster; `configs` are its own overrides."""

    name: str
    id: bytes
    partitions: int
    configs: Mapping[str, str]


async def read_source(source: Source, patterns: Sequence[re.Pattern[str]]) -> list[SourceTopic]:
    """Returns the topics whose whole name matches a pattern. An internal topic must be named literally.

    Raises ClientError; Cannot if a pattern matches no topic.
    """
    async with Admin(source.bootstrap, **source.security) as admin:
        names = await admin.list_topics(include_internal=True)
        for pattern in patterns:
            if not any(pattern.fullmatch(name) for name in names):
                raise Cannot(f"no topic at {source.bootstrap} matches {pattern.pattern}")
        wanted = [
            name
            for name in names
            if any(pattern.fullmatch(name) for pattern in patterns)
            and (name not in INTERNAL_TOPICS or any(pattern.pattern == name for pattern in patterns))
        ]
        described: Mapping[str, TopicDescription] = checked(await admin.describe_topics(wanted))
        resources = {ConfigResource(ResourceType.TOPIC, name): name for name in wanted}
        results = await admin.describe_configs(resources)
        configs = {
            resources[resource]: {
                name: entry.value
                for name, entry in entries.items()
                if entry.source is ConfigSource.DYNAMIC_TOPIC and entry.value is not None
            }
            for resource, entries in checked(results).items()
        }
    return [
        SourceTopic(name, described[name].id, len(described[name].partitions), configs.get(name, {}))
        for name in sorted(wanted)
    ]


# The target


class Target:
    """A partition of the target directory; implements `client.mirror.Copy`."""

    def __init__(self, topic: str, index: int, log: FollowerLog, directory: DataDirectory, has_gaps: bool) -> None:
        self.topic = topic
        self.index = index
        self._log = log
        self._directory = directory
        self.is_compacted = log.config.rules.compacted
        self._has_gaps = has_gaps
        self._unsynced_bytes = 0

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    def begin_at(self, offset: int) -> None:
        """Starts an empty copy at `offset`; see `FollowerLog.begin_at`."""
        self._log.begin_at(offset, wall_ms())

    def delete_records_before(self, offset: int) -> int:
        """Raises the log start offset, and returns it. See `PartitionLog.delete_records_before`."""
        return self._log.delete_records_before(offset)

    def last_batch(self) -> bytes:
        """Returns the newest batch as it is stored; see `FollowerLog.last_batch`."""
        return self._log.last_batch()

    def append(self, records: bytes | memoryview) -> int:
        """Appends fetched batches and returns their number; see `FollowerLog.append_fetched`.

        Before the first gap between offsets the partition is marked as compacted: recovery would take the gap for a
        loss of records.
        """
        if not self._has_gaps and has_gap(records, self._log.log_end_offset):
            self._directory.cleaned(self._log, self._log.log_start_offset)
            self._has_gaps = True
        count = self._log.append_fetched(records, now_ms=wall_ms())
        self._unsynced_bytes += len(records)
        if self._unsynced_bytes >= FLUSH_BYTES:
            self._log.flush()
            self._unsynced_bytes = 0
        return count


def has_gap(records: bytes | bytearray | memoryview, offset: int) -> bool:
    """Returns whether offsets are missing before or between the batches; stops at a corrupt batch."""
    try:
        for _, header in formats.headers(records):
            is_wrapper = header.magic < batch.MAGIC and header.codec  # the header has the last offset only
            if header.base_offset > offset and not is_wrapper:
                return True
            offset = header.next_offset
    except CorruptRecords:
        pass
    return False


def _placed(logs: LogDirs, metadata: MetadataLog, topics: Iterable[SourceTopic], now_ms: int) -> Iterable[Target]:
    """Opens the partitions of the topics, creating those that are missing. Raises StorageError, Cannot."""
    image = Image()
    for record in metadata.replay():
        image.apply(record)
    known = {topic.name: topic for topic in image.topics.values()}
    config = Config()
    for topic in topics:
        there = known.get(topic.name)
        if there is None:
            there = _add_topic(logs, metadata, topic, image, config, now_ms)
        elif ZERO_UUID not in (topic.id, there.id) and there.id != topic.id and topic.id in image.topics:
            raise Cannot(f"{topic.name} has another topic id in the target, where the source's id is another topic's")
        _add_partitions(logs, metadata, topic, there, now_ms)
        configs = image.configs.get((RESOURCE_TOPIC, topic.name), {})
        log_configs = log_config(TopicConfig(config, configs), config)
        for index in range(topic.partitions):
            log_dir: LogDir = logs.directories[0]
            log = log_dir.data.open_partition(
                topic.name, index, topic_id=there.id, config=log_configs, now_ms=now_ms, kind=FollowerLog
            )
            assert isinstance(log, FollowerLog)
            cleaned = log_dir.data.cleaner_offset(topic.name, index) is not None
            yield Target(topic.name, index, log, log_dir.data, cleaned or log_configs.rules.compacted)


def _add_topic(
    logs: LogDirs, metadata: MetadataLog, topic: SourceTopic, image: Image, config: Config, now_ms: int
) -> ImageTopic:
    topic_id = topic.id if topic.id != ZERO_UUID and topic.id not in image.topics else new_id()
    configs: dict[str, str] = {}
    for name, value in sorted({**topic.configs, **KEPT}.items()):
        try:
            TopicConfig(config, {**configs, name: value})
        except ConfigError:  # a config or value that this version does not have
            continue
        configs[name] = value
    adopted = AdoptedTopic(topic.name, topic_id, configs, [])
    metadata.append(list(adopted.records(logs.node_id)), now_ms)
    made = image.topics[topic_id] = ImageTopic(topic.name, topic_id)
    image.configs[RESOURCE_TOPIC, topic.name] = configs
    return made


def _add_partitions(logs: LogDirs, metadata: MetadataLog, topic: SourceTopic, there: ImageTopic, now_ms: int) -> None:
    place = logs.directories[0].id
    missing = [index for index in range(topic.partitions) if index not in there.leader_epochs]
    records = [partition_record(there.id, index, logs.node_id, place, 0) for index in missing]
    if records:
        metadata.append(records, now_ms)
        there.leader_epochs.update(dict.fromkeys(missing, 0))


# The copying


class Progress:
    """Prints the amount copied so far to stderr, at most every two seconds."""

    def __init__(self, write: Callable[[str], object], now: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._now = now
        self._printed_s = now()
        self._bytes = 0

    def __call__(self, topic: str, partition: int, size_bytes: int) -> None:
        self._bytes += size_bytes
        if self._now() - self._printed_s >= REPORT_S:
            self._printed_s = self._now()
            self._write(f"{PROGRAM}: {size(self._bytes)}, at {topic}-{partition}\n")


async def _copy_all(
    cluster: Cluster, targets: Sequence[Target], write: Callable[[str], object], progress: Progress
) -> int:
    source = Mirror(cluster, progress)
    limit = asyncio.Semaphore(AT_ONCE)
    failed = False

    async def one(target: Target) -> None:
        nonlocal failed
        name = f"{target.topic}-{target.index}"
        async with limit:
            try:
                done: Copied = await source.copy(target.topic, target.index, target)
            except (ClientError, Diverged, CorruptRecords, StorageError) as error:
                failed = True
                write(f"{name}: not copied beyond offset {target.log_end_offset}: {error}\n")
                return
        gone = f", {done.skipped} earlier offsets were deleted at the source" if done.skipped else ""
        amount = f"{done.batches} batches, {done.size_bytes} bytes"
        write(f"{name}: {done.log_start_offset}..{done.log_end_offset}, {amount} copied{gone}\n")

    await asyncio.gather(*(one(target) for target in targets))
    return FOUND_DAMAGE if failed else 0
