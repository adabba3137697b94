"""`ottla import-dir`: adds the partitions of another directory to a data directory that is in use already.

Owns the command line, the checks of the source, and the order of the steps. The source is a data directory of Ottla or
of Apache Kafka, or one partition's folder. No broker may use the source or the target; the target's lock is held. Exit
code 0; 1 if a topic could not be added; 2 for wrong arguments.

Topics are added one after the other. The partitions of a topic are verified (`storage/check/`), copied into folders
with the suffix `-delete`, which the next opening of the directory removes, opened there, which reads every byte of the
copy, and closed. Then the folders are renamed, and the topic's metadata records are appended in one batch. The topic
exists from that batch on: after a crash before it, the next start sets renamed folders aside, and the source is
unchanged. With `--move` the folders are renamed instead of copied if source and target share a file system; until they
are in place they have the suffix `-stray`, which no start removes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...broker.clock import wall_ms
from ...broker.config.resource_types import TOPIC
from ...broker.config.values import Config, TopicConfig
from ...broker.errors import ConfigError, Refused
from ...broker.metadata.adopted_data import HOLES_MAX, AdoptedTopic, configs_unknown, next_producer_id
from ...broker.metadata.features import first_records
from ...broker.metadata.kraft_image import Image, read_image
from ...broker.metadata.log import MetadataLog, is_foreign
from ...broker.metadata.topics import INTERNAL_TOPICS, check_name
from ...broker.releases.profiles import own_profile
from ...broker.replica.log_dirs import LogDirs
from ...protocol.arguments import Parser
from ...protocol.internal_records.metadata_records import ProducerIdsRecord
from ...protocol.internal_records.metadata_values import TOPIC as METADATA_TOPIC
from ...protocol.mistakes import complain
from ...protocol.named import NamedTuple
from ...protocol.primitives import ZERO_UUID
from ...storage import restore
from ...storage.check.directory import Verification
from ...storage.config import LogConfig
from ...storage.errors import StorageError
from ...storage.format import checkpoint
from ...storage.format.file_names import CLEAN_SHUTDOWN, aside_name, aside_of, offsets_in, partition_of
from ...storage.format.partition_metadata import FILE_NAME as PARTITION_METADATA
from ...storage.format.partition_metadata import read_topic_id
from ...storage.io import folder_copies
from ...storage.io.files import DiskFiles, Files
from ...storage.log.recovery import LogCheckpoints
from ...storage.log_dir.directory import DataDirectory, held_lock, new_id
from ...storage.partition_log import PartitionLog, TopicIdPartition
from ..command_line import FOUND_DAMAGE, Write, printing
from ..terminal import Progress
from .verify import text_of

PROGRAM = "ottla import-dir"
_NOT_COPIED = (".deleted", ".tmp", ".lock")
_ANY_GAPS = dataclasses.replace(LogConfig(), rules=dataclasses.replace(LogConfig().rules, compacted=True))


def import_dir(arguments: Sequence[str]) -> int:
    parser = Parser(prog=PROGRAM, description="Add the partitions of a directory to a data directory already in use.")
    parser.add_argument("source", metavar="SRC", help="a data directory or one partition's folder, used by no broker")
    parser.add_argument(
        "--data-dir", action="append", required=True, metavar="DIR", help="the broker's data directory; may repeat"
    )
    parser.add_argument("--topics", default=None, metavar="REGEX", help="only topics whose whole name matches")
    parser.add_argument("--dry-run", action="store_true", help="report what would be done, and change nothing")
    parser.add_argument("--move", action="store_true", help="move the folders instead of copying them")
    parsed = parser.parse_args(list(arguments))
    try:
        wanted = None if parsed.topics is None else re.compile(parsed.topics)
    except re.error as error:
        parser.error(f"--topics {parsed.topics}: {error}")
    targets = [Path(path) for path in parsed.data_dir]

    def run(write: Write) -> int:
        try:
            return run_import(
                DiskFiles(), parsed.source, targets, write, wanted=wanted, dry_run=parsed.dry_run, move=parsed.move
            )
        except StorageError as error:
            return complain(PROGRAM, error)

    return printing(PROGRAM, run)


def run_import(
    files: Files,
    source: str,
    targets: Sequence[Path],
    write: Write,
    *,
    wanted: re.Pattern[str] | None = None,
    dry_run: bool = False,
    move: bool = False,
    now_ms: int | None = None,
) -> int:
    """Runs the import on `files` and returns the exit code. Raises StorageError if nothing can be added."""
    found = read_source(files, os.path.abspath(source), wanted)
    roots = [os.path.abspath(os.fspath(path)) for path in targets]
    if found.root in roots and not found.is_stray:
        raise StorageError(f"{source} is a target (--data-dir): expected another directory")
    with contextlib.nullcontext() if found.root in roots else held_lock(files, found.root, may_fail=True):
        if dry_run:
            run = Import(files, found, _image_at(files, roots), None, None, 0, move)
            return run.all(write)
        with opened(files, targets) as logs:
            now_ms = wall_ms() if now_ms is None else now_ms
            for unusable in logs.unusable:
                raise StorageError(f"data directory {unusable.path} failed: {unusable.failure}")
            metadata, image = open_metadata(files, logs, now_ms)
            return Import(files, found, image, logs, metadata, now_ms, move).all(write)


# The source


@dataclass
class Source:
    """The contents of the source. `folders` is {topic: {partition: path}}; `image` is its metadata, if it has a log."""

    root: str
    folders: dict[str, dict[int, str]]
    is_clean: bool
    is_stray: bool
    log_starts: Mapping[tuple[str, int], int]
    cleaner_offsets: Mapping[tuple[str, int], int]
    image: Image | None
    notes: list[str]


def read_source(files: Files, path: str, wanted: re.Pattern[str] | None) -> Source:
    """Reads the source at a path. Raises StorageError if it has no partition to add."""
    try:
        names = files.list(path)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    if restore.is_divided(files, path):
        raise StorageError(f"{path}: {restore.described(files, path)}")
    folders: dict[str, dict[int, str]] = {}
    is_stray, root = False, path
    if offsets_in(names, ".log"):
        former, kind = aside_of(os.path.basename(path))
        key = partition_of(former)
        if key is None or kind not in ("", "stray"):
            raise StorageError(f"{path} has segments, but its name is not TOPIC-PARTITION")
        folders[key[0]] = {key[1]: path}
        is_stray, root = kind == "stray", os.path.dirname(path)
    else:
        for inner in names:
            key = partition_of(inner)
            if key is not None and key[0] != METADATA_TOPIC:
                folders.setdefault(key[0], {})[key[1]] = os.path.join(path, inner)
        if not folders:
            raise StorageError(f"{path} has no partition")
    notes: list[str] = []
    chosen: dict[str, dict[int, str]] = {}
    for topic, found in sorted(folders.items()):
        if wanted is None and topic in INTERNAL_TOPICS and len(folders) > 1:
            notes.append(f"{topic}: internal topic, not added (--topics {topic} adds it)")
        elif wanted is None or wanted.fullmatch(topic):
            chosen[topic] = found
    if not chosen and not notes:
        raise StorageError(f"no topic of {path} matches {wanted.pattern if wanted else ''}")
    offsets: list[Mapping[tuple[str, int], int]] = []
    for checkpoint_name in (checkpoint.LOG_START_OFFSET, checkpoint.CLEANER_OFFSET):
        try:
            offsets.append(checkpoint.read_offsets(files, os.path.join(root, checkpoint_name)))
        except StorageError as error:
            notes.append(f"{error}: checkpoint ignored")
            offsets.append({})
    is_clean = not is_stray and files.exists(os.path.join(root, CLEAN_SHUTDOWN))
    image = None
    with contextlib.suppress(StorageError):  # without the metadata log the configs are unknown
        image = _image_at(files, [root])
    log_starts, cleaner_offsets = offsets
    return Source(root, chosen, is_clean, is_stray, log_starts, cleaner_offsets, image, notes)


def _image_at(files: Files, roots: Sequence[str]) -> Image:
    """Returns the metadata in the log of one of the directories, Ottla's or KRaft's; an empty image without a log."""
    for root in roots:
        folder = os.path.join(root, f"{METADATA_TOPIC}-0")
        if files.exists(folder):
            return read_image(files, folder, was_clean=False)
    return Image()


# The target


@contextlib.contextmanager
def opened(files: Files, targets: Sequence[Path]) -> Generator[LogDirs]:
    """Opens data directories and closes them at the end; an error only releases them, as the end of a process does."""
    logs = LogDirs.open(files, targets, None)
    try:
        yield logs
        logs.close()
    except BaseException:
        logs.release()
        raise


def open_metadata(files: Files, logs: LogDirs, now_ms: int) -> tuple[MetadataLog, Image]:
    """Opens the metadata log of a new or of an Ottla directory and reads it. Raises StorageError for one of Apache
    Kafka."""
    holder = logs.metadata_holder()
    foreign = holder is not None and is_foreign(files, os.path.join(holder.path, f"{METADATA_TOPIC}-0"))
    if foreign or (holder is None and logs.holds_partitions()):
        path = logs.directories[0].path if holder is None else holder.path
        raise StorageError(f"{path} is Apache Kafka's: start `ottla serve` on it first, which takes it over")
    metadata, image = MetadataLog(logs.open_metadata(now_ms), first_records({}, own_profile())), Image()
    for record in metadata.replay():
        image.apply(record)
    return metadata, image


# The import


class Prepared(NamedTuple):
    """A partition that is complete and durable, under a temporary name."""

    log_dir: DataDirectory
    folder: str
    end_offset: int
    log_start_offset: int  # 0: the base offset of the first segment
    leader_epoch: int
    moved_from: str | None
    bytes: int


class NotAdded(Exception):
    """A topic cannot be added; the text is one line."""


@dataclass
class Import:
    """One run of the import; a dry run without `logs`."""

    files: Files
    source: Source
    image: Image
    logs: LogDirs | None
    metadata: MetadataLog | None
    now_ms: int
    move: bool

    def __post_init__(self) -> None:
        self.move = self.move and not self.source.is_stray
        self._names = {topic.name for topic in self.image.topics.values()}
        self._ids = set(self.image.topics)
        self._next_producer_id = self.image.next_producer_id
        self._config = Config()

    def all(self, write: Write) -> int:
        """Adds every topic with a line for each, and returns the exit code. Raises StorageError if the target fails."""
        code = 0
        for note in self.source.notes:
            write(note + "\n")
        progress = Progress("import-dir", "topics")
        write = progress.around(write)
        for topic, folders in progress.each(self.source.folders.items()):
            try:
                write(f"{topic}: {self._topic(topic, folders)}\n")
            except NotAdded as reason:
                write(f"{topic}: not added: {reason}\n")
                code = FOUND_DAMAGE
        return code

    def _topic(self, topic: str, folders: Mapping[int, str]) -> str:
        self._check(topic, folders)
        topic_id = self._id(folders)
        count = max(folders) + 1
        holes = f", {count - len(folders)} of them empty" if count > len(folders) else ""
        amount = f"{count} partition{'s' * (count > 1)}{holes}"
        if self.logs is None:
            return f"would be added: {amount}"
        prepared: dict[int, Prepared] = {}
        try:
            for index, path in sorted(folders.items()):
                prepared[index] = self._prepare(self.logs, topic, index, topic_id, path)
            adopted = self._put_in_place(self.logs, topic, topic_id, count, prepared)
        except BaseException:
            self._give_back(topic, prepared)
            raise
        self._commit(adopted, prepared)
        for index, one in prepared.items():
            if self.move and one.moved_from is None:
                folder_copies.remove_tree(self.files, folders[index])
        return f"{'moved' if self.move else 'copied'}: {amount}, {sum(one.bytes for one in prepared.values())} bytes"

    def _check(self, topic: str, folders: Mapping[int, str]) -> None:
        """Raises NotAdded for a topic with a taken or invalid name, or with missing or damaged partitions."""
        try:
            check_name(topic)
        except Refused as refused:
            raise NotAdded(str(refused)) from refused
        if topic in self._names:
            raise NotAdded("a topic of that name exists")
        if max(folders) + 1 - len(folders) > HOLES_MAX:
            raise NotAdded(f"{max(folders) + 1 - len(folders)} partitions are missing, more than {HOLES_MAX}")
        if self.source.is_stray:
            return  # damage shows when the copy is read
        chosen = {(topic, index) for index in folders}
        verification = Verification(
            self.source.root, chosen=lambda name, index: (name, index) in chosen, files=self.files
        )
        there = {(folder.topic, folder.partition) for folder in verification.folders}
        for index, path in folders.items():
            if (topic, index) not in there:
                raise NotAdded(f"{path} has no segment")
        for finding in verification.findings():
            place = finding.file.partition("/")[0]
            # Indexes and snapshots are rebuilt from the batches.
            if finding.wrong and finding.part == "log" and partition_of(place) in chosen:
                raise NotAdded(f"{text_of(finding)} (see `ottla verify` and `ottla repair`)")

    def _id(self, folders: Mapping[int, str]) -> bytes:
        """Returns the topic id of the folders, or a new one if they have none or it is taken."""
        try:
            found = {read_topic_id(self.files, path) for path in folders.values()} - {ZERO_UUID}
        except StorageError as error:
            raise NotAdded(str(error)) from error
        if len(found) > 1:
            raise NotAdded("its partitions have different topic ids in partition.metadata")
        topic_id = next(iter(found), ZERO_UUID)
        return topic_id if topic_id != ZERO_UUID and topic_id not in self._ids else new_id()

    def _configs(self, topic: str) -> Mapping[str, str]:
        """Returns the source's configs that are valid here; if they are unknown, configs that delete nothing."""
        image = self.source.image
        if image is None or topic not in {one.name for one in image.topics.values()}:
            cleaned = {name for name, _ in self.source.cleaner_offsets}
            return configs_unknown(topic, self._config, is_cleaned=topic in cleaned)
        kept: dict[str, str] = {}
        for name, value in image.configs.get((TOPIC, topic), {}).items():
            with contextlib.suppress(ConfigError):
                TopicConfig(self._config, {name: value})
                kept[name] = value
        return kept

    # The steps of a topic

    def _prepare(self, logs: LogDirs, topic: str, index: int, topic_id: bytes, path: str) -> Prepared:
        """Copies or moves a partition into a target directory, under a temporary name, and makes it durable."""
        place = logs.place()
        log_dir = next(one for one in logs.directories if one.id == place)
        moved_from: str | None = None
        folder = os.path.join(log_dir.path, aside_name(topic, index, "stray"))
        if self.move:
            with contextlib.suppress(OSError):  # the source is on another file system
                self.files.replace(path, folder)
                moved_from = path
        if moved_from is None:
            folder = os.path.join(log_dir.path, aside_name(topic, index, "delete"))
            _copy(self.files, path, folder)
        try:
            with contextlib.suppress(FileNotFoundError):
                self.files.remove(os.path.join(folder, PARTITION_METADATA))
            return self._closed(log_dir, folder, topic, index, topic_id, moved_from)
        except BaseException as error:
            self._give_back(topic, {index: Prepared(log_dir, folder, 0, 0, 0, moved_from, 0)})
            if isinstance(error, OSError):
                raise StorageError(f"cannot prepare {folder}: {error}") from error
            raise

    def _closed(
        self, log_dir: DataDirectory, folder: str, topic: str, index: int, topic_id: bytes, moved_from: str | None
    ) -> Prepared:
        """Opens the log in a folder as after an unclean shutdown, which reads every byte of it, and closes it."""
        noted_start = self.source.log_starts.get((topic, index), 0)
        log = PartitionLog.open(
            self.files,
            folder,
            TopicIdPartition(topic, index, topic_id),
            config=_ANY_GAPS,
            now_ms=self.now_ms,
            checkpoints=LogCheckpoints(clean_shutdown=False, log_start_offset=max(0, noted_start)),
        )
        cut, first, start = log.cut_bytes, log.first_segment_offset, log.log_start_offset
        size, epoch, end = log.size_bytes, log.leader_epoch, log.log_end_offset
        log.close()
        if cut and self.source.is_clean:
            raise NotAdded(f"partition {index}: {cut} damaged bytes at its end")
        return Prepared(log_dir, folder, end, start if start > first else 0, epoch, moved_from, size)

    def _put_in_place(
        self, logs: LogDirs, topic: str, topic_id: bytes, count: int, prepared: dict[int, Prepared]
    ) -> AdoptedTopic:
        """Renames the folders to their final names; folders left by an interrupted run are set aside first."""
        for log_dir in logs.directories:
            for name, index in log_dir.partitions():
                if name == topic:
                    log_dir.set_aside(topic, index)
        places: list[tuple[bytes, int]] = []
        for index in range(count):
            one = prepared.get(index)
            if one is None:
                places.append((logs.place(), 0))
                continue
            one.log_dir.put_in_place(
                one.folder, topic, index, end_offset=one.end_offset, log_start_offset=one.log_start_offset
            )
            if (clean_to := self.source.cleaner_offsets.get((topic, index))) is not None:
                one.log_dir.write_cleaner_offset(topic, index, min(clean_to, one.end_offset))
            prepared[index] = one._replace(folder=os.path.join(one.log_dir.path, f"{topic}-{index}"))
            places.append((one.log_dir.id, one.leader_epoch))
        return AdoptedTopic(topic, topic_id, self._configs(topic), places)

    def _commit(self, adopted: AdoptedTopic, prepared: Mapping[int, Prepared]) -> None:
        """Appends the metadata records of the topic, which exists from then on."""
        assert self.logs is not None and self.metadata is not None
        records = list(adopted.records(self.logs.node_id))
        newest = next_producer_id(self.files, ((adopted.name, one.folder, True) for one in prepared.values()))
        if newest > self._next_producer_id:
            self._next_producer_id = newest
            node_id = self.logs.node_id
            records.append(ProducerIdsRecord(broker_id=node_id, broker_epoch=-1, next_producer_id=newest))
        self.metadata.append(records, self.now_ms)
        self._names.add(adopted.name)
        self._ids.add(adopted.id)

    def _give_back(self, topic: str, prepared: Mapping[int, Prepared]) -> None:
        """Removes or moves back the prepared folders; the next opening removes those that an I/O error leaves."""
        for index, one in prepared.items():
            named = os.path.join(one.log_dir.path, f"{topic}-{index}")
            folder = one.folder if self.files.exists(one.folder) else named
            with contextlib.suppress(OSError):
                if one.moved_from is not None:
                    self.files.replace(folder, one.moved_from)
                else:
                    folder_copies.remove_tree(self.files, folder)


def _copy(files: Files, source: str, target: str) -> None:
    """Copies the files of a partition with their times, by which retention treats records without a timestamp."""
    try:
        files.make_directory(target)
        for name in sorted(files.list(source)):
            if name != PARTITION_METADATA and not name.endswith(_NOT_COPIED):
                folder_copies.copy_file(files, os.path.join(source, name), os.path.join(target, name))
    except OSError as error:
        with contextlib.suppress(OSError):
            folder_copies.remove_tree(files, target)
        raise StorageError(f"cannot copy {source}: {error}") from error
