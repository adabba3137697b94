"""`meta.properties`: the cluster and node that a data directory belongs to, in Kafka's versions 0 and 1."""

from __future__ import annotations

from ...protocol.properties import parse_properties
from ..errors import StorageError

VERSIONS = ("0", "1")


def parse_meta_properties(data: bytes, path: str) -> dict[str, str]:
    """Returns the pairs of a `meta.properties`, none for an empty file.

    Raises StorageError for a key without a value, which no broker writes, and for an unknown version.
    """
    try:
        found = parse_properties(data)
    except ValueError as error:
        raise StorageError(f"malformed {path}: {error}") from error
    for key, value in found.items():
        if not value:
            raise StorageError(f"malformed {path}: {key!r} has no value")
    if found and found.get("version") not in VERSIONS:
        raise StorageError(f"{path}: version {found.get('version')!r} is unknown; known are {' and '.join(VERSIONS)}")
    return found
