"""Schemas of keys and values in Kafka's internal topics, by topic.

A value of `__cluster_metadata` begins with the version of its frame, the record's type and its version, as varints
(KIP-631). In the other internal topics a key begins with its type and a value with its version, each an int16;
`layouts.py` has the types.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from ...protocol.internal_records import metadata_records
from ...protocol.internal_records.layouts import LAYOUTS, layout_of
from ...protocol.layouts import int16, struct_of, unsigned_varint
from ...protocol.named import NamedTuple
from ...protocol.records.schemas import CONTROL_KEY, CONTROL_TYPES, END_TRANSACTION, Rest
from ...protocol.schema import spec
from ...protocol.structs import Struct
from . import kraft_records

METADATA, TRANSACTIONS = "__cluster_metadata", "__transaction_state"


class Part(NamedTuple):
    """The title of a key or value, and the schemas to read it with, one after the other."""

    title: str
    layouts: tuple[Struct, ...]


KEY_TYPE = Struct("type" / int16)
VALUE_VERSION = Struct("version" / int16)
METADATA_FRAME = Struct("frame_version" / unsigned_varint, "type" / unsigned_varint, "version" / unsigned_varint)
_UNKNOWN = Struct("fields" / Rest())
_INT16 = struct.Struct(">h")

# The schemas of control records by type; their first field is the version.
CONTROL_CLASSES: dict[int, type] = {
    spec(cls).api_key: cls
    for cls in (
        kraft_records.LeaderChangeMessage,
        kraft_records.SnapshotHeaderRecord,
        kraft_records.SnapshotFooterRecord,
        kraft_records.KRaftVersionRecord,
        kraft_records.VotersRecord,
    )
}
METADATA_CLASSES: dict[int, type[Any]] = {
    spec(cls).api_key: cls
    for module in (metadata_records, kraft_records)
    for name, cls in vars(module).items()
    if name.endswith("Record") and isinstance(cls, type) and cls not in CONTROL_CLASSES.values()
}


def schemas_of(topic: str | None) -> Iterator[Part]:
    """Yields the schemas of a topic's keys and values, each in its newest version; none for most topics."""
    if topic == METADATA:
        for kind, cls in sorted(METADATA_CLASSES.items()):
            newest = spec(cls).versions.last
            yield Part(f"value of type {kind}: {cls.__name__} v{newest}", (METADATA_FRAME, struct_of(cls, newest)))
    for kind, layout in sorted(LAYOUTS.get(topic or "", {}).items()):
        newest = spec(layout.value).versions.last
        yield Part(f"key of type {kind}: {layout.key.__name__}", (KEY_TYPE, struct_of(layout.key, 0)))
        yield Part(f"its value: {layout.value.__name__} v{newest}", (VALUE_VERSION, struct_of(layout.value, newest)))


def control_key(key: bytes) -> Part:
    """Returns how to read the key of a control record."""
    return Part(f"control record: {CONTROL_TYPES.get(_control_type(key), 'unknown')}", (CONTROL_KEY,))


def control_value(key: bytes | None, value: bytes) -> Part | None:
    """Returns how to read the value of a control record; None for an unknown type."""
    kind = _control_type(key)
    if kind in (0, 1):
        return Part("end of a transaction", (END_TRANSACTION,))
    cls = CONTROL_CLASSES.get(kind)
    if cls is None or len(value) < 2:
        return None
    version = min(max(0, _INT16.unpack_from(value)[0]), spec(cls).versions.last)
    return Part(f"{cls.__name__} v{version}", (struct_of(cls, version),))


def _control_type(key: bytes | None) -> int:
    return _INT16.unpack_from(key, 2)[0] if key is not None and len(key) >= 4 else -1


def key_part(topic: str | None, key: bytes) -> Part | None:
    """Returns how to read a record's key; None if its schema is unknown."""
    found = layout_of(topic, key)
    return Part(found.key.__name__, (KEY_TYPE, struct_of(found.key, 0))) if found else None


def value_part(topic: str | None, key: bytes | None, value: bytes) -> Part | None:
    """Returns how to read a record's value; None if its schema is unknown."""
    if topic == METADATA:
        return _metadata(value)
    found = layout_of(topic, key)
    if found is None or len(value) < 2:
        return None
    cls, version = found.value, _INT16.unpack_from(value)[0]
    if version not in spec(cls).versions:
        return Part(f"{cls.__name__} of unknown version {version}", (VALUE_VERSION, _UNKNOWN))
    return Part(f"{cls.__name__} v{version}", (VALUE_VERSION, struct_of(cls, version)))


def _metadata(value: bytes) -> Part | None:
    if len(value) < 3 or value[0] != 1 or value[1] > 127 or value[2] > 127:
        return None
    kind, version = value[1], value[2]
    cls = METADATA_CLASSES.get(kind)
    if cls is None or version not in spec(cls).versions:
        name = "unknown record" if cls is None else cls.__name__
        return Part(f"{name} v{version}", (METADATA_FRAME, _UNKNOWN))
    return Part(f"{cls.__name__} v{version}", (METADATA_FRAME, struct_of(cls, version)))
