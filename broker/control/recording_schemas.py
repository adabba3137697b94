"""How recordings stand in the control plane's document."""

from __future__ import annotations

from ...protocol.limits import INT64_MAX
from ..config.record_options import LEAST_BYTES, MAX_BYTES, Format
from .schema_parts import FLAG, TEXT_OR_NULL, object_of, text_of, whole
from .shapes import Schema

MAX_PATH = 4096
_COUNT = whole(0, INT64_MAX)

RECORDINGS: dict[str, Schema] = {
    "NewRecording": object_of(
        {
            "file": text_of(
                MAX_PATH, "where the broker writes it: JSON lines (.jsonl) or for Wireshark (.pcapng), by its ending", 1
            ),
            "max_bytes": whole(LEAST_BYTES, INT64_MAX, "it ends when it is so large", default=MAX_BYTES),
            "ring": {**FLAG, "default": False, "description": "keep the newest instead, in FILE and FILE.1"},
            "contents": {
                **FLAG,
                "default": True,
                "description": "false leaves keys and values of records out, and the values of their headers",
            },
        },
        optional=("max_bytes", "ring", "contents"),
    ),
    "Recording": object_of(
        {
            "running": FLAG,
            "file": TEXT_OR_NULL,
            "format": {"enum": [*Format, None]},
            "max_bytes": {"type": ["integer", "null"]},
            "ring": FLAG,
            "contents": FLAG,
            "since_ms": {"type": ["integer", "null"], "description": "when it began, by the broker's clock"},
            "exchanges": {**_COUNT, "description": "requests that ended since"},
            "dropped": {**_COUNT, "description": "of them those that came too fast to be written"},
            "waiting_bytes": {**_COUNT, "description": "what is still to be written, before it is decoded"},
            "size_bytes": {**_COUNT, "description": "of its files now"},
            "ended": {**TEXT_OR_NULL, "description": "why it has: stopped, or what went wrong"},
        },
        text="the recording that runs, or the last one; file is null where there was none",
    ),
}
