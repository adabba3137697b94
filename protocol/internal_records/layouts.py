"""The layouts of the records of internal topics: groups and offsets, transactions, the state of share partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ..compiler import parse
from ..errors import MalformedMessage
from ..named import NamedTuple
from ..schema import is_message, spec
from . import (
    consumer_group_records,
    group_records,
    share_group_records,
    share_state_records,
    streams_group_records,
    transaction_records,
)

STATES = (0, 2, 3, 4)  # available, acknowledged, archiving, archived
"""The delivery states of stored share state."""


class Layout(NamedTuple):
    """The classes of a record type. `check` finds what a value that can be parsed may not have."""

    key: type[Any]
    value: type[Any]
    check: Callable[[Any], str | None] | None = None


def _layouts(
    keys: Mapping[int, type[Any]], *modules: ModuleType, check: Callable[[Any], str | None] | None = None
) -> dict[int, Layout]:
    """Pairs the keys by their type with the classes of values in modules."""
    members = [cls for module in modules for name, cls in vars(module).items() if name.endswith("Value")]
    values = {spec(cls).api_key: cls for cls in members if is_message(cls)}
    return {kind: Layout(key, values[kind], check) for kind, key in keys.items()}


def _share_state(value: Any) -> str | None:
    last = -1
    for one in value.state_batches:
        text = f"offsets {one.first_offset} to {one.last_offset}"
        if not last < one.first_offset <= one.last_offset:
            return f"{text} after {last}"
        if one.delivery_state not in STATES:
            return f"{text} in delivery state {one.delivery_state}"
        last = one.last_offset
    return None


_GROUP_KEYS: Mapping[int, type[Any]] = {
    1: group_records.OffsetCommitKey,
    2: group_records.GroupMetadataKey,
    16: group_records.RegularExpressionKey,
    **dict.fromkeys((3, 4, 6, 11, 12, 15, 17, 20, 23), group_records.GroupKey),
    **dict.fromkeys((5, 7, 8, 10, 13, 14, 19, 21, 22), group_records.MemberKey),
}
_GROUPS = _layouts(_GROUP_KEYS, group_records, consumer_group_records, share_group_records, streams_group_records)
_SHARE_KEYS: Mapping[int, type[Any]] = dict.fromkeys((0, 1), share_state_records.ShareStateKey)
LAYOUTS: Mapping[str, Mapping[int, Layout]] = {
    "__consumer_offsets": {**_GROUPS, 0: _GROUPS[1]},
    "__transaction_state": _layouts({0: transaction_records.TransactionLogKey}, transaction_records),
    "__share_group_state": _layouts(_SHARE_KEYS, share_state_records, check=_share_state),
}
"""The record types of each internal topic."""


def layout_of(topic: str | None, key: bytes | None) -> Layout | None:
    """Returns the layout of a record by the type that its key begins with; None without one."""
    if key is None or len(key) < 2:
        return None
    return LAYOUTS.get(topic or "", {}).get(int.from_bytes(key[:2], "big", signed=True))


def parsed_value(layout: Layout, value: bytes) -> Any:
    """Returns the value of a record, which begins with its version. Raises MalformedMessage."""
    if len(value) < 2:
        raise MalformedMessage(f"value of {len(value)} bytes")
    version, versions = int.from_bytes(value[:2], "big", signed=True), spec(layout.value).versions
    if not versions.first <= version <= versions.last:
        raise MalformedMessage(f"value version {version}, expected {versions.first} to {versions.last}")
    return parse(layout.value, version, value[2:])


def problem_of(topic: str, key: bytes | None, value: bytes | None) -> tuple[str, bool] | None:
    """Returns what is wrong with a record of an internal topic and whether a broker cannot load it, or None."""
    if key is None or len(key) < 2:
        return f"a record key of {len(key or b'')} bytes", True
    layout = layout_of(topic, key)
    if layout is None:
        return f"a record of the unknown type {int.from_bytes(key[:2], 'big', signed=True)}", False
    name = layout.value.__name__.removesuffix("Value")
    try:
        parse(layout.key, spec(layout.key).versions.last, key[2:])
        if value is None:
            return None
        found = parsed_value(layout, value)
    except MalformedMessage as error:
        return f"a {name} record that cannot be decoded: {error}", True
    what = layout.check(found) if layout.check is not None else None
    return None if what is None else (f"a {name} record with {what}", True)
