"""The newest exchanges of a broker, in memory: what a test or the page asks for.

Owns the bounds: so many exchanges, so many bytes of them, the oldest go first; of a frame above FRAME_BYTES only the
size is kept, and of a Produce request what it says of its producer. Credentials are blanked before anything is kept.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ...protocol.api_key import ApiKey
from .decoding import produced_by
from .exchange import Ending, Exchange, Peer
from .redaction import KEYS, blanked, may_carry

EXCHANGES = 10_000
SIZE_BYTES = 32 << 20
FRAME_BYTES = 128 << 10  # a copy of larger ones would add a half to the time that producing them takes, measured
OVERHEAD_BYTES = 400  # of one exchange beside its frames, measured
_CLOSED = Ending.CLOSED


class Ring:
    """A `Sink`. All methods are for the broker's loop."""

    def __init__(
        self, exchanges: int = EXCHANGES, size_bytes: int = SIZE_BYTES, frame_bytes: int = FRAME_BYTES
    ) -> None:
        self.frame_bytes = frame_bytes
        self._size_max = size_bytes
        self._count = exchanges
        self._places: list[Exchange | None] = [None] * exchanges  # number n stands at n modulo their count
        self._sizes = [0] * exchanges  # as they were counted: an exchange grows while it is here
        self._size = 0
        self._first = 1  # the oldest that may still be here
        self._next = 1
        self._cleared = 1  # what is below was forgotten on purpose
        self.changes = 0
        """Grows whenever an exchange begins or ends."""
        self._waiting: list[asyncio.Future[None]] = []

    # A sink

    def opened(self, peer: Peer) -> None:
        """Nothing to keep."""

    def closed(self, peer: Peer) -> None:
        """The same."""

    def begun(self, exchange: Exchange) -> None:
        """One more; it may be one too many."""
        request = exchange.request
        if request is None or len(request) > self.frame_bytes or exchange.api_key in KEYS:
            self._put(exchange.number % self._count, self._kept(exchange))
        else:  # as `_put` does it; this runs for every request
            place = exchange.number % self._count
            sizes = self._sizes
            size = len(request) + OVERHEAD_BYTES
            self._size += size - sizes[place]
            sizes[place] = size
            self._places[place] = exchange
        self._next = exchange.number + 1
        self.changes += 1
        if self._size > self._size_max:
            self._shrink()
        if self._waiting:
            self._wake()

    def ended(self, exchange: Exchange) -> None:
        """It may be gone already."""
        place = exchange.number % self._count
        old = self._places[place]
        if old is exchange and exchange.response_bytes <= self.frame_bytes and exchange.ending is not _CLOSED:
            self._sizes[place] += exchange.response_bytes
            self._size += exchange.response_bytes
        elif old is None or old.number != exchange.number:
            return
        else:
            self._put(place, self._kept(exchange))
        self.changes += 1
        if self._size > self._size_max:
            self._shrink()
        if self._waiting:
            self._wake()

    def _put(self, place: int, exchange: Exchange) -> None:
        size = OVERHEAD_BYTES
        if exchange.request is not None:
            size += len(exchange.request)
        if exchange.response is not None:
            size += len(exchange.response)
        self._size += size - self._sizes[place]
        self._sizes[place] = size
        self._places[place] = exchange

    def _kept(self, exchange: Exchange) -> Exchange:
        """The exchange itself, or where not all of it may be kept a copy without that."""
        request, response, produced = exchange.request, exchange.response, exchange.produced
        if request is not None and len(request) > self.frame_bytes:
            if exchange.api_key == ApiKey.PRODUCE and produced is None:
                produced = produced_by(request)
            request = None
        if response is not None and len(response) > self.frame_bytes:
            response = None
        key, version = exchange.api_key, exchange.api_version
        if may_carry(key, version):
            request = None if request is None else blanked(request, key, version)
            response = None if response is None else blanked(response, key, version, request=False)
        elif request is exchange.request and response is exchange.response:
            return exchange
        return replace(exchange, request=request, response=response, produced=produced)

    def _shrink(self) -> None:
        count = self._count
        self._first = max(self._first, self._next - count)
        while self._size > self._size_max and self._first < self._next:
            place = self._first % count
            self._size -= self._sizes[place]
            self._sizes[place] = 0
            self._places[place] = None
            self._first += 1

    # What others ask

    @property
    def next_number(self) -> int:
        """Above all that were begun so far."""
        return self._next

    @property
    def _oldest(self) -> int:
        return max(self._first, self._next - self._count)

    def forgotten(self, first: int = 1) -> int:
        """How many from a number on are not here any more, those aside that `clear` took."""
        return max(0, self._oldest - max(first, self._cleared))

    async def changed(self, since: int, seconds: float) -> None:
        """Waits until `changes` is another number, or the time is over."""
        if self.changes != since:
            return
        change = asyncio.get_running_loop().create_future()
        self._waiting.append(change)
        try:
            await asyncio.wait((change,), timeout=seconds)
        finally:
            if change in self._waiting:
                self._waiting.remove(change)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for change in waiting:
            if not change.done():
                change.set_result(None)

    def find(self, number: int) -> Exchange | None:
        """That exchange, if it is still here."""
        found = self._places[number % self._count]
        return found if found is not None and found.number == number else None

    def list(self, first: int = 1) -> list[Exchange]:
        """All that are here, from a number on, oldest first."""
        first = max(first, self._oldest)
        found = [self._places[number % self._count] for number in range(first, self._next)]
        return [one for one in found if one is not None]

    def clear(self) -> int:
        """Forgets all; those that go on now are not noted when they end. How many there were."""
        gone = len(self.list())
        count = self._count
        self._places = [None for _ in range(count)]
        self._sizes, self._size = [0] * count, 0
        self._first = self._cleared = self._next
        return gone
