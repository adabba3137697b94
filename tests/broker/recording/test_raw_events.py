"""The raw form of a recording: events round-trip, however the file grows and is read."""

from __future__ import annotations

import os
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.metrics.client_ledger import ClientLibrary
from ottla.broker.recording import raw
from ottla.broker.recording.exchange import Ending, Exchange, Peer
from ottla.broker.recording.raw import BEGUN, DROPPED, ENDED, RawReader, event_head, read_begun, read_ended

PEER = Peer(7, 1, "PLAINTEXT", "127.0.0.1", 9092, "127.0.0.1", 40_000, 5, ClientLibrary("PLAINTEXT", None, None, False))


@given(st.lists(st.tuples(st.integers(0, 700), st.integers(0, 2)), max_size=40), st.sampled_from([1, 10, 128]))
def test_events_of_a_growing_file_are_read(steps: list[tuple[int, int]], read_bytes: int) -> None:
    """A step writes an event of some size, and reads a number of events."""
    with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryFile() as file:
        patched.setattr(raw, "_READ_BYTES", read_bytes)
        reader = RawReader(file.fileno())
        written: list[bytes] = []
        read: list[bytes] = []
        for size, reads in steps:
            event = event_head(DROPPED, "x" * size)
            os.write(file.fileno(), event[:3])
            assert len(read) < len(written) or reader.read() is None
            os.write(file.fileno(), event[3:])
            written.append(event)
            for _ in range(reads):
                if (found := reader.read()) is not None:
                    read.append(found)
        while (found := reader.read()) is not None:
            read.append(found)
        assert read == [event[4:] for event in written]
        assert reader.position == sum(map(len, written))


@given(
    st.binary(max_size=60),
    st.none() | st.binary(max_size=40),
    st.sampled_from(list(Ending)),
    st.text(max_size=20),
    st.none() | st.text(min_size=1, max_size=20),
)
def test_exchanges_round_trip_through_events(
    request: bytes, response: bytes | None, ending: Ending, reason: str, fault: str | None
) -> None:
    exchange = Exchange(3, PEER, 8, 9, -1, -1, -1, None, request, len(request))
    event = event_head(BEGUN, exchange, request) + request
    begun = read_begun(event[4:], {7: PEER})
    assert (begun.number, begun.peer, begun.time_ms, begun.begun_ns) == (3, PEER, 8, 9)
    assert (begun.request, begun.request_bytes) == (request, len(request))
    exchange.ending, exchange.reason, exchange.fault, exchange.duration_ns = ending, reason, fault, 4
    exchange.response, exchange.response_bytes = response, 50
    event = event_head(ENDED, exchange, response) + (response or b"")
    pending = {3: begun}
    assert read_ended(event[4:], pending) is begun and not pending and read_ended(event[4:], pending) is None
    assert (begun.duration_ns, begun.response_bytes, begun.response, begun.ending) == (4, 50, response, ending)
    assert begun.reason == reason.encode("utf-8", "replace").decode()
    assert begun.fault == (fault and fault.encode("utf-8", "replace").decode())
