"""The control plane's routes for requests that clients made: lists, single requests, assertions about them, and
recordings.

Frames are decoded in another thread than the broker's, up to a bound for each response.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Generator, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from ..admin_api import requests
from ..admin_api.expectations import WORDS, Expected
from ..admin_api.seen_requests import SeenRequest
from ..config.record_options import RecordError, RecordOptions
from ..recording import decoding
from ..recording.decoding import Room
from ..recording.exchange import Produced
from .models import requests as models
from .models.parts import Removed
from .plane import Plane
from .refusal import Refusal
from .route import Call, RouteTable

SHOWN_RECORDS = 100  # of each request of a list
WHOLE_RECORDS = 1_000  # of a single request
DECODED_BYTES = 4 << 20  # of frames and records that are decoded for one response, plus one request
RECORDS_BYTES = 2 << 20  # of the records of one frame, decompressed
VERDICT_REQUESTS = 100  # that are returned with a verdict
routes = RouteTable()


@contextlib.contextmanager
def _refusing() -> Generator[None]:
    """Turns errors of words into Refusal (400)."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise Refusal(400, error) from error


def _words(model: models.RequestsQuery | models.Expectation) -> dict[str, Any]:
    given = msgspec.to_builtins(model)
    words = {name: given[name] for name in WORDS if name in given}
    if isinstance(words.get("api"), str):
        words["api"] = [name.strip() for name in words["api"].split(",")]
    return words


@routes.add("GET", "/requests", models.SeenRequests, query=models.RequestsQuery)
async def list_requests(plane: Plane, call: Call) -> Any:
    """The newest requests of clients, with how they ended."""
    query: models.RequestsQuery = call.query
    with _refusing():
        wanted = Expected.filter(**_words(query))
        found = requests.look(plane.operations.running, wanted.which.since)
    seen = found.seen if query.order == "oldest" else found.seen[::-1]
    listed, more = await asyncio.to_thread(_listed, seen, wanted, query.limit, query.show)
    next_number = requests.ring_of(plane.operations.running).next_number
    return {"requests": listed, "more": more, "next": next_number, "forgotten": found.forgotten}


def _listed(seen: Sequence[SeenRequest], wanted: Expected, limit: int, show: str) -> tuple[list[dict[str, Any]], bool]:
    found: list[dict[str, Any]] = []
    size = 0
    for one in seen:
        if not wanted.is_met_by(one):
            continue
        if len(found) == limit or size > DECODED_BYTES:
            return found, True
        found.append(summary(one))
        if show != "summary":
            rooms = Room(SHOWN_RECORDS, RECORDS_BYTES), Room(SHOWN_RECORDS, RECORDS_BYTES)
            found[-1] |= fields(one, show == "contents", rooms)
            size += len(one.exchange.request or b"") + len(one.exchange.response or b"")
            size += sum(room.size_bytes for room in rooms)
    return found, False


@routes.add("DELETE", "/requests", Removed)
async def clear_requests(plane: Plane, call: Call) -> Any:
    """Remove all requests from the list."""
    return {"removed": requests.ring_of(plane.operations.running).clear()}


@routes.add("POST", "/requests/assert", models.Verdict, body=models.Expectation, needs_body=True)
async def assert_requests(plane: Plane, call: Call) -> Any:
    """Check the requests against an expectation."""
    body: models.Expectation = call.body
    with _refusing():
        expected = Expected.of(**_words(body))
    found = await requests.judged(plane.operations.running, expected, body.within_ms)
    first = await asyncio.to_thread(lambda: [summary(one) for one in found.selected[:VERDICT_REQUESTS]])
    return {"passed": found.passed, "text": found.text, "count": len(found.selected), "requests": first}


@routes.add("GET", "/requests/{request}", models.WholeRequest)
async def get_request(plane: Plane, call: Call) -> Any:
    """One request and its response, with all fields and their bytes."""
    number, running = call.path["request"], plane.operations.running
    found = requests.ring_of(running).find(number)
    if found is None:
        raise Refusal(404, f"request {number} is not among the newest that are kept")
    return await asyncio.to_thread(whole, SeenRequest(found, requests.names_of(running)))


def summary(seen: SeenRequest) -> dict[str, Any]:
    """Returns a request and how it ended, without its fields."""
    exchange, peer = seen.exchange, seen.exchange.peer
    return {
        "number": exchange.number,
        "connection": peer.number,
        "node": peer.node_id,
        "listener": peer.listener,
        "client_host": peer.client_host,
        "client_port": peer.client_port,
        "api": seen.api,
        "api_key": exchange.api_key,
        "version": exchange.api_version,
        "correlation_id": exchange.correlation_id,
        "client_id": exchange.client_id,
        "software": exchange.software_name,
        "software_version": exchange.software_version,
        "principal": exchange.principal,
        "time_ms": exchange.time_ms,
        "duration_us": None if exchange.duration_ns < 0 else exchange.duration_ns // 1000,
        "ending": seen.ending,
        "reason": exchange.reason,
        "fault": exchange.fault,
        "request_bytes": exchange.request_bytes,
        "response_bytes": exchange.response_bytes,
        "errors": list(seen.errors),
        "topics": list(seen.topics),
        "produced": None if seen.produced is None else _produced(seen.produced),
    }


def _produced(produced: Produced) -> dict[str, Any]:
    found = asdict(produced)
    del found["topics"]  # the summary has their names
    return found


def fields(seen: SeenRequest, contents: bool, rooms: tuple[Room, Room]) -> dict[str, Any]:
    """Returns the fields of request and response; of their records as many as there is room for."""
    return {
        "request": decoding.request_plain(seen.exchange, contents=contents, room=rooms[0]),
        "response": decoding.response_plain(seen.exchange, contents=contents, room=rooms[1]),
    }


def whole(seen: SeenRequest) -> dict[str, Any]:
    """Returns everything about a request."""
    exchange = seen.exchange
    return {
        **summary(seen),
        **fields(seen, True, (Room(WHOLE_RECORDS, RECORDS_BYTES), Room(WHOLE_RECORDS, RECORDS_BYTES))),
        "request_hex": None if exchange.request is None else exchange.request.hex(),
        "response_hex": None if exchange.response is None else exchange.response.hex(),
    }


# Recordings

NONE: dict[str, Any] = {
    "running": False,
    "ring": False,
    "contents": True,
    **dict.fromkeys(("file", "format", "max_bytes", "since_ms", "ended")),
    **dict.fromkeys(("exchanges", "dropped", "waiting_bytes", "size_bytes"), 0),
}


@routes.add("GET", "/recording", models.Recording)
async def get_recording(plane: Plane, call: Call) -> Any:
    """The recording that runs, or the last one."""
    recorder = plane.operations.running.recorder
    state = recorder.state
    if state is None:
        return NONE
    found = state._asdict()
    options = found.pop("options")
    return {
        "running": recorder.is_running,
        "file": options.path,
        "format": options.format.value,
        "max_bytes": options.max_bytes,
        "ring": options.ring,
        "contents": options.contents,
        **found,
    }


@routes.add("POST", "/recording", models.Recording, status=201, body=models.NewRecording, needs_body=True)
async def start_recording(plane: Plane, call: Call) -> Any:
    """Write all requests and responses to a file.

    The broker must be able to write it; only an earlier recording is overwritten.
    """
    body: models.NewRecording = call.body
    try:
        options = RecordOptions(os.path.abspath(body.file), body.max_bytes, body.ring, body.contents)
    except RecordError as error:
        raise Refusal(400, error) from error
    running = plane.operations.running
    try:
        running.recorder.start(running, options)
    except RecordError as error:
        raise Refusal(409, error) from error
    return await get_recording(plane, call)


@routes.add("DELETE", "/recording", models.Recording, refusals=(404, 409))
async def stop_recording(plane: Plane, call: Call) -> Any:
    """End the recording; the response comes when all of it is written."""
    recorder = plane.operations.running.recorder
    if not recorder.is_running:
        raise Refusal(404, "no recording is running")
    await recorder.stop()
    return await get_recording(plane, call)
