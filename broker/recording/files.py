"""The files of a recording: which may be written, and reading them.

A recording with a ring has two files: the newest at its path, the one before it at the same path with `.1`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING, Any

from ...storage.io import permissions
from ..config.record_options import FORMER, Format, RecordError, RecordOptions, format_of
from .conversion import finish, holds_raw_events
from .exchange import Recording
from .jsonl import JsonReader
from .raw import RAW

if TYPE_CHECKING:
    from .pcapng import PcapngReader

_HEAD_BYTES = 1 << 20  # enough for the first line or block


class NoRecording(ValueError):
    """A file is not a recording, or cannot be read; the error is one line and names the file."""


def claim(options: RecordOptions) -> int:
    """Opens the file of a recording, creates it if it is missing, locks it, and returns its descriptor.

    An existing file must be empty or a recording: no other file is ever overwritten. Raises RecordError.
    """
    path = options.path
    if os.path.exists(path) and not os.path.isfile(path):  # opening a pipe would wait for its other end
        raise RecordError(f"{path} is not a regular file: it cannot be recorded to")
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, permissions.file_mode())
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be recorded to: {getattr(error, 'strerror', None) or error}") from error
    with contextlib.ExitStack() as unless_claimed:
        unless_claimed.callback(os.close, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RecordError(f"{path} is being recorded to already") from error
        paths = [one for one in (path, path + FORMER)[: 1 + options.ring] if os.path.lexists(one)]
        others = [one for one in paths if not os.path.isfile(one) or _meta_of_file(one, options.format) is None]
        if options.contents:
            raw_paths = path + RAW, path + RAW + FORMER
            others += [
                raw for raw in raw_paths if os.path.exists(raw) and not (os.path.isfile(raw) and holds_raw_events(raw))
            ]
        if others:
            raise RecordError(f"{others[0]} exists and is not a recording: it is not overwritten; choose another name")
        unless_claimed.pop_all()
    return fd


def let_go(options: RecordOptions, fd: int) -> None:
    """Closes a claimed file to which nothing was recorded, and removes it if it is new."""
    if os.fstat(fd).st_size == 0:
        with contextlib.suppress(OSError):
            os.remove(options.path)
    os.close(fd)


def _reader_of(format: Format) -> type[JsonReader | PcapngReader]:
    if format is Format.JSON:
        return JsonReader
    from .pcapng import PcapngReader  # only a capture needs dpkt

    return PcapngReader


def _meta_of_file(path: str, format: Format) -> dict[str, Any] | None:
    """Returns the first line of a recording; an empty dict for an empty file, None for a file that is not a
    recording."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return None
    return _reader_of(format).meta_of(head) if head else {}


def read_recording(path: str | os.PathLike[str]) -> Recording:
    """Reads a whole recording of either format, including the raw files that a killed broker left. Damage is noted in
    `damage`. Raises NoRecording for a file that is not a recording, and OSError from the file system."""
    name = os.fspath(path)
    damage: list[str] = []
    try:
        format = format_of(name.removesuffix(FORMER))
    except RecordError as error:
        raise NoRecording(str(error)) from None
    try:
        finish(name)
    except OSError as error:
        damage.append(f"{name}{RAW}: cannot be decoded into {name}: {error.strerror or error}")
    reader_of = _reader_of(format)
    with open(name, "rb") as file:
        meta = reader_of.meta_of(file.read(_HEAD_BYTES))
    if meta is None:
        raise NoRecording(f"{name} is not a recording")
    parts = [name]
    former = name + FORMER
    if meta.get("part", 1) > 1 and (before := _meta_of_file(former, format)) and _is_former(before, meta):
        parts.insert(0, former)
    recording = Recording({key: value for key, value in meta.items() if key not in ("type", "part")}, damage=damage)
    reader = reader_of(recording)
    for part in parts:
        with open(part, "rb") as file:
            reader.read(file, part)
    recording.exchanges.sort(key=lambda exchange: exchange.number)
    return recording


def _is_former(before: dict[str, Any], meta: dict[str, Any]) -> bool:
    same = ("ottla", "cluster_id", "time_ms", "nodes")
    return before.get("part") == meta["part"] - 1 and all(before.get(key) == meta.get(key) for key in same)
