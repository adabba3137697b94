"""Reads the streams of the web pages, event by event."""

from __future__ import annotations

import http.client
import json
from typing import Any

from ottla_testing.broker.paged import Visitor
from ottla_testing.patience import PATIENCE_S


class Tail:
    """One open stream of events."""

    def __init__(self, visitor: Visitor, path: str, **headers: str) -> None:
        self.connection = http.client.HTTPConnection(visitor.address, timeout=PATIENCE_S)
        self.connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        self.response = self.connection.getresponse()

    def event(self) -> tuple[str, str, Any]:
        """Returns the next event: its name, its id, its data."""
        found: dict[str, str] = {}
        while True:
            line = self.response.readline().decode().rstrip("\n")
            if not line and "data" in found:
                return found["event"], found.get("id", ""), json.loads(found["data"])
            name, colon, text = line.partition(": ")
            if name and colon:
                found[name] = text

    def close(self) -> None:
        self.response.close()
        self.connection.close()


def lines_of(seen: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in seen.body.decode().split("\n") if line]
