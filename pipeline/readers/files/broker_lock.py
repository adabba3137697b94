"""The state of a data directory: in use by a broker, and closed cleanly by the last one."""

from __future__ import annotations

import fcntl
import os
import struct
import sys

from ....storage.format.file_names import CLEAN_SHUTDOWN, LOCK
from ....storage.io.files import DiskLock
from ...objects.logs import files_of, on_this_machine

# struct flock: type, whence, start, length, pid on Linux; start, length, pid, type, whence on macOS and the BSDs.
_FLOCK = struct.Struct("hhqqi4x") if sys.platform == "linux" else struct.Struct("qqihh")


def was_closed(root: str) -> bool:
    """Returns whether the last broker closed the data directory cleanly, so that its files are consistent with each
    other."""
    return files_of(root).exists(os.path.join(root, CLEAN_SHUTDOWN))


def is_in_use(root: str) -> bool:
    """Returns whether a broker has this data directory open; True if that cannot be determined. Objects are a copy."""
    local = on_this_machine(root)
    if local is None:
        return False
    try:
        return not was_closed(root) and is_locked(os.path.join(local, LOCK))
    except OSError:
        return True


def is_locked(path: str) -> bool:
    """Returns whether a process holds the lock of this file; True if that cannot be determined.

    Queries the lock (F_GETLK) without taking it. If this process holds the lock, the file is not opened: closing any
    descriptor of it would release the lock.
    """
    try:
        if DiskLock.is_held(path):
            return True
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        linux = sys.platform == "linux"
        query = (fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0) if linux else (0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
        lock = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, _FLOCK.pack(*query)))
        return lock[0 if linux else 3] != fcntl.F_UNLCK
    except OSError:
        return True
    finally:
        os.close(fd)
