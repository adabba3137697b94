"""The newest exchanges of a broker in memory, for tests and the control plane.

Bounded by number and by bytes; the oldest are evicted first. Of a frame larger than FRAME_BYTES only the size is kept;
of such a Produce request also the facts about its producer. Credentials are blanked before anything is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from ...protocol.api_key import ApiKey
from .decoding import produced_by
from .exchange import Buffer, Ending, Exchange, Peer
from .redaction import KEYS, blanked

EXCHANGES = 10_000
SIZE_BYTES = 32 << 20
FRAME_BYTES = 128 << 10  # copying larger frames would slow producing them by half, measured
OVERHEAD_BYTES = 400  # of one exchange beside its frames, measured
_CLOSED = Ending.CLOSED


class Ring:
    """A subscriber that keeps the newest exchanges. All methods run on the broker's loop."""

    def __init__(
        self, exchanges: int = EXCHANGES, size_bytes: int = SIZE_BYTES, frame_bytes: int = FRAME_BYTES
    ) -> None:
        self.frame_bytes = frame_bytes
        self._size_max, self._count = size_bytes, exchanges
        self._first = 1  # the oldest number that may still be here
        self.next_number = 1
        """The number after the newest."""
        self._cleared = 1  # the numbers below were removed by `clear`
        self.changes = 0
        """Grows whenever an exchange begins or ends."""
        self._change: asyncio.Future[None] | None = None  # done at the next change
        self._empty()

    def _empty(self) -> None:
        self._places: list[Exchange | None] = [None] * self._count  # exchange n is at index n % count
        self._sizes = [0] * self._count  # as counted in `_size`: an exchange grows when its response arrives
        self._size = 0

    def opened(self, peer: Peer) -> None:
        """Keeps nothing: each exchange refers to its connection."""

    closed = opened

    def begun(self, exchange: Exchange, frame: memoryview) -> None:
        """Appends an exchange, and removes the oldest beyond the bounds."""
        request, number = exchange.request, exchange.number
        if request is None or len(request) > self.frame_bytes or exchange.api_key in KEYS:
            exchange = self._kept(exchange)
            request = exchange.request or b""
        place, sizes = number % self._count, self._sizes
        size = len(request) + OVERHEAD_BYTES
        self._size += size - sizes[place]
        sizes[place] = size
        self._places[place] = exchange
        self.next_number = number + 1
        self._changed()

    def ended(self, exchange: Exchange, response: Sequence[Buffer]) -> None:
        """Completes an exchange, if it is still here."""
        place = exchange.number % self._count
        old = self._places[place]
        if old is exchange and exchange.response_bytes <= self.frame_bytes and exchange.ending is not _CLOSED:
            grown = exchange.response_bytes  # a fast path of the branch below, for nearly every exchange
        elif old is not None and old.number == exchange.number:
            kept = self._places[place] = self._kept(exchange)
            grown = OVERHEAD_BYTES + len(kept.request or b"") + len(kept.response or b"") - self._sizes[place]
        else:
            return
        self._sizes[place] += grown
        self._size += grown
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        if self._size > self._size_max:
            self._first = self._oldest
            while self._size > self._size_max and self._first < self.next_number:
                place = self._first % self._count
                self._size -= self._sizes[place]
                self._sizes[place], self._places[place] = 0, None
                self._first += 1
        if self._change is not None:
            self._change.set_result(None)
            self._change = None

    def _kept(self, exchange: Exchange) -> Exchange:
        """Returns the exchange itself, or a copy without the parts that must not be kept."""
        produced, key, version = exchange.produced, exchange.api_key, exchange.api_version
        request, response = exchange.request, exchange.response
        if request is not None and len(request) <= self.frame_bytes:
            request = blanked(request, key, version)
        elif request is not None:
            produced = produced or (produced_by(request) if key == ApiKey.PRODUCE else None)
            request = None
        if response is not None:
            response = blanked(response, key, version, request=False) if len(response) <= self.frame_bytes else None
        if request is exchange.request and response is exchange.response:
            return exchange
        return replace(exchange, request=request, response=response, produced=produced)

    @property
    def _oldest(self) -> int:
        return max(self._first, self.next_number - self._count)

    def forgotten(self, first: int = 1) -> int:
        """Returns how many exchanges, from this number on, the bounds removed; `clear` does not count."""
        return max(0, self._oldest - max(first, self._cleared))

    async def changed(self, since: int, seconds: float) -> None:
        """Waits until `changes` differs from `since`, or until the time is over."""
        if self.changes == since:
            self._change = self._change or asyncio.get_running_loop().create_future()
            await asyncio.wait((self._change,), timeout=seconds)

    def find(self, number: int) -> Exchange | None:
        """Returns the exchange with this number, or None if it is no longer here."""
        found = self._places[number % self._count]
        return found if found is not None and found.number == number else None

    def list(self, first: int = 1) -> list[Exchange]:
        """Returns the exchanges from a number on, oldest first."""
        numbers = range(max(first, self._oldest), self.next_number)
        return [found for number in numbers if (found := self.find(number)) is not None]

    def clear(self) -> int:
        """Removes all exchanges, also those that have not ended. Returns their number."""
        gone = len(self.list())
        self._empty()
        self._first = self._cleared = self.next_number
        return gone
