"""What is asked of an export, as people write it: offsets and times, folders, schemas."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...offsets import AtOffsets, AtTime, Limit, parse_offsets
from .manifest import ExportError
from .plan import FROM_START, TO_END

_MS = 1000


def limit(text: str, name: str) -> Limit:
    """`earliest`, `latest`, a time (2026-11-21, 2026-11-21T08:00:00Z, UTC unless it says otherwise, or epoch
    milliseconds), or offsets by partition as JSON. Raises ExportError or OptionError, which say `name`."""
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
    """An absolute path of a folder that is mounted here. Raises ExportError for other file systems."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", path):
        url = urlsplit(path)
        if url.scheme.lower() != "file" or url.netloc not in ("", "localhost"):
            raise ExportError(f"cannot export to {path}: only folders that are mounted, here and where the tasks run")
        path = unquote(url.path)
    return os.path.abspath(path)


def check_folder(root: str, format: str, paths: Sequence[str]) -> None:
    """Whether a folder can be exported to from these directories. Raises ExportError."""
    for path in map(os.path.realpath, paths):
        if os.path.commonpath([path, os.path.realpath(root)]) == path:
            raise ExportError(f"cannot export to {root}: it lies in {path}, whose broker would not know what it is")
    if format == "delta" and "%" in root:
        raise ExportError(f"cannot export to {root}: the library deltalake takes no % in the path of a table")


def schema_text(text: str) -> str:
    """A schema that is given itself, or as @FILE. Raises ExportError."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ExportError(f"cannot read the schema in {text[1:]}: {error}") from error
