"""The version of this package. Reading it from the installed metadata takes milliseconds, so the result is cached."""

from __future__ import annotations

import functools
from importlib.metadata import version


@functools.cache
def own_version() -> str:
    """Returns the version that `ottla --version` prints."""
    return version("ottla")
