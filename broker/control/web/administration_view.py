"""Configs of a topic and of the broker, access control lists, the faults in force, and the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....protocol.acls import CODES, words
from ....protocol.errors import ErrorCode
from ....protocol.narrowing import is_list
from ...admin_api.views import AclEntry, OperationError
from ...releases.profiles import api_names
from ...virtual_clock import VirtualClock
from .page import Columns, Page, PageRequest, listing, url

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
SIMPLE = ("error", "delay", "disconnect", "stall", "throttle")
"""The kinds of faults in the page's form; `ottla ctl faults` and the HTTP API have the others."""
_FAULTS: Columns[dict[str, Any]] = {
    "id": lambda one: one["id"],
    "action": lambda one: (one["action"], one["id"]),
    "fired": lambda one: (one["fired"], one["id"]),
    "matched": lambda one: (one["matched"], one["id"]),
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


# Faults and the clock


async def faults(request: PageRequest) -> Page:
    """Lists the fault rules in force."""
    running = request.plane.operations.running
    standing = None if running.faults is None else [one.to_json() for one in running.faults.list()]
    wanted = request.query.text("q")
    rows = [one for one in standing or () if not wanted or wanted.casefold() in str(sorted(one.items())).casefold()]
    found = listing(rows, request.query, _FAULTS)
    values = {
        "list": found,
        "q": wanted,
        "counted": None if standing is None else len(standing),
        "conditions": {one["id"]: _conditions(one) for one in found.rows},
        "actions": SIMPLE,
        "apis": sorted(api_names().values()),
        "codes": [code.name for code in ErrorCode if code is not ErrorCode.NONE],
    }
    return Page("faults.html", "Faults", "faults", values)


def _conditions(fault: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns the conditions of a rule and the parameters of its action."""
    return [
        (name, ", ".join(map(str, value)) if is_list(value) else str(value))
        for name, value in fault.items()
        if name not in ("id", "matched", "fired", "action")
    ]


async def clock(request: PageRequest) -> Page:
    """Shows the broker's time."""
    can_move = isinstance(request.plane.operations.running.state.clock, VirtualClock)
    return Page("clock.html", "Clock", "clock", {"can_move": can_move})
