"""Files in memory behave like the disk, errors included; forks are independent copies of the same bytes."""

from __future__ import annotations

import errno
import gc
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.io.files import MAP_BYTES, DiskFiles, Files, write_atomically
from ottla.storage.io.memory import MemoryFiles
from ottla.storage.partition_log import LogConfig
from ottla_testing.storage.batches import make, open_log, values

# Few names, so that operations meet: files, directories, and names below files.
PATHS = st.sampled_from(["a", "b", "a/a", "a/b", "b/a", "a/a/a", "b/a/b", ""])
SIZES = st.sampled_from([0, 1, 7, 300, MAP_BYTES - 1, MAP_BYTES, MAP_BYTES + 5])
PIECES = st.tuples(st.integers(0, 255), SIZES).map(lambda piece: bytes([piece[0]]) * piece[1])
ON_NAMES = st.one_of(
    st.tuples(st.sampled_from(["open", "read_bytes", "size", "exists", "list", "make_directory"]), PATHS),
    st.tuples(st.sampled_from(["remove", "remove_directory", "sync_directory", "lock", "unlock"]), PATHS),
    st.tuples(st.just("create"), PATHS),
    st.tuples(st.just("replace"), PATHS, PATHS),
    st.tuples(st.just("set_modified_ns"), PATHS, st.integers(0, 2**60)),
)
ON_FILES = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 3), st.integers(-1, 2 * MAP_BYTES), PIECES),
    st.tuples(st.just("append"), st.integers(0, 3), PIECES),
    st.tuples(st.just("truncate"), st.integers(0, 3), st.sampled_from([-1, 0, 1, 299, MAP_BYTES, 3 * MAP_BYTES])),
    st.tuples(st.just("read"), st.integers(0, 3), st.integers(0, 2 * MAP_BYTES), SIZES),
    st.tuples(st.sampled_from(["file_size", "sync", "close"]), st.integers(0, 3)),
)


def memory(now_ns: int = 0) -> MemoryFiles:
    files = MemoryFiles(lambda: now_ns)
    files.make_directory("/top")
    return files


class World:
    """One of the two file systems, with its open files and locks. Every result is a plain value."""

    def __init__(self, files: Files, top: str) -> None:
        self.files = files
        self.top = top
        self.opened: list[Any] = []
        self.locks: dict[str, Any] = {}

    def do(self, operation: tuple[Any, ...]) -> Any:
        name, *arguments = operation
        try:
            return getattr(self, "_" + name)(*arguments)
        except OSError as error:
            return type(error).__name__, error.errno

    def _path(self, name: str) -> str:
        return f"{self.top}/{name}" if name else self.top

    def _open(self, path: str) -> None:
        self.opened.append(self.files.open(self._path(path)))

    def _create(self, path: str) -> None:
        self.opened.append(self.files.open(self._path(path), create=True))

    def _read_bytes(self, path: str) -> bytes:
        return self.files.read_bytes(self._path(path))

    def _size(self, path: str) -> Any:
        is_file = self._path(path) and not isinstance(self.do(("read_bytes", path)), tuple)
        size = self.files.size(self._path(path))
        return size if is_file else "of a directory"

    def _exists(self, path: str) -> bool:
        return self.files.exists(self._path(path))

    def _list(self, path: str) -> list[str]:
        return sorted(self.files.list(self._path(path)))

    def _make_directory(self, path: str) -> None:
        self.files.make_directory(self._path(path))

    def _remove(self, path: str) -> None:
        try:
            self.files.remove(self._path(path))
        except PermissionError as error:  # macOS reports a directory in this way
            raise IsADirectoryError(errno.EISDIR, "a directory") from error

    def _remove_directory(self, path: str) -> None:
        if path:  # the top is a data directory
            self.files.remove_directory(self._path(path))

    def _sync_directory(self, path: str) -> None:
        self.files.sync_directory(self._path(path))

    def _lock(self, path: str) -> None:
        lock = self.files.lock(self._path(path))
        self._unlock(path)  # a lock whose file was removed
        self.locks[path] = lock

    def _unlock(self, path: str) -> None:
        if path in self.locks:
            self.locks.pop(path).release()

    def _replace(self, source: str, target: str) -> None:
        if source and target:
            self.files.replace(self._path(source), self._path(target))

    def _set_modified_ns(self, path: str, modified_ns: int) -> int:
        self.files.set_modified_ns(self._path(path), modified_ns)
        return self.files.modified_ns(self._path(path))

    def _file(self, number: int) -> Any:
        return self.opened[number % len(self.opened)] if self.opened else None

    def _write(self, number: int, position: int, data: bytes) -> None:
        if file := self._file(number):
            file.write(position, data)

    def _append(self, number: int, data: bytes) -> None:
        if file := self._file(number):
            file.write(file.size(), data)

    def _truncate(self, number: int, size: int) -> None:
        if file := self._file(number):
            file.truncate(size)

    def _read(self, number: int, position: int, length: int) -> Any:
        return bytes(file.read(position, length)) if (file := self._file(number)) else None

    def _file_size(self, number: int) -> Any:
        return file.size() if (file := self._file(number)) else None

    def _sync(self, number: int) -> None:
        if file := self._file(number):
            try:
                file.sync()
            except ValueError as error:  # Python's error for a closed descriptor, for this call alone
                raise OSError(errno.EBADF, "closed") from error

    def _close(self, number: int) -> None:
        if file := self._file(number):
            file.close()

    def end(self) -> None:
        for file in self.opened:
            file.close()
        for lock in self.locks.values():
            lock.release()

    def tree(self, path: str = "") -> dict[str, Any]:
        """Returns all names and contents."""
        found: dict[str, Any] = {}
        for name in self._list(path):
            below = f"{path}/{name}" if path else name
            listed = self.do(("list", below))
            found[name] = self.tree(below) if isinstance(listed, list) else self._read_bytes(below)
        return found


@given(st.lists(st.one_of(ON_NAMES, ON_FILES), max_size=25))
def test_operations_have_the_same_result_as_on_disk(operations: list[tuple[Any, ...]]):
    with tempfile.TemporaryDirectory() as folder:
        disk, remembered = World(DiskFiles(), folder), World(memory(), "/top")
        try:
            for operation in operations:
                assert remembered.do(operation) == disk.do(operation), operation
            assert remembered.tree() == disk.tree()
        finally:
            disk.end()
            remembered.end()


@given(st.lists(st.tuples(st.integers(0, 3), st.one_of(ON_NAMES, ON_FILES, st.just(("fork",)))), max_size=40))
def test_forks_are_independent(operations: list[tuple[int, tuple[Any, ...]]]):
    """Each fork is compared with a file system that had the same operations, on bytes of its own."""
    histories: list[list[tuple[Any, ...]]] = [[]]
    worlds = [World(memory(), "/top")]
    for number, operation in operations:
        which = number % len(worlds)
        if operation == ("fork",):
            files = worlds[which].files
            assert isinstance(files, MemoryFiles)
            worlds.append(World(files.fork(), "/top"))
            histories.append([*histories[which], ("forked",)])
        else:
            worlds[which].do(operation)
            histories[which].append(operation)
    for world, history in zip(worlds, histories, strict=True):
        alone = World(memory(), "/top")
        for operation in history:
            if operation == ("forked",):
                alone.opened, alone.locks = [], {}
            else:
                alone.do(operation)
        assert world.tree() == alone.tree()


def file_of(files: MemoryFiles, size: int = 0) -> Any:
    file = files.open("/top/f", create=True)
    file.write(0, bytes(size))
    return file


def test_views_of_long_reads_stay_valid_after_appends_and_close():
    files = memory()
    file = files.open("/top/f", create=True)
    file.write(0, b"1" * MAP_BYTES)
    view = file.read(0, MAP_BYTES)
    assert isinstance(view, memoryview) and view.readonly
    file.write(MAP_BYTES, b"2" * 3 * MAP_BYTES)
    assert bytes(file.read(10, 2 * MAP_BYTES)) == b"1" * (MAP_BYTES - 10) + b"2" * (MAP_BYTES + 10)
    file.close()
    files.remove("/top/f")
    assert bytes(view) == b"1" * MAP_BYTES


def test_view_is_unchanged_by_truncation_and_writes_in_a_fork():
    files = memory()
    file = files.open("/top/f", create=True)
    file.write(0, b"1" * MAP_BYTES)
    view = file.read(0, MAP_BYTES)
    other = files.fork().open("/top/f")
    other.truncate(5)
    other.write(5, b"2" * MAP_BYTES)
    assert bytes(view) == bytes(file.read(0, MAP_BYTES)) == b"1" * MAP_BYTES
    assert bytes(other.read(0, MAP_BYTES + 5)) == b"1" * 5 + b"2" * MAP_BYTES


def test_one_of_two_forks_appends_in_place_and_the_other_to_a_copy():
    files = memory()
    file_of(files, 1000)
    forks = [files.fork() for _ in range(2)]
    for number, fork in enumerate(forks):
        fork.open("/top/f").write(1000, bytes([number + 1]) * 3)
    assert [fork.read_bytes("/top/f")[1000:] for fork in forks] == [b"\1\1\1", b"\2\2\2"]
    assert files.read_bytes("/top/f") == bytes(1000)


def test_gap_in_a_formerly_longer_file_reads_as_zeros():
    files = memory()
    file = files.open("/top/f", create=True)
    file.write(0, b"x" * 100)
    file.truncate(10)
    file.write(20, b"y")
    assert files.read_bytes("/top/f") == b"x" * 10 + bytes(10) + b"y"
    file.truncate(5)
    file.truncate(8)
    assert files.read_bytes("/top/f") == b"x" * 5 + bytes(3)


def test_append_time_depends_only_on_its_own_size():
    files = memory()
    file = files.open("/top/f", create=True)
    views = []
    buffers = set()
    for number in range(3000):
        file.write(number * 100, b"z" * 100)
        if number * 100 > MAP_BYTES:
            views.append(file.read(0, MAP_BYTES))
            buffers.add(id(views[-1].obj))
    assert file.size() == 300_000 and len(buffers) <= 4  # each doubles


def test_file_times_come_from_the_given_clock():
    now = [5]
    files = MemoryFiles(lambda: now[0])
    files.make_directory("/top")
    file = files.open("/top/f", create=True)
    assert files.modified_ns("/top/f") == 5
    now[0] = 9
    file.write(0, b"x")
    assert files.modified_ns("/top/f") == 9
    files.set_modified_ns("/top/f", 3)
    assert (files.modified_ns("/top/f"), files.fork().modified_ns("/top/f")) == (3, 3)


def test_files_of_a_fork_are_not_locked():
    files = memory()
    lock = files.lock("/top/.lock")
    with pytest.raises(BlockingIOError):
        files.lock("/top/.lock")
    other = files.fork().lock("/top/.lock")
    lock.release()
    lock.release()
    files.lock("/top/.lock").release()
    other.release()


def test_deleted_file_is_readable_by_its_holders_only():
    files = memory()
    file = file_of(files, 10)
    files.remove("/top/f")
    file.write(10, b"more")
    assert file.size() == 14 and not files.exists("/top/f")
    file.close()
    uses: list[Callable[[], Any]] = [
        file.size,
        lambda: file.read(0, 1),
        lambda: file.write(0, b"x"),
        lambda: file.truncate(0),
        file.sync,
    ]
    for use in uses:
        with pytest.raises(OSError) as caught:
            use()
        assert caught.value.errno == errno.EBADF


def test_log_in_memory(tmp_path: Path):
    """The same log as on the disk, byte for byte, reopened after a clean and an unclean shutdown."""
    contents = {}
    for files, top in ((memory(), "/top"), (DiskFiles(), str(tmp_path))):
        log = open_log(files, Path(top) / "orders-0", config=LogConfig(segment_bytes=600_000))
        for number in range(20):
            log.append(make(bytes([number]) * 100_000), now_ms=0)
        expected = values(log)
        log.close()
        for clean in (True, False):
            log = open_log(files, Path(top) / "orders-0", config=LogConfig(segment_bytes=600_000), clean=clean)
            assert values(log) == expected
            log.close()
        names = files.list(f"{top}/orders-0")
        contents[top] = {name: files.read_bytes(f"{top}/orders-0/{name}") for name in sorted(names)}
    assert contents["/top"] == contents[str(tmp_path)]


def test_memory_of_removed_files_is_freed():
    files = memory()
    write_atomically(files, "/top/f", b"x" * 1000)
    fork = files.fork()
    assert files.size_bytes() == fork.size_bytes() == 1000
    files.remove("/top/f")
    del fork
    gc.collect()
    assert files.size_bytes() == 0 and files.list("/top") == []
