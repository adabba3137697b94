"""`ottla ctl recording`: what clients send, written to a file while the broker runs."""

from __future__ import annotations

import argparse
import os
from typing import Any

from ...protocol.text import cell, moment, table
from ..http_client import Client


def shown(told: Any) -> list[str]:
    """The recording that runs, or the last one."""
    if told["file"] is None:
        return ["nothing is being recorded"]
    rows = [
        ("recording", "running" if told["running"] else f"ended: {cell(told['ended'])}"),
        ("file", cell(told["file"])),
        ("since", moment(told["since_ms"])),
        ("requests", cell(told["exchanges"])),
        ("dropped", cell(told["dropped"])),
        ("waiting", f"{told['waiting_bytes']} bytes"),
        ("size", f"{told['size_bytes']} of {told['max_bytes']} bytes{', the newest' if told['ring'] else ''}"),
        ("contents", "yes" if told["contents"] else "left out"),
    ]
    return table(rows)


def get(to: Client, given: argparse.Namespace) -> Any:
    """Asks for it."""
    return to.ask("GET", "recording")


def start(to: Client, given: argparse.Namespace) -> Any:
    """Begins one."""
    body: dict[str, Any] = {
        "file": os.path.abspath(given.file),
        "ring": given.ring,
        "contents": not given.without_contents,
    }
    return to.ask("POST", "recording", body=body if given.max_bytes is None else body | {"max_bytes": given.max_bytes})


def stop(to: Client, given: argparse.Namespace) -> Any:
    """Ends it."""
    return to.ask("DELETE", "recording")
