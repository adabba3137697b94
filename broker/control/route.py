"""A route of the control plane: its method and path, its models, and the function that runs it.

`routes.py` has the table, `openapi.py` writes it as a document, `app.py` serves it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .plane import Plane

BASE = "/v1"
_PARAMETER = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class Call:
    """The parsed parts of a request: the parameters of the path, and the route's models of the query and the body."""

    path: Mapping[str, Any]
    query: Any
    body: Any


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    method: str
    path: str  # after BASE; parameters in braces
    name: str  # operationId: one word per route, for generated clients
    summary: str
    response: Any  # the model of a successful response, for the document
    act: Callable[[Plane, Call], Awaitable[Any]]
    status: int = 200
    body: Any = None  # a model; one without required fields where `needs_body` is False
    needs_body: bool = False
    query: Any = None  # a model of texts and numbers
    refusals: tuple[int, ...] = (409,)  # in addition to 400; 409 is also the status after a disk failure

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the path's parameters."""
        return tuple(_PARAMETER.findall(self.path))
