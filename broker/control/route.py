"""A route of the control plane: its method and path, its models, and the function that runs it.

Modules register their functions in a `RouteTable`. `routes.py` has all routes, `openapi.py` writes them as a document,
`app.py` serves them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .plane import Plane

BASE = "/v1"
PARAMETER = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class Call:
    """The parsed parts of a request: the parameters of the path, and the route's models of the query and the body."""

    path: Mapping[str, Any]
    query: Any
    body: Any


Act = Callable[["Plane", Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path."""

    method: str
    path: str  # after BASE; parameters in braces
    name: str  # operationId: one word per route, for generated clients
    summary: str
    response: Any  # the model of a successful response, for the document
    act: Act
    status: int = 200
    body: Any = None  # a model; one without required fields where `needs_body` is False
    needs_body: bool = False
    query: Any = None  # a model of texts and numbers
    refusals: tuple[int, ...] = ()  # in addition to 400; 409 is also the status after a disk failure

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the path's parameters."""
        return tuple(PARAMETER.findall(self.path))


class RouteTable:
    """The routes of one module, in the order of its functions."""

    def __init__(self) -> None:
        self.routes: list[Route] = []

    def add(
        self,
        method: str,
        path: str,
        response: Any,
        *,
        status: int = 200,
        body: Any = None,
        needs_body: bool = False,
        query: Any = None,
        refusals: tuple[int, ...] | None = None,
    ) -> Callable[[Act], Act]:
        """Registers the decorated function. Its name in camel case is the name of the route, the first line of its
        docstring the summary. By default a route refuses with 409, one with parameters in its path also with 404."""

        def added(act: Act) -> Act:
            first, *others = act.__name__.split("_")
            name = first + "".join(map(str.capitalize, others))
            summary = (act.__doc__ or "").partition("\n")[0].removesuffix(".")
            possible = refusals if refusals is not None else (404, 409) if "{" in path else (409,)
            self.routes.append(
                Route(method, path, name, summary, response, act, status, body, needs_body, query, possible)
            )
            return act

        return added
