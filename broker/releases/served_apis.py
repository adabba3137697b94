"""What one broker serves: the versions of its release that are implemented."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...protocol.schema import Versions


class Apis(NamedTuple):
    """What one broker serves, by API key: what ApiVersions lists, what is answered.

    `readers` is the router's: (key, version) -> what it needs to read and answer such a request.
    """

    advertised: dict[int, Versions]
    served: dict[int, Versions]
    readers: dict[tuple[int, int], Any]
