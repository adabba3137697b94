"""Values that recordings consist of: an exchange (a request with its response), its connection, and a whole recording.

Frames are as on the wire, without the size in front. They may hold credentials: apply `redaction.blanked` before they
are kept or leave the process.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import field, fields
from enum import StrEnum
from typing import Any, Protocol

from ...protocol.frozen import frozen, slotted
from ...protocol.narrowing import is_dict
from ..metrics.client_ledger import ClientLibrary
from ..security.authorizer import ANONYMOUS


@frozen
class Produced:
    """The facts about a producer's configuration in a Produce request.

    `topics` are names, or ids from v13 on; `codecs` and `magics` are those of its batches, in order and once each;
    `is_idempotent` is whether all batches have a producer id; `records` is the sum of the counts in batch headers.
    """

    acks: int
    topics: tuple[str | bytes, ...]
    codecs: tuple[str, ...]
    magics: tuple[int, ...]
    is_idempotent: bool
    is_transactional: bool
    producer_ids: tuple[int, ...]
    records: int


class Ending(StrEnum):
    """How an exchange ended."""

    PENDING = "pending"
    RESPONDED = "responded"
    SILENT = "silent"
    """No response is due: Produce with acks=0."""
    CLOSED = "closed"
    """The connection was closed instead, or while the request waited; `reason` has the cause."""


@slotted
class Peer:
    """One connection. `number` counts from 1 in this process; `opened_ms` is the broker's clock.

    `library` has the client library, from the request on that names it: it is replaced then.
    """

    number: int
    node_id: int
    listener: str
    local_host: str
    local_port: int
    client_host: str
    client_port: int
    opened_ms: int
    library: ClientLibrary


FACTS = *(one.name for one in fields(Peer) if one.name != "library"), "software_name", "software_version"
"""The names of the facts, in the order of `peer_facts`."""


def peer_facts(peer: Peer) -> dict[str, Any]:
    """Returns a connection as a JSON-able dict."""
    return {name: getattr(peer.library if name.startswith("software_") else peer, name) for name in FACTS}


def peer_of(facts: Any) -> Peer:
    """Returns the connection that `peer_facts` described. Raises ValueError."""
    import msgspec  # not at the top: only recordings need it

    if not is_dict(facts):
        raise ValueError("a connection is not a JSON object")
    library = library_of(facts.get("listener", ""), facts.get("software_name"), facts.get("software_version"))
    return msgspec.convert({**facts, "library": library}, Peer)


def library_of(listener: str, name: str | None, version: str | None) -> ClientLibrary:
    """Returns the client library of a connection to this listener."""
    return ClientLibrary(listener, name, version, name is not None)


HEAD_BYTES = 10  # of a request: API key, version, correlation id, length of the client id
_unpack_head = struct.Struct(">hhih").unpack_from
_TEXT = 32  # the first byte that is text


def is_header(key: int, version: int) -> bool:
    """Returns whether these can be an API key and a version. Other frames begin with text: a client that uses SASL
    without a handshake sends its password in place of a request, and two bytes of text are larger than any API key or
    version."""
    return 0 <= version < _TEXT or 0 <= key < _TEXT


def client_id_of(frame: bytes | memoryview, key: int, version: int, length: int) -> str | None:
    """Returns the client id of a request; None if it has none, or if the frame is not a request."""
    if 0 <= length <= len(frame) - HEAD_BYTES and is_header(key, version):
        return str(frame[HEAD_BYTES : HEAD_BYTES + length], "utf8", "replace")
    return None


@slotted
class Exchange:
    """A request and its response.

    `number` counts from 1, in the order in which requests were begun. `time_ms` is the broker's clock when the request
    was begun, `begun_ns` time.perf_counter_ns at that moment; in a recording `begun_ns` is in nanoseconds since 1970. A
    request too short for a header has -1 as its key, version and correlation id. `request` and `response` are whole
    frames, headers first. Both are None if they were not kept; `response` is also None if there is none. The sizes are
    those on the wire, whether or not the frame was kept. `duration_ns` is the time until the response was sent, -1
    before. `fault` names the fault rules that fired. `produced` describes a Produce request whose frame was not kept.
    `principal` is that of the connection when the request arrived, "Type:name".
    """

    number: int
    peer: Peer
    time_ms: int
    begun_ns: int
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    request: bytes | None
    request_bytes: int
    response: bytes | None = None
    response_bytes: int = 0
    duration_ns: int = -1
    ending: Ending = Ending.PENDING
    reason: str = ""
    fault: str | None = None
    produced: Produced | None = None
    principal: str = ANONYMOUS

    @property
    def software_name(self) -> str | None:
        """The name of the client library; None where the client does not send it (ApiVersions below v3, KIP-511)."""
        return self.peer.library.software_name

    @property
    def software_version(self) -> str | None:
        """The version of the client library."""
        return self.peer.library.software_version


def exchange_of(number: int, peer: Peer, time_ms: int, begun_ns: int, frame: bytes | memoryview | None) -> Exchange:
    """Returns an exchange that begins with this request. A memoryview is not copied: `request` is then None."""
    key, version, correlation_id, client_id = -1, -1, -1, None
    size = 0 if frame is None else len(frame)
    if frame is not None and size >= HEAD_BYTES:
        key, version, correlation_id, length = _unpack_head(frame)
        client_id = client_id_of(frame, key, version, length)
    kept = frame if isinstance(frame, bytes) else None
    return Exchange(number, peer, time_ms, begun_ns, key, version, correlation_id, client_id, kept, size)


Buffer = bytes | bytearray | memoryview


class Sink(Protocol):
    """A subscriber of requests and responses, called on the broker's loop. One that raises is unsubscribed.

    It gets the same `Exchange` twice, changed in between; all subscribers share it, so none changes it.
    """

    def opened(self, peer: Peer) -> None:
        """Receives a new connection; for a connection that is older than the subscription, before its first request."""
        ...

    def begun(self, exchange: Exchange, frame: memoryview) -> None:
        """Receives a request. The frame is valid until this returns; `exchange.request` may be kept."""
        ...

    def ended(self, exchange: Exchange, response: Sequence[Buffer]) -> None:
        """Receives the end of an exchange: its response was sent, in these pieces, or none will be."""
        ...

    def closed(self, peer: Peer) -> None:
        """Receives a connection that was closed; all its exchanges have ended."""
        ...


@slotted
class Recording:
    """A whole recording, in the order in which requests were begun.

    `meta` describes the broker: `ottla` (its version), `release`, `cluster_id`, `nodes` (each `node_id`, `listener`,
    and the advertised `host` and `port`), `time_ms`, `contents` (whether keys and values are recorded). The `library`
    of a connection is its last one. `damage` names what could not be read, each in one line; `dropped` counts exchanges
    that came faster than they could be written.
    """

    meta: dict[str, Any]
    peers: dict[int, Peer] = field(default_factory=dict[int, Peer])
    exchanges: list[Exchange] = field(default_factory=list["Exchange"])
    damage: list[str] = field(default_factory=list[str])
    dropped: int = 0
