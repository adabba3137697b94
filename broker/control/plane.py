"""What the control plane acts on, and what it keeps itself: the snapshots by their names.

`Operations` sees to it that what changes everything (reset, snapshot, restore, the clock) is done one at a time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..admin_api.overview import Overviews
from ..record_schemas.schemas import Schemas
from .refusal import Refusal

if TYPE_CHECKING:
    from ..admin_api.operations import Operations
    from ..admin_api.snapshots import Snapshot

MAX_SNAPSHOTS = 1000


class Plane:
    """The broker's operations, and the snapshots that were taken over HTTP. `host` is where it listens; `may_write`
    whether its page, and browsers, may change something."""

    def __init__(
        self,
        operations: Operations,
        host: str = "127.0.0.1",
        may_write: bool = False,
        schemas: Schemas | None = None,
    ) -> None:
        self.operations = operations
        self.host = host
        self.may_write = may_write
        self.schemas = schemas or Schemas()
        """What the page decodes keys and values with."""
        self.snapshots: dict[str, Snapshot] = {}
        self.naming = asyncio.Lock()
        """Held from the choice of a snapshot's name until there is one."""
        self.ended = asyncio.Event()
        """Set when the control plane stops: streams end."""
        self.streams = 0
        """How many streams are sent now."""
        self._overviews: Overviews | None = None

    def look(self) -> None:
        """Sees from now on what clients do."""
        self._overviews = Overviews(self.operations.running)

    @property
    def overviews(self) -> Overviews:
        """What goes on. Raises Refusal (409) where nobody looks."""
        if self._overviews is None:
            raise Refusal(409, "nobody looks at what goes on")
        return self._overviews

    def snapshot_named(self, name: str) -> Snapshot:
        """Raises Refusal (404)."""
        try:
            return self.snapshots[name]
        except KeyError:
            raise Refusal(404, f"there is no snapshot {name}") from None

    def free_name(self, wanted: str | None) -> str:
        """The name for a new snapshot: `wanted`, or else one of our own. Raises Refusal (409)."""
        if len(self.snapshots) >= MAX_SNAPSHOTS:
            raise Refusal(409, f"there are {MAX_SNAPSHOTS} snapshots already; delete one")
        if wanted is None:
            number = len(self.snapshots) + 1
            while (wanted := f"snapshot-{number}") in self.snapshots:
                number += 1
        if wanted in self.snapshots:
            raise Refusal(409, f"there is a snapshot {wanted} already")
        return wanted

    def close(self) -> None:
        """Lets go of the snapshots and of the broker: aiohttp keeps the handlers of applications that are gone."""
        self.snapshots.clear()
        if self._overviews is not None:
            self._overviews.close()
            self._overviews = None
        self.__dict__.pop("operations", None)
