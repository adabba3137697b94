"""The interface between storage and the disk: every disk operation of this package goes through `Files`.

Handles descriptors, mappings and the advisory lock. Errors are `OSError`, as from the system; callers convert them to
`StorageError`. Tests replace `DiskFiles` by a disk that loses everything not synced.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import stat
import sys
from typing import ClassVar, Protocol, cast

from . import permissions

# From this length on a read is a slice of a mapping: no copy, half the CPU per byte of a pread. Below it the mapping of
# a growing file would be renewed more often than it pays.
MAP_BYTES = 64 * 1024
# Linux 5.14: loads the pages of a mapping, and fails if the disk cannot read one. Touching such a page kills the
# process (SIGBUS). It costs a microsecond for 64 KiB.
_MADV_POPULATE_READ = 22
_BAD_PAGE = (errno.EFAULT, getattr(errno, "EHWPOISON", 133))


class File(Protocol):
    """One open file. Positions and sizes are in bytes."""

    def size(self) -> int: ...

    def read(self, position: int, length: int) -> bytes | memoryview:
        """Reads exactly `length` bytes; raises OSError if the file ends before. A memoryview stays valid after
        `close`."""
        ...

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Writes all of `data`, or raises OSError; then any part of it may have reached the file."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    """A held lock."""

    def release(self) -> None: ...


class Files(Protocol):
    """A file system. Paths are strings; a missing file raises FileNotFoundError."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def read_bytes(self, path: str) -> bytes: ...

    def size(self, path: str) -> int: ...

    def exists(self, path: str) -> bool: ...

    def modified_ns(self, path: str) -> int:
        """Returns when the file's bytes last changed, in ns since 1970; retention uses it for records without
        timestamps."""
        ...

    def set_modified_ns(self, path: str, modified_ns: int) -> None: ...

    def copy_mode(self, source: str, target: str) -> bool:
        """Gives a file or folder the permissions of another and, where this process may, its owner and group; returns
        whether anything changed."""
        ...

    def list(self, path: str) -> list[str]: ...

    def make_directory(self, path: str) -> None:
        """Makes a directory with its parents, unless it exists."""
        ...

    def replace(self, source: str, target: str) -> None:
        """Renames atomically; an existing target file is replaced."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Removes an empty directory."""
        ...

    def sync_directory(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock:
        """Takes an exclusive lock, creating the file. Raises BlockingIOError at once if it is held."""
        ...


def write_atomically(
    files: Files, path: str, data: bytes, *, sync: bool = True, sync_directory: bool | None = None
) -> None:
    """Replaces a small file so that a reader finds the old bytes or the new ones, never a mixture.

    With `sync` the new bytes are durable on return. Without it a power loss may leave any contents: only for files that
    can be checked and rebuilt. Without `sync_directory` (by default the same as `sync`) a power loss may leave the old
    file, or none. After an OSError, such as a full disk, the old file stays and the temporary one is removed if
    possible.
    """
    temporary = path + ".tmp"
    try:
        with contextlib.closing(files.open(temporary, create=True)) as file:
            file.truncate(0)
            file.write(0, data)
            if files.exists(path):
                files.copy_mode(path, temporary)
            if sync:
                file.sync()
        files.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(temporary)
        raise
    if sync if sync_directory is None else sync_directory:
        files.sync_directory(os.path.dirname(path))


_NOTHING = memoryview(b"")


class DiskFile:
    """An open file of the real disk: positioned reads and writes, so that no shared file position exists."""

    __slots__ = ("_fd", "_mapped", "_path")
    _can_populate: ClassVar[bool] = sys.platform == "linux"

    def __init__(self, path: str, fd: int):
        self._path = path
        self._fd = fd
        self._mapped = _NOTHING

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, position: int, length: int) -> bytes | memoryview:
        if length < MAP_BYTES:
            data = os.pread(self._fd, length, position)
        else:
            end = position + length
            if len(self._mapped) < end:
                # The old mapping lives as long as any slice of it.
                size = os.fstat(self._fd).st_size
                if size:
                    self._mapped = memoryview(mmap.mmap(self._fd, size, access=mmap.ACCESS_READ))
            data = self._mapped[position:end]
            if DiskFile._can_populate and len(data) == length:
                self._load_pages(position, length)
        if len(data) != length:
            raise OSError(errno.EIO, f"file ends {length - len(data)} bytes early", self._path)
        return data

    def _load_pages(self, position: int, length: int) -> None:
        """Loads all pages of a part of the mapping. Raises OSError where touching them would kill the process."""
        before = position % mmap.PAGESIZE
        try:
            cast(mmap.mmap, self._mapped.obj).madvise(_MADV_POPULATE_READ, position - before, before + length)
        except OSError as error:
            if error.errno in _BAD_PAGE:
                self._mapped = _NOTHING
                raise OSError(errno.EIO, "a page cannot be read", self._path) from error
            if error.errno == errno.EINVAL:  # an older kernel
                DiskFile._can_populate = False

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        written = os.pwrite(self._fd, data, position)
        if written == len(data):
            return
        with memoryview(data) as rest:  # a short write: a full disk, or more than the 2 GiB of one call
            while written < len(rest):
                written += os.pwrite(self._fd, rest[written:], position + written)

    def truncate(self, size: int) -> None:
        # Touching a mapped page after the end of its file kills the process.
        self._mapped = _NOTHING
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        self._mapped = _NOTHING
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class DiskLock:
    """A lock by `fcntl.lockf`, as Apache Kafka's JVM takes it, so that the two brokers exclude each other."""

    # Such locks belong to the process: a second lock of the same process would succeed, and closing any descriptor of
    # the file would release the first. The locked files of this process are therefore recorded, by device and inode.
    _held: ClassVar[set[tuple[int, int]]] = set()

    def __init__(self, path: str):
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in DiskLock._held:
                raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
        self._fd = _created(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, permissions.file_mode())
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(errno.EAGAIN, "locked by another process", path) from error
            raise
        status = os.fstat(self._fd)
        self._key = (status.st_dev, status.st_ino)
        DiskLock._held.add(self._key)

    @staticmethod
    def is_held(path: str) -> bool:
        """Returns whether this process holds the lock of the file; opening and closing the file would release it."""
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) in DiskLock._held

    def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            DiskLock._held.discard(self._key)
            os.close(fd)


def _created(path: str, flags: int, mode: int) -> int:
    """Opens a file, which is created if it is missing; returns its descriptor."""
    if os.geteuid() != 0 or os.path.exists(path):
        return os.open(path, flags, mode)
    fd = os.open(path, flags, mode)
    _chown_to_parent(path)
    return fd


def _chown_to_parent(path: str) -> None:
    """Gives a file created by root to the owner of its folder: a tool that root runs on the data directory of another
    user's broker must not leave files that the broker cannot open."""
    folder = os.stat(os.path.dirname(path) or os.curdir)
    if folder.st_uid != 0:
        os.chown(path, folder.st_uid, folder.st_gid)


class DiskFiles:
    """The real disk. New files and folders have the permissions of permissions.py."""

    def _file_mode(self) -> int:
        return permissions.file_mode()

    def _folder_mode(self) -> int:
        return permissions.folder_mode()

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            return DiskFile(path, _created(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self._file_mode()))
        return DiskFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def modified_ns(self, path: str) -> int:
        return os.stat(path).st_mtime_ns

    def set_modified_ns(self, path: str, modified_ns: int) -> None:
        os.utime(path, ns=(modified_ns, modified_ns))

    def copy_mode(self, source: str, target: str) -> bool:
        wanted, found = os.stat(source), os.stat(target)
        if (found.st_uid, found.st_gid, found.st_mode) == (wanted.st_uid, wanted.st_gid, wanted.st_mode):
            return False
        if (found.st_uid, found.st_gid) != (wanted.st_uid, wanted.st_gid):
            for uid, gid in ((wanted.st_uid, wanted.st_gid), (-1, wanted.st_gid)):
                with contextlib.suppress(PermissionError):  # only root may give a file to another user
                    os.chown(target, uid, gid)
                    break
        if stat.S_IMODE(found.st_mode) != stat.S_IMODE(wanted.st_mode):
            os.chmod(target, stat.S_IMODE(wanted.st_mode))
        return True

    def list(self, path: str) -> list[str]:
        return os.listdir(path)

    def make_directory(self, path: str) -> None:
        try:
            os.mkdir(path, self._folder_mode())
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        except FileNotFoundError:
            parent = os.path.dirname(path)
            if parent in ("", path):
                raise
            self.make_directory(parent)
            self.make_directory(path)
        else:
            if os.geteuid() == 0:
                _chown_to_parent(path)

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> DiskLock:
        return DiskLock(path)


class SharedFiles(DiskFiles):
    """The real disk for files that others may read as well, such as exports: the umask of the process applies."""

    def _file_mode(self) -> int:
        return 0o666

    def _folder_mode(self) -> int:
        return 0o777
