"""The levels of loggers, read and changed over HTTP while the broker runs (as by KIP-412)."""

from __future__ import annotations

from typing import Any

from ..logs import Levels, levels, logger_named
from .models.general import LogLevel
from .plane import Plane
from .refusal import Refusal
from .route import Call


async def get_log_levels(plane: Plane, call: Call) -> Any:
    """Returns the level of every logger."""
    return {"levels": levels().all()}


async def set_log_level(plane: Plane, call: Call) -> Any:
    """Sets the level of a logger; null removes it, so that the inherited one applies."""
    body: LogLevel = call.body
    try:
        logger = logger_named(body.logger, levels().kafka)
    except ValueError as error:
        raise Refusal(404, error) from error
    if body.level is None and logger == Levels.ROOT:
        raise Refusal(400, "the root logger always has a level: give one instead of null")
    levels().set(logger, body.level)
    return await get_log_levels(plane, call)
