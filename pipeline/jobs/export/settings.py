"""The scope and the form of an export: `ExportSettings`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...backend import OnCorrupt, Selection
from ...offsets import Limit
from ..iceberg_catalog import CatalogTable
from . import arguments
from .commit import Settings as FolderSettings
from .iceberg import catalog_of, described, widened
from .manifest import ExportError
from .plan import FROM_START, TO_END, Request
from .tasks import CODECS, FILE_BYTES, Form, Format, OnUndecodable
from .value_columns import Decoding

FORMATS: tuple[Format, ...] = ("parquet", "delta", "iceberg")
ISOLATIONS = ("read_committed", "read_uncommitted")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSettings:
    """The records that an export reads, and the files that it writes.

    `topics` lists the topics; `like` is a regular expression that full names must match. With neither: all but internal
    topics. `starting` and `ending` are "earliest", "latest", a time, or offsets (`arguments.limit`); a later run can
    add the rest. Aborted transactions and records from the last stable offset on are exported only if `isolation` is
    "read_uncommitted".

    `format`: "parquet", or "delta" or "iceberg" for a table. An Iceberg table is in the catalog with pyiceberg's
    properties `catalog` and is named `table`; by default the catalog is a SQLite file in the folder. `decoding`
    adds the column `decoded`, `key_decoding` the column `decodedKey`; a value or key that does not decode is null and
    counted, or fails the export (`on_undecodable="fail"`), or is null and also in the column `deadLetter` or
    `deadLetterKey`, with the problem ("dead-letter"). All runs into a folder have the same format, isolation and
    decoding. With `add_columns` a decoding may follow that
    has new fields: the table gets them, and older rows have null there. `codec` and sizes may differ: a file is
    closed after `rows_per_file` rows, or after `file_bytes` uncompressed bytes. `on_corrupt`: "skip" skips damaged
    batches, and logs them.

    A topic that was deleted and created again since its last export is refused; with `new_generation` it is exported
    next to the old one. The report counts records that were deleted before their export; `fail_on_loss` raises DataLoss
    for them. `store_conf` are settings of an object store, such as `endpoint` and `region`; credentials are none of
    them.
    """

    topics: Sequence[str] | None = None
    like: str | None = None
    starting: str | Limit = FROM_START
    ending: str | Limit = TO_END
    isolation: str = "read_committed"
    format: Format = "parquet"
    table: str | None = None
    catalog: Mapping[str, str] | None = field(default=None, repr=False)  # may have passwords
    codec: str = "zstd"
    rows_per_file: int | None = None
    file_bytes: int = FILE_BYTES
    decoding: Decoding | None = None
    key_decoding: Decoding | None = None
    on_undecodable: OnUndecodable = "null"
    add_columns: bool = False
    on_corrupt: OnCorrupt = "fail"
    new_generation: bool = False
    fail_on_loss: bool = False
    store_conf: Mapping[str, str] | None = None

    def form(self) -> Form:
        """Returns the form of the files that tasks write. Raises ExportError."""
        for name, value, choices in (
            ("format", self.format, FORMATS),
            ("codec", self.codec, CODECS),
            ("on_undecodable", self.on_undecodable, ("null", "fail", "dead-letter")),
        ):
            if value not in choices:
                raise ExportError(f"{name} is {value!r}: it must be {', '.join(choices[:-1])} or {choices[-1]}")
        if self.file_bytes < 1 or (self.rows_per_file is not None and self.rows_per_file < 1):
            raise ExportError("file_bytes and rows_per_file must be 1 or more")
        if self.format != "iceberg" and (self.table is not None or self.catalog is not None):
            raise ExportError(f"table and catalog are for the format iceberg, not {self.format}")
        if self.add_columns and self.format == "parquet":
            raise ExportError("add_columns is for tables: files of Parquet have no common schema")
        values, keys = (
            replace(one, type=widened(one.type)) if one is not None and self.format == "iceberg" else one
            for one in (self.decoding, self.key_decoding)
        )
        sizes = (self.codec, self.rows_per_file, self.file_bytes)
        return Form(*sizes, self.format, values, self.on_undecodable, key_decoding=keys)

    def of_folder(self) -> FolderSettings:
        """Returns the settings that all runs into one folder share. Raises ExportError."""
        if self.isolation not in ISOLATIONS:
            raise ExportError(f"isolation is {self.isolation!r}: it must be {' or '.join(ISOLATIONS)}")
        values, keys = self._described(self.decoding), self._described(self.key_decoding)
        table = None
        if self.format == "iceberg":
            table = described(self.catalog_table(""), not self.catalog)
        return FolderSettings(self.format, self.isolation, values, table, keys, adds_columns=self.add_columns)

    def _described(self, decoding: Decoding | None) -> dict[str, str | None] | None:
        """Returns a decoding for the settings of a folder."""
        if decoding is None:
            return None
        more = {"undecodable": "dead-letter"} if self.on_undecodable == "dead-letter" else {}
        return {"kind": decoding.kind, "schema": decoding.schema, **more}

    def catalog_table(self, root: str) -> CatalogTable:
        """Returns the Iceberg table of the export in this folder."""
        return catalog_of(root, self.table, self.catalog)

    def request(self) -> Request:
        """Returns the scope of the export. Raises ReadError, OptionError."""
        starting, ending = self.starting, self.ending
        return Request(
            selection=Selection.named(self.topics, self.like),
            starting=arguments.limit(starting, "starting") if isinstance(starting, str) else starting,
            ending=arguments.limit(ending, "ending") if isinstance(ending, str) else ending,
            committed=self.isolation == "read_committed",
            on_corrupt=self.on_corrupt,
            new_generation=self.new_generation,
            fail_on_loss=self.fail_on_loss,
        )
