"""Whether a broker has a data directory open, and whether the last one that had it closed it."""

from __future__ import annotations

import fcntl
import os
import struct
import sys

from ....storage.format.file_names import CLEAN_SHUTDOWN, LOCK
from ....storage.io.files import DiskLock

# struct flock: on Linux type, whence, start, length, pid; on macOS and the BSDs the last before the first
_FLOCK = struct.Struct("hhqqi4x") if sys.platform == "linux" else struct.Struct("qqihh")


def was_closed(root: str) -> bool:
    """Whether all that belongs together in a data directory is there: who had it open has closed it."""
    return os.path.exists(os.path.join(root, CLEAN_SHUTDOWN))


def is_in_use(root: str) -> bool:
    """Whether a broker has this data directory open, as far as can be told.

    The lock is asked for, not taken. To open its file and close it again would give the lock up if this process held
    it: then the file is not opened. If it cannot be told, it is in use.
    """
    path = os.path.join(root, LOCK)
    try:
        if was_closed(root):
            return False
        if DiskLock.is_held(path):
            return True
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        linux = sys.platform == "linux"
        asked = (fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0) if linux else (0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
        told = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, _FLOCK.pack(*asked)))
        return told[0 if linux else 3] != fcntl.F_UNLCK
    except OSError:
        return True
    finally:
        os.close(fd)
