"""Which errors of the system speak against the disk.

Most do: after EIO, EROFS or a file that is gone nobody knows what else is. Some pass when somebody makes room or gives
descriptors back, and say nothing of what lies on the disk: what was asked for did not happen, and may the next time.
(Apache Kafka makes no such difference: a full disk takes its directory offline.)
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


def is_passing(error: OSError) -> bool:
    """Whether the same may succeed later, on the same disk."""
    return error.errno in PASSING


def lasting_error(error: BaseException) -> OSError | None:
    """The error of the disk behind an exception of ours; None if there is none, or one that passes."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            return None if is_passing(cause) else cause
        cause = cause.__cause__
    return None
