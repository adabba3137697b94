"""Type guards for untyped values such as parsed JSON: isinstance for a generic class, whose items then have type Any.

After a plain `isinstance(value, list)` the items are Unknown, which pyright's strict mode refuses. Independent of
Kafka; it is in this package because every other package may import this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard


def is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def is_tuple(value: object) -> TypeGuard[tuple[Any, ...]]:
    return isinstance(value, tuple)


def is_dict(value: object) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


def is_mapping(value: object) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(value, Mapping)
