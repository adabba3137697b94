"""What a recording holds, once it is read, and how a connection stands in it as JSON.

Owns these values only: both kinds of files are read into them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...protocol.api_key import ApiKey
from ..metrics.client_ledger import Origin
from .decoding import request_value
from .exchange import Exchange, Peer, client_id_of

_HEAD = struct.Struct(">hhih")
_FIELDS: Mapping[str, type] = {
    "number": int,
    "node_id": int,
    "listener": str,
    "local_host": str,
    "local_port": int,
    "client_host": str,
    "client_port": int,
    "opened_ms": int,
}


class NoRecording(ValueError):
    """A file is no recording that can be read; one line that names it."""


@dataclass(slots=True)
class Recording:
    """A whole recording, in the order in which requests were begun.

    `meta` has what the broker said of itself: `ottla` (its version), `release`, `cluster_id`, `nodes` (each `node_id`,
    `listener`, `host` and `port`, as clients are told), `time_ms`, `contents` (whether keys and values are in it). Of
    an exchange's connection `origin` is what its client told last. `damage` names what could not be read, each in one
    line; `dropped` counts exchanges that came faster than they could be written.
    """

    meta: dict[str, Any]
    peers: dict[int, Peer] = field(default_factory=dict)
    exchanges: list[Exchange] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    dropped: int = 0


class Times:
    """When exchanges began, in nanoseconds since 1970: within the millisecond that the broker's clock tells, and as far
    from others as they were in truth."""

    def __init__(self) -> None:
        self._offset_ns = 0  # between time.perf_counter_ns and the broker's clock

    def begun_ns(self, exchange: Exchange) -> int:
        """To be asked of each exchange once, in their order."""
        least = exchange.time_ms * 1_000_000
        told = exchange.begun_ns + self._offset_ns
        if not least <= told < least + 1_000_000:
            told = min(max(told, least), least + 999_999)
            self._offset_ns = told - exchange.begun_ns
        return told


def peer_facts(peer: Peer) -> dict[str, Any]:
    """A connection as JSON has it."""
    facts: dict[str, Any] = {name: getattr(peer, name) for name in _FIELDS}
    return facts | {
        "software_name": peer.origin.software_name,
        "software_version": peer.origin.software_version,
    }


def peer_of(facts: Any) -> Peer:
    """The connection that `peer_facts` told of. Raises ValueError."""
    if not isinstance(facts, dict):
        raise ValueError("a connection that is no object")
    for name, kind in _FIELDS.items():
        if type(facts.get(name)) is not kind:
            raise ValueError(f"a connection without {name}")
    return Peer(
        **{name: facts[name] for name in _FIELDS},
        origin=origin_of(facts["listener"], facts.get("software_name"), facts.get("software_version")),
    )


def origin_of(listener: str, name: str | None, version: str | None) -> Origin:
    """Whose software a connection is of."""
    return Origin(listener, name, version, name is not None)


def exchange_of(number: int, peer: Peer, time_ms: int, begun_ns: int, frame: bytes | None) -> Exchange:
    """An exchange that begins with this request, of which the header says what it is."""
    key, version, correlation_id, client_id = -1, -1, -1, None
    if frame is not None and len(frame) >= _HEAD.size:
        key, version, correlation_id, length = _HEAD.unpack_from(frame)
        client_id = client_id_of(frame, key, version, length)
    size = 0 if frame is None else len(frame)
    return Exchange(number, peer, time_ms, begun_ns, key, version, correlation_id, client_id, frame, size)


def note_software(exchange: Exchange) -> None:
    """Has the connection of an ApiVersions that was answered well be of the software that it named, or of none."""
    if exchange.api_key == ApiKey.API_VERSIONS and (exchange.response or b"")[4:6] == b"\0\0":
        request = request_value(exchange)
        if request is not None:
            names = request.client_software_name or None, request.client_software_version or None
            exchange.peer.origin = origin_of(exchange.peer.listener, *names)
