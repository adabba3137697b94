"""Catalogs of Apache Iceberg, by pyiceberg: where a table is found, and its files. Needs the extra `iceberg`.

A catalog is given by pyiceberg's own properties: `type` (sql, rest, hive, glue ...), `uri`, `warehouse`, `token` and so
on, and `name`: a SQL database may have several catalogs, and pyiceberg reads more properties of that name from its
configuration. The properties may have passwords, so no message contains them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..backend import ReadError
from ..extras import SetupError, needed

NAME = "ottla"
"""The default of `name`."""

_TABLE = re.compile(r"[^.\s]+(\.[^.\s]+)+")


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table, `NAMESPACE.NAME`, and the properties of its catalog."""

    table: str
    properties: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        if not _TABLE.fullmatch(self.table):
            raise ReadError(f"the table {self.table!r} has no namespace: it must be NAMESPACE.NAME")

    @property
    def kind(self) -> str:
        """The type of the catalog; `by uri` if it follows from that."""
        return self.properties.get("type", "by uri")


def location_of(folder: str) -> str:
    """Returns the URI of a folder; object stores have one already."""
    return folder if re.match(r"[a-z][a-z0-9+.-]*://", folder) else f"file://{os.path.abspath(folder)}"


def path_of(location: str) -> str:
    """Returns the path of a local file, or the URI of another one. Iceberg does not quote characters."""
    path = location.removeprefix("file:")
    return f"/{path.lstrip('/')}" if path != location or location.startswith("/") else location


def in_folder(folder: str, file: str) -> Mapping[str, str]:
    """Returns the properties of a catalog in a SQLite file, for a table in a folder."""
    return {"type": "sql", "uri": f"sqlite:///{os.path.abspath(file)}", "warehouse": location_of(folder)}


@contextmanager
def as_error(make: Callable[[str], Exception], what: str) -> Iterator[None]:
    """Turns the errors of pyiceberg and of the libraries below it, which have no common base, into one of ours: one
    line, which begins with `what`."""
    try:
        yield
    except (ReadError, SetupError):
        raise
    except OSError as error:
        raise make(f"{what}: {error.strerror or line(error)}") from error
    except Exception as error:
        raise make(f"{what}: {line(error)}") from error


def loaded(of: CatalogTable) -> Any:
    """Returns the catalog, for its owner to close. Raises MissingExtra, and errors of pyiceberg."""
    with needed():
        from pyiceberg.catalog import load_catalog

        return load_catalog(of.properties.get("name", NAME), **_without_name(of.properties))


def _without_name(properties: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key != "name"}


def line(error: BaseException) -> str:
    """Returns the first line of an error: the next lines of a database have the statement with its
    parameters."""
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    return " ".join(text.split())[:300]
