"""Exchanges as JSON lines: one object to a line, decoded, for people, `jq` and programs.

Owns the lines, both ways. The first is the recording's (`"type": "recording"`); a connection has one when it opens and
one when it closes, an exchange one when it ended, with both messages as `decoding.py` tells them. `dropped` tells how
many exchanges are missing from there, `end` why nothing follows. A reader passes over types it does not know.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ...protocol.apis import apis
from .decoding import encoded, request_plain, response_plain
from .exchange import Ending, Exchange, Peer
from .recorded import Recording, Times, origin_of, peer_facts, peer_of


def _line(value: Mapping[str, Any]) -> bytes:
    # What UTF-8 has no bytes for is written as JSON's own escape, which has the same form as Python's.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace") + b"\n"


class JsonWriter:
    """What happens as lines. Every method returns them; none but `introduction` depends on the file they go to."""

    def __init__(self, contents: bool) -> None:
        self._contents = contents
        self._times = Times()
        self._since_ns: dict[int, int] = {}
        self._start_ns = 0

    def head(self, meta: Mapping[str, Any]) -> bytes:
        """How a file begins."""
        self._start_ns = meta["time_ms"] * 1_000_000
        return _line(meta)

    def mark(self, peer: Peer) -> None:
        """Lines have no state."""

    def introduction(self, peer: Peer, mark: None, time_ms: int) -> bytes:
        """What has to stand in a file before anything else of a connection."""
        return _line({"type": "connection", **peer_facts(peer)})

    def begun(self, exchange: Exchange) -> bytes:
        """A request is told with its answer, but when it began is known now."""
        self._since_ns[exchange.number] = self._times.begun_ns(exchange) - self._start_ns
        return b""

    def ended(self, exchange: Exchange) -> bytes:
        """An exchange; also one that has not ended when the recording does."""
        api = apis().get(exchange.api_key)
        line: dict[str, Any] = {
            "type": "exchange",
            "number": exchange.number,
            "connection": exchange.peer.number,
            "time_ms": exchange.time_ms,
            "since_ns": self._since_ns.pop(exchange.number, None),
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
        """The end of a connection."""
        return _line({"type": "closed", "connection": peer.number, "time_ms": time_ms})

    def noted(self, count: Mapping[str, Any], time_ms: int) -> bytes:
        """Counts."""
        return _line({**count, "time_ms": time_ms})


def meta_of(first_line: bytes) -> dict[str, Any] | None:
    """What a file's first line says; None for a file that is no recording."""
    try:
        meta = json.loads(first_line)
    except (ValueError, RecursionError):
        return None
    return meta if isinstance(meta, dict) and meta.get("type") == "recording" else None


_TYPES: Mapping[str, tuple[type, ...]] = {
    "number": (int,),
    "connection": (int,),
    "time_ms": (int,),
    "api_key": (int,),
    "version": (int,),
    "correlation_id": (int,),
    "client_id": (str, type(None)),
    "duration_us": (int, float, type(None)),
    "software_name": (str, type(None)),
    "software_version": (str, type(None)),
    "request_bytes": (int,),
    "response_bytes": (int,),
    "ending": (str,),
    "reason": (str,),
    "request": (dict, type(None)),
    "response": (dict, type(None)),
}


class JsonReader:
    """Reads files of one recording, the older one first, into `recording`."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._takes: Mapping[str, Callable[[dict[str, Any]], None]] = {
            "connection": self._connection,
            "exchange": self._exchange,
            "dropped": self._dropped,
        }

    def read(self, line: bytes, name: str, number: int) -> None:
        """Adds what a line has; one that cannot be read is told in the recording's `damage`."""
        if not line.strip():
            return
        try:
            value = json.loads(line)
            if not isinstance(value, dict):
                raise ValueError("no object")
            take = self._takes.get(str(value.get("type")))
            if take is not None:
                take(value)
        except (ValueError, RecursionError) as error:
            why = "it is cut" if not line.endswith(b"\n") else str(error)
            self.recording.damage.append(f"{name}: line {number}: {why}")

    def _connection(self, value: dict[str, Any]) -> None:
        peer = peer_of(value)
        self.recording.peers.setdefault(peer.number, peer)

    def _dropped(self, value: dict[str, Any]) -> None:
        if type(value.get("dropped")) is not int:
            raise ValueError("dropped is no number")
        self.recording.dropped += value["dropped"]

    def _exchange(self, value: dict[str, Any]) -> None:
        for name, kinds in _TYPES.items():
            if type(value.get(name, ...)) not in kinds:
                raise ValueError(f"{name} is missing, or not what it should be")
        peer = self.recording.peers.get(value["connection"])
        if peer is None:
            raise ValueError(f"connection {value['connection']} is none that was told of")
        peer.origin = origin_of(peer.listener, value["software_name"], value["software_version"])
        key, version, correlation_id = value["api_key"], value["version"], value["correlation_id"]
        exchange = Exchange(
            value["number"],
            peer,
            value["time_ms"],
            self._begun_ns(value),
            key,
            version,
            correlation_id,
            value["client_id"],
            None,
            value["request_bytes"],
            response_bytes=value["response_bytes"],
            duration_ns=-1 if value["duration_us"] is None else round(value["duration_us"] * 1000),
            ending=Ending(value["ending"]),
            reason=value["reason"],
            fault=value.get("fault"),
        )
        is_whole = self.recording.meta.get("contents") is not False
        for is_request in (True, False):
            told = value["request" if is_request else "response"]
            if told is None:
                continue
            try:
                frame = encoded(
                    key, version, told, is_request, correlation_id=correlation_id, client_id=exchange.client_id
                )
            except ValueError:
                if is_whole:
                    raise
                continue  # what it carries was left out
            if is_request:
                exchange.request = frame
            else:
                exchange.response = frame
        self.recording.exchanges.append(exchange)

    def _begun_ns(self, value: dict[str, Any]) -> int:
        """When it began: the recording's beginning and what had passed since."""
        start_ms, since_ns = self.recording.meta.get("time_ms"), value.get("since_ns")
        if type(start_ms) is not int or type(since_ns) is not int:
            return value["time_ms"] * 1_000_000
        return start_ms * 1_000_000 + since_ns
