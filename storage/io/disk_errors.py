"""Classifies errors of the system: lasting disk failures, and transient errors.

Most are lasting: after EIO, EROFS or a missing file the rest of the disk cannot be trusted either. Transient ones end
when space or descriptors are freed, and do not affect stored data: the operation did not happen, and may succeed later.
(Apache Kafka makes no such distinction: a full disk takes its directory offline.)
"""

from __future__ import annotations

import errno

PASSING = frozenset(
    (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,  # the limit of a process (RLIMIT_FSIZE) or of the file system
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENAMETOOLONG,
    )
)


def is_transient(error: OSError) -> bool:
    """Returns whether the same operation may succeed later, on the same disk."""
    return error.errno in PASSING


def lasting_error(error: BaseException) -> OSError | None:
    """Returns the OSError that caused an exception of storage; None if there is none, or a transient one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            return None if is_transient(cause) else cause
        cause = cause.__cause__
    return None
