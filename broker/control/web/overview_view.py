"""The first page: the broker and its activity."""

from __future__ import annotations

from ...admin_api.overview import Selection
from ...recording.exchange import Ending, Exchange
from ...releases.profiles import api_names
from .answer import Page, PageRequest
from .requests_view import QUIET, api_name

LIMIT = 8


async def overview(request: PageRequest) -> Page:
    """Shows the overview."""
    plane = request.plane
    running = plane.operations.running
    found = await plane.overviews.taken(Selection(LIMIT))
    names = api_names()
    newest: list[Exchange] = []
    ring = running.ring
    number = ring.next_number - 1 if ring is not None else 0
    for at in range(number, max(0, number - 400), -1):
        one = ring.find(at) if ring is not None else None
        if one is not None and (one.ending is Ending.CLOSED or api_name(names, one.api_key) not in QUIET):
            newest.append(one)
        if len(newest) == LIMIT:
            break
    return Page("overview.html", "Overview", "overview", {"o": found, "newest": newest, "names": names})
