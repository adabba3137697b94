"""`meta.properties`: the cluster and node that a data directory belongs to, in Kafka's versions 0 and 1."""

from __future__ import annotations

import os
import re

from ...protocol.properties import parse_properties
from ..errors import StorageError
from ..io.files import Files
from .file_names import META_PROPERTIES

VERSIONS = ("0", "1")


def read_meta_properties(files: Files, directory: str | os.PathLike[str]) -> dict[str, str]:
    """Returns the pairs of a directory's `meta.properties`, none for an empty file.

    Raises OSError, and StorageError for a key without a value, which no broker writes, and for an unknown version.
    """
    path = os.path.join(directory, META_PROPERTIES)
    try:
        found = parse_properties(files.read_bytes(path))
    except ValueError as error:
        raise StorageError(f"malformed {path}: {error}") from error
    for key, value in found.items():
        if not value:
            raise StorageError(f"malformed {path}: {key!r} has no value")
    if found and found.get("version") not in VERSIONS:
        raise StorageError(f"{path}: version {found.get('version')!r} is unknown; known are {' and '.join(VERSIONS)}")
    return found


def stored_node_id(files: Files, directory: str | os.PathLike[str]) -> int | None:
    """Returns the node id in a directory's `meta.properties`; None if there is none. Raises StorageError."""
    root = os.path.abspath(directory)
    name = os.path.join(root, META_PROPERTIES)
    try:
        found = read_meta_properties(files, root)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot read {name}: {error}") from error
    text = found.get("node.id", found.get("broker.id"))
    if text is not None and not re.fullmatch(r"[0-9]{1,10}", text):
        raise StorageError(f"malformed {name}: node id {text!r}")
    return None if text is None else int(text)
