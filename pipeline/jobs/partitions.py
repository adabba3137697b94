"""The partitions of a job in log directories, and the configs of their topics."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from ...protocol.internal_records import metadata_values
from ...protocol.internal_records.metadata_values import Configs
from ...storage import inspect
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
    found = {folder.path: folder for path in paths for folder in logs.partitions_at(path)[0]}
    known = {folder.topic for folder in found.values()}
    if missing := sorted(set(topics or ()) - known):
        raise ReadError(f"there is no topic {', '.join(missing)} in {', '.join(paths)}")

    return sorted(
        folder
        for folder in found.values()
        if (topics is None or folder.topic in topics) and (like is None or like.fullmatch(folder.topic))
    )


def topic_configs(paths: Sequence[str]) -> Configs | None:
    """Returns the topic configs from the metadata logs in these directories, or next to these partitions; None without
    any, as with ZooKeeper."""
    configs: Configs | None = None
    for path in map(logs.followed, paths):
        above = [path] if inspect.partition_of(os.path.basename(path)) is None else [path, os.path.dirname(path)]
        for root in above:
            if (found := metadata_values.topic_configs(metadata_log.values(root, logs.files_of(root)))) is not None:
                configs = {**(configs or {}), **found}
    return configs
