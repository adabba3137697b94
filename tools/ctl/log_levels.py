"""`ottla ctl log-levels`: what a broker logs, seen and changed while it runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from ...broker.logs import level_of
from ..http_client import Client, Wrong
from .output import titled


def shown(told: Any) -> list[str]:
    """The loggers, root first."""
    return titled(("LOGGER", "LEVEL"), list(told["levels"].items()), "no loggers")


def get(to: Client, given: argparse.Namespace) -> Any:
    """Asks for all of them."""
    return to.ask("GET", "log-levels")


def set(to: Client, given: argparse.Namespace) -> Any:
    """Changes some, one after the other, and tells all of them."""
    return _each(to, given.level, lambda text: dict(zip(("logger", "level"), level_of(text), strict=True)))


def reset(to: Client, given: argparse.Namespace) -> Any:
    """Has some go by the root's level again."""
    return _each(to, given.logger, lambda name: {"logger": name, "level": None})


def _each(to: Client, texts: Sequence[str], body_of: Callable[[str], Any]) -> Any:
    try:
        bodies = [body_of(text) for text in texts]
    except ValueError as error:
        raise Wrong(error) from error
    told: Any = None
    for body in bodies:
        told = to.ask("PUT", "log-levels", body=body)
    return told
