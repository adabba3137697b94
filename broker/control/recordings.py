"""Recordings over the control plane: started, stopped and inspected while the broker runs."""

from __future__ import annotations

import os
from typing import Any

from ..config.record_options import RecordError, RecordOptions
from .models.recordings import NewRecording, Recording
from .plane import Plane
from .refusal import Refusal
from .route import Call, Route

NONE: dict[str, Any] = {
    "running": False,
    "file": None,
    "format": None,
    "max_bytes": None,
    "ring": False,
    "contents": True,
    "since_ms": None,
    "exchanges": 0,
    "dropped": 0,
    "waiting_bytes": 0,
    "size_bytes": 0,
    "ended": None,
}


async def get_recording(plane: Plane, call: Call) -> Any:
    """Returns the recording that runs, or the last one."""
    recorder = plane.operations.running.recorder
    state = recorder.state
    if state is None:
        return NONE
    options = state.options
    return {
        "running": recorder.is_running,
        "file": options.path,
        "format": options.format.value,
        "max_bytes": options.max_bytes,
        "ring": options.ring,
        "contents": options.contents,
        "since_ms": state.since_ms,
        "exchanges": state.exchanges,
        "dropped": state.dropped,
        "waiting_bytes": state.waiting_bytes,
        "size_bytes": state.size_bytes,
        "ended": state.ended,
    }


async def start_recording(plane: Plane, call: Call) -> Any:
    """Starts a recording. The broker must be able to write its file; only an earlier recording is overwritten."""
    body: NewRecording = call.body
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


async def stop_recording(plane: Plane, call: Call) -> Any:
    """Ends the recording; the response is sent when all of it is written."""
    recorder = plane.operations.running.recorder
    if not recorder.is_running:
        raise Refusal(404, "no recording is running")
    await recorder.stop()
    return await get_recording(plane, call)


ROUTES = (
    Route("GET", "/recording", "getRecording", "The recording that runs, or the last one", Recording, get_recording),
    Route(
        "POST", "/recording", "startRecording", "Write all requests and responses to a file", Recording,
        start_recording, status=201, body=NewRecording, needs_body=True,
    ),
    Route(
        "DELETE", "/recording", "stopRecording", "End the recording; the response comes when all of it is written",
        Recording, stop_recording, refusals=(404, 409),
    ),
)  # fmt: skip
