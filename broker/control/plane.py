"""The state of a control plane: the broker's operations, and the snapshots by name.

`Operations` runs operations on the whole state (reset, snapshot, restore, clock) one at a time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..admin_api.overview import Overviews
from ..config.serve_options import ControlOptions
from ..record_schemas.schemas import Schemas
from .access import Access
from .refusal import Refusal

if TYPE_CHECKING:
    from ..admin_api.operations import Operations
    from ..admin_api.snapshots import Snapshot

MAX_SNAPSHOTS = 1000


class Plane:
    """The broker's operations, and the snapshots that were taken over HTTP. `access` decides who may use it."""

    def __init__(self, operations: Operations, options: ControlOptions, access: Access) -> None:
        self.operations = operations
        self.options = options
        self.access = access
        self.schemas: Schemas = options.schemas or {}
        """The schemas by which the web pages decode keys and values."""
        self.snapshots: dict[str, Snapshot] = {}
        self.naming = asyncio.Lock()
        """Held from the choice of a snapshot's name until the snapshot is stored."""
        self.ended = asyncio.Event()
        """Set when the control plane stops, which ends streams."""
        self.streams = 0
        """The number of open streams."""
        self.overviews = Overviews(operations.running)
        """Counts the activity of clients from now on."""

    def snapshot_named(self, name: str) -> Snapshot:
        """Returns a snapshot. Raises Refusal (404)."""
        try:
            return self.snapshots[name]
        except KeyError:
            raise Refusal(404, f"there is no snapshot {name}") from None

    def free_name(self, wanted: str | None) -> str:
        """Returns the name for a new snapshot: `wanted`, or a generated one. Raises Refusal (409)."""
        if len(self.snapshots) >= MAX_SNAPSHOTS:
            raise Refusal(409, f"there are {MAX_SNAPSHOTS} snapshots, the maximum; delete one")
        if wanted is None:
            number = len(self.snapshots) + 1
            while (wanted := f"snapshot-{number}") in self.snapshots:
                number += 1
        if wanted in self.snapshots:
            raise Refusal(409, f"a snapshot {wanted} exists already; choose another name")
        return wanted

    def close(self) -> None:
        """Drops the snapshots and the broker: aiohttp keeps the handlers of closed applications alive."""
        self.snapshots.clear()
        if "operations" in vars(self):
            self.overviews.close()
            del self.overviews, self.operations
