"""One request and its answer, the connection that both came by, and who is told of them.

Owns values only. Bytes are as they were on the wire, without the size in front of a frame; credentials that are in them
are not for showing: `secrets.blanked` before they leave the process or are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..metrics.client_ledger import Origin


@dataclass(frozen=True, slots=True)
class Produced:
    """What a Produce request shows of its producer's configuration.

    `topics` are names, or ids from v13 on; `codecs` and `magics` those of its batches, in order and once each;
    `is_idempotent` if all batches have a producer id; `records` is the sum of the counts in batch headers.
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
    ANSWERED = "answered"
    SILENT = "silent"
    """No answer is due: Produce with acks=0."""
    CLOSED = "closed"
    """The connection was closed for it, or went while it waited; `reason` says why."""


@dataclass(slots=True)
class Peer:
    """One connection. `number` counts from 1 in this process; `opened_ms` is the broker's clock.

    `origin` has the client's software, as soon as it is known: another one may stand here later.
    """

    number: int
    node_id: int
    listener: str
    local_host: str
    local_port: int
    client_host: str
    client_port: int
    opened_ms: int
    origin: Origin


HEAD_BYTES = 10  # of a request: key, version, correlation id, length of the client id
_TEXT = 32  # the first byte that is text


def is_header(key: int, version: int) -> bool:
    """Whether these are numbers of a request. A password that came instead of one (SASL without a handshake) is text,
    and makes large ones."""
    return 0 <= version < _TEXT or 0 <= key < _TEXT


def client_id_of(frame: bytes | memoryview, key: int, version: int, length: int) -> str | None:
    """What a request's client calls itself; None where it does not, or the frame is none."""
    if 0 <= length <= len(frame) - HEAD_BYTES and is_header(key, version):
        return str(frame[HEAD_BYTES : HEAD_BYTES + length], "utf8", "replace")
    return None


@dataclass(slots=True)
class Exchange:
    """One request and its answer.

    `number` counts from 1, in the order in which requests were begun. `time_ms` is the broker's clock, `begun_ns`
    time.perf_counter_ns, when that was. A request too short to have a header has -1 as its key, version and
    correlation id. `request` and `response` are whole frames, headers first; None where they were not kept, and
    `response` also where there is none. The sizes are those on the wire, kept or not. `duration_ns` is the time until
    the answer left, -1 while it has not. `fault` names the fault rules that fired. `produced` is known of Produce
    requests that were not kept.
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

    @property
    def software_name(self) -> str | None:
        """What the client calls itself; None where it does not tell (ApiVersions below v3, KIP-511)."""
        return self.peer.origin.software_name

    @property
    def software_version(self) -> str | None:
        """The version of that."""
        return self.peer.origin.software_version


class Sink(Protocol):
    """Who is told, on the broker's loop. What it raises ends its being told.

    The same `Exchange` comes twice, changed in between; it is shared by all who are told, so none of them changes it.
    """

    def opened(self, peer: Peer) -> None:
        """A connection is there; told at its first request where it was there before anybody listened."""
        ...

    def begun(self, exchange: Exchange) -> None:
        """A request came."""
        ...

    def ended(self, exchange: Exchange) -> None:
        """Its answer left, or will not."""
        ...

    def closed(self, peer: Peer) -> None:
        """A connection is gone; all its exchanges have ended."""
        ...
