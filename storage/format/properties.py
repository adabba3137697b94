"""Java's properties files, as far as `meta.properties` uses that format."""

from __future__ import annotations

from ..errors import StorageError


def parse_properties(data: bytes, path: str) -> dict[str, str]:
    """The `key=value` lines of a file. Raises StorageError, also for a `version` that is unknown."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise StorageError(f"malformed {path}: {error}") from error
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip() and line.lstrip()[0] not in "#!":
            key, equals, value = line.partition("=")
            if not equals:
                raise StorageError(f"malformed {path}: {line!r}")
            found[key.strip()] = value.strip()
    if found and found.get("version") not in ("0", "1"):
        raise StorageError(f"{path}: version {found.get('version')!r} is unknown")
    return found
