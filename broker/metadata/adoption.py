"""Takes over data directories of Apache Kafka, once, at the first start.

`adopted_data.py` owns the choice of topics when there is no metadata log of Ottla: by folder names,
`partition.metadata`, the cleaner's checkpoint, and the metadata log of a KRaft broker if there is one
(`kraft_image.py`). The result is written as an Ottla metadata log. No other file is changed: the start that follows
opens each partition, and recovers it if needed.

The takeover is atomic: the log is written, closed and synced in a folder that the next start would remove
(`__cluster_metadata-0.<32 hex>-delete`), and then renamed. A crash before the rename changes nothing, and the next
start repeats the takeover. A KRaft broker's own log is set aside (`-stray`) right before; after a crash between the two
renames the next start finds it there.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from ...protocol.internal_records.metadata_values import TOPIC as METADATA_TOPIC
from ...storage.errors import StorageError
from ...storage.format.file_names import aside_of
from ...storage.format.partition_metadata import encode_id
from ...storage.io.disk_errors import is_transient
from ...storage.io.files import Files, write_atomically
from ...storage.log_dir.directory import DataDirectory
from ..config.values import Config
from ..logs import get_logger
from ..releases.profiles import METADATA_VERSION
from ..replica.log_dirs import LogDirs
from .features import first_records
from .log import is_foreign

METADATA_ELSEWHERE = ".ottla-metadata-elsewhere"  # file with the id of the directory that has the metadata log


def adopt(files: Files, logs: LogDirs, config: Config, now_ms: int, random_uuid: Callable[[], bytes]) -> None:
    """Takes over the partitions in the directories, unless there are none or an Ottla metadata log exists.

    Raises StorageError, with one line for the user, if that is impossible; then nothing has changed.
    """
    holder = logs.metadata_holder()
    holders = [log_dir.path for log_dir in logs.directories if (METADATA_TOPIC, 0) in log_dir.partitions()]
    if len(holders) > 1:
        raise StorageError(f"both {holders[0]} and {holders[1]} have a {METADATA_TOPIC}-0: move the wrong one away")
    try:
        foreign = _foreign_metadata(files, logs)
        if foreign is None and (holder is not None or not logs.holds_partitions()):
            return
        # Only here: with the decoders of Apache Kafka's metadata they take 7 ms of a start.
        from . import adopted_data
        from .kraft_image import read_image

        for unusable in logs.unusable:  # the partitions in it would restart empty
            raise StorageError(
                f"cannot take over the data of another Kafka without {unusable.path}: {unusable.failure}"
            )
        if holder is None:
            _check_alone(files, logs)
        folders = adopted_data.find_folders(files, logs.directories)
        if foreign is None:
            adopted = adopted_data.from_folders(files, logs, folders, config, random_uuid)
            holder = logs.directories[0]
        else:
            holder, path = foreign
            image = read_image(files, path, was_clean=holder.was_clean)
            adopted = adopted_data.from_image(logs, folders, image)
            # In Kafka a feature without a record has level 0, whatever a new cluster has.
            absent = dict.fromkeys(config.profile.features, 0)
            absent.pop(METADATA_VERSION, None)
            adopted.features = absent | image.features
        first = first_records(adopted.features, config.profile)
        prepared = adopted_data.write(files, holder, first, adopted.records(logs.node_id), now_ms)
        logs.begin_metadata(prepared, holder)
    except OSError as error:
        raise StorageError(f"cannot take over the data of another Kafka: {error}") from error
    logger = get_logger()
    for topic, index in adopted.holes:
        logger.warning("partition found in no data directory, starts empty", partition=f"{topic}-{index}")
    if kept := sorted(topic.name for topic in adopted.topics if topic.configs == adopted_data.RETENTION_OFF):
        logger.warning("topic configs unknown, retention turned off", topics=kept)
    logger.info(
        "data of another Kafka taken over",
        topics=len(adopted.topics),
        partitions=sum(len(topic.partitions) for topic in adopted.topics),
        next_producer_id=adopted.next_producer_id,
    )


def mark_others(files: Files, logs: LogDirs) -> None:
    """Writes into each directory which one has the metadata log, so that a start without that directory does not take
    over the others as data of another Kafka. A directory with a disk error is marked as failed; without free space the
    next start tries again.
    """
    holder = logs.metadata_holder() or logs.directories[0]
    for log_dir in logs.directories:
        path = os.path.join(log_dir.path, METADATA_ELSEWHERE)
        try:
            if log_dir is not holder and not files.exists(path):
                write_atomically(files, path, f"{encode_id(holder.id)}\n".encode())
        except OSError as error:
            if is_transient(error):
                get_logger().warning("location of the metadata log not recorded", reason=str(error))
            else:
                log_dir.fail(str(error))


def _check_alone(files: Files, logs: LogDirs) -> None:
    for log_dir in logs.directories:
        path = os.path.join(log_dir.path, METADATA_ELSEWHERE)
        if files.exists(path):
            where = files.read_bytes(path).decode(errors="replace").strip()
            raise StorageError(
                f"the metadata log of {log_dir.path} is in another data directory (directory.id={where}), which was"
                " not given"
            )


def _foreign_metadata(files: Files, logs: LogDirs) -> tuple[DataDirectory, str] | None:
    """Returns the directory and path of a KRaft broker's metadata log: in its place, or set aside by a start that
    crashed between the renames.
    """
    holder = logs.metadata_holder()
    if holder is not None:
        path = os.path.join(holder.path, f"{METADATA_TOPIC}-0")
        return (holder, path) if is_foreign(files, path) else None
    for log_dir in logs.directories:
        for name in files.list(log_dir.path):
            path = os.path.join(log_dir.path, name)
            if aside_of(name) == (f"{METADATA_TOPIC}-0", "stray") and is_foreign(files, path):
                return log_dir, path
    return None
