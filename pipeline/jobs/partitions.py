"""The partitions of a job in log directories, and the configs of their topics."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from ...protocol.internal_records import metadata_values
from ...protocol.internal_records.metadata_values import Configs
from ...storage import inspect
from ...storage.errors import StorageError
from ...storage.log_dir import metadata_log
from ..backend import ReadError
from ..objects import logs


def chosen(
    paths: Sequence[str], *, topics: Sequence[str] | None = None, like: re.Pattern[str] | None = None
) -> list[inspect.PartitionFolder]:
    """Returns the selected partitions, by topic and number, each folder once.

    Raises ReadError for a path that is neither a log directory nor a partition's folder, and for a named topic that
    does not exist.
    """
    found = {folder.path: folder for path in paths for folder in folders(path)}
    known = {folder.topic for folder in found.values()}
    if missing := sorted(set(topics or ()) - known):
        raise ReadError(f"there is no topic {', '.join(missing)} in {', '.join(paths)}")

    def is_meant(topic: str) -> bool:
        return (topics is None or topic in topics) and (like is None or like.fullmatch(topic) is not None)

    return sorted(folder for folder in found.values() if is_meant(folder.topic))


def folders(path: str) -> list[inspect.PartitionFolder]:
    """Returns the partitions of a log directory, or the one of a partition's folder. Raises ReadError."""
    try:
        path, files = logs.followed(path), logs.files_of(path)
        folder = inspect.partition_folder(path, files)
        return [folder] if folder is not None else inspect.partitions(path, files)
    except StorageError as error:
        raise ReadError(str(error)) from error


def topic_configs(paths: Sequence[str]) -> Configs | None:
    """Returns the topic configs from the metadata logs in these directories, or next to these partitions; None without
    any, as with ZooKeeper."""
    configs: Configs | None = None
    for path in map(logs.followed, paths):
        above = [path] if inspect.partition_of(os.path.basename(path)) is None else [path, os.path.dirname(path)]
        for root in above:
            files = logs.files_of(root)
            folder = inspect.partition_folder(os.path.join(root, f"{metadata_values.TOPIC}-0"), files)
            if folder is not None:
                configs = {**(configs or {}), **metadata_values.topic_configs(metadata_log.values(folder, files))}
    return configs


def topic_ids(root: str) -> dict[str, bytes]:
    """Returns the topic ids of the metadata log in a data directory; none without one."""
    files = logs.files_of(root)
    folder = inspect.partition_folder(os.path.join(root, f"{metadata_values.TOPIC}-0"), files)
    return {} if folder is None else metadata_values.topic_ids(metadata_log.values(folder, files))
