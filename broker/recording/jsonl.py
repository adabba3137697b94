"""Writes and reads recordings as JSON lines: one object to a line, decoded, for people, `jq` and programs.

The first line is the recording's (`"type": "recording"`). A connection has a line when it opens and one when it closes,
an exchange has one when it ended, with both messages as in `decoding.py`. `dropped` counts exchanges that are missing
at that place, `end` has the reason why the recording ends there. A reader ignores unknown types.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, BinaryIO

import msgspec

from ...protocol.apis import apis
from ...protocol.narrowing import is_dict
from ..security.authorizer import ANONYMOUS
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
        line = {
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
            "principal": exchange.principal,
            "request_bytes": exchange.request_bytes,
            "response_bytes": exchange.response_bytes,
            "ending": exchange.ending.value,
            "reason": exchange.reason,
            **({} if exchange.fault is None else {"fault": exchange.fault}),
            "request": request_plain(exchange, contents=self._contents),
            "response": response_plain(exchange, contents=self._contents),
        }
        return _line(line)

    def closed(self, peer: Peer, time_ms: int) -> bytes:
        """Returns the line of a closed connection."""
        return _line({"type": "closed", "connection": peer.number, "time_ms": time_ms})

    def forget(self, peer: Peer) -> None:
        """Does nothing: lines have no state of a connection."""

    def noted(self, count: Mapping[str, Any], time_ms: int) -> bytes:
        """Returns the line of a count."""
        return _line({**count, "time_ms": time_ms})


class _Exchange(msgspec.Struct):
    """The line of an exchange, as far as it is read."""

    number: int
    connection: int
    time_ms: int
    duration_us: float | None
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    software_name: str | None
    software_version: str | None
    request_bytes: int
    response_bytes: int
    ending: Ending
    reason: str
    request: dict[str, Any] | None
    response: dict[str, Any] | None
    fault: str | None = None
    since_ns: int | None = None
    principal: str = ANONYMOUS


class JsonReader:
    """Reads files of one recording, the older one first, into `recording`."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    @staticmethod
    def meta_of(head: bytes) -> dict[str, Any] | None:
        """Returns the recording's first line, from the beginning of a file; None for a file that is not a recording."""
        try:
            meta = json.loads(head.partition(b"\n")[0])
        except (ValueError, RecursionError):
            return None
        return meta if is_dict(meta) and meta.get("type") == "recording" else None

    def read(self, file: BinaryIO, name: str) -> None:
        """Adds the exchanges of a file; damaged lines are noted in the recording's `damage`."""
        for number, line in enumerate(file, 1):
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
            self._exchange(msgspec.convert(value, _Exchange))
        elif kind == "dropped":
            if type(value.get("dropped")) is not int:
                raise ValueError("dropped is not a whole number")
            self.recording.dropped += value["dropped"]

    def _exchange(self, line: _Exchange) -> None:
        peer = self.recording.peers.get(line.connection)
        if peer is None:
            raise ValueError(f"connection {line.connection} has no line before this one")
        peer.library = library_of(peer.listener, line.software_name, line.software_version)
        start_ms, since_ns = self.recording.meta.get("time_ms"), line.since_ns
        if type(start_ms) is not int or since_ns is None:
            start_ms, since_ns = line.time_ms, 0
        exchange = Exchange(
            line.number,
            peer,
            line.time_ms,
            start_ms * 1_000_000 + since_ns,
            line.api_key,
            line.version,
            line.correlation_id,
            line.client_id,
            self._frame(line, is_request=True),
            line.request_bytes,
            self._frame(line, is_request=False),
            line.response_bytes,
            -1 if line.duration_us is None else round(line.duration_us * 1000),
            line.ending,
            line.reason,
            line.fault,
            principal=line.principal,
        )
        self.recording.exchanges.append(exchange)

    def _frame(self, line: _Exchange, *, is_request: bool) -> bytes | None:
        """Returns the frame of a request or a response; None if it was not kept, or if its contents were left out.
        Raises ValueError."""
        message = line.request if is_request else line.response
        if message is None:
            return None
        ids: dict[str, Any] = {"correlation_id": line.correlation_id, "client_id": line.client_id}
        try:
            return encoded(line.api_key, line.version, message, is_request, **ids)
        except ValueError:
            if self.recording.meta.get("contents") is not False:
                raise
            return None
