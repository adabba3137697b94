"""The APIs and versions that a broker serves."""

from __future__ import annotations

from typing import Any

from ...protocol.named import NamedTuple
from ...protocol.schema import Versions


class Apis(NamedTuple):
    """The APIs of a broker by key: the versions that ApiVersions lists, and those that are served.

    `readers` is for the router: by (key, version), the code for such a request.
    """

    advertised: dict[int, Versions]
    served: dict[int, Versions]
    readers: dict[tuple[int, int], Any]
