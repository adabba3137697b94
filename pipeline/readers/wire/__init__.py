"""Kafka topics over the wire, for the readers: what `Backend` and `Piece` ask, by the project's own client.

Owns no Spark and no bytes of records beyond what one task decodes: `WireBackend` at the driver, `WirePiece` in a task,
and `commit_offsets` for who wants consumer groups to see how far a stream is. Synchronous; the client's asyncio is
inside.
"""

from __future__ import annotations

from .backend import WireBackend
from .groups import commit_offsets
from .piece import WirePiece

__all__ = ["WireBackend", "WirePiece", "commit_offsets"]
