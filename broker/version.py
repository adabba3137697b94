"""The version of this package. Reading it from what is installed takes milliseconds: it is read once."""

from __future__ import annotations

import functools
from importlib.metadata import version


@functools.cache
def own_version() -> str:
    """As `ottla --version` says it."""
    return version("ottla")
