"""The OpenAPI document of the control plane, made from the table of routes and its models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Annotated, Any

from msgspec.json import schema_components

from ...protocol.limits import INT64_MAX
from .models.parts import ID_MAX, Error, NodeId, TopicName, text, whole
from .models.steering import SnapshotName
from .route import BASE, Route

TITLE = "Ottla's control plane"
DESCRIPTION = (
    "Operations of a running broker for tests and tools: faults, leaders, the clock, snapshots, and the stored data. "
    "It needs a token, `Authorization: Bearer TOKEN`, unless the broker serves it on a loopback address without one. "
    "At the root of the same address are `/metrics`, `/health`, `/ready` and a page for browsers. "
    'Bytes (keys, values and headers of records) are a string where they are UTF-8 and `{"base64": "..."}` where they '
    "are not; requests may have either. Times are milliseconds since 1970, durations milliseconds. "
    'The response to a request that fails is `{"error": "one line"}`.'
)
REASONS = {
    400: "The request is malformed; the error names the place.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another site, or a browser that may only read would change something.",
    404: "The object does not exist.",
    409: "The state of the broker does not allow it.",
    413: "The body is larger than the control plane accepts.",
    500: "An unexpected error of the broker; its log has the details.",
}
PATH_PARAMETERS: Mapping[str, Any] = {
    "fault": Annotated[int, whole(1, INT64_MAX, "a fault's id")],
    "group": Annotated[str, text(ID_MAX, "a group's id", 1)],
    "node": NodeId,
    "request": Annotated[int, whole(1, INT64_MAX, "a request's number, counted from 1")],
    "snapshot": SnapshotName,
    "topic": TopicName,
}
SCHEME = "token"
_REF = "#/components/schemas/{name}"


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Returns an OpenAPI 3.1 document: every route with its parameters, its body and its responses."""
    routes = tuple(routes)
    kinds = {*(route.response for route in routes), *(route.body for route in routes if route.body is not None), Error}
    listed = sorted(kinds, key=str)
    schemas, components = schema_components(listed, ref_template=_REF)
    by_kind = dict(zip(listed, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(BASE + route.path, {})[route.method.lower()] = _operation(route, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": version("ottla"), "description": DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                SCHEME: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of the control plane; on a loopback address it may need none.",
                }
            },
        },
        "security": [{SCHEME: []}, {}],
    }


def _operation(route: Route, schemas: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": route.name, "summary": route.summary}
    if parameters := [*_parameters(route)]:
        found["parameters"] = parameters
    if route.body is not None:
        found["requestBody"] = {"required": route.needs_body, "content": _json(schemas[route.body])}
    statuses = (400, 401, 403, *route.refusals, *((413,) if route.body is not None else ()), 500)
    found["responses"] = {str(route.status): {"description": "Done.", "content": _json(schemas[route.response])}} | {
        str(status): {"description": REASONS[status], "content": _json(schemas[Error])} for status in sorted(statuses)
    }
    return found


def _parameters(route: Route) -> Iterable[dict[str, Any]]:
    for name in route.parameters:
        ((schema,), _) = schema_components([PATH_PARAMETERS[name]], ref_template=_REF)
        yield {"name": name, "in": "path", "required": True, "schema": schema}
    if route.query is not None:
        (_, components) = schema_components([route.query], ref_template=_REF)
        for name, schema in components[route.query.__name__]["properties"].items():
            yield {"name": name, "in": "query", "required": False, "schema": schema}


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
