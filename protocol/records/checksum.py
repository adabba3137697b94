"""CRC-32C, from the C extension of the package `crc32c`.

The package itself reads its version from the installed metadata when it is imported: 30 ms of each start.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

Crc32c = Callable[..., int]


def _extension() -> Crc32c:
    package = find_spec("crc32c")
    found = None if package is None else PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if found is None or found.loader is None:  # another build of the package
        from crc32c import crc32c

        return crc32c
    extension: Any = module_from_spec(found)
    found.loader.exec_module(extension)
    return extension.crc32c


crc32c: Crc32c = _extension()
"""Returns the checksum of a buffer: `crc32c(data, value=0)`, where `value` is the checksum of the bytes before it."""
