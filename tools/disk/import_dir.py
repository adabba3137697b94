"""`ottla import-dir`: adds the partitions of another directory to a data directory that has a history of its own.

Owns the command line, the choice of what may be added, and the order in which it is. The source is a data directory of
Ottla or of any Kafka, or one partition's folder, and nobody uses it; nor does a broker use the target, whose lock is
held. Exit code 0; 1 if a topic could not be added; 2 for a mistake.

Each topic is one step. Its partitions are looked through (`storage/check/`), copied into folders with names that the
next opening removes (`-delete`), opened there, which reads every byte of the copy, and closed; then they get their
names, and then the topic its metadata records, in one batch. Before that batch there is no such topic: what already has
its name is put aside by the next start, and the source is as it was. With `--move` the folders are renamed and not
copied where the file system can; until they have their place they are called `-stray`, which nobody removes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ...broker.clock import wall_ms
from ...broker.config.values import Config, TopicConfig
from ...broker.errors import ConfigError, Refused
from ...broker.metadata.adoption import HOLES_MAX, AdoptedTopic, configs_unknown, next_producer_id
from ...broker.metadata.kraft_image import Image, is_foreign, read_image
from ...broker.metadata.log import TOPIC as METADATA_TOPIC
from ...broker.metadata.log import MetadataLog
from ...broker.metadata.topics import INTERNAL_TOPICS, RESOURCE_TOPIC, check_name
from ...broker.replica.log_dirs import LogDir, LogDirs
from ...protocol.arguments import Parser
from ...protocol.internal_records.metadata_records import ProducerIdsRecord
from ...protocol.mistakes import complain
from ...protocol.primitives import ZERO_UUID
from ...storage import inspect, restore
from ...storage.check.directory import Verification
from ...storage.config import LogConfig
from ...storage.errors import StorageError
from ...storage.format import checkpoint
from ...storage.format.file_names import CLEAN_SHUTDOWN, LOCK
from ...storage.format.partition_metadata import FILE_NAME as PARTITION_METADATA
from ...storage.format.partition_metadata import read_topic_id
from ...storage.io.files import DiskFiles, Files
from ...storage.log.recovery import LogCheckpoints
from ...storage.log_dir.directory import new_id
from ...storage.partition_log import PartitionLog, TopicIdPartition
from ..command_line import FOUND_DAMAGE, printing
from .verify import text_of

PROGRAM = "ottla import-dir"
COPY_BYTES = 4 << 20
_STRAY = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})\.[0-9a-f]{32}-stray")
_LEFT_BEHIND = (".deleted", ".tmp", ".lock")
_ANY_GAPS = dataclasses.replace(LogConfig(), rules=dataclasses.replace(LogConfig().rules, compacted=True))


def import_dir(arguments: Sequence[str]) -> int:
    """`ottla import-dir`: the exit code."""
    parser = Parser(prog=PROGRAM, description="Add the partitions of a directory to a data directory with a history.")
    parser.add_argument("source", metavar="SRC", help="a data directory or one partition's folder; nobody uses it")
    parser.add_argument(
        "--data-dir",
        action="append",
        required=True,
        metavar="DIR",
        help="the broker's directory; may repeat",
    )
    parser.add_argument("--topics", default=None, metavar="REGEX", help="only topics whose whole name matches")
    parser.add_argument("--dry-run", action="store_true", help="only look, and say what would be done")
    parser.add_argument("--move", action="store_true", help="take the folders away from the source")
    parsed = parser.parse_args(list(arguments))
    try:
        wanted = None if parsed.topics is None else re.compile(parsed.topics)
    except re.error as error:
        parser.error(f"--topics {parsed.topics}: {error}")
    targets = [Path(path) for path in parsed.data_dir]

    def run(write: Callable[[str], object]) -> int:
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
    write: Callable[[str], object],
    *,
    wanted: re.Pattern[str] | None = None,
    dry_run: bool = False,
    move: bool = False,
    now_ms: int | None = None,
) -> int:
    """The whole run over any disk; its exit code. Raises StorageError for what stops it as a whole."""
    found = read_source(files, os.path.abspath(source), wanted)
    roots = [os.path.abspath(os.fspath(path)) for path in targets]
    if found.root in roots and not found.is_stray:
        raise StorageError(f"{source} is the data directory itself")
    with _source_locked(files, found.root, roots):
        if dry_run:
            run = Import(files, found, _image_at(files, roots), None, None, 0, move)
            return run.all(write)
        logs = LogDirs.open(files, targets, None)
        try:
            now_ms = wall_ms() if now_ms is None else now_ms
            for unusable in logs.unusable:
                raise StorageError(f"{unusable.path} cannot be used: {unusable.failure}")
            metadata = open_metadata(files, logs, now_ms)
            image = Image()
            for record in metadata.replay():
                image.apply(record)
            code = Import(files, found, image, logs, metadata, now_ms, move).all(write)
            logs.close()
        except BaseException:
            logs.release()
            raise
        return code


# The source


@dataclass
class Source:
    """What was found: `folders` is {topic: {index: path}}. `image`: what its metadata log says, if it has one."""

    root: str
    folders: dict[str, dict[int, str]]
    is_clean: bool
    is_stray: bool
    log_starts: Mapping[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    cleaner_offsets: Mapping[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    image: Image | None = None
    notes: list[str] = field(default_factory=list[str])


def read_source(files: Files, path: str, wanted: re.Pattern[str] | None) -> Source:
    """What lies at a path. Raises StorageError if that is nothing to be added."""
    try:
        names = files.list(path)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    if restore.is_divided(files, path):
        raise StorageError(f"{path}: {restore.described(files, path)}")
    folders: dict[str, dict[int, str]] = {}
    name, is_stray, root = os.path.basename(path), False, path
    if any(re.fullmatch(r"[0-9]{20}\.log", inner) for inner in names):
        stray = _STRAY.fullmatch(name)
        key = (stray[1], int(stray[2])) if stray else inspect.partition_of(name)
        if key is None:
            raise StorageError(f"{path} has segments, but is not named TOPIC-PARTITION")
        folders[key[0]] = {key[1]: path}
        is_stray, root = stray is not None, os.path.dirname(path)
    else:
        for inner in names:
            key = inspect.partition_of(inner)
            if key is not None and key[0] != METADATA_TOPIC:
                folders.setdefault(key[0], {})[key[1]] = os.path.join(path, inner)
        if not folders:
            raise StorageError(f"{path} has no partition")
    notes: list[str] = []
    chosen: dict[str, dict[int, str]] = {}
    for topic, found in sorted(folders.items()):
        if wanted is None and topic in INTERNAL_TOPICS and len(folders) > 1:
            notes.append(f"{topic}: left out, it is Kafka's own (--topics {topic} would add it)")
        elif wanted is None or wanted.fullmatch(topic):
            chosen[topic] = found
    if not chosen and not notes:
        raise StorageError(f"no topic of {path} matches {wanted.pattern if wanted else ''}")
    told: list[Mapping[tuple[str, int], int]] = []
    for checkpoint_name in (checkpoint.LOG_START_OFFSET, checkpoint.CLEANER_OFFSET):
        try:
            told.append(checkpoint.read_offsets(files, os.path.join(root, checkpoint_name)))
        except StorageError as error:
            notes.append(f"{error}: nothing is known of it")
            told.append({})
    is_clean = not is_stray and files.exists(os.path.join(root, CLEAN_SHUTDOWN))
    image = None
    with contextlib.suppress(StorageError):  # then nobody knows the configs
        image = _image_at(files, [root])
    log_starts, cleaner_offsets = told
    return Source(root, chosen, is_clean, is_stray, log_starts, cleaner_offsets, image, notes)


def _image_at(files: Files, roots: Sequence[str]) -> Image:
    """What the metadata log in one of the directories says, ours or a KRaft broker's; nothing if there is none."""
    for root in roots:
        folder = os.path.join(root, f"{METADATA_TOPIC}-0")
        if files.exists(folder):
            return read_image(files, folder, was_clean=False)
    return Image()


@contextlib.contextmanager
def _source_locked(files: Files, root: str, targets: Sequence[str]):  # type: ignore[no-untyped-def]
    """Keeps a broker out of the source, where it has a lock file that we may take."""
    path = os.path.join(root, LOCK)
    if root in targets or not files.exists(path):
        yield
        return
    try:
        lock = files.lock(path)
    except BlockingIOError as error:
        raise StorageError(f"{root} is in use by a broker") from error
    except OSError:  # a read-only copy
        yield
        return
    try:
        yield
    finally:
        lock.release()


def open_metadata(files: Files, logs: LogDirs, now_ms: int) -> MetadataLog:
    """The metadata log of directories that are ours, or new. Raises StorageError for those of another Kafka."""
    holder = logs.metadata_holder()
    foreign = holder is not None and is_foreign(files, os.path.join(holder.path, f"{METADATA_TOPIC}-0"))
    if foreign or (holder is None and logs.holds_partitions()):
        path = logs.directories[0].path if holder is None else holder.path
        raise StorageError(f"{path} is of another Kafka: `ottla serve` takes it over at its first start")
    return MetadataLog(logs.open_metadata(now_ms))


# The import


class Prepared(NamedTuple):
    """A partition that is whole and durable under a name that is not its own yet."""

    log_dir: LogDir
    folder: str
    end_offset: int
    log_start_offset: int  # 0: where the first segment begins
    leader_epoch: int
    moved_from: str | None
    bytes: int


class NotAdded(Exception):
    """Why a topic is not added: one line."""


class Import:
    """One run. Without `logs` it only looks."""

    def __init__(
        self,
        files: Files,
        source: Source,
        image: Image,
        logs: LogDirs | None,
        metadata: MetadataLog | None,
        now_ms: int,
        move: bool,
    ) -> None:
        self._files = files
        self._source = source
        self._logs = logs
        self._metadata = metadata
        self._now_ms = now_ms
        self._move = move and not source.is_stray
        self._names = {topic.name for topic in image.topics.values()}
        self._ids = set(image.topics)
        self._next_producer_id = image.next_producer_id
        self._config = Config()

    def all(self, write: Callable[[str], object]) -> int:
        """Every topic, a line for each; the exit code. Raises StorageError when the target fails."""
        code = 0
        for note in self._source.notes:
            write(note + "\n")
        for topic, folders in self._source.folders.items():
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
        if self._logs is None:
            return f"would be added: {amount}"
        prepared: dict[int, Prepared] = {}
        try:
            for index, path in sorted(folders.items()):
                prepared[index] = self._prepare(self._logs, topic, index, topic_id, path)
            adopted = self._put_in_place(self._logs, topic, topic_id, count, prepared)
        except BaseException:
            self._give_back(topic, prepared)
            raise
        self._commit(adopted, prepared)
        for index, one in prepared.items():
            if self._move and one.moved_from is None:
                _remove(self._files, folders[index])
        return f"{'moved' if self._move else 'copied'}: {amount}, {sum(one.bytes for one in prepared.values())} bytes"

    def _check(self, topic: str, folders: Mapping[int, str]) -> None:
        """Raises NotAdded for a topic that may not be added, or whose folders are not sound."""
        try:
            check_name(topic)
        except Refused as refused:
            raise NotAdded(str(refused)) from refused
        if topic in self._names:
            raise NotAdded("a topic of that name exists")
        if max(folders) + 1 - len(folders) > HOLES_MAX:
            raise NotAdded(f"partition {max(folders)} is there, but {max(folders) + 1 - len(folders)} below it are not")
        if self._source.is_stray:
            return  # reading the copy tells
        chosen = {(topic, index) for index in folders}
        verification = Verification(
            self._source.root, chosen=lambda name, index: (name, index) in chosen, files=self._files
        )
        there = {(folder.topic, folder.partition) for folder in verification.folders}
        for index, path in folders.items():
            if (topic, index) not in there:
                raise NotAdded(f"{path} holds no segment")
        for finding in verification.findings():
            place = finding.file.partition("/")[0]
            # All else is made anew from the batches.
            if finding.wrong and finding.part == "log" and inspect.partition_of(place) in chosen:
                raise NotAdded(f"{text_of(finding)} (`ottla verify` and `ottla repair` tell more)")

    def _id(self, folders: Mapping[int, str]) -> bytes:
        """The topic's id as its folders tell it, if it is free."""
        try:
            found = {read_topic_id(self._files, path) for path in folders.values()} - {ZERO_UUID}
        except StorageError as error:
            raise NotAdded(str(error)) from error
        if len(found) > 1:
            raise NotAdded("its folders belong to different topics of one name: partition.metadata differs")
        topic_id = next(iter(found), ZERO_UUID)
        return topic_id if topic_id != ZERO_UUID and topic_id not in self._ids else new_id()

    def _configs(self, topic: str) -> Mapping[str, str]:
        """Those of the source's metadata log, as far as they are known here; else what is safe."""
        image = self._source.image
        if image is None or topic not in {one.name for one in image.topics.values()}:
            cleaned = {name for name, _ in self._source.cleaner_offsets}
            return configs_unknown(topic, self._config, is_cleaned=topic in cleaned)
        kept: dict[str, str] = {}
        for name, value in image.configs.get((RESOURCE_TOPIC, topic), {}).items():
            with contextlib.suppress(ConfigError):
                TopicConfig(self._config, {name: value})
                kept[name] = value
        return kept

    # -- the steps of a topic

    def _prepare(self, logs: LogDirs, topic: str, index: int, topic_id: bytes, path: str) -> Prepared:
        """A partition, whole and durable, under a name of its own in one of the target's directories."""
        place = logs.place()
        log_dir = next(one for one in logs.directories if one.id == place)
        moved_from: str | None = None
        folder = _temporary(log_dir, topic, index, "stray")
        if self._move and self._renamed(path, folder):
            moved_from = path
        else:
            folder = _temporary(log_dir, topic, index, "delete")
            _copy(self._files, path, folder)
        try:
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(os.path.join(folder, PARTITION_METADATA))
            return self._closed(log_dir, folder, topic, index, topic_id, moved_from)
        except BaseException as error:
            self._give_back(topic, {index: Prepared(log_dir, folder, 0, 0, 0, moved_from, 0)})
            if isinstance(error, OSError):
                raise StorageError(f"cannot prepare {folder}: {error}") from error
            raise

    def _closed(
        self, log_dir: LogDir, folder: str, topic: str, index: int, topic_id: bytes, moved_from: str | None
    ) -> Prepared:
        """Opens the log in a folder as after a crash, which reads every byte of it, and closes it."""
        told_start = self._source.log_starts.get((topic, index), 0)
        log = PartitionLog.open(
            self._files,
            folder,
            TopicIdPartition(topic, index, topic_id),
            config=_ANY_GAPS,
            now_ms=self._now_ms,
            checkpoints=LogCheckpoints(clean_shutdown=False, log_start_offset=max(0, told_start)),
        )
        cut, first, start = log.cut_bytes, log.first_segment_offset, log.log_start_offset
        size, epoch, end = log.size_bytes, log.leader_epoch, log.log_end_offset
        log.close()
        if cut and self._source.is_clean:
            raise NotAdded(f"partition {index}: {cut} bytes at its end are no records")
        return Prepared(log_dir, folder, end, start if start > first else 0, epoch, moved_from, size)

    def _renamed(self, path: str, folder: str) -> bool:
        """Whether the folder could be taken as it is: not from another file system."""
        try:
            self._files.replace(path, folder)
        except OSError:
            return False
        return True

    def _put_in_place(
        self, logs: LogDirs, topic: str, topic_id: bytes, count: int, prepared: dict[int, Prepared]
    ) -> AdoptedTopic:
        """Gives the folders their names. What a run that was cut off left there is put aside, as a start does."""
        for log_dir in logs.directories:
            for name, index in log_dir.data.partitions():
                if name == topic:
                    log_dir.data.set_aside(topic, index)
        places: list[tuple[bytes, int]] = []
        for index in range(count):
            one = prepared.get(index)
            if one is None:
                places.append((logs.place(), 0))
                continue
            one.log_dir.data.put_in_place(
                one.folder, topic, index, end_offset=one.end_offset, log_start_offset=one.log_start_offset
            )
            if (clean_to := self._source.cleaner_offsets.get((topic, index))) is not None:
                one.log_dir.data.write_cleaner_offset(topic, index, min(clean_to, one.end_offset))
            prepared[index] = one._replace(folder=os.path.join(one.log_dir.path, f"{topic}-{index}"))
            places.append((one.log_dir.id, one.leader_epoch))
        return AdoptedTopic(topic, topic_id, self._configs(topic), places)

    def _commit(self, adopted: AdoptedTopic, prepared: Mapping[int, Prepared]) -> None:
        """From here on the topic exists."""
        assert self._logs is not None and self._metadata is not None
        records = list(adopted.records(self._logs.node_id))
        newest = next_producer_id(self._files, ((adopted.name, one.folder, True) for one in prepared.values()))
        if newest > self._next_producer_id:
            self._next_producer_id = newest
            node_id = self._logs.node_id
            records.append(ProducerIdsRecord(broker_id=node_id, broker_epoch=-1, next_producer_id=newest))
        self._metadata.append(records, self._now_ms)
        self._names.add(adopted.name)
        self._ids.add(adopted.id)

    def _give_back(self, topic: str, prepared: Mapping[int, Prepared]) -> None:
        """Undoes what was prepared, as far as the disk lets us: the next opening does the rest."""
        for index, one in prepared.items():
            named = os.path.join(one.log_dir.path, f"{topic}-{index}")
            folder = one.folder if self._files.exists(one.folder) else named
            with contextlib.suppress(OSError):
                if one.moved_from is not None:
                    self._files.replace(folder, one.moved_from)
                else:
                    _remove(self._files, folder)


def _temporary(log_dir: LogDir, topic: str, index: int, kind: str) -> str:
    suffix = f"-{index}.{uuid.uuid4().hex}-{kind}"
    return os.path.join(log_dir.path, topic[: 255 - len(suffix)] + suffix)


def _copy(files: Files, source: str, target: str) -> None:
    """Copies the files of a partition, with the times by which records without a timestamp are retained."""
    try:
        files.make_directory(target)
        for name in sorted(files.list(source)):
            if name != PARTITION_METADATA and not name.endswith(_LEFT_BEHIND):
                _copy_file(files, os.path.join(source, name), os.path.join(target, name))
    except OSError as error:
        with contextlib.suppress(OSError):
            _remove(files, target)
        raise StorageError(f"cannot copy {source}: {error}") from error


def _copy_file(files: Files, source: str, target: str) -> None:
    reading = files.open(source)
    try:
        writing = files.open(target, create=True)
        try:
            size = reading.size()
            for position in range(0, size, COPY_BYTES):
                writing.write(position, reading.read(position, min(COPY_BYTES, size - position)))
        finally:
            writing.close()
    finally:
        reading.close()
    files.set_modified_ns(target, files.modified_ns(source))


def _remove(files: Files, folder: str) -> None:
    """Removes a folder. OSError."""
    for name in files.list(folder):
        files.remove(os.path.join(folder, name))
    files.remove_directory(folder)
