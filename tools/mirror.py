"""`ottla mirror`: copies partitions from a running broker into a data directory, byte for byte.

Owns the command line, the choice of topics, and their metadata: a topic is in the directory's metadata log, with the
source's id and configs, before its first record is copied. Retention is turned off in the copy (retention.ms and
retention.bytes are -1). A later run resumes at the log end offsets of the copies. No broker may use the directory
during a run. `storage/follower_log.py` stores the fetched batches: offsets and old message formats are kept (KIP-724).
Exit code 0; 1 if a partition could not be copied; 2 for wrong arguments.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..broker.clock import wall_ms
from ..broker.config.log_config import log_config
from ..broker.config.resource_types import TOPIC
from ..broker.config.values import Config, TopicConfig
from ..broker.errors import ConfigError
from ..broker.metadata.adopted_data import AdoptedTopic
from ..broker.metadata.kraft_image import Image, ImageTopic
from ..broker.metadata.log import MetadataLog
from ..broker.metadata.topic_records import partition_record
from ..broker.metadata.topics import INTERNAL_TOPICS
from ..broker.replica.assignment import Assignment
from ..broker.replica.log_dirs import LogDirs
from ..client.admin.admin import Admin, ConfigResource, ConfigSource, ResourceType, TopicDescription, checked
from ..client.consumer.list_offsets import EARLIEST
from ..client.net.cluster import Cluster
from ..client.net.errors import ClientError
from ..client.net.options import ClientOptions
from ..client.net.retry import retry
from ..client.producer.log_tail import Fetched, LogTail
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
from .command_line import FOUND_DAMAGE, Write, printing, security_options
from .disk.import_dir import open_metadata, opened

PROGRAM = "ottla mirror"
AT_ONCE = 4  # partitions copied concurrently
REPORT_S = 2.0
KEPT = {"retention.ms": "-1", "retention.bytes": "-1"}
FLUSH_BYTES = 256 << 20  # appended to a partition between two syncs: the most to copy again after a crash
FETCH_BYTES = 8 << 20
FETCH_BYTES_MAX = 1 << 30  # of one batch, for brokers that send no batch larger than the requested size
ATTEMPTS = 8  # for each request

T = TypeVar("T")


class Cannot(Exception):
    """Nothing can be copied; the text is one line."""


class Diverged(Exception):
    """The copy does not match the source: of another log, or written to by another program. Nothing was copied."""


def mirror(arguments: Sequence[str]) -> int:
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

    def run(write: Write) -> int:
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
    write: Write,
    progress: Write = lambda line: sys.stderr.write(line),
) -> int:
    """Copies all matching topics and returns the exit code.

    Raises StorageError, ClientError or Cannot if nothing can be copied; a partition that fails is only reported.
    """
    topics = await read_source(source, patterns)
    with opened(DiskFiles(), [directory]) as logs:
        now_ms = wall_ms()
        metadata, image = open_metadata(DiskFiles(), logs, now_ms)
        targets = list(_placed(logs, metadata, image, topics, now_ms))
        cluster = Cluster(ClientOptions(bootstrap=source.bootstrap, **source.security))
        await cluster.start()
        try:
            return await _copy_all(cluster, targets, write, Progress(progress))
        finally:
            await cluster.close()


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


@dataclass
class Target:
    """A partition of the target directory."""

    topic: str
    index: int
    log: FollowerLog
    directory: DataDirectory
    has_gaps: bool
    unsynced_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    def append(self, records: bytes | memoryview) -> int:
        """Appends fetched batches and returns their number; see `FollowerLog.append_fetched`.

        Before the first gap between offsets the partition is marked as compacted: recovery would take the gap for a
        loss of records.
        """
        if not self.has_gaps and has_gap(records, self.log.log_end_offset):
            self.directory.cleaned(self.log, self.log.log_start_offset)
            self.has_gaps = True
        count = self.log.append_fetched(records, now_ms=wall_ms())
        self.unsynced_bytes += len(records)
        if self.unsynced_bytes >= FLUSH_BYTES:
            self.log.flush()
            self.unsynced_bytes = 0
        return count


def has_gap(records: bytes | bytearray | memoryview, offset: int) -> bool:
    """Returns whether offsets are missing before or between the batches; stops at a corrupt batch."""
    for _, header in formats.sound_headers(records):
        is_wrapper = header.magic < batch.MAGIC and header.codec  # the header has the last offset only
        if header.base_offset > offset and not is_wrapper:
            return True
        offset = header.next_offset
    return False


def _placed(
    logs: LogDirs, metadata: MetadataLog, image: Image, topics: Iterable[SourceTopic], now_ms: int
) -> Iterable[Target]:
    """Opens the partitions of the topics, creating those that are missing. Raises StorageError, Cannot."""
    known = {topic.name: topic for topic in image.topics.values()}
    config = Config()
    for topic in topics:
        there = known.get(topic.name)
        if there is None:
            there = _add_topic(logs, metadata, topic, image, config, now_ms)
        elif ZERO_UUID not in (topic.id, there.id) and there.id != topic.id and topic.id in image.topics:
            raise Cannot(f"{topic.name} has another topic id in the target, where the source's id is another topic's")
        _add_partitions(logs, metadata, topic, there, now_ms)
        configs = image.configs.get((TOPIC, topic.name), {})
        log_configs = log_config(TopicConfig(config, configs), config)
        for index in range(topic.partitions):
            log_dir: DataDirectory = logs.directories[0]
            log = log_dir.open_partition(
                topic.name, index, topic_id=there.id, config=log_configs, now_ms=now_ms, kind=FollowerLog
            )
            assert isinstance(log, FollowerLog)
            cleaned = log_dir.cleaner_offset(topic.name, index) is not None
            yield Target(topic.name, index, log, log_dir, cleaned or log_configs.rules.compacted)


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
    image.configs[TOPIC, topic.name] = configs
    return made


def _add_partitions(logs: LogDirs, metadata: MetadataLog, topic: SourceTopic, there: ImageTopic, now_ms: int) -> None:
    place, alone = logs.directories[0].id, Assignment((logs.node_id,), (logs.node_id,), logs.node_id)
    missing = [index for index in range(topic.partitions) if index not in there.leader_epochs]
    records = [partition_record(there.id, index, alone, place) for index in missing]
    if records:
        metadata.append(records, now_ms)
        there.leader_epochs.update(dict.fromkeys(missing, 0))


# The copying


class Progress:
    """Prints the amount copied so far to stderr, at most every two seconds."""

    def __init__(self, write: Write, now: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._now = now
        self._printed_s = now()
        self._bytes = 0

    def __call__(self, topic: str, partition: int, size_bytes: int) -> None:
        self._bytes += size_bytes
        if self._now() - self._printed_s >= REPORT_S:
            self._printed_s = self._now()
            self._write(f"{PROGRAM}: {size(self._bytes)}, at {topic}-{partition}\n")


class Copied(NamedTuple):
    """The amount copied, and the number of offsets that the source had deleted."""

    batches: int
    size_bytes: int
    skipped: int


class Mirror:
    """Copies partitions of one cluster, also concurrently: each from the end of the copy, or from the source's log
    start offset, up to the high watermark of the first response."""

    def __init__(self, cluster: Cluster, progress: Progress) -> None:
        self._cluster = cluster
        self._tail = LogTail(cluster)
        self._progress = progress

    async def copy(self, to: Target) -> Copied:
        """Copies a partition. Raises ClientError, Diverged, CorruptRecords, StorageError; batches copied before the
        error stay."""
        log = to.log
        offset, skipped = await self._begin(to)
        goal, batches, size_bytes, max_bytes = -1, 0, 0, FETCH_BYTES
        while goal < 0 or offset < goal:
            fetched = await self._fetch(to, offset, max_bytes)
            goal = fetched.high_watermark if goal < 0 else goal
            if offset >= goal or not len(fetched.records):  # the remaining offsets were removed by compaction
                break
            count = _append(to, fetched)
            if count == 0 and max_bytes >= FETCH_BYTES_MAX:
                raise ClientError(f"{to} at offset {offset}: no batch in a response of {FETCH_BYTES_MAX} bytes")
            # Before Fetch v3 a batch larger than the requested size is cut (KIP-74).
            max_bytes = FETCH_BYTES if count else max_bytes * 2
            offset = max(offset, log.log_end_offset)
            batches, size_bytes = batches + count, size_bytes + len(fetched.records)
            self._progress(to.topic, to.index, len(fetched.records))
            await asyncio.sleep(0)  # appending blocks the event loop: yields to the other copies
        if not log.size_bytes:
            log.begin_at(offset, wall_ms())
        return Copied(batches, size_bytes, skipped)

    async def _begin(self, to: Target) -> tuple[int, int]:
        """Returns (offset to resume from, number of offsets after the copy's end that the source deleted).

        Raises Diverged.
        """
        start = await self._again(to, lambda: self._tail.offset(to.topic, to.index, EARLIEST))
        end = await self._again(to, lambda: self._tail.offset(to.topic, to.index))
        if not to.log.size_bytes:
            return start, 0
        offset = to.log.log_end_offset
        if offset > end:
            raise Diverged(f"{to}: the copy ends at offset {offset}, the source at {end}")
        if offset <= start:
            return start, start - offset
        last = to.log.last_batch()
        records = (await self._fetch(to, offset - 1, FETCH_BYTES)).records
        there = next((bytes(records[: header.size_bytes]) for _, header in formats.sound_headers(records)), b"")
        # Compaction may have removed the batch since, or made it smaller.
        if there and there != last and (not to.log.config.rules.compacted or len(there) == len(last)):
            raise Diverged(f"{to}: at offset {offset - 1} the copy has another batch than the source")
        return offset, 0

    async def _fetch(self, to: Target, offset: int, max_bytes: int) -> Fetched:
        return await self._again(to, lambda: self._tail.fetch(to.topic, to.index, offset, max_bytes))

    async def _again(self, to: Target, attempt: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of `attempt`, retried with new metadata. Raises ClientError."""
        backoff_s, expire = self._cluster.retry_backoff_s, self._cluster.expire
        return await retry(attempt, backoff_s, attempts=ATTEMPTS, on_failure=lambda error: expire(to.topic))


def _append(to: Target, fetched: Fetched) -> int:
    """Appends the batches of a response. The log start offset may be inside the first batch."""
    log, start = to.log, fetched.log_start_offset
    if log.size_bytes:
        return to.append(fetched.records)
    first = next((header.base_offset for _, header in formats.sound_headers(fetched.records)), None)
    if first is None:  # an incomplete batch
        return 0
    log.begin_at(min(first, start) if start >= 0 else first, wall_ms())
    count = to.append(fetched.records)
    if count and log.log_start_offset < start:
        log.delete_records_before(start)
    return count


async def _copy_all(cluster: Cluster, targets: Sequence[Target], write: Write, progress: Progress) -> int:
    source = Mirror(cluster, progress)
    limit = asyncio.Semaphore(AT_ONCE)
    failed = False

    async def one(target: Target) -> None:
        nonlocal failed
        log = target.log
        async with limit:
            try:
                done = await source.copy(target)
            except (ClientError, Diverged, CorruptRecords, StorageError) as error:
                failed = True
                write(f"{target}: not copied beyond offset {log.log_end_offset}: {error}\n")
                return
        gone = f", {done.skipped} earlier offsets were deleted at the source" if done.skipped else ""
        amount = f"{done.batches} batches, {done.size_bytes} bytes"
        write(f"{target}: {log.log_start_offset}..{log.log_end_offset}, {amount} copied{gone}\n")

    await asyncio.gather(*(one(target) for target in targets))
    return FOUND_DAMAGE if failed else 0
