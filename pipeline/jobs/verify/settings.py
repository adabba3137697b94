"""The scope of a verification: `VerifySettings`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...backend import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySettings:
    """What a verification of an export compares.

    `topics` lists the topics; `like` is a regular expression that full names must match. `catalog` and `table` are
    those of the export's Iceberg table, if it is not in the catalog in its folder. With `compacted`, rows whose records
    the log's cleaner removed are no differences. `store_conf` has settings of an object store.
    """

    topics: Sequence[str] | None = None
    like: str | None = None
    table: str | None = None
    catalog: Mapping[str, str] | None = field(default=None, repr=False)  # may have passwords
    compacted: bool = False
    store_conf: Mapping[str, str] | None = None

    def selection(self) -> Selection:
        """Returns the topics that are compared. Raises ReadError if `like` is not a regular expression."""
        return Selection.named(self.topics, self.like)
