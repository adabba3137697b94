"""The faults in force, and the clock."""

from __future__ import annotations

from typing import Any

from ....protocol.errors import ErrorCode
from ....protocol.narrowing import is_list
from ...releases.profiles import api_names
from ...virtual_clock import VirtualClock
from .answer import Page, PageRequest
from .query import Columns, listing

SIMPLE = ("error", "delay", "disconnect", "stall", "throttle")
"""The kinds of faults in the page's form; `ottla ctl faults` and the HTTP API have the others."""
_FAULTS: Columns[dict[str, Any]] = {
    "id": lambda one: one["id"],
    "action": lambda one: (one["action"], one["id"]),
    "fired": lambda one: (one["fired"], one["id"]),
    "matched": lambda one: (one["matched"], one["id"]),
}


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
    state = request.plane.operations.running.state
    clock = state.clock
    can_move = isinstance(clock, VirtualClock)
    offset_ms = clock.offset_ms if can_move else 0
    return Page("clock.html", "Clock", "clock", {"can_move": can_move, "ahead_ms": offset_ms})
