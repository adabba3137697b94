"""The control plane's routes: those of the broker in general, and all routes in the order of the document."""

from __future__ import annotations

from typing import Any

from ..admin_api.overview import Selection, about
from ..logs import Levels, levels, logger_named
from . import acts, administration, requests, steering
from .models.overview import Overview, OverviewQuery
from .models.parts import Health, LogLevel, LogLevels, OpenApi
from .plane import Plane
from .refusal import Refusal
from .route import Call, Route, RouteTable

routes = RouteTable()


@routes.add("GET", "/openapi.json", OpenApi, refusals=())
async def get_openapi(plane: Plane, call: Call) -> Any:
    """This document.

    `app.py` serves a copy made once.
    """
    from .openapi import document

    return document(ROUTES)


@routes.add("GET", "/health", Health, refusals=())
async def get_health(plane: Plane, call: Call) -> Any:
    """Whether the broker serves, its release and its addresses."""
    return about(plane.operations.running)


@routes.add("GET", "/overview", Overview, query=OverviewQuery)
async def get_overview(plane: Plane, call: Call) -> Any:
    """Activity: topics, groups, producers, clients and requests."""
    query: OverviewQuery = call.query
    return await plane.overviews.taken(Selection(query.limit, query.contains))


@routes.add("GET", "/log-levels", LogLevels, refusals=())
async def get_log_levels(plane: Plane, call: Call) -> Any:
    """The level of each logger."""
    return {"levels": levels().all()}


@routes.add("PUT", "/log-levels", LogLevels, body=LogLevel, needs_body=True, refusals=(404,))
async def set_log_level(plane: Plane, call: Call) -> Any:
    """Set the level of a logger; null: the inherited level."""
    body: LogLevel = call.body
    try:
        logger = logger_named(body.logger, levels().kafka)
    except ValueError as error:
        raise Refusal(404, error) from error
    if body.level is None and logger == Levels.ROOT:
        raise Refusal(400, "the root logger always has a level: give one instead of null")
    levels().set(logger, body.level)
    return await get_log_levels(plane, call)


ROUTES: tuple[Route, ...] = tuple(
    route
    for table in (routes, requests.routes, steering.routes, acts.routes, administration.routes)
    for route in table.routes
)
