"""`ottla ctl recording`: records the requests and responses of a running broker to a file."""

from __future__ import annotations

import argparse
import os
from typing import Any

from ...protocol.text import cell, moment, table
from ..http_client import Client


def shown(response: Any) -> list[str]:
    """Returns the lines of the running recording, or of the last one."""
    if response["file"] is None:
        return ["no recording"]
    rows = [
        ("recording", "running" if response["running"] else f"ended: {cell(response['ended'])}"),
        ("file", cell(response["file"])),
        ("since", moment(response["since_ms"])),
        ("requests", cell(response["exchanges"])),
        ("dropped", cell(response["dropped"])),
        ("waiting", f"{response['waiting_bytes']} bytes"),
        (
            "size",
            f"{response['size_bytes']} of {response['max_bytes']} bytes{', the newest' if response['ring'] else ''}",
        ),
        ("contents", "yes" if response["contents"] else "omitted"),
    ]
    return table(rows)


def get(to: Client, given: argparse.Namespace) -> Any:
    """Requests the state of the recording."""
    return to.request("GET", "recording")


def start(to: Client, given: argparse.Namespace) -> Any:
    """Starts a recording."""
    body: dict[str, Any] = {
        "file": os.path.abspath(given.file),
        "ring": given.ring,
        "contents": not given.without_contents,
    }
    return to.request(
        "POST", "recording", body=body if given.max_bytes is None else body | {"max_bytes": given.max_bytes}
    )


def stop(to: Client, given: argparse.Namespace) -> Any:
    """Stops the recording."""
    return to.request("DELETE", "recording")
