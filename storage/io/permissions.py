"""Permissions of files and folders that hold data: private to their owner, 0600 and 0700, unless OTTLA_UMASK differs.

The environment variable holds an octal umask: 027 gives 0640 and 0750. It reaches every process that writes: broker,
cleaner, recorder, tools and Spark's workers. The umask of the process itself can only take permissions away, so the
commands set it to what the variable says (`apply`). A broker inside of another program leaves that program's umask.
"""

from __future__ import annotations

import os
import re

VARIABLE = "OTTLA_UMASK"
_PRIVATE = 0o077


def told() -> int | None:
    """The umask that the environment asks for, or None. Raises ValueError, one line."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None
    if not re.fullmatch("0?[0-7]{1,3}", text):
        raise ValueError(f"{VARIABLE} is {text!r}, and an octal number like 077 or 022 is expected")
    if int(text, 8) & 0o700:
        raise ValueError(f"{VARIABLE} is {text}, which takes permissions away from the owner: at most 077 can be used")
    return int(text, 8)


def apply() -> None:
    """Sets the umask of this process, where the variable is set. Raises ValueError, one line."""
    found = told()
    if found is not None:
        os.umask(found)


def _mask() -> int:
    try:
        found = told()
    except ValueError:  # reported when the process started
        found = None
    return _PRIVATE if found is None else found


def file_mode() -> int:
    """The mode of a new file."""
    return 0o666 & ~_mask()


def folder_mode() -> int:
    """The mode of a new folder."""
    return 0o777 & ~_mask()
