"""New columns of a table: the fields that a newer schema of the values has.

Only additions are supported, by Delta and by Iceberg alike. Older rows have null in them. Pure.
"""

from __future__ import annotations

import pyarrow as pa

from . import layout
from .manifest import ExportError


def added(there: pa.Schema, wanted: pa.Schema) -> list[str]:
    """Returns the paths of the columns and fields that a table lacks. Raises ExportError for one that it has and the
    wanted columns do not have, or have with another type."""
    found: list[str] = []
    for name in (layout.DECODED, layout.DEAD_LETTER, layout.DECODED_KEY, layout.DEAD_LETTER_KEY):
        if name in there.names and name not in wanted.names:
            raise _missing(name)
    for field in wanted:
        if field.name in there.names:
            _compare(there.field(field.name).type, field.type, field.name, found)
        else:
            found.append(field.name)
    return found


def _compare(old: pa.DataType, new: pa.DataType, path: str, found: list[str]) -> None:
    types = pa.types
    if types.is_struct(old) and types.is_struct(new):
        fields = {field.name: field.type for field in new}
        known = {field.name: field.type for field in old}
        for name, kind in known.items():
            if name not in fields:
                raise _missing(f"{path}.{name}")
            _compare(kind, fields[name], f"{path}.{name}", found)
        found += [f"{path}.{name}" for name in fields if name not in known]
    elif _is_list(old) and _is_list(new):
        _compare(old.value_type, new.value_type, f"{path}.element", found)
    elif types.is_map(old) and types.is_map(new):
        _compare(old.key_type, new.key_type, f"{path}.key", found)
        _compare(old.item_type, new.item_type, f"{path}.value", found)
    elif _plain(old) != _plain(new):
        raise ExportError(f"{path} is {_shown(old)} in the table, but {_shown(new)} in the schema: {_ONLY}")


_ONLY = "a table only gets new fields, so use another folder"


def _missing(path: str) -> ExportError:
    return ExportError(f"{path} is in the table, but not in the schema: {_ONLY}")


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Returns the type without what libraries choose for themselves."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) else kind


def _shown(kind: pa.DataType) -> str:
    for name, fits in (("a struct", pa.types.is_struct), ("a list", _is_list), ("a map", pa.types.is_map)):
        if fits(kind):
            return name
    return str(_plain(kind))
