"""What an export opens: its committer, by its place, and its table, by its format and with the columns of files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ...objects.places import Place
from ..iceberg_catalog import CatalogTable
from .commit import Committer, Settings, Table
from .delta import DeltaTable
from .iceberg import IcebergTable, catalog_of
from .tasks import Form


def opened(
    root: str, settings: Settings, form: Form, catalog: CatalogTable | None = None, place: Place | None = None
) -> Committer:
    """Opens an export in a folder, or in a place of objects, whose library only that one needs, with its table. Raises
    ExportError; MissingExtra."""
    table = opener(root, form, catalog, place)
    if place is None:
        return Committer.open(root, settings, table=table)
    from .object_commit import ObjectCommitter

    return ObjectCommitter.open(root, settings, files=place.files(), table=table)


def opener(
    root: str, form: Form, catalog: CatalogTable | None = None, place: Place | None = None
) -> Callable[[], Table] | None:
    """Returns the function that opens the table in a folder, or creates it; None for plain Parquet. `place`: of
    objects."""
    if form.format == "delta":
        return partial(DeltaTable, root, form.schema, place)
    if form.format == "iceberg":
        return partial(IcebergTable, root, form.schema, catalog or catalog_of(root), place)
    return None


def with_columns(form: Form, table: Table | None) -> Form:
    """Returns the form of the files for a table that is open."""
    return replace(form, columns=table.schema) if isinstance(table, IcebergTable) else form
