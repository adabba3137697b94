"""New columns of a table: the fields that a newer schema of the values has.

Only additions are supported, by Delta and by Iceberg alike. Older rows have null in them. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from . import layout
from .manifest import ExportError

_ONLY = "a table only gets new fields, so use another folder"


def added(there: pa.Schema, wanted: pa.Schema) -> list[str]:
    """Returns the paths of the columns and fields that a table lacks. Raises ExportError for one that it has and the
    wanted columns do not have, or have with another type."""
    found: list[str] = []
    decoded = (layout.DECODED, layout.DEAD_LETTER, layout.DECODED_KEY, layout.DEAD_LETTER_KEY)
    known = {one.name: one.type for one in there if one.name in wanted.names or one.name in decoded}
    _compare(known, {one.name: one.type for one in wanted}, "", found)
    return found


def _compare(there: Mapping[str, pa.DataType], wanted: Mapping[str, pa.DataType], at: str, found: list[str]) -> None:
    for name, kind in there.items():
        path = f"{at}{name}"
        if name not in wanted:
            raise ExportError(f"{path} is in the table, but not in the schema: {_ONLY}")
        (old, inner), (new, wanted_inner) = _parts(kind), _parts(wanted[name])
        if old != new:
            raise ExportError(f"{path} is {old} in the table, but {new} in the schema: {_ONLY}")
        _compare(inner, wanted_inner, f"{path}.", found)
    found += [f"{at}{name}" for name in wanted if name not in there]


def _parts(kind: pa.DataType) -> tuple[str, dict[str, pa.DataType]]:
    """Returns a type without what libraries choose for themselves, and the types in it by name."""
    types = pa.types
    if types.is_struct(kind):
        return "a struct", {field.name: field.type for field in kind}
    if types.is_list(kind) or types.is_large_list(kind):
        return "a list", {"element": kind.value_type}
    if types.is_map(kind):
        return "a map", {"key": kind.key_type, "value": kind.item_type}
    if types.is_large_string(kind) or types.is_string_view(kind):
        return "string", {}
    return "binary" if types.is_large_binary(kind) or types.is_binary_view(kind) else str(kind), {}
