"""The table of the control plane's routes, and what each of them does."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from .plane import Plane
from .route import Call, Route


async def openapi(plane: Plane, call: Call) -> Any:
    """The document; `app.py` answers with the one that it was given at its start."""
    from .openapi import document

    return document(ROUTES)


async def health(plane: Plane, call: Call) -> Any:
    """That it serves, and as what."""
    running = plane.operations.running
    return {
        "status": "serving",
        "version": version("ottla"),
        "release": running.state.profile.name,
        "cluster_id": running.state.cluster_id,
        "bootstrap": ",".join(running.addresses),
    }


ROUTES: tuple[Route, ...] = (
    Route("GET", "/openapi.json", "getOpenapi", "This document", "OpenApi", openapi),
    Route("GET", "/health", "getHealth", "Whether the broker serves, as what, and where", "Health", health),
)
