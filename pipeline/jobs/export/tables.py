"""The table of an export, by its format, and the columns that it prescribes for the files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ...objects.places import Place
from ..iceberg_catalog import CatalogTable, of_objects
from .commit import Table
from .delta import DeltaTable
from .iceberg import IcebergTable, catalog_of
from .tasks import Form


def opener(
    root: str, form: Form, catalog: CatalogTable | None = None, place: Place | None = None
) -> Callable[[], Table] | None:
    """Returns the function that opens the table in a folder, or creates it; None for plain Parquet. `place`: of
    objects."""
    if form.format == "delta":
        return partial(DeltaTable, root, form.schema, options=None if place is None else place.options())
    if form.format == "iceberg":
        of = catalog or catalog_of(root)
        if place is None:
            return partial(IcebergTable, root, form.schema, of)
        return partial(IcebergTable, root, form.schema, of_objects(of, dict(place.conf)), place.files())
    return None


def with_columns(form: Form, table: Table | None) -> Form:
    """Returns the form of the files for a table that is open."""
    return replace(form, columns=table.schema) if isinstance(table, IcebergTable) else form
