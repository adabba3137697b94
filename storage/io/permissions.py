"""Permissions of data files and folders: private to their owner, 0600 and 0700, unless OTTLA_UMASK is set.

The environment variable holds an octal umask: 027 gives 0640 and 0750. It applies to every process that writes: broker,
cleaner, recorder, tools and Spark's workers. The umask of the process itself can only remove permissions, so the
commands set it to the variable's value (`apply`). A broker embedded in another program leaves that program's umask
alone.
"""

from __future__ import annotations

import os
import re

VARIABLE = "OTTLA_UMASK"
_PRIVATE = 0o077


def configured_umask() -> int | None:
    """Returns the umask in OTTLA_UMASK, or None if that is not set. Raises ValueError with a message of one line."""
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None
    if not re.fullmatch("0?[0-7]{1,3}", text):
        raise ValueError(f"{VARIABLE} is {text!r}, but must be an octal number such as 077 or 022")
    if int(text, 8) & 0o700:
        raise ValueError(f"{VARIABLE} is {text}, which takes permissions away from the owner; the most is 077")
    return int(text, 8)


def apply() -> None:
    """Sets the umask of this process if OTTLA_UMASK is set. Raises ValueError with a message of one line."""
    found = configured_umask()
    if found is not None:
        os.umask(found)


def _mask() -> int:
    try:
        found = configured_umask()
    except ValueError:  # reported when the process started
        found = None
    return _PRIVATE if found is None else found


def file_mode() -> int:
    """Returns the mode of a new file."""
    return 0o666 & ~_mask()


def folder_mode() -> int:
    """Returns the mode of a new folder."""
    return 0o777 & ~_mask()
