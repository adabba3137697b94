"""The files of a recording: whether they may be written, and reading them.

A recording with a ring has two files: the newest at its path, what was before at the same with `.1`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import Any

from ...storage.io import permissions
from ..config.record_options import FORMER, Format, RecordError, RecordOptions, format_of
from . import jsonl
from .conversion import finish, options_of
from .raw_files import RAW
from .recorded import NoRecording, Recording

_HEAD_BYTES = 1 << 20  # of which the first line or block is a part


def claim(options: RecordOptions) -> int:
    """The descriptor of the file, which is there now and locked for this recording. Nothing of it is changed yet.

    A file that is there already has to be empty or a recording: nothing else is ever overwritten. Raises RecordError.
    """
    path = options.path
    try:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for its other end
                raise RecordError(f"{path} is no file that can be recorded to")
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, permissions.file_mode())
    except (OSError, ValueError) as error:
        if isinstance(error, RecordError):
            raise
        raise RecordError(f"{path} cannot be recorded to: {getattr(error, 'strerror', None) or error}") from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RecordError(f"{path} is being recorded to already") from error
        if os.fstat(fd).st_size and _meta(os.pread(fd, _HEAD_BYTES, 0), options.format) is None:
            raise RecordError(f"{path} is there already, and no recording: it is left as it is")
        former = path + FORMER
        if options.ring and os.path.lexists(former) and _meta_of_file(former, options.format) is None:
            raise RecordError(f"{former} is there already, and no recording: it is left as it is")
        for raw in (path + RAW, path + RAW + FORMER) if options.contents else ():
            if os.path.exists(raw) and not _holds_raw_events(path, raw):
                raise RecordError(f"{raw} is there already, and no recording: it is left as it is")
    except BaseException:
        os.close(fd)
        raise
    return fd


def _meta(head: bytes, format: Format) -> dict[str, Any] | None:
    if format is Format.JSON:
        return jsonl.meta_of(head.partition(b"\n")[0])
    from . import pcapng  # only a capture needs dpkt

    return pcapng.meta_of(memoryview(head))


def _meta_of_file(path: str, format: Format) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return None
    return _meta(head, format) if head else {}


def read_recording(path: str | os.PathLike[str]) -> Recording:
    """A whole recording, of either kind. What cannot be read of it is named in `damage`. Raises NoRecording, one line,
    for a file that is none at all, and OSError as the system gives it."""
    name = os.fspath(path)
    try:
        format = format_of(name.removesuffix(FORMER))
    except RecordError as error:
        raise NoRecording(str(error)) from None
    unfinished = _finish(name)
    meta = _meta_of_file_checked(name, format)
    parts = [name]
    former = name + FORMER
    if meta.get("part", 1) > 1 and (before := _meta_of_file(former, format)) and _is_former(before, meta):
        parts.insert(0, former)
    recording = Recording({key: value for key, value in meta.items() if key not in ("type", "part")})
    recording.damage += unfinished
    if format is Format.JSON:
        reader = jsonl.JsonReader(recording)
        for part in parts:
            with open(part, "rb") as file:
                for number, line in enumerate(file, 1):
                    if number > 1:
                        reader.read(line, part, number)
    else:
        from . import pcapng

        captured = pcapng.PcapngReader(recording)
        for part in parts:
            captured.read(memoryview(Path(part).read_bytes()), part)
    recording.exchanges.sort(key=lambda exchange: exchange.number)
    return recording


def _holds_raw_events(path: str, raw: str) -> bool:
    try:
        return not os.stat(raw).st_size or options_of(path, raw) is not None
    except OSError:
        return False


def _finish(path: str) -> list[str]:
    """Has the file hold what a killed broker left in raw files; why it cannot, one line."""
    try:
        finish(path)
    except OSError as error:
        return [f"{path}{RAW}: cannot be decoded into {path}: {error.strerror or error}"]
    return []


def _meta_of_file_checked(path: str, format: Format) -> dict[str, Any]:
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
    meta = _meta(head, format)
    if meta is None:
        raise NoRecording(f"{path} is no recording")
    return meta


def _is_former(before: dict[str, Any], meta: dict[str, Any]) -> bool:
    same = ("ottla", "cluster_id", "time_ms", "nodes")
    return before.get("part") == meta["part"] - 1 and all(before.get(key) == meta.get(key) for key in same)
