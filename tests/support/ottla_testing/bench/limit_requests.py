"""Worst-case requests of every API, made from the message schemas: each array of a request filled to a size.
Owns the shapes (which array is filled, with which entries) and the names of the topics and groups that `limits.py`
creates in the broker. A new API needs only its schema. Pure: uses no socket and no broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ottla.protocol.compiler import builder, step_parser
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.headers import request_header
from ottla.protocol.primitives import Array, Blob, Fixed, Nullable, UuidLeaf, request_items_max
from ottla.protocol.records import steps
from ottla.protocol.schema import Group, default_of, empty_value, group_of
from ottla_testing.broker.routes import ROUTES

REQUEST_BYTES = 1_000_000
STRING_BYTES = 32_767  # the longest string that a request may have
TOPICS, WIDE, WIDE_PARTITIONS, GROUPS = 200, "wide", 500, 10
SESSION = 0x5E5510  # placeholder of a fetch session's id

# Values that pass the checks of a whole request, so that its entries are checked.
PLAUSIBLE: dict[str, Any] = {
    "acks": -1,
    "replica_id": -1,
    "broker_id": 0,
    "timeout_ms": 1000,
    "max_wait_ms": 0,
    "min_bytes": 0,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 10,
    "session_epoch": 0,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "session_id": 0,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "current_leader_epoch": -1,
    "leader_epoch": -1,
    "last_fetched_epoch": -1,
    "timestamp": -1,
    "retention_time_ms": -1,
    "commit_timestamp": -1,
    "max_num_offsets": 1,
    "protocol_type": "consumer",
    "group_id": "g0",
    "transactional_id": None,
    "num_partitions": 1,
    "replication_factor": 1,
    "response_partition_limit": 2000,
    "resource_type": 2,
    "configuration_keys": None,
    "duration_filter": -1,
    "instance_id": None,
    "group_instance_id": None,
    "resource_pattern_type": 3,
    "pattern_type_filter": 1,
    "operation": 2,
    "permission_type": 3,
    "principal": "User:a",
    "host": "*",
    "count": 2,
}
NAMED = {"topic": "topic", "name": "topic", "topic_name": "topic", "topic_names": "topic", "resource_name": "topic"}
NAMED |= {"group_id": "group", "groups": "group", "groups_names": "group", "key": "group", "coordinator_keys": "group"}
SLOWEST = ("distinct", "existing")
KINDS = ("empty", "same", *SLOWEST)


class Shape(NamedTuple):
    """The array at `path` is filled with entries of one kind; the arrays in an entry have `inner` entries each."""

    path: tuple[str, ...]
    kind: str
    inner: int

    def __str__(self) -> str:
        return f"{'.'.join(self.path) or 'strings'} {self.kind}{' +1' if self.inner else ''}"


def shapes(api_key: int, version: int, kinds: tuple[str, ...] = KINDS) -> Iterator[Shape]:
    """Yields all shapes of an API's request."""
    layout = group_of(ROUTES[api_key].request_class, version)
    yield Shape((), "long", 0)
    for path, codec in arrays(layout):
        has_inner = isinstance(codec.item, Group) and next(arrays(codec.item), None) is not None
        for kind in kinds:
            yield Shape(path, kind, 0)
            if has_inner:
                yield Shape(path, kind, 1)


def arrays(group: Group, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Array]]:
    """Yields the paths of all arrays in a layout, with their codecs."""
    for name, codec in (*group.plan, *(group.tags or {}).values()):
        path = (*before, name)
        inner = codec.inner if isinstance(codec, Nullable) else codec
        if isinstance(inner, Array):
            yield path, inner
            inner = inner.item
        if isinstance(inner, Group):
            yield from arrays(inner, path)


def frame(api_key: int, version: int, shape: Shape, size: int = REQUEST_BYTES) -> tuple[bytes, int]:
    """Returns a request of this shape of up to `size` bytes that the broker accepts, and the number of entries."""
    cls = ROUTES[api_key].request_class
    layout = group_of(cls, version)
    head = request_header(api_key, version, 1, b"limits", version in ROUTES[api_key].flexible)
    if not shape.path:
        return head + _built(_group(layout, shape, (), 0, size - 1000), version), 0
    least = len(_built(_group(layout, shape, shape.path, 1), version))
    some = min(1000, size // 50)
    each = max(1, (len(_built(_group(layout, shape, shape.path, 1 + some), version)) - least) / some)
    codec = next(codec for path, codec in arrays(layout) if path == shape.path)
    items = _items(codec, shape.inner)
    count = (size - len(head) - least) / each
    if items * 32 > each:  # the limit `request_items_max`, with slack for the outer arrays
        count = min(count, (request_items_max(0) - 16) / (items - each / 32))
    made = _built(_group(layout, shape, shape.path, int(count)), version)
    if not _is_accepted(cls, version, made):
        raise ValueError(f"{cls.__name__} v{version} {shape}: {int(count)} entries are refused")
    return head + made, int(count)


def _items(codec: Array, inner: int) -> float:
    """Returns how much an entry of the array counts for `request_items_max`."""
    if not isinstance(codec.item, Group):
        return 0.5 if isinstance(codec.item, Fixed) else 1
    found = [_items(array, 0) for path, array in arrays(codec.item) if len(path) == 1]
    return 1 + inner * sum(0 if count < 1 else 1 for count in found)


def _is_accepted(cls: type, version: int, data: bytes) -> bool:
    try:
        steps.run(step_parser(cls, version)(data, 0, request_items_max(len(data))))
    except MalformedMessage:
        return False
    return True


def _built(value: Any, version: int) -> bytes:
    parts: list[Any] = []
    builder(type(value), version)(value, parts.append)
    return b"".join(parts)


def _group(group: Group, shape: Shape, path: tuple[str, ...], count: int, text: int = 0, number: int = -1) -> Any:
    """Returns a value whose array at `path` has `count` entries. `number` is the number of the entry that it is part
    of, -1
    outside of the filled array; `text` bytes go into its first strings.
    """
    made = empty_value(group.cls)
    for name, codec in (*group.plan, *(group.tags or {}).values()):
        is_tagged = all(name != planned for planned, _ in group.plan)
        if is_tagged and not (path and path[0] == name):
            setattr(made, name, default_of(group.cls, name))
            continue
        value = _value(codec, name, shape, path[1:] if path and path[0] == name else None, count, number)
        if text and isinstance(codec, Blob) and codec.text:
            value = "x" * min(text, STRING_BYTES)
            text -= len(value)
        setattr(made, name, value)
    return made


def _value(codec: Any, name: str, shape: Shape, path: tuple[str, ...] | None, count: int, number: int) -> Any:
    if isinstance(codec, Nullable):
        return None if path is None else _value(codec.inner, name, shape, path, count, number)
    if isinstance(codec, Array):
        return _array(codec, name, shape, path, count, number)
    if isinstance(codec, Group):
        return _group(codec, shape, path or (), count, 0, number)
    if isinstance(codec, UuidLeaf):
        return number.to_bytes(16, "big") if shape.kind == "distinct" and number >= 0 else bytes(16)
    if number < 0 or shape.kind == "same":
        found = _plausible(codec, name, shape, max(0, number))
        if found is not None:
            return found
    if isinstance(codec, Blob):
        return _blob(codec, name, shape, number)
    if shape.kind in ("distinct", "existing") and number >= 0 and name not in PLAUSIBLE:
        return _number(codec, number)
    found = PLAUSIBLE.get(name, 0) if shape.kind != "empty" else 0
    return found if isinstance(found, int) else 0


def _array(codec: Array, name: str, shape: Shape, path: tuple[str, ...] | None, count: int, number: int) -> Any:
    if path is None:
        if number < 0:
            return None if name in PLAUSIBLE and codec.length.nullable else []
        inner = shape.inner
        return [_entry(codec, name, shape, None, 0, max(0, number)) for _ in range(inner)]
    if path:
        return [_entry(codec, name, shape, path, count, -1)]
    if shape.kind in ("same", "empty"):
        return [_entry(codec, name, shape, None, 0, 0)] * count
    return [_entry(codec, name, shape, None, 0, index) for index in range(count)]


def _entry(codec: Array, name: str, shape: Shape, path: tuple[str, ...] | None, count: int, number: int) -> Any:
    if isinstance(codec.item, Group):
        return _group(codec.item, shape, path or (), count, 0, number)
    return _value(codec.item, name, shape, path, count, number)


def _plausible(codec: Any, name: str, shape: Shape, number: int) -> Any:
    if isinstance(codec, Blob):
        if name in NAMED and number >= 0 and codec.text:
            return WIDE if NAMED[name] == "topic" else "g0"
        found = PLAUSIBLE.get(name)
        return found if isinstance(found, str) and codec.text else None
    found = PLAUSIBLE.get(name)
    return found if isinstance(found, int) else None


def _blob(codec: Blob, name: str, shape: Shape, number: int) -> Any:
    if not codec.text:
        return None if codec.length.nullable else b""
    if shape.kind == "distinct":
        return _short(max(0, number))
    if shape.kind == "existing":
        if name in NAMED:
            return f"t{number % TOPICS}" if NAMED[name] == "topic" else f"g{number % GROUPS}"
        found = PLAUSIBLE.get(name, "")
        return found if isinstance(found, str) else None if codec.length.nullable else ""
    return "" if not codec.length.nullable else None


_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789_-"


def _short(number: int) -> str:
    text = _LETTERS[number % 26]
    number //= 26
    while number:
        text += _LETTERS[number % len(_LETTERS)]
        number //= len(_LETTERS)
    return text


def _number(codec: Fixed, number: int) -> Any:
    if codec.fmt == "?":
        return True
    bits = 8 * codec.size - 1
    return number % (1 << bits) if codec.fmt != "d" else float(number)
