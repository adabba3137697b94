"""The broker: listeners, requests, partitions, coordinators and configuration.

`Embedded` runs a broker inside a test's process; `AsyncEmbedded` is the same for asyncio. Both are imported at first
use, since nothing else here needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .testing.embedded import AsyncEmbedded, Embedded

__all__ = ["AsyncEmbedded", "Embedded"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from ..protocol.collection import without_collection

        with without_collection():
            from .testing import embedded
        return getattr(embedded, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
