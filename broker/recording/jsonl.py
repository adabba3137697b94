"""Writes and reads recordings as JSON lines: one object to a line, decoded, for people, `jq` and programs.

The first line is the recording's (`"type": "recording"`). A connection has a line when it opens and one when it closes,
an exchange has one when it ended, with both messages as in `decoding.py`. `dropped` counts exchanges that are missing
at that place, `end` has the reason why the recording ends there. A reader ignores unknown types.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ...protocol.apis import apis
from ...protocol.narrowing import is_dict
from .decoding import encoded, request_plain, response_plain
from .exchange import Ending, Exchange, Peer, Recording, library_of, peer_facts, peer_of


def _line(value: Mapping[str, Any]) -> bytes:
    # Surrogates, which UTF-8 cannot encode, become escapes; JSON's have the same form as Python's.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace") + b"\n"


class JsonWriter:
    """Makes JSON lines of events."""

    def __init__(self, contents: bool) -> None:
        self._contents = contents
        self._start_ns = 0

    def head(self, meta: Mapping[str, Any]) -> bytes:
        """Returns the beginning of a file."""
        self._start_ns = meta["time_ms"] * 1_000_000
        return _line(meta)

    def introduction(self, peer: Peer, time_ms: int) -> bytes:
        """Returns the line of a connection; in each file it precedes the connection's other lines."""
        return _line({"type": "connection", **peer_facts(peer)})

    def begun(self, exchange: Exchange) -> bytes:
        """Returns nothing: a request is written with its response."""
        return b""

    def ended(self, exchange: Exchange) -> bytes:
        """Returns the line of an exchange, also of one that has not ended when the recording does."""
        api = apis().get(exchange.api_key)
        line: dict[str, Any] = {
            "type": "exchange",
            "number": exchange.number,
            "connection": exchange.peer.number,
            "time_ms": exchange.time_ms,
            "since_ns": exchange.begun_ns - self._start_ns,
            "duration_us": round(exchange.duration_ns / 1000, 3) if exchange.duration_ns >= 0 else None,
            "api": None if api is None else api.name,
            "api_key": exchange.api_key,
            "version": exchange.api_version,
            "correlation_id": exchange.correlation_id,
            "client_id": exchange.client_id,
            "software_name": exchange.software_name,
            "software_version": exchange.software_version,
            "request_bytes": exchange.request_bytes,
            "response_bytes": exchange.response_bytes,
            "ending": exchange.ending.value,
            "reason": exchange.reason,
        }
        if exchange.fault is not None:
            line["fault"] = exchange.fault
        line["request"] = request_plain(exchange, contents=self._contents)
        line["response"] = response_plain(exchange, contents=self._contents)
        return _line(line)

    def closed(self, peer: Peer, time_ms: int) -> bytes:
        """Returns the line of a closed connection."""
        return _line({"type": "closed", "connection": peer.number, "time_ms": time_ms})

    def forget(self, peer: Peer) -> None:
        """Does nothing: lines have no state of a connection."""

    def noted(self, count: Mapping[str, Any], time_ms: int) -> bytes:
        """Returns the line of a count."""
        return _line({**count, "time_ms": time_ms})


def meta_of(first_line: bytes) -> dict[str, Any] | None:
    """Returns the recording's first line; None for a file that is not a recording."""
    try:
        meta = json.loads(first_line)
    except (ValueError, RecursionError):
        return None
    return meta if is_dict(meta) and meta.get("type") == "recording" else None


_TYPES: Mapping[str, tuple[type, ...]] = {
    "number": (int,),
    "connection": (int,),
    "time_ms": (int,),
    "api_key": (int,),
    "version": (int,),
    "correlation_id": (int,),
    "client_id": (str, type(None)),
    "request_bytes": (int,),
    "response_bytes": (int,),
    "duration_us": (int, float, type(None)),
    "ending": (str,),
    "reason": (str,),
    "software_name": (str, type(None)),
    "software_version": (str, type(None)),
    "request": (dict, type(None)),
    "response": (dict, type(None)),
}


class JsonReader:
    """Reads files of one recording, the older one first, into `recording`."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def read(self, lines: Iterable[bytes], name: str) -> None:
        """Adds the exchanges of a file; damaged lines are noted in the recording's `damage`."""
        for number, line in enumerate(lines, 1):
            if number == 1 or not line.strip():
                continue
            try:
                self._take(json.loads(line))
            except (ValueError, RecursionError) as error:
                why = "it is cut" if not line.endswith(b"\n") else str(error)
                self.recording.damage.append(f"{name}: line {number}: {why}")

    def _take(self, value: Any) -> None:
        if not is_dict(value):
            raise ValueError("it is not a JSON object")
        kind = value.get("type")
        if kind == "connection":
            peer = peer_of(value)
            self.recording.peers.setdefault(peer.number, peer)
        elif kind == "exchange":
            self._exchange(value)
        elif kind == "dropped":
            if type(value.get("dropped")) is not int:
                raise ValueError("dropped is not a whole number")
            self.recording.dropped += value["dropped"]

    def _exchange(self, value: dict[str, Any]) -> None:
        for name, kinds in _TYPES.items():
            if type(value.get(name, ...)) not in kinds:
                raise ValueError(f"{name} is missing, or has the wrong type")
        peer = self.recording.peers.get(value["connection"])
        if peer is None:
            raise ValueError(f"connection {value['connection']} has no line before this one")
        peer.library = library_of(peer.listener, value["software_name"], value["software_version"])
        exchange = Exchange(
            value["number"],
            peer,
            value["time_ms"],
            self._begun_ns(value),
            value["api_key"],
            value["version"],
            value["correlation_id"],
            value["client_id"],
            self._frame(value, is_request=True),
            value["request_bytes"],
            self._frame(value, is_request=False),
            value["response_bytes"],
            -1 if value["duration_us"] is None else round(value["duration_us"] * 1000),
            Ending(value["ending"]),
            value["reason"],
            value.get("fault"),
        )
        self.recording.exchanges.append(exchange)

    def _frame(self, value: dict[str, Any], *, is_request: bool) -> bytes | None:
        """Returns the frame of a request or a response; None if it was not kept, or if its contents were left out.
        Raises ValueError."""
        message = value["request" if is_request else "response"]
        if message is None:
            return None
        ids = {"correlation_id": value["correlation_id"], "client_id": value["client_id"]}
        try:
            return encoded(value["api_key"], value["version"], message, is_request, **ids)
        except ValueError:
            if self.recording.meta.get("contents") is not False:
                raise
            return None

    def _begun_ns(self, value: dict[str, Any]) -> int:
        """Returns when the exchange began: the recording's beginning plus the time since then."""
        start_ms, since_ns = self.recording.meta.get("time_ms"), value.get("since_ns")
        if type(start_ms) is not int or type(since_ns) is not int:
            return value["time_ms"] * 1_000_000
        return start_ms * 1_000_000 + since_ns
