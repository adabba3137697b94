"""What a route of the control plane is: its place, what it takes, what it answers, and the function that does it.

Owns no route; `routes.py` has the table, `openapi.py` writes it as a document, `app.py` serves it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .shapes import Schema

if TYPE_CHECKING:
    from .plane import Plane

BASE = "/v1"
_PARAMETER = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class Call:
    """What came with a request, checked: parameters of the path and of the query, and the body."""

    path: Mapping[str, Any]
    query: Mapping[str, Any]
    body: Any  # a JSON value that fits the route's schema; {} where the route takes one and none came


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    method: str
    path: str  # after BASE; parameters in braces
    name: str  # operationId: one word per route, for generated clients
    summary: str
    answer: str  # of `schemas.SCHEMAS`: what a success answers
    act: Callable[[Plane, Call], Awaitable[Any]]
    status: int = 200
    body: str | None = None  # of `schemas.SCHEMAS`
    needs_body: bool = False
    query: Mapping[str, Schema] = field(default_factory=dict)
    refusals: tuple[int, ...] = (409,)  # beside 400; 409 is also what a broker answers that cannot go on

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the path's parameters."""
        return tuple(_PARAMETER.findall(self.path))
