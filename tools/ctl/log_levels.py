"""`ottla ctl log-levels`: shows and changes the log levels of a running broker."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from ...broker.logs import split_level
from ..http_client import Client, Wrong
from .output import titled


def shown(response: Any) -> list[str]:
    """Returns a line for each logger, root first."""
    return titled(("LOGGER", "LEVEL"), list(response["levels"].items()), "no loggers")


def get(to: Client, given: argparse.Namespace) -> Any:
    """Requests the levels of all loggers."""
    return to.request("GET", "log-levels")


def set(to: Client, given: argparse.Namespace) -> Any:
    """Sets the level of each given logger, and returns the levels of all loggers."""
    return _each(to, given.level, lambda text: dict(zip(("logger", "level"), split_level(text), strict=True)))


def reset(to: Client, given: argparse.Namespace) -> Any:
    """Removes the own level of each given logger, which then has the inherited level."""
    return _each(to, given.logger, lambda name: {"logger": name, "level": None})


def _each(to: Client, texts: Sequence[str], body_of: Callable[[str], Any]) -> Any:
    try:
        bodies = [body_of(text) for text in texts]
    except ValueError as error:
        raise Wrong(error) from error
    response: Any = None
    for body in bodies:
        response = to.request("PUT", "log-levels", body=body)
    return response
