"""The first page: the broker and its activity. The newest requests with their responses, and single requests with their
bytes beside their fields."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...admin_api.overview import Selection
from ...admin_api.views import NotFound
from ...cooperative import in_thread
from ...recording.exchange import Ending
from ...recording.redaction import may_carry
from ...releases.profiles import api_names
from . import side_by_side
from .page import Columns, Download, Page, PageRequest, listing

if TYPE_CHECKING:
    from ...network.server import Running
    from ...recording.exchange import Exchange
    from ...recording.ring import Ring
    from .side_by_side import Decoded

QUIET = ("Fetch", "Heartbeat", "Metadata", "ApiVersions", "FindCoordinator")
"""The APIs that idle clients call all the time."""
OVERVIEW_ROWS = 8
LOOKED_REQUESTS = 400  # the newest, among which the overview looks for these
_REQUESTS: Columns[Exchange] = {
    "number": lambda one: one.number,
    "duration": lambda one: (one.duration_ns, one.number),
    "request": lambda one: (one.request_bytes, one.number),
    "response": lambda one: (one.response_bytes, one.number),
}


def api_name(names: dict[int, str], key: int) -> str:
    """Returns the name of an API; its number if it is unknown."""
    return names.get(key, f"API {key}")


def _ring(running: Running) -> Ring:
    ring = running.ring
    if ring is None:
        raise NotFound("this broker keeps no requests")
    return ring


async def overview(request: PageRequest) -> Page:
    """Shows the overview."""
    plane = request.plane
    running = plane.operations.running
    found = await plane.overviews.taken(Selection(OVERVIEW_ROWS))
    names = api_names()
    kept = [] if running.ring is None else running.ring.list(running.ring.next_number - LOOKED_REQUESTS)
    shown = [one for one in kept if one.ending is Ending.CLOSED or api_name(names, one.api_key) not in QUIET]
    values = {"o": found, "newest": shown[::-1][:OVERVIEW_ROWS], "names": names}
    return Page("overview.html", "Overview", "overview", values)


async def requests(request: PageRequest) -> Page:
    """Lists requests, the newest first."""
    running = request.plane.operations.running
    query = request.query
    api, client, ending = query.text("api"), query.text("client"), query.text("ending")
    slower_ms, below = query.whole("slower"), query.whole("below")
    connection, busy = query.whole("connection"), query.flag("busy")
    names = api_names()
    everything = [] if running.ring is None else running.ring.list()

    def is_wanted(one: Exchange) -> bool:
        name = api_name(names, one.api_key)
        texts = one.client_id, one.software_name, one.peer.client_host, one.principal
        return (
            api in ("", name)
            and not (busy and name in QUIET)
            and (not client or any(client.casefold() in (text or "").casefold() for text in texts))
            and ending in ("", one.ending.value)
            and connection in (None, one.peer.number)
            and (slower_ms is None or one.duration_ns >= slower_ms * 1_000_000)
            and (below is None or one.number < below)
        )

    found = listing(filter(is_wanted, everything), query, _REQUESTS, default="-number")
    seen = {api_name(names, one.api_key) for one in everything}
    values = {
        "list": found,
        "names": names,
        "apis": sorted(seen | ({api} if api else set())),
        "endings": [one.value for one in Ending],
        "counted": len(everything),
        "api": api,
        "client": client,
        "ending": ending,
        "slower": slower_ms,
        "connection": connection,
        "busy": busy,
        "quiet": QUIET,
        "is_kept": running.ring is not None,
    }
    return Page("requests.html", "Requests", "requests", values)


def _exchange(request: PageRequest) -> Exchange:
    """Returns the exchange of the path's number. Raises NotFound."""
    text = request.path["number"]
    found = _ring(request.plane.operations.running).find(int(text)) if len(text) < 19 else None
    if found is None:
        raise NotFound(f"request {text[:20]} is not among the newest that are kept")
    return found


async def exchange(request: PageRequest) -> Page:
    """Shows one request with its response, decoded."""
    state = request.plane.operations.running.state
    found = _exchange(request)
    decoded: dict[str, Decoded | None] = {"request": None, "response": None}
    for what, data in (("request", found.request), ("response", found.response)):
        if data is not None:
            of = partial(side_by_side.decoded, data, found.api_key, found.api_version, is_request=what == "request")
            decoded[what] = await state.scheduler.run(in_thread(of))
    names = api_names()
    ring = _ring(request.plane.operations.running)
    name = api_name(names, found.api_key)
    values = {
        "one": found,
        "name": name,
        "decoded": decoded,
        "is_blanked": may_carry(found.api_key, found.api_version),
        "previous": found.number - 1 if ring.find(found.number - 1) is not None else None,
        "next": found.number + 1 if ring.find(found.number + 1) is not None else None,
    }
    return Page("exchange.html", f"{name} v{found.api_version}, request {found.number}", "requests", values)


async def download(request: PageRequest) -> Download:
    """Returns the bytes of a frame."""
    found = _exchange(request)
    what = request.path["what"]
    data = {"request.bin": found.request, "response.bin": found.response}.get(what)
    if data is None:
        raise NotFound(f"request {found.number} has no {what[:40]}, or its bytes were not kept")
    return Download(data, f"{found.number}-{what}")
