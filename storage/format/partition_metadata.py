"""The file `partition.metadata`, which binds a partition folder to its topic id.

Two lines, without a newline at the end: `version: 0` and `topic_id: ` with the 16 bytes in url-safe base64 (22
characters).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re

from ...protocol.primitives import ZERO_UUID
from ..errors import StorageError, storage_errors
from ..io.files import Files, write_atomically

FILE_NAME = "partition.metadata"
_USUAL = b"version: 0\ntopic_id: "


def encode_id(value: bytes) -> str:
    """Encodes 16 bytes as Kafka writes ids: url-safe base64 without padding."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def decode_id(text: str) -> bytes:
    """Decodes the 16 bytes of an id. Raises ValueError if it is malformed."""
    try:
        value = base64.b64decode(text + "==", altchars=b"-_", validate=True) if len(text) == 22 else b""
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not a base64 id") from error
    if len(value) != 16 or encode_id(value) != text:  # Python accepts bits after the 16 bytes
        raise ValueError(f"{text!r} is not an id of 22 characters")
    return value


def write_topic_id(files: Files, directory: str, topic_id: bytes) -> None:
    """Writes the file, without a sync of its folder: the broker's metadata log is the source of topic ids.

    After a power loss the file may be missing, but never has another id, for which the folder would be set aside.
    Raises StorageError.
    """
    with storage_errors(f"cannot write {FILE_NAME} in {directory}"):
        data = f"version: 0\ntopic_id: {encode_id(topic_id)}".encode()
        write_atomically(files, os.path.join(directory, FILE_NAME), data, sync_directory=False)


def read_topic_id(files: Files, directory: str) -> bytes:
    """Returns the topic id of a folder; zeros if it has none, as before Kafka 2.8. Raises StorageError if the file is
    malformed."""
    path = os.path.join(directory, FILE_NAME)
    try:
        data = files.read_bytes(path)
        if data.startswith(_USUAL) and len(data) == len(_USUAL) + 22:  # fast path: a start may read thousands
            return decode_id(data[len(_USUAL) :].decode())
        text = data.decode()
        if not text:  # a power loss before the bytes reached the disk
            return ZERO_UUID
        fields = dict(re.split(r":\s+", line, maxsplit=1) for line in text.splitlines() if line.strip())
        if int(fields["version"]) < 0:
            raise ValueError(f"version {fields['version']}")
        return decode_id(fields["topic_id"].strip())
    except FileNotFoundError:
        return ZERO_UUID
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error}") from error
    except (ValueError, KeyError) as error:
        raise StorageError(f"malformed {path}: {error}") from error


def make_folder(files: Files, directory: str, topic_id: bytes, was_clean: bool) -> bytes:
    """Makes a partition's folder unless it exists, and returns the topic id in its file, or zeros.

    Zeros for `topic_id` accept any id. Raises StorageError if the folder belongs to another topic, or the file is
    malformed.
    """
    with storage_errors(f"cannot open {directory}"):
        files.make_directory(directory)
        has_file = files.exists(os.path.join(directory, FILE_NAME))
    found = ZERO_UUID
    # A power loss may leave an incomplete file; the metadata log has the id.
    with contextlib.suppress(*(() if was_clean or topic_id == ZERO_UUID else (StorageError,))):
        found = read_topic_id(files, directory) if has_file else ZERO_UUID
    if ZERO_UUID not in (topic_id, found) and topic_id != found:
        raise StorageError(f"{directory} belongs to another topic of that name: {found.hex()}, not {topic_id.hex()}")
    return found
