"""The data of a partition that is not durable yet: one flush at a time makes it durable, in any thread.

Has the lists of files written since the last flush, the recovery point and, after a failed sync, the reason why
durability is unknown. The owner of the log records its writes while another thread may be syncing: a flush covers only
what was recorded before it began.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterable

from ..errors import StorageError
from ..io.files import Files
from ..segments.segment import Segment


class Flusher:
    """The flusher of one log. `end_offset` returns the log end offset, which rises only after the writes it covers were
    recorded."""

    __slots__ = (
        "_closed",
        "_directory",
        "_directory_changed",
        "_end_offset",
        "_files",
        "_flushing",
        "_lock",
        "_names",
        "_segments",
        "failure",
        "recovery_point",
        "since_ms",
    )

    def __init__(self, files: Files, directory: str, recovery_point: int, end_offset: Callable[[], int]) -> None:
        self._files = files
        self._directory = directory
        self._end_offset = end_offset
        self._flushing = threading.Lock()  # held during a flush
        self._lock = threading.Lock()  # for the lists, never held during disk operations
        self._segments: list[Segment] = []
        self._names: dict[str, None] = {}  # names of files; a set takes three times as much, and each log has one
        self._directory_changed = False
        self._closed = False
        self.since_ms: int | None = None
        """The time of the first append that no flush has taken up."""
        self.recovery_point = recovery_point
        """All below this offset is durable."""
        self.failure: str | None = None
        """The reason why nothing can be made durable any more: after a failed sync a second one would not report lost
        data."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to be synced."""
        return not (self._segments or self._names or self._directory_changed)

    def wrote(self, segment: Segment, now_ms: int) -> None:
        """Adds a segment to those to be synced, because it was appended to. Called before the log end offset rises."""
        with self._lock:
            if self.since_ms is None:
                self.since_ms = now_ms
            if not self._segments or self._segments[-1] is not segment:
                self._segments.append(segment)

    def wrote_indexes(self, segment: Segment) -> None:
        """Adds a segment to those to be synced, because its index files were written."""
        with self._lock:
            if segment not in self._segments:
                self._segments.append(segment)
                self._directory_changed = True

    def cover_indexes(self, segment: Segment) -> None:
        """Makes the index files of a complete segment durable, if the recovery point has reached its end: a recovery
        would not check them any more. Raises OSError."""
        with self._flushing:
            if self.recovery_point >= segment.next_offset and self.failure is None:
                try:
                    segment.sync()
                except OSError as error:
                    self._undone(error, [], {}, False)
                    raise

    def wrote_all(self, segments: Iterable[Segment], names: Iterable[str]) -> None:
        """Adds segments and small files (by name) that a recovery left to those to be synced."""
        with self._lock:
            for segment in segments:
                segment.doubt_files()
                self._segments.append(segment)
            self._names.update(dict.fromkeys(names))
            self._directory_changed = bool(self._segments) or self._directory_changed

    def wrote_file(self, name: str) -> None:
        """Adds a small file of the folder to those to be synced, because it was written."""
        with self._lock:
            self._names[name] = None

    def changed_directory(self) -> None:
        """Requests a sync of the folder, because a file was created, renamed or removed."""
        with self._lock:
            self._directory_changed = True

    def forget(self, segments: Iterable[Segment]) -> None:
        """Removes segments that are no longer part of the log."""
        gone = set(map(id, segments))
        with self._lock:
            self._segments = [segment for segment in self._segments if id(segment) not in gone]
            self._directory_changed = True

    def flush(self) -> int:
        """Makes everything written so far durable and returns the new recovery point.

        A second caller waits for the first. If no descriptor was free for a file, nothing is lost and a later flush
        tries again. Raises StorageError.
        """
        with self._flushing:
            with self._lock:
                if self.failure is not None:
                    raise StorageError(f"{self._directory} cannot be synced: {self.failure}")
                end_offset = self._end_offset()
                segments, self._segments = self._segments, []
                names, self._names = self._names, {}
                since_ms, self.since_ms = self.since_ms, None
                directory_changed, self._directory_changed = self._directory_changed or bool(names), False
            try:
                self._sync(segments, names, directory_changed)
            except OSError as error:
                if not self._closed:
                    self._undone(error, segments, names, directory_changed)
                    self.since_ms = self.since_ms if since_ms is None else since_ms
                raise StorageError(f"cannot sync {self._directory}: {error}") from error
            self.recovery_point = max(self.recovery_point, end_offset)
            return self.recovery_point

    def _sync(self, segments: list[Segment], names: Iterable[str], directory_changed: bool) -> None:
        for segment in segments:
            segment.sync()
        for name in sorted(names):
            path = os.path.join(self._directory, name)
            # a damaged snapshot is removed when it is read
            with contextlib.suppress(FileNotFoundError), contextlib.closing(self._files.open(path)) as file:
                file.sync()
        if directory_changed:
            self._files.sync_directory(self._directory)

    def _undone(self, error: OSError, segments: list[Segment], names: dict[str, None], directory_changed: bool) -> None:
        """Returns the files of a failed flush to the lists, or after a failed sync sets `failure`."""
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            self.failure = f"a sync failed: {error}"
            return
        with self._lock:
            self._segments = [*segments, *(segment for segment in self._segments if segment not in segments)]
            self._names.update(names)
            self._directory_changed = self._directory_changed or directory_changed

    def close(self) -> None:
        """Marks the files as closed: a sync in progress may fail, without consequences."""
        self._closed = True
