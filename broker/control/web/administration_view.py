"""Configs of a topic and of the broker, and access control lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....protocol.acls import CODES, words
from ...admin_api.views import AclEntry, OperationError
from .answer import Page, PageRequest
from .query import Columns, listing, url

if TYPE_CHECKING:
    from ...admin_api.views import ConfigInfo

DEFAULT = "DEFAULT_CONFIG"
SOURCES = {
    DEFAULT: "default",
    "STATIC_BROKER_CONFIG": "start of the broker",
    "DYNAMIC_BROKER_CONFIG": "this broker, dynamic",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "all brokers, dynamic",
    "DYNAMIC_TOPIC_CONFIG": "this topic",
}
KINDS = ("all", "set", "changeable")
WAYS = ("set", "delete", "append", "subtract")
ACL_WORDS = {part: words(of) for part, of in CODES.items()}
_CONFIGS: Columns[ConfigInfo] = {
    "name": lambda one: one.name,
    "value": lambda one: (one.value or "", one.name),
    "source": lambda one: (one.source, one.name),
}
_ACLS: Columns[AclEntry] = {
    "resource": lambda one: (one.resource_type, one.resource_name, one.principal, one.operation),
    "principal": lambda one: (one.principal, one.resource_type, one.resource_name, one.operation),
    "operation": lambda one: (one.operation, one.principal, one.resource_name),
}


async def topic_configs(request: PageRequest) -> Page:
    """Shows all configs of a topic."""
    name = request.path["topic"]
    found = await request.plane.operations.topic_configs(name)
    more = {"topic": name, "where": url("topics", name, "configs")}
    return Page("configs.html", f"Configs of {name}", "topics", _configs(request, found) | more)


async def broker_configs(request: PageRequest) -> Page:
    """Shows all configs of the broker."""
    found = await request.plane.operations.broker_configs()
    more = {"topic": None, "where": "/broker"}
    return Page("configs.html", "Broker", "broker", _configs(request, found) | more)


def _configs(request: PageRequest, found: list[ConfigInfo]) -> dict[str, Any]:
    wanted, kind = request.query.text("q"), request.query.choice("kind", KINDS)
    rows = [
        one
        for one in found
        if wanted.casefold() in one.name.casefold()
        and (kind == "all" or (one.source != DEFAULT if kind == "set" else not one.is_read_only))
    ]
    chosen = request.query.text("change")
    return {
        "list": listing(rows, request.query, _CONFIGS),
        "q": wanted,
        "kind": kind,
        "counted": len(found),
        "sources": SOURCES,
        "chosen": next((one for one in found if one.name == chosen), None),
        "names": [one.name for one in found if not one.is_read_only],
        "ways": WAYS,
    }


async def acls(request: PageRequest) -> Page:
    """Shows the access control entries that match a filter."""
    query = request.query
    wanted = {
        name: query.text(name) for name in ("resource_type", "resource_name", "principal", "operation", "permission")
    }
    refused = None
    found: list[AclEntry] = []
    is_on = request.plane.operations.running.state.authorizer is not None
    if is_on:
        try:
            given = {name: text for name, text in wanted.items() if text}
            found = await request.plane.operations.acls(AclEntry(**given))
        except OperationError as error:
            refused = str(error)
    values = {"list": listing(found, query, _ACLS), "wanted": wanted, "words": ACL_WORDS, "is_on": is_on}
    values |= {"refused": refused, "is_filtered": any(wanted.values())}
    return Page("acls.html", "Access control lists", "acls", values)
