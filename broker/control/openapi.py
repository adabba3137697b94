"""The OpenAPI document of the control plane, written from the table of routes and its schemas."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from .route import BASE, Route
from .schemas import PATH_PARAMETERS, SCHEMAS

TITLE = "Ottla's control plane"
DESCRIPTION = (
    "What a test may ask of a running broker: faults, leaders, the clock, snapshots, and what is stored. "
    "It listens without authentication: whoever reaches it may do all of this. "
    "At the root of the same address are `/metrics`, `/health`, `/ready` and a page for browsers. "
    'Bytes (keys, values and headers of records) are a string where they are UTF-8 and `{"base64": "..."}` where they '
    "are not; either may be given. Times are milliseconds since 1970, durations milliseconds. "
    'A request that is not done is answered with `{"error": "one line"}`.'
)
REASONS = {
    400: "The request makes no sense; one line says why.",
    403: "A page of another site asks, or a browser would change what it may only read.",
    404: "There is no such thing.",
    409: "Not in the state that the broker is in.",
    413: "The body is larger than the control plane reads.",
    500: "A defect of the broker; its log has more.",
}


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """OpenAPI 3.1: every route with its parameters, its body and its answers."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(BASE + route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": version("ottla"), "description": DESCRIPTION},
        "paths": paths,
        "components": {"schemas": dict(SCHEMAS)},
    }


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": route.name, "summary": route.summary}
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": PATH_PARAMETERS[name]} for name in route.parameters
    ]
    in_query = [
        {"name": name, "in": "query", "required": False, "schema": schema} for name, schema in route.query.items()
    ]
    if in_path or in_query:
        found["parameters"] = in_path + in_query
    if route.body is not None:
        found["requestBody"] = {"required": route.needs_body, "content": _json(route.body)}
    statuses = (400, 403, *route.refusals, *((413,) if route.body is not None else ()), 500)
    found["responses"] = {str(route.status): {"description": "Done.", "content": _json(route.answer)}} | {
        str(status): {"description": REASONS[status], "content": _json("Error")} for status in sorted(statuses)
    }
    return found


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
