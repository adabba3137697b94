"""Names of partition folders, of the files beside them, and of those in them that begin with an offset."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from ...protocol.limits import INT32_MAX
from ..io import random_ids

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

FOLDER_NAME_MAX = 255
"""The length of the longest name that a file system takes."""
Aside = Literal["delete", "stray", "future"]
"""The kinds of folders that were set aside: the next start on the directory removes the first, and keeps the second;
the third is a copy for another directory, see future_log.py."""

_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_ASIDE = re.compile(r"(.*)\.[0-9a-f]{32}-(delete|stray|future)")


def partition_of(folder_name: str) -> tuple[str, int] | None:
    """Returns (topic, partition) of a folder by its name; None for a folder that is set aside, and for any other."""
    match = _PARTITION.fullmatch(folder_name)
    return (match[1], int(match[2])) if match and int(match[2]) <= INT32_MAX else None


def aside_of(folder_name: str) -> tuple[str, str]:
    """Returns (former name, kind) of a folder that was set aside; the kind of any other is empty. A long name was
    truncated."""
    match = _ASIDE.fullmatch(folder_name)
    return (match[1], match[2]) if match else (folder_name, "")


def aside_name(topic: str, partition: int, kind: Aside) -> str:
    """Returns a new name for a folder that is set aside. A long topic is truncated."""
    suffix = f"-{partition}.{random_ids.uuid4().hex()}-{kind}"
    return topic[: FOLDER_NAME_MAX - len(suffix)] + suffix


def offsets_in(names: Iterable[str], suffix: str) -> list[int]:
    """Returns the offsets, rising, of the files whose names are an offset in 20 digits and this suffix."""
    size = 20 + len(suffix)
    return sorted(
        int(name[:20]) for name in names if len(name) == size and name.endswith(suffix) and name[:20].isdecimal()
    )
