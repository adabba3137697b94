"""Names of the files beside the partition folders of a data directory, and the node id in meta.properties."""

from __future__ import annotations

import os
import re

from ..errors import StorageError
from ..io.files import Files
from .meta_properties import parse_meta_properties

LOCK = ".lock"
META_PROPERTIES = "meta.properties"
METADATA_TOPIC = "__cluster_metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
CLEAN_SHUTDOWN_BYTES = b'{"version":0,"brokerEpoch":-1}'
SECURITY_FILES = frozenset(
    (
        "client.properties",
        "security.json",
        "security-ca.pem",
        "security-truststore.p12",
        *(f"security-{user}.{kind}" for user in ("admin", "user") for kind in ("pem", "p12", "properties")),
    )
)
"""The files of `ottla serve --security`, for clients and for its next start. They are no data."""
RESTORE = ".ottla-restore"
"""The folder of a restore that is in progress or was interrupted, see restore.py."""


def stored_node_id(files: Files, path: str | os.PathLike[str]) -> int | None:
    """Returns the node id in a directory's meta.properties; None if there is none. Raises StorageError."""
    name = os.path.join(os.path.abspath(os.fspath(path)), META_PROPERTIES)
    try:
        found = parse_meta_properties(files.read_bytes(name), name)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"cannot read {name}: {error}") from error
    text = found.get("node.id", found.get("broker.id"))
    if text is not None and not re.fullmatch(r"[0-9]{1,10}", text):
        raise StorageError(f"malformed {name}: node id {text!r}")
    return None if text is None else int(text)
