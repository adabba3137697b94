"""The arguments of an export as users write them: offsets and times, and folders."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from ...objects.logs import places_of
from ...objects.places import Place, is_url, local_path
from ...offsets import AtOffsets, AtTime, Limit, parse_offsets
from .manifest import ExportError
from .plan import FROM_START, TO_END

_MS = 1000

FILE_BYTES_MAX = 4 << 30
"""The largest file for object stores: some copy objects of at most 5 GiB."""


def limit(text: str | Limit, name: str) -> Limit:
    """Parses `earliest`, `latest`, a time (2026-11-21, 2026-11-21T08:00:00Z, UTC by default, or epoch milliseconds), or
    offsets by partition as JSON; a limit stays as it is. Raises ExportError or OptionError, which name the argument
    `name`."""
    if not isinstance(text, str):
        return text
    text = text.strip()
    if text.lower() in ("earliest", "latest"):
        return FROM_START if text.lower() == "earliest" else TO_END
    if text.startswith("{"):
        return AtOffsets(parse_offsets(text, name))
    if re.fullmatch(r"[0-9]{1,18}", text) and not re.fullmatch(r"[0-9]{8}", text):
        return AtTime(int(text))
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ExportError(
            f"{name} is {text!r}: it must be earliest, latest, a time such as 2026-11-21T08:00:00Z or in epoch"
            ' milliseconds, or offsets such as {"topic": {"0": 23}}'
        ) from None
    aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return AtTime(round(aware.timestamp() * _MS))


def folder(path: str) -> str:
    """Returns the absolute path of a mounted folder, or the URL of objects. Raises ExportError for others."""
    if is_url(path):
        return path.rstrip("/")
    if (found := local_path(path)) is None:
        raise ExportError(
            f"cannot export to {path}: it must be a folder mounted here and on the workers, or the URL of objects,"
            " such as s3://bucket/prefix"
        )
    return os.path.abspath(found)


def objects(
    root: str, conf: Mapping[str, str], file_bytes: int, paths: Sequence[str], *, writes: bool = True
) -> Place | None:
    """Returns the place of an export to objects, None for a folder; makes those of logs in object stores known.
    `writes`: the export is to be written. Raises ExportError, StoreError, MissingExtra."""
    sources = places_of(paths, conf)
    if not is_url(root):
        if conf and not sources:
            raise ExportError(f"settings of an object store do not apply to the folder {root}")
        return None
    if file_bytes > FILE_BYTES_MAX:
        raise ExportError(f"file_bytes is {file_bytes}: it must be {FILE_BYTES_MAX} or less in an object store")
    return Place.of(root, conf, writes=writes)


def check_folder(root: str, format: str, paths: Sequence[str], *, has_catalog: bool = False) -> None:
    """Checks that a folder is outside these data directories and can have such a table. Raises ExportError."""
    if is_url(root):
        for path in filter(is_url, paths):
            if f"{root}/".startswith(f"{path.rstrip('/')}/"):
                raise ExportError(f"cannot export to {root}: it is in {path}, the copy of a data directory")
        if format == "iceberg" and not has_catalog:
            raise ExportError(f"cannot export to {root}: an Iceberg table in an object store needs a catalog elsewhere")
        return
    for path in map(os.path.realpath, (one for one in paths if not is_url(one))):
        if os.path.commonpath([path, os.path.realpath(root)]) == path:
            raise ExportError(f"cannot export to {root}: it is in {path}, the data directory of a broker")
    if format == "delta" and "%" in root:
        raise ExportError(f"cannot export to {root}: the library deltalake does not support % in the path of a table")
    if format == "iceberg" and (unsupported := sorted({"#", "?"} & set(root))):
        raise ExportError(
            f"cannot export to {root}: the library pyiceberg does not support {unsupported[0]} in the path of a table"
        )
