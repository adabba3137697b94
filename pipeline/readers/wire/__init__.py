"""Reads topics from brokers: implements `Backend` and `Piece` with the project's own client.

Owns no Spark and no more record bytes than one task decodes: `WireBackend` at the driver, `WirePiece` in a task, and
`commit_offsets`, which shows a stream's progress as offsets of a consumer group. Synchronous; the asyncio client runs
inside.
"""

from __future__ import annotations

from .backend import WireBackend, commit_offsets

__all__ = ["WireBackend", "commit_offsets"]
